//! An activation moves into the operator before it.

use ocellus_kernels::op::Op;

use super::{Context, Patch, epilogue_mut, operand};

/// Unary after Conv, `ConvTranspose`, Gemm or Binary with no other reader: becomes that operator's activation.
pub(super) fn into_producer(context: &Context<'_>, index: usize) -> Option<Patch> {
    let node = context.node(index);
    let Op::Unary(function) = node.op else { return None };
    let x = operand(node, 0)?;
    let (at, producer) = context.producer(x)?;
    if !context.read_once(x) {
        return None;
    }
    let mut merged = producer.clone();
    let activation = match &mut merged.op {
        Op::Binary { activation, .. } => activation,
        op => &mut epilogue_mut(op)?.activation,
    };
    if activation.is_some() {
        return None;
    }
    *activation = Some(function);
    merged.output = node.output;
    context.record(&mut merged, node);
    Some(Patch::replace(at, merged).removing(index))
}
