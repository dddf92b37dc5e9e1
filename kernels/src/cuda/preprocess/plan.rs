//! What one launch of `preprocess.cu` does, as data.

use std::ops::Range;
use std::sync::Arc;

use super::super::device::Facts;
use super::table::{AxisKey, AxisTable, Block, INPUTS, Pass};
use super::{OutputFormat, THREADS};
use crate::error::KernelError;
use crate::picture::{PictureDesc, PixelFormat};
use crate::preprocess::place::{MAX_PIXELS, Placement, constants, place};
use crate::preprocess::{ColourOrder, PreprocessDesc, ResizeRule};
use crate::tensor::{DType, Layout};

/// Warps of a thread block.
const WARPS: usize = THREADS as usize / 32;
/// Of shared memory, what holds a picture's description.
const HEADER_BYTES: usize = 320;
/// Source rows of a strip.
const STRIP: usize = 32;
/// Rows of a strip that a warp resamples at a time.
const UNIT: usize = 8;
/// Most blocks of outputs side by side: where a launch has work enough for every multiprocessor, a little more than twice as many
/// as a thread block has warps, which costs less in all; else as many. (The 14 of 224 columns are two for each warp; the 16 of
/// 256 take a third round, where two thread blocks of 8 would take two each.)
const MAX_BLOCKS: [usize; 2] = [2 * WARPS + 2, WARPS];
/// There is work enough where every multiprocessor has at least this many times as many thread blocks as run at a time.
const ENOUGH_ROUNDS: usize = 4;
/// Bytes of the sums of 16 outputs by 8 lines.
const SUMS_BYTES: usize = 12 * 32 * 4;
/// Pixels that are read at a time.
const PIXELS: usize = 16;
/// Source columns in shared memory at a time where they do not all fit: as many as two blocks of a multiprocessor with the
/// least shared memory, 100 KiB, have room for.
const CHUNK: usize = 256;

/// Thread blocks that a multiprocessor runs at the same time, by the registers that the kernel asks for.
pub(super) fn blocks_at_a_time(facts: &Facts) -> usize {
    if (facts.arch.major, facts.arch.minor) == (9, 0) { 4 } else { 2 }
}

/// Shared memory that a block may take, of what the device allows one, so that as many `blocks` fit a multiprocessor.
pub(super) fn shared_budget_bytes(device_bytes: usize, blocks: usize) -> usize {
    (device_bytes / blocks).saturating_sub(1 << 10)
}

/// Blocks that a device runs at the same time, about.
pub(super) fn resident_blocks(facts: &Facts) -> usize {
    blocks_at_a_time(facts) * facts.multiprocessors as usize
}

/// Output rows that a block fills with the border's value.
const BORDER_ROWS: usize = 16;

/// `Settings` of `preprocess.cuh`, for a GPU that runs about as many thread blocks at a time.
pub(super) fn settings(
    desc: &PreprocessDesc,
    output: &OutputFormat,
    resident_blocks: usize,
) -> Result<Vec<u8>, KernelError> {
    let step = if output.dtype == DType::I8 { output.step } else { 1.0 };
    let constants = constants(desc)?.map(|(factor, shift)| (factor / step, shift / step));
    let fill = if let ResizeRule::Letterbox { fill, .. } = desc.resize { fill } else { [0; 3] };
    let border = [0, 1, 2].map(|c| f32::from(fill[c]).mul_add(constants[c].0, constants[c].1));
    let mut words = Words::default();
    words.floats(constants.map(|(factor, _)| factor));
    words.floats(constants.map(|(_, shift)| shift));
    words.floats(border);
    words.numbers([desc.width_px, desc.height_px, usize::from(desc.colour == ColourOrder::Bgr)]);
    words.numbers([resident_blocks, 0x6564, 1 << 21, 0x9b00_9b00]);
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

/// A picture's plan and how it is cut, coarsely and finely.
pub(super) struct Planned {
    pub(super) plan: PicturePlan,
    cuts: [Cut; 2],
}

impl Planned {
    /// Of whose axes these are the tables, for blocks of up to `budget_bytes` of shared memory.
    pub(super) fn new(plan: PicturePlan, desc: &PreprocessDesc, tables: [&AxisTable; 2], budget_bytes: usize) -> Self {
        let cuts = MAX_BLOCKS.map(|most| Cut::new(&plan.placed, desc, tables, (most, budget_bytes)));
        Self { plan, cuts }
    }
}

/// How a picture is cut into blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cut {
    /// Blocks of outputs along u that a thread block makes.
    blocks: usize,
    /// Bytes of a row of samples in shared memory.
    line: usize,
    /// Columns at a time.
    chunk: usize,
    /// Warps that share the rows of a strip.
    parts: usize,
    shared_bytes: usize,
    /// Source samples that a thread block reads, for the order of work.
    cost: usize,
    /// `Item`s of `preprocess.cuh` behind their first word.
    items: Vec<Item>,
}

