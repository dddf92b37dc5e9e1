//! Clips in their several spellings, and chains of them, become one activation.

use ocellus_kernels::op::{BinaryKind, Op, Unary};

use super::{Context, Patch, operand};
use crate::model::graph::Node;

/// Min and Max with a constant: Clip. `PRelu` with one slope: `LeakyRelu`. Clip or Relu of a Clip or Relu: one of them.
pub(super) fn merge(context: &Context<'_>, index: usize) -> Option<Patch> {
    let node = context.node(index);
    match node.op {
        Op::Binary { kind, activation: None } => {
            let &[a, b] = node.inputs.as_slice() else { return None };
            let (x, c) = match (context.scalar(a), context.scalar(b)) {
                (None, Some(c)) => (a, c),
                (Some(c), None) if kind != BinaryKind::PRelu => (b, c),
                _ => return None,
            };
            let function = match kind {
                BinaryKind::Min => clip(f32::NEG_INFINITY, c),
                BinaryKind::Max => clip(c, f32::INFINITY),
                BinaryKind::PRelu => Unary::LeakyRelu { alpha: c },
                _ => return None,
            };
            if context.dims(x) != context.dims(node.output) || c.is_nan() {
                return None;
            }
            let unary = Node { op: Op::Unary(function), inputs: vec![x], ..node.clone() };
            Some(Patch::replace(index, unary))
        }
        Op::Unary(outer) => {
            let (low, high) = range(outer)?;
            let x = operand(node, 0)?;
            let (_, inner) = context.producer(x)?;
            let Op::Unary(function) = inner.op else { return None };
            let (inner_low, inner_high) = range(function)?;
            let function = clip(inner_low.max(low).min(high), inner_high.max(low).min(high));
            let mut merged = Node { op: Op::Unary(function), inputs: inner.inputs.clone(), ..node.clone() };
            context.record(&mut merged, inner);
            Some(Patch::replace(index, merged))
        }
        _ => None,
    }
}

/// The range that a clipping function clips to.
fn range(function: Unary) -> Option<(f32, f32)> {
    match function {
        Unary::Relu => Some((0.0, f32::INFINITY)),
        Unary::Clip { min, max } if min <= max => Some((min, max)),
        _ => None,
    }
}

/// The function that clips to a range.
fn clip(min: f32, max: f32) -> Unary {
    if min == 0.0 && max == f32::INFINITY { Unary::Relu } else { Unary::Clip { min, max } }
}
