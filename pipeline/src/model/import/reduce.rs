//! Functions over whole axes.

use ocellus_kernels::op::{Op, ReduceKind};
use ocellus_kernels::tensor::DType;

use super::node::{NodeImport, Outcome};
use super::refusal::{axes, axis};

/// `ReduceMean`, `ReduceSum`, `ReduceMax` and `ReduceMin`; axes become an operand with opset `since`.
pub(super) fn reduce(n: &mut NodeImport<'_>, kind: ReduceKind, since: i64) -> Outcome {
    let x = n.float_input(0)?;
    let dims = n.dims(&x).to_vec();
    let keep = n.attributes.flag("keepdims", true)?;
    let none_is_identity = n.attributes.flag("noop_with_empty_axes", false)?;
    let stated = n.ints_since(since, 1, "axes")?.unwrap_or_default();
    let over = match stated.as_slice() {
        [] if none_is_identity => return Ok(vec![x]),
        [] => (0..dims.len()).collect(),
        stated => axes(stated, dims.len())?,
    };
    let mut kept = dims.clone();
    for &i in &over {
        kept[i] = 1;
    }
    let rest = dims.iter().enumerate().filter(|(i, _)| !over.contains(i)).map(|(_, &d)| d).collect();
    let result = n.push(Op::Reduce { kind, axes: over }, &[&x], kept)?;
    Ok(vec![if keep { result } else { n.reshape(result, rest)? }])
}

/// `ArgMax`.
pub(super) fn arg_max(n: &mut NodeImport<'_>) -> Outcome {
    let x = n.input(0)?;
    let mut dims = n.dims(&x).to_vec();
    let at = axis(n.attributes.int("axis", 0)?, dims.len())?;
    let keep = n.attributes.flag("keepdims", true)?;
    let select_last = n.attributes.flag("select_last_index", false)?;
    dims[at] = 1;
    let index = n.push_as(Op::ArgMax { axis: at, select_last }, &[&x], dims.clone(), DType::I64)?;
    if keep {
        return Ok(vec![index]);
    }
    dims.remove(at);
    Ok(vec![n.reshape(index, dims)?])
}
