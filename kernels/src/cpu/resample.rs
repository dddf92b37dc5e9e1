//! Pillow's 8-bit resampling of RGB pictures, bit for bit.
//!
//! Two passes over u8, each a weighted sum of neighbouring samples. Weights are computed in double precision, divided
//! by their sum, rounded to [`PRECISION`] fractional bits (halves away from 0) and applied in i32: the sum starts at one
//! half, is shifted down and clipped to 0..=255 (Pillow's `src/libImaging/Resample.c`). Integer sums are exact, so every
//! vector width gives the same bits.
//!
//! With `scale = in / out` and `s = max(scale, 1)`, output sample x has its centre at `c = (x + 0.5) scale` and reaches
//! over `c - r s .. c + r s` with r the filter's radius; sample i weighs `f((i + 0.5 - c) / s)`. Samples outside the
//! picture are left out. Without antialiasing s is 1: the filter keeps the width it has when enlarging.
//!
//! Only what the wanted window of the result depends on is computed.
//!
//! Microseconds on one core of an AMD EPYC (Zen 4). The table was taken once, by a program that is not kept: the smallest of
//! many interleaved runs beside other work, for the first size with memory kept between runs, as a worker keeps it.
//! `benches/resample.rs` measures the same sizes and filters, but prints estimates of the mean and allocates in each run.
//!
//! | | filter | Pillow 13.0.0 | AVX-512 | AVX2 | plain |
//! | --- | --- | --- | --- | --- | --- |
//! | 500x375 to 341x256 | bilinear | 1304 | 313 | 333 | 736 |
//! | | bicubic | 2077 | 398 | 412 | 1125 |
//! | | lanczos | 2979 | 574 | 596 | 1619 |
//! | 1920x1080 to 640x360 | bilinear | 9202 | 2576 | 2677 | 6235 |
//! | | bicubic | 21849 | 3233 | 3378 | 10796 |
//! | | lanczos | 34060 | 4094 | 4235 | 15361 |
//! | 1920x1080 to 455x256 | bilinear | 13797 | 2389 | 2505 | 5529 |
//! | | bicubic | 18438 | 3022 | 3141 | 13101 |
//! | | lanczos | 32959 | 3888 | 4173 | 23134 |
//!
//! On an idle machine Pillow needs 15900 and 23100 (bicubic, lanczos to 640x360) and 8300 (bilinear to 455x256).

use std::ops::Range;
use std::sync::Arc;

#[cfg(target_arch = "x86_64")]
use super::resample_simd::{Avx2, Avx512, flip};
use super::vector_simd::Isa;
use crate::error::KernelError;
use crate::preprocess::Filter;
use crate::preprocess::weights::{Job, PRECISION, Table, TableKey, nearest_samples};

/// One half in the weights' fixed point.
pub(super) const HALF: i32 = 1 << (PRECISION - 1);

/// Rows that the horizontal pass works on side by side.
pub(super) const ROWS: usize = 16;

/// Source pixels of a strip of the horizontal pass: transposed they stay in the second-level cache.
const SPAN_PX: usize = 2048;

/// From this number of taps on, transposing a strip would cost more memory than it saves time.
const MANY_TAPS: usize = 1024;

/// Largest picture between the passes.
const MAX_MIDDLE_BYTES: usize = 1 << 30;

/// Weight tables kept, and the largest that is.
const CACHED_TABLES: usize = 8;
const CACHED_WEIGHTS: usize = 1 << 18;

/// The same sample of one channel in [`ROWS`] rows.
pub(super) type Column = [u8; ROWS];

/// The inner loops of both passes for one instruction set.
pub(super) trait Lanes: Copy {
    /// The weighted sum of RGB pixels, [`ROWS`] rows at once: `columns` holds 3 columns a weight, `out` 3.
    fn sum_pixels(self, weights: &[i32], columns: &[Column], out: &mut [Column; 3]);

