//! The weights of an axis as the kernel multiplies with them.

use crate::error::KernelError;
use crate::preprocess::weights::TableKey;

/// Outputs that the kernel makes together.
pub(super) const OUTPUTS: usize = 16;
/// Inputs that one step of a product goes through.
pub(super) const INPUTS: usize = 32;
/// Digits of a weight.
const DIGITS: usize = 3;
/// Bytes of a matrix of one digit.
const MATRIX_BYTES: usize = OUTPUTS * INPUTS;

/// An axis and how its blocks start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AxisKey {
    pub(super) axis: TableKey,
    /// Blocks start at multiples of this.
    pub(super) align: usize,
}

/// Where the inputs of [`OUTPUTS`] neighbouring outputs lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) start: usize,
    /// Inputs.
    pub(super) extent: usize,
    /// Steps of [`INPUTS`] inputs.
    pub(super) steps: usize,
    /// Step of the table that is the block's first.
    first: usize,
}

/// The blocks of an axis, and the bytes of a `Table` of `preprocess.cuh`.
pub(super) struct AxisTable {
    pub(super) blocks: Vec<Block>,
    pub(super) bytes: Vec<u8>,
}

impl AxisTable {
    /// # Errors
    /// Where a weight is 2 or more, which no filter has.
    pub(super) fn new(key: &AxisKey) -> Result<Self, KernelError> {
        let outputs = key.axis.weights();
        let mut blocks = Vec::with_capacity(outputs.len().div_ceil(OUTPUTS));
        let mut first = 0;
        for outputs in outputs.chunks(OUTPUTS) {
            let start = outputs.iter().map(|(first, _)| *first).min().unwrap_or(0) / key.align * key.align;
            let end = outputs.iter().map(|(first, weights)| first + weights.len()).max().unwrap_or(0);
            let extent = end.saturating_sub(start);
            let steps = extent.div_ceil(INPUTS);
            blocks.push(Block { start, extent, steps, first });
            first += steps;
        }
        let mut bytes = Vec::with_capacity(blocks.len() * 16 + first * DIGITS * MATRIX_BYTES);
        for block in &blocks {
            for value in [block.start, block.extent, block.steps, block.first] {
                bytes.extend_from_slice(&(value as u32).to_le_bytes());
            }
        }
        for (block, outputs) in blocks.iter().zip(outputs.chunks(OUTPUTS)) {
            let from = bytes.len();
            bytes.resize(from + block.steps * DIGITS * MATRIX_BYTES, 0);
            let matrices = &mut bytes[from..];
            for (row, (first, weights)) in outputs.iter().enumerate() {
                for (i, &weight) in weights.iter().enumerate() {
                    let input = first + i - block.start;
                    for (digit, value) in digits(weight)?.into_iter().enumerate() {
                        let matrix = input / INPUTS * DIGITS + digit;
                        matrices[matrix * MATRIX_BYTES + place(row, input % INPUTS)] = value as u8;
                    }
                }
            }
        }
        Ok(Self { blocks, bytes })
    }
}

/// `weight` with radix 256, lowest digit first, each -128..=127.
fn digits(weight: i32) -> Result<[i8; DIGITS], KernelError> {
    let low = weight as i8;
    let rest = (weight - i32::from(low)) >> 8;
    let middle = rest as i8;
    let high = i8::try_from((rest - i32::from(middle)) >> 8);
    let high = high.map_err(|_| KernelError::invalid("resize", format!("a weight of {weight} / 2^22")))?;
    Ok([low, middle, high])
}

/// Byte of a weight in its matrix: the fragment of operand A of mma.m16n8k32, 16 bytes a lane.
fn place(row: usize, input: usize) -> usize {
    let lane = row % 8 * 4 + input % 16 / 4;
    let register = row / 8 + input / 16 * 2;
    lane * 16 + register * 4 + input % 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_make_the_weight() {
        for weight in (-(1 << 22)..1 << 23).step_by(101).chain([0, 1, -1, 127, 128, -128, -129, 1 << 22, 32767, 32768])
        {
            if let Ok([low, middle, high]) = digits(weight) {
                assert_eq!(i32::from(low) + 256 * i32::from(middle) + 65536 * i32::from(high), weight);
            } else {
                assert!(weight >= 127 * 65536 + 32639, "{weight}");
            }
        }
        assert!(digits(1 << 23).is_err());
    }

    #[test]
    fn every_byte_of_a_matrix_has_one_place() {
        let mut seen = [false; MATRIX_BYTES];
        for row in 0..OUTPUTS {
            for input in 0..INPUTS {
                assert!(!std::mem::replace(&mut seen[place(row, input)], true));
            }
        }
    }
}
