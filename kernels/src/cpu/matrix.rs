//! Weights packed for the tile kernel, and the loop over tiles that every matrix product shares.

use std::cell::RefCell;

use super::aligned::AlignedVec;
use super::block_simd::{Block, Cut, for_each_block};
use super::par::Par;
use super::pointwise;
use super::tile_simd::{self, Clamp, Job, Tile, TileTable};
use super::vector_simd::Isa;
use crate::op::Unary;

/// Elements of the left matrix that stay in the second-level cache while all panels pass.
const CACHED_ELEMENTS: usize = 48 * 1024;

/// The right matrix [K, N] of a product: panels of a few vectors of columns, each with its K steps one after
/// another, the last panel filled up with zeros.
pub(super) struct PackedMatrix {
    isa: Isa,
    depth: usize,
    /// First column of each panel, then the number of columns.
    bounds: Vec<usize>,
    data: AlignedVec,
    zeros: Vec<f32>,
    tile_rows: usize,
}

/// The left matrix of a product: rows that are read in place, in pieces.
pub(super) trait Rows: Sync {
    /// Memory that the rows lie in.
    fn x(&self) -> &[f32];

    /// Appends the offsets of the pieces of `count` rows from `first` on: for each piece one offset a row, or
    /// [`tile_simd::PADDING`].
    fn tile(&self, first: usize, count: usize, offsets: &mut Vec<usize>) -> Tile;
}

/// Rows of a dense matrix, `stride` apart.
pub(super) struct DenseRows<'a> {
    pub(super) x: &'a [f32],
    pub(super) stride: usize,
    /// First column.
    pub(super) start: usize,
    /// Columns.
    pub(super) len: usize,
}

impl Rows for DenseRows<'_> {
    fn x(&self) -> &[f32] {
        self.x
    }

    fn tile(&self, first: usize, count: usize, offsets: &mut Vec<usize>) -> Tile {
        offsets.extend((first..first + count).map(|row| row * self.stride + self.start));
        Tile { rows: count, segments: 1, len: self.len }
    }
}

/// What happens to the sums.
#[derive(Clone, Copy, Default)]
pub(super) struct Finish<'a> {
    /// One value a column of the whole output matrix.
    pub(super) bias: Option<&'a [f32]>,
    /// Like the whole output matrix.
    pub(super) residual: Option<&'a [f32]>,
    /// Applied last.
    pub(super) activation: Option<Unary>,
}

/// The part of an activation that runs in registers, and what follows on the stored values.
pub(super) fn split_activation(activation: Option<Unary>) -> (Clamp, Option<Unary>) {
    match activation {
        Some(Unary::Relu) => (Clamp { low: 0.0, ..Clamp::NONE }, None),
        Some(Unary::Clip { min, max }) => (Clamp { low: min, high: max }, None),
        other => (Clamp::NONE, other),
    }
}

/// Applies what [`split_activation`] left over.
pub(super) fn finish_block(f: Unary, block: &mut Block<'_>) {
    for row in block.rows.clone() {
        pointwise::apply(f, block.row_mut(row));
    }
}

thread_local! {
    /// The tiles that this thread works on; kept from one product to the next, so that a product allocates nothing.
    static TABLE: RefCell<TileTable> = RefCell::new(TileTable::default());
}

impl PackedMatrix {
    /// Packs a matrix of `depth` rows and `cols` columns with the elements `weight(row, col)`. `longest` is the
    /// longest piece of a row that the left matrix is read in.
    pub(super) fn new(
        isa: Isa,
        depth: usize,
        cols: usize,
        longest: usize,
        weight: impl Fn(usize, usize) -> f32,
    ) -> Self {
        let lanes = isa.lanes();
        let sizes = tile_simd::tile_sizes(isa);
        let mut bounds = vec![0];
        let mut vectors = cols.div_ceil(lanes);
        let widest = balanced(vectors, sizes.len());
        while vectors > 0 {
            let width = balanced(vectors, sizes.len());
            vectors -= width;
            bounds.push(cols.min(bounds[bounds.len() - 1] + width * lanes));
        }
        let mut data = AlignedVec::zeros(depth * cols.next_multiple_of(lanes));
        let mut at = 0;
        for panel in bounds.windows(2) {
            let width = (panel[1] - panel[0]).next_multiple_of(lanes);
            for row in 0..depth {
                for col in panel[0]..panel[1] {
                    data[at + col - panel[0]] = weight(row, col);
                }
                at += width;
            }
        }
        Self { isa, depth, bounds, data, zeros: vec![0.0; longest], tile_rows: sizes[widest - 1] }
    }

    /// Columns.
    pub(super) fn cols(&self) -> usize {
        self.bounds[self.bounds.len() - 1]
    }

    /// Writes act(rows times this + bias + residual) to the columns from `first_col` on of `y`, a matrix with `stride`
    /// elements a row.
    pub(super) fn multiply(
        &self,
        rows: &impl Rows,
        finish: &Finish<'_>,
        y: &mut [f32],
        stride: usize,
        first_col: usize,
        par: Par,
    ) {
        let (clamp, rest) = split_activation(finish.activation);
        let job =
            Job { isa: self.isa, x: rows.x(), zeros: &self.zeros, bias: finish.bias, residual: finish.residual, clamp };
        let count = y.len() / stride;
        let tile_rows = balanced(count, self.tile_rows);
        let (row_chunk, bound_chunk) = self.cut(count, tile_rows, par);
        let cut = Cut { row_chunk, bounds: &self.bounds, bound_chunk, first_col };
        for_each_block(y, stride, &cut, par, |panels, mut block| {
            TABLE.with_borrow_mut(|table| {
                table.start(&job);
                for first in block.rows.clone().step_by(tile_rows) {
                    let rows_here = tile_rows.min(block.rows.end - first);
                    table.push(|offsets| rows.tile(first, rows_here, offsets));
                }
                // Panels outside: the tables of all tiles are made before the first result is written, because a short
                // product would otherwise wait for the memory at each tile.
                for panel in panels {
                    let cols = self.bounds[panel]..self.bounds[panel + 1];
                    let end = cols.end.next_multiple_of(self.isa.lanes());
                    let weights = &self.data[cols.start * self.depth..end * self.depth];
                    table.multiply(&job, weights, &mut block, first_col + cols.start..first_col + cols.end);
                }
            });
            if let Some(f) = rest {
                finish_block(f, &mut block);
            }
        });
    }

    /// Rows and panels in a block: whole rows where there are enough, no more than stay in the cache.
    fn cut(&self, rows: usize, tile_rows: usize, par: Par) -> (usize, usize) {
        let panels = self.bounds.len() - 1;
        let tiles = rows.div_ceil(tile_rows);
        let cached_tiles = (CACHED_ELEMENTS / (self.depth * tile_rows).max(1)).max(1);
        let pieces = par.pieces(rows * self.cols() * self.depth);
        if pieces <= tiles {
            (tile_rows * tiles.div_ceil(pieces).min(cached_tiles), panels)
        } else {
            let row_blocks = pieces.div_ceil(panels).min(tiles);
            (tile_rows * tiles.div_ceil(row_blocks), panels.div_ceil(pieces.div_ceil(row_blocks)))
        }
    }
}

/// The smallest length of pieces, at most `longest`, that makes as few pieces of `count` rows as `longest` does.
pub(super) fn balanced(count: usize, longest: usize) -> usize {
    count.div_ceil(count.div_ceil(longest).max(1)).max(1)
}
