//! Walks over tensors with strides: broadcasts, slices and transpositions as one kind of loop.

use crate::shape::MAX_RANK;

/// Visits the elements of a dense output in order and says where each of `N` operands is read.
///
/// Neighbouring axes that every operand walks with one stride are merged, so the innermost axis is as long as it can
/// be.
pub(crate) struct Walk<const N: usize> {
    /// Lengths of the merged axes, outermost first, at least one.
    dims: Vec<usize>,
    /// Elements that each operand moves a step along each axis.
    strides: Vec<[isize; N]>,
    /// Where the operands start.
    base: [isize; N],
}

impl<const N: usize> Walk<N> {
    /// A walk over `axes`, outermost first, each its length and the operands' strides along it.
    pub(crate) fn new(axes: impl IntoIterator<Item = (usize, [isize; N])>, base: [isize; N]) -> Self {
        let (mut dims, mut strides): (Vec<usize>, Vec<[isize; N]>) = (Vec::new(), Vec::new());
        for (dim, stride) in axes.into_iter().filter(|(dim, _)| *dim != 1) {
            match (dims.last_mut(), strides.last_mut()) {
                (Some(outer), Some(above)) if (0..N).all(|i| above[i] == stride[i] * dim as isize) => {
                    *outer *= dim;
                    *above = stride;
                }
                _ => {
                    dims.push(dim);
                    strides.push(stride);
                }
            }
        }
        if dims.is_empty() {
            dims.push(1);
            strides.push([1; N]);
        }
        Self { dims, strides, base }
    }

    /// Lengths of the merged axes, outermost first.
    pub(crate) fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The operands' strides along the `back`-th merged axis from the end (0: innermost).
    pub(crate) fn stride(&self, back: usize) -> Option<[isize; N]> {
        self.strides.iter().rev().nth(back).copied()
    }

    /// Calls `f(at, len, offsets)` for the pieces of output elements `start..start + count` that lie on one innermost
    /// axis: `len` elements from output element `at` on, the operands' first elements at `offsets`.
    #[inline(always)]
    pub(crate) fn pieces(&self, start: usize, count: usize, mut f: impl FnMut(usize, usize, [usize; N])) {
        let last = self.dims.len() - 1;
        let mut index = [0usize; MAX_RANK];
        let mut offset = self.base;
        let mut advance = |axis: usize, steps: isize| {
            for (offset, stride) in offset.iter_mut().zip(&self.strides[axis]) {
                *offset += steps * stride;
            }
            offset.map(|o| o as usize)
        };
        let mut from = self.base.map(|o| o as usize);
        let mut rest = start;
        for axis in (0..=last).rev() {
            index[axis] = rest % self.dims[axis];
            rest /= self.dims[axis];
            from = advance(axis, index[axis] as isize);
        }
        let (mut at, end) = (start, start + count);
        while at < end {
            let len = (self.dims[last] - index[last]).min(end - at);
            f(at, len, from);
            at += len;
            index[last] += len;
            from = advance(last, len as isize);
            for axis in (1..=last).rev() {
                if index[axis] < self.dims[axis] {
                    break;
                }
                index[axis] = 0;
                index[axis - 1] += 1;
                advance(axis, -(self.dims[axis] as isize));
                from = advance(axis - 1, 1);
            }
        }
    }
}

/// Strides of a dense tensor.
pub(crate) fn strides(dims: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis] * dims[axis] as isize;
    }
    strides
}

/// Strides of a dense tensor that is broadcast to an output of rank `rank`: 0 along the axes that it repeats.
pub(crate) fn broadcast_strides(dims: &[usize], rank: usize) -> Vec<isize> {
    let mut all = vec![0; rank - dims.len()];
    all.extend(strides(dims).into_iter().zip(dims).map(|(stride, &dim)| if dim == 1 { 0 } else { stride }));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_what_is_dense() {
        let dims = [2, 3, 4, 5];
        let walk = Walk::new(dims.into_iter().zip(strides(&dims).into_iter().map(|s| [s])), [0]);
        assert_eq!(walk.dims(), [120]);
        let channel = broadcast_strides(&[5], 4);
        let walk =
            Walk::new(dims.into_iter().zip(strides(&dims).into_iter().zip(channel).map(|(a, b)| [a, b])), [0, 0]);
        assert_eq!(walk.dims(), [24, 5]);
        assert_eq!(walk.stride(0), Some([1, 1]));
        assert_eq!(walk.stride(1), Some([5, 0]));
    }

    #[test]
    fn pieces_from_any_start() {
        // Axes reversed, so that nothing merges.
        let dims = [3usize, 2, 4];
        let walk = Walk::new(dims.into_iter().zip([[1isize], [3], [6]]), [0]);
        let offset = |at: usize| (at / 8) + (at / 4 % 2) * 3 + (at % 4) * 6;
        for start in 0..24 {
            for count in 0..=24 - start {
                let mut next = start;
                walk.pieces(start, count, |at, len, [from]| {
                    assert_eq!(at, next);
                    for i in 0..len {
                        assert_eq!(from + 6 * i, offset(at + i));
                    }
                    next += len;
                });
                assert_eq!(next, start + count);
            }
        }
    }
}
