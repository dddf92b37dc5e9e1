//! Pooling.

use ocellus_kernels::op::{Op, Pool, PoolKind, ReduceKind};

use super::node::{NodeImport, Outcome};
use super::refusal::refuse;
use super::window::Window;

/// `MaxPool`. The order of its indices does not matter: that output is refused.
pub(super) fn max(n: &mut NodeImport<'_>) -> Outcome {
    n.attributes.ignore(&["storage_order"]);
    pool(n, PoolKind::Max)
}

/// `AveragePool`.
pub(super) fn average(n: &mut NodeImport<'_>) -> Outcome {
    let padded = n.attributes.flag("count_include_pad", false)?;
    pool(n, if padded { PoolKind::AveragePadded } else { PoolKind::Average })
}

fn pool(n: &mut NodeImport<'_>, kind: PoolKind) -> Outcome {
    let (x, [batch, c, h, w]) = n.image(0)?;
    let window = Window::read(n, None)?;
    let ceil = n.attributes.flag("ceil_mode", false)?;
    let (p, [top, bottom]) = window.slide(0, h, ceil)?;
    let (q, [left, right]) = window.slide(1, w, ceil)?;
    for (axis, pads) in [[top, bottom], [left, right]].iter().enumerate() {
        if pads.iter().any(|&pad| pad >= window.extent(axis)) {
            return refuse(format!("pads {pads:?} are not smaller than the window of {}", window.extent(axis)));
        }
    }
    let Window { kernel: [r, s], stride, dilation, .. } = window;
    let pad = [top, left, bottom, right];
    let op = Pool { kind, n: batch, h, w, c, r, s, p, q, stride, pad, dilation };
    n.emit(Op::Pool(op), &[&x], vec![batch, c, p, q])
}

/// `GlobalAveragePool`, `GlobalMaxPool`: a function over all spatial axes.
pub(super) fn global(n: &mut NodeImport<'_>, kind: ReduceKind) -> Outcome {
    let x = n.float_input(0)?;
    let mut dims = n.dims(&x).to_vec();
    if dims.len() < 3 {
        return refuse(format!("an input of {dims:?} has no spatial dimensions"));
    }
    let axes = (2..dims.len()).collect();
    dims[2..].fill(1);
    n.emit(Op::Reduce { kind, axes }, &[&x], dims)
}