/// An `Item` but for its first word, the picture.
type Item = [[usize; 5]; 3];
/// Words of an `Item`.
const ITEM_WORDS: usize = 16;

impl Cut {
    /// Cuts a picture, of whose axes these are the tables, with so many blocks side by side at most, for so many bytes of
    /// shared memory.
    fn new(placed: &Placement, desc: &PreprocessDesc, [across, down]: [&AxisTable; 2], most: (usize, usize)) -> Self {
        let mut cut = Self::largest(across, down, most);
        for (v, down) in down.blocks.iter().enumerate() {
            for (n, across) in across.blocks.chunks(cut.blocks).enumerate() {
                let columns = sources(across);
                let (left, wide, top, rows) = (columns.start, columns.len(), down.start, down.extent);
                let (count, first, step) = (across.len(), n * cut.blocks, down.first);
                let (columns_at_first, rows_at_first) = (wide.min(cut.chunk + PIXELS), rows.min(STRIP));
                cut.items.push([
                    [count, first, v, left, wide],
                    [top, rows, step, 0, 0],
                    [0, left, top, columns_at_first, rows_at_first],
                ]);
            }
        }
        cut.add_border(placed, desc);
        cut
    }

    /// Fills what of the output lies around the picture.
    fn add_border(&mut self, placed: &Placement, desc: &PreprocessDesc) {
        let ([column, row], [width, height]) = (placed.to, placed.size);
        let (whole, left, right) = (0, (-1i32) as u32 as usize, (-2i32) as u32 as usize);
        let mut add = |part: usize, rows: Range<usize>| {
            let count = |first: usize| BORDER_ROWS.min(rows.end - first);
            let items =
                rows.clone().step_by(BORDER_ROWS).map(|first| [[part, first, count(first), 0, 0], [0; 5], [0; 5]]);
            self.items.extend(items);
        };
        add(whole, 0..row);
        add(whole, row + height..desc.height_px);
        if column > 0 {
            add(left, row..row + height);
        }
        if column + width < desc.width_px {
            add(right, row..row + height);
        }
    }

    /// The largest cut whose blocks fit, or [`CHUNK`] columns at a time; without items.
    fn largest(across: &AxisTable, down: &AxisTable, (most_blocks, budget_bytes): (usize, usize)) -> Self {
        let all = across.blocks.len();
        let strips = down.blocks.iter().map(|block| block.steps).max().unwrap_or(1);
        let rows = down.blocks.iter().map(|block| block.extent).max().unwrap_or(1);
        let cut = |blocks: usize, columns: usize, chunked: bool| {
            let line = odd_line(columns);
            let parts = match WARPS / blocks {
                _ if rows <= UNIT && !chunked => 1,
                0 | 1 => 1,
                2 | 3 => 2,
                _ => 4,
            };
            // Of every warp that hands on what it has summed up.
            let down = if strips > 1 || parts > 1 { 2 * blocks * parts } else { 0 };
            let across = if chunked { STRIP / UNIT } else { 0 };
            let shared_bytes = HEADER_BYTES + 3 * STRIP * line + (down + across) * SUMS_BYTES;
            let (chunk, cost) = (columns.next_multiple_of(INPUTS), rows * columns);
            Self { blocks, line, chunk, parts, shared_bytes, cost, items: Vec::new() }
        };
        for most in (1..=most_blocks.min(all)).rev() {
            let blocks = all.div_ceil(all.div_ceil(most));
            let wide = across.blocks.chunks(blocks).map(width).max().unwrap_or(1);
            let whole = cut(blocks, wide, false);
            if whole.shared_bytes <= budget_bytes {
                return whole;
            }
        }
        let wide = across.blocks.iter().map(|block| block.extent).max().unwrap_or(1);
        Self { chunk: CHUNK, cost: rows * wide, ..cut(1, CHUNK + INPUTS, true) }
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
        let axes = [AxisKey { axis: job.key(u), pass: Pass::Across }, AxisKey { axis: job.key(v), pass: Pass::Down }];
        Ok(Self { desc: *picture, placed, vertical_first, axes })
    }

