//! Depthwise convolutions.

use super::emit::{self, Constants};
use super::{Arg, Launch, Lowered, Source, Target, TypedStep, function};
use crate::error::KernelError;
use crate::op::Conv;

/// Threads of a block.
const BLOCK: usize = 128;

/// Pixels of a row that a thread makes.
const COLUMNS: usize = 4;

/// Vectors of channels that are worked on side by side, at most and, where the channels allow it, at least: enough for
/// whole memory transactions, few enough that a block covers several rows.
const CHUNK: [usize; 2] = [4, 16];

/// Pieces of work of a thread, at most: neighbours, for what they read in common.
const ROUNDS: usize = 8;

/// Blocks that a multiprocessor should have before threads get more than one piece of work.
const BLOCKS: usize = 8;

pub(super) fn lower(step: &TypedStep<'_>, desc: &Conv, target: &Target) -> Result<Lowered, KernelError> {
    emit::check_sizes(step)?;
    emit::check_reach(step, &emit::axes(desc))?;
    let dtype = step.output.dtype;
    let pitch = match &step.inputs[0] {
        Source::Activation(x) => x.pitch,
        Source::Constant(_) => desc.c,
    };
    let multiplier = desc.k / desc.c;
    let vector = if multiplier == 1 { emit::vector(dtype, [desc.c, pitch]) } else { 1 };
    let vectors = desc.k / vector;
    let chunk = chunk(vectors);
    let columns = COLUMNS.min(desc.q);
    let mut constants = Constants::default();
    let weights = constants.weights(step, dtype)?;
    let [bias, residual] = constants.epilogue(step, &desc.epilogue)?;
    let mut defines = emit::window(desc);
    let numbers = [
        ("MULTIPLIER", multiplier),
        ("PITCH", pitch),
        ("RESIDUAL", usize::from(desc.epilogue.residual)),
        ("CHUNK", chunk),
        ("COLUMNS", columns),
        ("VECTOR", vector),
    ];
    defines.extend(numbers.map(|(name, number)| (name, number.to_string())));
    defines.push(("TX", emit::type_name(dtype)));
    defines.extend(function::defines(desc.epilogue.activation));
    let items = desc.n * desc.p * desc.q.div_ceil(columns) * vectors;
    let full = BLOCK * BLOCKS * target.multiprocessors as usize;
    let rounds = (items / full).clamp(1, ROUNDS);
    let launch = Launch {
        kernel: emit::spec("depthwise.cu", "depthwise", defines),
        grid: [items.div_ceil(BLOCK * rounds) as u32, 1, 1],
        block: BLOCK as u32,
        shared_bytes: 0,
        args: vec![
            Arg::Input(0),
            weights,
            bias,
            residual,
            Arg::Output,
            Arg::I32(items as i32),
            Arg::I32(rounds as i32),
        ],
        overlaps: true,
    };
    Ok(Lowered { launches: vec![launch], constants: constants.0, workspace_bytes: 0 })
}

/// A divisor of the number of vectors, an even one before an odd one: pairs of vectors are whole memory transactions.
fn chunk(vectors: usize) -> usize {
    let fits = |chunk: &usize| vectors.is_multiple_of(*chunk);
    let even = (CHUNK[0]..=CHUNK[1]).rev().filter(|chunk| chunk.is_multiple_of(2)).find(fits);
    even.or_else(|| (CHUNK[0]..=CHUNK[1]).rev().find(fits)).unwrap_or(vectors)
}
