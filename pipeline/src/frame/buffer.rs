//! Memory of files, used again and again.

use std::collections::TryReserveError;
use std::fmt::{self, Debug, Formatter};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Smallest buffer that is kept.
const SMALLEST_BYTES: usize = 4 << 10;
/// Sizes of buffers that are kept: the smallest, doubled so many times less one. Larger ones are given back to the system.
const SIZES: usize = 11;
/// What is kept in all, unused, of the system's memory.
const KEPT_BYTES: usize = 128 << 20;
/// Most page-locked memory, used or not: of 500x375 pixels a job on an H200 has files of 180 MiB under way.
const LOCKED_BYTES: usize = 256 << 20;

/// Keeps the memory of [`Buffer`]s that are dropped for those to come, up to 4 MiB each and 128 MiB together. Clones are one
/// and the same pool.
#[derive(Clone, Debug, Default)]
pub struct BufferPool {
    kept: Arc<Mutex<Kept>>,
    lock: Option<Lock>,
}

/// Memory that the system leaves where it is, so that a GPU copies from it at full speed.
pub trait LockedMemory: AsRef<[u8]> + AsMut<[u8]> + Debug + Send + Sync {}

impl<T: AsRef<[u8]> + AsMut<[u8]> + Debug + Send + Sync> LockedMemory for T {}

/// Makes some of that, pieces of just so many bytes; none where there is none.
#[derive(Clone)]
struct Lock(Arc<dyn Fn(usize) -> Vec<Box<dyn LockedMemory>> + Send + Sync>);

impl Debug for Lock {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Lock")
    }
}

#[derive(Debug, Default)]
struct Kept {
    /// By size.
    buffers: [Vec<Bytes>; SIZES],
    /// Of these, in the system's memory.
    system_bytes: usize,
    /// That may still be locked; none while somebody is at it.
    left_bytes: usize,
}

#[derive(Debug)]
enum Bytes {
    /// What was ever written, so that it is not cleared again.
    System(Vec<u8>),
    Locked(Box<dyn LockedMemory>),
}

/// A file's bytes.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Bytes,
    len: usize,
    home: Option<BufferPool>,
}

/// Which of the sizes holds so many bytes.
fn size_of(bytes: usize) -> usize {
    bytes.div_ceil(SMALLEST_BYTES).next_power_of_two().trailing_zeros() as usize
}

impl BufferPool {
    /// One whose buffers are page-locked, up to 256 MiB: `lock` gives some pieces of just so many bytes. Where it gives none it is
    /// not asked again. Then, for what is larger than 4 MiB, and while another thread locks, the system's memory serves.
    pub fn locked(lock: impl Fn(usize) -> Vec<Box<dyn LockedMemory>> + Send + Sync + 'static) -> Self {
        let kept = Kept { left_bytes: LOCKED_BYTES, ..Kept::default() };
        Self { kept: Arc::new(Mutex::new(kept)), lock: Some(Lock(Arc::new(lock))) }
    }

