//! How long an item may be on its way.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest time from an item's arrival to its row, as far as waiting for other items can be helped, and what is known of
/// the work behind the stage that waits. Clones are one and the same.
///
/// The time of that work is measured on one item after another: a batch's last item is marked when it is handed on, and
/// looked for at the end.
#[derive(Clone, Debug)]
pub struct Deadline {
    longest: Duration,
    work: Arc<Work>,
}

#[derive(Debug, Default)]
struct Work {
    /// Number of the marked item plus one; 0: there is none.
    marked: AtomicU64,
    times: Mutex<Times>,
}

#[derive(Debug, Default)]
struct Times {
    marked_at: Option<Instant>,
    /// Of the work, the newest counting a quarter.
    mean: Duration,
}

impl Deadline {
    /// Items that may take so long.
    pub fn new(longest: Duration) -> Self {
        Self { longest, work: Arc::default() }
    }

    /// Until when an item that arrived then can wait for others.
    pub fn due(&self, arrived: Instant) -> Instant {
        arrived + self.longest.saturating_sub(self.times(|times| times.mean))
    }

    /// The item goes on, with those that it has waited for.
    pub fn handed_on(&self, id: u64) {
        if self.work.marked.load(Relaxed) == 0 {
            self.times(|times| times.marked_at = Some(Instant::now()));
            self.work.marked.store(id + 1, Relaxed);
        }
    }

    /// The item is at its end.
    pub fn finished(&self, id: u64) {
        if self.work.marked.load(Relaxed) != id + 1 {
            return;
        }
        self.times(|times| {
            if let Some(at) = times.marked_at.take() {
                let took = at.elapsed();
                // The first one stands for all.
                times.mean = if times.mean.is_zero() { took } else { (3 * times.mean + took) / 4 };
            }
        });
        self.work.marked.store(0, Relaxed);
    }

    fn times<T>(&self, f: impl FnOnce(&mut Times) -> T) -> T {
        f(&mut self.work.times.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_to_come_is_taken_off() {
        let longest = Duration::from_secs(100);
        let deadline = Deadline::new(longest);
        let arrived = Instant::now();
        assert_eq!(deadline.due(arrived), arrived + longest);
        deadline.handed_on(7);
        deadline.handed_on(8);
        deadline.finished(8);
        assert_eq!(deadline.due(arrived), arrived + longest, "another item is marked");
        std::thread::sleep(Duration::from_millis(20));
        deadline.clone().finished(7);
        let due = deadline.due(arrived);
        assert!(due + Duration::from_millis(20) <= arrived + longest && due > arrived, "{:?}", due - arrived);
        deadline.finished(7);
        assert_eq!(deadline.due(arrived), due, "counted once");
        deadline.handed_on(0);
        deadline.finished(0);
        assert!(deadline.due(arrived) > due, "quick work counts as well");
    }

    #[test]
    fn work_that_takes_too_long_leaves_no_time_to_wait() {
        let deadline = Deadline::new(Duration::from_nanos(1));
        deadline.handed_on(0);
        deadline.finished(0);
        let arrived = Instant::now();
        assert_eq!(deadline.due(arrived), arrived);
    }
}
