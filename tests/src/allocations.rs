//! An allocator that counts: in all, and what each thread asks for.
#![expect(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::{AddAssign, Sub};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
