//! Memory of files, used again and again.

use std::collections::TryReserveError;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

/// Smallest buffer that is kept.
const SMALLEST_BYTES: usize = 4 << 10;
/// Sizes of buffers that are kept: the smallest, doubled so many times less one. Larger ones are given back to the system.
const SIZES: usize = 11;
/// What is kept in all, unused.
const KEPT_BYTES: usize = 128 << 20;

/// Keeps the memory of [`Buffer`]s that are dropped for those to come, up to 4 MiB each and 128 MiB together. Clones are one
/// and the same pool.
#[derive(Clone, Debug, Default)]
pub struct BufferPool(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    /// By size.
    buffers: [Vec<Vec<u8>>; SIZES],
    bytes: usize,
}

/// A file's bytes.
#[derive(Debug, Default)]
pub struct Buffer {
    /// What was ever written, so that it is not cleared again.
    memory: Vec<u8>,
    len: usize,
    home: Option<BufferPool>,
}

/// Which of the sizes holds so many bytes.
fn size_of(bytes: usize) -> usize {
    bytes.div_ceil(SMALLEST_BYTES).next_power_of_two().trailing_zeros() as usize
}

impl BufferPool {
    /// A buffer of `len` bytes, whatever they are.
    ///
    /// # Errors
    /// Where there is no memory.
    pub fn take(&self, len: usize) -> Result<Buffer, TryReserveError> {
        let size = size_of(len);
        let mut memory = Vec::new();
        if size < SIZES {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match kept.buffers[size].pop() {
                Some(kept_memory) => {
                    kept.bytes -= kept_memory.capacity();
                    memory = kept_memory;
                }
                // Room for all that may come back, once: what is not used of it is never touched.
                None => kept.buffers[size].reserve(KEPT_BYTES / (SMALLEST_BYTES << size)),
            }
        }
        if memory.capacity() == 0 {
            memory.try_reserve_exact(if size < SIZES { SMALLEST_BYTES << size } else { len })?;
        }
        if memory.len() < len {
            memory.resize(len, 0);
        }
        Ok(Buffer { memory, len, home: Some(self.clone()) })
    }

    fn keep(&self, memory: Vec<u8>) {
        let size = size_of(memory.capacity());
        // Not of these sizes where it was allocated by somebody else.
        if size < SIZES && memory.capacity() == SMALLEST_BYTES << size {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.bytes + memory.capacity() <= KEPT_BYTES {
                kept.bytes += memory.capacity();
                kept.buffers[size].push(memory);
            }
        }
    }
}

impl Buffer {
    /// All of it, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.memory[..self.len]
    }

    /// Leaves the first `len` bytes, if there are more.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(memory: Vec<u8>) -> Self {
        Self { len: memory.len(), memory, home: None }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        Self::from(self.to_vec())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.keep(std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(pool: &BufferPool) -> (usize, usize) {
        let kept = pool.0.lock().unwrap();
        let bytes = kept.buffers.iter().flatten().map(Vec::capacity).sum();
        assert_eq!(kept.bytes, bytes);
        (kept.buffers.iter().map(Vec::len).sum(), bytes)
    }

    #[test]
    fn memory_comes_back_and_serves_what_fits() {
        let pool = BufferPool::default();
        for len in [0, 1, 4096, 4097, 40_000, 65_536, 65_537, 4 << 20, (4 << 20) + 1] {
            let mut buffer = pool.take(len).unwrap();
            assert_eq!(buffer.len(), len);
            buffer.as_mut_slice().fill(7);
            buffer.truncate(len / 2);
            buffer.truncate(len);
            assert!(buffer.len() == len / 2 && buffer.iter().all(|&byte| byte == 7));
            let address = buffer.as_ptr();
            let before = kept(&pool).0;
            drop(buffer);
            let small = len <= 4 << 20;
            assert_eq!(kept(&pool).0, before + usize::from(small), "{len}");
            if small {
                let again = pool.take(len).unwrap();
                assert_eq!((again.as_ptr(), again.len()), (address, len), "{len}");
            }
        }
    }

    #[test]
    fn what_is_kept_is_bounded_and_clones_are_apart() {
        let pool = BufferPool::default();
        let buffers: Vec<_> = (0..40).map(|_| pool.take(4 << 20).unwrap()).collect();
        let clone = buffers[0].clone();
        drop(buffers);
        assert_eq!(kept(&pool), (32, KEPT_BYTES));
        assert_eq!(clone.len(), 4 << 20);
        drop((clone, Buffer::from(vec![0; SMALLEST_BYTES])));
        assert_eq!(kept(&pool), (32, KEPT_BYTES), "what came from elsewhere goes there");
    }

    #[test]
    fn no_memory_is_an_error() {
        assert!(BufferPool::default().take(usize::MAX >> 1).is_err());
    }
}