    /// Outputs along u and v.
    fn size(&self) -> [usize; 2] {
        let [width, height] = self.placed.size;
        if self.vertical_first { [height, width] } else { [width, height] }
    }

    /// `Picture` of `preprocess.cuh`.
    fn write(&self, to: &mut Words, cut: &Cut, place: &Place, planes: [(u64, u32); 3], tables: [u64; 2]) {
        let [flip_x, flip_y] = self.desc.orientation.flips().map(usize::from);
        let swap = self.desc.orientation.swaps_axes() != self.vertical_first;
        let [chroma_width, chroma_height] = self.desc.chroma_size();
        let format = match self.desc.format {
            PixelFormat::Rgb => 0,
            PixelFormat::Gray => 1,
            PixelFormat::Ycc(_) => 2,
            PixelFormat::Nv12 => 3,
        };
        let chroma = Chroma::new(&self.desc);
        to.addresses(planes.map(|(address, _)| address));
        to.addresses(tables);
        let ([column, row], [width, _]) = (self.placed.to, self.placed.size);
        to.addresses([place.image, place.image + (row * place.width + column) * place.pixel].map(|n| n as u64));
        to.numbers(planes.map(|(_, pitch)| pitch as usize));
        to.numbers([self.desc.width_px, self.desc.height_px, chroma_width, chroma_height, format]);
        to.numbers(chroma.shift);
        to.numbers([usize::from(chroma.smooth)]);
        to.numbers(chroma.weights);
        // Two samples are added to side by side.
        to.numbers(chroma.row_bias.map(|bias| bias * 0x0001_0001));
        to.numbers([usize::from(swap), flip_x, flip_y]);
        to.numbers(self.size());
        let [step_x, step_y] = [place.pixel, place.width * place.pixel];
        to.numbers(if self.vertical_first { [step_y, step_x] } else { [step_x, step_y] });
        to.numbers([column, column + width]);
        to.numbers([cut.line, cut.chunk, cut.parts, 0]);
    }
}

/// Columns that blocks need, from a multiple of what is read at a time on.
fn sources(blocks: &[Block]) -> Range<usize> {
    let end = blocks.last().map_or(0, |block| block.start + block.extent);
    blocks[0].start / PIXELS * PIXELS..end
}

/// Columns from where the first block's pixels are read to the end of what any step of the blocks reads.
fn width(blocks: &[Block]) -> usize {
    let from = blocks[0].start / PIXELS * PIXELS;
    let end = blocks.iter().map(|block| block.start + block.steps * INPUTS).max().unwrap_or(from);
    (end - from).next_multiple_of(PIXELS)
}

/// An odd multiple of 16 bytes: eight rows then start in different banks.
fn odd_line(bytes: usize) -> usize {
    bytes.div_ceil(16) / 2 * 32 + 16
}

/// How the kernel interpolates chroma, in units of 1 / 256: see [`crate::cpu::planes`].
struct Chroma {
    shift: [usize; 2],
    /// Along rows, and then with weights that the kernel knows.
    smooth: bool,
    weights: [usize; 2],
    /// Added to each sum of two rows.
    row_bias: [usize; 2],
}

impl Chroma {
    fn new(desc: &PictureDesc) -> Self {
        let factors = desc.chroma_factors().unwrap_or([1; 2]);
        let smooth = factors[0] == 2 && factors[1] <= 2 && desc.chroma_size()[0] > 2;
        let (weights, row_bias) = if factors == [1, 2] { ([192, 64], [64, 128]) } else { ([256, 0], [0; 2]) };
        Self { shift: factors.map(|factor| factor.ilog2() as usize), smooth, weights, row_bias }
    }
}

/// Where an image lies in the output, in elements.
struct Place {
    /// Its first element.
    image: usize,
    /// From pixel to pixel.
    pixel: usize,
    /// Pixels of a row.
    width: usize,
}

