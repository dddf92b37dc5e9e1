//! Preprocessing: from 8-bit RGB pixels to a network's input.
//!
//! Description only; [`crate::cpu::preprocess`] executes it.

pub(crate) mod place;
pub(crate) mod weights;

use crate::tensor::Layout;

/// Resampling filter. Antialiased: the support grows with the scale when shrinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Filter {
    /// Nearest sample, centre aligned (Pillow's `NEAREST`).
    Nearest,
    /// Triangle, support 1.
    Bilinear,
    /// Cubic with a = -0.5, support 2.
    Bicubic,
    /// Windowed sinc, support 3.
    Lanczos3,
}

/// How a picture's size becomes the input's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeRule {
    /// The shorter side becomes this many pixels, the longer `int(size * long / short)`; a centre crop follows.
    Shortest {
        /// Length of the shorter side after the resize.
        short_px: usize,
    },
    /// Both sides to the input size, the aspect ratio is lost.
    Stretch,
    /// Scaled to fit inside, the rest filled.
    Letterbox {
        /// Fill, 0..=255, one a channel in the order of the model's input.
        fill: [u8; 3],
        /// Where the picture goes.
        place: LetterboxPlace,
    },
}

/// Position of the picture in a letterbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterboxPlace {
    /// Half the border on either side (the smaller half above and left).
    Centre,
    /// Picture at the top left, border below and to the right.
    TopLeft,
}

/// Which library's arithmetic the resize reproduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Match {
    /// Pillow 13: two passes over u8, vertical first where `sh > dh` and `sh - dh > 2 (sw - dw)`.
    Pillow,
    /// Pillow 12 and older: always horizontal first.
    Pillow12,
}

/// Channel order of the network's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColourOrder {
    /// Red first.
    Rgb,
    /// Blue first.
    Bgr,
}

/// Everything between a decoded picture and the network's input.
#[derive(Clone, Debug, PartialEq)]
pub struct PreprocessDesc {
    /// Input columns.
    pub width_px: usize,
    /// Input rows.
    pub height_px: usize,
    /// Resize rule.
    pub resize: ResizeRule,
    /// Filter.
    pub filter: Filter,
    /// Widen the filter when shrinking. False samples at the source's own resolution.
    pub antialias: bool,
    /// Arithmetic.
    pub matching: Match,
    /// Channel order.
    pub colour: ColourOrder,
    /// Subtracted, 0..255 units, in the order of the input's channels.
    pub mean: [f32; 3],
    /// Divided by after that, 0..255 units.
    pub std: [f32; 3],
    /// Axis order of the input.
    pub layout: Layout,
}

/// Maps positions in the network's input back to the source picture: `source = (input - offset) / scale`, x then y.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transform {
    /// Input pixels a source pixel, for x and y.
    pub scale: [f64; 2],
    /// Input position of the source's top left corner, for x and y; negative where a crop cut it off.
    pub offset_px: [f64; 2],
}
