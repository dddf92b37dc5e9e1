//! What one launch of `preprocess.cu` does, as data.

use std::ops::Range;
use std::sync::Arc;

use super::OutputFormat;
use super::table::{AxisKey, AxisTable, Block, INPUTS, OUTPUTS};
use crate::error::KernelError;
use crate::picture::{PictureDesc, PixelFormat};
use crate::preprocess::place::{MAX_PIXELS, Placement, constants, place};
use crate::preprocess::{ColourOrder, PreprocessDesc, ResizeRule};
use crate::tensor::{DType, Layout};

/// Shared memory that a block may take: two blocks fit a multiprocessor of every architecture.
pub(super) const MAX_SHARED_BYTES: usize = 48 << 10;
/// Of it, what holds a picture's description.
const HEADER_BYTES: usize = 256;
/// Source rows of a strip.
const STRIP: usize = 32;
/// Bytes of a column of 32 rows between the passes.
const COLUMN_BYTES: usize = 48;
/// Most blocks of outputs side by side.
const MAX_BLOCKS: usize = 8;
/// Bytes of the sums of 16 outputs by 8 lines.
const SUMS_BYTES: usize = 12 * 32 * 4;
/// Source columns in shared memory at a time where they do not all fit.
const CHUNK: usize = 352;
/// Output rows that a block fills with the border's value.
const BORDER_ROWS: usize = 16;

/// `Settings` of `preprocess.cuh`.
pub(super) fn settings(desc: &PreprocessDesc) -> Result<Vec<u8>, KernelError> {
    let constants = constants(desc)?;
    let fill = if let ResizeRule::Letterbox { fill, .. } = desc.resize { fill } else { [0; 3] };
    let border = [0, 1, 2].map(|c| f32::from(fill[c]).mul_add(constants[c].0, constants[c].1));
    let mut words = Words::default();
    words.floats(constants.map(|(factor, _)| factor));
    words.floats(constants.map(|(_, shift)| shift));
    words.floats(border);
    words.numbers([desc.width_px, desc.height_px, usize::from(desc.colour == ColourOrder::Bgr)]);
    Ok(words.0)
}

/// Little-endian words.
#[derive(Default)]
pub(super) struct Words(pub(super) Vec<u8>);

impl Words {
    fn floats(&mut self, values: [f32; 3]) {
        self.0.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }

    fn addresses<const N: usize>(&mut self, values: [u64; N]) {
        self.0.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }

    fn numbers<const N: usize>(&mut self, values: [usize; N]) {
        self.0.extend(values.iter().flat_map(|value| (*value as u32).to_le_bytes()));
    }
}

/// Everything about a picture but addresses. Pairs are axis u, axis v: the first pass goes along u.
pub(super) struct PicturePlan {
    desc: PictureDesc,
    pub(super) placed: Placement,
    /// The vertical pass comes first: u are rows.
    vertical_first: bool,
    /// What the passes multiply with.
    pub(super) axes: [AxisKey; 2],
}

/// How a picture is cut into blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Blocks of outputs along u that a thread block makes.
    blocks: usize,
    /// Bytes of a row of samples in shared memory.
    line: usize,
    /// Columns at a time.
    chunk: usize,
    pub(super) shared_bytes: usize,
    /// Source samples that a thread block reads, for the order of work.
    cost: usize,
}

impl Cut {
    /// The largest cut whose blocks fit shared memory.
    pub(super) fn new(across: &AxisTable, down: &AxisTable) -> Self {
        let all = across.blocks.len();
        let strips = down.blocks.iter().map(|block| block.steps).max().unwrap_or(1);
        let rows = down.blocks.iter().map(|block| block.extent).max().unwrap_or(1);
        let kept_down = |blocks: usize| if strips > 1 { 2 * blocks * SUMS_BYTES } else { 0 };
        let between = |blocks: usize| 3 * OUTPUTS * blocks * COLUMN_BYTES;
        for most in (1..=MAX_BLOCKS.min(all)).rev() {
            let blocks = all.div_ceil(all.div_ceil(most));
            let wide = across.blocks.chunks(blocks).map(width).max().unwrap_or(1);
            let line = odd_line(wide);
            let shared_bytes = HEADER_BYTES + 3 * STRIP * line + between(blocks) + kept_down(blocks);
            if shared_bytes <= MAX_SHARED_BYTES {
                return Self { blocks, line, chunk: wide.next_multiple_of(INPUTS), shared_bytes, cost: rows * wide };
            }
        }
        let line = odd_line(CHUNK + 8);
        let kept_across = STRIP / 8 * SUMS_BYTES;
        let shared_bytes = HEADER_BYTES + 3 * STRIP * line + between(1) + kept_down(1) + kept_across;
        let wide = across.blocks.iter().map(|block| block.extent).max().unwrap_or(1);
        Self { blocks: 1, line, chunk: CHUNK, shared_bytes, cost: rows * wide }
    }
}

