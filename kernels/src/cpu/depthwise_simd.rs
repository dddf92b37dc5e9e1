//! The depthwise kernel: a vector of channels at a time, several pixels of an output row side by side, so that a weight
//! is loaded once for all of them. Kernel rows in the padding are left out; at the sides zeros are read.
#![allow(unsafe_code)]

use std::ops::Range;

use super::block_simd::Block;
use super::matrix::balanced;
use super::tile_simd::{Clamp, load, store};
use super::vector_simd::{Isa, Vector};
use crate::op::Conv;

/// Most output pixels side by side.
const MAX_PIXELS: usize = 8;

/// Read in place of a pixel in the padding; as long as the longest vector.
static ZEROS: [f32; 16] = [0.0; 16];

/// A convolution with `groups == c == k` and its operands.
pub(super) struct Job<'a> {
    pub(super) isa: Isa,
    pub(super) desc: &'a Conv,
    /// [N, H, W, C].
    pub(super) x: &'a [f32],
    /// [R, S, C], C filled up to whole vectors.
    pub(super) weights: &'a [f32],
    /// One value a channel.
    pub(super) bias: Option<&'a [f32]>,
    /// [N, P, Q, C].
    pub(super) residual: Option<&'a [f32]>,
    pub(super) clamp: Clamp,
}

/// Computes `block` of the output, a matrix with a row for each pixel: whole image rows, and channels from a multiple of
/// the vector length on.
///
/// # Panics
/// Where the operands do not have the sizes that the description says.
pub(super) fn run(job: &Job<'_>, block: &mut Block<'_>) {
    let Conv { n, h, w, c, r, s, p, q, .. } = *job.desc;
    let lanes = job.isa.lanes();
    assert!(job.x.len() == n * h * w * c && job.weights.len() == r * s * c.next_multiple_of(lanes));
    assert!(job.bias.is_none_or(|b| b.len() == c) && job.residual.is_none_or(|r| r.len() == n * p * q * c));
    assert!(block.stride() == c && block.cols.start.is_multiple_of(lanes));
    assert!(block.rows.end <= n * p * q && block.rows.start.is_multiple_of(q) && block.rows.end.is_multiple_of(q));
    let kernel = match job.isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::run,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::run,
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => neon::run,
        Isa::Plain => plain::run,
    };
    // SAFETY: the instruction set is available, and the sizes were checked above.
    unsafe { kernel(job, block) }
}

/// Some channels of an output row.
struct Row<'a> {
    job: &'a Job<'a>,
    channels: Range<usize>,
    /// The row's image.
    x: *const f32,
    /// Elements from one tap's weights to the next.
    weight_stride: usize,
    /// Input row under the first kernel row; negative in the padding.
    top: isize,
    /// Kernel rows that lie in the picture.
    taps: Range<usize>,
    /// At the row's first pixel.
    residual: Option<*const f32>,
    /// At the row's first pixel and the first of `channels`.
    y: *mut f32,
}

/// # Safety
/// The instruction set of `V` is present and `run` has checked the sizes.
#[inline(always)]
unsafe fn block<V: Vector>(job: &Job<'_>, block: &mut Block<'_>) {
    let Conv { h, w, c, r, s, p, q, stride, pad, dilation, .. } = *job.desc;
    // Output columns whose taps all lie in the picture.
    let first_inside = pad[1].div_ceil(stride[1]).min(q);
    let end_inside = match (w + pad[1]).checked_sub((s - 1) * dilation[1] + 1) {
        Some(last) => (last / stride[1] + 1).clamp(first_inside, q),
        None => first_inside,
    };
    let pixels = balanced(q, MAX_PIXELS);
    let channels = block.cols.clone();
    for out_row in block.rows.start / q..block.rows.end / q {
        let top = (out_row % p * stride[0]) as isize - pad[0] as isize;
        // SAFETY: image and row lie in the tensors.
        let row = unsafe {
            Row {
                job,
                x: job.x.as_ptr().add(out_row / p * h * w * c),
                weight_stride: c.next_multiple_of(V::LANES),
                top,
                taps: inside(top, dilation[0], r, h),
                residual: job.residual.map(|residual| residual.as_ptr().add(out_row * q * c)),
                y: block.at(out_row * q, channels.start),
                channels: channels.clone(),
            }
        };
        for col in (0..q).step_by(pixels) {
            let count = pixels.min(q - col);
            let edge = col < first_inside || col + count > end_inside;
            for channel in channels.clone().step_by(V::LANES) {
                let partial = channels.end - channel < V::LANES;
                // SAFETY: row, columns and channels lie in the tensors, and away from the edges all taps do.
                unsafe {
                    match (partial, edge) {
                        (false, false) => run_pixels::<V, false, false>(&row, channel, col, count),
                        (false, true) => run_pixels::<V, false, true>(&row, channel, col, count),
                        (true, false) => run_pixels::<V, true, false>(&row, channel, col, count),
                        (true, true) => run_pixels::<V, true, true>(&row, channel, col, count),
                    }
                }
            }
        }
    }
}

