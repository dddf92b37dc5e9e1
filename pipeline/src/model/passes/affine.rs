//! Scales and shifts of channels, batch normalisations above all, move into the weights next to them.

use ocellus_kernels::op::{BinaryKind, Op, Unary};
use ocellus_kernels::values::Values;

use super::{Context, Patch, epilogue, epilogue_mut, operand};
use crate::model::graph::{Node, ValueId};

/// y = act(x scale + shift), a scale and a shift for each channel.
struct Affine {
    x: ValueId,
    scale: Vec<f64>,
    shift: Vec<f64>,
    activation: Option<Unary>,
}

impl Affine {
    /// Reads a `ScaleShift`, or Add, Sub, Mul, Div with a constant that varies along `axis` alone.
    fn of(context: &Context<'_>, node: &Node, axis: usize) -> Option<Self> {
        let dims = context.dims(node.output);
        match node.op {
            Op::ScaleShift { axis: a } if a == axis => {
                let &[x, scale, shift] = node.inputs.as_slice() else { return None };
                let values = |id| Some(context.constant(id)?.data.iter().map(|&v| f64::from(v)).collect());
                Some(Self { x, scale: values(scale)?, shift: values(shift)?, activation: None })
            }
            Op::Binary { kind, activation } => {
                let &[a, b] = node.inputs.as_slice() else { return None };
                let (x, constant, x_first) = if context.constant(b).is_some() { (a, b, true) } else { (b, a, false) };
                let values = per_channel(context, constant, dims, axis)?;
                if context.dims(x) != dims || context.constant(x).is_some() {
                    return None;
                }
                let ones = vec![1.0; values.len()];
                let zeros = vec![0.0; values.len()];
                let negated = |v: &[f64]| v.iter().map(|x| -x).collect::<Vec<_>>();
                let (scale, shift) = match (kind, x_first) {
                    (BinaryKind::Add, _) => (ones, values),
                    (BinaryKind::Sub, true) => (ones, negated(&values)),
                    (BinaryKind::Sub, false) => (negated(&ones), values),
                    (BinaryKind::Mul, _) => (values, zeros),
                    (BinaryKind::Div, true) => (values.iter().map(|v| 1.0 / v).collect(), zeros),
                    _ => return None,
                };
                Some(Self { x, scale, shift, activation })
            }
            _ => None,
        }
    }
}

/// The elements of a constant that is broadcast to `dims` and varies along `axis` alone, one for each index of it.
fn per_channel(context: &Context<'_>, id: ValueId, dims: &[usize], axis: usize) -> Option<Vec<f64>> {
    let constant = context.constant(id)?;
    let ahead = dims.len().checked_sub(constant.dims.len())?;
    let varies_elsewhere = constant.dims.iter().enumerate().any(|(i, &d)| d != 1 && i + ahead != axis);
    let channels = dims[axis];
    match constant.data.len() {
        _ if varies_elsewhere => None,
        1 => Some(vec![constant.data[0].into(); channels]),
        n if n == channels => Some(constant.data.iter().map(|&v| v.into()).collect()),
        _ => None,
    }
}

/// The channel axis of what a matrix product reads and writes, in the file's order.
fn channel_axis(context: &Context<'_>, node: &Node) -> Option<usize> {
    match node.op {
        Op::Conv(_) | Op::ConvTranspose(_) => Some(1),
        Op::Gemm(_) => context.dims(node.output).len().checked_sub(1),
        _ => None,
    }
}

/// The bias of a matrix product, zeros where it has none. None where it is computed.
fn bias(context: &Context<'_>, node: &Node, channels: usize) -> Option<Vec<f64>> {
    if !epilogue(&node.op)?.bias {
        return Some(vec![0.0; channels]);
    }
    Some(context.constant(operand(node, 2)?)?.data.iter().map(|&v| f64::from(v)).collect())
}

