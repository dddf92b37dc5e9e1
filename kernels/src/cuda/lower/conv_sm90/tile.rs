//! Which tile a convolution is cut into, by a model of what a tile takes.

use super::super::Target;

/// A convolution as a matrix product.
pub(super) struct Problem {
    /// Rows: N P Q.
    pub(super) pixels: usize,
    /// Input channels.
    pub(super) c: usize,
    /// Columns: output channels.
    pub(super) k: usize,
    /// Steps of 64 channels that a sum takes.
    pub(super) steps: usize,
    /// Another tensor of the result's shape is read.
    pub(super) residual: bool,
}

/// Shape of a tile. Every one sums in the same order, so the choice does not show in the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    /// Pixels.
    pub(super) m: u32,
    /// Output channels.
    pub(super) n: u32,
    /// Warp groups that share a tile: of one, the epilogue runs under the other's products; two reach larger tiles,
    /// which read less from the second-level cache.
    pub(super) groups: u32,
}

/// The tiles that are tried; of equals the first is taken.
const TILES: [Tile; 6] = [
    Tile { m: 64, n: 64, groups: 1 },
    Tile { m: 128, n: 64, groups: 1 },
    Tile { m: 64, n: 256, groups: 1 },
    Tile { m: 128, n: 128, groups: 1 },
    Tile { m: 128, n: 256, groups: 2 },
    Tile { m: 256, n: 128, groups: 2 },
];

/// How the kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Config {
    /// Tile.
    pub(super) tile: Tile,
    /// Steps loaded ahead.
    pub(super) stages: usize,
    /// Slabs of `m` x 64 results in shared memory.
    pub(super) slots: usize,
    /// All weights are kept in shared memory.
    pub(super) weights_stay: bool,
}

// The model's figures are those with which it picks, for the layers of ResNet-50 at batch 256 on an H200, tiles that take
// one per cent longer in all than the fastest of those tried.

/// Multiply-adds a clock of a multiprocessor.
const PRODUCTS_PER_CLOCK: usize = 2048;
/// Bytes a clock between a multiprocessor and the second-level cache while all ask.
const CACHE_BYTES_PER_CLOCK: usize = 48;
/// Bytes a clock that are a multiprocessor's part of the device memory's bandwidth.
const MEMORY_BYTES_PER_CLOCK: usize = 18;
/// Results a clock of the epilogue of a warp group; with a residual half of it.
const EPILOGUE_PER_CLOCK: usize = 8;
/// What a tile takes beside that: hand-overs between those who load, multiply and store.
const TILE_CLOCKS: usize = 200;
/// Weights that stay leave the rest of shared memory for what is under way.
const MAX_STAY_BYTES: usize = 96 << 10;

impl Tile {
    fn count_n(self, problem: &Problem) -> usize {
        problem.k.div_ceil(self.n as usize)
    }

    /// Tiles of the result.
    pub(super) fn count(self, problem: &Problem) -> usize {
        problem.pixels.div_ceil(self.m as usize) * self.count_n(problem)
    }

    fn weight_bytes(self) -> usize {
        self.n as usize * 128
    }

    fn slab_bytes(self) -> usize {
        self.m as usize * 128
    }

    fn stay_bytes(self, problem: &Problem) -> usize {
        self.count_n(problem) * problem.steps * self.weight_bytes()
    }

    /// None where fewer than three stages fit.
    fn config(self, problem: &Problem, shared_bytes: usize, weights_stay: bool) -> Option<Config> {
        let stay_bytes = if weights_stay { self.stay_bytes(problem) } else { 0 };
        if stay_bytes > MAX_STAY_BYTES {
            return None;
        }
        // Slabs on their way from and to memory: the more, the sooner a tile's products are done.
        let moving_bytes: usize = match problem.steps {
            0..=2 if problem.residual => 96 << 10,
            0..=8 => 64 << 10,
            _ => 48 << 10,
        };
        let slots = usize::max(moving_bytes.div_ceil(self.slab_bytes()), 2);
        let empty = Config { tile: self, stages: 0, slots, weights_stay };
        let left = shared_bytes.checked_sub(empty.shared_bytes(problem))?;
        let stages = usize::min(left / empty.stage_bytes(), 8);
        (stages >= 3).then_some(Config { stages, ..empty })
    }
}

impl Config {
    /// With the two barriers of a stage.
    fn stage_bytes(&self) -> usize {
        let weights = if self.weights_stay { 0 } else { self.tile.weight_bytes() };
        self.tile.slab_bytes() + weights + 16
    }

    /// Shared memory of a block, laid out as the kernel says: weights, stages, slabs, barriers.
    pub(super) fn shared_bytes(&self, problem: &Problem) -> usize {
        let stay = if self.weights_stay { self.tile.stay_bytes(problem) } else { 0 };
        stay + self.stages * self.stage_bytes() + self.slots * (self.tile.slab_bytes() + 16) + 40
    }

    /// Modelled time in clocks: weights that must come first, then the tiles of the busiest multiprocessor, each as long as
    /// the slowest of products, cache and memory takes, and the epilogues that run under nothing.
    fn clocks(&self, problem: &Problem, target: &Target) -> usize {
        let (m, n) = (self.tile.m as usize, self.tile.n as usize);
        let products = m * n * 64 * problem.steps / PRODUCTS_PER_CLOCK;
        let tensors = if problem.residual { 2 } else { 1 };
        let results = 2 * m * usize::min(n, problem.k) * tensors;
        let cache = (self.stage_bytes() * problem.steps + results) / CACHE_BYTES_PER_CLOCK;
        let memory = (results + 2 * m * problem.c / self.tile.count_n(problem)) / MEMORY_BYTES_PER_CLOCK;
        let epilogue = m * n * tensors / (EPILOGUE_PER_CLOCK * self.tile.groups as usize);
        let tile = products.max(cache).max(memory) + TILE_CLOCKS;
        let tiles = self.tile.count(problem).div_ceil(target.multiprocessors as usize);
        let start = if self.weights_stay { self.tile.stay_bytes(problem) / CACHE_BYTES_PER_CLOCK } else { 0 };
        start + if self.tile.groups == 1 { tiles * tile + epilogue } else { tiles * (tile + epilogue) }
    }
}

/// The fastest by the model.
pub(super) fn choose(problem: &Problem, target: &Target) -> Option<Config> {
    let shared_bytes = target.shared_bytes as usize;
    let configs = TILES.iter().flat_map(|tile| [true, false].map(|stay| tile.config(problem, shared_bytes, stay)));
    configs.flatten().min_by_key(|config| config.clocks(problem, target))
}
