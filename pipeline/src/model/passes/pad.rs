//! Padding in a node of its own moves into the convolution or pooling behind it.

use ocellus_kernels::op::{Op, PadMode, PoolKind, Unary};

use super::{Context, Patch, epilogue, operand};
use crate::model::graph::ValueId;

/// Constant Pad of rows and columns before Conv, `AveragePool` or `MaxPool`, where it gives the same values:
/// zeros for Conv and averages, values that never win for maxima.
pub(super) fn into_window(context: &Context<'_>, index: usize) -> Option<Patch> {
    let node = context.node(index);
    let x = operand(node, 0)?;
    let (_, padding) = context.producer(x)?;
    let Op::Pad { before, mode: PadMode::Constant(fill) } = &padding.op else { return None };
    let source = operand(padding, 0)?;
    let (&[n, c, h, w], &[pn, pc, ph, pw]) = (context.dims(source), context.dims(x)) else { return None };
    if (n, c) != (pn, pc) {
        return None;
    }
    let (above, left) = (before[2], before[3]);
    let (below, right) = (ph.checked_sub(h + above)?, pw.checked_sub(w + left)?);
    let mut merged = node.clone();
    merged.inputs[0] = source;
    match &mut merged.op {
        Op::Conv(conv) if *fill == 0.0 => {
            (conv.h, conv.w) = (h, w);
            conv.pad = [conv.pad[0] + above, conv.pad[1] + left];
        }
        Op::Pool(pool) => {
            let pad = [pool.pad[0] + above, pool.pad[1] + left, pool.pad[2] + below, pool.pad[3] + right];
            let window = [(pool.r - 1) * pool.dilation[0] + 1, (pool.s - 1) * pool.dilation[1] + 1];
            // Every window must keep a pixel of the picture: of none the maximum would be the fill.
            let covered = pad.iter().enumerate().all(|(side, &p)| p < window[side % 2]);
            match pool.kind {
                PoolKind::Average if *fill == 0.0 && pool.pad == [0; 4] => pool.kind = PoolKind::AveragePadded,
                PoolKind::AveragePadded if *fill == 0.0 => {}
                PoolKind::Max
                    if covered && (*fill <= f32::MIN || (*fill == 0.0 && is_non_negative(context, source))) => {}
                _ => return None,
            }
            pool.pad = pad;
            (pool.h, pool.w) = (h, w);
        }
        _ => return None,
    }
    context.record(&mut merged, padding);
    Some(Patch::replace(index, merged))
}

/// True where the value is the result of an activation that never is below 0.
fn is_non_negative(context: &Context<'_>, id: ValueId) -> bool {
    let Some((_, node)) = context.producer(id) else { return false };
    let activation = match &node.op {
        Op::Unary(function) => Some(*function),
        Op::Binary { activation, .. } => *activation,
        op => epilogue(op).and_then(|e| e.activation),
    };
    match activation {
        Some(Unary::Relu | Unary::Sigmoid | Unary::HardSigmoid { .. } | Unary::Abs | Unary::Exp) => true,
        // With max below min the value is max.
        Some(Unary::Clip { min, max }) => min.min(max) >= 0.0,
        _ => false,
    }
}
