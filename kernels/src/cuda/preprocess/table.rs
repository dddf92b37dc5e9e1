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

/// Which of the kernel's passes goes along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Pass {
    /// The first: reads samples four at a time, so that blocks start at multiples of that.
    Across,
    /// The second: takes a strip's rows in the order in which the first pass leaves them.
    Down,
}

impl Pass {
    /// Blocks start at multiples of this.
    fn alignment(self) -> usize {
        match self {
            Self::Across => 4,
            Self::Down => 1,
        }
    }

    /// Column of the matrix for the input at this place of a step.
    fn column(self, input: usize) -> usize {
        match self {
            Self::Across => input,
            // Rows 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of 16 are columns 4 t to 4 t + 3.
            Self::Down => input / 16 * 16 + input % 8 / 2 * 4 + input % 16 / 8 * 2 + input % 2,
        }
    }
}

/// An axis and what its weights are for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AxisKey {
    pub(super) axis: TableKey,
    pub(super) pass: Pass,
}

/// Where the inputs of [`OUTPUTS`] neighbouring outputs lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) start: usize,
    /// Inputs.
    pub(super) extent: usize,
    /// Steps of [`INPUTS`] inputs.
    pub(super) steps: usize,
    /// Where the weights of its first step are in the table, in units of 16 bytes.
    pub(super) first: usize,
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
        let count = outputs.len().div_ceil(OUTPUTS);
        let mut blocks = Vec::with_capacity(count);
        // Behind the blocks, 16 bytes each.
        let mut first = count;
        for outputs in outputs.chunks(OUTPUTS) {
            let start = outputs.iter().map(|(first, _)| *first).min().unwrap_or(0);
            let start = start / key.pass.alignment() * key.pass.alignment();
            let end = outputs.iter().map(|(first, weights)| first + weights.len()).max().unwrap_or(0);
            let extent = end.saturating_sub(start);
            let steps = extent.div_ceil(INPUTS);
            blocks.push(Block { start, extent, steps, first });
            first += steps * DIGITS * MATRIX_BYTES / 16;
        }
        let mut bytes = Vec::with_capacity(first * 16);
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
                        matrices[matrix * MATRIX_BYTES + place(row, key.pass.column(input % INPUTS))] = value as u8;
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
        for pass in [Pass::Across, Pass::Down] {
            let mut seen = [false; MATRIX_BYTES];
            for row in 0..OUTPUTS {
                for input in 0..INPUTS {
                    assert!(!std::mem::replace(&mut seen[place(row, pass.column(input))], true));
                }
            }
        }
    }
}
