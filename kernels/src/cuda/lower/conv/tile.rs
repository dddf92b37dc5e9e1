//! Tiles of the convolution kernels, and which one a layer gets.

use crate::cuda::lower::{Precision, Target};

/// How a block divides its work. None of this changes the order of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    /// Output pixels.
    m: usize,
    /// Output channels.
    n: usize,
    /// Warps side by side along m.
    warps_m: usize,
    /// Warps side by side along n.
    warps_n: usize,
    /// Depth of a stage.
    row_bytes: usize,
    /// Stages in shared memory.
    stages: usize,
    /// Blocks that the registers of a multiprocessor are to hold.
    blocks: usize,
}

const fn tile(size: [usize; 2], warps: [usize; 2], row_bytes: usize, stages: usize, blocks: usize) -> Tile {
    Tile { m: size[0], n: size[1], warps_m: warps[0], warps_n: warps[1], row_bytes, stages, blocks }
}

/// Tiles of `conv_mma.cu`.
const MMA: [Tile; 7] = [
    tile([128, 128], [2, 2], 64, 4, 2),
    tile([256, 64], [4, 1], 64, 4, 2),
    tile([128, 64], [2, 2], 64, 4, 3),
    tile([128, 32], [4, 1], 64, 4, 4),
    tile([64, 64], [2, 2], 128, 4, 3),
    tile([64, 32], [2, 2], 128, 5, 4),
    tile([32, 32], [2, 2], 128, 6, 4),
];

/// Tiles of `conv_fp32.cu`.
const FP32: [Tile; 3] =
    [tile([128, 64], [4, 1], 64, 4, 2), tile([64, 64], [2, 2], 64, 4, 3), tile([32, 32], [2, 2], 64, 4, 4)];

/// A layer as its tiles see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Output pixels of all images.
    pub pixels: usize,
    /// Output channels of a group.
    pub features: usize,
    /// Groups.
    pub groups: usize,
    /// Bytes of a row of the filter.
    pub depth_bytes: usize,
    /// Bytes that one copy of the input takes.
    pub copy_bytes: usize,
    /// Registers that a thread keeps for each row of the input's tile it copies.
    pub row_registers: usize,
}

impl Tile {
    /// The tile with which `size` takes the least time, as far as [`Tile::clocks`] knows.
    pub(super) fn choose(size: &Size, target: &Target) -> Self {
        let menu: &[Self] = if target.precision == Precision::Fp32 { &FP32 } else { &MMA };
        let room = |tile: &&Self| tile.shared_bytes() <= target.shared_bytes as usize;
        let tiles = menu.iter().filter(room).filter_map(|tile| tile.with_registers(tile.row_registers(size)));
        let clocks = |tile: &Self| tile.clocks(size, target);
        let best = tiles.min_by(|a, b| clocks(a).total_cmp(&clocks(b)));
        // The last and smallest fits everywhere.
        let smallest = menu[menu.len() - 1];
        best.unwrap_or(Self { blocks: 2, ..smallest })
    }

    /// The tile where a thread keeps `registers` for the rows it copies: with more than [`ROW_REGISTERS`] fewer blocks
    /// find room, and none where one of the tile takes all registers it can have.
    fn with_registers(self, registers: usize) -> Option<Self> {
        if registers <= ROW_REGISTERS {
            return Some(self);
        }
        let fewer = Self { blocks: self.blocks - 1, ..self };
        (registers <= 2 * ROW_REGISTERS && self.blocks > 2).then_some(fewer)
    }

    /// Threads of a block.
    pub(super) fn threads(&self) -> usize {
        32 * self.warps_m * self.warps_n
    }

    /// Dynamic shared memory of a block: the stages, later the sums.
    pub(super) fn shared_bytes(&self) -> usize {
        (self.stages * (self.m + self.n) * self.row_bytes).max(self.m * self.n * size_of::<f32>())
    }

    /// Blocks of a group.
    pub(super) fn count(&self, size: &Size) -> usize {
        size.pixels.div_ceil(self.m) * size.features.div_ceil(self.n)
    }

    /// Registers that a thread keeps for what it copies: all its rows of the input's tile, and where the filter's end.
    fn row_registers(&self, size: &Size) -> usize {
        let rows = self.m * (self.row_bytes / size.copy_bytes) / self.threads();
        rows * size.row_registers + usize::from(!size.features.is_multiple_of(self.n))
    }

