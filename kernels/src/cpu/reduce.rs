//! Functions over whole axes.

use super::par::{Par, View};
use crate::op::ReduceKind;

pub(super) fn reduce(_kind: ReduceKind, _axes: &[usize], _x: View<'_>, _y: &mut [f32], _par: Par) {
    todo!()
}

pub(super) fn arg_max(_axis: usize, _select_last: bool, _x: View<'_>, _y: &mut [f32]) {
    todo!()
}
