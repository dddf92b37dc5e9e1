//! Reads files.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::SystemTime;

use crate::error::{ErrorKind, ItemError, JobError, StageName};
use crate::frame::{Budget, Encoded, Item, Origin, Share};
use crate::stage::Stage;

/// Longest file that may wait in memory until a decoder is free.
const AHEAD_BYTES: u64 = 16 << 20;
/// What larger files have in memory together, if there is more than one.
const LARGE_BYTES: u64 = 256 << 20;

/// Reads each item's file whole, ahead of the decoders, so that a slow disk does not keep them waiting. A file that is too
/// large for that is left to [`ReadLarge`]: `None`.
///
/// Only plain files are read: a pipe or a device could keep the job waiting for ever.
#[derive(Clone, Debug)]
pub struct ReadAhead {
    /// Longest file that is read.
    pub max_bytes: u64,
}

impl Stage for ReadAhead {
    type In = Item<()>;
    type Out = Item<Option<Encoded>>;

    fn process(&mut self, item: Item<()>, emit: &mut dyn FnMut(Item<Option<Encoded>>)) -> Result<(), JobError> {
        let origin = item.origin.clone();
        emit(item.and_then(|()| {
            let path = path_of(&origin)?;
            let later = file_bytes(path, self.max_bytes)? > AHEAD_BYTES;
            if later { Ok(None) } else { read_file(path, self.max_bytes, None).map(Some) }
        }));
        Ok(())
    }
}

/// Reads what [`ReadAhead`] left, on the thread that decodes it. Clones have one budget of memory: whoever takes bytes
/// from here must let go of them without waiting for the next.
#[derive(Clone, Debug)]
pub struct ReadLarge {
    max_bytes: u64,
    large: Budget,
}

impl ReadLarge {
    /// A stage that reads files of at most `max_bytes`.
    pub fn new(max_bytes: u64) -> Self {
        Self { max_bytes, large: Budget::new(LARGE_BYTES) }
    }
}

impl Stage for ReadLarge {
    type In = Item<Option<Encoded>>;
    type Out = Item<Encoded>;

    fn process(&mut self, item: Item<Option<Encoded>>, emit: &mut dyn FnMut(Item<Encoded>)) -> Result<(), JobError> {
        let origin = item.origin.clone();
        emit(item.and_then(|encoded| {
            if let Some(encoded) = encoded {
                return Ok(encoded);
            }
            let path = path_of(&origin)?;
            let share = self.large.take(file_bytes(path, self.max_bytes)?);
            read_file(path, self.max_bytes, Some(share))
        }));
        Ok(())
    }
}

fn path_of(origin: &Origin) -> Result<&Path, ItemError> {
    match origin {
        Origin::File(path) => Ok(path),
        Origin::Frame { .. } => Err(error(ErrorKind::Unsupported, "a stream's frame cannot be read as a file")),
    }
}

fn error(kind: ErrorKind, message: impl Into<String>) -> ItemError {
    ItemError::new(StageName::Source, kind, message)
}

/// The item error behind a system's error.
pub(super) fn io_error(e: &io::Error) -> ItemError {
    match e.kind() {
        io::ErrorKind::NotFound => error(ErrorKind::NotFound, "no such file or folder"),
        io::ErrorKind::PermissionDenied => error(ErrorKind::PermissionDenied, "no permission to read it"),
        _ => error(ErrorKind::Io, e.to_string()),
    }
}

/// The length of a plain file that is not too long.
fn file_bytes(path: &Path, max_bytes: u64) -> Result<u64, ItemError> {
    let bytes = plain_bytes(&fs::metadata(path).map_err(|e| io_error(&e))?)?;
    check_bytes(bytes, max_bytes)
}

fn plain_bytes(metadata: &Metadata) -> Result<u64, ItemError> {
    match metadata {
        m if m.is_file() => Ok(m.len()),
        m if m.is_dir() => Err(error(ErrorKind::Unsupported, "a folder, not a file")),
        _ => Err(error(ErrorKind::Unsupported, "a pipe, socket or device, not a file")),
    }
}

fn check_bytes(bytes: u64, max_bytes: u64) -> Result<u64, ItemError> {
    if bytes > max_bytes {
        return Err(error(ErrorKind::TooLarge, format!("{bytes} bytes, the limit is {max_bytes} (--max-bytes)")));
    }
    Ok(bytes)
}

/// Reads a file that was plain when [`file_bytes`] looked: opening a pipe would wait for its writer.
fn read_file(path: &Path, max_bytes: u64, share: Option<Share>) -> Result<Encoded, ItemError> {
    let io = |e: io::Error| io_error(&e);
    let file = File::open(path).map_err(io)?;
    plain_bytes(&file.metadata().map_err(io)?)?;
    let stamp = || file.metadata().map(|m| Stamp { bytes: m.len(), modified: m.modified().ok() });
    let bytes = read_stable(&file, stamp, max_bytes)?;
    Ok(Encoded { bytes, share })
}

/// What changes when a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
}

