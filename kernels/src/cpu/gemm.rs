//! Matrix products.
//!
//! Why our own kernel and not a crate: `gemm` 0.19 and `matrixmultiply` 0.3 on layers of `EfficientNet-Lite0`, GFLOP/s of
//! one thread (peak 113) of a shared Zen 4 machine. The table was taken once, by a program that is not kept: the candidates
//! in turn, 60 rounds, the best of each. `cargo bench -p ocellus-kernels --bench gemm` measures the same shapes one candidate
//! after another and prints estimates of the mean, which come out lower where other work runs beside it.
//!
//! | M x N x K | ours AVX-512 | ours AVX2 | ours plain | gemm | matrixmultiply |
//! | --- | --- | --- | --- | --- | --- |
//! | 12544 x 16 x 32 | 86 | 77 | 29 | 102 | 44 |
//! | 12544 x 96 x 16 | 58 | 83 | 25 | 93 | 79 |
//! | 3136 x 144 x 24 | 89 | 91 | 29 | 102 | 90 |
//! | 784 x 40 x 240 | 85 | 91 | 38 | 92 | 63 |
//! | 196 x 112 x 480 | 105 | 102 | 39 | 105 | 83 |
//! | 49 x 320 x 1152 | 109 | 99 | 35 | 81 | 62 |
//! | 49 x 1280 x 320 | 99 | 82 | 36 | 70 | 59 |
//! | 1 x 1000 x 1280 | 16 | 13 | 9 | 20 | 3 |
//!
//! `gemm` is ahead where K is short and on a single row. But it stores the bare sums, so that bias, residual and activation would cost a
//! second pass over the output, which is what such layers spend their time on; it needs a copy of the input for every
//! convolution that is not pointwise, which ours reads in place; and it promises no order of summation, on which the
//! same bits for every batch and thread count rest.

use super::matrix::{DenseRows, Finish, PackedMatrix};
use super::par::Par;
use super::vector_simd::Isa;
use crate::op::{Gemm, MatMul};
use crate::plan::Constant;

/// A product with constant weights, packed.
pub(super) struct PackedGemm {
    desc: Gemm,
    weights: PackedMatrix,
}

impl PackedGemm {
    pub(super) fn new(desc: &Gemm, weights: &Constant, isa: Isa) -> Self {
        let Gemm { n, k, .. } = *desc;
        let weights = PackedMatrix::new(isa, k, n, k, |row, col| weights.data[col * k + row]);
        Self { desc: *desc, weights }
    }

    pub(super) fn run(&self, x: &[f32], bias: Option<&[f32]>, residual: Option<&[f32]>, y: &mut [f32], par: Par) {
        let Gemm { n, k, epilogue, .. } = self.desc;
        let rows = DenseRows { x, stride: k, start: 0, len: k };
        let finish = Finish { bias, residual, activation: epilogue.activation };
        self.weights.multiply(&rows, &finish, y, n, 0, par);
    }
}

/// Batched product of two activations.
pub(super) fn matmul(desc: &MatMul, a: &[f32], b: &[f32], y: &mut [f32], isa: Isa, par: Par) {
    let MatMul { batch_a, batch_b, m, n, k } = *desc;
    let pack = |index: usize| {
        let b = &b[index * k * n..][..k * n];
        PackedMatrix::new(isa, k, n, k, |row, col| b[row * n + col])
    };
    let multiply = |packed: &PackedMatrix, index: usize, y: &mut [f32]| {
        let rows = DenseRows { x: &a[index * m * k..][..m * k], stride: k, start: 0, len: k };
        packed.multiply(&rows, &Finish::default(), y, n, 0, par);
    };
    let results = y.chunks_mut(m * n).enumerate();
    if batch_b == 1 {
        let packed = pack(0);
        results.for_each(|(i, y)| multiply(&packed, if batch_a == 1 { 0 } else { i }, y));
    } else {
        results.for_each(|(i, y)| multiply(&pack(i), if batch_a == 1 { 0 } else { i }, y));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, Random, activate, assert_close, assert_same_bits};
    use super::*;

    /// Element (row, col) of x w^T with the sum of its terms' absolute values.
    fn dot(x: impl Iterator<Item = f32>, w: impl Iterator<Item = f32>) -> (f64, f64) {
        let terms: Vec<f64> = x.zip(w).map(|(x, w)| f64::from(x) * f64::from(w)).collect();
        (terms.iter().sum(), terms.iter().map(|t| t.abs()).sum())
    }

    #[test]
    fn products_agree_with_gold_and_rows_do_not_depend_on_their_number() {
        let mut random = Random::new(7);
        for _ in 0..40 {
            let (m, n, k) = (random.size(1, 20), random.size(1, 150), random.pick(&[1, 2, 5, 33, 700, 1280]));
            let epilogue = testing::random_epilogue(&mut random, true);
            let desc = Gemm { m, n, k, epilogue };
            let (x, weights) = (random.values(m * k), Constant { dims: vec![n, k], data: random.values(n * k).into() });
            let bias = epilogue.bias.then(|| random.values(n));
            let residual = epilogue.residual.then(|| random.values(m * n));
            let gold: Vec<(f64, f64)> = (0..m * n)
                .map(|i| {
                    let w = weights.data[i % n * k..][..k].iter().copied();
                    let (sum, scale) = dot(x[i / n * k..][..k].iter().copied(), w);
                    let added = bias.as_ref().map_or(0.0, |b| f64::from(b[i % n]))
                        + residual.as_ref().map_or(0.0, |r| f64::from(r[i]));
                    (activate(epilogue.activation, sum + added), scale + 2.0)
                })
                .collect();
            for isa in Isa::available() {
                let what = format!("{isa:?} {desc:?}");
                let packed = PackedGemm::new(&desc, &weights, isa);
                let y = testing::run(m * n, |y, par| packed.run(&x, bias.as_deref(), residual.as_deref(), y, par));
                assert_close(&y, &gold, &what);
                for row in 0..m {
                    let one = PackedGemm::new(&Gemm { m: 1, ..desc }, &weights, isa);
                    let residual = residual.as_ref().map(|r| &r[row * n..][..n]);
                    let x = &x[row * k..][..k];
                    let alone = testing::run(n, |y, par| one.run(x, bias.as_deref(), residual, y, par));
                    assert_same_bits(&alone, &y[row * n..][..n], &what);
                }
            }
        }
    }

    #[test]
    fn products_of_activations_agree_with_gold() {
        let mut random = Random::new(8);
        for (batch_a, batch_b) in [(1, 1), (3, 1), (1, 3), (3, 3)] {
            for _ in 0..5 {
                let (m, n, k) = (random.size(1, 20), random.size(1, 60), random.size(1, 40));
                let desc = MatMul { batch_a, batch_b, m, n, k };
                let (a, b) = (random.values(batch_a * m * k), random.values(batch_b * k * n));
                let batch = batch_a.max(batch_b);
                let gold: Vec<(f64, f64)> = (0..batch * m * n)
                    .map(|i| {
                        let (index, row, col) = (i / (m * n), i / n % m, i % n);
                        let a = &a[(index % batch_a * m + row) * k..][..k];
                        let b = &b[index % batch_b * k * n..][..k * n];
                        dot(a.iter().copied(), b[col..].iter().step_by(n).copied())
                    })
                    .collect();
                for isa in Isa::available() {
                    let y = testing::run(batch * m * n, |y, par| matmul(&desc, &a, &b, y, isa, par));
                    assert_close(&y, &gold, &format!("{isa:?} {desc:?}"));
                }
            }
        }
    }
}
