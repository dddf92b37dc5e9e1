//! Workers that leave their pool before the end.

use std::cell::Cell;
use std::sync::atomic::AtomicBool;

use super::*;

/// Takes so many values, and a portion's rest; none when it has said that it is done.
struct Few {
    left: u64,
    said: Cell<bool>,
}

impl Few {
    fn new(left: u64) -> Self {
        Self { left, said: Cell::new(false) }
    }
}

impl Stage for Few {
    type In = u64;
    type Out = u64;

    fn process(&mut self, x: u64, emit: &mut dyn FnMut(u64)) -> Result<(), JobError> {
        if self.said.get() {
            return Err(JobError::Usage("given a value when it was done".into()));
        }
        self.left = self.left.saturating_sub(1);
        emit(x);
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.said.set(self.left == 0);
        self.left == 0
    }
}

#[test]
fn workers_that_are_done_leave_the_rest_to_others() {
    for order in [Order::Input, Order::Completion, Order::Portions] {
        let pipeline = Pipeline::new(0..2000, Cancel::default()).unwrap().order(order);
        let pipeline = pipeline.pool("few", [1, 2, u64::MAX, 30].map(Few::new)).unwrap();
        let mut seen = Vec::new();
        let outcome = pipeline.run(|x| {
            seen.push(x);
            Ok(())
        });
        outcome.end.unwrap();
        assert!(order != Order::Input || seen.is_sorted(), "{seen:?}");
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..2000), "{seen:?}");
    }
}

/// Two of a pool at its last values: one keeps its first of them until the other is at work, which is slow and then done.
struct Last {
    leaves: bool,
    at_work: Arc<AtomicBool>,
    seen: bool,
}

impl Stage for Last {
    type In = u64;
    type Out = u64;

    fn process(&mut self, x: u64, emit: &mut dyn FnMut(u64)) -> Result<(), JobError> {
        if x >= LAST && !std::mem::replace(&mut self.seen, true) {
            if self.leaves {
                self.at_work.store(true, Ordering::SeqCst);
                sleep(Duration::from_millis(300));
            }
            // Not for ever, where this one has all of them.
            let mut rounds = 0;
            while !self.at_work.load(Ordering::SeqCst) && rounds < 1000 {
                sleep(Duration::from_millis(1));
                rounds += 1;
            }
        }
        emit(x);
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.leaves && self.seen
    }
}

/// From here on values are the last ones.
const LAST: u64 = 3900;

/// What a worker puts back may be its own: the others may have ended before.
#[test]
fn what_a_worker_puts_back_before_it_leaves_is_not_lost() {
    for order in [Order::Completion, Order::Portions] {
        let at_work = Arc::default();
        let last = |leaves| Last { leaves, at_work: Arc::clone(&at_work), seen: false };
        let pipeline = Pipeline::new(0..4000, Cancel::default()).unwrap().order(order);
        let mut seen = Vec::new();
        let outcome = pipeline.pool("last", [last(true), last(false)]).unwrap().run(|x| {
            seen.push(x);
            Ok(())
        });
        outcome.accounted(1).end.unwrap();
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..4000), "{} of 4000", seen.len());
    }
}