/// Reads to the end; `stamp` is asked before and after.
fn read_stable(
    reader: impl io::Read,
    mut stamp: impl FnMut() -> io::Result<Stamp>,
    max_bytes: u64,
) -> Result<Vec<u8>, ItemError> {
    let io = |e: io::Error| io_error(&e);
    let before = stamp().map_err(io)?;
    check_bytes(before.bytes, max_bytes)?;
    let mut bytes = Vec::new();
    let capacity = before.bytes as usize + 1;
    if bytes.try_reserve_exact(capacity).is_err() {
        return Err(error(ErrorKind::TooLarge, format!("no memory for {} bytes", before.bytes)));
    }
    // One byte more than announced, to see that it grew without reading an endless file.
    reader.take(before.bytes + 1).read_to_end(&mut bytes).map_err(io)?;
    if stamp().map_err(io)? != before || bytes.len() as u64 != before.bytes {
        return Err(error(ErrorKind::Changed, "the file changed while it was read; run again when it is complete"));
    }
    if bytes.is_empty() {
        return Err(error(ErrorKind::Empty, "the file has 0 bytes"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn kind(result: Result<Vec<u8>, ItemError>) -> ErrorKind {
        result.unwrap_err().kind
    }

    /// What the two stages read one after the other, and whether it was left to the second.
    fn read(path: &Path, max_bytes: u64) -> (Result<Vec<u8>, ItemError>, bool) {
        let mut result = None;
        let item = Item::new(0, Origin::File(path.to_owned()), Ok(()));
        let (mut ahead, mut large) = (ReadAhead { max_bytes }, ReadLarge::new(max_bytes));
        let read = ahead.process(item, &mut |item| {
            let left = matches!(item.payload, Ok(None));
            let read = large.process(item, &mut |item| {
                assert!(item.payload.as_ref().is_ok_and(|encoded| encoded.share.is_some()) <= left);
                result = Some((item.payload.map(|encoded| encoded.bytes), left));
            });
            read.unwrap();
        });
        read.unwrap();
        result.unwrap()
    }

    #[test]
    fn a_file_that_changes_is_refused() {
        let at = |bytes, s| Stamp { bytes, modified: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(s)) };
        let stable = |content: &[u8], stamps: [Stamp; 2]| {
            let mut stamps = stamps.into_iter();
            read_stable(content, move || stamps.next().ok_or_else(|| io::ErrorKind::Other.into()), 100)
        };
        assert_eq!(stable(b"abc", [at(3, 1), at(3, 1)]).unwrap(), b"abc");
        assert_eq!(kind(stable(b"abc", [at(3, 1), at(3, 2)])), ErrorKind::Changed, "rewritten");
        assert_eq!(kind(stable(b"abc", [at(3, 1), at(4, 1)])), ErrorKind::Changed, "grew after the read");
        assert_eq!(kind(stable(b"abcd", [at(3, 1), at(3, 1)])), ErrorKind::Changed, "grew during the read");
        assert_eq!(kind(stable(b"ab", [at(3, 1), at(3, 1)])), ErrorKind::Changed, "shrank");
        assert_eq!(kind(stable(b"", [at(3, 1), at(0, 2)])), ErrorKind::Changed, "emptied");
        assert_eq!(kind(stable(b"", [at(0, 1), at(0, 1)])), ErrorKind::Empty);
        assert_eq!(kind(stable(b"x", [at(101, 1), at(101, 1)])), ErrorKind::TooLarge);
        assert_eq!(kind(stable(b"x", [at(u64::MAX >> 1, 1), at(1, 1)])), ErrorKind::TooLarge);
    }

    #[test]
    fn only_plain_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a.jpg"), "abc").unwrap();
        std::os::unix::fs::symlink("a.jpg", path("link.jpg")).unwrap();
        std::os::unix::fs::symlink("loop.jpg", path("loop.jpg")).unwrap();
        let socket = std::os::unix::net::UnixListener::bind(path("socket.jpg")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(path("fifo.jpg")).status().unwrap().success());
        let read = |path: &Path, max_bytes| {
            let (result, left) = read(path, max_bytes);
            assert!(!left, "a small file is read ahead");
            result
        };
        assert_eq!(read(&path("a.jpg"), 3).unwrap(), b"abc");
        assert_eq!(read(&path("link.jpg"), 3).unwrap(), b"abc");
        assert_eq!(kind(read(&path("a.jpg"), 2)), ErrorKind::TooLarge);
        assert_eq!(kind(read(&path("none.jpg"), 3)), ErrorKind::NotFound);
        assert_eq!(kind(read(&path("a.jpg").join("b"), 3)), ErrorKind::Io);
        assert_eq!(kind(read(&path("loop.jpg"), 3)), ErrorKind::Io);
        for special in [path("fifo.jpg"), path("socket.jpg"), "/dev/zero".into(), folder.path().into()] {
            assert_eq!(kind(read(&special, 3)), ErrorKind::Unsupported, "{}", special.display());
        }
        drop(socket);
    }
    #[test]
    fn large_files_are_left_to_the_thread_that_decodes_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bmp");
        let file = File::create(&path).unwrap();
        for (bytes, expected) in [(AHEAD_BYTES, false), (AHEAD_BYTES + 1, true)] {
            file.set_len(bytes).unwrap();
            let (result, left) = read(&path, u64::MAX);
            assert_eq!((result.unwrap().len() as u64, left), (bytes, expected));
            assert_eq!(kind(read(&path, bytes - 1).0), ErrorKind::TooLarge);
        }
    }
}
