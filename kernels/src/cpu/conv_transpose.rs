//! 2-D transposed convolution.
//!
//! Output pixels whose row and column leave the same remainders after division by the strides take the same taps: each
//! such phase is an ordinary product of matrices, with one row an output pixel.

use std::cell::RefCell;

use super::matrix::{Finish, PackedMatrix, Rows};
use super::par::Par;
use super::tile_simd::{MAX_ROWS, PADDING, Tile};
use super::vector_simd::Isa;
use crate::op::{Conv, ConvTranspose};
use crate::plan::Constant;

/// A transposed convolution with its weights packed.
pub(super) struct PackedConvTranspose {
    desc: Conv,
    phases: Vec<Phase>,
}

/// The output pixels (row + i stride, col + j stride) for i < rows, j < cols.
struct Phase {
    row: Line,
    col: Line,
    /// The right matrix of each group.
    matrices: Vec<PackedMatrix>,
}

/// One axis of a phase.
struct Line {
    /// First output index.
    first: usize,
    /// Output indices, a stride apart.
    count: usize,
    /// Kernel taps that meet them, each with the input index that it takes for the first; a step of one stride in the
    /// output is one of 1 in the input.
    taps: Vec<(usize, isize)>,
}

impl Line {
    fn new(first: usize, out: usize, taps: usize, stride: usize, pad: usize, dilation: usize) -> Self {
        let taps = (0..taps).filter_map(|tap| {
            let at = (first + pad) as isize - (tap * dilation) as isize;
            (at.rem_euclid(stride as isize) == 0).then(|| (tap, at.div_euclid(stride as isize)))
        });
        Self { first, count: out.saturating_sub(first).div_ceil(stride), taps: taps.collect() }
    }
}

thread_local! {
    /// One phase's result before its pixels go to their places.
    static DENSE: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

impl PackedConvTranspose {
    pub(super) fn new(desc: &ConvTranspose, weights: &Constant, isa: Isa) -> Self {
        let desc = desc.0;
        let Conv { c, k, r, s, p, q, stride, pad, dilation, groups, .. } = desc;
        let (group_k, len) = (k / groups, c / groups);
        let mut phases = Vec::new();
        for first_row in 0..stride[0].min(p) {
            for first_col in 0..stride[1].min(q) {
                let row = Line::new(first_row, p, r, stride[0], pad[0], dilation[0]);
                let col = Line::new(first_col, q, s, stride[1], pad[1], dilation[1]);
                let taps: Vec<usize> =
                    row.taps.iter().flat_map(|&(i, _)| col.taps.iter().map(move |&(j, _)| i * s + j)).collect();
                let matrix = |g: usize| {
                    PackedMatrix::new(isa, taps.len() * len, group_k, len, |depth, out| {
                        let tap = taps[depth / len];
                        weights.data[((g * group_k + out) * r * s + tap) * len + depth % len]
                    })
                };
                let matrices = (0..groups).map(matrix).collect();
                phases.push(Phase { row, col, matrices });
            }
        }
        Self { desc, phases }
    }

    pub(super) fn run(&self, x: &[f32], bias: Option<&[f32]>, y: &mut [f32], par: Par) {
        let Conv { n, c, k, p, q, stride, groups, epilogue, .. } = self.desc;
        let finish = Finish { bias, residual: None, activation: epilogue.activation };
        // Taken out of its cell: while this thread waits for others it may run another part of the same pool's work.
        let mut dense = DENSE.take();
        for Phase { row, col, matrices } in &self.phases {
            let pixels = n * row.count * col.count;
            dense.resize(dense.len().max(pixels * k), 0.0);
            let dense = &mut dense[..pixels * k];
            for (g, matrix) in matrices.iter().enumerate() {
                let rows = PhaseRows { desc: &self.desc, row, col, x, start: g * (c / groups) };
                matrix.multiply(&rows, &finish, dense, k, g * matrix.cols(), par);
            }
            for (i, line) in dense.chunks(col.count * k).enumerate() {
                let (image, i) = (i / row.count, i % row.count);
                let out = ((image * p + row.first + i * stride[0]) * q + col.first) * k;
                for (j, pixel) in line.chunks(k).enumerate() {
                    y[out + j * stride[1] * k..][..k].copy_from_slice(pixel);
                }
            }
        }
        DENSE.set(dense);
    }
}

/// The input pixels that meet each output pixel of a phase.
struct PhaseRows<'a> {
    desc: &'a Conv,
    row: &'a Line,
    col: &'a Line,
    x: &'a [f32],
    /// First channel of the group.
    start: usize,
}

