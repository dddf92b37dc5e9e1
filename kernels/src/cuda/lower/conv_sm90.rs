//! Dense convolutions on Hopper's own instructions: `kernels/cu/conv_sm90.cu`.

#[cfg(test)]
mod tests;
mod tile;

use std::sync::Arc;

use super::{
    Arg, Launch, Lowered, MapKind, Packed, Packing, Source, Target, Tensor, TensorMap, TypedStep, conv, emit, function,
};
use crate::jit::{Arch, KernelSpec};
use crate::op::Conv;
use crate::plan::Constant;
use crate::tensor::DType;
use tile::{Config, Problem};

/// Channels that the kernel sums over in a step: a row of the 128-byte swizzle.
const STEP_C: usize = 64;
/// Threads a block: a warp group that moves data and two that multiply.
const BLOCK: u32 = 384;

/// The launches, or nothing where the shape does not fit.
pub(super) fn lower(step: &TypedStep<'_>, desc: &Conv, target: &Target) -> Option<Lowered> {
    let dtype = target.precision.dtype();
    if target.arch != (Arch { major: 9, minor: 0 }) || target.portable || !matches!(dtype, DType::F16 | DType::Bf16) {
        return None;
    }
    let operands = Operands::of(step, desc, dtype)?;
    let view = View::of(desc)?;
    let taps = desc.r * desc.s;
    let steps = taps * desc.c.div_ceil(STEP_C);
    // Steps are filled up with zeros: over many taps, few channels are better off elsewhere.
    if taps > 1 && steps * STEP_C > 2 * taps * desc.c {
        return None;
    }
    let residual = operands.residual.is_some();
    let problem = Problem { pixels: desc.n * desc.p * desc.q, c: desc.c, k: desc.k, steps, residual };
    if problem.pixels > conv::MAX_PIXELS {
        return None;
    }
    let config = tile::choose(&problem, target)?;
    let tiles = config.tile.count(&problem);

    let (c, k, taps) = (desc.c as u64, desc.k as u64, taps as u64);
    let x = view.map(desc, operands.x, config.tile.m);
    let weights = tiled(Arg::Packed(0), dtype, &[c, taps, k], &[c, c * taps], &[64, 1, config.tile.n]);
    let result = |base| tiled(base, dtype, &[k, problem.pixels as u64], &[k], &[64, config.tile.m]);
    let mut constants = vec![Packed { constant: operands.weights, packing: Packing::Cast(dtype) }];
    let bias = operands.bias.map_or(Arg::Null, |constant| {
        constants.push(Packed { constant, packing: Packing::Cast(DType::F32) });
        Arg::Packed(1)
    });
    let launch = Launch {
        kernel: KernelSpec { file: "conv_sm90.cu", entry: "conv_sm90", defines: defines(desc, &view, &config, dtype) },
        grid: [u32::try_from(tiles).ok()?.min(target.multiprocessors), 1, 1],
        block: BLOCK,
        shared_bytes: u32::try_from(config.shared_bytes(&problem)).ok()?,
        args: vec![
            Arg::Map(x),
            Arg::Map(weights),
            Arg::Map(result(Arg::Output)),
            Arg::Map(result(operands.residual.map_or(Arg::Output, Arg::Input))),
            bias,
            Arg::I32(i32::try_from(tiles).ok()?),
        ],
        overlaps: true,
    };
    Some(Lowered { launches: vec![launch], constants, workspace_bytes: 0 })
}

/// A step's operands, where the kernel can read them.
struct Operands<'a> {
    x: &'a Tensor,
    weights: Arc<Constant>,
    bias: Option<Arc<Constant>>,
    /// Which input it is.
    residual: Option<usize>,
}

impl<'a> Operands<'a> {
    fn of(step: &'a TypedStep<'_>, desc: &Conv, dtype: DType) -> Option<Self> {
        let Source::Activation(x) = step.inputs.first()? else { return None };
        let constant = |n: usize| match step.inputs.get(n)? {
            Source::Constant(constant) => Some(Arc::clone(constant)),
            Source::Activation(_) => None,
        };
        let bias = if desc.epilogue.bias { Some(constant(2)?) } else { None };
        let residual = desc.epilogue.residual.then_some(2 + usize::from(desc.epilogue.bias));
        let dense = |t: &Tensor| t.dtype == dtype && t.pitch == desc.k;
        if let Some(n) = residual
            && !matches!(step.inputs.get(n)?, Source::Activation(t) if dense(t))
        {
            return None;
        }
        // Rows of a TMA copy begin at multiples of 16 bytes.
        let fits =
            desc.groups == 1 && desc.c.is_multiple_of(8) && desc.k.is_multiple_of(8) && x.pitch.is_multiple_of(8);
        (fits && x.dtype == dtype && dense(&step.output)).then_some(Self { x, weights: constant(1)?, bias, residual })
    }
}

