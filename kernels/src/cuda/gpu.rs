//! A device together with the compiler for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use super::device::Device;
use crate::error::KernelError;
use crate::jit::{Arch, Jit, JitOptions};

/// What everything on a GPU starts from.
#[derive(Debug)]
pub struct Gpu {
    /// The device.
    pub device: Device,
    /// The compiler for its architecture, shared with other GPUs of the same one.
    pub jit: Arc<Jit>,
}

impl Gpu {
    /// Opens the GPU with this number and finds the compiler.
    ///
    /// # Errors
    /// Where either is missing or too old.
    pub fn open(ordinal: usize, options: JitOptions) -> Result<Self, KernelError> {
        let device = Device::open(ordinal)?;
        let jit = Jit::new(device.facts().arch, options)?;
        Ok(Self { device, jit: Arc::new(jit) })
    }

    /// Opens several at the same time: starting one takes a moment. Those of one architecture share a compiler, which
    /// compiles a kernel for them once.
    ///
    /// Each fails for itself, as [`Gpu::open`] does.
    pub fn open_all(ordinals: &[usize], options: &JitOptions) -> Vec<Result<Self, KernelError>> {
        let devices: Vec<_> = thread::scope(|scope| {
            let opening: Vec<_> = ordinals.iter().map(|&ordinal| scope.spawn(move || Device::open(ordinal))).collect();
            let ended = |_| Err(KernelError::gpu("opening it ended in a panic"));
            opening.into_iter().map(|thread| thread.join().unwrap_or_else(ended)).collect()
        });
        let mut compilers = BTreeMap::<Arch, Arc<Jit>>::new();
        let with_compiler = |device: Result<Device, KernelError>| {
            let device = device?;
            let arch = device.facts().arch;
            if let Some(jit) = compilers.get(&arch) {
                return Ok(Self { device, jit: Arc::clone(jit) });
            }
            let jit = Arc::new(Jit::new(arch, options.clone())?);
            compilers.insert(arch, Arc::clone(&jit));
            Ok(Self { device, jit })
        };
        devices.into_iter().map(with_compiler).collect()
    }
}
