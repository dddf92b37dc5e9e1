//! Matrix products.

use super::par::Par;
use crate::op::{Gemm, MatMul};
use crate::plan::Constant;

/// A product with constant weights, packed.
pub(super) struct PackedGemm;

impl PackedGemm {
    pub(super) fn new(_desc: &Gemm, _weights: &Constant) -> Self {
        todo!()
    }

    pub(super) fn run(&self, _x: &[f32], _bias: Option<&[f32]>, _residual: Option<&[f32]>, _y: &mut [f32], _par: Par) {
        todo!()
    }
}

/// Batched product of two activations.
pub(super) fn matmul(_desc: &MatMul, _a: &[f32], _b: &[f32], _y: &mut [f32], _par: Par) {
    todo!()
}
