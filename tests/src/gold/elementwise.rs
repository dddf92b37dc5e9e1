//! Functions of single elements and of single rows.

use ocellus_kernels::op::{BinaryKind, Unary};

use super::{Tensor, indices};

pub(super) fn map(x: &Tensor, f: impl Fn(f64) -> f64) -> Tensor {
    Tensor { dims: x.dims.clone(), data: x.data.iter().map(|&v| f(v)).collect() }
}

/// Error function: Maclaurin series, or the continued fraction of its complement.
fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a < 2.5 {
        let (mut term, mut sum) = (x, x);
        for n in 1..80 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    } else if a < 6.0 {
        let fraction = (1..80).rev().fold(a, |tail, n| a + f64::from(n) / 2.0 / tail);
        (1.0 - (-a * a).exp() / fraction / std::f64::consts::PI.sqrt()).copysign(x)
    } else if x.is_nan() {
        x
    } else {
        1f64.copysign(x)
    }
}

pub(super) fn unary(f: Unary, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let softplus = |x: f64| if x > 40.0 { x } else { x.exp().ln_1p() };
    match f {
        Unary::Relu => x.max(0.0),
        Unary::Clip { min, max } => x.max(f64::from(min)).min(f64::from(max)),
        Unary::LeakyRelu { alpha } => x.max(0.0) + f64::from(alpha) * x.min(0.0),
        Unary::Elu { alpha } => x.max(0.0) + f64::from(alpha) * x.min(0.0).exp_m1(),
        Unary::Sigmoid => sigmoid(x),
        Unary::HardSigmoid { alpha, beta } => (f64::from(alpha) * x + f64::from(beta)).clamp(0.0, 1.0),
        Unary::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        Unary::Silu => x * sigmoid(x),
        Unary::Tanh => x.tanh(),
        Unary::Gelu { tanh: false } => x * 0.5 * (1.0 + erf(x / 2f64.sqrt())),
        Unary::Gelu { tanh: true } => {
            x * 0.5 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
        }
        Unary::Mish => x * softplus(x).tanh(),
        Unary::Softplus => softplus(x),
        Unary::Erf => erf(x),
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Reciprocal => x.recip(),
        Unary::Abs => x.abs(),
        Unary::Neg => -x,
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Round => x.round_ties_even(),
    }
}

/// With an optional activation behind it.
pub(super) fn activate(f: Option<Unary>, x: f64) -> f64 {
    f.map_or(x, |f| unary(f, x))
}

/// The element of `x` that goes with an index of the tensor that `x` is broadcast to.
fn broadcast(x: &Tensor, index: &[usize]) -> f64 {
    let own = &index[index.len() - x.dims.len()..];
    x.at(&own.iter().zip(&x.dims).map(|(&i, &dim)| if dim == 1 { 0 } else { i }).collect::<Vec<_>>())
}

pub(super) fn binary(kind: BinaryKind, activation: Option<Unary>, inputs: &[Tensor], dims: &[usize]) -> Tensor {
    Tensor::from_fn(dims, |index| {
        let (a, b) = (broadcast(&inputs[0], index), broadcast(&inputs[1], index));
        let y = match kind {
            BinaryKind::Add => a + b,
            BinaryKind::Sub => a - b,
            BinaryKind::Mul => a * b,
            BinaryKind::Div => a / b,
            BinaryKind::Min => a.min(b),
            BinaryKind::Max => a.max(b),
            BinaryKind::Pow => a.powf(b),
            BinaryKind::PRelu => a.max(0.0) + b * a.min(0.0),
        };
        activate(activation, y)
    })
}

pub(super) fn scale_shift(axis: usize, inputs: &[Tensor]) -> Tensor {
    let [x, scale, shift] = inputs else { panic!("3 operands") };
    Tensor::from_fn(&x.dims, |index| x.at(index) * scale.data[index[axis]] + shift.data[index[axis]])
}

pub(super) fn softmax(axis: usize, log: bool, x: &Tensor) -> Tensor {
    Tensor::from_fn(&x.dims, |index| {
        let along = |i: usize| {
            let mut other = index.to_vec();
            other[axis] = i;
            x.at(&other)
        };
        let top = (0..x.dims[axis]).map(along).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = (0..x.dims[axis]).map(|i| (along(i) - top).exp()).sum();
        let y = x.at(index) - top - sum.ln();
        if log { y } else { y.exp() }
    })
}

pub(super) fn layer_norm(axis: usize, epsilon: f64, inputs: &[Tensor]) -> Tensor {
    let [x, scale, bias] = inputs else { panic!("3 operands") };
    let inner = &x.dims[axis..];
    let count = inner.iter().product::<usize>() as f64;
    Tensor::from_fn(&x.dims, |index| {
        let (outer, own) = index.split_at(axis);
        let row: Vec<f64> = indices(inner).map(|i| x.at(&[outer, &i].concat())).collect();
        let mean = row.iter().sum::<f64>() / count;
        let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count;
        (x.at(index) - mean) / (variance + epsilon).sqrt() * scale.at(own) + bias.at(own)
    })
}

/// Scale and zero point for an index.
fn scales(axis: usize, inputs: &[Tensor], index: &[usize]) -> (f64, f64) {
    let i = if inputs[1].data.len() == 1 { 0 } else { index[axis] };
    (inputs[1].data[i], inputs[2].data[i])
}

pub(super) fn quantize(axis: usize, low: f32, high: f32, inputs: &[Tensor]) -> Tensor {
    Tensor::from_fn(&inputs[0].dims, |index| {
        let (scale, zero) = scales(axis, inputs, index);
        ((inputs[0].at(index) / scale).round_ties_even() + zero).clamp(f64::from(low), f64::from(high))
    })
}

pub(super) fn dequantize(axis: usize, inputs: &[Tensor]) -> Tensor {
    Tensor::from_fn(&inputs[0].dims, |index| {
        let (scale, zero) = scales(axis, inputs, index);
        (inputs[0].at(index) - zero) * scale
    })
}

pub(super) fn cast(integer_range: Option<(f32, f32)>, x: f64) -> f64 {
    integer_range.map_or(x, |(low, high)| x.trunc().clamp(f64::from(low), f64::from(high)))
}
