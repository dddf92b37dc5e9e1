//! Softmax and layer normalisation.

use super::emit::{self, Constants, Parts};
use super::function::literal;
use super::{Arg, Lowered, Target, TypedStep, unsupported};
use crate::error::KernelError;
use crate::op::Op;
use crate::tensor::elements;

/// Terms that a thread adds up, about.
const TERMS: usize = 4;

/// Threads of a result at most: these kernels take too many registers for the largest blocks.
const MOST_PARTS: usize = 256;

/// Columns of a block at least, where neighbours in memory are columns.
const NEIGHBOURS: usize = 8;

pub(super) fn lower(step: &TypedStep<'_>, _: &Target) -> Result<Lowered, KernelError> {
    emit::check_sizes(step)?;
    let mut constants = Constants::default();
    let (x, dtype) = constants.operand(step, 0);
    let dims = step.inputs[0].dims();
    let mut defines = vec![("TX", emit::type_name(dtype)), ("TY", emit::type_name(step.output.dtype))];
    let launch = match step.op {
        Op::Softmax { axis, log } => {
            let (count, inner) = (dims[*axis], elements(&dims[axis + 1..]));
            let vector = emit::vector(step.output.dtype, [inner]);
            defines.extend([
                ("SOFTMAX", "1".into()),
                ("LOG", u8::from(*log).to_string()),
                ("COUNT", count.to_string()),
                ("INNER", inner.to_string()),
                ("VECTOR", vector.to_string()),
            ]);
            let parts = Parts::new((count / TERMS).min(MOST_PARTS), (inner / vector).min(NEIGHBOURS));
            parts.launch("norm.cu", "softmax", defines, elements(dims) / count / vector, [x, Arg::Output])
        }
        Op::LayerNorm { axis, epsilon } => {
            let len = elements(&dims[*axis..]);
            let vector = emit::vector(step.output.dtype, [len]);
            let [scale, bias] = [1, 2].map(|index| constants.operand(step, index));
            defines.extend([
                ("LEN", len.to_string()),
                ("EPSILON", literal(*epsilon)),
                ("TS", emit::type_name(scale.1)),
                ("TB", emit::type_name(bias.1)),
                ("VECTOR", vector.to_string()),
            ]);
            let parts = Parts::new((len / vector).min(MOST_PARTS), 1);
            parts.launch("norm.cu", "layer_norm", defines, elements(dims) / len, [x, scale.0, bias.0, Arg::Output])
        }
        _ => return Err(unsupported(step, "it normalises nothing")),
    };
    Ok(Lowered { launches: vec![launch], constants: constants.0, workspace_bytes: 0 })
}
