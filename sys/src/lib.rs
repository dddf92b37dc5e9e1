//! Finds and loads the NVIDIA libraries that Ocellus uses at run time. Nothing links against CUDA: a machine without it
//! builds and runs everything else, and [`probe`] says what is missing.

mod search;

use std::fmt;
use std::path::{Path, PathBuf};

/// A library that comes with the driver or the CUDA toolkit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Library {
    /// The driver, `libcuda`.
    Cuda,
    /// The run-time compiler, `libnvrtc`.
    Nvrtc,
    /// The JPEG decoder, `libnvjpeg`.
    Nvjpeg,
}

impl Library {
    /// File names that are looked for, preferred first.
    pub fn sonames(self) -> &'static [&'static str] {
        match self {
            Self::Cuda => &["libcuda.so.1"],
            Self::Nvrtc => &["libnvrtc.so.13", "libnvrtc.so.12"],
            Self::Nvjpeg => &["libnvjpeg.so.13", "libnvjpeg.so.12"],
        }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cuda => "libcuda",
            Self::Nvrtc => "libnvrtc",
            Self::Nvjpeg => "libnvjpeg",
        })
    }
}

/// A loaded library. It stays loaded as long as this value lives.
#[derive(Debug)]
pub struct Found {
    library: Library,
    path: PathBuf,
    _handle: libloading::Library,
}

impl Found {
    /// Which one.
    pub fn library(&self) -> Library {
        self.library
    }

    /// The file, or the bare name where the system's loader chose the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A place that was tried in vain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The file, or the bare name that the system's loader was asked for.
    pub path: PathBuf,
    /// The loader's message; `None` where there is no such file.
    pub reason: Option<String>,
}

/// A library that could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct LoadError {
    /// Which one.
    pub library: Library,
    /// Where it was looked for, in order.
    pub tried: Vec<Attempt>,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let broken = self.tried.iter().find(|attempt| attempt.path.is_absolute() && attempt.reason.is_some());
        match broken {
            Some(Attempt { path, reason: Some(reason) }) => {
                write!(f, "{} does not load: {}: {reason}", self.library, path.display())?;
            }
            _ => write!(f, "{} not found in {} places", self.library, self.tried.len())?,
        }
        let name = self.library.sonames()[0];
        match self.library {
            Library::Cuda => {
                write!(f, "; install the NVIDIA driver, or set {} to the folder of {name}", search::OVERRIDE)
            }
            _ => write!(f, "; install the CUDA toolkit, or set {} to the folder of {name}", search::OVERRIDE),
        }
    }
}

/// Looks for a library and loads it. In this order: the folders of the environment variable `OCELLUS_CUDA_LIBS`
/// (separated as in `PATH`), of `CUDA_HOME` and `CUDA_PATH`, of NVIDIA's Python wheels in `VIRTUAL_ENV`, the usual
/// folders of a toolkit and a driver, then whatever the system's loader finds under the bare name.
///
/// A file that does not load is remembered and the search goes on.
///
/// # Errors
/// When no place gave a library that loads; the error lists the places.
pub fn probe(library: Library) -> Result<Found, LoadError> {
    probe_in(library, &search::folders(&|name| std::env::var_os(name)))
}

fn probe_in(library: Library, folders: &[PathBuf]) -> Result<Found, LoadError> {
    let names = || library.sonames().iter();
    let files = folders.iter().flat_map(|folder| names().map(move |name| folder.join(name)));
    let mut tried = Vec::new();
    for path in files.chain(names().map(PathBuf::from)) {
        if path.is_absolute() && !path.is_file() {
            tried.push(Attempt { path, reason: None });
            continue;
        }
        // SAFETY: loading runs the library's initialisers. The names are those of NVIDIA's libraries, whose
        // initialisers are meant to run in any process, and the folders are the user's or the system's own.
        match unsafe { libloading::Library::new(&path) } {
            Ok(handle) => return Ok(Found { library, path, _handle: handle }),
            Err(error) => tried.push(Attempt { path, reason: Some(error.to_string()) }),
        }
    }
    Err(LoadError { library, tried })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::fs;

    /// A real shared object to stand in for a library: the C library's mathematical part, which every Linux has
    /// beside the C library that this process runs on.
    fn stand_in() -> PathBuf {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.split_whitespace().find(|word| word.ends_with("/libc.so.6")).expect("a glibc system");
        Path::new(libc).with_file_name("libm.so.6")
    }

    /// The search without what this machine may have installed under the bare name.
    fn attempts_in_folders(error: &LoadError) -> Vec<&Attempt> {
        error.tried.iter().filter(|attempt| attempt.path.is_absolute()).collect()
    }

    #[test]
    fn a_broken_file_is_remembered_and_the_next_folder_serves() {
        let (broken, good) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for library in [Library::Cuda, Library::Nvrtc, Library::Nvjpeg] {
            let name = library.sonames()[0];
            fs::write(broken.path().join(name), b"").unwrap();
            let target = good.path().join(name);
            fs::copy(stand_in(), &target).unwrap();
            let folders = [broken.path().to_path_buf(), good.path().to_path_buf()];
            let found = probe_in(library, &folders).unwrap();
            assert_eq!((found.library(), found.path()), (library, target.as_path()));
        }
    }

    #[test]
    fn an_older_version_serves_where_the_newer_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        fs::copy(stand_in(), folder.path().join("libnvrtc.so.12")).unwrap();
        let found = probe_in(Library::Nvrtc, &[folder.path().to_path_buf()]).unwrap();
        assert!(found.path().ends_with("libnvrtc.so.12"));
    }

    #[test]
    fn every_place_is_listed() {
        let folder = tempfile::tempdir().unwrap();
        let name = Library::Nvjpeg.sonames()[0];
        for content in [&b""[..], b"\x7fELF", b"not a library"] {
            fs::write(folder.path().join(name), content).unwrap();
            // A machine with CUDA finds the library under its bare name after all.
            let Err(error) = probe_in(Library::Nvjpeg, &[folder.path().to_path_buf()]) else { continue };
            let attempts = attempts_in_folders(&error);
            assert_eq!(attempts.len(), Library::Nvjpeg.sonames().len());
            assert_eq!(attempts[0].path, folder.path().join(name));
            assert!(attempts[0].reason.is_some(), "an unusable file has a reason");
            assert_eq!(attempts[1].reason, None, "a missing file has none");
            let message = error.to_string();
            assert!(message.contains(&*folder.path().to_string_lossy()) && message.contains("OCELLUS_CUDA_LIBS"));
            assert!(!message.contains('\n'), "one line: {message}");
        }
    }

    #[test]
    fn a_missing_driver_is_an_error_that_says_what_to_do() {
        // Found where a driver is installed; never a panic.
        if let Err(error) = probe(Library::Cuda) {
            assert!(error.to_string().contains("install the NVIDIA driver"), "{error}");
            assert!(error.tried.iter().any(|attempt| attempt.path == Path::new("libcuda.so.1")));
        }
    }
}