    /// The weighted sum of rows: `rows` holds one row of `out.len()` bytes a weight, `stride` bytes apart.
    fn sum_rows(self, weights: &[i32], rows: &[u8], stride: usize, out: &mut [u8]);
}

/// Loops for the compiler to vectorise.
#[derive(Clone, Copy)]
pub(super) struct Plain;

/// A finished sum as a sample.
#[inline(always)]
pub(super) fn sample(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

#[inline(always)]
fn multiply_add(sum: &mut i32, weight: i32, sample: u8) {
    *sum = sum.wrapping_add(weight.wrapping_mul(i32::from(sample)));
}

impl Lanes for Plain {
    fn sum_pixels(self, weights: &[i32], columns: &[Column], out: &mut [Column; 3]) {
        let mut sums = [[HALF; ROWS]; 3];
        for (&weight, pixel) in weights.iter().zip(columns.as_chunks::<3>().0) {
            for (sums, column) in sums.iter_mut().zip(pixel) {
                sums.iter_mut().zip(column).for_each(|(sum, &v)| multiply_add(sum, weight, v));
            }
        }
        *out = sums.map(|sums| sums.map(sample));
    }

    fn sum_rows(self, weights: &[i32], rows: &[u8], stride: usize, out: &mut [u8]) {
        const BLOCK: usize = 32;
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            let mut sums = [HALF; BLOCK];
            for (row, &weight) in weights.iter().enumerate() {
                let samples = &rows[row * stride + i * BLOCK..][..out.len()];
                sums.iter_mut().zip(samples).for_each(|(sum, &v)| multiply_add(sum, weight, v));
            }
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sample(sum));
        }
    }
}

/// Resizes pictures; keeps its buffers and the latest weight tables.
pub(super) struct Resampler {
    isa: Isa,
    tables: Vec<(TableKey, Arc<Table>)>,
    strip: Strip,
    middle: Vec<u8>,
}

/// Scratch of the horizontal pass: source and result of a strip, transposed.
#[derive(Default)]
struct Strip {
    source: Vec<Column>,
    result: Vec<Column>,
}

impl Resampler {
    pub(super) fn new(isa: Isa) -> Self {
        Self { isa, tables: Vec::new(), strip: Strip::default(), middle: Vec::new() }
    }

