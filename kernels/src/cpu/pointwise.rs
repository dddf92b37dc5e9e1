//! Element-wise functions.

use super::par::{Par, View};
use crate::op::{BinaryKind, Unary};

pub(super) fn unary(_f: Unary, _x: &[f32], _y: &mut [f32], _par: Par) {
    todo!()
}

pub(super) fn binary(
    _kind: BinaryKind,
    _activation: Option<Unary>,
    _a: View<'_>,
    _b: View<'_>,
    _dims: &[usize],
    _y: &mut [f32],
    _par: Par,
) {
    todo!()
}

pub(super) fn scale_shift(_axis: usize, _x: View<'_>, _scale: &[f32], _shift: &[f32], _y: &mut [f32], _par: Par) {
    todo!()
}