    /// A buffer of `len` bytes, whatever they are.
    ///
    /// # Errors
    /// Where there is no memory.
    pub fn take(&self, len: usize) -> Result<Buffer, TryReserveError> {
        let size = size_of(len);
        let kept = if size < SIZES { self.take_kept(size).or_else(|| self.lock_more(size)) } else { None };
        let mut bytes = kept.unwrap_or_default();
        if let Bytes::System(memory) = &mut bytes {
            if memory.capacity() == 0 {
                memory.try_reserve_exact(if size < SIZES { SMALLEST_BYTES << size } else { len })?;
            }
            if memory.len() < len {
                memory.resize(len, 0);
            }
        }
        Ok(Buffer { bytes, len, home: Some(self.clone()) })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_kept(&self, size: usize) -> Option<Bytes> {
        let mut kept = self.kept();
        let bytes = kept.buffers[size].pop();
        match &bytes {
            Some(Bytes::System(memory)) => kept.system_bytes -= memory.capacity(),
            Some(Bytes::Locked(_)) => {}
            None => {
                // Room for all that may come back, once: what is not used of it is never touched.
                let most_bytes = KEPT_BYTES + if self.lock.is_some() { LOCKED_BYTES } else { 0 };
                kept.buffers[size].reserve(most_bytes / (SMALLEST_BYTES << size));
            }
        }
        bytes
    }

    /// A new page-locked one; what else was made with it is kept. One thread at a time: others do not wait for it.
    fn lock_more(&self, size: usize) -> Option<Bytes> {
        let Lock(lock) = self.lock.as_ref()?;
        let left_bytes = {
            let mut kept = self.kept();
            if kept.left_bytes == 0 {
                // Of a larger size, which may lie idle when files become smaller.
                return kept.buffers[size + 1..].iter_mut().find_map(|buffers| {
                    let locked = buffers.iter().rposition(|bytes| matches!(bytes, Bytes::Locked(_)))?;
                    Some(buffers.swap_remove(locked))
                });
            }
            std::mem::take(&mut kept.left_bytes)
        };
        // Takes long.
        let mut made = lock(SMALLEST_BYTES << size).into_iter();
        let first = made.next()?;
        let mut kept = self.kept();
        kept.left_bytes = left_bytes.saturating_sub((1 + made.len()) * (SMALLEST_BYTES << size));
        kept.buffers[size].extend(made.map(Bytes::Locked));
        Some(Bytes::Locked(first))
    }

    fn keep(&self, bytes: Bytes) {
        let capacity = match &bytes {
            Bytes::System(memory) => memory.capacity(),
            Bytes::Locked(memory) => memory.as_ref().as_ref().len(),
        };
        let size = size_of(capacity);
        // Not of these sizes where it was allocated by somebody else.
        if size < SIZES && capacity == SMALLEST_BYTES << size {
            let mut kept = self.kept();
            if matches!(bytes, Bytes::System(_)) {
                if kept.system_bytes + capacity > KEPT_BYTES {
                    return;
                }
                kept.system_bytes += capacity;
            }
            kept.buffers[size].push(bytes);
        }
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Self::System(Vec::new())
    }
}

impl Buffer {
    /// All of it, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let bytes = match &mut self.bytes {
            Bytes::System(memory) => memory,
            Bytes::Locked(memory) => memory.as_mut().as_mut(),
        };
        &mut bytes[..self.len]
    }

    /// Leaves the first `len` bytes, if there are more.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(memory: Vec<u8>) -> Self {
        Self { len: memory.len(), bytes: Bytes::System(memory), home: None }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = match &self.bytes {
            Bytes::System(memory) => memory,
            Bytes::Locked(memory) => memory.as_ref().as_ref(),
        };
        &bytes[..self.len]
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
            home.keep(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::thread;

    fn kept(pool: &BufferPool) -> (usize, usize) {
        let kept = pool.kept.lock().unwrap();
        let of_system = |bytes: &Bytes| if let Bytes::System(memory) = bytes { memory.capacity() } else { 0 };
        let bytes = kept.buffers.iter().flatten().map(of_system).sum();
        assert_eq!(kept.system_bytes, bytes);
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

    /// Pieces as if they were locked, and how many of them there are.
    fn of_pieces(pieces: usize) -> (BufferPool, Arc<AtomicUsize>) {
        let alive = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&alive);
        let make = move |bytes: usize| {
            let piece = || Box::new(Piece::new(bytes, &counted)) as Box<dyn LockedMemory>;
            (0..pieces).map(|_| piece()).collect()
        };
        (BufferPool::locked(make), alive)
    }

    #[derive(Debug)]
    struct Piece(Vec<u8>, Arc<AtomicUsize>);

    impl Piece {
        fn new(bytes: usize, alive: &Arc<AtomicUsize>) -> Self {
            alive.fetch_add(1, Relaxed);
            Self(vec![1; bytes], Arc::clone(alive))
        }
    }

    impl AsRef<[u8]> for Piece {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl AsMut<[u8]> for Piece {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }

    impl Drop for Piece {
        fn drop(&mut self) {
            self.1.fetch_sub(1, Relaxed);
        }
    }

    #[test]
    fn locked_memory_is_made_in_pieces_and_comes_back() {
        let (pool, alive) = of_pieces(3);
        for round in 0..3 {
            let mut buffers: Vec<_> = (0..7).map(|_| pool.take(5000).unwrap()).collect();
            for (n, buffer) in buffers.iter_mut().enumerate() {
                buffer.as_mut_slice().fill(n as u8);
            }
            for (n, buffer) in buffers.iter().enumerate() {
                assert!(buffer.len() == 5000 && buffer.iter().all(|&byte| byte == n as u8));
            }
            assert_eq!(alive.load(Relaxed), 9, "in round {round}");
        }
        assert_eq!(kept(&pool), (9, 0));
        // What is too large for it is of the system.
        drop(pool.take((4 << 20) + 1).unwrap());
        let clone = pool.take(5000).unwrap().clone();
        assert_eq!((alive.load(Relaxed), kept(&pool)), (9, (9, 0)));
        drop(pool);
        assert_eq!((alive.load(Relaxed), clone.len()), (0, 5000));
    }

    #[test]
    fn where_no_more_is_locked_the_system_has_some() {
        // As much as there may be, and then some.
        let (pool, alive) = of_pieces(1);
        let buffers: Vec<_> = (0..66).map(|_| pool.take(4 << 20).unwrap()).collect();
        assert_eq!(alive.load(Relaxed), LOCKED_BYTES >> 22);
        drop(buffers);
        assert_eq!(kept(&pool), (66, 2 << 22));
        // Smaller files have what lies idle, which goes back to where it belongs.
        let small: Vec<_> = (0..67).map(|_| pool.take(5000).unwrap()).collect();
        let locked = small.iter().filter(|buffer| matches!(buffer.bytes, Bytes::Locked(_))).count();
        drop(small);
        assert_eq!((locked, kept(&pool)), (64, (69, (2 << 22) + 3 * 8192)));
        // None at all, which is asked for once.
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let pool = BufferPool::locked(move |_| {
            count.fetch_add(1, Relaxed);
            Vec::new()
        });
        drop([pool.take(1).unwrap(), pool.take(5000).unwrap()]);
        assert_eq!((asked.load(Relaxed), kept(&pool)), (1, (2, 12 << 10)));
    }

    /// As where all readers begin at once.
    #[test]
    fn threads_that_find_nothing_lock_no_more_than_one_would() {
        let (begun, go_on) = (Barrier::new(2), Arc::new(Barrier::new(2)));
        let waits = Arc::clone(&go_on);
        let pool = BufferPool::locked(move |bytes| {
            waits.wait();
            waits.wait();
            vec![Box::new(vec![0_u8; bytes]) as Box<dyn LockedMemory>]
        });
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                begun.wait();
                pool.take(5000).unwrap()
            });
            begun.wait();
            go_on.wait();
            // The others have the system's meanwhile.
            for len in [1, 5000, 4 << 20] {
                assert!(matches!(pool.take(len).unwrap().bytes, Bytes::System(_)));
            }
            go_on.wait();
            assert!(matches!(first.join().unwrap().bytes, Bytes::Locked(_)));
        });
        assert_eq!(pool.kept().left_bytes, LOCKED_BYTES - 8192);
    }

    #[test]
    fn no_memory_is_an_error() {
        assert!(BufferPool::default().take(usize::MAX >> 1).is_err());
    }
}
