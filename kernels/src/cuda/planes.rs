//! Memory for the planes of a batch of pictures, used again for the next batch.

use super::memory::{DeviceMemory, fill_address, read_address};
use super::stream::{Event, Stream};
use crate::error::KernelError;

/// Planes and their rows start at multiples of this: what the widest access of a kernel asks for.
const ALIGNMENT: usize = 256;
/// Memory is taken in multiples of this.
const GRANULE_BYTES: usize = 2 << 20;
/// What memory is filled with that is to be written: fresh one, and where it is looked at whether it was.
pub(super) const BLANK: u8 = 0xa5;
/// Memory below this is kept however little of it is used.
const KEEP_BYTES: usize = 256 << 20;

/// A plane in memory of the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plane {
    /// First byte.
    pub address: u64,
    /// Bytes from row to row.
    pub pitch_bytes: u32,
    /// Rows that there is room for.
    pub rows: u32,
}

/// Bytes that a plane takes in a [`PlaneArena`].
pub fn plane_bytes(row_bytes: usize, rows: usize) -> usize {
    row_bytes.next_multiple_of(ALIGNMENT).saturating_mul(rows)
}

/// Memory for one batch at a time. It grows with some head room and is kept, so that sizes that vary from batch to batch
/// do not cost an allocation each.
///
/// Whoever reads the planes on another stream says so by [`PlaneArena::read_by`]: the host waits for that before the
/// memory is used again, because the JPEG engines write without waiting for any stream.
#[derive(Debug)]
pub struct PlaneArena {
    stream: Stream,
    /// The batch's memory; beyond the first what was not foreseen.
    blocks: Vec<DeviceMemory>,
    /// Bytes used of the last block.
    used_bytes: usize,
    read: Event,
}

impl PlaneArena {
    /// Memory in the order of `stream`; none is taken yet.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn new(stream: &Stream) -> Result<Self, KernelError> {
        Ok(Self { stream: stream.clone(), blocks: Vec::new(), used_bytes: 0, read: Event::new(stream.device())? })
    }

    /// Starts a batch whose planes take `bytes` together ([`plane_bytes`]). Waits until the planes of the batch before
    /// have been read; they are gone.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`], with nothing held any more, or where the driver fails.
    pub fn begin(&mut self, bytes: usize) -> Result<(), KernelError> {
        self.read.synchronize()?;
        self.used_bytes = 0;
        let held = self.blocks.first().map_or(0, DeviceMemory::len_bytes);
        let oversized = held > KEEP_BYTES && held / 8 > bytes;
        self.blocks.truncate(usize::from(held >= bytes && !oversized));
        if self.blocks.is_empty() && bytes > 0 {
            let roomy = (bytes + bytes / 4).next_multiple_of(GRANULE_BYTES);
            let memory = match DeviceMemory::new(&self.stream, roomy) {
                Err(KernelError::OutOfMemory { .. }) => DeviceMemory::new(&self.stream, bytes),
                taken => taken,
            }?;
            // What a decoder leaves out, and the padding of rows, is never something that lay there before.
            memory.fill(BLANK)?;
            self.blocks.push(memory);
        }
        Ok(())
    }

    /// Room for a plane. What [`PlaneArena::begin`] was not told of takes memory of its own.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`], with the planes so far kept, or where the driver fails.
    pub fn plane(&mut self, row_bytes: usize, rows: usize) -> Result<Plane, KernelError> {
        let bytes = plane_bytes(row_bytes, rows);
        let left = self.blocks.last().map_or(0, |block| block.len_bytes() - self.used_bytes);
        if left < bytes {
            let memory = DeviceMemory::new(&self.stream, bytes)?;
            memory.fill(BLANK)?;
            self.blocks.push(memory);
            self.used_bytes = 0;
        }
        let start = self.blocks.last().map_or(0, DeviceMemory::address);
        let address = start + self.used_bytes as u64;
        self.used_bytes += bytes;
        let pitch_bytes = row_bytes.next_multiple_of(ALIGNMENT);
        let too_large = |_| KernelError::invalid("planes", format!("{rows} rows of {row_bytes} bytes"));
        let (pitch_bytes, rows) =
            (u32::try_from(pitch_bytes).map_err(too_large)?, u32::try_from(rows).map_err(too_large)?);
        Ok(Plane { address, pitch_bytes, rows })
    }

    /// Notes that what is enqueued on `stream` so far reads the planes, as others may that were noted before.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn read_by(&self, stream: &Stream) -> Result<(), KernelError> {
        // The one event stands for all of them.
        stream.wait(&self.read)?;
        self.read.record(stream)
    }

    /// The stream in whose order planes are written.
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Gives the memory back, once the planes have been read.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn release(&mut self) -> Result<(), KernelError> {
        self.read.synchronize()?;
        self.blocks.clear();
        self.used_bytes = 0;
        Ok(())
    }

    /// The samples of a plane, row by row with their padding, behind what the arena's stream was given before: to look at
    /// what a decoder made. Waits.
    ///
    /// # Errors
    /// Where the plane is not in the arena, or the driver or earlier work failed.
    pub fn read(&self, plane: &Plane) -> Result<Vec<u8>, KernelError> {
        if !self.holds(plane) {
            return Err(KernelError::invalid("read", "a plane outside the arena"));
        }
        let mut bytes = vec![0; plane.pitch_bytes as usize * plane.rows as usize];
        // SAFETY: the plane is in the arena's memory, which is given back in the order of this stream.
        unsafe { read_address(&self.stream, plane.address, &mut bytes) }?;
        Ok(bytes)
    }

    /// Enqueues the filling of a plane, in the order of the arena's stream.
    pub(super) fn fill(&self, plane: &Plane, byte: u8) -> Result<(), KernelError> {
        if !self.holds(plane) {
            return Err(KernelError::invalid("fill", "a plane outside the arena"));
        }
        let bytes = plane.pitch_bytes as usize * plane.rows as usize;
        // SAFETY: the plane is in the arena's memory, which is given back in the order of this stream.
        unsafe { fill_address(&self.stream, plane.address, bytes, byte) }
    }

    /// True where the plane lies in memory of this batch.
    pub(super) fn holds(&self, plane: &Plane) -> bool {
        let bytes = u64::from(plane.pitch_bytes) * u64::from(plane.rows);
        self.blocks.iter().any(|block| {
            let from = plane.address.checked_sub(block.address()).map(usize::try_from);
            matches!((from, usize::try_from(bytes)), (Some(Ok(from)), Ok(bytes)) if block.holds(from, bytes))
        })
    }
}

impl Drop for PlaneArena {
    fn drop(&mut self) {
        // The memory goes back in the order of its own stream, which knows nothing of the readers.
        let _ = self.read.synchronize();
    }
}
