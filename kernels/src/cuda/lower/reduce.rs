//! Functions over whole axes.

use super::emit::{self, Constants, Parts};
use super::{Arg, Lowered, Target, TypedStep, unsupported};
use crate::error::KernelError;
use crate::op::{Op, ReduceKind};
use crate::tensor::elements;
use crate::walk::{Walk, strides};

/// Terms that a thread adds up, about.
const TERMS: usize = 16;

/// Columns of a block at least, where neighbours in memory are columns: what one memory transaction brings is used.
const NEIGHBOURS: usize = 8;

pub(super) fn lower(step: &TypedStep<'_>, _: &Target) -> Result<Lowered, KernelError> {
    emit::check_sizes(step)?;
    let mut constants = Constants::default();
    let (x, dtype) = constants.operand(step, 0);
    let dims = step.inputs[0].dims();
    let strides = strides(dims);
    let axes = match step.op {
        Op::Reduce { axes, .. } => axes.clone(),
        Op::ArgMax { axis, .. } => vec![*axis],
        _ => Vec::new(),
    };
    let walk = |reduced: bool| {
        let axes = (0..dims.len()).filter(|axis| axes.contains(axis) == reduced);
        Walk::<1>::new(axes.map(|axis| (dims[axis], [strides[axis]])), [0])
    };
    let (kept, reduced) = (walk(false), walk(true));
    let count: usize = reduced.dims().iter().product();
    let columns: usize = kept.dims().iter().product();
    // Kept elements that lie side by side. Nothing here counts the batch, or the order of a sum would follow from it.
    let inner = axes.last().map_or(1, |&last| elements(&dims[last + 1..]));
    let (entry, own, vector) = match step.op {
        Op::Reduce { kind, .. } => ("reduce", ("KIND", name(*kind).into()), emit::vector(step.output.dtype, [inner])),
        Op::ArgMax { select_last, .. } => ("arg_max", ("LAST", u8::from(*select_last).to_string()), 1),
        _ => return Err(unsupported(step, "it reduces nothing")),
    };
    let parts = Parts::new(count / TERMS, (inner / vector).min(NEIGHBOURS));
    let defines = vec![
        own,
        ("KEPT", emit::dims(&kept)),
        ("KEPT_X", emit::list(emit::strides(&kept, 0))),
        ("REDUCED", emit::dims(&reduced)),
        ("REDUCED_X", emit::list(emit::strides(&reduced, 0))),
        ("COUNT", count.to_string()),
        ("TX", emit::type_name(dtype)),
        ("TY", emit::type_name(step.output.dtype)),
        ("VECTOR", vector.to_string()),
    ];
    let launch = parts.launch("reduce.cu", entry, defines, columns / vector, [x, Arg::Output]);
    Ok(Lowered { launches: vec![launch], constants: constants.0, workspace_bytes: 0 })
}

fn name(kind: ReduceKind) -> &'static str {
    match kind {
        ReduceKind::Mean => "kMean",
        ReduceKind::Sum => "kSum",
        ReduceKind::Max => "kLargest",
        ReduceKind::Min => "kSmallest",
    }
}
