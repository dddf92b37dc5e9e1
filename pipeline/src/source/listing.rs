//! A folder's entries in natural order, with bounded memory: long listings are sorted in runs on disk and merged.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::ffi::OsString;
use std::fs::{self, File, FileType};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::natural;

/// Entries sorted in memory at a time; about 2 MB.
const RUN_LEN: usize = 16 * 1024;
/// Bytes read at a time of every run.
const READ_BYTES: usize = 4096;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Folder,
    File,
    Link,
    Special,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Folder, Self::File, Self::Link, Self::Special];

    fn of(file_type: FileType) -> Self {
        match file_type {
            t if t.is_dir() => Self::Folder,
            t if t.is_file() => Self::File,
            t if t.is_symlink() => Self::Link,
            _ => Self::Special,
        }
    }
}

/// A name in a folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: OsString,
    pub(super) kind: Kind,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        natural::compare(self.name.as_bytes(), other.name.as_bytes())
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A folder's entries in natural order.
pub(super) enum Listing {
    /// Few enough to stay in memory.
    Short(std::vec::IntoIter<Entry>),
    /// Sorted runs in a temporary file, and the first entry of each that is left.
    Long { file: File, runs: Vec<Run>, heads: BinaryHeap<Reverse<(Entry, usize)>> },
}

impl Listing {
    /// Lists the folder.
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        Self::with_run_len(folder, RUN_LEN)
    }

    fn with_run_len(folder: &Path, run_len: usize) -> io::Result<Self> {
        let mut entries = Vec::new();
        let mut spilled: Option<(File, Vec<Run>)> = None;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let kind = entry.file_type().map_or(Kind::File, Kind::of);
            entries.push(Entry { name: entry.file_name(), kind });
            if entries.len() == run_len {
                let (file, runs) = match &mut spilled {
                    Some(spilled) => spilled,
                    None => spilled.insert((tempfile::tempfile()?, Vec::new())),
                };
                runs.push(spill(file, &mut entries)?);
            }
        }
        let Some((mut file, mut runs)) = spilled else {
            entries.sort_unstable();
            return Ok(Self::Short(entries.into_iter()));
        };
        runs.push(spill(&mut file, &mut entries)?);
        let mut heads = BinaryHeap::new();
        for (i, run) in runs.iter_mut().enumerate() {
            heads.extend(run.next(&mut file)?.map(|entry| Reverse((entry, i))));
        }
        Ok(Self::Long { file, runs, heads })
    }

    fn pull(&mut self) -> io::Result<Option<Entry>> {
        match self {
            Self::Short(entries) => Ok(entries.next()),
            Self::Long { file, runs, heads } => {
                let Some(Reverse((entry, i))) = heads.pop() else { return Ok(None) };
                heads.extend(runs[i].next(file)?.map(|next| Reverse((next, i))));
                Ok(Some(entry))
            }
        }
    }
}

impl Iterator for Listing {
    type Item = io::Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pull().transpose()
    }
}

/// A sorted part of a listing on disk: for every entry its kind, the length of its name (4 bytes) and the name.
pub(super) struct Run {
    next_byte: u64,
    end_byte: u64,
    read: Vec<u8>,
    used: usize,
}

/// Sorts the entries and moves them to the end of the file.
fn spill(file: &mut File, entries: &mut Vec<Entry>) -> io::Result<Run> {
    entries.sort_unstable();
    let mut bytes = Vec::new();
    for entry in entries.drain(..) {
        bytes.push(entry.kind as u8);
        bytes.extend((entry.name.len() as u32).to_le_bytes());
        bytes.extend(entry.name.as_bytes());
    }
    let next_byte = file.seek(SeekFrom::End(0))?;
    file.write_all(&bytes)?;
    Ok(Run { next_byte, end_byte: next_byte + bytes.len() as u64, read: Vec::new(), used: 0 })
}

impl Run {
    fn next(&mut self, file: &mut File) -> io::Result<Option<Entry>> {
        if self.used == self.read.len() && self.next_byte == self.end_byte {
            return Ok(None);
        }
        let kind = Kind::ALL[usize::from(self.take(file, 1)?[0]) % Kind::ALL.len()];
        let mut len = [0; 4];
        len.copy_from_slice(self.take(file, 4)?);
        let name = OsString::from_vec(self.take(file, u32::from_le_bytes(len) as usize)?.to_vec());
        Ok(Some(Entry { name, kind }))
    }

    fn take(&mut self, file: &mut File, bytes: usize) -> io::Result<&[u8]> {
        while self.read.len() - self.used < bytes {
            self.read.drain(..self.used);
            self.used = 0;
            let more = (READ_BYTES as u64).min(self.end_byte - self.next_byte);
            file.seek(SeekFrom::Start(self.next_byte))?;
            if file.take(more).read_to_end(&mut self.read)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.next_byte += more;
        }
        self.used += bytes;
        Ok(&self.read[self.used - bytes..self.used])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_on_disk_give_the_same_order_as_memory() {
        let folder = tempfile::tempdir().unwrap();
        for i in 0..700 {
            File::create(folder.path().join(format!("{}{}.jpg", ["a", "img", "é"][i % 3], i * 37 % 701))).unwrap();
        }
        File::create(folder.path().join(OsString::from_vec(vec![b'x'; 255]))).unwrap();
        fs::create_dir(folder.path().join("img5")).unwrap();
        std::os::unix::fs::symlink("img5", folder.path().join("link")).unwrap();
        let list = |run_len| -> Vec<Entry> {
            Listing::with_run_len(folder.path(), run_len).unwrap().collect::<io::Result<_>>().unwrap()
        };
        let in_memory = list(1000);
        assert_eq!(in_memory.len(), 703);
        assert!(in_memory.is_sorted());
        let kinds = |kind| in_memory.iter().filter(|e| e.kind == kind).count();
        assert_eq!((kinds(Kind::Folder), kinds(Kind::Link), kinds(Kind::File)), (1, 1, 701));
        for run_len in [1, 10, 702, 703, 704] {
            assert_eq!(list(run_len), in_memory, "runs of {run_len}");
        }
    }
}
