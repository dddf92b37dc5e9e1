//! What a description makes of a picture's size.

use super::weights::Job;
use super::{LetterboxPlace, PreprocessDesc, ResizeRule, Transform};
use crate::error::KernelError;

/// Longest side of a network's input and of the shorter side of a resize.
const MAX_SIDE_PX: usize = 1 << 16;

/// Largest picture that a resize makes or takes.
pub(crate) const MAX_PIXELS: usize = 1 << 30;

/// Checks the sizes of a description.
pub(crate) fn check(desc: &PreprocessDesc) -> Result<(), KernelError> {
    let fail = |why: String| Err(KernelError::invalid("preprocess", why));
    let short_px = if let ResizeRule::Shortest { short_px } = desc.resize { short_px } else { 1 };
    for (what, px) in [("width", desc.width_px), ("height", desc.height_px), ("shorter side", short_px)] {
        if !(1..=MAX_SIDE_PX).contains(&px) {
            return fail(format!("a {what} of {px} pixels; 1 to {MAX_SIDE_PX} are possible"));
        }
    }
    if desc.width_px * desc.height_px > MAX_PIXELS {
        return fail(format!("an input of {} x {} pixels is too large", desc.width_px, desc.height_px));
    }
    Ok(())
}

/// Factor and shift that make a channel's values of its samples, channels in the input's order.
pub(crate) fn constants(desc: &PreprocessDesc) -> Result<[(f32, f32); 3], KernelError> {
    let mut constants = [(0.0, 0.0); 3];
    for ((constants, &mean), &std) in constants.iter_mut().zip(&desc.mean).zip(&desc.std) {
        let (factor, shift) = ((1.0 / f64::from(std)) as f32, (-f64::from(mean) / f64::from(std)) as f32);
        // The ends of a straight line are finite where all of it is.
        if !std.is_finite() || !shift.is_finite() || !255f32.mul_add(factor, shift).is_finite() {
            let why = format!("mean {mean} and std {std} do not give finite numbers");
            return Err(KernelError::invalid("preprocess", why));
        }
        *constants = (factor, shift);
    }
    Ok(constants)
}

/// Where the picture goes. Pairs are columns, rows.
#[derive(Debug, PartialEq)]
pub(crate) struct Placement {
    /// Size of the whole resized picture.
    resized: [usize; 2],
    /// First visible pixel of the resized picture.
    from: [usize; 2],
    /// Visible pixels.
    pub(crate) size: [usize; 2],
    /// Where they go in the input.
    pub(crate) to: [usize; 2],
    pub(crate) transform: Transform,
}

impl Placement {
    /// The resize that gives the visible pixels of a picture of `source` pixels.
    pub(crate) fn job(&self, desc: &PreprocessDesc, source: [usize; 2]) -> Job {
        Job {
            source,
            target: self.resized,
            window: [0, 1].map(|axis| self.from[axis]..self.from[axis] + self.size[axis]),
            filter: desc.filter,
            antialias: desc.antialias,
            matching: desc.matching,
        }
    }
}

pub(crate) fn place(desc: &PreprocessDesc, source: [usize; 2]) -> Placement {
    let input = [desc.width_px, desc.height_px];
    let resized = match desc.resize {
        ResizeRule::Shortest { short_px } => {
            let short = source[0].min(source[1]);
            // torchvision's int(size * long / short): a product that doubles hold exactly, one rounded quotient.
            source.map(|side| if side == short { short_px } else { ((short_px * side) as f64 / short as f64) as usize })
        }
        ResizeRule::Stretch => input,
        ResizeRule::Letterbox { .. } => {
            let scale = [0, 1].map(|axis| input[axis] as f64 / source[axis] as f64);
            let scale = scale[0].min(scale[1]);
            [0, 1].map(|axis| ((source[axis] as f64 * scale).round_ties_even() as usize).clamp(1, input[axis]))
        }
    };
    let mut placed = Placement {
        resized,
        from: [0; 2],
        size: [0; 2],
        to: [0; 2],
        transform: Transform { scale: [0.0; 2], offset_px: [0.0; 2] },
    };
    for axis in 0..2 {
        let (have, want) = (resized[axis], input[axis]);
        placed.size[axis] = have.min(want);
        if have > want {
            // torchvision's CenterCrop: Python's round, halves to even.
            placed.from[axis] = ((have - want) as f64 / 2.0).round_ties_even() as usize;
        } else if !matches!(desc.resize, ResizeRule::Letterbox { place: LetterboxPlace::TopLeft, .. }) {
            placed.to[axis] = (want - have) / 2;
        }
        placed.transform.scale[axis] = have as f64 / source[axis] as f64;
        placed.transform.offset_px[axis] = placed.to[axis] as f64 - placed.from[axis] as f64;
    }
    placed
}
