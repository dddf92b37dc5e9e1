//! Matrix products and convolutions.

use ocellus_kernels::op::{Conv, Epilogue, Gemm, MatMul};

use super::Tensor;
use super::elementwise::activate;

/// act(sum + bias + residual); `channel` is the output's last index.
fn finish(epilogue: &Epilogue, inputs: &[Tensor], index: &[usize], channel: usize, sum: f64) -> f64 {
    let mut operands = inputs[2..].iter();
    let mut y = sum;
    if epilogue.bias {
        y += operands.next().map_or(f64::NAN, |bias| bias.data[channel]);
    }
    if epilogue.residual {
        y += operands.next().map_or(f64::NAN, |residual| residual.at(index));
    }
    activate(epilogue.activation, y)
}

pub(super) fn conv(d: &Conv, inputs: &[Tensor]) -> Tensor {
    let (x, w) = (&inputs[0], &inputs[1]);
    let (in_group, out_group) = (d.c / d.groups, d.k / d.groups);
    Tensor::from_fn(&[d.n, d.p, d.q, d.k], |index| {
        let [n, p, q, k] = *index else { panic!("rank 4") };
        let mut sum = 0.0;
        for r in 0..d.r {
            for s in 0..d.s {
                for c in 0..in_group {
                    let row = (p * d.stride[0] + r * d.dilation[0]) as isize - d.pad[0] as isize;
                    let column = (q * d.stride[1] + s * d.dilation[1]) as isize - d.pad[1] as isize;
                    let channel = k / out_group * in_group + c;
                    sum += x.at_or_zero(&[n as isize, row, column, channel as isize]) * w.at(&[k, r, s, c]);
                }
            }
        }
        finish(&d.epilogue, inputs, index, k, sum)
    })
}

pub(super) fn conv_transpose(d: &Conv, inputs: &[Tensor]) -> Tensor {
    let (x, w) = (&inputs[0], &inputs[1]);
    let (in_group, out_group) = (d.c / d.groups, d.k / d.groups);
    // Scattered as the definition says, finished afterwards.
    let mut sums = Tensor::from_fn(&[d.n, d.p, d.q, d.k], |_| 0.0);
    for (place, index) in super::indices(&x.dims).enumerate() {
        let [n, h, column, c] = index[..] else { panic!("rank 4") };
        for r in 0..d.r {
            for s in 0..d.s {
                let row = (h * d.stride[0] + r * d.dilation[0]) as isize - d.pad[0] as isize;
                let column = (column * d.stride[1] + s * d.dilation[1]) as isize - d.pad[1] as isize;
                if !(0..d.p as isize).contains(&row) || !(0..d.q as isize).contains(&column) {
                    continue;
                }
                let pixel = (n * d.p + row as usize) * d.q + column as usize;
                for i in 0..out_group {
                    let k = c / in_group * out_group + i;
                    sums.data[pixel * d.k + k] += x.data[place] * w.at(&[k, r, s, c % in_group]);
                }
            }
        }
    }
    Tensor::from_fn(&sums.dims, |index| finish(&d.epilogue, inputs, index, index[3], sums.at(index)))
}

pub(super) fn gemm(d: &Gemm, inputs: &[Tensor], dims: &[usize]) -> Tensor {
    let (x, w) = (&inputs[0], &inputs[1]);
    let mut place = 0;
    Tensor::from_fn(dims, |index| {
        let (row, column) = (place / d.n, place % d.n);
        place += 1;
        let sum = (0..d.k).map(|i| x.data[row * d.k + i] * w.data[column * d.k + i]).sum();
        finish(&d.epilogue, inputs, index, column, sum)
    })
}

pub(super) fn matmul(d: &MatMul, inputs: &[Tensor], dims: &[usize]) -> Tensor {
    let (a, b) = (&inputs[0], &inputs[1]);
    let mut place = 0;
    Tensor::from_fn(dims, |_| {
        let (matrix, row, column) = (place / (d.m * d.n), place / d.n % d.m, place % d.n);
        place += 1;
        let (in_a, in_b) = (if d.batch_a == 1 { 0 } else { matrix }, if d.batch_b == 1 { 0 } else { matrix });
        let term = |i: usize| a.data[(in_a * d.m + row) * d.k + i] * b.data[(in_b * d.k + i) * d.n + column];
        (0..d.k).map(term).sum()
    })
}
