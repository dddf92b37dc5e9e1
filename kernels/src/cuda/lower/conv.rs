//! Dense and grouped convolutions on every architecture, as implicit matrix products.

mod tile;

use tile::{Size, Tile};

use super::emit::{self, Constants};
use super::pack::Filter;
use super::{Arg, Launch, Lowered, Packing, Precision, Source, Target, TypedStep, function, too_large, unsupported};
use crate::error::KernelError;
use crate::op::Conv;
use crate::tensor::DType;

/// Largest sizes that the kernels' 32-bit numbers are sure to hold.
pub(super) const MAX_PIXELS: usize = i32::MAX as usize - 1024;
const MAX_ROW: usize = 1 << 22;
const MAX_REACH: usize = 1 << 28;
const MAX_GROUPS: usize = u16::MAX as usize;

/// Rows and columns of a filter up to which the kernels keep one word for what of it is in the picture.
const MASKED_TAPS: usize = 16;

pub(super) fn lower(step: &TypedStep<'_>, desc: &Conv, target: &Target) -> Result<Lowered, KernelError> {
    let Source::Constant(weights) = &step.inputs[1] else {
        return Err(unsupported(step, "its weights are not constant"));
    };
    let dtype = target.precision.dtype();
    let element_bytes = if dtype == DType::F32 { 4 } else { 2 };
    let view = View::new(desc, pitch(&step.inputs[0]), element_bytes);
    let depth = desc.r * view.s * view.channels;
    let size = Size {
        pixels: desc.n * desc.p * desc.q,
        features: desc.k / desc.groups,
        groups: desc.groups,
        depth_bytes: depth * element_bytes,
        copy_bytes: view.copy_bytes(element_bytes),
        // Where a window begins and which of its taps are in the picture.
        row_registers: 2 + usize::from(desc.r.max(view.s) > MASKED_TAPS) + usize::from(!view.is_small(desc)),
    };
    if size.pixels > MAX_PIXELS {
        return Err(too_large(step));
    }
    let sound = depth.max(desc.k) <= MAX_ROW
        && desc.groups <= MAX_GROUPS
        && reach(desc).into_iter().all(|reach| reach <= MAX_REACH);
    if !sound {
        return Err(unsupported(step, "it is too large"));
    }
    let tile = Tile::choose(&size, target);
    // Whole rows of 128 bytes, whatever the tile: one form of the weights for all batches.
    let row = depth.next_multiple_of(128 / element_bytes);
    let (precision, channels, pixels, skip) = (target.precision, view.channels / view.pixels, view.pixels, view.skip);
    let filter = Packing::Filter(Filter { precision, channels, pixels, skip, row });

    let mut constants = Constants::default();
    let weights = constants.add(weights, filter);
    let x = address(step, 0, dtype, &mut constants)?;
    let epilogue = &desc.epilogue;
    let bias = if epilogue.bias { address(step, 2, DType::F32, &mut constants)? } else { Arg::Null };
    let place = 2 + usize::from(epilogue.bias);
    let residual = if epilogue.residual { address(step, place, dtype, &mut constants)? } else { Arg::Null };

    let mut defines = view.defines(desc);
    defines.extend(tile.defines());
    defines.extend(function::defines(epilogue.activation));
    defines.extend(
        [
            ("BIAS", usize::from(epilogue.bias)),
            ("RESIDUAL", usize::from(epilogue.residual)),
            ("COPY_BYTES", size.copy_bytes),
            ("DEPTH", row),
        ]
        .map(|(name, value)| (name, value.to_string())),
    );
    defines.push(("TYPE", emit::type_name(dtype)));
    let (file, entry) = match target.precision {
        Precision::Fp32 => ("conv_fp32.cu", "conv_fp32"),
        Precision::Tf32 | Precision::Fp16 | Precision::Bf16 => ("conv_mma.cu", "conv_mma"),
    };
    let launch = Launch {
        kernel: emit::spec(file, entry, defines),
        grid: [tile.count(&size) as u32, 1, desc.groups as u32],
        block: tile.threads() as u32,
        shared_bytes: tile.shared_bytes() as u32,
        args: vec![x, weights, bias, residual, Arg::Output, Arg::I32(size.pixels as i32)],
        overlaps: true,
    };
    Ok(Lowered { launches: vec![launch], constants: constants.0, workspace_bytes: 0 })
}

