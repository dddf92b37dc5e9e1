//! Cubins on disk, one file each, named by the hash of all that they depend on.
//!
//! A file is written beside its place and renamed, so that it is whole or absent whatever happens and however many
//! processes write it. What is read is checked all the same: a file that is damaged, cut short or not ours counts as
//! absent and is written again. A folder that cannot be written costs time, never the work.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::fields::{Fields, put};
use super::spec::Key;
use super::worker::Compiled;

/// Version of the files' layout. Part of every key as well.
pub(super) const FORMAT: u32 = 1;

/// What a file begins with, then [`FORMAT`], key, length of the fields, and the checksum of all this and the fields.
const MAGIC: &[u8; 12] = b"ocellus jit\n";
const HEADER_BYTES: usize = MAGIC.len() + 4 + 32 + 8 + 32;

/// A longer file is none of ours.
const MAX_FILE_BYTES: u64 = 256 << 20;

const EXTENSION: &str = "kernel";
const UNFINISHED: &str = "unfinished";

/// Where cubins are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheDir {
    /// `$OCELLUS_CACHE_DIR`, else `$XDG_CACHE_HOME/ocellus`, else `~/.cache/ocellus`.
    Default,
    /// This folder, made if need be.
    At(PathBuf),
    /// Nowhere.
    None,
}

impl CacheDir {
    /// The folder of the kernels, which is below the one that is named; `None` where there is no place for it.
    pub fn folder(&self) -> Option<PathBuf> {
        let root = match self {
            Self::Default => {
                default_root(|name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from))
            }
            Self::At(folder) => Some(folder.clone()),
            Self::None => None,
        };
        root.map(|root| root.join("kernels"))
    }
}

fn default_root(env: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    // By the XDG base directory specification a relative path there is to be ignored.
    let absolute = |name| env(name).filter(|path| path.is_absolute());
    env("OCELLUS_CACHE_DIR")
        .or_else(|| absolute("XDG_CACHE_HOME").map(|cache| cache.join("ocellus")))
        .or_else(|| absolute("HOME").map(|home| home.join(".cache/ocellus")))
}

/// What is kept under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Architecture, file and defines, for whoever looks at the folder.
    pub(super) about: [String; 3],
    pub(super) compiled: Compiled,
}

/// What was found under a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Entry(Entry),
    Nothing,
    /// A file that is no entry of this key.
    Damaged,
}

/// The folder. Its first failure is remembered and ends all writing.
#[derive(Debug)]
pub(super) struct Cache {
    folder: Option<PathBuf>,
    warning: Mutex<Option<String>>,
}

impl Cache {
    pub(super) fn new(dir: &CacheDir) -> Self {
        let folder = dir.folder();
        let homeless = folder.is_none() && *dir != CacheDir::None;
        let warning = homeless.then(|| {
            "no folder to keep compiled kernels in, so that every start compiles them; set OCELLUS_CACHE_DIR".to_owned()
        });
        Self { folder, warning: Mutex::new(warning) }
    }

    /// What went wrong, in one line for the user.
    pub(super) fn warning(&self) -> Option<String> {
        self.warning.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn warn(&self, folder: &Path, doing: &str, error: &io::Error) {
        let mut warning = self.warning.lock().unwrap_or_else(PoisonError::into_inner);
        warning.get_or_insert_with(|| {
            format!(
                "cannot {doing} compiled kernels in {}, so that every start compiles them: {error}; make room or set \
                 OCELLUS_CACHE_DIR to another folder",
                folder.display()
            )
        });
    }

    pub(super) fn get(&self, key: &Key) -> Found {
        let Some(folder) = &self.folder else { return Found::Nothing };
        match read(&path_of(folder, key)) {
            Ok(bytes) => decode(&bytes, Some(key)).map_or(Found::Damaged, Found::Entry),
            Err(error) if error.kind() == ErrorKind::InvalidData => Found::Damaged,
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    self.warn(folder, "read", &error);
                }
                Found::Nothing
            }
        }
    }

    pub(super) fn put(&self, key: &Key, entry: &Entry) {
        let Some(folder) = &self.folder else { return };
        if self.warning().is_some() {
            return;
        }
        if let Err(error) = write(folder, key, &encode(key, entry)) {
            self.warn(folder, "keep", &error);
        }
    }
}

