//! Pooling.

use super::par::Par;
use super::vectorise::{fold_row, max, vectorised};
use crate::op::{Pool, PoolKind};

pub(super) fn pool(desc: &Pool, x: &[f32], y: &mut [f32], par: Par) {
    let image = desc.h * desc.w * desc.c;
    let row = |p| Window::new(p, desc.h, desc.r, desc.stride[0], [desc.pad[0], desc.pad[2]], desc.dilation[0]);
    let column = |q| Window::new(q, desc.w, desc.s, desc.stride[1], [desc.pad[1], desc.pad[3]], desc.dilation[1]);
    let columns: Vec<Window> = (0..desc.q).map(column).collect();
    par.chunks(y, desc.q * desc.c, |i, y| {
        let (x, rows) = (&x[i / desc.p * image..][..image], row(i % desc.p));
        vectorised(
            #[inline(always)]
            || match desc.kind {
                PoolKind::Max => output_row(desc, &rows, &columns, x, y, f32::NEG_INFINITY, max, |_| 1),
                PoolKind::Average => {
                    output_row(desc, &rows, &columns, x, y, 0.0, |a, b| a + b, |columns| rows.inside * columns.inside);
                }
                PoolKind::AveragePadded => {
                    output_row(desc, &rows, &columns, x, y, 0.0, |a, b| a + b, |columns| rows.padded * columns.padded);
                }
            },
        );
    });
}

/// The samples of one axis under a window.
struct Window {
    /// First sample inside the picture.
    first: usize,
    /// Samples inside the picture.
    inside: usize,
    /// Samples inside the picture or its padding.
    padded: usize,
    /// Distance between samples.
    step: usize,
}

impl Window {
    fn new(index: usize, len: usize, taps: usize, stride: usize, pad: [usize; 2], dilation: usize) -> Self {
        // Positions count from the first padding sample.
        let start = index * stride;
        let taps_below = |end: usize| if end > start { (end - start).div_ceil(dilation).min(taps) } else { 0 };
        let skipped = taps_below(pad[0]);
        let inside = taps_below(pad[0] + len) - skipped;
        Self {
            first: (start + skipped * dilation).saturating_sub(pad[0]),
            inside,
            padded: taps_below(pad[0] + len + pad[1]),
            step: dilation,
        }
    }

    fn samples(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, step) = (self.first, self.step);
        (0..self.inside).map(move |i| first + i * step)
    }
}

/// y [Q, C] = the op over the window of every pixel and channel, divided by `count` of the window's columns.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "a loop nest that must be inlined, with one caller")]
fn output_row(
    desc: &Pool,
    rows: &Window,
    columns: &[Window],
    x: &[f32],
    y: &mut [f32],
    identity: f32,
    op: impl Fn(f32, f32) -> f32 + Copy,
    count: impl Fn(&Window) -> usize,
) {
    for (columns, y) in columns.iter().zip(y.chunks_exact_mut(desc.c)) {
        y.fill(identity);
        for row in rows.samples() {
            let pixel = |i| &x[(row * desc.w + columns.first + i * columns.step) * desc.c..][..desc.c];
            let triples = columns.inside / 3;
            for i in (0..triples).map(|triple| 3 * triple) {
                let (a, b, c) = (pixel(i), pixel(i + 1), pixel(i + 2));
                // Three at once: y is loaded and stored once instead of three times.
                for (((y, &a), &b), &c) in y.iter_mut().zip(a).zip(b).zip(c) {
                    *y = op(op(op(*y, a), b), c);
                }
            }
            (3 * triples..columns.inside).for_each(|i| fold_row(y, pixel(i), op));
        }
        let divisor = count(columns).max(1) as f32;
        if divisor != 1.0 {
            for v in y {
                *v /= divisor;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, Random};
    use super::*;

    /// Function, window and padding from the definition: what an output pixel's channel is.
    fn gold(desc: &Pool, x: &[f32], at: usize) -> f64 {
        let Pool { kind, h, w, c, r, s, p, q, stride, pad, dilation, .. } = *desc;
        let (channel, col, row, image) = (at % c, at / c % q, at / c / q % p, at / c / q / p);
        let (mut values, mut padded) = (Vec::new(), 0);
        for (tap_row, tap_col) in (0..r).flat_map(|i| (0..s).map(move |j| (i, j))) {
            // Positions count from the first padding sample.
            let (i, j) = (row * stride[0] + tap_row * dilation[0], col * stride[1] + tap_col * dilation[1]);
            padded += usize::from(i < pad[0] + h + pad[2] && j < pad[1] + w + pad[3]);
            if let (Some(i), Some(j)) = (i.checked_sub(pad[0]), j.checked_sub(pad[1]))
                && i < h
                && j < w
            {
                values.push(f64::from(x[((image * h + i) * w + j) * c + channel]));
            }
        }
        let sum: f64 = values.iter().sum();
        match kind {
            PoolKind::Max if sum.is_nan() => f64::NAN,
            PoolKind::Max => values.into_iter().fold(f64::NEG_INFINITY, f64::max),
            PoolKind::Average => sum / values.len().max(1) as f64,
            PoolKind::AveragePadded => sum / padded.max(1) as f64,
        }
    }

    #[test]
    fn every_window_agrees_with_gold_and_keeps_nan() {
        let mut random = Random::new(11);
        for case in 0..300 {
            let kind = random.pick(&[PoolKind::Max, PoolKind::Average, PoolKind::AveragePadded]);
            let (n, h, w) = (random.size(1, 2), random.size(1, 9), random.size(1, 9));
            let c = random.pick(&[1, 2, 5, 16, 24, 64, 70]);
            let (r, s) = (random.size(1, 7), random.size(1, 7));
            let stride = [random.size(1, 3), random.size(1, 3)];
            let dilation = [random.size(1, 2), random.size(1, 2)];
            let pad: [usize; 4] = std::array::from_fn(|_| random.size(0, 2));
            // Windows may reach beyond the padding, as `ceil_mode` lets them.
            let out = |len: usize, taps: usize, axis: usize| {
                (len + pad[axis] + pad[axis + 2]).saturating_sub((taps - 1) * dilation[axis] + 1).div_ceil(stride[axis])
                    + 1
            };
            let (p, q) = (out(h, r, 0), out(w, s, 1));
            let desc = Pool { kind, n, h, w, c, r, s, p, q, stride, pad, dilation };
            let mut x = random.values(n * h * w * c);
            for _ in 0..case % 4 {
                let at = random.size(0, x.len() - 1);
                x[at] = f32::NAN;
            }
            let y = testing::run(n * p * q * c, |y, par| pool(&desc, &x, y, par));
            for (i, &y) in y.iter().enumerate() {
                let (y, want) = (f64::from(y), gold(&desc, &x, i));
                let same = y == want || (y.is_nan() && want.is_nan()) || (y - want).abs() < 1e-5;
                assert!(same, "{desc:?}: element {i} is {y} instead of {want}");
            }
        }
    }
}
