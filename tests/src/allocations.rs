//! An allocator that counts: in all, and what each thread asks for.
#![expect(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::{AddAssign, Sub};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Smallest allocation that counts as a large one.
pub const LARGE_BYTES: usize = 4096;

/// The system's allocator, counted. A test program makes it its own: `#[global_allocator]`.
pub struct Counting;

/// Allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Of [`LARGE_BYTES`] and more.
    pub large: u64,
    /// Smaller ones.
    pub small: u64,
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { large: self.large - before.large, small: self.small - before.small }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        *self = Self { large: self.large + more.large, small: self.small + more.small };
    }
}

static LARGE: AtomicU64 = AtomicU64::new(0);
static SMALL: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static OF_THIS_THREAD: Cell<Counts> = const { Cell::new(Counts { large: 0, small: 0 }) };
}

/// Of all threads.
pub fn of_all() -> Counts {
    Counts { large: LARGE.load(Relaxed), small: SMALL.load(Relaxed) }
}

/// Of the thread that asks.
pub fn of_this_thread() -> Counts {
    OF_THIS_THREAD.get()
}

/// What calls of a stage, by any of its workers, have allocated one after another.
#[derive(Debug, Default)]
pub struct Calls(Mutex<Row>);

/// Of calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    /// Calls.
    pub calls: usize,
    /// Most of them in a row that allocated nothing. When buffers have grown to the largest batch, and there are as many as are
    /// ever under way, that is all of them; nobody knows when that is.
    pub without: usize,
    /// The last ones that allocated nothing.
    now: usize,
}

impl Calls {
    /// Makes a call and counts what it allocates on this thread.
    ///
    /// # Panics
    /// Where another call has panicked.
    pub fn count<T>(&self, call: impl FnOnce() -> T) -> T {
        let before = of_this_thread();
        let value = call();
        let counts = of_this_thread() - before;
        let mut row = self.0.lock().unwrap();
        row.calls += 1;
        row.now = if counts == Counts::default() { row.now + 1 } else { 0 };
        row.without = row.without.max(row.now);
        value
    }

    /// The calls until now.
    ///
    /// # Panics
    /// As [`Calls::count`].
    pub fn row(&self) -> Row {
        *self.0.lock().unwrap()
    }
}

/// Waits until nothing more is taken from a source, which counts it: who calls this holds everything up, and all queues are full.
pub fn wait_until_full(taken: &AtomicUsize) {
    let mut before = usize::MAX;
    while taken.load(Relaxed) != before {
        before = taken.load(Relaxed);
        thread::sleep(Duration::from_millis(500));
    }
}

fn count(bytes: usize) {
    let is_large = bytes >= LARGE_BYTES;
    if is_large { &LARGE } else { &SMALL }.fetch_add(1, Relaxed);
    // A thread that ends has no counts any more.
    let _ = OF_THIS_THREAD.try_with(|counts| {
        let mut more = counts.get();
        more += Counts { large: u64::from(is_large), small: u64::from(!is_large) };
        counts.set(more);
    });
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, bytes) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}