/// How the kernel reads x.
enum View {
    /// A matrix of a row a pixel.
    Rows,
    /// Columns of pixels: the corners of the box that the first tap walks by the stride, for W, H.
    Im2col { lower: [i32; 2], upper: [i32; 2] },
}

impl View {
    /// None beyond what a map can say: corners of 8 bits, offsets below 256, strides of 8 at most.
    fn of(desc: &Conv) -> Option<Self> {
        let plain = desc.r * desc.s == 1 && desc.stride == [1, 1] && desc.pad == [0, 0];
        if plain && (desc.p, desc.q) == (desc.h, desc.w) {
            return Some(Self::Rows);
        }
        let axis = |i: usize, inputs: usize, outputs: usize, taps: usize| {
            let lower = -i32::try_from(desc.pad[i]).ok()?;
            // Just behind the last pixel of the walk, counted from the picture's end.
            let upper = i32::try_from((outputs - 1) * desc.stride[i] + 1).ok()? + lower - i32::try_from(inputs).ok()?;
            let fits = desc.stride[i] <= 8 && (taps - 1) * desc.dilation[i] < 256;
            (fits && [lower, upper].iter().all(|x| (-128..128).contains(x))).then_some([lower, upper])
        };
        let [left, right] = axis(1, desc.w, desc.q, desc.s)?;
        let [top, bottom] = axis(0, desc.h, desc.p, desc.r)?;
        Some(Self::Im2col { lower: [left, top], upper: [right, bottom] })
    }

    /// Map of x for `pixels` a copy.
    fn map(&self, desc: &Conv, x: &Tensor, pixels: u32) -> TensorMap {
        let [n, h, w, c, pitch] = [desc.n, desc.h, desc.w, desc.c, x.pitch].map(|x| x as u64);
        let base = Arg::Input(0);
        match *self {
            Self::Rows => tiled(base, x.dtype, &[c, n * h * w], &[pitch], &[64, pixels]),
            Self::Im2col { lower, upper } => {
                let [column, row] = [desc.stride[1] as u32, desc.stride[0] as u32];
                TensorMap {
                    element_strides: vec![1, column, row, 1],
                    kind: MapKind::Im2col { lower, upper, channels: 64, pixels },
                    ..tiled(base, x.dtype, &[c, w, h, n], &[pitch, pitch * w, pitch * w * h], &[])
                }
            }
        }
    }
}

/// A map of boxes; strides in elements of 2 bytes.
fn tiled(base: Arg, dtype: DType, dims: &[u64], strides: &[u64], sizes: &[u32]) -> TensorMap {
    TensorMap {
        base: Box::new(base),
        dtype,
        dims: dims.to_vec(),
        strides_bytes: strides.iter().map(|stride| 2 * stride).collect(),
        element_strides: vec![1; dims.len()],
        kind: MapKind::Tiled(sizes.to_vec()),
    }
}

/// Only what the kernel must know when it is compiled: layers that differ in batch alone share a kernel, and so do layers
/// of 1x1 kernels that differ in height and width.
fn defines(desc: &Conv, view: &View, config: &Config, dtype: DType) -> Vec<(&'static str, String)> {
    let mut defines = vec![
        ("C_IN", desc.c.to_string()),
        ("ELEMENT", emit::type_name(dtype)),
        ("GROUPS", config.tile.groups.to_string()),
        ("HAS_BIAS", u8::from(desc.epilogue.bias).to_string()),
        ("HAS_RESIDUAL", u8::from(desc.epilogue.residual).to_string()),
        ("IM2COL", u8::from(matches!(view, View::Im2col { .. })).to_string()),
        ("KERNEL_H", desc.r.to_string()),
        ("KERNEL_W", desc.s.to_string()),
        ("K_OUT", desc.k.to_string()),
        ("SLOTS", config.slots.to_string()),
        ("STAGES", config.stages.to_string()),
        ("TILE_M", config.tile.m.to_string()),
        ("TILE_N", config.tile.n.to_string()),
        ("WEIGHTS_STAY", u8::from(config.weights_stay).to_string()),
    ];
    defines.extend(function::defines(desc.epilogue.activation));
    if matches!(view, View::Im2col { .. }) {
        let names = ["DILATION_H", "DILATION_W", "OUT_H", "OUT_W", "PAD_H", "PAD_W", "STRIDE_H", "STRIDE_W"];
        let values = [desc.dilation, [desc.p, desc.q], desc.pad, desc.stride].concat();
        defines.extend(names.into_iter().zip(values.iter().map(usize::to_string)));
    }
    defines.sort_unstable();
    defines
}
