//! Resampling of images.

use ocellus_kernels::op::{Coordinates, Crop, NearestRounding, Op, Resize, ResizeMode};

use super::node::{NodeImport, Outcome};
use super::refusal::{Refusal, axes, refuse, size};

/// ONNX `mode`, less cubic.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Nearest,
    Linear,
}

/// ONNX `keep_aspect_ratio_policy`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aspect {
    Stretch,
    NotLarger,
    NotSmaller,
}

/// Resize.
pub(super) fn resize(n: &mut NodeImport<'_>) -> Outcome {
    if n.opset < 11 {
        return upsample(n);
    }
    let mode = mode(n)?;
    let coordinates = n.attributes.choice(
        "coordinate_transformation_mode",
        Some(Coordinates::HalfPixel),
        &[
            ("half_pixel", Some(Coordinates::HalfPixel)),
            ("half_pixel_symmetric", Some(Coordinates::HalfPixelSymmetric)),
            ("pytorch_half_pixel", Some(Coordinates::PytorchHalfPixel)),
            ("align_corners", Some(Coordinates::AlignCorners)),
            ("asymmetric", Some(Coordinates::Asymmetric)),
            ("tf_half_pixel_for_nn", Some(Coordinates::TfHalfPixelForNn)),
            // Its numbers are read below.
            ("tf_crop_and_resize", None),
        ],
    )?;
    let rounding = n.attributes.choice(
        "nearest_mode",
        NearestRounding::RoundPreferFloor,
        &[
            ("round_prefer_floor", NearestRounding::RoundPreferFloor),
            ("round_prefer_ceil", NearestRounding::RoundPreferCeil),
            ("floor", NearestRounding::Floor),
            ("ceil", NearestRounding::Ceil),
        ],
    )?;
    // Only cubic sampling, which is refused above, reads it.
    n.attributes.ignore(&["cubic_coeff_a"]);
    let outside = n.attributes.float("extrapolation_value", 0.0)?;
    if n.attributes.flag("exclude_outside", false)? {
        return refuse("exclude_outside is not supported");
    }
    let antialias = n.attributes.flag("antialias", false)?;
    let stated = n.attributes.ints("axes")?.unwrap_or_else(|| vec![0, 1, 2, 3]);
    // The order of the axes is that of the values.
    axes(&stated, 4)?;
    let order: Vec<usize> = stated.iter().map(|&a| if a < 0 { a + 4 } else { a } as usize).collect();
    let coordinates = match coordinates {
        Some(coordinates) => coordinates,
        None => Coordinates::TfCropAndResize(crop(n, &order, outside)?),
    };
    let (out, scale) = target(n, &order)?;
    if antialias && mode == Mode::Linear && scale.iter().any(|&s| s < 1.0) {
        return refuse("antialias is not supported");
    }
    let mode = match mode {
        Mode::Nearest => ResizeMode::Nearest(rounding),
        Mode::Linear => ResizeMode::Linear,
    };
    emit(n, out, scale, mode, coordinates)
}

/// The region (operand 1): the starts of the axes, then their ends. The size must be stated, since the specification takes
/// a scale for one of the region and ONNX Runtime for one of the whole picture.
fn crop(n: &NodeImport<'_>, order: &[usize], outside: f32) -> Result<Crop, Refusal> {
    let Some(region) = floats(n, 1, "the region")? else {
        return refuse("tf_crop_and_resize needs the region (operand 1)");
    };
    if floats(n, 2, "the scales")?.is_some_and(|scales| !scales.is_empty()) {
        return refuse("tf_crop_and_resize with scales is not supported; export the model with sizes");
    }
    if region.iter().any(|x| !x.is_finite()) {
        return refuse(format!("the region {region:?} is not finite"));
    }
    let (starts, ends) = region.split_at(region.len() / 2);
    let (start, end) = (by_axis(order, starts, "starts", 0.0)?, by_axis(order, ends, "ends", 1.0)?);
    if start[..2] != [0.0; 2] || end[..2] != [1.0; 2] {
        return refuse(format!("the region {region:?} cuts batch or channels; only rows and columns can be resized"));
    }
    Ok(Crop { start: [start[2], start[3]], end: [end[2], end[3]], outside })
}

/// Upsample of opset 9 and Resize of opset 10: scales only, asymmetric coordinates. Nearest sampling rounds down, but up
/// where the picture shrinks, as ONNX Runtime does; the specification leaves it open.
pub(super) fn upsample(n: &mut NodeImport<'_>) -> Outcome {
    let mode = mode(n)?;
    let (_, dims) = n.image(0)?;
    let Some(scales) = floats(n, 1, "the scales")? else {
        return refuse("the scales (operand 1) are missing");
    };
    let scales = by_axis(&[0, 1, 2, 3], &scales, "scales", 1.0)?;
    let (out, scale) = scaled(&dims, &scales)?;
    let mode = match (mode, scale.map(|s| s < 1.0)) {
        (Mode::Linear, _) => ResizeMode::Linear,
        (Mode::Nearest, [false, false]) => ResizeMode::Nearest(NearestRounding::Floor),
        (Mode::Nearest, [rows, columns]) if (rows || scale[0] == 1.0) && (columns || scale[1] == 1.0) => {
            ResizeMode::Nearest(NearestRounding::Ceil)
        }
        (Mode::Nearest, _) => return refuse("one axis grows and the other shrinks, which is not supported"),
    };
    emit(n, out, scale, mode, Coordinates::Asymmetric)
}

