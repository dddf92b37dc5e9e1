//! 2-D convolution.

use super::par::Par;
use crate::op::Conv;
use crate::plan::Constant;

/// A convolution with its weights packed.
pub(super) struct PackedConv;

impl PackedConv {
    pub(super) fn new(_desc: &Conv, _weights: &Constant) -> Self {
        todo!()
    }

    pub(super) fn run(&self, _x: &[f32], _bias: Option<&[f32]>, _residual: Option<&[f32]>, _y: &mut [f32], _par: Par) {
        todo!()
    }
}
