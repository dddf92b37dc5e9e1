//! Values that travel with a batch and come back to be used again.

use std::ops::{Deref, DerefMut};

use crossbeam_channel::{Receiver, Sender, bounded};

/// A value away from home.
pub(super) struct Lent<T> {
    value: T,
    home: Sender<Lent<T>>,
}

/// Where lent values come back to.
pub(super) struct Home<T>(Receiver<Lent<T>>);

impl<T> Home<T> {
    /// A home of these values.
    pub(super) fn new(values: impl IntoIterator<Item = T>) -> Self {
        let values: Vec<_> = values.into_iter().collect();
        // With room for all: one without bounds allocates every now and then.
        let (home, returned) = bounded(values.len());
        for value in values {
            // The receiver is here, and nobody waits.
            let _ = home.send(Lent { value, home: home.clone() });
        }
        Self(returned)
    }

    /// A value; waits until one is there. `None` when none will ever come back: they were dropped on their way, because
    /// the job failed.
    pub(super) fn take(&self) -> Option<Lent<T>> {
        self.0.recv().ok()
    }

    /// A value, if one is there.
    pub(super) fn take_now(&self) -> Option<Lent<T>> {
        self.0.try_recv().ok()
    }
}

impl<T> Lent<T> {
    /// Sends the value home.
    pub(super) fn give_back(self) {
        let home = self.home.clone();
        // Fails only when home is gone, and never waits.
        let _ = home.send(self);
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
}
