//! Pillow's resampling and torchvision's geometry as plain loops, pictures for the tests.

use ocellus_kernels::preprocess::{Filter, Match};

use crate::Random;

/// An RGB picture, row by row: noise for even seeds, gradients with a little noise for odd ones.
/// `tests/golden/resize/generate.py` makes the same.
pub fn picture(width: usize, height: usize, seed: u64) -> Vec<u8> {
    let mut rgb = Random::new(seed).bytes(width * height * 3);
    if !seed.is_multiple_of(2) {
        for (i, v) in rgb.iter_mut().enumerate() {
            let (c, x, y) = (i % 3, i / 3 % width, i / 3 / width);
            *v = ((x * 7 + y * 13) / 3 + c * 50 + usize::from(*v) % 16) as u8;
        }
    }
    rgb
}

/// Weight of a sample at distance x from the centre, in units of the unwidened filter.
fn weight(filter: Filter, x: f64) -> f64 {
    let x = x.abs();
    let sinc = |x: f64| if x == 0.0 { 1.0 } else { (std::f64::consts::PI * x).sin() / (std::f64::consts::PI * x) };
    match filter {
        Filter::Nearest => unreachable!("has no weights"),
        Filter::Bilinear => (1.0 - x).max(0.0),
        // Keys' cubic with a = -1/2.
        Filter::Bicubic if x < 1.0 => 1.5 * x * x * x - 2.5 * x * x + 1.0,
        Filter::Bicubic if x < 2.0 => -0.5 * x * x * x + 2.5 * x * x - 4.0 * x + 2.0,
        Filter::Lanczos3 if x < 3.0 => sinc(x) * sinc(x / 3.0),
        Filter::Bicubic | Filter::Lanczos3 => 0.0,
    }
}

/// First sample and weights of an output sample.
fn weights(input: usize, output: usize, x: usize, filter: Filter, antialias: bool) -> (usize, Vec<i32>) {
    let scale = input as f64 / output as f64;
    let stretch = if antialias && scale > 1.0 { scale } else { 1.0 };
    let radius = match filter {
        Filter::Nearest => unreachable!("has no weights"),
        Filter::Bilinear => 1.0,
        Filter::Bicubic => 2.0,
        Filter::Lanczos3 => 3.0,
    };
    let centre = scale * (x as f64 + 0.5);
    let first = (centre - radius * stretch + 0.5).trunc().max(0.0) as usize;
    let end = (centre + radius * stretch + 0.5).trunc().min(input as f64) as usize;
    let all: Vec<f64> = (first..end).map(|i| weight(filter, (i as f64 + 0.5 - centre) / stretch)).collect();
    let sum: f64 = all.iter().sum();
    // Rust's round is half away from 0.
    (first, all.iter().map(|w| (w / sum * f64::from(1 << 22)).round() as i32).collect())
}

/// One axis of `rgb`, which is `size` columns and rows, resampled to `output` samples.
fn pass(rgb: &[u8], size: [usize; 2], axis: usize, output: usize, filter: Filter, antialias: bool) -> Vec<u8> {
    let mut result = size;
    result[axis] = output;
    let mut out = Vec::with_capacity(result[0] * result[1] * 3);
    let all: Vec<_> = (0..output).map(|x| weights(size[axis], output, x, filter, antialias)).collect();
    for y in 0..result[1] {
        for x in 0..result[0] {
            let (first, weights) = &all[[x, y][axis]];
            for c in 0..3 {
                let mut sum = 1i32 << 21;
                for (i, weight) in weights.iter().enumerate() {
                    let (column, row) = if axis == 0 { (first + i, y) } else { (x, first + i) };
                    sum += weight * i32::from(rgb[(row * size[0] + column) * 3 + c]);
                }
                out.push((sum >> 22).clamp(0, 255) as u8);
            }
        }
    }
    out
}

/// Source sample of an output sample for the nearest filter: Pillow adds the scale up.
fn nearest(input: usize, output: usize) -> Vec<usize> {
    let scale = input as f64 / output as f64;
    let mut at = scale / 2.0;
    let mut all = Vec::new();
    for _ in 0..output {
        all.push(at as usize);
        at += scale;
    }
    all
}

/// `rgb`, `source` columns and rows, resized to `target` columns and rows.
pub fn resize(
    rgb: &[u8],
    source: [usize; 2],
    target: [usize; 2],
    filter: Filter,
    antialias: bool,
    matching: Match,
) -> Vec<u8> {
    let ([sw, sh], [dw, dh]) = (source, target);
    if filter == Filter::Nearest {
        let (columns, rows) = (nearest(sw, dw), nearest(sh, dh));
        return rows
            .iter()
            .flat_map(|y| columns.iter().flat_map(move |x| rgb[(y * sw + x) * 3..][..3].to_vec()))
            .collect();
    }
    let vertical_first = matching == Match::Pillow && sh > dh && (sh - dh) as i64 > (sw as i64 - dw as i64) * 2;
    let (mut rgb, mut size) = (rgb.to_vec(), source);
    for axis in if vertical_first { [1, 0] } else { [0, 1] } {
        if size[axis] != target[axis] {
            rgb = pass(&rgb, size, axis, target[axis], filter, antialias);
            size[axis] = target[axis];
        }
    }
    rgb
}

/// The window of `width` columns and `height` rows whose first pixel is (left, top); black outside the picture.
pub fn crop(rgb: &[u8], size: [usize; 2], left: isize, top: isize, width: usize, height: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(width * height * 3);
    for y in 0..height as isize {
        for x in 0..width as isize {
            let (x, y) = (x + left, y + top);
            let inside = (0..size[0] as isize).contains(&x) && (0..size[1] as isize).contains(&y);
            for c in 0..3 {
                out.push(if inside { rgb[(y as usize * size[0] + x as usize) * 3 + c] } else { 0 });
            }
        }
    }
    out
}
