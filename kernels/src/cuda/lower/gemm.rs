//! Matrix products with constant weights.

use super::{Lowered, Target, TypedStep, conv};
use crate::error::KernelError;
use crate::op::{Conv, Gemm};

/// A convolution of pictures of one pixel.
pub(super) fn lower(step: &TypedStep<'_>, desc: &Gemm, target: &Target) -> Result<Lowered, KernelError> {
    let Gemm { m, n, k, epilogue } = *desc;
    let (pad, stride, dilation, groups) = ([0; 2], [1; 2], [1; 2], 1);
    let conv = Conv { n: m, h: 1, w: 1, c: k, k: n, r: 1, s: 1, p: 1, q: 1, stride, pad, dilation, groups, epilogue };
    conv::lower(step, &conv, target)
}
