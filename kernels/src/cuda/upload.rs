//! Pageable memory of the host to the GPU, through a ring of page-locked memory.

use super::memory::PinnedMemory;
use super::planes::{Plane, PlaneArena};
use super::stream::{Event, Stream};
use crate::error::KernelError;

/// Bytes of each half of the ring: long enough for the full speed of the bus.
const HALF_BYTES: usize = 4 << 20;

/// Copies pictures of any size to the GPU with a fixed amount of page-locked memory: while the bus empties one half of
/// it, the processor fills the other.
#[derive(Debug)]
pub struct Uploader {
    stream: Stream,
    halves: [Half; 2],
}

#[derive(Debug)]
struct Half {
    memory: PinnedMemory,
    copied: Event,
}

impl Half {
    fn new(stream: &Stream) -> Result<Self, KernelError> {
        let memory = PinnedMemory::new(stream.device(), HALF_BYTES)?;
        Ok(Self { memory, copied: Event::new(stream.device())? })
    }
}

impl Uploader {
    /// One whose copies run on `stream`.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`] where there is no memory to lock, or where the driver fails.
    pub fn new(stream: &Stream) -> Result<Self, KernelError> {
        Ok(Self { stream: stream.clone(), halves: [Half::new(stream)?, Half::new(stream)?] })
    }

    /// Enqueues the copy of rows of `row_bytes` bytes each into a plane of the arena. `data` is free on return.
    ///
    /// # Errors
    /// Where the plane has no room for the rows, the arena is of another stream or the driver fails.
    pub fn upload(
        &mut self,
        data: &[u8],
        row_bytes: usize,
        arena: &PlaneArena,
        plane: &Plane,
    ) -> Result<(), KernelError> {
        let pitch = plane.pitch_bytes as usize;
        let rows = data.len().div_ceil(row_bytes.max(1));
        if row_bytes > pitch || rows > plane.rows as usize || !arena.holds(plane) || *arena.stream() != self.stream {
            return Err(KernelError::invalid(
                "upload",
                format!("{rows} rows of {row_bytes} bytes do not fit the plane"),
            ));
        }
        // Whole rows with their padding: one copy a half, whatever the width. Only a row that is longer than a half goes in
        // pieces.
        let part_rows = (HALF_BYTES / pitch.max(1)).max(1);
        let row_addresses = (plane.address..).step_by(part_rows * pitch.max(1));
        for (part, row_address) in data.chunks(part_rows * row_bytes.max(1)).zip(row_addresses) {
            for (piece, address) in part.chunks(HALF_BYTES).zip((row_address..).step_by(HALF_BYTES)) {
                let [half, _] = &mut self.halves;
                half.copied.synchronize()?;
                for (to, from) in half.memory.bytes_mut().chunks_mut(pitch).zip(piece.chunks(row_bytes)) {
                    to[..from.len()].copy_from_slice(from);
                }
                let bytes = if pitch > HALF_BYTES { piece.len() } else { piece.len().div_ceil(row_bytes) * pitch };
                // SAFETY: the rows are in the plane, which is in the arena; its memory is given back in the order of this
                // stream. The half is written again, and dropped, behind the event.
                unsafe { half.memory.upload(0, bytes, address, &self.stream) }?;
                half.copied.record(&self.stream).or_else(|_| self.stream.synchronize())?;
                self.halves.swap(0, 1);
            }
        }
        Ok(())
    }

    /// Waits until everything is there.
    ///
    /// # Errors
    /// Where the driver or earlier work failed.
    pub fn finish(&self) -> Result<(), KernelError> {
        self.halves.iter().try_for_each(|half| half.copied.synchronize())
    }
}

impl Drop for Uploader {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}
