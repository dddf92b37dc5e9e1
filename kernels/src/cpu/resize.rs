//! Resize of feature maps.

use super::par::Par;
use crate::op::Resize;

pub(super) fn resize(_desc: &Resize, _x: &[f32], _y: &mut [f32], _par: Par) {
    todo!()
}
