//! Chains of Transpose and Reshape become one.

use ocellus_kernels::op::Op;

use super::{Context, Patch, operand};
use crate::model::graph::Node;

/// Transpose of a Transpose, Reshape of a Reshape: one node. A Transpose that moves only axes of length 1: a Reshape.
pub(super) fn compose(context: &Context<'_>, index: usize) -> Option<Patch> {
    let node = context.node(index);
    let x = operand(node, 0)?;
    if let Op::Transpose { perm } = &node.op
        && moves_only_ones(perm, context.dims(x))
    {
        return Some(Patch::replace(index, Node { op: Op::Reshape, ..node.clone() }));
    }
    let (_, inner) = context.producer(x)?;
    let op = match (&inner.op, &node.op) {
        (Op::Transpose { perm: first }, Op::Transpose { perm: second }) => {
            Op::Transpose { perm: second.iter().map(|&i| first[i]).collect() }
        }
        (Op::Reshape, Op::Reshape) => Op::Reshape,
        _ => return None,
    };
    let mut merged = Node { op, inputs: vec![operand(inner, 0)?], ..node.clone() };
    context.record(&mut merged, inner);
    Some(Patch::replace(index, merged))
}

/// True where the axes longer than 1 keep their order, so that the elements do.
pub(super) fn moves_only_ones(perm: &[usize], dims: &[usize]) -> bool {
    perm.iter().filter(|&&axis| dims[axis] != 1).is_sorted()
}
