//! What can go wrong with nvJPEG.

use std::fmt;

use super::bindings::nvjpegStatus_t;

/// `nvjpegStatus_t`, except for success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// No handle.
    NotInitialized,
    /// An argument is wrong.
    InvalidParameter,
    /// The file is damaged.
    BadJpeg,
    /// The file is of a kind that this backend does not decode.
    JpegNotSupported,
    /// No memory, of the device or pinned.
    AllocatorFailure,
    /// Work on the device failed, or there is no device.
    ExecutionFailed,
    /// The GPU is not one that the backend works on.
    ArchMismatch,
    /// A fault inside nvJPEG.
    InternalError,
    /// The backend is not there, as without JPEG engines.
    ImplementationNotSupported,
    /// The file ends too early.
    IncompleteBitstream,
    /// A code that nvjpeg.h did not know when the bindings were made.
    Other(u32),
}

impl From<nvjpegStatus_t> for Status {
    fn from(status: nvjpegStatus_t) -> Self {
        match status {
            nvjpegStatus_t::NVJPEG_STATUS_NOT_INITIALIZED => Self::NotInitialized,
            nvjpegStatus_t::NVJPEG_STATUS_INVALID_PARAMETER => Self::InvalidParameter,
            nvjpegStatus_t::NVJPEG_STATUS_BAD_JPEG => Self::BadJpeg,
            nvjpegStatus_t::NVJPEG_STATUS_JPEG_NOT_SUPPORTED => Self::JpegNotSupported,
            nvjpegStatus_t::NVJPEG_STATUS_ALLOCATOR_FAILURE => Self::AllocatorFailure,
            nvjpegStatus_t::NVJPEG_STATUS_EXECUTION_FAILED => Self::ExecutionFailed,
            nvjpegStatus_t::NVJPEG_STATUS_ARCH_MISMATCH => Self::ArchMismatch,
            nvjpegStatus_t::NVJPEG_STATUS_INTERNAL_ERROR => Self::InternalError,
            nvjpegStatus_t::NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED => Self::ImplementationNotSupported,
            nvjpegStatus_t::NVJPEG_STATUS_INCOMPLETE_BITSTREAM => Self::IncompleteBitstream,
            nvjpegStatus_t(code) => Self::Other(code),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::NotInitialized => "not initialised (1)",
            Self::InvalidParameter => "invalid parameter (2)",
            Self::BadJpeg => "damaged JPEG (3)",
            Self::JpegNotSupported => "JPEG not supported (4)",
            Self::AllocatorFailure => "out of memory (5)",
            Self::ExecutionFailed => "execution failed (6)",
            Self::ArchMismatch => "not for this GPU (7)",
            Self::InternalError => "internal error (8)",
            Self::ImplementationNotSupported => "backend not supported (9)",
            Self::IncompleteBitstream => "the file ends too early (10)",
            Self::Other(code) => return write!(f, "status {code}"),
        };
        f.write_str(text)
    }
}

/// A decode, or what belongs to it, that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NvjpegError {
    /// A call of nvJPEG failed. Of a batch it is not known which picture made it fail.
    #[error("{call}: {status}")]
    Call {
        /// The function.
        call: &'static str,
        /// What it returned.
        status: Status,
    },
    /// The planes given for a picture are smaller than its own, or missing. Nothing was decoded.
    #[error("the planes for picture {index} of the batch are too small")]
    PlanesTooSmall {
        /// Its place in the batch.
        index: usize,
    },
    /// There are not as many outputs as pictures, or none. Nothing was decoded.
    #[error("a batch of {pictures} pictures with {outputs} outputs")]
    WrongBatch {
        /// Number of pictures.
        pictures: usize,
        /// Number of outputs.
        outputs: usize,
    },
}

impl NvjpegError {
    /// What nvJPEG returned; `None` where it was not asked.
    pub fn status(&self) -> Option<Status> {
        match *self {
            Self::Call { status, .. } => Some(status),
            Self::PlanesTooSmall { .. } | Self::WrongBatch { .. } => None,
        }
    }
}