fn path_of(folder: &Path, key: &Key) -> PathBuf {
    folder.join(format!("{key}.{EXTENSION}"))
}

/// The bytes of a file; `InvalidData` where it cannot be an entry.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Asked before opening: opening a pipe waits for its other end.
    let about = fs::metadata(path)?;
    if !about.is_file() || about.len() > MAX_FILE_BYTES {
        return Err(ErrorKind::InvalidData.into());
    }
    fs::read(path)
}

fn write(folder: &Path, key: &Key, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let unfinished = folder.join(format!("{key}.{:016x}.{UNFINISHED}", RandomState::new().hash_one(0)));
    let written = write_synced(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, path_of(folder, key)));
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file: File = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn encode(key: &Key, entry: &Entry) -> Vec<u8> {
    let mut fields = Vec::new();
    let Entry { about, compiled } = entry;
    about.iter().chain([&compiled.log]).for_each(|text| put(&mut fields, text.as_bytes()));
    put(&mut fields, &compiled.cubin);
    let mut bytes = Vec::with_capacity(HEADER_BYTES + fields.len());
    bytes.extend(MAGIC);
    bytes.extend(FORMAT.to_le_bytes());
    bytes.extend(key.0);
    bytes.extend((fields.len() as u64).to_le_bytes());
    let checksum = Sha256::new().chain_update(&bytes).chain_update(&fields).finalize();
    bytes.extend(checksum);
    bytes.extend(fields);
    bytes
}

/// The entry in a file, where it is one, of this key and in one piece.
fn decode(bytes: &[u8], key: Option<&Key>) -> Option<Entry> {
    let (header, fields) = bytes.split_at_checked(HEADER_BYTES)?;
    let (start, checksum) = header.split_at(HEADER_BYTES - 32);
    let (magic, rest) = start.split_at(MAGIC.len());
    let (format, rest) = rest.split_at(4);
    let (stored_key, length) = rest.split_at(32);
    let sound = magic == MAGIC
        && format == FORMAT.to_le_bytes()
        && key.is_none_or(|key| stored_key == key.0)
        && length == (fields.len() as u64).to_le_bytes()
        && checksum == Sha256::new().chain_update(start).chain_update(fields).finalize().as_slice();
    if !sound {
        return None;
    }
    let mut fields = Fields(fields);
    let about = [fields.text()?, fields.text()?, fields.text()?];
    let log = fields.text()?;
    let cubin = fields.bytes()?.into();
    Some(Entry { about, compiled: Compiled { cubin, log } })
}

/// What a folder holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Number and bytes of the files, by architecture and source file.
    pub kernels: BTreeMap<(String, String), Total>,
    /// Files that are damaged, or of another version of this program.
    pub damaged: Total,
    /// Files that a process left behind which ended while writing, or is writing now.
    pub unfinished: Total,
}

/// A number of files and their bytes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// How many.
    pub files: u64,
    /// How long.
    pub bytes: u64,
}

