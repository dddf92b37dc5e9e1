//! Batched products of activations.

use super::emit::{self, Constants};
use super::{Arg, Launch, Lowered, Target, TypedStep};
use crate::error::KernelError;
use crate::op::MatMul;

/// Rows and columns of the product that a block makes.
const SIDE: usize = 64;

pub(super) fn lower(step: &TypedStep<'_>, desc: &MatMul, _: &Target) -> Result<Lowered, KernelError> {
    emit::check_sizes(step)?;
    let MatMul { batch_a, batch_b, m, n, k } = *desc;
    let mut constants = Constants::default();
    let [(a, type_a), (b, type_b)] = [0, 1].map(|index| constants.operand(step, index));
    let defines = vec![
        ("TA", emit::type_name(type_a)),
        ("TB", emit::type_name(type_b)),
        ("TY", emit::type_name(step.output.dtype)),
    ];
    let next = |batch: usize, len: usize| if batch > 1 { len } else { 0 };
    let numbers = [m, n, k, next(batch_a, m * k), next(batch_b, k * n)];
    let args = [a, b, Arg::Output].into_iter().chain(numbers.map(|number| Arg::I32(number as i32))).collect();
    let squares = m.div_ceil(SIDE) * n.div_ceil(SIDE);
    let launch = Launch {
        kernel: emit::spec("matmul.cu", "matmul", defines),
        grid: [(batch_a.max(batch_b) * squares) as u32, 1, 1],
        block: 256,
        shared_bytes: 0,
        args,
        overlaps: true,
    };
    Ok(Lowered { launches: vec![launch], constants: constants.0, workspace_bytes: 0 })
}
