//! Operators that only move elements.

use super::par::{Par, View};
use crate::op::PadMode;
use crate::tensor::elements;
use crate::walk::{Walk, strides};

/// Elements of a piece of work.
const CHUNK: usize = 1 << 14;

/// Rows and columns of the squares that a transposition moves: both sides of one fit the inner cache.
const TILE: usize = 16;

pub(super) fn concat(axis: usize, inputs: &[View<'_>], y: &mut [f32]) {
    // Elements of each operand that lie together in the output.
    let blocks: Vec<usize> = inputs.iter().map(|x| elements(&x.dims[axis..])).collect();
    let row = blocks.iter().sum();
    let mut before = 0;
    for (x, block) in inputs.iter().zip(blocks) {
        for (y, x) in y.chunks_exact_mut(row).zip(x.data.chunks_exact(block)) {
            y[before..][..block].copy_from_slice(x);
        }
        before += block;
    }
}

pub(super) fn slice(start: &[usize], step: &[isize], x: View<'_>, dims: &[usize], y: &mut [f32]) {
    let strides = strides(x.dims);
    let base = start.iter().zip(&strides).map(|(&start, stride)| start as isize * stride).sum();
    let axes = dims.iter().zip(step).zip(&strides).map(|((&dim, step), stride)| (dim, [step * stride]));
    gather(&Walk::new(axes, [base]), x.data, 0, y);
}

/// Copies the output elements from `start` on into y.
fn gather(walk: &Walk<1>, x: &[f32], start: usize, y: &mut [f32]) {
    let step = walk.stride(0).map_or(1, |[step]| step);
    walk.pieces(start, y.len(), |at, len, [from]| {
        let y = &mut y[at - start..][..len];
        if step == 1 {
            y.copy_from_slice(&x[from..][..len]);
        } else {
            for (i, y) in y.iter_mut().enumerate() {
                *y = x[from.wrapping_add_signed(i as isize * step)];
            }
        }
    });
}

pub(super) fn pad(before: &[usize], mode: PadMode, x: View<'_>, dims: &[usize], y: &mut [f32]) {
    let axes: Vec<PadAxis> = (0..dims.len())
        .map(|axis| PadAxis {
            before: before[axis],
            input: x.dims[axis],
            input_block: elements(&x.dims[axis + 1..]),
            output_block: elements(&dims[axis + 1..]),
        })
        .collect();
    // Axes behind the last padded one are copied whole.
    let padded = (0..dims.len()).rev().find(|&axis| dims[axis] != x.dims[axis]);
    match padded {
        Some(last) => pad_axes(&axes[..=last], mode, x.data, y),
        None => y.copy_from_slice(x.data),
    }
}

/// One axis of a padded tensor.
struct PadAxis {
    /// Samples added in front.
    before: usize,
    /// Input length.
    input: usize,
    /// Input elements of one index.
    input_block: usize,
    /// Output elements of one index.
    output_block: usize,
}

fn pad_axes(axes: &[PadAxis], mode: PadMode, x: &[f32], y: &mut [f32]) {
    let [axis, inner @ ..] = axes else {
        y.copy_from_slice(x);
        return;
    };
    let mut index = 0;
    let mut rest = y;
    while !rest.is_empty() {
        let inside = index >= axis.before && index < axis.before + axis.input;
        let run = if inside && inner.is_empty() { axis.input } else { 1 };
        let (out, behind) = rest.split_at_mut(run * axis.output_block);
        match axis.source(index, mode) {
            Some(from) => pad_axes(inner, mode, &x[from * axis.input_block..][..run * axis.input_block], out),
            None => out.fill(if let PadMode::Constant(value) = mode { value } else { 0.0 }),
        }
        rest = behind;
        index += run;
    }
}

impl PadAxis {
    /// Input index that output index `index` shows; none for a constant.
    fn source(&self, index: usize, mode: PadMode) -> Option<usize> {
        let last = self.input as isize - 1;
        let at = index as isize - self.before as isize;
        if (0..=last).contains(&at) {
            return Some(at as usize);
        }
        match mode {
            PadMode::Constant(_) => None,
            PadMode::Edge => Some(at.clamp(0, last) as usize),
            PadMode::Reflect => Some(if at < 0 { -at } else { 2 * last - at } as usize),
        }
    }
}

pub(super) fn transpose(perm: &[usize], x: View<'_>, y: &mut [f32], par: Par) {
    let strides = strides(x.dims);
    let walk = Walk::new(perm.iter().map(|&axis| (x.dims[axis], [strides[axis]])), [0]);
    match *walk.dims() {
        [.., rows, columns] if walk.stride(1) == Some([1]) => {
            let step = walk.stride(0).map_or(1, |[step]| step as usize);
            par.chunks(y, rows * columns, |i, y| {
                walk.pieces(i * rows * columns, 1, |_, _, [from]| flip(&x.data[from..], rows, columns, step, y));
            });
        }
        _ => par.chunks(y, CHUNK, |i, y| gather(&walk, x.data, i * CHUNK, y)),
    }
}

/// y[r, c] = x[c step + r].
fn flip(x: &[f32], rows: usize, columns: usize, step: usize, y: &mut [f32]) {
    for r0 in (0..rows).step_by(TILE) {
        let height = TILE.min(rows - r0);
        for c0 in (0..columns).step_by(TILE) {
            for c in c0..columns.min(c0 + TILE) {
                let x = &x[c * step + r0..][..height];
                for (r, &v) in x.iter().enumerate() {
                    y[(r0 + r) * columns + c] = v;
                }
            }
        }
    }
}