impl PicturePlan {
    /// # Errors
    /// Where the picture is empty or too large.
    pub(super) fn new(desc: &PreprocessDesc, picture: &PictureDesc) -> Result<Self, KernelError> {
        let pixels = picture.width_px.checked_mul(picture.height_px);
        if !pixels.is_some_and(|n| (1..=MAX_PIXELS).contains(&n)) {
            let why = format!("a picture of {} x {} pixels", picture.width_px, picture.height_px);
            return Err(KernelError::invalid("preprocess", why));
        }
        let source = picture.upright_size();
        let placed = place(desc, source);
        let job = placed.job(desc, source);
        let vertical_first = job.vertical_first();
        let [u, v] = if vertical_first { [1, 0] } else { [0, 1] };
        // The first pass reads samples four at a time.
        let axes = [AxisKey { axis: job.key(u), align: 4 }, AxisKey { axis: job.key(v), align: 1 }];
        Ok(Self { desc: *picture, placed, vertical_first, axes })
    }

    /// Outputs along u and v.
    fn size(&self) -> [usize; 2] {
        let [width, height] = self.placed.size;
        if self.vertical_first { [height, width] } else { [width, height] }
    }

    /// `Picture` of `preprocess.cuh`.
    pub(super) fn write(&self, to: &mut Words, cut: &Cut, slot: usize, planes: [(u64, u32); 3], tables: [u64; 2]) {
        let [flip_x, flip_y] = self.desc.orientation.flips().map(usize::from);
        let swap = self.desc.orientation.swaps_axes() != self.vertical_first;
        let [chroma_width, chroma_height] = self.desc.chroma_size();
        let format = match self.desc.format {
            PixelFormat::Rgb => 0,
            PixelFormat::Gray => 1,
            PixelFormat::Ycc(_) => 2,
            PixelFormat::Nv12 => 3,
        };
        let used = &planes[..self.desc.planes()];
        let vector = used.iter().all(|(address, pitch)| address % 4 == 0 && pitch % 4 == 0);
        let chroma = Chroma::new(&self.desc);
        to.addresses(planes.map(|(address, _)| address));
        to.addresses(tables);
        to.numbers(planes.map(|(_, pitch)| pitch as usize));
        to.numbers([slot, self.desc.width_px, self.desc.height_px, chroma_width, chroma_height, format]);
        to.numbers(chroma.shift);
        to.numbers([usize::from(chroma.smooth)]);
        to.numbers(chroma.weights);
        to.numbers(chroma.row_bias);
        to.numbers(chroma.column_bias);
        to.numbers([usize::from(vector), usize::from(swap), flip_x, flip_y]);
        to.numbers(self.size());
        to.numbers([usize::from(self.vertical_first)]);
        to.numbers(self.placed.to);
        // The last word is padding: a multiple of 8 bytes in all.
        to.numbers([cut.line, cut.chunk, 0]);
    }

    /// `Item`s of `preprocess.cuh`; gives their number.
    pub(super) fn write_items(&self, to: &mut Words, index: usize, cut: &Cut, desc: &PreprocessDesc) -> usize {
        let before = to.0.len();
        let [across, down] = self.size().map(|n| n.div_ceil(OUTPUTS));
        for v in 0..down {
            for u in (0..across).step_by(cut.blocks) {
                to.numbers([index, cut.blocks.min(across - u), u, v]);
            }
        }
        let ([column, row], [width, height]) = (self.placed.to, self.placed.size);
        let (whole, left, right) = (0, (-1i32) as u32 as usize, (-2i32) as u32 as usize);
        let mut border = |part: usize, rows: Range<usize>| {
            for first in rows.clone().step_by(BORDER_ROWS) {
                to.numbers([index, part, first, BORDER_ROWS.min(rows.end - first)]);
            }
        };
        border(whole, 0..row);
        border(whole, row + height..desc.height_px);
        if column > 0 {
            border(left, row..row + height);
        }
        if column + width < desc.width_px {
            border(right, row..row + height);
        }
        (to.0.len() - before) / ITEM_BYTES
    }
}