fn mode(n: &mut NodeImport<'_>) -> Result<Mode, Refusal> {
    n.attributes.choice("mode", Mode::Nearest, &[("nearest", Mode::Nearest), ("linear", Mode::Linear)])
}

/// Output rows and columns and their scales, from the operands of opset 11 and later.
fn target(n: &mut NodeImport<'_>, order: &[usize]) -> Result<([usize; 2], [f32; 2]), Refusal> {
    let aspect = n.attributes.choice(
        "keep_aspect_ratio_policy",
        Aspect::Stretch,
        &[("stretch", Aspect::Stretch), ("not_larger", Aspect::NotLarger), ("not_smaller", Aspect::NotSmaller)],
    )?;
    let (_, dims) = n.image(0)?;
    let scales = floats(n, 2, "the scales")?.filter(|scales| !scales.is_empty());
    let sizes = n.optional_ints(3, "the sizes")?.filter(|sizes| !sizes.is_empty());
    match (scales, sizes) {
        (Some(scales), None) => scaled(&dims, &by_axis(order, &scales, "scales", 1.0)?),
        (None, Some(sizes)) => {
            let sizes = sizes.iter().map(|&s| size(s, "a size")).collect::<Result<Vec<_>, _>>()?;
            sized(&dims, order, &sizes, aspect)
        }
        _ => refuse("exactly one of scales and sizes must be given"),
    }
}

/// Output by sizes. With a kept aspect ratio all named axes get one scale, and the size is rounded.
fn sized(
    dims: &[usize; 4],
    order: &[usize],
    sizes: &[usize],
    aspect: Aspect,
) -> Result<([usize; 2], [f32; 2]), Refusal> {
    if sizes.len() != order.len() {
        return refuse(format!("{} sizes for {} axes", sizes.len(), order.len()));
    }
    let ratios = order.iter().zip(sizes).map(|(&axis, &size)| size as f32 / dims[axis] as f32);
    let common = match aspect {
        Aspect::Stretch => None,
        Aspect::NotLarger => ratios.reduce(f32::min),
        Aspect::NotSmaller => ratios.reduce(f32::max),
    };
    let mut out = *dims;
    let mut scale = [1.0; 4];
    for (&axis, &size) in order.iter().zip(sizes) {
        let ratio = common.unwrap_or(size as f32 / dims[axis] as f32);
        scale[axis] = ratio;
        out[axis] = if common.is_some() { (ratio * dims[axis] as f32).round() as usize } else { size };
    }
    images(dims, out, scale)
}

/// Output by scales: sizes round down.
fn scaled(dims: &[usize; 4], scales: &[f32; 4]) -> Result<([usize; 2], [f32; 2]), Refusal> {
    if let Some(scale) = scales.iter().find(|s| !(s.is_finite() && **s > 0.0)) {
        return refuse(format!("a scale of {scale} is not allowed"));
    }
    let mut out = *dims;
    out.iter_mut().zip(scales).for_each(|(d, scale)| *d = (*d as f32 * scale).floor() as usize);
    images(dims, out, *scales)
}

/// Refuses a change of batch or channels.
fn images(dims: &[usize; 4], out: [usize; 4], scale: [f32; 4]) -> Result<([usize; 2], [f32; 2]), Refusal> {
    if out[..2] != dims[..2] {
        return refuse(format!("{dims:?} become {out:?}; only rows and columns can be resized"));
    }
    Ok(([out[2], out[3]], [scale[2], scale[3]]))
}

/// Values of all axes; `other` where none is given.
fn by_axis(order: &[usize], values: &[f32], what: &str, other: f32) -> Result<[f32; 4], Refusal> {
    if values.len() != order.len() {
        return refuse(format!("{} {what} for {} axes", values.len(), order.len()));
    }
    let mut all = [other; 4];
    order.iter().zip(values).for_each(|(&axis, &value)| all[axis] = value);
    Ok(all)
}

fn floats(n: &NodeImport<'_>, i: usize, what: &str) -> Result<Option<Vec<f32>>, Refusal> {
    Ok(n.optional_constant(i, what)?.map(|tensor| tensor.to_floats().to_vec()))
}

fn emit(
    n: &mut NodeImport<'_>,
    [p, q]: [usize; 2],
    scale: [f32; 2],
    mode: ResizeMode,
    coordinates: Coordinates,
) -> Outcome {
    let (x, [batch, c, h, w]) = n.image(0)?;
    let op = Resize { n: batch, h, w, c, p, q, scale, mode, coordinates };
    n.emit(Op::Resize(op), &[&x], vec![batch, c, p, q])
}
