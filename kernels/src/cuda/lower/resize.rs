//! Resize of feature maps.

use std::sync::Arc;

use super::emit::{self, Constants};
use super::function::literal;
use super::{Arg, Lowered, Packing, Target, TypedStep};
use crate::error::KernelError;
use crate::op::{Resize, ResizeMode};
use crate::plan::Constant;
use crate::sampling::{Tap, outside, taps};
use crate::tensor::DType;

pub(super) fn lower(step: &TypedStep<'_>, desc: &Resize, _: &Target) -> Result<Lowered, KernelError> {
    emit::check_sizes(step)?;
    let Resize { n, h, w, c, p, q, mode, .. } = *desc;
    let mut constants = Constants::default();
    let (x, dtype) = constants.operand(step, 0);
    let table = constants.add(&Arc::new(table(desc)), Packing::Cast(DType::F32));
    let vector = emit::vector(step.output.dtype, [c]);
    let mut defines = vec![
        ("LINEAR", u8::from(mode == ResizeMode::Linear).to_string()),
        ("OUTSIDE", literal(outside(desc))),
        ("TX", emit::type_name(dtype)),
        ("TY", emit::type_name(step.output.dtype)),
        ("VECTOR", vector.to_string()),
    ];
    defines.extend(
        [("CHANNELS", c), ("IN_H", h), ("IN_W", w), ("OUT_H", p), ("OUT_W", q)]
            .map(|(name, number)| (name, number.to_string())),
    );
    let kernel = emit::spec("resize.cu", "resize", defines);
    let launch = emit::launch(kernel, n * p * q * (c / vector), 1, [x, table, Arg::Output]);
    Ok(Lowered { launches: vec![launch], constants: constants.0, workspace_bytes: 0 })
}

/// Four numbers for each output row and then for each output column, as the kernel reads them.
fn table(desc: &Resize) -> Constant {
    let numbers = |tap: Tap| {
        let [first, second] = tap.at.map(|at| at as f32);
        [first, second, tap.second, f32::from(u8::from(tap.outside))]
    };
    let data = [0, 1].into_iter().flat_map(|axis| taps(desc, axis)).flat_map(numbers).collect();
    Constant { dims: vec![desc.p + desc.q, 4], data }
}
