//! Memory of the GPU, and memory of the host that the GPU reaches.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::device::{Device, check};
use super::stream::Stream;
use crate::error::KernelError;

/// Memory of the GPU. It is taken and given back in the order of its stream: whoever uses it on another stream makes
/// that one wait for an event after the taking, and this one before the giving back.
#[derive(Debug)]
pub struct DeviceMemory {
    stream: Stream,
    address: u64,
    len_bytes: usize,
}

impl DeviceMemory {
    /// Takes memory, of unknown content.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`], or where the driver fails.
    pub fn new(stream: &Stream, len_bytes: usize) -> Result<Self, KernelError> {
        stream.device().bind()?;
        // SAFETY: the stream is alive. No part of the memory is read before it is written: kernels write all they read.
        let address = unsafe { result::malloc_async(stream.handle(), len_bytes.max(1)) };
        Ok(Self { stream: stream.clone(), address: check("cuMemAllocAsync", address)?, len_bytes })
    }

    /// Takes memory and fills it. Blocks until that is done: for weights and tables made at the start.
    ///
    /// # Errors
    /// As [`DeviceMemory::new`].
    pub fn from_slice(stream: &Stream, data: &[u8]) -> Result<Self, KernelError> {
        let memory = Self::new(stream, data.len())?;
        if !data.is_empty() {
            // SAFETY: as many bytes as were taken; `data` lives until the copy is done, which is waited for.
            let copied = unsafe { result::memcpy_htod_async(memory.address, data, stream.handle()) };
            check("cuMemcpyHtoDAsync", copied)?;
            stream.synchronize()?;
        }
        Ok(memory)
    }

    /// Sets every byte, in the stream's order.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn fill(&self, byte: u8) -> Result<(), KernelError> {
        self.fill_range(0, self.len_bytes, byte)
    }

    /// Sets bytes `from..from + len`, in the stream's order.
    ///
    /// # Errors
    /// Where the range is not in this memory or the driver fails.
    pub fn fill_range(&self, from: usize, len: usize, byte: u8) -> Result<(), KernelError> {
        if !self.holds(from, len) {
            return Err(KernelError::invalid("fill", format!("{len} bytes at {from} of {}", self.len_bytes)));
        }
        // SAFETY: in this memory, in its stream.
        unsafe { fill_address(&self.stream, self.address + from as u64, len, byte) }
    }

    /// True where bytes `from..from + len` are in this memory.
    pub(super) fn holds(&self, from: usize, len: usize) -> bool {
        from.checked_add(len).is_some_and(|end| end <= self.len_bytes)
    }

    /// The stream in whose order it is taken and given back.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Enqueues a copy of as many bytes from an address of the GPU, in this memory's stream.
    ///
    /// # Safety
    /// So many bytes must be there until the copy is done.
    pub(super) unsafe fn copy_from_address(&self, from_address: u64) -> Result<(), KernelError> {
        self.stream.device().bind()?;
        // SAFETY: the target is this memory; that the source is as long is the caller's promise.
        let copied =
            unsafe { result::memcpy_dtod_async(self.address, from_address, self.len_bytes, self.stream.handle()) };
        check("cuMemcpyDtoDAsync", copied)
    }

    /// Where it lies in the GPU's address space.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Enqueues a copy of bytes `from_at..from_at + len` of another memory to those from `at` on, in the stream of both.
    ///
    /// # Errors
    /// Where the ranges are not in the memories or these not of one stream, or the driver fails.
    pub fn copy_part(&self, at: usize, from: &Self, from_at: usize, len: usize) -> Result<(), KernelError> {
        if !self.holds(at, len) || !from.holds(from_at, len) || from.stream != self.stream {
            let why = format!("{len} bytes at {from_at} of {} to {at} of {}", from.len_bytes, self.len_bytes);
            return Err(KernelError::invalid("copy", format!("{why}, which must be of one stream")));
        }
        self.stream.device().bind()?;
        let (to, from) = (self.address + at as u64, from.address + from_at as u64);
        // SAFETY: both are alive, hold these bytes, and are given back in the order of this stream.
        let copied = unsafe { result::memcpy_dtod_async(to, from, len, self.stream.handle()) };
        check("cuMemcpyDtoDAsync", copied)
    }

    /// Bytes.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Reads the first bytes back. Blocks until the stream has done what was enqueued before.
    ///
    /// # Errors
    /// Where `to` is longer than this, or the driver or earlier work failed.
    pub fn read(&self, to: &mut [u8]) -> Result<(), KernelError> {
        self.read_from(0, to)
    }

    /// Reads bytes `from..from + to.len()` back, as [`DeviceMemory::read`] does the first.
    ///
    /// # Errors
    /// As there.
    pub fn read_from(&self, from: usize, to: &mut [u8]) -> Result<(), KernelError> {
        if !self.holds(from, to.len()) {
            return Err(KernelError::invalid("read", format!("{} bytes at {from} of {}", to.len(), self.len_bytes)));
        }
        // SAFETY: no more bytes than there are.
        unsafe { read_address(&self.stream, self.address + from as u64, to) }
    }
}

/// Copies memory of the GPU to the host, behind what `stream` was given before, and waits for it.
///
/// # Safety
/// So many bytes must be there.
pub(super) unsafe fn read_address(stream: &Stream, address: u64, to: &mut [u8]) -> Result<(), KernelError> {
    stream.device().bind()?;
    if !to.is_empty() {
        // SAFETY: that these bytes are there is the caller's promise; `to` is borrowed until the copy is done.
        let copied = unsafe { result::memcpy_dtoh_async(to, address, stream.handle()) };
        check("cuMemcpyDtoHAsync", copied)?;
    }
    stream.synchronize()
}

