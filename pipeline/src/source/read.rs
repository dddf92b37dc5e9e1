//! Reads files.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::OFlags;

use crate::error::{ErrorKind, ItemError, JobError, StageName, too_many_open_files};
use crate::frame::{Budget, Buffer, BufferPool, Encoded, Item, Origin};
use crate::stage::Stage;

/// Longest file that may wait in memory until a decoder is free.
const AHEAD_BYTES: u64 = 16 << 20;
/// What larger files have in memory together, if there is more than one.
const LARGE_BYTES: u64 = 256 << 20;

/// What a reader gives before all of it must have been taken: as much as one file may have.
const GIVEN_BYTES: u64 = 1 << 20;

/// Reads each item's file whole, ahead of the decoders, so that a slow disk does not keep them waiting. A file that is too
/// large for that is left to [`ReadLarge`]: `None`. Clones use the same memory again.
///
/// Only plain files are read: a pipe or a device could keep the job waiting for ever.
#[derive(Clone, Debug)]
pub struct ReadAhead {
    max_bytes: u64,
    pool: BufferPool,
    given_bytes: u64,
}

impl ReadAhead {
    /// A stage that reads files of at most `max_bytes`, into memory of this pool.
    pub fn new(max_bytes: u64, pool: BufferPool) -> Self {
        Self { max_bytes, pool, given_bytes: 0 }
    }
}

impl Stage for ReadAhead {
    type In = Item<()>;
    type Out = Item<Option<Encoded>>;

    fn process(&mut self, item: Item<()>, emit: &mut dyn FnMut(Item<Option<Encoded>>)) -> Result<(), JobError> {
        let origin = Arc::clone(&item.origin);
        emit(item.and_then(|()| {
            let path = path_of(&origin)?;
            let file = PlainFile::find(path, self.max_bytes)?;
            if file.stamp.bytes > AHEAD_BYTES {
                return Ok(None);
            }
            self.given_bytes += file.stamp.bytes;
            let bytes = file.read(&self.pool, self.max_bytes)?;
            Ok(Some(Encoded { bytes, share: None }))
        }));
        Ok(())
    }

