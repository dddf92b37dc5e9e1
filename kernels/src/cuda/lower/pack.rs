//! Constants in the forms that kernels read.

use super::Precision;
use crate::plan::Constant;
use crate::tensor::DType;

/// How a constant's elements lie in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packing {
    /// The same order, in another type.
    Cast(DType),
    /// A convolution's weights [K, R, S, C / groups] or a matrix product's [N, K] as rows of a matrix.
    Filter(Filter),
    /// The first dimension last, in another type: the elements of all output channels side by side.
    FirstLast(DType),
}

/// Rows of a matrix, one an output channel: elements in the order r, s, c, zeros to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Filter {
    /// Element type and rounding.
    pub precision: Precision,
    /// Channels of a tap, at least the constant's: zeros behind those.
    pub channels: usize,
    /// Taps of a row come in whole numbers of these, zeros behind the last.
    pub pixels: usize,
    /// Zero taps before the first of a row, less than `pixels`.
    pub skip: usize,
    /// Elements of a row of the matrix.
    pub row: usize,
}

impl Packing {
    /// The bytes to upload.
    pub fn pack(self, constant: &Constant) -> Vec<u8> {
        match self {
            Self::Cast(dtype) => cast(&constant.data, dtype),
            Self::Filter(filter) => filter.pack(constant),
            Self::FirstLast(dtype) => cast(&first_last(constant), dtype),
        }
    }
}

impl Filter {
    fn pack(self, constant: &Constant) -> Vec<u8> {
        let [r, s, c] = match constant.dims[..] {
            [_, r, s, c] => [r, s, c],
            _ => [1, 1, constant.dims.last().copied().unwrap_or(1)],
        };
        let columns = (s + self.skip).next_multiple_of(self.pixels);
        let mut rows = vec![0.0; constant.data.len() / (r * s * c) * self.row];
        for (from, to) in constant.data.chunks(r * s * c).zip(rows.chunks_mut(self.row)) {
            for (tap, channels) in from.chunks(c).enumerate() {
                let place = (tap / s * columns + self.skip + tap % s) * self.channels;
                to[place..place + c].copy_from_slice(channels);
            }
        }
        if self.precision == Precision::Tf32 {
            for x in &mut rows {
                *x = to_tf32(*x);
            }
        }
        cast(&rows, self.precision.dtype())
    }
}

/// From [K, ...] to [..., K].
fn first_last(constant: &Constant) -> Vec<f32> {
    let rows = constant.dims.first().copied().unwrap_or(1);
    let columns = constant.data.len() / rows.max(1);
    (0..columns).flat_map(|column| constant.data.iter().skip(column).step_by(columns)).copied().collect()
}

/// Rounds to nearest even. Types other than f16 and bf16 are f32.
fn cast(data: &[f32], dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F16 => data.iter().flat_map(|&x| half::f16::from_f32(x).to_le_bytes()).collect(),
        DType::Bf16 => data.iter().flat_map(|&x| half::bf16::from_f32(x).to_le_bytes()).collect(),
        _ => data.iter().flat_map(|x| x.to_le_bytes()).collect(),
    }
}

/// Rounds to the 10 mantissa bits of TF32, halves away from zero, as `cvt.rna.tf32.f32` does.
fn to_tf32(x: f32) -> f32 {
    if x.is_finite() { f32::from_bits((x.to_bits() + 0x1000) & !0x1fff) } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(bytes: &[u8]) -> Vec<f32> {
        bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
    }

    /// Against the sentence that describes it, element by element.
    #[test]
    fn filters_become_rows() {
        for (dims, channels, pixels, skip) in [
            (vec![3, 2, 3, 5], 5, 1, 0),
            (vec![2, 3, 3, 3], 4, 1, 0),
            (vec![2, 3, 3, 3], 4, 2, 0),
            (vec![2, 3, 3, 3], 4, 2, 1),
            (vec![2, 7, 7, 1], 1, 8, 5),
            (vec![4, 6], 6, 1, 0),
        ] {
            let data = (1..=dims.iter().product::<usize>()).map(|i| i as f32).collect();
            let constant = Constant { dims: dims.clone(), data };
            let [k, r, s, c] = if let [k, r, s, c] = dims[..] { [k, r, s, c] } else { [dims[0], 1, 1, dims[1]] };
            let columns = (s + skip).div_ceil(pixels) * pixels;
            let row = r * columns * channels + 3;
            let filter = Filter { precision: Precision::Fp32, channels, pixels, skip, row };
            let packed = floats(&Packing::Filter(filter).pack(&constant));
            assert_eq!(packed.len(), k * row);
            for (i, &x) in packed.iter().enumerate() {
                let (feature, depth) = (i / row, i % row);
                let (r_, s_, c_) = (depth / channels / columns, depth / channels % columns, depth % channels);
                let real = r_ < r && (skip..skip + s).contains(&s_) && c_ < c;
                let want = if real { (((feature * r + r_) * s + s_ - skip) * c + c_ + 1) as f32 } else { 0.0 };
                assert_eq!(x, want, "{dims:?} {filter:?} {i}");
            }
        }
    }

    #[test]
    fn tf32_rounds_to_nearest() {
        for (x, want) in [
            (1.0f32, 1.0f32),
            (1.0 + 2f32.powi(-11), 1.0 + 2f32.powi(-10)),
            (-1.0 - 2f32.powi(-11), -1.0 - 2f32.powi(-10)),
            (1.0 + 2f32.powi(-12), 1.0),
            (2.0 - 2f32.powi(-20), 2.0),
            (0.0, 0.0),
        ] {
            assert_eq!(to_tf32(x), want, "{x}");
        }
        assert!(to_tf32(f32::NAN).is_nan() && to_tf32(f32::INFINITY) == f32::INFINITY);
    }

    #[test]
    fn halves_round_to_even() {
        let constant = Constant { dims: vec![2], data: vec![1.0 + 2f32.powi(-11), 1.0 + 3.0 * 2f32.powi(-11)].into() };
        assert_eq!(Packing::Cast(DType::F16).pack(&constant), [0x00, 0x3c, 0x02, 0x3c]);
    }
}
