//! Vectors whose memory is used again and again.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Keeps the memory of [`PooledVec`]s that are dropped for those to come: as many as were ever away at the same time. Clones
/// are one and the same pool.
pub struct VecPool<T>(Arc<Mutex<Kept<T>>>);

struct Kept<T> {
    vectors: Vec<Vec<T>>,
    away: usize,
}

/// A vector that travels. When it is dropped its values are, and its memory goes back to the pool that it came from.
pub struct PooledVec<T> {
    values: Vec<T>,
    home: Option<VecPool<T>>,
}

impl<T> VecPool<T> {
    /// An empty vector.
    pub fn take(&self) -> PooledVec<T> {
        let values = self.with(|kept| {
            let values = kept.vectors.pop().unwrap_or_default();
            kept.away += 1;
            // Here and not when all have come back, which may be much later.
            kept.vectors.reserve(kept.away);
            values
        });
        PooledVec { values, home: Some(self.clone()) }
    }

    fn with<U>(&self, change: impl FnOnce(&mut Kept<T>) -> U) -> U {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> PooledVec<T> {
    /// The values, whose memory does not go back.
    pub fn into_vec(mut self) -> Vec<T> {
        if let Some(home) = self.home.take() {
            home.with(|kept| kept.away -= 1);
        }
        std::mem::take(&mut self.values)
    }
}

impl<T> Drop for PooledVec<T> {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            // Outside the lock: values may do anything when they are dropped.
            self.values.clear();
            let values = std::mem::take(&mut self.values);
            home.with(|kept| {
                kept.away -= 1;
                kept.vectors.push(values);
            });
        }
    }
}

impl<T> From<Vec<T>> for PooledVec<T> {
    /// A vector of no pool.
    fn from(values: Vec<T>) -> Self {
        Self { values, home: None }
    }
}

impl<T> FromIterator<T> for PooledVec<T> {
    /// A vector of no pool.
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Vec::from_iter(values).into()
    }
}

impl<T> IntoIterator for PooledVec<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    /// As [`PooledVec::into_vec`].
    fn into_iter(self) -> Self::IntoIter {
        self.into_vec().into_iter()
    }
}

impl<'a, T> IntoIterator for &'a PooledVec<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.values.iter()
    }
}

impl<T: Clone> Clone for PooledVec<T> {
    /// In memory of the same pool.
    fn clone(&self) -> Self {
        let mut clone = self.home.as_ref().map_or_else(Self::default, VecPool::take);
        clone.extend_from_slice(self);
        clone
    }
}

impl<T> Deref for PooledVec<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.values
    }
}

impl<T> DerefMut for PooledVec<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.values
    }
}

impl<T> Clone for VecPool<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

// Whatever `T` is: derived ones would ask the same of it.
impl<T> Default for VecPool<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Kept { vectors: Vec::new(), away: 0 })))
    }
}

impl<T> Default for PooledVec<T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<T: Serialize> Serialize for PooledVec<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.values.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for PooledVec<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}

impl<T: PartialEq> PartialEq for PooledVec<T> {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl<T: fmt::Debug> fmt::Debug for PooledVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.values.fmt(f)
    }
}

impl<T> fmt::Debug for VecPool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VecPool").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept<T>(pool: &VecPool<T>) -> usize {
        pool.with(|kept| kept.vectors.len())
    }

    #[test]
    fn memory_comes_back_empty_and_its_values_are_dropped() {
        let (pool, value) = (VecPool::default(), Arc::new(()));
        let mut first = pool.take();
        first.extend((0..100).map(|_| Arc::clone(&value)));
        let (address, room) = (first.as_ptr(), first.capacity());
        let clone = first.clone();
        assert_eq!((kept(&pool), Arc::strong_count(&value)), (0, 201));
        drop(first);
        assert_eq!((kept(&pool), Arc::strong_count(&value)), (1, 101));
        let again = pool.take();
        assert_eq!((again.as_ptr(), again.capacity(), again.len()), (address, room, 0));
        drop((again, clone));
        assert_eq!((kept(&pool), Arc::strong_count(&value)), (2, 1));
        // As many as were away together, however often they go, and there was room for them before they came.
        let room = pool.with(|kept| kept.vectors.capacity());
        for _ in 0..10 {
            let _both = (pool.take(), pool.clone().take());
        }
        assert_eq!((kept(&pool), pool.with(|kept| kept.vectors.capacity())), (2, room));
        let many: Vec<_> = (0..100).map(|_| pool.take()).collect();
        let room = pool.with(|kept| kept.vectors.capacity());
        drop(many);
        assert_eq!((kept(&pool), pool.with(|kept| kept.vectors.capacity())), (100, room));
    }

    #[test]
    fn what_is_taken_out_or_came_from_elsewhere_stays_away() {
        let pool = VecPool::default();
        let mut taken = pool.take();
        taken.push(7);
        assert_eq!((taken.into_vec(), kept(&pool)), (vec![7], 0));
        assert_eq!(pool.with(|kept| kept.away), 0);
        let other = PooledVec::from(vec![7]);
        assert!(other == other.clone() && *other == [7]);
    }

    #[test]
    fn a_value_may_belong_to_the_pool_itself() {
        struct Nested {
            _inner: Option<PooledVec<Nested>>,
        }
        let pool = VecPool::default();
        let mut outer = pool.take();
        outer.push(Nested { _inner: Some(pool.take()) });
        drop(outer);
        assert_eq!(kept(&pool), 2);
    }
}
