//! Resize of feature maps.

use super::par::Par;
use super::vectorise::vectorised;
use crate::op::{Resize, ResizeMode};
use crate::sampling::{outside, taps};

pub(super) fn resize(desc: &Resize, x: &[f32], y: &mut [f32], par: Par) {
    let [rows, columns] = [0, 1].map(|axis| taps(desc, axis));
    let outside = outside(desc);
    let c = desc.c;
    let row_len = desc.w * c;
    par.chunks(y, desc.q * c, |row, y| {
        let x = &x[row / desc.p * desc.h * row_len..][..desc.h * row_len];
        let tap = &rows[row % desc.p];
        if tap.outside {
            return y.fill(outside);
        }
        let [above, below] = tap.at.map(|at| &x[at * row_len..][..row_len]);
        match desc.mode {
            ResizeMode::Nearest(_) => {
                for (y, tap) in y.chunks_exact_mut(c).zip(&columns) {
                    y.copy_from_slice(&above[tap.at[0] * c..][..c]);
                }
            }
            ResizeMode::Linear => vectorised(
                #[inline(always)]
                || {
                    let mut mixed = vec![0.0; row_len];
                    mix(above, below, tap.second, &mut mixed);
                    for (y, tap) in y.chunks_exact_mut(c).zip(&columns) {
                        let [left, right] = tap.at.map(|at| &mixed[at * c..][..c]);
                        mix(left, right, tap.second, y);
                    }
                },
            ),
        }
        for (y, _) in y.chunks_exact_mut(c).zip(&columns).filter(|(_, tap)| tap.outside) {
            y.fill(outside);
        }
    });
}

/// y = a (1 - t) + b t.
#[inline(always)]
fn mix(a: &[f32], b: &[f32], t: f32, y: &mut [f32]) {
    for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
        *y = a * (1.0 - t) + b * t;
    }
}
