//! A residual connection's addition moves into the matrix product before it.

use ocellus_kernels::op::{BinaryKind, Op};

use super::{Context, Patch, epilogue_mut};
use crate::model::graph::Node;

/// Add of a Conv's or Gemm's result, which nobody else reads, and another tensor of the same shape: becomes the
/// product's residual. Where both operands are products the later one takes it, so that the other is ready by then; the
/// product moves to the place of the Add for the same reason.
pub(super) fn into_producer(context: &Context<'_>, index: usize) -> Option<Patch> {
    let node = context.node(index);
    let Op::Binary { kind: BinaryKind::Add, activation } = node.op else { return None };
    let &[a, b] = node.inputs.as_slice() else { return None };
    let same_shape = [a, b].iter().all(|&id| context.dims(id) == context.dims(node.output));
    if a == b || !same_shape || context.constant(a).or(context.constant(b)).is_some() {
        return None;
    }
    let candidate = |product, other| {
        let (at, producer) = context.producer(product)?;
        let free = matches!(producer.op, Op::Conv(_) | Op::Gemm(_)) && context.read_once(product);
        let mut merged: Node = producer.clone();
        let epilogue = epilogue_mut(&mut merged.op)?;
        if !free || epilogue.residual || epilogue.activation.is_some() {
            return None;
        }
        epilogue.residual = true;
        epilogue.activation = activation;
        merged.inputs.push(other);
        merged.output = node.output;
        context.record(&mut merged, node);
        Some((at, merged))
    };
    let (at, merged) = [candidate(a, b), candidate(b, a)].into_iter().flatten().max_by_key(|(at, _)| *at)?;
    Some(Patch::replace(index, merged).removing(at))
}
