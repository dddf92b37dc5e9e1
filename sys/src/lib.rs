//! Finds and loads the NVIDIA libraries that Ocellus uses at run time, and makes safe what they offer. Nothing links
//! against CUDA: a machine without it builds and runs everything else, and [`load`] says what is missing.
//!
//! A library that was loaded stays loaded until the process ends. Pointers to its functions are therefore always valid,
//! and whoever asks the system's loader for the same library by its bare name gets this file and no other one: glibc
//! looks at the names of what is loaded first. So `cudarc`, which asks for `libcuda` by names of its own, works with the
//! driver that was found here; [`Found::symbol_address`] lets its caller make sure.

mod error;
pub mod nvjpeg;
pub mod nvml;
pub mod nvrtc;
pub mod nvtx;
mod queues;
mod search;
#[cfg(test)]
mod testing;

use std::ffi::c_int;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub use error::{Attempt, LoadError};
pub use queues::use_all_queues;

/// Ends the process where it is. Unlike [`std::process::exit`] it runs nothing that libraries want done at the end, which
/// they are not made for while another thread is at work in them.
pub fn exit_at_once(status: c_int) -> ! {
    unsafe extern "C" {
        fn _exit(status: c_int) -> !;
    }
    // SAFETY: the function of POSIX, which the C library that Rust links with has.
    unsafe { _exit(status) }
}

/// A library that comes with the driver or the CUDA toolkit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Library {
    /// The driver, `libcuda`.
    Cuda,
    /// The run-time compiler, `libnvrtc`.
    Nvrtc,
    /// The JPEG decoder, `libnvjpeg`.
    Nvjpeg,
    /// What says how a GPU is, `libnvidia-ml`.
    Nvml,
    /// What names a program's ranges of time for profilers, `libnvtx3interop`.
    Nvtx,
}

impl Library {
    /// File names that are looked for, preferred first.
    pub fn sonames(self) -> &'static [&'static str] {
        match self {
            Self::Cuda => &["libcuda.so.1"],
            Self::Nvrtc => &["libnvrtc.so.13", "libnvrtc.so.12"],
            Self::Nvjpeg => &["libnvjpeg.so.13", "libnvjpeg.so.12"],
            Self::Nvml => &["libnvidia-ml.so.1"],
            Self::Nvtx => &["libnvtx3interop.so.1"],
        }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cuda => "libcuda",
            Self::Nvrtc => "libnvrtc",
            Self::Nvjpeg => "libnvjpeg",
            Self::Nvml => "libnvidia-ml",
            Self::Nvtx => "libnvtx3interop",
        })
    }
}

/// A loaded library. It stays loaded as long as this value lives.
#[derive(Debug)]
pub struct Found {
    library: Library,
    path: PathBuf,
    tried: Vec<Attempt>,
    handle: libloading::Library,
    /// What had to be loaded before it and must stay.
    _companions: Vec<libloading::Library>,
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

    /// What was tried in vain before this file, in order.
    pub fn tried(&self) -> &[Attempt] {
        &self.tried
    }

    /// Where a symbol of the library lies; `None` if it has none of that name. To compare, not to call.
    pub fn symbol_address(&self, name: &str) -> Option<usize> {
        // SAFETY: the symbol is only taken as an address and never used as what it is.
        let address = unsafe { self.handle.get::<*const ()>(name).ok()?.try_as_raw_ptr() }?;
        Some(address as usize)
    }

    /// A function of the library.
    ///
    /// # Safety
    /// `F` must be the type of a pointer to the function of that name, and the result must not outlive the library.
    unsafe fn function<F: Copy>(&self, name: &str) -> Result<F, LoadError> {
        // SAFETY: as this function's.
        unsafe { self.handle.get::<F>(name) }.map(|symbol| *symbol).map_err(|error| self.lacks(&error))
    }

    fn lacks(&self, error: &libloading::Error) -> LoadError {
        LoadError::MissingSymbol { library: self.library, path: self.path.clone(), reason: error::message(error) }
    }
}

/// Looks for a library at the first call, loads it, and keeps it loaded until the process ends. In this order: the
/// folders of the environment variable `OCELLUS_CUDA_LIBS` (separated as in `PATH`), of `CUDA_HOME` and `CUDA_PATH`, of
/// NVIDIA's Python wheels in `VIRTUAL_ENV`, the usual folders of a toolkit and a driver, then whatever the system's
/// loader finds under the bare name.
///
/// A file that does not load is remembered and the search goes on. The outcome of the first call is that of all later ones.
///
/// # Errors
/// [`LoadError::NotFound`] when no place gave a library that loads; the error lists the places.
pub fn load(library: Library) -> Result<&'static Found, LoadError> {
    static LOADED: [OnceLock<Result<Found, LoadError>>; 5] = [const { OnceLock::new() }; 5];
    LOADED[library as usize]
        .get_or_init(|| probe_in(library, &search::folders(&|name| std::env::var_os(name))))
        .as_ref()
        .map_err(Clone::clone)
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
        // NVRTC asks the system's loader for its other half by the bare name, and says of a half that is not found only
        // that an "operation" failed. Once the half beside it is loaded, the loader finds that.
        let mut companions = Vec::new();
        for beside in search::companions(library, &path) {
            companions.extend(open(&beside).map_err(|attempt| tried.push(attempt)).ok());
        }
        match open(&path) {
            Ok(handle) => return Ok(Found { library, path, tried, handle, _companions: companions }),
            Err(attempt) => tried.push(attempt),
        }
    }
    Err(LoadError::NotFound { library, tried })
}

