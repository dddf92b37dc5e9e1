//! A bound on what is in memory at a time.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// An amount, of pixels or bytes, that the holders of its [`Share`]s have together at most. Clones are one and the same
/// budget.
///
/// Whoever holds a share must not wait for anything that needs another one: then every wait ends.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: u64,
    used: Mutex<u64>,
    given_back: Condvar,
}

/// A part of a budget, given back when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Share {
    _held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    budget: Budget,
    amount: u64,
}

impl Budget {
    /// A budget of `limit`.
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(Inner { limit, used: Mutex::new(0), given_back: Condvar::new() }))
    }

    /// Waits until so much is left. More than the whole budget is given as well, while nobody else has any.
    pub fn take(&self, amount: u64) -> Share {
        let Inner { limit, used, given_back } = &*self.0;
        let full = |used: &mut u64| *used > 0 && used.saturating_add(amount) > *limit;
        let used = used.lock().unwrap_or_else(PoisonError::into_inner);
        let mut used = given_back.wait_while(used, full).unwrap_or_else(PoisonError::into_inner);
        *used = used.saturating_add(amount);
        Share { _held: Arc::new(Held { budget: self.clone(), amount }) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Inner { used, given_back, .. } = &*self.budget.0;
        let mut used = used.lock().unwrap_or_else(PoisonError::into_inner);
        *used = used.saturating_sub(self.amount);
        given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use std::thread::{scope, sleep};
    use std::time::Duration;

    #[test]
    fn holders_stay_within_the_budget_and_all_come_to_their_turn() {
        const LIMIT: u64 = 10;
        let (budget, used, most) = (Budget::new(LIMIT), AtomicU64::new(0), AtomicU64::new(0));
        scope(|scope| {
            for worker in 0..8_u64 {
                let (budget, used, most) = (budget.clone(), &used, &most);
                scope.spawn(move || {
                    for round in 0..100_u64 {
                        // Now and then nothing, all of it, and more than there is.
                        let amount = (worker * 7 + round * 5) % 13;
                        let share = budget.take(amount);
                        let together = used.fetch_add(amount, SeqCst) + amount;
                        most.fetch_max(together, SeqCst);
                        // Who holds nothing may see the one that holds more than there is.
                        assert!(amount == 0 || together <= LIMIT.max(amount), "{together} with {amount}");
                        sleep(Duration::from_micros(20));
                        used.fetch_sub(amount, SeqCst);
                        drop(share);
                    }
                });
            }
        });
        assert!(most.into_inner() >= LIMIT, "it is used");
        assert_eq!(*budget.0.used.lock().unwrap(), 0);
    }

    #[test]
    fn a_share_is_held_until_its_last_clone_is_dropped_and_through_a_panic() {
        let budget = Budget::new(1);
        let first = budget.take(1);
        let second = first.clone();
        scope(|scope| {
            let waiter = scope.spawn(|| drop(budget.take(1)));
            drop(first);
            sleep(Duration::from_millis(20));
            assert!(!waiter.is_finished());
            drop(second);
        });
        let panicked = std::panic::catch_unwind(|| {
            let _share = budget.take(9);
            panic!("while it is held");
        });
        assert!(panicked.is_err());
        drop(budget.take(9));
    }
}
