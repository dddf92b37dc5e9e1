//! Nodes that do nothing, for nobody.

use std::collections::HashMap;

use ocellus_kernels::op::Op;

use super::{Context, Patch, operand};
use crate::model::graph::Node;

/// A node whose result nobody reads goes, and with it the nodes before it that only it and such nodes read.
pub(super) fn unread(context: &Context<'_>, index: usize) -> Option<Patch> {
    if context.readers[context.node(index).output.0] != 0 {
        return None;
    }
    let mut readers = HashMap::new();
    let mut patch = Patch::default().removing(index);
    let mut next = 0;
    while let Some(&dead) = patch.remove.get(next) {
        next += 1;
        for id in &context.node(dead).inputs {
            let left = readers.entry(*id).or_insert(context.readers[id.0]);
            *left -= 1;
            if let (0, Some(producer)) = (*left, context.producers[id.0]) {
                patch.remove.push(producer);
            }
        }
    }
    Some(patch)
}

/// A node that hands its operand on unchanged goes: Reshape, Transpose, Pad, Slice and Cast that change nothing, Concat
/// of one operand.
pub(super) fn no_op(context: &Context<'_>, index: usize) -> Option<Patch> {
    let node = context.node(index);
    let x = operand(node, 0)?;
    if !changes_nothing(context, node) {
        return None;
    }
    if !context.is_output(node.output) {
        return Some(Patch { redirect: Some((node.output, x)), ..Patch::default().removing(index) });
    }
    // The caller knows the result by its name: the operand's producer makes it, where nobody else needs the operand.
    let (at, producer) = context.producer(x)?;
    if !context.read_once(x) {
        return None;
    }
    let renamed = Node { output: node.output, ..producer.clone() };
    Some(Patch::replace(at, renamed).removing(index))
}

fn changes_nothing(context: &Context<'_>, node: &Node) -> bool {
    let same_shape = context.dims(node.inputs[0]) == context.dims(node.output);
    match &node.op {
        Op::Reshape | Op::Cast { integer_range: None } => same_shape,
        Op::Transpose { perm } => perm.iter().copied().eq(0..perm.len()),
        // Equal shapes leave no room for padding behind either.
        Op::Pad { before, .. } => same_shape && before.iter().all(|&b| b == 0),
        Op::Slice { start, step } => same_shape && start.iter().all(|&s| s == 0) && step.iter().all(|&s| s == 1),
        Op::Concat { .. } => node.inputs.len() == 1,
        _ => false,
    }
}