/// Enqueues the filling of memory.
///
/// # Safety
/// So many bytes must be there until the work is done.
pub(super) unsafe fn fill_address(
    stream: &Stream,
    address: u64,
    len_bytes: usize,
    byte: u8,
) -> Result<(), KernelError> {
    stream.device().bind()?;
    // SAFETY: that these bytes are there is the caller's promise.
    let filled = unsafe { result::memset_d8_async(address, byte, len_bytes, stream.handle()) };
    check("cuMemsetD8Async", filled)
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.stream.device().bind().is_ok() {
            // SAFETY: taken from the driver, given back once, in the stream's order.
            let _ = unsafe { result::free_async(self.address, self.stream.handle()) };
        }
    }
}

/// Page-locked memory of the host, which the GPU copies from at full speed and also reads and writes in place. The
/// processor's caches hold it: it is meant to be read here as well.
#[derive(Debug)]
pub struct PinnedMemory {
    device: Device,
    host: *mut c_void,
    address: u64,
    len_bytes: usize,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for PinnedMemory {}
// SAFETY: shared references only read.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// Takes memory, zeroed.
    ///
    /// # Errors
    /// Where the system has no more memory to lock, or the driver fails.
    pub fn new(device: &Device, len_bytes: usize) -> Result<Self, KernelError> {
        device.bind()?;
        let len_bytes = len_bytes.max(1);
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: fresh memory, zeroed before anybody sees it.
        let host = check("cuMemHostAlloc", unsafe { result::malloc_host(len_bytes, flags) })?;
        let mut memory = Self { device: device.clone(), host, address: 0, len_bytes };
        // SAFETY: the whole allocation, which nobody else knows yet.
        unsafe { host.cast::<u8>().write_bytes(0, len_bytes) };
        // SAFETY: the memory was allocated with the flag that maps it.
        let mapped = unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut memory.address, host, 0) };
        check("cuMemHostGetDevicePointer", mapped.result())?;
        Ok(memory)
    }

    /// Where the GPU sees it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The bytes. Whoever lets the GPU write them, which takes unsafe code, waits for that work before this is called.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: initialised memory of this length that this value owns.
        unsafe { std::slice::from_raw_parts(self.host.cast::<u8>(), self.len_bytes) }
    }

    /// The bytes, to be written. Whoever lets the GPU read them waits for that work before this is called again.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.host.cast::<u8>(), self.len_bytes) }
    }

    /// Cuts it into parts of so many bytes each; what is left over serves nobody. It goes when all parts have gone.
    pub fn into_parts(self, part_bytes: usize) -> impl Iterator<Item = PinnedPart> {
        let (memory, part_bytes) = (Arc::new(self), part_bytes.max(1));
        let starts = (0..memory.len_bytes / part_bytes).map(move |n| n * part_bytes);
        starts.map(move |start| PinnedPart { memory: Arc::clone(&memory), range: start..start + part_bytes })
    }

    /// Enqueues a copy of bytes `from..from + len` to an address of the GPU.
    ///
    /// # Errors
    /// Where the range is not in this memory or the driver fails.
    ///
    /// # Safety
    /// There must be room for so many bytes. Until the copy is done neither side may go, and this one not be written.
    pub(super) unsafe fn upload(
        &self,
        from: usize,
        len: usize,
        to_address: u64,
        stream: &Stream,
    ) -> Result<(), KernelError> {
        let Some(source) = from.checked_add(len).and_then(|end| self.bytes().get(from..end)) else {
            return Err(KernelError::invalid("upload", format!("{len} bytes at {from} of {}", self.len_bytes)));
        };
        if source.is_empty() {
            return Ok(());
        }
        stream.device().bind()?;
        // SAFETY: the source is this memory; of the target, and for how long, the caller promises.
        let copied = unsafe { result::memcpy_htod_async(to_address, source, stream.handle()) };
        check("cuMemcpyHtoDAsync", copied)
    }

    /// Enqueues a copy from an address of the GPU over bytes `to..to + len`.
    ///
    /// # Errors
    /// As [`PinnedMemory::upload`].
    ///
    /// # Safety
    /// So many bytes must be there. Until the copy is done neither side may go, and this one not be looked at.
    pub(super) unsafe fn download(
        &mut self,
        to: usize,
        len: usize,
        from_address: u64,
        stream: &Stream,
    ) -> Result<(), KernelError> {
        let all = self.len_bytes;
        let Some(target) = to.checked_add(len).and_then(|end| self.bytes_mut().get_mut(to..end)) else {
            return Err(KernelError::invalid("download", format!("{len} bytes at {to} of {all}")));
        };
        if target.is_empty() {
            return Ok(());
        }
        stream.device().bind()?;
        // SAFETY: the target is this memory; of the source, and for how long, the caller promises.
        let copied = unsafe { result::memcpy_dtoh_async(target, from_address, stream.handle()) };
        check("cuMemcpyDtoHAsync", copied)
    }
}

/// A part of page-locked memory, whose other parts may have other owners.
#[derive(Debug)]
pub struct PinnedPart {
    /// Of which nobody sees the whole any more.
    memory: Arc<PinnedMemory>,
    range: Range<usize>,
}

impl AsRef<[u8]> for PinnedPart {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: initialised memory, which lives as long as this does; nobody else has this range.
        unsafe { std::slice::from_raw_parts(self.memory.host.cast::<u8>().add(self.range.start), self.range.len()) }
    }
}

impl AsMut<[u8]> for PinnedPart {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.memory.host.cast::<u8>().add(self.range.start), self.range.len()) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: taken from the driver, given back once; whoever let the GPU use it has waited.
            let _ = unsafe { result::free_host(self.host) };
        }
    }
}
