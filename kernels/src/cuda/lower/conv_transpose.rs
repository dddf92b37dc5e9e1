//! Transposed convolutions.

use super::emit::{self, Constants};
use super::{Arg, Lowered, Target, TypedStep, function};
use crate::error::KernelError;
use crate::op::Conv;

pub(super) fn lower(step: &TypedStep<'_>, desc: &Conv, _: &Target) -> Result<Lowered, KernelError> {
    emit::check_sizes(step)?;
    emit::check_reach(step, &emit::axes(desc))?;
    let dtype = step.output.dtype;
    let vector = emit::vector(dtype, [desc.k / desc.groups]);
    let mut constants = Constants::default();
    let weights = constants.weights(step, dtype)?;
    let [bias, _] = constants.epilogue(step, &desc.epilogue)?;
    let mut defines = emit::window(desc);
    defines.extend([("CHANNELS", desc.c.to_string()), ("GROUPS", desc.groups.to_string())]);
    defines.extend([("TX", emit::type_name(dtype)), ("VECTOR", vector.to_string())]);
    defines.extend(function::defines(desc.epilogue.activation));
    let kernel = emit::spec("conv_transpose.cu", "conv_transpose", defines);
    let len = step.output.len() / vector;
    let launch = emit::launch(kernel, len, 1, [Arg::Input(0), weights, bias, Arg::Output]);
    Ok(Lowered { launches: vec![launch], constants: constants.0, workspace_bytes: 0 })
}
