//! 2-D transposed convolution.

use super::par::Par;
use crate::op::ConvTranspose;
use crate::plan::Constant;

/// A transposed convolution with its weights packed.
pub(super) struct PackedConvTranspose;

impl PackedConvTranspose {
    pub(super) fn new(_desc: &ConvTranspose, _weights: &Constant) -> Self {
        todo!()
    }

    pub(super) fn run(&self, _x: &[f32], _bias: Option<&[f32]>, _y: &mut [f32], _par: Par) {
        todo!()
    }
}