/// The node with other weights and another bias.
fn reweighted(context: &Context<'_>, node: &Node, weights: Values, bias: Vec<f64>) -> Option<(Patch, Node)> {
    let mut patch = Patch::default();
    let mut merged = node.clone();
    let (w, channels) = (operand(node, 1)?, bias.len());
    let name = |what| format!("{}.{what}", node.name);
    merged.inputs[1] = patch.constant(context.graph, name("weight"), context.dims(w).to_vec(), weights);
    let bias = bias.into_iter().map(|x| x as f32).collect();
    let bias = patch.constant(context.graph, name("bias"), vec![channels], bias);
    let epilogue = epilogue_mut(&mut merged.op)?;
    if epilogue.bias {
        merged.inputs[2] = bias;
    } else {
        epilogue.bias = true;
        merged.inputs.insert(2, bias);
    }
    Some((patch, merged))
}

/// A scale and shift after Conv, `ConvTranspose` or Gemm, whose result nobody else reads: into its weights and bias.
pub(super) fn into_producer(context: &Context<'_>, index: usize) -> Option<Patch> {
    let node = context.node(index);
    let x = node.inputs.iter().copied().find(|&id| context.constant(id).is_none())?;
    let (at, producer) = context.producer(x)?;
    let affine = Affine::of(context, node, channel_axis(context, producer)?)?;
    let before = epilogue(&producer.op)?;
    if affine.x != x || !context.read_once(x) || before.residual || before.activation.is_some() {
        return None;
    }
    let channels = affine.scale.len();
    let weights = context.constant(operand(producer, 1)?)?;
    let row = weights.data.len().checked_div(channels)?.max(1);
    let scaled = weights.data.scaled(affine.scale.clone(), &[1, 0], &[channels, row]);
    let bias = bias(context, producer, channels)?;
    let bias = bias.iter().zip(&affine.scale).zip(&affine.shift).map(|((b, scale), shift)| b * scale + shift).collect();
    let (mut patch, mut merged) = reweighted(context, producer, scaled, bias)?;
    epilogue_mut(&mut merged.op)?.activation = affine.activation;
    merged.output = node.output;
    context.record(&mut merged, node);
    patch.replace.push((at, merged));
    Some(patch.removing(index))
}

/// A scale and shift before Conv or Gemm, which nobody else reads: into its weights and bias. Padding pixels are zero
/// after the shift, so a Conv with padding takes a scale alone.
pub(super) fn into_consumer(context: &Context<'_>, index: usize) -> Option<Patch> {
    let node = context.node(index);
    let (groups, window, padded) = match &node.op {
        Op::Conv(c) => {
            let reach = |out: usize, stride: usize, kernel: usize, dilation: usize| {
                out.saturating_sub(1) * stride + kernel.saturating_sub(1) * dilation + 1
            };
            let beyond =
                reach(c.p, c.stride[0], c.r, c.dilation[0]) > c.h || reach(c.q, c.stride[1], c.s, c.dilation[1]) > c.w;
            (c.groups, c.r * c.s, beyond || c.pad != [0, 0])
        }
        Op::Gemm(_) => (1, 1, false),
        _ => return None,
    };
    let x = operand(node, 0)?;
    let (_, scaling) = context.producer(x)?;
    let axis = if matches!(node.op, Op::Gemm(_)) { context.dims(x).len().checked_sub(1)? } else { 1 };
    let affine = Affine::of(context, scaling, axis)?;
    let shifts = affine.shift.iter().any(|&s| s != 0.0);
    if !context.read_once(x) || affine.activation.is_some() || (padded && shifts) {
        return None;
    }
    let weights = context.constant(operand(node, 1)?)?;
    // [K, C / groups, window]: the k-th row meets the channels of its group.
    let (k, c) = (weights.dims[0], weights.dims[1]);
    let mut bias = bias(context, node, k)?;
    let rows_a_group = (k / groups).max(1);
    for (i, &w) in weights.data.iter().enumerate() {
        let row = i / (c * window);
        let channel = row / rows_a_group * c + i / window % c;
        bias[row] += f64::from(w) * affine.shift[channel];
    }
    let (strides, dims) = ([c as isize, 0, 1, 0], [groups, rows_a_group, c, window]);
    let scaled = weights.data.scaled(affine.scale, &strides, &dims);
    let (mut patch, mut merged) = reweighted(context, node, scaled, bias)?;
    merged.inputs[0] = affine.x;
    context.record(&mut merged, scaling);
    patch.replace.push((index, merged));
    Some(patch)
}
