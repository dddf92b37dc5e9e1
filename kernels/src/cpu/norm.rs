//! Softmax and layer normalisation.

use super::par::{Par, View};

pub(super) fn softmax(_axis: usize, _log: bool, _x: View<'_>, _y: &mut [f32], _par: Par) {
    todo!()
}

pub(super) fn layer_norm(
    _axis: usize,
    _epsilon: f32,
    _x: View<'_>,
    _scale: &[f32],
    _bias: &[f32],
    _y: &mut [f32],
    _par: Par,
) {
    todo!()
}
