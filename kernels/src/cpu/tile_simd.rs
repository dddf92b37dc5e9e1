//! The matrix kernel: a tile of up to 8 rows and 3 vectors of columns whose sums stay in registers, over rows read in
//! place and a packed panel of weights.
//!
//! Every element of the result is one chain of multiply-adds in the order of the panel, then bias, residual and
//! clamp; it does not depend on the tile that it falls into.
#![allow(unsafe_code)]

use std::ops::Range;

use super::block_simd::Block;
use super::vector_simd::{Isa, Vector};

/// Most rows of a tile.
pub(super) const MAX_ROWS: usize = 8;

/// Most vectors of columns of a tile.
const MAX_VECTORS: usize = 3;

/// Offset of a row that is all zeros.
pub(super) const PADDING: usize = usize::MAX;

/// Bounds that the results are clamped to in registers: the activations Relu and Clip, infinite for none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Clamp {
    /// Lower bound.
    pub(super) low: f32,
    /// Upper bound.
    pub(super) high: f32,
}

impl Clamp {
    /// Changes nothing.
    pub(super) const NONE: Self = Self { low: f32::NEG_INFINITY, high: f32::INFINITY };
}

/// Rows of the left matrix that make a tile: the sums run over `segments` pieces of `len` elements each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    /// Rows, at most [`MAX_ROWS`].
    pub(super) rows: usize,
    /// Pieces of a row.
    pub(super) segments: usize,
    /// Elements of a piece.
    pub(super) len: usize,
}

/// What a tile is multiplied with and what happens to the sums.
pub(super) struct Job<'a> {
    pub(super) isa: Isa,
    /// Where the rows are read.
    pub(super) x: &'a [f32],
    /// Read in place of a piece at [`PADDING`].
    pub(super) zeros: &'a [f32],
    /// One value a column of the output matrix.
    pub(super) bias: Option<&'a [f32]>,
    /// Like the output matrix.
    pub(super) residual: Option<&'a [f32]>,
    pub(super) clamp: Clamp,
}

/// Most vectors of columns and, for each number of vectors, most rows of a tile: as large as the registers allow with
/// the operands beside the sums (a tile of 4 by 3 in the 16 registers of AVX2 does not fit: the compiler keeps a sum in
/// memory, which halves the speed).
pub(super) fn tile_sizes(isa: Isa) -> &'static [usize] {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => &[8, 8, 8],
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => &[8, 8, 8],
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => &[8, 6],
        Isa::Plain => &[8, 4],
    }
}

/// Tiles whose pieces are known to lie in a job's memory.
#[derive(Default)]
pub(super) struct TileTable {
    tiles: Vec<Tile>,
    /// For each tile, piece and row (innermost) where the piece starts.
    offsets: Vec<usize>,
    x_len: usize,
    zeros_len: usize,
}

impl TileTable {
    /// Empties the table for the rows of `job`.
    pub(super) fn start(&mut self, job: &Job<'_>) {
        self.tiles.clear();
        self.offsets.clear();
        self.x_len = job.x.len();
        self.zeros_len = job.zeros.len();
    }

    /// Adds the tile whose offsets `fill` appends.
    ///
    /// # Panics
    /// Where a piece does not lie in the job's `x` or `zeros`.
    pub(super) fn push(&mut self, fill: impl FnOnce(&mut Vec<usize>) -> Tile) {
        let start = self.offsets.len();
        let tile = fill(&mut self.offsets);
        let offsets = &self.offsets[start..];
        assert!((1..=MAX_ROWS).contains(&tile.rows) && offsets.len() == tile.segments * tile.rows);
        assert!(tile.len <= self.x_len && tile.len <= self.zeros_len);
        let last = self.x_len - tile.len;
        let outside = offsets.iter().filter(|&&offset| offset > last && offset != PADDING).count();
        assert!(outside == 0, "a row lies outside the matrix");
        self.tiles.push(tile);
    }

    /// Computes the columns `cols` of `block`, whose rows are the table's, with a panel of ceil(cols / lanes) vectors a
    /// step.
    ///
    /// # Panics
    /// Where the job is not the one that the table was made for, or the panel, the block, the bias or the residual does
    /// not fit the tiles.
    pub(super) fn multiply(&self, job: &Job<'_>, panel: &[f32], block: &mut Block<'_>, cols: Range<usize>) {
        assert!(job.x.len() == self.x_len && job.zeros.len() == self.zeros_len);
        let lanes = job.isa.lanes();
        let vectors = cols.len().div_ceil(lanes);
        assert!(cols.end <= block.cols.end);
        let bias = job.bias.map(|bias| bias[cols.clone()].as_ptr());
        let stride = block.stride();
        let kernels = match job.isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => &avx512::KERNELS,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => &avx2::KERNELS,
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => &neon::KERNELS,
            Isa::Plain => &plain::KERNELS,
        };
        let (mut row, mut offsets) = (block.rows.start, self.offsets.as_slice());
        for &Tile { rows, segments, len } in &self.tiles {
            let (here, rest) = offsets.split_at(segments * rows);
            assert!(row + rows <= block.rows.end && panel.len() == segments * len * vectors * lanes);
            let residual =
                job.residual.map(|r| r[row * stride + cols.start..(row + rows - 1) * stride + cols.end].as_ptr());
            let args = Args {
                x: job.x.as_ptr(),
                zeros: job.zeros.as_ptr(),
                offsets: here.as_ptr(),
                segments,
                len,
                panel: panel.as_ptr(),
                bias,
                residual,
                y: block.at(row, cols.start),
                stride,
                cols: cols.len(),
                clamp: job.clamp,
            };
            // SAFETY: `job.isa` is available. The pieces lie in x and zeros (`push`), the panel is as long as all
            // pieces together times its width, bias, residual and block cover the tile's rows and columns.
            unsafe { kernels[rows - 1][vectors - 1](&args) };
            row += rows;
            offsets = rest;
        }
    }
}