    fn is_heavy(&mut self) -> bool {
        let heavy = self.given_bytes > GIVEN_BYTES;
        if heavy {
            self.given_bytes = 0;
        }
        heavy
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
        let origin = Arc::clone(&item.origin);
        emit(item.and_then(|encoded| {
            if let Some(encoded) = encoded {
                return Ok(encoded);
            }
            let path = path_of(&origin)?;
            let file = PlainFile::find(path, self.max_bytes)?;
            let share = self.large.take(file.stamp.bytes);
            // Another may have taken its place while this one waited.
            let bytes = PlainFile::find(path, self.max_bytes)?.read(&BufferPool::default(), self.max_bytes)?;
            Ok(Encoded { bytes, share: Some(share) })
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
    let what = too_many_open_files(e);
    match e.kind() {
        _ if !what.is_empty() => error(ErrorKind::TooManyOpenFiles, format!("{e}{what}")),
        io::ErrorKind::NotFound => error(ErrorKind::NotFound, "no such file or folder"),
        io::ErrorKind::PermissionDenied => error(ErrorKind::PermissionDenied, "no permission to read it"),
        _ => error(ErrorKind::Io, e.to_string()),
    }
}

fn plain(metadata: &Metadata) -> Result<(), ItemError> {
    match metadata {
        m if m.is_file() => Ok(()),
        m if m.is_dir() => Err(error(ErrorKind::Unsupported, "a folder, not a file")),
        _ => Err(error(ErrorKind::Unsupported, "a pipe, socket or device, not a file")),
    }
}

fn check_bytes(bytes: u64, max_bytes: u64) -> Result<(), ItemError> {
    if bytes > max_bytes {
        return Err(error(ErrorKind::TooLarge, format!("{bytes} bytes, the limit is {max_bytes} (--max-bytes)")));
    }
    Ok(())
}

/// What changes when a file is written, or another takes its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    /// Device and inode.
    file: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            file: (metadata.dev(), metadata.ino()),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// A plain file that is not too long, not open yet.
struct PlainFile<'a> {
    path: &'a Path,
    stamp: Stamp,
}

impl<'a> PlainFile<'a> {
    fn find(path: &'a Path, max_bytes: u64) -> Result<Self, ItemError> {
        let metadata = fs::metadata(path).map_err(|e| io_error(&e))?;
        plain(&metadata)?;
        check_bytes(metadata.len(), max_bytes)?;
        Ok(Self { path, stamp: Stamp::of(&metadata) })
    }

    /// Reads it whole: one call each to open, read, look and close.
    fn read(mut self, pool: &BufferPool, max_bytes: u64) -> Result<Buffer, ItemError> {
        let io = |e: io::Error| io_error(&e);
        for last in [false, true] {
            // Where a pipe has taken its name by now, opening it must not wait for its writer.
            let file =
                File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(self.path).map_err(io)?;
            let mut after = self.stamp;
            let stamp = || {
                let metadata = file.metadata().map_err(io)?;
                plain(&metadata)?;
                after = Stamp::of(&metadata);
                Ok(after)
            };
            let read = read_stable(|bytes, at| file.read_at(bytes, at), self.stamp, stamp, pool);
            // Another file took its name before it was opened, and is as good.
            if last || after.file == self.stamp.file {
                return read;
            }
            self = Self::find(self.path, max_bytes)?;
        }
        Err(changed())
    }
}

fn changed() -> ItemError {
    error(ErrorKind::Changed, "the file changed while it was read; run again when it is complete")
}

/// Reads to the end through `read_at`, which takes a buffer and the place to read from. `after` is asked at the end for what
/// must still be as it was `before`.
fn read_stable(
    read_at: impl Fn(&mut [u8], u64) -> io::Result<usize>,
    before: Stamp,
    after: impl FnOnce() -> Result<Stamp, ItemError>,
    pool: &BufferPool,
) -> Result<Buffer, ItemError> {
    // One byte more than announced, to see that it grew without reading an endless file, and that it ended with one call.
    let no_memory = |_| error(ErrorKind::TooLarge, format!("no memory for {} bytes", before.bytes));
    let mut bytes = pool.take(before.bytes as usize + 1).map_err(no_memory)?;
    let read = read_whole(read_at, bytes.as_mut_slice(), before.bytes as usize);
    // What it is says more than why it cannot be read.
    if after()? != before || read.map_err(|e| io_error(&e))? as u64 != before.bytes {
        return Err(changed());
    }
    if before.bytes == 0 {
        return Err(error(ErrorKind::Empty, "the file has 0 bytes"));
    }
    bytes.truncate(before.bytes as usize);
    Ok(bytes)
}

/// Reads until `expected` bytes are there or no more come; gives how many there are.
fn read_whole(
    read_at: impl Fn(&mut [u8], u64) -> io::Result<usize>,
    bytes: &mut [u8],
    expected: usize,
) -> io::Result<usize> {
    let mut there = 0;
    loop {
        match read_at(&mut bytes[there..], there as u64) {
            Ok(0) => return Ok(there),
            Ok(more) => there += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        if there >= expected {
            return Ok(there);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::cell::Cell;

    fn kind<T: std::fmt::Debug>(result: Result<T, ItemError>) -> ErrorKind {
        result.unwrap_err().kind
    }

    /// What the two stages read one after the other, and whether it was left to the second.
    fn read(path: &Path, max_bytes: u64) -> (Result<Vec<u8>, ItemError>, bool) {
        let mut result = None;
        let item = Item::new(0, Origin::File(path.to_owned()), Ok(()));
        let (mut ahead, mut large) = (ReadAhead::new(max_bytes, BufferPool::default()), ReadLarge::new(max_bytes));
        let read = ahead.process(item, &mut |item| {
            let left = matches!(item.payload, Ok(None));
            let read = large.process(item, &mut |item| {
                assert!(item.payload.as_ref().is_ok_and(|encoded| encoded.share.is_some()) <= left);
                result = Some((item.payload.map(|encoded| encoded.bytes.to_vec()), left));
            });
            read.unwrap();
        });
        read.unwrap();
        result.unwrap()
    }

    #[test]
    fn a_file_that_changes_is_refused() {
        let at = |bytes, s| Stamp { file: (1, 1), bytes, modified: (s, 0) };
        // In calls that give at most so many bytes.
        let stable = |content: &[u8], before: Stamp, after: Stamp, most: usize| {
            let read_at = |bytes: &mut [u8], at: u64| {
                let left = &content[(at as usize).min(content.len())..];
                let n = left.len().min(bytes.len()).min(most);
                bytes[..n].copy_from_slice(&left[..n]);
                Ok(n)
            };
            read_stable(read_at, before, || Ok(after), &BufferPool::default()).map(|bytes| bytes.to_vec())
        };
        for most in [1, 2, 100] {
            let stable = |content, before, after| stable(content, before, after, most);
            assert_eq!(stable(b"abc", at(3, 1), at(3, 1)).unwrap(), b"abc");
            assert_eq!(kind(stable(b"abc", at(3, 1), at(3, 2))), ErrorKind::Changed, "rewritten");
            assert_eq!(kind(stable(b"abc", at(3, 1), at(4, 1))), ErrorKind::Changed, "grew after the read");
            assert_eq!(kind(stable(b"ab", at(3, 1), at(3, 1))), ErrorKind::Changed, "shrank");
            assert_eq!(kind(stable(b"", at(3, 1), at(0, 2))), ErrorKind::Changed, "emptied");
            assert_eq!(kind(stable(b"", at(0, 1), at(0, 1))), ErrorKind::Empty);
            let other = Stamp { file: (1, 2), ..at(3, 1) };
            assert_eq!(kind(stable(b"abc", at(3, 1), other)), ErrorKind::Changed, "another file");
        }
        assert_eq!(kind(stable(b"abcd", at(3, 1), at(3, 1), 100)), ErrorKind::Changed, "grew during the read");
        assert_eq!(kind(stable(b"x", at(u64::MAX >> 2, 1), at(1, 1), 100)), ErrorKind::TooLarge);
    }

    #[test]
    fn too_many_open_files_are_no_fault_of_the_file() {
        for (errno, hint) in [(Errno::MFILE, "ulimit -n"), (Errno::NFILE, "fs.file-max")] {
            let error = io_error(&errno.into());
            assert_eq!(error.kind, ErrorKind::TooManyOpenFiles);
            assert!(error.message.contains("open files") && error.message.contains(hint), "{}", error.message);
        }
        assert_eq!(io_error(&Errno::NOMEM.into()).kind, ErrorKind::Io);
    }

    #[test]
    fn interrupted_calls_go_on_and_others_fail() {
        let calls = Cell::new(0);
        let failing = |fails: io::ErrorKind| {
            calls.set(0);
            let read_at = |bytes: &mut [u8], at: u64| {
                calls.set(calls.get() + 1);
                if calls.get() == 2 {
                    return Err(fails.into());
                }
                bytes[0] = at as u8;
                Ok(1)
            };
            let stamp = Stamp { file: (1, 1), bytes: 3, modified: (1, 0) };
            read_stable(read_at, stamp, || Ok(stamp), &BufferPool::default()).map(|bytes| bytes.to_vec())
        };
        assert_eq!(failing(io::ErrorKind::Interrupted).unwrap(), [0, 1, 2]);
        assert_eq!(calls.get(), 4);
        assert_eq!(kind(failing(io::ErrorKind::Other)), ErrorKind::Io);
    }

    #[test]
    fn a_file_that_took_the_name_of_another_is_read_and_a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (here, other) = (folder.path().join("a.jpg"), folder.path().join("b.jpg"));
        let pool = BufferPool::default();
        let found = || {
            fs::write(&here, "abc").unwrap();
            PlainFile::find(&here, 10).unwrap()
        };
        let replaced = |content: &str| {
            let file = found();
            fs::write(&other, content).unwrap();
            fs::rename(&other, &here).unwrap();
            file.read(&pool, 10)
        };
        assert_eq!(&*replaced("other").unwrap(), b"other");
        assert_eq!(kind(replaced("01234567890")), ErrorKind::TooLarge);
        let file = found();
        fs::remove_file(&here).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&here).status().unwrap().success());
        assert_eq!(kind(file.read(&pool, 10)), ErrorKind::Unsupported);
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
