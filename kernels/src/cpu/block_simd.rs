//! Rectangles of a row-major matrix, to be written by several threads at once.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;

use rayon::prelude::*;

use super::par::Par;

/// A rectangle of a row-major matrix; while it lives nothing else reads or writes its elements.
pub(super) struct Block<'a> {
    first: *mut f32,
    stride: usize,
    /// Rows of the matrix that it covers.
    pub(super) rows: Range<usize>,
    /// Columns of the matrix that it covers.
    pub(super) cols: Range<usize>,
    matrix: PhantomData<&'a mut [f32]>,
}

impl Block<'_> {
    /// Elements from one row of the matrix to the next.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// The element at (row, col) of the matrix, which must lie in the block. What follows it in its row, up to the
    /// block's last column, and the rows below it, `stride` apart, are the block's as well.
    pub(super) fn at(&mut self, row: usize, col: usize) -> *mut f32 {
        assert!(self.rows.contains(&row) && self.cols.contains(&col));
        // SAFETY: `first` is the element at the block's first row and column, and the block lies in the matrix.
        unsafe { self.first.add((row - self.rows.start) * self.stride + col - self.cols.start) }
    }

    /// The part of a row that lies in the block.
    pub(super) fn row_mut(&mut self, row: usize) -> &mut [f32] {
        let first = self.at(row, self.cols.start);
        // SAFETY: the elements lie in the block, which is exclusively ours.
        unsafe { std::slice::from_raw_parts_mut(first, self.cols.len()) }
    }
}

/// How a matrix is cut into blocks: every `row_chunk` rows, and at every `bound_chunk`-th of `bounds`.
pub(super) struct Cut<'a> {
    /// Rows in a block.
    pub(super) row_chunk: usize,
    /// Ascending columns, counted from `first_col`, where the matrix may be cut; the first and last are its borders.
    pub(super) bounds: &'a [usize],
    /// Intervals between bounds in a block.
    pub(super) bound_chunk: usize,
    /// Column that `bounds` counts from.
    pub(super) first_col: usize,
}

/// First element of a matrix that several threads write.
#[derive(Clone, Copy)]
struct Base(*mut f32);
// SAFETY: only `for_each_block` uses it, which hands every element to one thread at a time.
unsafe impl Send for Base {}
// SAFETY: as above.
unsafe impl Sync for Base {}

impl Base {
    fn get(self) -> *mut f32 {
        self.0
    }
}

/// Calls `f(intervals, block)` for every block of `y`, a matrix with `stride` elements a row; `intervals` are those of
/// `cut.bounds` that the block covers.
pub(super) fn for_each_block(
    y: &mut [f32],
    stride: usize,
    cut: &Cut<'_>,
    par: Par,
    f: impl Fn(Range<usize>, Block<'_>) + Sync + Send,
) {
    let Some(intervals) = cut.bounds.len().checked_sub(1).filter(|&n| n > 0) else { return };
    assert!(cut.bounds.is_sorted_by(|a, b| a < b) && cut.first_col + cut.bounds[intervals] <= stride);
    let rows = y.len() / stride;
    let row_blocks = rows.div_ceil(cut.row_chunk);
    let col_blocks = intervals.div_ceil(cut.bound_chunk);
    let base = Base(y.as_mut_ptr());
    let task = |index: usize| {
        let (col_block, row_block) = (index / row_blocks, index % row_blocks);
        let row = row_block * cut.row_chunk;
        let interval = col_block * cut.bound_chunk;
        let last_interval = (interval + cut.bound_chunk).min(intervals);
        let cols = cut.first_col + cut.bounds[interval]..cut.first_col + cut.bounds[last_interval];
        // SAFETY: row < rows and cols.start < stride, so the element lies in `y`.
        let first = unsafe { base.get().add(row * stride + cols.start) };
        let rows = row..(row + cut.row_chunk).min(rows);
        // Blocks of different (row_block, col_block) share no element, because the bounds ascend.
        f(interval..last_interval, Block { first, stride, rows, cols, matrix: PhantomData });
    };
    let tasks = row_blocks * col_blocks;
    match par {
        Par::Pool if tasks > 1 => (0..tasks).into_par_iter().with_max_len(1).for_each(task),
        _ => (0..tasks).for_each(task),
    }
}
