//! Conversions between element types.

use super::par::{Par, View};
use super::pointwise::{clamp, per_index};
use super::vectorise::vectorised;

pub(super) fn quantize(axis: usize, low: f32, high: f32, x: View<'_>, scale: &[f32], zero: &[f32], y: &mut [f32]) {
    per_index(axis, x, scale, zero, y, Par::Serial, |x, scale, zero| {
        clamp((x / scale).round_ties_even() + zero, low, high)
    });
}

pub(super) fn dequantize(axis: usize, x: View<'_>, scale: &[f32], zero: &[f32], y: &mut [f32]) {
    per_index(axis, x, scale, zero, y, Par::Serial, |x, scale, zero| (x - zero) * scale);
}

/// NaN becomes 0 in an integer type.
pub(super) fn cast(integer_range: Option<(f32, f32)>, x: &[f32], y: &mut [f32]) {
    let Some((low, high)) = integer_range else {
        y.copy_from_slice(x);
        return;
    };
    vectorised(
        #[inline(always)]
        || {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = if x.is_nan() { 0.0 } else { clamp(x.trunc(), low, high) };
            }
        },
    );
}