fn open(path: &Path) -> Result<libloading::Library, Attempt> {
    // SAFETY: loading runs the library's initialisers. The names are those of NVIDIA's libraries, whose initialisers are
    // meant to run in any process, and the folders are the user's or the system's own.
    unsafe { libloading::Library::new(path) }
        .map_err(|error| Attempt { path: path.to_owned(), reason: Some(error::message(&error)) })
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
    fn attempts_in_folders(tried: &[Attempt]) -> Vec<&Attempt> {
        tried.iter().filter(|attempt| attempt.path.is_absolute()).collect()
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
            // A machine with CUDA finds the library under its bare name after all, and remembers as well.
            let (tried, message) = match probe_in(Library::Nvjpeg, &[folder.path().to_path_buf()]) {
                Ok(found) => (found.tried().to_vec(), None),
                Err(error) => {
                    let message = error.to_string();
                    let LoadError::NotFound { tried, .. } = error else { panic!("{message}") };
                    (tried, Some(message))
                }
            };
            let attempts = attempts_in_folders(&tried);
            assert_eq!(attempts.len(), Library::Nvjpeg.sonames().len());
            assert_eq!(attempts[0].path, folder.path().join(name));
            assert!(attempts[0].reason.is_some(), "an unusable file has a reason");
            assert_eq!(attempts[1].reason, None, "a missing file has none");
            let Some(message) = message else { continue };
            assert!(message.contains("file too short") || message.contains("invalid ELF header"), "{message}");
            assert_eq!(message.matches(&*folder.path().to_string_lossy()).count(), 1, "{message}");
            assert!(message.contains("OCELLUS_CUDA_LIBS"), "{message}");
            assert!(!message.contains('\n'), "one line: {message}");
        }
    }

    #[test]
    fn the_other_half_of_nvrtc_is_loaded_first() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for name in ["libnvrtc.so.13", "libnvrtc-builtins.so.13.0"] {
            fs::copy(stand_in(), file(name)).unwrap();
        }
        fs::write(file("libnvrtc-builtins.so.13.1"), b"broken").unwrap();
        let found = probe_in(Library::Nvrtc, &[folder.path().to_path_buf()]).unwrap();
        assert_eq!(found.path(), file("libnvrtc.so.13"));
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        assert!(maps.contains(&*file("libnvrtc-builtins.so.13.0").to_string_lossy()));
        assert_eq!(found.tried().len(), 1);
        assert_eq!(found.tried()[0].path, file("libnvrtc-builtins.so.13.1"));
    }

    #[test]
    fn the_bare_name_then_means_the_same_file() {
        let Ok(driver) = load(Library::Cuda) else { return println!("skipped: no driver") };
        let again = open(Path::new("libcuda.so.1")).unwrap();
        let again =
            Found { library: Library::Cuda, path: PathBuf::new(), tried: vec![], handle: again, _companions: vec![] };
        assert!(driver.symbol_address("cuInit").is_some());
        assert_eq!(driver.symbol_address("cuInit"), again.symbol_address("cuInit"));
    }

    #[test]
    fn symbols_that_are_missing_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        fs::copy(stand_in(), folder.path().join("libcuda.so.1")).unwrap();
        let found = probe_in(Library::Cuda, &[folder.path().to_path_buf()]).unwrap();
        assert!(found.symbol_address("cos").is_some());
        assert_eq!(found.symbol_address("cuInit"), None);
        // SAFETY: the type of the C library's function.
        let cos = unsafe { found.function::<unsafe extern "C" fn(f64) -> f64>("cos") }.unwrap();
        // SAFETY: takes any value.
        assert_eq!(unsafe { cos(0.0) }.to_bits(), 1.0_f64.to_bits());
        // SAFETY: there is none.
        let error = unsafe { found.function::<unsafe extern "C" fn(u32) -> i32>("cuInit") }.unwrap_err();
        assert!(matches!(error, LoadError::MissingSymbol { library: Library::Cuda, .. }), "{error}");
        assert!(error.to_string().contains("cuInit") && error.to_string().contains("install the NVIDIA driver"));
    }

    #[test]
    fn a_missing_driver_is_an_error_that_says_what_to_do() {
        // Found where a driver is installed; never a panic.
        if let Err(error) = load(Library::Cuda) {
            assert!(error.to_string().contains("install the NVIDIA driver"), "{error}");
            let LoadError::NotFound { tried, .. } = error else { panic!("{error}") };
            assert!(tried.iter().any(|attempt| attempt.path == Path::new("libcuda.so.1")));
        }
    }
}
