//! A file that grows beside its target and takes its name when it is complete.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::resume::{Earlier, scan};
use super::{Columns, Existing, Format, partial_of};
use crate::error::JobError;

/// The partial file, locked as long as it is open, so that two jobs cannot write one output.
///
/// A row is appended by one write and never held back: a killed job loses at most the row it was writing, whose torn
/// line the next job cuts off.
pub(super) struct OutputFile {
    target: PathBuf,
    partial: PathBuf,
    format: Format,
    /// Parquet's columns follow from it.
    #[cfg(feature = "parquet")]
    several_models: bool,
    file: File,
    /// End of the last whole row.
    len_bytes: u64,
    header_bytes: u64,
    /// Length of the finished output that this one continues.
    reopened_bytes: Option<u64>,
    replaces: Replaces,
}

/// Device and inode.
type FileId = (u64, u64);

/// What the complete output may take the name from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replaces {
    /// Whatever has it in the end.
    Anything,
    /// This file, last modified then (seconds, nanoseconds): it has the name already, and its rows are continued.
    Only(FileId, [i64; 2]),
    Nothing,
}

fn id_of(metadata: &fs::Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

fn modified(metadata: &fs::Metadata) -> [i64; 2] {
    [metadata.mtime(), metadata.mtime_nsec()]
}

fn io_error(what: &str, path: &Path) -> impl FnOnce(io::Error) -> JobError {
    let what = format!("{what} {}", path.display());
    move |e| JobError::io(what, e)
}

/// The path with more at its end.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

impl OutputFile {
    pub(super) fn open(
        target: &Path,
        (format, columns): (Format, &Columns),
        existing: Existing,
        header: &[u8],
    ) -> Result<(Self, Earlier), JobError> {
        let partial = partial_of(target);
        let mut file = lock(&partial)?;
        let unfinished = !is_blank(&file, header).map_err(io_error("cannot read", &partial))?;
        let reopened = existing == Existing::Resume && !unfinished && target.exists();
        let prepared = match existing {
            Existing::Refuse => refuse_existing(target, &partial, unfinished),
            Existing::Overwrite | Existing::Resume => Ok(()),
        };
        let emptied = prepared.and_then(|()| {
            let kept = existing == Existing::Resume && unfinished;
            if kept { Ok(()) } else { file.set_len(0).map_err(io_error("cannot empty", &partial)) }
        });
        let scanned = emptied.and_then(|()| {
            if !reopened {
                return scan(&file, &partial, (format, &columns.models), header);
            }
            file = reopen_finished(target, &partial, format)?;
            scan_finished(&file, target, (format, &columns.models), header)
        });
        let (len_bytes, earlier) = match scanned {
            Ok(scanned) => scanned,
            Err(e) => {
                // Everything as it was before.
                if !unfinished {
                    put_back(&partial, reopened.then_some(target));
                }
                return Err(e);
            }
        };
        // What a killed job left of a row is cut off.
        file.set_len(len_bytes).map_err(io_error("cannot shorten", &partial))?;
        let mut output = Self {
            target: target.to_owned(),
            partial,
            format,
            #[cfg(feature = "parquet")]
            several_models: !columns.models.is_empty(),
            file,
            len_bytes,
            header_bytes: header.len() as u64,
            reopened_bytes: reopened.then_some(len_bytes),
            replaces: match (existing, fs::metadata(target)) {
                (Existing::Overwrite, _) => Replaces::Anything,
                (Existing::Resume, Ok(there)) => Replaces::Only(id_of(&there), modified(&there)),
                _ => Replaces::Nothing,
            },
        };
        if len_bytes == 0
            && let Err(e) = output.append(header, 0)
        {
            put_back(&output.partial, None);
            return Err(e);
        }
        Ok((output, earlier))
    }

    /// Appends a row; `rows` counts those before it, for the error's text.
    pub(super) fn append(&mut self, bytes: &[u8], rows: u64) -> Result<(), JobError> {
        let written = self.file.seek(SeekFrom::Start(self.len_bytes)).and_then(|_| self.file.write_all(bytes));
        if let Err(e) = written {
            // Whole rows stay; a failure to cut off the torn one is left to the next job.
            let _ = self.file.set_len(self.len_bytes);
            let what = format!(
                "cannot write {} after {rows} rows, which are kept; make room and run again with --resume",
                self.partial.display()
            );
            return Err(JobError::io(what, e));
        }
        self.len_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Whether the partial file still has its name: it may have been removed, or moved, and others may have taken the name.
    fn is_there(&self) -> bool {
        let ids = [self.partial.symlink_metadata(), self.file.metadata()].map(|m| m.map(|m| id_of(&m)));
        matches!(ids, [Ok(named), Ok(own)] if named == own)
    }

    pub(super) fn finish(mut self) -> Result<(), JobError> {
        if !self.is_there() {
            let [target, partial] = [&self.target, &self.partial].map(|path| path.display());
            let what =
                format!("cannot create {target}: {partial} was removed or moved while the job ran, with all its rows");
            return Err(JobError::io(what, io::ErrorKind::NotFound.into()));
        }
        self.file.sync_all().map_err(io_error("cannot write", &self.partial))?;
        if self.format == Format::Parquet {
            self.convert_to_parquet()?;
        } else {
            self.give_name(&self.partial)?;
        }
        sync_folder(&self.target);
        Ok(())
    }

    /// Gives the complete output its name, and the permissions of the one it replaces.
    fn give_name(&self, complete: &Path) -> Result<(), JobError> {
        let there = fs::metadata(&self.target).ok();
        let replaced = there.filter(|there| match self.replaces {
            Replaces::Anything => there.is_file(),
            Replaces::Only(id, at) => there.is_file() && (id, at) == (id_of(there), modified(there)),
            Replaces::Nothing => false,
        });
        let named = match replaced {
            Some(replaced) => {
                let _ = fs::set_permissions(complete, replaced.permissions());
                fs::rename(complete, &self.target)
            }
            None => rename_new(complete, &self.target),
        };
        named.map_err(|e| {
            let [target, partial] = [&self.target, &self.partial].map(|path| path.display());
            let what = if e.kind() == io::ErrorKind::AlreadyExists {
                format!("{target} appeared while the job ran: move it away; --resume then continues from {partial}")
            } else {
                format!("cannot create {target}; the rows are in {partial}, from which --resume continues")
            };
            JobError::io(what, e)
        })
    }

    /// Parquet has its index at the end and cannot be appended to, so rows are spooled as JSON lines first.
    #[cfg(feature = "parquet")]
    fn convert_to_parquet(&mut self) -> Result<(), JobError> {
        let complete = with_suffix(&self.partial, ".tmp");
        self.file.rewind().map_err(io_error("cannot read", &self.partial))?;
        // Never through a link that lies there.
        let _ = fs::remove_file(&complete);
        let renamed = super::parquet::write(io::BufReader::new(&self.file), self.several_models, &complete)
            .and_then(|()| self.give_name(&complete));
        if renamed.is_err() {
            let _ = fs::remove_file(&complete);
        }
        renamed?;
        fs::remove_file(&self.partial).map_err(io_error("cannot remove", &self.partial))
    }

    #[cfg(not(feature = "parquet"))]
    fn convert_to_parquet(&mut self) -> Result<(), JobError> {
        Err(JobError::Usage(format!("cannot write {}: this build has no parquet", self.target.display())))
    }

    /// The job ended early. Without a new row everything is as it was before the job; else the partial file stays and
    /// is named.
    pub(super) fn abandon(self) -> Option<PathBuf> {
        if !self.is_there() {
            return None;
        }
        if self.reopened_bytes == Some(self.len_bytes) {
            put_back(&self.partial, Some(&self.target));
            return None;
        }
        if self.len_bytes <= self.header_bytes {
            put_back(&self.partial, None);
            return None;
        }
        let _ = self.file.sync_all();
        Some(self.partial)
    }
}

/// Removes a partial file that holds nothing new; one that was `reopened` from a finished output gets that name back,
/// unless the output is still there.
fn put_back(partial: &Path, reopened: Option<&Path>) {
    // Where this fails the rows are still in the partial file, from which `--resume` continues.
    let _ = match reopened {
        Some(target) if !target.exists() => rename_new(partial, target),
        _ => fs::remove_file(partial),
    };
}

/// Renames a file, and replaces none.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] for one that is there.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // A file system or a system that cannot do it in one step.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) if to.symlink_metadata().is_err() => fs::rename(from, to),
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Err(io::ErrorKind::AlreadyExists.into()),
        renamed => Ok(renamed?),
    }
}

