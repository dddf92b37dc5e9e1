//! Softmax and layer normalisation.

use super::math::exp;
use super::par::{Par, View};
use super::vectorise::{fold, max, sum_of, vectorised};
use crate::tensor::elements;

/// Columns of a softmax over an outer axis that are worked on side by side.
const COLUMNS: usize = 64;

pub(super) fn softmax(axis: usize, log: bool, x: View<'_>, y: &mut [f32], par: Par) {
    let inner = elements(&x.dims[axis + 1..]);
    let block = x.dims[axis] * inner;
    par.chunks(y, block, |i, y| {
        let x = &x.data[i * block..][..block];
        vectorised(
            #[inline(always)]
            || if inner == 1 { softmax_row(log, x, y) } else { softmax_columns(log, inner, x, y) },
        );
    });
}

#[inline(always)]
fn softmax_row(log: bool, x: &[f32], y: &mut [f32]) {
    let top = fold(x, f32::NEG_INFINITY, |v| v, max);
    for (y, &x) in y.iter_mut().zip(x) {
        *y = exp(x - top);
    }
    let sum = sum_of(y, |v| v);
    if log {
        let shift = sum.ln() as f32;
        for (y, &x) in y.iter_mut().zip(x) {
            *y = x - top - shift;
        }
    } else {
        let sum = sum as f32;
        for y in y {
            *y /= sum;
        }
    }
}

/// Softmax of every column of x [rows, inner].
#[inline(always)]
fn softmax_columns(log: bool, inner: usize, x: &[f32], y: &mut [f32]) {
    for at in (0..inner).step_by(COLUMNS) {
        let len = COLUMNS.min(inner - at);
        let mut top = [f32::NEG_INFINITY; COLUMNS];
        for x in x.chunks_exact(inner) {
            for (top, &x) in top.iter_mut().zip(&x[at..][..len]) {
                *top = max(*top, x);
            }
        }
        // In double precision: an axis may be long.
        let mut sum = [0.0f64; COLUMNS];
        for (x, y) in x.chunks_exact(inner).zip(y.chunks_exact_mut(inner)) {
            let (x, y) = (&x[at..][..len], &mut y[at..][..len]);
            for (((y, &x), &top), sum) in y.iter_mut().zip(x).zip(&top).zip(&mut sum) {
                *y = exp(x - top);
                *sum += f64::from(*y);
            }
        }
        let sum = sum.map(|sum| if log { sum.ln() as f32 } else { sum as f32 });
        for (x, y) in x.chunks_exact(inner).zip(y.chunks_exact_mut(inner)) {
            let (x, y) = (&x[at..][..len], &mut y[at..][..len]);
            for (((y, &x), &top), &sum) in y.iter_mut().zip(x).zip(&top).zip(&sum) {
                *y = if log { x - top - sum } else { *y / sum };
            }
        }
    }
}

pub(super) fn layer_norm(axis: usize, epsilon: f32, x: View<'_>, scale: &[f32], bias: &[f32], y: &mut [f32], par: Par) {
    let len = elements(&x.dims[axis..]);
    par.chunks(y, len, |i, y| {
        let x = &x.data[i * len..][..len];
        vectorised(
            #[inline(always)]
            || {
                let mean = (sum_of(x, |v| v) / len as f64) as f32;
                let variance = sum_of(x, |v| (v - mean) * (v - mean)) / len as f64;
                let factor = (1.0 / (variance + f64::from(epsilon)).sqrt()) as f32;
                for (((y, &x), &scale), &bias) in y.iter_mut().zip(x).zip(scale).zip(bias) {
                    *y = (x - mean) * factor * scale + bias;
                }
            },
        );
    });
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    /// Sums of many terms, along the innermost axis and along an outer one.
    #[test]
    fn long_axes_stay_accurate() {
        const ROWS: usize = 30_000;
        let mut random = testing::Random::new(3);
        for (inner, log) in [(1, false), (1, true), (3, false), (3, true)] {
            let data = random.values(ROWS * inner);
            let dims = [ROWS, inner];
            let view = View { dims: &dims, data: &data };
            let y = testing::run(data.len(), |y, par| softmax(0, log, view, y, par));
            for column in 0..inner {
                let values = || data.iter().skip(column).step_by(inner).map(|&v| f64::from(v));
                let sum: f64 = values().map(f64::exp).sum();
                for (y, x) in y.iter().skip(column).step_by(inner).zip(values()) {
                    let want = if log { x - sum.ln() } else { x.exp() / sum };
                    assert!((f64::from(*y) / want - 1.0).abs() < 1e-6, "{inner} {log}: {y} instead of {want}");
                }
            }
        }
    }
}
