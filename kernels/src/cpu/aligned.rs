//! Memory that starts on a cache line.

use std::ops::{Deref, DerefMut};

/// Elements in a cache line of 64 bytes, which is also the longest vector.
const LINE: usize = 16;

/// A vector of f32 of fixed length whose first element starts a cache line: a load of a whole vector that crosses two
/// lines costs as much as two.
#[derive(Debug)]
pub(super) struct AlignedVec {
    data: Vec<f32>,
    start: usize,
    len: usize,
}

impl AlignedVec {
    /// `len` zeros.
    pub(super) fn zeros(len: usize) -> Self {
        let data = vec![0.0f32; len + LINE];
        let start = data.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
        Self { data, start, len }
    }
}

impl Deref for AlignedVec {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.data[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedVec {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.data[self.start..self.start + self.len]
    }
}