impl Rows for PhaseRows<'_> {
    fn x(&self) -> &[f32] {
        self.x
    }

    fn tile(&self, first: usize, count: usize, offsets: &mut Vec<usize>) -> Tile {
        let Conv { h, w, c, groups, .. } = *self.desc;
        let (rows, cols) = (self.row.count, self.col.count);
        let mut pixels = [(0, 0, 0); MAX_ROWS];
        for (i, pixel) in pixels[..count].iter_mut().enumerate() {
            let at = first + i;
            *pixel = (at / (rows * cols) * h * w * c + self.start, (at / cols % rows) as isize, (at % cols) as isize);
        }
        for &(_, first_row) in &self.row.taps {
            for &(_, first_col) in &self.col.taps {
                offsets.extend(pixels[..count].iter().map(|&(image, i, j)| {
                    // Negative values become large ones, so that one comparison finds both borders.
                    let (row, col) = ((first_row + i) as usize, (first_col + j) as usize);
                    if row < h && col < w { image + (row * w + col) * c } else { PADDING }
                }));
            }
        }
        Tile { rows: count, segments: self.row.taps.len() * self.col.taps.len(), len: c / groups }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, Random, activate, assert_close};
    use super::*;

    /// Every input pixel adds to the outputs that it meets.
    fn gold(desc: &Conv, x: &[f32], weights: &[f32], bias: Option<&[f32]>) -> Vec<(f64, f64)> {
        let Conv { n, h, w, c, k, r, s, p, q, stride, pad, dilation, groups, epilogue } = *desc;
        let (group_c, group_k) = (c / groups, k / groups);
        let start = |i: usize| bias.map_or(0.0, |b| f64::from(b[i % k]));
        let mut y: Vec<(f64, f64)> = (0..n * p * q * k).map(|i| (start(i), start(i).abs())).collect();
        for (pixel, x) in x.chunks(c).enumerate() {
            let (image, row, col) = (pixel / (h * w), pixel / w % h, pixel % w);
            for (tap_row, tap_col) in (0..r).flat_map(|i| (0..s).map(move |j| (i, j))) {
                let out_row = (row * stride[0] + tap_row * dilation[0]).checked_sub(pad[0]).filter(|&i| i < p);
                let out_col = (col * stride[1] + tap_col * dilation[1]).checked_sub(pad[1]).filter(|&i| i < q);
                let (Some(out_row), Some(out_col)) = (out_row, out_col) else { continue };
                for channel in 0..k {
                    for i in 0..group_c {
                        let weight = weights[((channel * r + tap_row) * s + tap_col) * group_c + i];
                        let term = f64::from(x[channel / group_k * group_c + i]) * f64::from(weight);
                        let y = &mut y[((image * p + out_row) * q + out_col) * k + channel];
                        *y = (y.0 + term, y.1 + term.abs());
                    }
                }
            }
        }
        y.iter().map(|&(y, scale)| (activate(epilogue.activation, y), scale)).collect()
    }

    #[test]
    fn transposed_convolutions_agree_with_gold() {
        let mut random = Random::new(9);
        for _ in 0..80 {
            let groups = random.pick(&[1, 1, 2, 3]);
            let (c, k) = (groups * random.size(1, 9), groups * random.size(1, 20));
            let (n, h, w) = (random.size(1, 2), random.size(1, 6), random.size(1, 6));
            let (r, s) = (random.size(1, 5), random.size(1, 5));
            let stride = [random.size(1, 4), random.size(1, 4)];
            let dilation = [random.pick(&[1, 1, 2]), random.pick(&[1, 1, 3])];
            let pad = [random.size(0, 2), random.size(0, 2)];
            let out = |axis: usize, len: usize, taps: usize, more: usize| {
                ((len - 1) * stride[axis] + (taps - 1) * dilation[axis] + 1 + more).saturating_sub(2 * pad[axis]).max(1)
            };
            let (p, q) = (out(0, h, r, random.size(0, 2)), out(1, w, s, random.size(0, 2)));
            let epilogue = testing::random_epilogue(&mut random, false);
            let desc = Conv { n, h, w, c, k, r, s, p, q, stride, pad, dilation, groups, epilogue };
            let x = random.values(n * h * w * c);
            let weights =
                Constant { dims: vec![k, r, s, c / groups], data: random.values(k * r * s * (c / groups)).into() };
            let bias = epilogue.bias.then(|| random.values(k));
            let gold = gold(&desc, &x, &weights.data, bias.as_deref());
            for isa in Isa::available() {
                let packed = PackedConvTranspose::new(&ConvTranspose(desc), &weights, isa);
                let y = testing::run(n * p * q * k, |y, par| packed.run(&x, bias.as_deref(), y, par));
                assert_close(&y, &gold, &format!("{isa:?} {desc:?}"));
            }
        }
    }
}
