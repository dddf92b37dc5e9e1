//! Memory of files that a GPU is to copy from.

use ocellus_kernels::cuda::device::Device;
use ocellus_kernels::cuda::memory::PinnedMemory;
use tracing::debug;

use crate::frame::{BufferPool, LockedMemory};

/// Page-locked at a time.
const PINNED_BYTES: usize = 2 << 20;

/// Memory of files, page-locked: what decodes them copies from there at full speed, where of other memory the driver first
/// makes a copy of its own, one thread at a time.
pub fn file_memory(device: &Device) -> BufferPool {
    let device = device.clone();
    BufferPool::locked(move |bytes| match PinnedMemory::new(&device, bytes.max(PINNED_BYTES)) {
        Ok(memory) => memory.into_parts(bytes).map(|part| Box::new(part) as Box<dyn LockedMemory>).collect(),
        Err(error) => {
            debug!(%error, "files are read into memory that is not page-locked");
            Vec::new()
        }
    })
}