    /// Fills `out` with the window's pixels, RGB, row by row. `rgb` holds the source likewise.
    ///
    /// # Errors
    /// Where the picture between the passes would take more than 1 GiB.
    pub(super) fn run(&mut self, rgb: &[u8], job: &Job, out: &mut Vec<u8>) -> Result<(), KernelError> {
        if job.filter == Filter::Nearest {
            nearest(rgb, job, out);
            return Ok(());
        }
        #[cfg(target_arch = "x86_64")]
        match self.isa {
            Isa::Avx512 => {
                if let Some(lanes) = Avx512::detect() {
                    return self.passes(lanes, rgb, job, out);
                }
            }
            Isa::Avx2 => {
                if let Some(lanes) = Avx2::detect() {
                    return self.passes(lanes, rgb, job, out);
                }
            }
            Isa::Plain => {}
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = self.isa;
        self.passes(Plain, rgb, job, out)
    }

    fn passes<L: Lanes>(&mut self, lanes: L, rgb: &[u8], job: &Job, out: &mut Vec<u8>) -> Result<(), KernelError> {
        let [columns, rows] = job.window.clone();
        let picture = Patch { data: rgb, width: job.source[0], left: 0, top: 0 };
        let across = (job.source[0] != job.target[0]).then(|| self.table(job, 0));
        let down = (job.source[1] != job.target[1]).then(|| self.table(job, 1));
        match (across, down) {
            (None, None) => {
                out.clear();
                for y in rows {
                    out.extend_from_slice(picture.row(y, &columns));
                }
            }
            (Some(across), None) => horizontal(lanes, &picture, rows, &across, &mut self.strip, out),
            (None, Some(down)) => vertical(lanes, &picture, &columns, &down, out),
            (Some(across), Some(down)) => {
                let Self { strip, middle, .. } = self;
                if job.vertical_first() {
                    let needed = across.needed();
                    check_middle(rows.len(), needed.len())?;
                    vertical(lanes, &picture, &needed, &down, middle);
                    let patch = Patch { data: middle, width: needed.len(), left: needed.start, top: rows.start };
                    horizontal(lanes, &patch, rows, &across, strip, out);
                } else {
                    let needed = down.needed();
                    check_middle(needed.len(), columns.len())?;
                    horizontal(lanes, &picture, needed.clone(), &across, strip, middle);
                    let patch = Patch { data: middle, width: columns.len(), left: columns.start, top: needed.start };
                    vertical(lanes, &patch, &columns, &down, out);
                }
            }
        }
        Ok(())
    }

    /// The weights for one axis (0: columns) of a job.
    fn table(&mut self, job: &Job, axis: usize) -> Arc<Table> {
        let key = job.key(axis);
        if let Some(at) = self.tables.iter().position(|(k, _)| *k == key) {
            let hit = self.tables.remove(at);
            self.tables.push(hit);
        } else {
            let table = Arc::new(Table::new(&key));
            if table.weights.len() > CACHED_WEIGHTS {
                return table;
            }
            if self.tables.len() == CACHED_TABLES {
                self.tables.remove(0);
            }
            self.tables.push((key, table));
        }
        Arc::clone(&self.tables[self.tables.len() - 1].1)
    }
}

fn check_middle(rows: usize, columns: usize) -> Result<(), KernelError> {
    match rows.checked_mul(columns).and_then(|n| n.checked_mul(3)) {
        Some(bytes) if bytes <= MAX_MIDDLE_BYTES => Ok(()),
        _ => Err(KernelError::invalid("resize", format!("it goes through a picture of {columns} x {rows} pixels"))),
    }
}

/// Part of a picture: its row `top` and column `left` come first.
struct Patch<'a> {
    data: &'a [u8],
    width: usize,
    left: usize,
    top: usize,
}

impl Patch<'_> {
    /// Bytes from pixel (x, y) on.
    fn from(&self, x: usize, y: usize) -> &[u8] {
        &self.data[((y - self.top) * self.width + x - self.left) * 3..]
    }

    fn row(&self, y: usize, columns: &Range<usize>) -> &[u8] {
        &self.from(columns.start, y)[..columns.len() * 3]
    }
}

/// Resamples the columns of `rows`.
fn horizontal<L: Lanes>(
    lanes: L,
    patch: &Patch<'_>,
    rows: Range<usize>,
    table: &Table,
    strip: &mut Strip,
    out: &mut Vec<u8>,
) {
    let width = table.taps.len();
    out.clear();
    out.resize(rows.len() * width * 3, 0);
    if table.stride > MANY_TAPS {
        for (y, out) in rows.zip(out.chunks_exact_mut(width * 3)) {
            horizontal_row(patch, y, table, out);
        }
        return;
    }
    let mut start = 0;
    while start < width {
        let first = table.taps[start].0;
        let more = table.taps[start + 1..].iter().take_while(|(at, count)| at + count <= first + SPAN_PX).count();
        let window = start..start + 1 + more;
        let span = table.span(window.clone());
        strip.source.resize(span.len() * 3, [0; ROWS]);
        strip.result.resize(window.len() * 3, [0; ROWS]);
        for (i, out) in out.chunks_mut(ROWS * width * 3).enumerate() {
            let y = rows.start + i * ROWS;
            let count = out.len() / (width * 3);
            to_columns(patch.from(span.start, y), patch.width * 3, count, &mut strip.source);
            for (x, result) in window.clone().zip(strip.result.as_chunks_mut::<3>().0) {
                let (at, taps) = table.taps[x];
                let columns = &strip.source[(at - span.start) * 3..][..taps * 3];
                lanes.sum_pixels(table.weights(x), columns, result);
            }
            from_columns(&strip.result, width * 3, count, &mut out[start * 3..]);
        }
        start = window.end;
    }
}

