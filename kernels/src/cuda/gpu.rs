//! A device together with the compiler for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};

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
    /// Opens the GPU with this number and finds the compiler, at the same time.
    ///
    /// # Errors
    /// Where either is missing or too old.
    pub fn open(ordinal: usize, options: JitOptions) -> Result<Self, KernelError> {
        let arch = Device::arch_of(ordinal)?;
        thread::scope(|scope| {
            let finding = scope.spawn(move || Jit::new(arch, options));
            let device = Device::open(ordinal);
            let jit = finding.join().map_err(|_| KernelError::gpu("finding its compiler ended in a panic"))?;
            Ok(Self { device: device?, jit: Arc::new(jit?) })
        })
    }

    /// Opens several at the same time, and their compilers: starting one takes a moment. Those of one architecture share a
    /// compiler, which compiles a kernel for them once.
    ///
    /// Each fails for itself, as [`Gpu::open`] does.
    pub fn open_all(ordinals: &[usize], options: &JitOptions) -> Vec<Result<Self, KernelError>> {
        let archs: BTreeSet<Arch> = ordinals.iter().filter_map(|&ordinal| Device::arch_of(ordinal).ok()).collect();
        let ended = |what: &str| KernelError::gpu(format!("{what} ended in a panic"));
        thread::scope(|scope| {
            let finding: BTreeMap<Arch, _> =
                archs.into_iter().map(|arch| (arch, scope.spawn(move || Jit::new(arch, options.clone())))).collect();
            let opening: Vec<_> = ordinals.iter().map(|&ordinal| scope.spawn(move || Device::open(ordinal))).collect();
            let compilers: BTreeMap<Arch, _> = finding
                .into_iter()
                .filter_map(|(arch, thread)| Some((arch, thread.join().ok()?.map(Arc::new))))
                .collect();
            let with_compiler = |thread: ScopedJoinHandle<'_, Result<Device, KernelError>>| {
                let device = thread.join().unwrap_or_else(|_| Err(ended("opening it")))?;
                let jit = compilers.get(&device.facts().arch).cloned();
                let jit = jit.ok_or_else(|| ended("finding its compiler"))??;
                Ok(Self { device, jit })
            };
            opening.into_iter().map(with_compiler).collect()
        })
    }
}
