//! Resize of feature maps.
//!
//! Coordinates are computed in single precision as ONNX Runtime does, since the choice of a nearest sample hangs on
//! the last bit where a coordinate falls between two.

use super::par::Par;
use super::vectorise::vectorised;
use crate::op::{Coordinates, NearestRounding, Resize, ResizeMode};

pub(super) fn resize(desc: &Resize, x: &[f32], y: &mut [f32], par: Par) {
    let [rows, columns] = [0, 1].map(|axis| taps(desc, axis));
    let outside = if let Coordinates::TfCropAndResize(crop) = desc.coordinates { crop.outside } else { 0.0 };
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

/// The samples of one axis that an output sample is made of.
struct Tap {
    /// Both neighbours; for a nearest sample the first counts.
    at: [usize; 2],
    /// Weight of the second.
    second: f32,
    /// True where the sample lies outside a cropped picture.
    outside: bool,
}

/// The taps of every output sample of an axis: 0 for rows, 1 for columns.
fn taps(desc: &Resize, axis: usize) -> Vec<Tap> {
    let (input, output) = [(desc.h, desc.p), (desc.w, desc.q)][axis];
    let last = (input - 1) as f32;
    (0..output)
        .map(|i| {
            let at = source(desc, axis, i as f32, input as f32, output as f32);
            let outside = matches!(desc.coordinates, Coordinates::TfCropAndResize(_)) && !(0.0..=last).contains(&at);
            match desc.mode {
                ResizeMode::Nearest(rounding) => {
                    let at = nearest(rounding, at).clamp(0.0, last) as usize;
                    Tap { at: [at; 2], second: 0.0, outside }
                }
                ResizeMode::Linear => {
                    let at = at.clamp(0.0, last);
                    let low = (at as usize).min(input - 1);
                    Tap { at: [low, (low + 1).min(input - 1)], second: at - low as f32, outside }
                }
            }
        })
        .collect()
}

/// Source coordinate of output sample `i`.
fn source(desc: &Resize, axis: usize, i: f32, input: f32, output: f32) -> f32 {
    let scale = desc.scale[axis];
    match desc.coordinates {
        Coordinates::PytorchHalfPixel | Coordinates::AlignCorners if output <= 1.0 => 0.0,
        Coordinates::HalfPixel | Coordinates::PytorchHalfPixel => (i + 0.5) / scale - 0.5,
        Coordinates::HalfPixelSymmetric => {
            let adjustment = output / (scale * input);
            let offset = input / 2.0 * (1.0 - adjustment);
            offset + (i + 0.5) / scale - 0.5
        }
        Coordinates::AlignCorners => i * (input - 1.0) / (output - 1.0),
        Coordinates::Asymmetric => i / scale,
        Coordinates::TfHalfPixelForNn => (i + 0.5) / scale,
        Coordinates::TfCropAndResize(crop) => {
            let (start, end) = (crop.start[axis], crop.end[axis]);
            if output > 1.0 {
                start * (input - 1.0) + i * (end - start) * (input - 1.0) / (output - 1.0)
            } else {
                0.5 * (start + end) * (input - 1.0)
            }
        }
    }
}

fn nearest(rounding: NearestRounding, at: f32) -> f32 {
    let (floor, ceil) = (at.floor(), at.ceil());
    let up = match rounding {
        NearestRounding::RoundPreferFloor => at - floor > 0.5,
        NearestRounding::RoundPreferCeil => at - floor >= 0.5,
        NearestRounding::Floor => false,
        NearestRounding::Ceil => true,
    };
    if up { ceil } else { floor }
}
