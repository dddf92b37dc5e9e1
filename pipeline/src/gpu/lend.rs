//! Values that travel with a batch and come back to be used again.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A value away from home.
pub(super) struct Lent<T> {
    value: T,
    away: Away<T>,
}

/// Where lent values come back to.
pub(super) struct Home<T>(Arc<Shelf<T>>);

struct Shelf<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    /// What is at home, in the order in which it came back.
    here: VecDeque<T>,
    away: usize,
}

/// Stands for a value until it is back, or dropped on its way.
struct Away<T>(Arc<Shelf<T>>);

impl<T> Shelf<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Home<T> {
    /// A home of these values.
    pub(super) fn new(values: impl IntoIterator<Item = T>) -> Self {
        let state = State { here: values.into_iter().collect(), away: 0 };
        Self(Arc::new(Shelf { state: Mutex::new(state), changed: Condvar::new() }))
    }

    /// A value; waits until one is there. `None` when none will ever come back: they were dropped on their way, because
    /// the job failed.
    pub(super) fn take(&self) -> Option<Lent<T>> {
        let is_awaited = |state: &mut State<T>| state.here.is_empty() && state.away > 0;
        let state = self.0.changed.wait_while(self.0.lock(), is_awaited);
        self.lend(state.unwrap_or_else(PoisonError::into_inner))
    }

    /// A value, if one is there.
    pub(super) fn take_now(&self) -> Option<Lent<T>> {
        self.lend(self.0.lock())
    }

    fn lend(&self, mut state: MutexGuard<'_, State<T>>) -> Option<Lent<T>> {
        let value = state.here.pop_front()?;
        state.away += 1;
        Some(Lent { value, away: Away(Arc::clone(&self.0)) })
    }
}

impl<T> Lent<T> {
    /// Brings the value home.
    pub(super) fn give_back(self) {
        let Self { value, away } = self;
        away.0.lock().here.push_back(value);
    }
}

impl<T> Drop for Away<T> {
    fn drop(&mut self) {
        self.0.lock().away -= 1;
        self.0.changed.notify_all();
    }
}

impl<T> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Lent<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_and_a_lost_one_is_missed() {
        let home = Home::new([1, 2]);
        let (a, b) = (home.take().unwrap(), home.take().unwrap());
        assert_eq!((*a, *b), (1, 2));
        assert!(home.take_now().is_none());
        b.give_back();
        let b = home.take().unwrap();
        assert_eq!(*b, 2);
        drop(a);
        b.give_back();
        let b = home.take_now().unwrap();
        drop(b);
        assert!(home.take().is_none());
    }

    #[test]
    fn who_waits_sees_what_comes_back_and_what_never_will() {
        for comes_back in [true, false] {
            let home = Home::new([7]);
            let lent = home.take().unwrap();
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| home.take().map(|lent| *lent));
                std::thread::sleep(std::time::Duration::from_millis(20));
                assert!(!waits.is_finished());
                if comes_back {
                    lent.give_back();
                } else {
                    drop(lent);
                }
                assert_eq!(waits.join().unwrap(), comes_back.then_some(7));
            });
            assert!(home.take().is_none(), "it was dropped");
        }
    }
}
