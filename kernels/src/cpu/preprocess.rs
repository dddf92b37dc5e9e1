//! Preprocessing on the CPU: resize, crop or letterbox, normalise, store in the network's layout.
//!
//! The resize works on u8 as Pillow does and computes only the pixels that the crop keeps; its bits are those of
//! resizing everything and cropping then. A value v of channel c becomes `fma(v, 1 / std[c], -mean[c] / std[c])` in
//! single precision, both constants rounded from double; f16 is that rounded once more.

use half::f16;

use super::resample::Resampler;
use super::vector_simd::Isa;
use crate::error::KernelError;
use crate::preprocess::place::{MAX_PIXELS, Placement, check, constants, place};
use crate::preprocess::weights::Job;
use crate::preprocess::{ColourOrder, Filter, Match, PreprocessDesc, ResizeRule, Transform};
use crate::tensor::Layout;

/// Runs one [`PreprocessDesc`]; owns its scratch, so each worker has one.
pub struct Preprocessor {
    desc: PreprocessDesc,
    resampler: Resampler,
    pixels: Vec<u8>,
    f32_values: Box<Values<f32>>,
    f16_values: Box<Values<f16>>,
}

/// What every 8-bit value of each of the input's channels becomes.
type Values<T> = [[T; 256]; 3];

impl Preprocessor {
    /// # Errors
    /// Where a size is 0 or beyond 65,536 pixels, or `mean` and `std` do not give finite numbers.
    pub fn new(desc: PreprocessDesc) -> Result<Self, KernelError> {
        Self::with_isa(desc, Isa::best())
    }

    /// As [`Preprocessor::new`], with the instructions of `isa`: the bits do not depend on it.
    ///
    /// # Errors
    /// As there.
    pub fn with_isa(desc: PreprocessDesc, isa: Isa) -> Result<Self, KernelError> {
        check(&desc)?;
        let mut f32_values = Box::new([[0.0; 256]; 3]);
        for (values, (factor, shift)) in f32_values.iter_mut().zip(constants(&desc)?) {
            values.iter_mut().enumerate().for_each(|(v, value)| *value = (v as f32).mul_add(factor, shift));
        }
        let f16_values = Box::new(f32_values.map(|values| values.map(f16::from_f32)));
        Ok(Self { desc, resampler: Resampler::new(isa), pixels: Vec::new(), f32_values, f16_values })
    }

    /// Fills `out` (3 x height x width values in the description's layout) from a picture of `width_px` x `height_px`
    /// RGB pixels, row by row.
    ///
    /// # Errors
    /// Where a length does not fit, or the picture is too large or too elongated to resize.
    pub fn run_f32(
        &mut self,
        rgb: &[u8],
        width_px: usize,
        height_px: usize,
        out: &mut [f32],
    ) -> Result<Transform, KernelError> {
        let placed = self.resize(rgb, [width_px, height_px], out.len())?;
        store(&self.desc, &placed, &self.pixels, &self.f32_values, out);
        Ok(placed.transform)
    }

    /// As [`Self::run_f32`], in half precision.
    ///
    /// # Errors
    /// As there.
    pub fn run_f16(
        &mut self,
        rgb: &[u8],
        width_px: usize,
        height_px: usize,
        out: &mut [f16],
    ) -> Result<Transform, KernelError> {
        let placed = self.resize(rgb, [width_px, height_px], out.len())?;
        store(&self.desc, &placed, &self.pixels, &self.f16_values, out);
        Ok(placed.transform)
    }

    /// Leaves the visible part of the resized picture in `self.pixels`.
    fn resize(&mut self, rgb: &[u8], source: [usize; 2], out_len: usize) -> Result<Placement, KernelError> {
        check_picture(rgb, source)?;
        let want = 3 * self.desc.width_px * self.desc.height_px;
        if out_len != want {
            return Err(KernelError::invalid("preprocess", format!("room for {out_len} values instead of {want}")));
        }
        let placed = place(&self.desc, source);
        let job = placed.job(&self.desc, source);
        self.resampler.run(rgb, &job, &mut self.pixels)?;
        Ok(placed)
    }
}

fn check_picture(rgb: &[u8], [width, height]: [usize; 2]) -> Result<(), KernelError> {
    let pixels = width.checked_mul(height).filter(|n| (1..=MAX_PIXELS).contains(n));
    if pixels.is_some_and(|n| rgb.len() == 3 * n) {
        return Ok(());
    }
    let why = format!("{} bytes for a picture of {width} x {height} RGB pixels", rgb.len());
    Err(KernelError::invalid("preprocess", why))
}

/// Writes the visible pixels and the border around them.
fn store<T: Copy>(desc: &PreprocessDesc, placed: &Placement, pixels: &[u8], values: &Values<T>, out: &mut [T]) {
    let [width, height] = [desc.width_px, desc.height_px];
    let [columns, rows] = [0, 1].map(|axis| placed.to[axis]..placed.to[axis] + placed.size[axis]);
    let fill = if let ResizeRule::Letterbox { fill, .. } = desc.resize { fill } else { [0; 3] };
    let border: [T; 3] = std::array::from_fn(|c| values[c][usize::from(fill[c])]);
    // Channel of the picture that each channel of the input shows.
    let order = match desc.colour {
        ColourOrder::Rgb => [0, 1, 2],
        ColourOrder::Bgr => [2, 1, 0],
    };
    let pixel_rows = pixels.chunks_exact(placed.size[0] * 3).map(|row| row.as_chunks::<3>().0);
    match desc.layout {
        Layout::Nhwc => {
            let out = out.as_chunks_mut::<3>().0;
            out[..rows.start * width].fill(border);
            out[rows.end * width..].fill(border);
            for (out, row) in out[rows.start * width..].chunks_exact_mut(width).zip(pixel_rows) {
                out[..columns.start].fill(border);
                out[columns.end..].fill(border);
                for (out, pixel) in out[columns.clone()].iter_mut().zip(row) {
                    *out = std::array::from_fn(|c| values[c][usize::from(pixel[order[c]])]);
                }
            }
        }
        Layout::Nchw => {
            for (c, out) in out.chunks_exact_mut(width * height).enumerate() {
                out[..rows.start * width].fill(border[c]);
                out[rows.end * width..].fill(border[c]);
                for (out, row) in out[rows.start * width..].chunks_exact_mut(width).zip(pixel_rows.clone()) {
                    out[..columns.start].fill(border[c]);
                    out[columns.end..].fill(border[c]);
                    for (out, pixel) in out[columns.clone()].iter_mut().zip(row) {
                        *out = values[c][usize::from(pixel[order[c]])];
                    }
                }
            }
        }
    }
}

/// `rgb`, a picture of `source` columns and rows, resized to `target` columns and rows. The bits do not depend on `isa`.
///
/// # Errors
/// Where the length does not fit the size, or a picture is empty or too large.
pub fn resize_rgb(
    isa: Isa,
    rgb: &[u8],
    source: [usize; 2],
    target: [usize; 2],
    filter: Filter,
    antialias: bool,
    matching: Match,
) -> Result<Vec<u8>, KernelError> {
    check_picture(rgb, source)?;
    if !target[0].checked_mul(target[1]).is_some_and(|n| (1..=MAX_PIXELS).contains(&n)) {
        return Err(KernelError::invalid("resize", format!("to {} x {} pixels", target[0], target[1])));
    }
    let job = Job { source, target, window: target.map(|side| 0..side), filter, antialias, matching };
    let mut out = Vec::new();
    Resampler::new(isa).run(rgb, &job, &mut out)?;
    Ok(out)
}