/// Bytes of an `Item`.
const ITEM_BYTES: usize = 16;

/// Columns from the multiple of 8 at or before the first block's start to the end of what any step of the blocks reads.
fn width(blocks: &[Block]) -> usize {
    let from = blocks[0].start / 8 * 8;
    let end = blocks.iter().map(|block| block.start + block.steps * INPUTS).max().unwrap_or(from);
    (end - from).next_multiple_of(8)
}

/// An odd multiple of 16 bytes: eight rows then start in different banks.
fn odd_line(bytes: usize) -> usize {
    bytes.div_ceil(16) / 2 * 32 + 16
}

/// How the kernel interpolates chroma, in units of 1 / 256: see [`crate::cpu::planes`].
struct Chroma {
    shift: [usize; 2],
    smooth: bool,
    weights: [usize; 2],
    row_bias: [usize; 2],
    column_bias: [usize; 2],
}

impl Chroma {
    fn new(desc: &PictureDesc) -> Self {
        let factors = desc.chroma_factors().unwrap_or([1; 2]);
        let repeated = Self {
            shift: factors.map(|factor| factor.ilog2() as usize),
            smooth: false,
            weights: [256, 0],
            row_bias: [0; 2],
            column_bias: [0; 2],
        };
        let wide = desc.chroma_size()[0] > 2;
        match factors {
            [2, 2] if wide => Self { smooth: true, weights: [48, 16], column_bias: [128, 112], ..repeated },
            [2, 1] if wide => Self { smooth: true, weights: [64, 0], column_bias: [64, 128], ..repeated },
            [1, 2] => Self { weights: [192, 64], row_bias: [64, 128], ..repeated },
            _ => repeated,
        }
    }
}

/// The tables and grid of a launch.
pub(super) struct Batch {
    /// `Settings`, `Picture`s, `Item`s, in this order.
    pub(super) words: Words,
    pub(super) pictures_at: usize,
    pub(super) items_at: usize,
    pub(super) items: usize,
    pub(super) shared_bytes: usize,
}

impl Batch {
    /// Puts planned pictures together; picture `i` goes to place `i` of the output. What takes longest is started first.
    pub(super) fn new(
        desc: &PreprocessDesc,
        settings: &[u8],
        pictures: &[Arc<(PicturePlan, Cut)>],
        mut addresses: impl FnMut(usize) -> ([(u64, u32); 3], [u64; 2]),
    ) -> Self {
        let mut words = Words(settings.to_vec());
        words.0.resize(settings.len().next_multiple_of(16), 0);
        let pictures_at = words.0.len();
        for (i, picture) in pictures.iter().enumerate() {
            let (plan, cut) = picture.as_ref();
            let (planes, tables) = addresses(i);
            plan.write(&mut words, cut, i, planes, tables);
        }
        let items_at = words.0.len();
        let mut order: Vec<_> = (0..pictures.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(pictures[i].1.cost));
        let mut items = 0;
        for i in order {
            let (plan, cut) = pictures[i].as_ref();
            items += plan.write_items(&mut words, i, cut, desc);
        }
        let shared_bytes = pictures.iter().map(|picture| picture.1.shared_bytes).max().unwrap_or(HEADER_BYTES);
        Self { words, pictures_at, items_at, items, shared_bytes }
    }
}

/// Checks an output format against what the kernel writes.
pub(super) fn check_output(output: &OutputFormat) -> Result<(), KernelError> {
    let fits = match output.layout {
        Layout::Nchw => output.pitch == 3,
        Layout::Nhwc => (3..=64).contains(&output.pitch),
    };
    if !fits || !matches!(output.dtype, DType::F32 | DType::F16 | DType::Bf16) {
        return Err(KernelError::invalid("preprocess", format!("no output of {output:?}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_odd() {
        for bytes in 1..400 {
            let line = odd_line(bytes);
            assert!(line >= bytes && line % 32 == 16 && line < bytes + 32, "{bytes}: {line}");
        }
    }
}
