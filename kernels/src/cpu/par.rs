//! Spreading one operator over the cores.

use rayon::prelude::*;

/// Whether an operator may use the pool that it runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Par {
    /// The calling thread only: the batch is already spread image by image.
    Serial,
    /// The pool's threads.
    Pool,
}

impl Par {
    /// Calls `f(i, chunk)` for the chunks of `chunk_len` elements of `out` (the last may be shorter), i counting from 0.
    pub(super) fn chunks(self, out: &mut [f32], chunk_len: usize, f: impl Fn(usize, &mut [f32]) + Sync + Send) {
        match self {
            Self::Pool if out.len() > chunk_len => {
                out.par_chunks_mut(chunk_len).enumerate().for_each(|(i, chunk)| f(i, chunk));
            }
            _ => out.chunks_mut(chunk_len.max(1)).enumerate().for_each(|(i, chunk)| f(i, chunk)),
        }
    }
}

/// A tensor to read: dense, row-major.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    /// Dimensions, outermost first.
    pub(super) dims: &'a [usize],
    /// Elements.
    pub(super) data: &'a [f32],
}
