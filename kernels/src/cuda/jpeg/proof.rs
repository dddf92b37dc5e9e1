//! Proof that a picture was written. Decoders have been seen to report success for a batch of which they skipped a
//! picture: what lay there before would be labelled in its place.

use crate::cuda::device::Device;
use crate::cuda::gpu::Gpu;
use crate::cuda::memory::PinnedMemory;
use crate::cuda::module::{Function, Shape, Value};
use crate::cuda::planes::BLANK;
use crate::cuda::stream::Stream;
use crate::error::KernelError;
use crate::jit::KernelSpec;

/// Samples that are looked at. They are [`BLANK`] before: a picture one of whose planes ends with samples that all have this
/// value is taken for skipped, and decoded once more by another decoder.
const SAMPLES: usize = 16;
/// Bytes of a tail as the kernel reads it.
const TAIL_BYTES: usize = 16;
/// Threads of a block.
const BLOCK: u32 = 128;
/// Tails that there is room for at first.
const TAILS: usize = 192;

/// The last samples of the last row of a plane, which whoever writes the plane writes as well.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    address: u64,
    len: usize,
}

impl Tail {
    /// Of a plane of so many columns and rows.
    pub(super) fn new(address: u64, pitch_bytes: u32, [width_px, height_px]: [u32; 2]) -> Self {
        let len = SAMPLES.min(width_px as usize);
        let row = address + u64::from(height_px.saturating_sub(1)) * u64::from(pitch_bytes);
        Self { address: row + u64::from(width_px) - len as u64, len }
    }
}

/// The kernel. One launch serves a whole batch: a call of the driver for each plane costs as much as decoding it.
pub(super) fn kernel() -> KernelSpec {
    KernelSpec::new("proof.cu", "proof", [])
}

/// Compiles and loads the kernel.
pub(super) fn load(gpu: &Gpu) -> Result<Function, KernelError> {
    let spec = kernel();
    let cubins = gpu.jit.compile(std::slice::from_ref(&spec))?;
    let cubin = cubins.first().ok_or_else(|| KernelError::gpu("no kernel was compiled"))?;
    Function::load(&gpu.device, cubin, spec.entry, 0)
}

/// Looks at tails before and after.
#[derive(Debug)]
pub(super) struct Proof {
    device: Device,
    function: Function,
    /// Tails as the kernel reads them.
    tails: PinnedMemory,
    /// Samples as they are afterwards, [`SAMPLES`] a plane.
    seen: PinnedMemory,
}

impl Proof {
    /// # Errors
    /// Where there is no memory to lock, or the driver fails.
    pub(super) fn new(device: &Device, function: Function) -> Result<Self, KernelError> {
        let tails = PinnedMemory::new(device, TAILS * TAIL_BYTES)?;
        Ok(Self { device: device.clone(), function, tails, seen: PinnedMemory::new(device, TAILS * SAMPLES)? })
    }

    /// Spoils the tails and waits until that is done, and everything that was enqueued before: the JPEG engines do not wait
    /// for the stream.
    pub(super) fn spoil(&mut self, stream: &Stream, tails: &[Tail]) -> Result<(), KernelError> {
        if self.tails.bytes().len() < tails.len() * TAIL_BYTES {
            let room = tails.len().next_power_of_two();
            self.seen = PinnedMemory::new(&self.device, room * SAMPLES)?;
            self.tails = PinnedMemory::new(&self.device, room * TAIL_BYTES)?;
        }
        for (to, tail) in self.tails.bytes_mut().chunks_exact_mut(TAIL_BYTES).zip(tails) {
            to[..8].copy_from_slice(&tail.address.to_le_bytes());
            to[8..].copy_from_slice(&(tail.len as u64).to_le_bytes());
        }
        self.launch(stream, tails.len(), 0)
    }

    /// Which of the tails that were spoiled last have been written, when what was enqueued is done.
    pub(super) fn written(&self, stream: &Stream, tails: &[Tail]) -> Result<impl Iterator<Item = bool>, KernelError> {
        self.launch(stream, tails.len(), self.seen.address())?;
        let samples = self.seen.bytes().chunks_exact(SAMPLES);
        Ok(tails.iter().zip(samples).map(|(tail, samples)| samples[..tail.len].iter().any(|&s| s != BLANK)))
    }

    /// Runs the kernel and waits for it, also after an error.
    fn launch(&self, stream: &Stream, count: usize, seen: u64) -> Result<(), KernelError> {
        let threads = (count * SAMPLES) as u32;
        let shape = Shape { grid: [threads.div_ceil(BLOCK).max(1), 1, 1], block: BLOCK, shared_bytes: 0 };
        let address = self.tails.address();
        let args =
            [Value::Address(address), Value::Address(seen), Value::I32(count as i32), Value::I32(i32::from(BLANK))];
        // SAFETY: the arguments are those of the kernel; the tails are ends of planes, which the caller of the decoder borrows
        // until all this is done; both memories have room for so many, and are not looked at before the wait.
        let launched = unsafe { self.function.launch(stream, shape, &args, false) };
        stream.synchronize().and(launched)
    }
}