/// The tables and grid of a launch, in memory that is used again for the next one.
#[derive(Default)]
pub(super) struct Batch {
    /// `Settings`, `Picture`s, `Item`s, in this order.
    pub(super) words: Words,
    pub(super) pictures_at: usize,
    pub(super) items_at: usize,
    pub(super) items: usize,
    pub(super) shared_bytes: usize,
    /// Pictures, those that take longest first.
    order: Vec<usize>,
}

impl Batch {
    /// Puts planned pictures together; picture `i` goes to place `i` of the output. What takes longest is started first.
    pub(super) fn fill(
        &mut self,
        desc: &PreprocessDesc,
        output: &OutputFormat,
        settings: &[u8],
        (pictures, resident_blocks): (&[Arc<Planned>], usize),
        mut addresses: impl FnMut(usize) -> ([(u64, u32); 3], [u64; 2]),
    ) {
        let Self { words, order, .. } = self;
        words.0.clear();
        words.0.extend_from_slice(settings);
        words.0.resize(settings.len().next_multiple_of(16), 0);
        self.pictures_at = words.0.len();
        let image = desc.width_px * desc.height_px * output.pitch;
        let pixel = if output.layout == Layout::Nchw { 1 } else { output.pitch };
        let coarse: usize = pictures.iter().map(|picture| picture.cuts[0].items.len()).sum();
        let size = usize::from(coarse < ENOUGH_ROUNDS * resident_blocks);
        let cut = |i: usize| &pictures[i].cuts[size];
        for (i, picture) in pictures.iter().enumerate() {
            let (planes, tables) = addresses(i);
            let place = Place { image: i * image, pixel, width: desc.width_px };
            picture.plan.write(words, cut(i), &place, planes, tables);
        }
        self.items_at = words.0.len();
        order.clear();
        order.extend(0..pictures.len());
        // Those that take as long as one another in their order; a stable sort takes memory.
        order.sort_unstable_by_key(|&i| (std::cmp::Reverse(cut(i).cost), i));
        for &i in &*order {
            for item in &cut(i).items {
                words.numbers([i]);
                for part in item {
                    words.numbers(*part);
                }
            }
        }
        self.items = (words.0.len() - self.items_at) / (4 * ITEM_WORDS);
        self.shared_bytes = (0..pictures.len()).map(|i| cut(i).shared_bytes).max().unwrap_or(HEADER_BYTES);
    }
}

/// Checks an output format against what the kernel writes.
pub(super) fn check_output(output: &OutputFormat) -> Result<(), KernelError> {
    let fits = match output.layout {
        Layout::Nchw => output.pitch == 3,
        Layout::Nhwc => (3..=64).contains(&output.pitch),
    };
    let stored = match output.dtype {
        DType::F32 | DType::F16 | DType::Bf16 => true,
        DType::I8 => output.step.is_normal() && output.step > 0.0,
        _ => false,
    };
    if !fits || !stored {
        return Err(KernelError::invalid("preprocess", format!("no output of {output:?}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cut_fits_its_budget() {
        let axis = |count, extent: usize| {
            let block = Block { start: 0, extent, steps: extent.div_ceil(INPUTS), first: 0 };
            AxisTable { blocks: vec![block; count], bytes: Vec::new() }
        };
        // What architectures from 8.0 on allow a block.
        for (device_kib, blocks) in [(99, 2), (163, 2), (227, 2), (227, 4)] {
            let budget_bytes = shared_budget_bytes(device_kib << 10, blocks);
            for columns in [1, 31, 300, 385, 386, 387, 640, 5000] {
                for (count, rows) in [(1, 1), (1, 8), (1, 500), (2, 32), (5, 33), (16, 8), (40, 100)] {
                    for most in MAX_BLOCKS {
                        let cut = Cut::largest(&axis(count, columns), &axis(1, rows), (most, budget_bytes));
                        // Warps that share rows have one task each.
                        let tasks = if cut.parts > 1 { cut.parts * cut.blocks } else { 0 };
                        assert!(
                            cut.shared_bytes <= budget_bytes && cut.blocks <= most && tasks <= WARPS,
                            "{device_kib} KiB, {count} x {columns} x {rows}: {cut:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn lines_are_odd() {
        for bytes in 1..400 {
            let line = odd_line(bytes);
            assert!(line >= bytes && line % 32 == 16 && line < bytes + 32, "{bytes}: {line}");
        }
    }
}