/// Where operand `n` lies: a constant becomes one of `constants`.
fn address(step: &TypedStep<'_>, n: usize, dtype: DType, constants: &mut Constants) -> Result<Arg, KernelError> {
    match &step.inputs[n] {
        Source::Activation(tensor) if tensor.dtype == dtype => Ok(Arg::Input(n)),
        Source::Activation(_) => Err(unsupported(step, "an operand has another type")),
        Source::Constant(constant) => Ok(constants.add(constant, Packing::Cast(dtype))),
    }
}

/// Elements from one pixel of an operand to the next.
fn pitch(source: &Source<'_>) -> usize {
    match source {
        Source::Activation(tensor) => tensor.pitch,
        Source::Constant(constant) => constant.dims.last().copied().unwrap_or(1),
    }
}

/// Rows and columns from the first to the last that a window touches.
fn reach(desc: &Conv) -> [usize; 2] {
    let along = |out: usize, kernel: usize, axis: usize| {
        let (steps, taps) = (out.saturating_mul(desc.stride[axis]), kernel.saturating_mul(desc.dilation[axis]));
        steps.saturating_add(taps).saturating_add(desc.pad[axis])
    };
    [along(desc.p, desc.r, 0), along(desc.q, desc.s, 1)]
}

/// A convolution's input as the kernel addresses it. Several pixels of few channels are taken for one of many, where
/// stride and width allow: a first layer's copies then have 16 bytes instead of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct View {
    /// Pixels of the picture in one of the view.
    pixels: usize,
    /// Zero columns before the filter's first, so that its windows begin at a whole pixel of the view.
    skip: usize,
    /// Columns.
    w: usize,
    /// Elements from one pixel to the next.
    pixel: usize,
    /// Channels of a group.
    channels: usize,
    /// The filter's columns.
    s: usize,
    /// Columns from one window to the next.
    stride: usize,
    /// Zero columns to the left.
    pad: usize,
}

impl View {
    fn new(desc: &Conv, pitch: usize, element_bytes: usize) -> Self {
        // Channels beyond the tensor's are zero, and so are the filter's.
        let channels = if desc.groups == 1 { pitch } else { desc.c / desc.groups };
        let wide = 16 / element_bytes;
        let pixels =
            if desc.groups == 1 && desc.dilation[1] == 1 && wide.is_multiple_of(pitch) { wide / pitch } else { 1 };
        let pixels = if desc.w.is_multiple_of(pixels) && desc.stride[1].is_multiple_of(pixels) { pixels } else { 1 };
        let pad = desc.pad[1].next_multiple_of(pixels);
        let skip = pad - desc.pad[1];
        Self {
            pixels,
            skip,
            w: desc.w / pixels,
            pixel: pitch * pixels,
            channels: channels * pixels,
            s: (desc.s + skip).div_ceil(pixels),
            stride: desc.stride[1] / pixels,
            pad: pad / pixels,
        }
    }

    /// The largest copy that never takes elements of two pixels or groups.
    fn copy_bytes(&self, element_bytes: usize) -> usize {
        let whole =
            |bytes: &usize| [self.channels, self.pixel].iter().all(|n| (n * element_bytes).is_multiple_of(*bytes));
        [16, 8, 4].into_iter().find(whole).unwrap_or(2)
    }

    /// Whether 32 bits hold the place of every element that a window may name, padding included.
    fn is_small(&self, desc: &Conv) -> bool {
        let [rows, columns] = reach(desc);
        let rows = desc.n.saturating_mul(desc.h).saturating_add(2 * rows);
        let elements = rows.saturating_mul(desc.w.saturating_add(2 * columns)).saturating_mul(self.pixel);
        elements < i32::MAX as usize
    }

    /// The shape, for the kernels.
    fn defines(&self, desc: &Conv) -> Vec<(&'static str, String)> {
        let numbers = [
            ("IN_H", desc.h),
            ("IN_W", self.w),
            ("PIXEL", self.pixel),
            ("CHANNELS", self.channels),
            ("OUT_H", desc.p),
            ("OUT_W", desc.q),
            ("OUT_CHANNELS", desc.k),
            ("FEATURES", desc.k / desc.groups),
            ("FILTER_R", desc.r),
            ("FILTER_S", self.s),
            ("STRIDE_H", desc.stride[0]),
            ("STRIDE_W", self.stride),
            ("PAD_H", desc.pad[0]),
            ("PAD_W", self.pad),
            ("DILATION_H", desc.dilation[0]),
            ("DILATION_W", desc.dilation[1]),
        ];
        let mut defines: Vec<_> = numbers.iter().map(|&(name, value)| (name, value.to_string())).collect();
        let offset = if self.is_small(desc) { "int" } else { "long long" };
        defines.push(("OFFSET", offset.into()));
        defines
    }
}
