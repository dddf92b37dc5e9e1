//! Errors: of one item, and of the whole job.

use std::any::Any;
use std::fmt;
use std::path::Path;

use rustix::io::Errno;
use serde::Serialize;

/// The stage an error arose in, as result rows name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StageName {
    /// Finding and reading files.
    Source,
    /// From bytes to pixels.
    Decode,
    /// From pixels to the model's input.
    Preprocess,
    /// The network.
    Infer,
    /// From the network's outputs to results.
    Postprocess,
    /// Writing results.
    Sink,
}

/// Why an item failed, as result rows name it. Names are part of the output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The file does not exist.
    NotFound,
    /// The file may not be read.
    PermissionDenied,
    /// Reading failed for another reason.
    Io,
    /// The file changed while it was read.
    Changed,
    /// The process or the system has no descriptor left to open it with: no fault of the file, and others would fail as well.
    TooManyOpenFiles,
    /// 0 bytes.
    Empty,
    /// No image format that is known here.
    NotAnImage,
    /// The data ends too early, and `--strict` is set or nothing could be decoded.
    Truncated,
    /// The data contradicts itself.
    Corrupt,
    /// More pixels or bytes than the limit.
    TooLarge,
    /// JPEG with 12 bits a sample.
    #[serde(rename = "unsupported-12-bit")]
    Unsupported12Bit,
    /// Arithmetic-coded JPEG.
    UnsupportedArithmetic,
    /// Lossless JPEG.
    UnsupportedLossless,
    /// Hierarchical JPEG.
    UnsupportedHierarchical,
    /// A sampling or scan layout that this build decodes wrongly or not at all.
    UnsupportedSampling,
    /// Another feature of a known format that is not supported.
    Unsupported,
    /// A fault of this program: a stage panicked on this item.
    Internal,
}

// The serde names are the public ones: one list serves both.
impl fmt::Display for StageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// One item's failure: a row in the output, never the end of the job.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct ItemError {
    /// Where.
    pub stage: StageName,
    /// What kind.
    pub kind: ErrorKind,
    /// One line for a person: what is wrong and, where something can be done, what.
    pub message: String,
}

impl ItemError {
    /// An error of `stage`.
    pub fn new(stage: StageName, kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { stage, kind, message: message.into() }
    }

    /// A fault of this program: nothing came of a picture.
    pub(crate) fn lost(stage: StageName) -> Self {
        Self::new(stage, ErrorKind::Internal, "a picture was lost")
    }
}

/// What ends a whole job.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// Wrong usage or settings (exit code 2).
    #[error("{0}")]
    Usage(String),
    /// The model could not be loaded.
    #[error(transparent)]
    Model(#[from] crate::model::ModelError),
    /// The engine refused a plan or failed in a run.
    #[error(transparent)]
    Kernel(#[from] ocellus_kernels::KernelError),
    /// There is no GPU to use.
    #[error("{0}; ocellus doctor says what is missing, and classify, run, parity and bench e2e take --device cpu")]
    NoGpu(ocellus_kernels::KernelError),
    /// The GPU's kernels could not be compiled.
    #[error(transparent)]
    Jit(#[from] ocellus_kernels::jit::JitError),
    /// A GPU failed in a job.
    #[error("{gpu}: {error}")]
    OnGpu {
        /// Its name, as in `cuda:1`.
        gpu: String,
        /// How.
        error: Box<JobError>,
    },
    /// Reading or writing failed.
    #[error("{what}: {source}{}", too_many_open_files(source))]
    Io {
        /// What was being done, with the path.
        what: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A stage panicked outside any one item.
    #[error("internal error in stage {stage}: {message}")]
    Panic {
        /// Name of the stage.
        stage: &'static str,
        /// The panic's message.
        message: String,
    },
    /// A stage kept what it was given, or gave what it was not given: a fault of this program.
    #[error(
        "internal error: {results} of {expected} results came of {inputs} inputs; taken and given by each stage: {stages}"
    )]
    Lost {
        /// What came.
        results: u64,
        /// What should have come.
        expected: u64,
        /// What the job took.
        inputs: u64,
        /// What every stage took and gave.
        stages: String,
    },
    /// There was nothing to do.
    #[error("no images in {inputs}: {why}")]
    Nothing {
        /// What the user named.
        inputs: String,
        /// What may be wrong.
        why: String,
    },
    /// Whoever reads what is written has left, and has had enough: no reason to complain.
    #[error("nobody reads what is written")]
    ReaderLeft,
    /// An item failed for what is the job's own trouble: its row would blame the file, and `--resume` would keep it.
    #[error("{path}: {}", error.message)]
    NoDescriptors {
        /// The item's path.
        path: String,
        /// Its failure, of the kind [`ErrorKind::TooManyOpenFiles`].
        error: ItemError,
    },
    /// The user asked to stop (Ctrl-C or SIGTERM).
    #[error("interrupted")]
    Interrupted,
    /// `--fail-fast` and an item failed.
    #[error("{path}: {error} (--fail-fast)")]
    FailFast {
        /// The item's path.
        path: String,
        /// Its failure.
        error: ItemError,
    },
}

impl JobError {
    /// Names the GPU, where that is what failed and is not named yet.
    #[must_use]
    pub fn on_gpu(self, gpu: &str) -> Self {
        match self {
            error @ (Self::Kernel(_) | Self::Jit(_)) if !error.to_string().contains(gpu) => {
                Self::OnGpu { gpu: gpu.to_owned(), error: Box::new(error) }
            }
            error => error,
        }
    }

    /// Shorthand for [`JobError::Io`].
    pub fn io(what: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }

    /// As [`JobError::io`], where a file could not be opened for writing; says where its folder is not there.
    pub fn unwritable(path: &Path, source: std::io::Error) -> Self {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists());
        match folder.filter(|_| source.kind() == std::io::ErrorKind::NotFound) {
            Some(folder) => Self::Usage(format!(
                "cannot write {}: there is no folder {}; make it first",
                path.display(),
                folder.display()
            )),
            None => Self::io(format!("cannot write {}", path.display()), source),
        }
    }

    /// As [`JobError::io`], for what the program writes for others to read: rows, tables.
    pub fn output(what: impl Into<String>, source: std::io::Error) -> Self {
        if source.kind() == std::io::ErrorKind::BrokenPipe { Self::ReaderLeft } else { Self::io(what, source) }
    }
}

/// What to do, to be added to the system's reason, where a file could not be opened because too many are open; else empty.
pub(crate) fn too_many_open_files(e: &std::io::Error) -> &'static str {
    match Errno::from_io_error(e) {
        Some(Errno::MFILE) => "; allow the program more (ulimit -n)",
        Some(Errno::NFILE) => "; all programs together have as many as the system allows (sysctl fs.file-max)",
        _ => "",
    }
}

/// What a panic said, on one line.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    one_line(text.unwrap_or("no message"))
}

/// A foreign message with its line breaks taken out.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The text without characters that would move a terminal's cursor, change its state or turn the direction of writing.
pub(crate) fn printable(text: &str) -> String {
    let turns = |c| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if c.is_control() || turns(c) { '\u{fffd}' } else { c }).collect()
}