/// The horizontal pass of one row, without a transposed copy.
fn horizontal_row(patch: &Patch<'_>, y: usize, table: &Table, out: &mut [u8]) {
    for (x, out) in out.as_chunks_mut::<3>().0.iter_mut().enumerate() {
        let (at, taps) = table.taps[x];
        let mut sums = [HALF; 3];
        for (&weight, pixel) in table.weights(x).iter().zip(patch.row(y, &(at..at + taps)).as_chunks::<3>().0) {
            sums.iter_mut().zip(pixel).for_each(|(sum, &v)| multiply_add(sum, weight, v));
        }
        *out = sums.map(sample);
    }
}

/// Resamples the rows of `columns`.
fn vertical<L: Lanes>(lanes: L, patch: &Patch<'_>, columns: &Range<usize>, table: &Table, out: &mut Vec<u8>) {
    out.clear();
    out.resize(columns.len() * 3 * table.taps.len(), 0);
    for (y, out) in out.chunks_exact_mut(columns.len() * 3).enumerate() {
        let rows = patch.from(columns.start, table.taps[y].0);
        lanes.sum_rows(table.weights(y), rows, patch.width * 3, out);
    }
}

/// Side of the square that a transposition moves at once.
const TILE: usize = ROWS;

/// Transposes `rows` rows, `stride` bytes apart, into columns.
fn to_columns(data: &[u8], stride: usize, rows: usize, columns: &mut [Column]) {
    let whole = if rows == ROWS { columns.len() / TILE * TILE } else { 0 };
    let (tiles, rest) = columns.split_at_mut(whole);
    for (i, tile) in tiles.as_chunks_mut::<TILE>().0.iter_mut().enumerate() {
        let mut square = [[0; TILE]; ROWS];
        for (row, square) in square.iter_mut().enumerate() {
            square.copy_from_slice(&data[row * stride + i * TILE..][..TILE]);
        }
        *tile = flip(&square);
    }
    for (i, column) in rest.iter_mut().enumerate() {
        for (row, v) in column.iter_mut().take(rows).enumerate() {
            *v = data[row * stride + whole + i];
        }
    }
}

/// Transposes columns into the first `rows` rows, `stride` bytes apart.
fn from_columns(columns: &[Column], stride: usize, rows: usize, data: &mut [u8]) {
    let whole = if rows == ROWS { columns.len() / TILE * TILE } else { 0 };
    let (tiles, rest) = columns.split_at(whole);
    for (i, tile) in tiles.as_chunks::<TILE>().0.iter().enumerate() {
        for (row, samples) in flip(tile).iter().enumerate() {
            data[row * stride + i * TILE..][..TILE].copy_from_slice(samples);
        }
    }
    for (i, column) in rest.iter().enumerate() {
        for (row, &v) in column.iter().take(rows).enumerate() {
            data[row * stride + whole + i] = v;
        }
    }
}

/// The square transposed.
#[cfg(not(target_arch = "x86_64"))]
fn flip(square: &[[u8; TILE]; TILE]) -> [[u8; TILE]; TILE] {
    std::array::from_fn(|x| std::array::from_fn(|y| square[y][x]))
}

/// Pillow's `NEAREST`: the sample that contains the output sample's centre.
fn nearest(rgb: &[u8], job: &Job, out: &mut Vec<u8>) {
    let [columns, rows] = [0, 1].map(|axis| nearest_samples(&job.key(axis)));
    out.clear();
    for y in rows {
        let row = &rgb[y * job.source[0] * 3..][..job.source[0] * 3];
        for &x in &columns {
            out.extend_from_slice(&row[x * 3..][..3]);
        }
    }
}

#[cfg(test)]
mod tests;
