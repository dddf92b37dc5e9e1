//! Which input samples a resize takes, for every engine alike.
//!
//! Coordinates are computed in single precision as ONNX Runtime does, since the choice of a nearest sample hangs on
//! the last bit where a coordinate falls between two.

use crate::op::{Coordinates, NearestRounding, Resize, ResizeMode};

/// The samples of one axis that an output sample is made of.
pub(crate) struct Tap {
    /// Both neighbours; for a nearest sample the first counts.
    pub(crate) at: [usize; 2],
    /// Weight of the second.
    pub(crate) second: f32,
    /// True where the sample lies outside a cropped picture.
    pub(crate) outside: bool,
}

/// The taps of every output sample of an axis: 0 for rows, 1 for columns.
pub(crate) fn taps(desc: &Resize, axis: usize) -> Vec<Tap> {
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

/// Value of the samples that lie outside a cropped picture.
pub(crate) fn outside(desc: &Resize) -> f32 {
    if let Coordinates::TfCropAndResize(crop) = desc.coordinates { crop.outside } else { 0.0 }
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
