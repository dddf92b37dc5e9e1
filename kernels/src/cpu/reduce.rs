//! Functions over whole axes.

use std::borrow::Cow;

use super::copy::transpose;
use super::par::{Par, View};
use super::vectorise::{fold, fold_row, max, min, sum_of, vectorised};
use crate::op::ReduceKind;
use crate::tensor::elements;

/// Columns that are reduced side by side.
const COLUMNS: usize = 64;

/// Rows that are added up before their sum goes into the total: bounds the rounding error of long sums.
const ROWS: usize = 64;

pub(super) fn reduce(kind: ReduceKind, axes: &[usize], x: View<'_>, y: &mut [f32], par: Par) {
    // As [outer, count, inner] with the middle reduced.
    let count: usize = axes.iter().map(|&axis| x.dims[axis]).product();
    let (data, inner) = match (axes.first(), axes.last()) {
        (Some(&first), Some(&last)) if elements(&x.dims[first..=last]) == count => {
            (Cow::Borrowed(x.data), elements(&x.dims[last + 1..]))
        }
        _ => {
            let kept = (0..x.dims.len()).filter(|axis| !axes.contains(axis));
            let perm: Vec<usize> = kept.chain(axes.iter().copied()).collect();
            let mut moved = vec![0.0; x.data.len()];
            transpose(&perm, x, &mut moved, par);
            (Cow::Owned(moved), 1)
        }
    };
    let data = &*data;
    par.chunks(y, inner, |outer, y| {
        let x = &data[outer * count * inner..][..count * inner];
        vectorised(
            #[inline(always)]
            || match kind {
                ReduceKind::Sum if inner == 1 => y[0] = sum_of(x, |v| v) as f32,
                ReduceKind::Mean if inner == 1 => y[0] = (sum_of(x, |v| v) / count as f64) as f32,
                ReduceKind::Max if inner == 1 => y[0] = fold(x, f32::NEG_INFINITY, |v| v, max),
                ReduceKind::Min if inner == 1 => y[0] = fold(x, f32::INFINITY, |v| v, min),
                ReduceKind::Sum => columns(x, inner, y, 0.0, |a, b| a + b),
                ReduceKind::Mean => {
                    columns(x, inner, y, 0.0, |a, b| a + b);
                    for v in y {
                        *v /= count as f32;
                    }
                }
                ReduceKind::Max => columns(x, inner, y, f32::NEG_INFINITY, max),
                ReduceKind::Min => columns(x, inner, y, f32::INFINITY, min),
            },
        );
    });
}

/// y[i] = the op over the rows of x [rows, inner].
#[inline(always)]
fn columns(x: &[f32], inner: usize, y: &mut [f32], identity: f32, op: impl Fn(f32, f32) -> f32 + Copy) {
    for (tile, y) in y.chunks_mut(COLUMNS).enumerate() {
        let mut total = [identity; COLUMNS];
        for block in x.chunks(ROWS * inner) {
            let mut part = [identity; COLUMNS];
            for row in block.chunks_exact(inner) {
                let row = &row[tile * COLUMNS..][..y.len()];
                // A whole tile has a length that the compiler knows.
                if let Ok(row) = <&[f32; COLUMNS]>::try_from(row) {
                    fold_row(&mut part, row, op);
                } else {
                    fold_row(&mut part, row, op);
                }
            }
            fold_row(&mut total, &part, op);
        }
        y.copy_from_slice(&total[..y.len()]);
    }
}

pub(super) fn arg_max(axis: usize, select_last: bool, x: View<'_>, y: &mut [f32]) {
    let inner = elements(&x.dims[axis + 1..]);
    let mut best = vec![0.0; inner];
    for (x, y) in x.data.chunks_exact(x.dims[axis] * inner).zip(y.chunks_exact_mut(inner)) {
        best.copy_from_slice(&x[..inner]);
        y.fill(0.0);
        for (index, row) in x.chunks_exact(inner).enumerate().skip(1) {
            for ((best, y), &v) in best.iter_mut().zip(&mut *y).zip(row) {
                if v > *best || (select_last && v >= *best) {
                    (*best, *y) = (v, index as f32);
                }
            }
        }
    }
}
