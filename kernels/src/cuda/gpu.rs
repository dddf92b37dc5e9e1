//! A device together with the compiler for it.

use super::device::Device;
use crate::error::KernelError;
use crate::jit::{Jit, JitOptions};

/// What everything on a GPU starts from.
#[derive(Debug)]
pub struct Gpu {
    /// The device.
    pub device: Device,
    /// The compiler for its architecture.
    pub jit: Jit,
}

impl Gpu {
    /// Opens the GPU with this number and finds the compiler.
    ///
    /// # Errors
    /// Where either is missing or too old.
    pub fn open(ordinal: usize, options: JitOptions) -> Result<Self, KernelError> {
        let device = Device::open(ordinal)?;
        let jit = Jit::new(device.facts().arch, options)?;
        Ok(Self { device, jit })
    }
}