/// Whether a partial file holds no row: it is empty, or has a header only, which may be torn or of another `--top`.
fn is_blank(mut file: &File, header: &[u8]) -> io::Result<bool> {
    /// More than the longest header.
    const HEADER_BYTES: u64 = 1 << 16;
    let mut start = Vec::new();
    file.rewind()?;
    file.take(HEADER_BYTES).read_to_end(&mut start)?;
    let [line, header] = [&start, header].map(|line| line.strip_suffix(b"\n").unwrap_or(line));
    let is_header =
        !header.is_empty() && !line.contains(&b'\n') && (line.starts_with(header) || header.starts_with(line));
    Ok(start.is_empty() || is_header)
}

/// The error for an output that exists, whole or partial.
fn refuse_existing(target: &Path, partial: &Path, unfinished: bool) -> Result<(), JobError> {
    let (target_name, partial_name) = (target.display(), partial.display());
    match (target.exists(), unfinished) {
        (true, _) => Err(JobError::Usage(format!(
            "{target_name} exists: --overwrite replaces it, --resume adds what is missing"
        ))),
        (_, true) => Err(JobError::Usage(format!(
            "{partial_name} holds rows of an unfinished job: --resume continues it, --overwrite starts again"
        ))),
        _ => Ok(()),
    }
}