    /// Clocks that the busiest multiprocessor needs: the largest of what arithmetic, shared memory and the second-level
    /// cache need for a slice of 32 bytes along the depth, and what a block spends at its start and its end.
    fn clocks(&self, size: &Size, target: &Target) -> f64 {
        // Products of 32 bytes with 32 bytes a clock: 128 fp32 of 8 products each, or 62 % of 2048 products of 16-bit
        // elements, which is what mma.sync reaches on Hopper.
        let products = if target.precision == Precision::Fp32 { 16.0 } else { 79.0 };
        let (shared_bytes_a_clock, cache_bytes_a_clock) = (128.0, 48.0);
        let wait = 1500.0;

        let blocks = (self.count(size) * size.groups).div_ceil(target.multiprocessors.max(1) as usize);
        let room = target.shared_bytes as usize / (self.shared_bytes() + 1024);
        let together = blocks.min(self.blocks.min(room)).max(1) as f64;
        let slices = (size.depth_bytes.div_ceil(self.row_bytes) * self.row_bytes / 32) as f64;

        let arithmetic = (self.m * self.n) as f64 / products;
        let copied = (32 * (self.m + self.n)) as f64;
        // Every warp reads its rows and its columns.
        let read = (32 * (self.warps_n * self.m + self.warps_m * self.n)) as f64;
        let shared = (copied + read) / shared_bytes_a_clock;
        // A block alone stands still at its barriers.
        let busy = (0.6 * together).min(1.0);
        let slice = (arithmetic.max(shared) / busy).max(copied / cache_bytes_a_clock);
        // Sums go to shared memory and back.
        let sums = (2 * self.m * self.n * size_of::<f32>()) as f64 / shared_bytes_a_clock;
        blocks as f64 * (slices * slice + sums + wait / together)
    }

    /// For the kernels.
    pub(super) fn defines(&self) -> [(&'static str, String); 7] {
        [
            ("BLOCK_M", self.m),
            ("BLOCK_N", self.n),
            ("BLOCKS", self.blocks),
            ("ROW_BYTES", self.row_bytes),
            ("STAGES", self.stages),
            ("THREADS", self.threads()),
            ("WARPS_N", self.warps_n),
        ]
        .map(|(name, value)| (name, value.to_string()))
    }
}

/// What [`Tile::row_registers`] may be without any tile's registers spilling; compiled for every architecture.
const ROW_REGISTERS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jit::Arch;

    fn target(precision: Precision) -> Target {
        let arch = Arch { major: 9, minor: 0 };
        Target { arch, multiprocessors: 132, shared_bytes: 227 << 10, precision, portable: true }
    }

    /// What the kernels assert when they are compiled, and the shared memory of the smallest architecture.
    #[test]
    fn tiles_are_whole() {
        for (menu, rows, columns) in [(&MMA[..], 16, 16), (&FP32[..], 4, 8)] {
            for tile in menu {
                assert!(tile.shared_bytes() <= 99 << 10, "{tile:?}");
                assert!(tile.m % (rows * tile.warps_m) == 0 && tile.n % (columns * tile.warps_n) == 0, "{tile:?}");
                assert!(tile.n.is_power_of_two() && tile.threads() % (tile.n / 8) == 0, "{tile:?}");
                assert_eq!(tile.m % (tile.threads() * 8 / tile.n), 0, "{tile:?}");
                assert!([64, 128].contains(&tile.row_bytes), "{tile:?}");
            }
        }
    }

    #[test]
    fn large_layers_get_large_tiles_and_small_ones_many_blocks() {
        let size = |pixels, features, depth: usize| {
            let (depth_bytes, copy_bytes, row_registers) = (2 * depth, 16, 2);
            Size { pixels, features, groups: 1, depth_bytes, copy_bytes, row_registers }
        };
        let target = target(Precision::Fp16);
        assert_eq!(Tile::choose(&size(256 * 28 * 28, 128, 9 * 128), &target), MMA[0]);
        assert_eq!(Tile::choose(&size(256 * 56 * 56, 64, 9 * 64), &target), MMA[1]);
        let small = Tile::choose(&size(1, 1000, 2048), &target);
        assert!(small.count(&size(1, 1000, 2048)) >= 30, "{small:?}");
    }
}
