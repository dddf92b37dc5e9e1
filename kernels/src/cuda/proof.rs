//! Proof that a picture was written. Decoders have been seen to report success for a batch of which they skipped a
//! picture: what lay there before would be labelled in its place.

use super::device::Device;
use super::memory::{PinnedMemory, fill_address};
use super::stream::Stream;
use crate::error::KernelError;

/// Samples that are looked at.
const SAMPLES: usize = 16;
/// What they are before. A picture one of whose planes ends with samples that all have this value is taken for skipped, and
/// decoded once more by another decoder.
const POISON: u8 = 0xa5;

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

/// Looks at tails before and after.
#[derive(Debug)]
pub(super) struct Proof {
    device: Device,
    /// Samples as they are afterwards, [`SAMPLES`] a plane.
    host: PinnedMemory,
}

impl Proof {
    /// # Errors
    /// Where there is no memory to lock, or the driver fails.
    pub(super) fn new(device: &Device) -> Result<Self, KernelError> {
        Ok(Self { device: device.clone(), host: PinnedMemory::new(device, 64 * SAMPLES)? })
    }

    /// Spoils the tails and waits until that is done, since the JPEG engines do not wait for the stream.
    pub(super) fn spoil(&mut self, stream: &Stream, tails: &[Tail]) -> Result<(), KernelError> {
        if self.host.bytes().len() < tails.len() * SAMPLES {
            self.host = PinnedMemory::new(&self.device, tails.len().next_power_of_two() * SAMPLES)?;
        }
        // SAFETY: the tails are ends of planes, which the caller of the decoder borrows until all this is done.
        tails.iter().try_for_each(|tail| unsafe { fill_address(stream, tail.address, tail.len, POISON) })?;
        stream.synchronize()
    }

    /// Which of the tails have been written, when what was enqueued is done.
    pub(super) fn written(&mut self, stream: &Stream, tails: &[Tail]) -> Result<Vec<bool>, KernelError> {
        let copies = tails.iter().enumerate();
        // SAFETY: as above; nobody looks at the samples before the wait.
        let enqueued =
            copies.map(|(n, tail)| unsafe { self.host.download(n * SAMPLES, tail.len, tail.address, stream) });
        let enqueued = enqueued.collect::<Result<(), _>>();
        stream.synchronize()?;
        enqueued?;
        let samples = self.host.bytes().chunks_exact(SAMPLES);
        Ok(tails.iter().zip(samples).map(|(tail, samples)| samples[..tail.len].iter().any(|&s| s != POISON)).collect())
    }
}
