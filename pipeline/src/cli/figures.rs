//! Files of figures (`--stats`, `--profile`, `--json`). They are opened before the work, which is not done for figures that
//! cannot be written, and emptied when there is something to replace what they hold.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::error::JobError;
use crate::observe::Recorder;
use crate::observe::trace::Recorded;
use crate::sink::{is_stream, open_stream, partial_of};
use crate::stage::Cancel;

/// Where rows and tables go that have no file.
pub(super) const STDOUT: &str = "/dev/stdout";

/// A file that holds figures of an earlier job or nothing, until it is written.
pub(super) struct FiguresFile {
    path: PathBuf,
    file: File,
    is_stream: bool,
    made: Made,
}

/// A file that was made for the figures, and goes where they did not come. What others have there by then stays.
struct Made(Option<(PathBuf, fs::Metadata)>);

impl Drop for Made {
    fn drop(&mut self) {
        let Some((path, made)) = &self.0 else { return };
        let id = |file: &fs::Metadata| (file.dev(), file.ino());
        if fs::symlink_metadata(path).is_ok_and(|file| file.len() == 0 && id(&file) == id(made)) {
            let _ = fs::remove_file(path);
        }
    }
}

impl FiguresFile {
    /// Opens the file that the option names, which may exist where it begins with `start`: as those of earlier jobs do. `others`
    /// are written by this job as well.
    ///
    /// # Errors
    /// Where it holds something else, something else goes there, or it cannot be written.
    pub(super) fn open(
        option: &str,
        path: &Path,
        start: &[u8],
        others: &[&Path],
        cancel: &Cancel,
    ) -> Result<Self, JobError> {
        let refuse = |why: &str| Err(JobError::Usage(format!("{option} {}: {why}", path.display())));
        if path.as_os_str() == "-" {
            return refuse("give the name of a file; /dev/stderr is one");
        }
        if others.iter().any(|other| is_same(path, other) || is_same(path, &partial_of(other))) {
            return refuse("rows or other figures go there; choose another file");
        }
        let is_stream = is_stream(path);
        if !is_stream
            && path.exists()
            && !begins(path, start).map_err(|e| JobError::io(format!("cannot read {}", path.display()), e))?
        {
            return refuse(&format!("it exists and is no file of {option}; remove it or choose another"));
        }
        let mut made = Made(None);
        let file = if is_stream {
            open_stream(path, cancel)?
        } else if let Ok(file) = File::options().write(true).create_new(true).open(path) {
            made.0 = file.metadata().ok().map(|file| (path.to_owned(), file));
            file
        } else {
            File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)
                .map_err(|e| JobError::unwritable(path, e))?
        };
        Ok(Self { path: path.to_owned(), file, is_stream, made })
    }

    /// The file, empty. A stream is what it is.
    fn emptied(mut self) -> io::Result<File> {
        if !self.is_stream {
            self.file.set_len(0)?;
        }
        self.made.0 = None;
        Ok(self.file)
    }

    /// Writes all figures as JSON.
    pub(super) fn write(self, figures: &impl serde::Serialize) -> Result<(), JobError> {
        let path = self.path.clone();
        let json = serde_json::to_string_pretty(figures).map_err(io::Error::from);
        let written = json.and_then(|json| writeln!(self.emptied()?, "{json}"));
        written.map_err(|e| unwritten(&path, e))
    }

    /// Records a job's trace into it from here on.
    fn record(self) -> Result<Profile, JobError> {
        let path = self.path.clone();
        let recorder = self.emptied().and_then(|file| Recorder::to_file(file, "ocellus"));
        Ok(Profile { recorder: recorder.map_err(|e| unwritten(&path, e))?, path })
    }
}

/// A job's trace under way; by default nothing is recorded.
#[derive(Default)]
pub(super) struct Profile {
    path: PathBuf,
    recorder: Recorder,
}

impl Profile {
    /// Records into this file from here on, if there is one.
    pub(super) fn begin(file: Option<FiguresFile>) -> Result<Self, JobError> {
        file.map_or_else(|| Ok(Self::default()), FiguresFile::record)
    }

    /// Records the same job.
    pub(super) fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// Completes the file, if there is one; a line where it leaves something out.
    pub(super) fn finish(&self) -> Result<Option<String>, JobError> {
        let recorded = self.recorder.finish().map_err(|e| unwritten(&self.path, e))?;
        Ok(recorded.filter(|recorded| recorded.left_out > 0).map(|Recorded { events, left_out }| {
            format!("warning: the profile has the first {events} events; {left_out} more are left out")
        }))
    }
}

fn unwritten(path: &Path, error: io::Error) -> JobError {
    JobError::io(format!("cannot write {}", path.display()), error)
}

/// True where both paths lead to one place, which need not exist. A terminal shows what comes from several.
fn is_same(a: &Path, b: &Path) -> bool {
    if let (Ok(a), Ok(b)) = (a.metadata(), b.metadata()) {
        return !a.file_type().is_char_device() && (a.dev(), a.ino()) == (b.dev(), b.ino());
    }
    let place = |path: &Path| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(folder.canonicalize().ok()?.join(path.file_name()?))
    };
    !a.exists() && !b.exists() && place(a).is_some_and(|a| place(b) == Some(a))
}

/// True for a file that is empty or begins like this.
fn begins(path: &Path, start: &[u8]) -> io::Result<bool> {
    let mut found = Vec::new();
    File::open(path)?.take(start.len() as u64).read_to_end(&mut found)?;
    Ok(found.is_empty() || found == start)
}