impl Total {
    /// Adds files.
    pub fn add(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

/// Looks into a folder of kernels. A folder that does not exist is an empty one.
///
/// # Errors
/// When the folder cannot be read.
pub fn list(folder: &Path) -> io::Result<Contents> {
    let mut contents = Contents::default();
    for (path, bytes) in our_files(folder)? {
        let total = if path.extension().is_some_and(|extension| extension == UNFINISHED) {
            &mut contents.unfinished
        } else {
            match read(&path).ok().and_then(|bytes| decode(&bytes, None)) {
                Some(Entry { about: [arch, file, _], .. }) => contents.kernels.entry((arch, file)).or_default(),
                None => &mut contents.damaged,
            }
        };
        total.add(Total { files: 1, bytes });
    }
    Ok(contents)
}

/// Removes every file of ours from a folder of kernels, and says how much that was. Other files stay.
///
/// # Errors
/// When the folder cannot be read or a file not be removed.
pub fn clear(folder: &Path) -> io::Result<Total> {
    let mut removed = Total::default();
    for (path, bytes) in our_files(folder)? {
        match fs::remove_file(&path) {
            Ok(()) => removed.add(Total { files: 1, bytes }),
            // Another process was faster.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}

/// The files of a folder that are named as ours, and their lengths.
fn our_files(folder: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        // One that vanishes meanwhile is not there.
        let Ok(about) = entry.metadata() else { continue };
        if about.is_file() && entry.file_name().to_str().is_some_and(is_ours) {
            files.push((entry.path(), about.len()));
        }
    }
    Ok(files)
}

fn is_ours(name: &str) -> bool {
    let Some((key, extension)) = name.split_once('.') else { return false };
    let is_key = key.len() == 64 && key.bytes().all(|c| c.is_ascii_hexdigit());
    is_key && (extension == EXTENSION || extension.ends_with(UNFINISHED))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key([7; 32]);

    fn entry() -> Entry {
        let about = ["sm_90a", "self_test.cu", "FACTOR=3"].map(str::to_owned);
        Entry { about, compiled: Compiled { cubin: (0..=255).collect(), log: "0 bytes spill stores".into() } }
    }

    #[test]
    fn an_entry_comes_back_and_only_under_its_key() {
        let bytes = encode(&KEY, &entry());
        assert_eq!(decode(&bytes, Some(&KEY)), Some(entry()));
        assert_eq!(decode(&bytes, None), Some(entry()));
        assert_eq!(decode(&bytes, Some(&Key([8; 32]))), None);
    }

    #[test]
    fn every_damaged_byte_and_every_length_is_noticed() {
        let bytes = encode(&KEY, &entry());
        for at in 0..bytes.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                assert_eq!(decode(&damaged, Some(&KEY)), None, "byte {at} ^ {flip}");
                assert_eq!(decode(&damaged, None), None, "byte {at} ^ {flip}");
            }
            assert_eq!(decode(&bytes[..at], None), None, "cut to {at}");
        }
        assert_eq!(decode(&[&bytes[..], b"\0"].concat(), None), None, "too long");
    }

    #[test]
    fn the_folder_is_the_users_choice() {
        let root = |variables: &[(&str, &str)]| {
            let found = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| PathBuf::from(value));
            default_root(found)
        };
        let (own, xdg, home) = (("OCELLUS_CACHE_DIR", "own"), ("XDG_CACHE_HOME", "/xdg"), ("HOME", "/home/me"));
        assert_eq!(root(&[own, xdg, home]), Some("own".into()));
        assert_eq!(root(&[xdg, home]), Some("/xdg/ocellus".into()));
        assert_eq!(root(&[home]), Some("/home/me/.cache/ocellus".into()));
        assert_eq!(root(&[("XDG_CACHE_HOME", "relative"), home]), Some("/home/me/.cache/ocellus".into()));
        assert_eq!(root(&[]), None);
        assert_eq!(CacheDir::At("/a".into()).folder(), Some("/a/kernels".into()));
        assert_eq!(CacheDir::None.folder(), None);
    }

    #[test]
    fn only_our_files_are_removed() {
        let name = KEY.to_string();
        for ours in [format!("{name}.kernel"), format!("{name}.0123456789abcdef.unfinished")] {
            assert!(is_ours(&ours), "{ours}");
        }
        for other in [
            "README",
            ".kernel",
            "x.kernel",
            "notes.unfinished",
            &name,
            &format!("{name}.txt"),
            &format!("{name}0.kernel"),
        ] {
            assert!(!is_ours(other), "{other}");
        }
    }
}