/// Opens a file, a new one where there is none, and locks it.
fn lock(path: &Path) -> Result<File, JobError> {
    loop {
        if path.is_symlink() {
            return Err(JobError::Usage(format!("{} is a link; remove it", path.display())));
        }
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|e| JobError::unwritable(path, e))?;
        match file.try_lock() {
            Ok(()) => {}
            // A file system without locks: that no two jobs write one output is left to the user.
            Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::WouldBlock) => {
                let message = format!("another job is writing {}; wait for it or choose another -o", path.display());
                return Err(JobError::Usage(message));
            }
            Err(TryLockError::Error(e)) => return Err(io_error("cannot lock", path)(e)),
        }
        // Another job may have renamed or removed the file between opening and locking.
        let locked = file.metadata().map_err(io_error("cannot read", path))?;
        if fs::metadata(path).is_ok_and(|named| id_of(&named) == id_of(&locked)) {
            return Ok(file);
        }
    }
}

/// Makes the partial file out of a finished one, in one step, so that its rows exist at every moment. It is locked before
/// it has its name: no other job can take it in between.
fn reopen_finished(target: &Path, partial: &Path, format: Format) -> Result<File, JobError> {
    let rename = |from: &Path| {
        let file = lock(from)?;
        fs::rename(from, partial).map_err(io_error("cannot rename", from))?;
        Ok(file)
    };
    #[cfg(feature = "parquet")]
    if format == Format::Parquet {
        let rows = with_suffix(partial, ".tmp");
        let _ = fs::remove_file(&rows);
        let renamed = super::parquet::to_jsonl(target, &rows).and_then(|()| rename(&rows));
        if renamed.is_err() {
            let _ = fs::remove_file(&rows);
        }
        return renamed;
    }
    let _ = format;
    rename(target)
}

/// As [`scan`], for a finished output: only a partial file may end in a torn row. What else a finished one ends in is not
/// ours to cut off.
fn scan_finished(
    file: &File,
    target: &Path,
    rows: (Format, &[Arc<str>]),
    header: &[u8],
) -> Result<(u64, Earlier), JobError> {
    let (len_bytes, earlier) = scan(file, target, rows, header)?;
    if file.metadata().map_err(io_error("cannot read", target))?.len() != len_bytes {
        return Err(JobError::Usage(format!(
            "{}: it ends in what is no row of this program, or in an input without all its rows; --resume cannot continue it, --overwrite replaces it",
            target.display()
        )));
    }
    Ok((len_bytes, earlier))
}

/// Makes a rename last through a power cut, where the file system can do that.
fn sync_folder(file: &Path) {
    let folder = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}
