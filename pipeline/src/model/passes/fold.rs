//! What depends on constants alone is computed once.

use std::sync::Arc;

use ocellus_kernels::cpu::CpuEngine;
use ocellus_kernels::engine::Engine;
use ocellus_kernels::op::Op;
use ocellus_kernels::plan::{Buffer, Constant, Operand, Plan, Port, Step};
use ocellus_kernels::tensor::{DType, elements};
use ocellus_kernels::values::Values;

use super::{Context, Patch};

/// A result may have this many elements, or as many as its operands have together where they have more: a small file
/// must not become a large constant.
const MAX_GROWN_ELEMENTS: usize = 1 << 20;

/// A node whose operands are all constants: its result is one.
///
/// Operators on images stay: before the pass `layout` their operands are not in the engine's order, and constant images
/// are not worth a second path.
pub(super) fn constants(context: &Context<'_>, index: usize) -> Option<Patch> {
    let node = context.node(index);
    if matches!(node.op, Op::Conv(_) | Op::ConvTranspose(_) | Op::Pool(_) | Op::Resize(_)) {
        return None;
    }
    let operands = node.inputs.iter().map(|&id| context.constant(id).cloned()).collect::<Option<Vec<_>>>()?;
    let dims = context.dims(node.output);
    let read: usize = operands.iter().map(|c| c.data.len()).sum();
    if operands.is_empty() || elements(dims) > read.max(MAX_GROWN_ELEMENTS) {
        return None;
    }
    let data = match node.op {
        Op::Reshape => operands[0].data.clone(),
        _ => evaluate(&node.name, &node.op, operands, dims)?,
    };
    let known = Some((node.output, Arc::new(Constant { dims: dims.to_vec(), data })));
    Some(Patch { known, ..Patch::default().removing(index) })
}

/// Runs one operator. None where the engine refuses it, which it will say again with the whole network.
fn evaluate(name: &str, op: &Op, operands: Vec<Arc<Constant>>, dims: &[usize]) -> Option<Values> {
    let output = Buffer { offset: 0, dims: dims.to_vec() };
    let port = Port { name: name.into(), dtype: DType::F32, layout: None, buffer: output.clone() };
    let arena_len = output.len();
    let inputs = operands.into_iter().map(Operand::Constant).collect();
    let step = Step { name: name.into(), op: op.clone(), inputs, output };
    let plan =
        Plan { batch: 1, divisible: false, inputs: Vec::new(), outputs: vec![port], steps: vec![step], arena_len };
    let mut results = vec![Vec::new()];
    CpuEngine::new(plan, 1).ok()?.run(1, &[], &mut results).ok()?;
    results.pop().map(Values::from)
}