struct Args {
    x: *const f32,
    zeros: *const f32,
    offsets: *const usize,
    segments: usize,
    len: usize,
    panel: *const f32,
    bias: Option<*const f32>,
    residual: Option<*const f32>,
    y: *mut f32,
    stride: usize,
    cols: usize,
    clamp: Clamp,
}

/// # Safety
/// The instruction set of `V` is present, and the pointers of `args` are valid for what its numbers say.
#[inline(always)]
unsafe fn tile<V: Vector, const ROWS: usize, const VECTORS: usize>(args: &Args) {
    // SAFETY: by the contract of the function.
    unsafe {
        let mut sums = [[V::splat(0.0); VECTORS]; ROWS];
        let mut panel = args.panel;
        for segment in 0..args.segments {
            let mut x = [args.zeros; ROWS];
            for (i, x) in x.iter_mut().enumerate() {
                let offset = *args.offsets.add(segment * ROWS + i);
                if offset != PADDING {
                    *x = args.x.add(offset);
                }
            }
            for c in 0..args.len {
                let mut weights = [V::splat(0.0); VECTORS];
                for (j, weights) in weights.iter_mut().enumerate() {
                    *weights = V::load(panel.add(j * V::LANES));
                }
                for i in 0..ROWS {
                    let x = V::splat(*x[i].add(c));
                    for j in 0..VECTORS {
                        sums[i][j] = sums[i][j].add_product(x, weights[j]);
                    }
                }
                panel = panel.add(VECTORS * V::LANES);
            }
        }
        // Small loops one after another: each is unrolled, so that the sums never leave their registers.
        let counts: [usize; VECTORS] = std::array::from_fn(|j| (args.cols - j * V::LANES).min(V::LANES));
        if let Some(bias) = args.bias {
            for j in 0..VECTORS {
                let bias = load::<V>(bias.add(j * V::LANES), counts[j]);
                for sums in &mut sums {
                    sums[j] = sums[j].add(bias);
                }
            }
        }
        if let Some(residual) = args.residual {
            for j in 0..VECTORS {
                let residual = residual.add(j * V::LANES);
                for (i, sums) in sums.iter_mut().enumerate() {
                    sums[j] = sums[j].add(load::<V>(residual.add(i * args.stride), counts[j]));
                }
            }
        }
        let (low, high) = (V::splat(args.clamp.low), V::splat(args.clamp.high));
        for j in 0..VECTORS {
            let y = args.y.add(j * V::LANES);
            for (i, sums) in sums.iter().enumerate() {
                store(sums[j].at_least(low).at_most(high), y.add(i * args.stride), counts[j]);
            }
        }
    }
}

/// # Safety
/// As [`Vector`]; `from` is valid for `count` values.
#[inline(always)]
pub(super) unsafe fn load<V: Vector>(from: *const f32, count: usize) -> V {
    // SAFETY: by the contract of the function.
    unsafe { if count == V::LANES { V::load(from) } else { V::load_partial(from, count) } }
}

/// # Safety
/// As [`Vector`]; `to` is valid for `count` values.
#[inline(always)]
pub(super) unsafe fn store<V: Vector>(y: V, to: *mut f32, count: usize) {
    // SAFETY: by the contract of the function.
    unsafe { if count == V::LANES { y.store(to) } else { y.store_partial(to, count) } }
}

type Kernel = unsafe fn(&Args);

/// A module with the tile kernel of every size for one instruction set.
macro_rules! kernels {
    ($name:ident, $vector:ty $(, $feature:literal)?) => {
        mod $name {
            use super::{Args, Kernel, MAX_ROWS, MAX_VECTORS};

            /// # Safety
            /// As [`super::tile`].
            $(#[target_feature(enable = $feature)])?
            unsafe fn tile<const ROWS: usize, const VECTORS: usize>(args: &Args) {
                // SAFETY: by the contract of the function.
                unsafe { super::tile::<$vector, ROWS, VECTORS>(args) }
            }

            /// By rows and vectors, each counted from 1.
            pub(super) static KERNELS: [[Kernel; MAX_VECTORS]; MAX_ROWS] = [
                [tile::<1, 1>, tile::<1, 2>, tile::<1, 3>],
                [tile::<2, 1>, tile::<2, 2>, tile::<2, 3>],
                [tile::<3, 1>, tile::<3, 2>, tile::<3, 3>],
                [tile::<4, 1>, tile::<4, 2>, tile::<4, 3>],
                [tile::<5, 1>, tile::<5, 2>, tile::<5, 3>],
                [tile::<6, 1>, tile::<6, 2>, tile::<6, 3>],
                [tile::<7, 1>, tile::<7, 2>, tile::<7, 3>],
                [tile::<8, 1>, tile::<8, 2>, tile::<8, 3>],
            ];
        }
    };
}

#[cfg(target_arch = "x86_64")]
kernels!(avx512, std::arch::x86_64::__m512, "avx512f");
#[cfg(target_arch = "x86_64")]
kernels!(avx2, std::arch::x86_64::__m256, "avx2,fma");
#[cfg(target_arch = "aarch64")]
kernels!(neon, std::arch::aarch64::float32x4_t);
kernels!(plain, [f32; 4]);
