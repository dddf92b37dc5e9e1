//! Convolutions.

use ocellus_kernels::op::{Conv, ConvTranspose, Epilogue, Op};
use ocellus_kernels::tensor::DType;

use super::eval;
use super::node::{NodeImport, Outcome, Slot};
use super::refusal::{Refusal, refuse, size};
use super::tensor::{Tensor, is_float};
use super::window::{AutoPad, Window, pair};

/// Conv: x, weights [K, C / groups, R, S], bias [K].
pub(super) fn conv(n: &mut NodeImport<'_>) -> Outcome {
    let (x, [batch, c, h, w]) = n.image(0)?;
    let (weights, [k, group_c, r, s]) = weights(n)?;
    let window = Window::read(n, Some([r, s]))?;
    let groups = groups(n, c)?;
    if k % groups != 0 || group_c * groups != c {
        return refuse(format!("weights [{k}, {group_c}, {r}, {s}] do not fit {c} channels in {groups} groups"));
    }
    let (p, rows) = window.slide(0, h, false)?;
    let (q, columns) = window.slide(1, w, false)?;
    let pad = [rows[0], columns[0]];
    let bias = bias(n, k)?;
    let epilogue = Epilogue { bias: bias.is_some(), ..Epilogue::default() };
    let Window { stride, dilation, .. } = window;
    let op = Conv { n: batch, h, w, c, k, r, s, p, q, stride, pad, dilation, groups, epilogue };
    let operands: Vec<_> = [Some(&x), Some(&weights), bias.as_ref()].into_iter().flatten().collect();
    n.emit(Op::Conv(op), &operands, vec![batch, k, p, q])
}

/// `ConvTranspose`: x, weights [C, K / groups, R, S], bias [K].
pub(super) fn conv_transpose(n: &mut NodeImport<'_>) -> Outcome {
    let (x, [batch, c, h, w]) = n.image(0)?;
    let (weights, [weights_c, group_k, r, s]) = weights(n)?;
    let window = Window::read(n, Some([r, s]))?;
    let groups = groups(n, c)?;
    if weights_c != c {
        return refuse(format!("weights [{weights_c}, {group_k}, {r}, {s}] do not fit {c} channels"));
    }
    let Some(k) = group_k.checked_mul(groups) else {
        return refuse(format!("{group_k} channels in {groups} groups are too many"));
    };
    let extra = output_padding(n)?;
    let stated = pair(n.attributes.ints("output_shape")?.as_deref(), "output_shape")?;
    let axis =
        |axis: usize, input: usize| transposed(&window, axis, input, extra[axis], stated.map(|shape| shape[axis]));
    let ((p, top), (q, left)) = (axis(0, h)?, axis(1, w)?);
    let bias = bias(n, k)?;
    let weights = Slot::from(swap_channels(n, &weights, groups)?);
    let epilogue = Epilogue { bias: bias.is_some(), ..Epilogue::default() };
    let Window { stride, dilation, .. } = window;
    let op = Conv { n: batch, h, w, c, k, r, s, p, q, stride, pad: [top, left], dilation, groups, epilogue };
    let operands: Vec<_> = [Some(&x), Some(&weights), bias.as_ref()].into_iter().flatten().collect();
    n.emit(Op::ConvTranspose(ConvTranspose(op)), &operands, vec![batch, k, p, q])
}

/// Output size and padding before of one axis of a transposed convolution.
fn transposed(
    window: &Window,
    axis: usize,
    input: usize,
    extra: usize,
    stated: Option<usize>,
) -> Result<(usize, usize), Refusal> {
    let full = (input - 1) * window.stride[axis] + extra + window.extent(axis);
    let wanted = match (stated, window.auto) {
        (Some(stated), _) => stated,
        (None, AutoPad::SameUpper | AutoPad::SameLower) => input * window.stride[axis],
        (None, AutoPad::Valid) => return Ok((full, 0)),
        (None, AutoPad::NotSet) => {
            let (before, behind) = (window.pads[axis], window.pads[axis + 2]);
            return match full.checked_sub(before + behind) {
                Some(output) if output > 0 => Ok((output, before)),
                _ => refuse(format!("pads {before} and {behind} leave nothing of {full} samples")),
            };
        }
    };
    Ok((wanted, window.share(full.saturating_sub(wanted))[0]))
}

/// `output_padding`: each below the stride or the dilation.
fn output_padding(n: &mut NodeImport<'_>) -> Result<[usize; 2], Refusal> {
    match n.attributes.ints("output_padding")?.as_deref() {
        None => Ok([0, 0]),
        Some(&[a, b]) if a.max(b) < 1 << 24 => Ok([size(a, "output_padding")?, size(b, "output_padding")?]),
        Some(other) => refuse(format!("output_padding {other:?} must be two numbers, for rows and columns")),
    }
}

/// Four-dimensional constant weights.
fn weights(n: &NodeImport<'_>) -> Result<(Slot, [usize; 4]), Refusal> {
    let weights = n.constant(1, "weights")?;
    if !is_float(weights.dtype) {
        return refuse(format!("weights must be floating-point, they are {:?}", weights.dtype));
    }
    match <[usize; 4]>::try_from(&weights.dims[..]) {
        Ok(dims) if !dims.contains(&0) => Ok((Slot::Constant(weights), dims)),
        _ => refuse(format!("weights of {:?}; four dimensions with elements are needed", weights.dims)),
    }
}

fn groups(n: &mut NodeImport<'_>, c: usize) -> Result<usize, Refusal> {
    let groups = size(n.attributes.int("group", 1)?, "group")?;
    if groups == 0 || !c.is_multiple_of(groups) {
        return refuse(format!("{c} channels cannot be split into {groups} groups"));
    }
    Ok(groups)
}

fn bias(n: &NodeImport<'_>, k: usize) -> Result<Option<Slot>, Refusal> {
    match n.optional_constant(2, "bias")? {
        Some(bias) if bias.dims != [k] => refuse(format!("bias of {:?} does not fit {k} output channels", bias.dims)),
        bias => Ok(bias.map(Slot::Constant)),
    }
}

/// Weights [C, K / groups, R, S] of a transposed convolution as [K, C / groups, R, S].
fn swap_channels(n: &mut NodeImport<'_>, weights: &Slot, groups: usize) -> Result<Tensor, Refusal> {
    let Slot::Constant(weights) = weights else {
        return refuse("weights must be constant");
    };
    let [c, group_k, r, s] = [weights.dims[0], weights.dims[1], weights.dims[2], weights.dims[3]];
    let (group_c, area) = (c / groups, r * s);
    let strides = [group_c * group_k * area, area, group_k * area, 1].map(|stride| stride as isize);
    let swapped = eval::view(weights, 0, &strides, vec![groups, group_k, group_c, area], &mut n.builder.budget)?;
    let (name, dims) = (weights.name.clone(), vec![group_k * groups, group_c, r, s]);
    Ok(Tensor { name, dtype: DType::F32, dims, ..swapped })
}
