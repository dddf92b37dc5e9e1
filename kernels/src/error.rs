//! The crate's error type.

/// What can go wrong when a network is prepared or run.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// A description contradicts itself or its operands.
    #[error("{op}: {why}")]
    Invalid {
        /// Node or operator at fault.
        op: String,
        /// What does not fit.
        why: String,
    },
    /// The description is sound, but this engine has no implementation of it.
    #[error("{op} is not supported by the {engine} engine: {why}")]
    Unsupported {
        /// Node or operator at fault.
        op: String,
        /// Engine that refused.
        engine: &'static str,
        /// Which property it lacks.
        why: String,
    },
    /// A tensor has more elements than can be counted. A smaller batch may help.
    #[error("{op}: {why}; use a smaller batch")]
    TooLarge {
        /// Node, operator or port at fault.
        op: String,
        /// Which bound it exceeds.
        why: String,
    },
    /// The GPU, its driver or one of its libraries is missing or failed.
    #[error("GPU: {why}")]
    Gpu {
        /// What happened, and what to do.
        why: String,
    },
    /// The GPU, or page-locked memory, has no room.
    #[error("GPU: out of memory ({call}); a smaller batch needs less, and other programs may hold some")]
    OutOfMemory {
        /// Call of the driver that failed.
        call: &'static str,
    },
}

impl KernelError {
    /// Shorthand for [`KernelError::Invalid`].
    pub fn invalid(op: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Invalid { op: op.into(), why: why.into() }
    }

    /// Shorthand for [`KernelError::Gpu`].
    pub fn gpu(why: impl Into<String>) -> Self {
        Self::Gpu { why: why.into() }
    }
}
