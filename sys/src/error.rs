//! Why a library cannot be used.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::{Library, search};

/// A place that was tried in vain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The file, or the bare name that the system's loader was asked for.
    pub path: PathBuf,
    /// The loader's message; `None` where there is no such file.
    pub reason: Option<String>,
}

/// A library that could not be loaded, or not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// No place gave a library that loads.
    NotFound {
        /// Which one.
        library: Library,
        /// Where it was looked for, in order.
        tried: Vec<Attempt>,
    },
    /// It lacks a function, so it is older than what is needed or another library under that name.
    MissingSymbol {
        /// Which one.
        library: Library,
        /// Its file, or its bare name.
        path: PathBuf,
        /// The loader's message, which names the function.
        reason: String,
    },
}

impl LoadError {
    /// Which library it is about.
    pub fn library(&self) -> Library {
        match *self {
            Self::NotFound { library, .. } | Self::MissingSymbol { library, .. } => library,
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let library = self.library();
        match self {
            Self::NotFound { tried, .. } => {
                let broken = tried.iter().find(|attempt| attempt.path.is_absolute() && attempt.reason.is_some());
                match broken {
                    Some(Attempt { path, reason: Some(reason) }) => {
                        write!(f, "{library} does not load: {}", with_path(path, reason))?;
                    }
                    _ => write!(f, "{library} not found")?,
                }
            }
            Self::MissingSymbol { path, reason, .. } => {
                write!(f, "{library} is too old: {}", with_path(path, reason))?;
            }
        }
        let product = match library {
            Library::Cuda | Library::Nvml => "the NVIDIA driver",
            Library::Nvrtc => "the CUDA toolkit (or pip install nvidia-cuda-nvrtc in an active venv)",
            Library::Nvjpeg => "the CUDA toolkit (or pip install nvidia-nvjpeg in an active venv)",
            Library::Nvtx => "the CUDA toolkit 13 (or pip install nvidia-nvtx in an active venv)",
        };
        write!(f, "; install {product}, or set {} to the folder of {}", search::OVERRIDE, library.sonames()[0])
    }
}

/// What the system's loader says: `libloading` has only the name of the call in its own message.
pub(crate) fn message(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// The loader's message with the file's path, which it has itself unless it is about another file.
fn with_path(path: &Path, reason: &str) -> String {
    let path = path.to_string_lossy();
    if reason.contains(&*path) { reason.to_owned() } else { format!("{path}: {reason}") }
}