/// The taps of `count`, `step` apart from `first` on, that fall in 0..`len`.
#[inline(always)]
fn inside(first: isize, step: usize, count: usize, len: usize) -> Range<usize> {
    let start = if first < 0 { first.unsigned_abs().div_ceil(step) } else { 0 };
    let end = len as isize - first;
    let end = if end <= 0 { 0 } else { end.unsigned_abs().div_ceil(step).min(count) };
    start.min(end)..end
}

/// # Safety
/// As [`pixels`].
#[inline(always)]
unsafe fn run_pixels<V: Vector, const PARTIAL: bool, const EDGE: bool>(
    row: &Row<'_>,
    channel: usize,
    col: usize,
    count: usize,
) {
    // SAFETY: by the contract of the function.
    unsafe {
        match count {
            1 => pixels::<V, PARTIAL, EDGE, 1>(row, channel, col),
            2 => pixels::<V, PARTIAL, EDGE, 2>(row, channel, col),
            3 => pixels::<V, PARTIAL, EDGE, 3>(row, channel, col),
            4 => pixels::<V, PARTIAL, EDGE, 4>(row, channel, col),
            5 => pixels::<V, PARTIAL, EDGE, 5>(row, channel, col),
            6 => pixels::<V, PARTIAL, EDGE, 6>(row, channel, col),
            7 => pixels::<V, PARTIAL, EDGE, 7>(row, channel, col),
            _ => pixels::<V, PARTIAL, EDGE, MAX_PIXELS>(row, channel, col),
        }
    }
}

/// `PIXELS` output pixels from column `col` on.
///
/// # Safety
/// As [`block`]; unless `EDGE`, all taps in the kernel rows of `row` lie in the picture for each of the pixels.
#[inline(always)]
unsafe fn pixels<V: Vector, const PARTIAL: bool, const EDGE: bool, const PIXELS: usize>(
    row: &Row<'_>,
    channel: usize,
    col: usize,
) {
    let Conv { w, c, s, stride, pad, dilation, .. } = *row.job.desc;
    let count = if PARTIAL { row.channels.end - channel } else { V::LANES };
    // SAFETY: by the contract of the function.
    unsafe {
        let mut sums = [V::splat(0.0); PIXELS];
        let left = (col * stride[1]) as isize - pad[1] as isize;
        for tap_row in row.taps.clone() {
            let line = row.x.offset((row.top + (tap_row * dilation[0]) as isize) * (w * c) as isize).add(channel);
            let mut weights = row.job.weights.as_ptr().add(tap_row * s * row.weight_stride + channel);
            let mut at = left;
            for _ in 0..s {
                let weight = V::load(weights);
                for (i, sum) in sums.iter_mut().enumerate() {
                    let at = at + (i * stride[1]) as isize;
                    // Negative values become large ones, so that one comparison finds both borders.
                    let x = if EDGE && at as usize >= w { ZEROS.as_ptr() } else { line.offset(at * c as isize) };
                    *sum = sum.add_product(load::<V>(x, count), weight);
                }
                weights = weights.add(row.weight_stride);
                at += dilation[1] as isize;
            }
        }
        if let Some(bias) = row.job.bias {
            let bias = load::<V>(bias.as_ptr().add(channel), count);
            for sum in &mut sums {
                *sum = sum.add(bias);
            }
        }
        if let Some(residual) = row.residual {
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = sum.add(load::<V>(residual.add((col + i) * c + channel), count));
            }
        }
        let (low, high) = (V::splat(row.job.clamp.low), V::splat(row.job.clamp.high));
        for (i, &sum) in sums.iter().enumerate() {
            let y = row.y.add((col + i) * c + channel - row.channels.start);
            store(sum.at_least(low).at_most(high), y, count);
        }
    }
}

/// A module with the kernel for one instruction set.
macro_rules! kernel {
    ($name:ident, $vector:ty $(, $feature:literal)?) => {
        mod $name {
            use super::{Block, Job};

            /// # Safety
            /// As [`super::block`].
            $(#[target_feature(enable = $feature)])?
            pub(super) unsafe fn run(job: &Job<'_>, block: &mut Block<'_>) {
                // SAFETY: by the contract of the function.
                unsafe { super::block::<$vector>(job, block) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
kernel!(avx512, std::arch::x86_64::__m512, "avx512f");
#[cfg(target_arch = "x86_64")]
kernel!(avx2, std::arch::x86_64::__m256, "avx2,fma");
#[cfg(target_arch = "aarch64")]
kernel!(neon, std::arch::aarch64::float32x4_t);
kernel!(plain, [f32; 4]);
