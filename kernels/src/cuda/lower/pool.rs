//! Pooling.

use super::emit::{self, Axis, Constants};
use super::{Arg, Lowered, Target, TypedStep};
use crate::error::KernelError;
use crate::op::{Pool, PoolKind};

pub(super) fn lower(step: &TypedStep<'_>, desc: &Pool, _: &Target) -> Result<Lowered, KernelError> {
    emit::check_sizes(step)?;
    let Pool { kind, n, h, w, c, r, s, p, q, stride, pad, dilation } = *desc;
    let axis = |i: usize, input, output, taps| Axis {
        input,
        output,
        taps,
        stride: stride[i],
        dilation: dilation[i],
        pad: pad[i] + pad[i + 2],
    };
    emit::check_reach(step, &[axis(0, h, p, r), axis(1, w, q, s)])?;
    let mut constants = Constants::default();
    let (x, dtype) = constants.operand(step, 0);
    let vector = emit::vector(step.output.dtype, [c]);
    let kind = match kind {
        PoolKind::Max => "kMax",
        PoolKind::Average => "kAverage",
        PoolKind::AveragePadded => "kAveragePadded",
    };
    let mut defines = vec![
        ("KIND", kind.into()),
        ("TX", emit::type_name(dtype)),
        ("TY", emit::type_name(step.output.dtype)),
        ("VECTOR", vector.to_string()),
    ];
    let numbers = [
        ("CHANNELS", c),
        ("IN_H", h),
        ("IN_W", w),
        ("KERNEL_H", r),
        ("KERNEL_W", s),
        ("OUT_H", p),
        ("OUT_W", q),
        ("STRIDE_H", stride[0]),
        ("STRIDE_W", stride[1]),
        ("PAD_TOP", pad[0]),
        ("PAD_LEFT", pad[1]),
        ("PAD_BOTTOM", pad[2]),
        ("PAD_RIGHT", pad[3]),
        ("DILATION_H", dilation[0]),
        ("DILATION_W", dilation[1]),
    ];
    defines.extend(numbers.map(|(name, number)| (name, number.to_string())));
    let launch = emit::launch(emit::spec("pool.cu", "pool", defines), n * p * q * (c / vector), 1, [x, Arg::Output]);
    Ok(Lowered { launches: vec![launch], constants: constants.0, workspace_bytes: 0 })
}
