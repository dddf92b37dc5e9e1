//! Depthwise convolution: every channel with its own kernel.

use super::aligned::AlignedVec;
use super::block_simd::{Cut, for_each_block};
use super::depthwise_simd::{self, Job};
use super::matrix::{Finish, finish_block, split_activation};
use super::par::Par;
use super::vector_simd::Isa;
use crate::op::Conv;
use crate::plan::Constant;

/// What a multiply-add costs against one of a matrix product: each loads an operand of its own.
const MAC_COST: usize = 4;

/// A depthwise convolution with as many output as input channels.
pub(super) struct PackedDepthwise {
    desc: Conv,
    isa: Isa,
    /// [R, S, C], C filled up with zeros to whole vectors.
    weights: AlignedVec,
    /// First channel of each vector, then C.
    bounds: Vec<usize>,
}

impl PackedDepthwise {
    pub(super) fn new(desc: &Conv, weights: &Constant, isa: Isa) -> Self {
        let (c, taps) = (desc.c, desc.r * desc.s);
        let padded = c.next_multiple_of(isa.lanes());
        let mut packed = AlignedVec::zeros(taps * padded);
        for (tap, row) in packed.chunks_mut(padded).enumerate() {
            for (channel, w) in row[..c].iter_mut().enumerate() {
                *w = weights.data[channel * taps + tap];
            }
        }
        let bounds = (0..c).step_by(isa.lanes()).chain([c]).collect();
        Self { desc: *desc, isa, weights: packed, bounds }
    }

    pub(super) fn run(&self, x: &[f32], finish: &Finish<'_>, y: &mut [f32], par: Par) {
        let Conv { n, c, r, s, p, q, .. } = self.desc;
        let (clamp, rest) = split_activation(finish.activation);
        let job = Job {
            isa: self.isa,
            desc: &self.desc,
            x,
            weights: &self.weights,
            bias: finish.bias,
            residual: finish.residual,
            clamp,
        };
        // Blocks of whole output rows and whole vectors of channels.
        let (rows, vectors) = (n * p, self.bounds.len() - 1);
        let tasks = par.pieces(rows * q * c * r * s * MAC_COST);
        let (row_chunk, bound_chunk) =
            if 2 * tasks <= rows { (rows.div_ceil(tasks), vectors) } else { (rows, vectors.div_ceil(tasks)) };
        let cut = Cut { row_chunk: row_chunk * q, bounds: &self.bounds, bound_chunk, first_col: 0 };
        for_each_block(y, c, &cut, par, |_, mut block| {
            depthwise_simd::run(&job, &mut block);
            if let Some(f) = rest {
                finish_block(f, &mut block);
            }
        });
    }
}
