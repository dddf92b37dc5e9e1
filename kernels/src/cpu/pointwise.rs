//! Element-wise functions.

use super::math;
use super::par::{Par, View};
use super::vectorise::{max, min, vectorised};
use crate::op::{BinaryKind, Unary};
use crate::walk::{Walk, broadcast_strides, strides};

/// Elements of a piece of work: they fit the inner caches with their operands.
const CHUNK: usize = 1 << 13;

/// Replaces every value by f(value).
pub(super) fn apply(f: Unary, values: &mut [f32]) {
    vectorised(
        #[inline(always)]
        || match f {
            Unary::Relu => map(values, |x| if x < 0.0 { 0.0 } else { x }),
            Unary::Clip { min, max } => map(values, |x| clamp(x, min, max)),
            Unary::LeakyRelu { alpha } => map(values, |x| if x >= 0.0 { x } else { alpha * x }),
            Unary::Elu { alpha } => map(values, |x| if x >= 0.0 { x } else { alpha * math::exp_m1(x) }),
            Unary::Sigmoid => map(values, math::sigmoid),
            Unary::HardSigmoid { alpha, beta } => map(values, |x| clamp(alpha * x + beta, 0.0, 1.0)),
            Unary::HardSwish => map(values, |x| x * clamp(x / 6.0 + 0.5, 0.0, 1.0)),
            Unary::Silu => map(values, |x| x * math::sigmoid(x)),
            Unary::Tanh => map(values, math::tanh),
            Unary::Gelu { tanh: false } => map(values, math::gelu),
            Unary::Gelu { tanh: true } => map(values, math::gelu_tanh),
            Unary::Mish => map(values, math::mish),
            Unary::Softplus => map(values, math::softplus),
            Unary::Erf => map(values, math::erf),
            Unary::Exp => map(values, math::exp),
            Unary::Log => map(values, math::ln),
            Unary::Sqrt => map(values, f32::sqrt),
            Unary::Reciprocal => map(values, |x| 1.0 / x),
            Unary::Abs => map(values, f32::abs),
            Unary::Neg => map(values, |x| -x),
            Unary::Floor => map(values, f32::floor),
            Unary::Ceil => map(values, f32::ceil),
            Unary::Round => map(values, f32::round_ties_even),
        },
    );
}

#[inline(always)]
fn map(values: &mut [f32], f: impl Fn(f32) -> f32) {
    for v in values {
        *v = f(*v);
    }
}

/// min(max(x, low), high); NaN stays.
#[inline(always)]
pub(super) fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

pub(super) fn unary(f: Unary, x: &[f32], y: &mut [f32], par: Par) {
    par.chunks(y, CHUNK, |i, y| {
        y.copy_from_slice(&x[i * CHUNK..][..y.len()]);
        apply(f, y);
    });
}

pub(super) fn binary(
    kind: BinaryKind,
    activation: Option<Unary>,
    a: View<'_>,
    b: View<'_>,
    dims: &[usize],
    y: &mut [f32],
    par: Par,
) {
    let strides = broadcast_strides(a.dims, dims.len()).into_iter().zip(broadcast_strides(b.dims, dims.len()));
    let walk = Walk::new(dims.iter().copied().zip(strides.map(|(a, b)| [a, b])), [0, 0]);
    let [step_a, step_b] = walk.stride(0).unwrap_or([0, 0]);
    par.chunks(y, CHUNK, |i, y| {
        let start = i * CHUNK;
        vectorised(
            #[inline(always)]
            || {
                walk.pieces(start, y.len(), |at, len, [from_a, from_b]| {
                    let a = &a.data[from_a..][..if step_a == 0 { 1 } else { len }];
                    let b = &b.data[from_b..][..if step_b == 0 { 1 } else { len }];
                    combine(kind, a, b, &mut y[at - start..][..len]);
                });
            },
        );
        if let Some(f) = activation {
            apply(f, y);
        }
    });
}

/// y = kind(a, b); an operand of one element goes with every element of y.
#[inline(always)]
fn combine(kind: BinaryKind, a: &[f32], b: &[f32], y: &mut [f32]) {
    match kind {
        BinaryKind::Add => zip(a, b, y, |a, b| a + b),
        BinaryKind::Sub => zip(a, b, y, |a, b| a - b),
        BinaryKind::Mul => zip(a, b, y, |a, b| a * b),
        BinaryKind::Div => zip(a, b, y, |a, b| a / b),
        BinaryKind::Min => zip(a, b, y, min),
        BinaryKind::Max => zip(a, b, y, max),
        BinaryKind::Pow => zip(a, b, y, pow),
        BinaryKind::PRelu => zip(a, b, y, |a, b| if a >= 0.0 { a } else { a * b }),
    }
}

#[inline(always)]
fn zip(a: &[f32], b: &[f32], y: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    match (a, b) {
        (&[a], b) => {
            for (y, &b) in y.iter_mut().zip(b) {
                *y = f(a, b);
            }
        }
        (a, &[b]) => {
            for (y, &a) in y.iter_mut().zip(a) {
                *y = f(a, b);
            }
        }
        (a, b) => {
            for (y, (&a, &b)) in y.iter_mut().zip(a.iter().zip(b)) {
                *y = f(a, b);
            }
        }
    }
}

/// a to the power b. Squares are common (variances written out) and cheap.
#[inline(always)]
fn pow(a: f32, b: f32) -> f32 {
    if b == 2.0 { a * a } else { a.powf(b) }
}

pub(super) fn scale_shift(axis: usize, x: View<'_>, scale: &[f32], shift: &[f32], y: &mut [f32], par: Par) {
    per_index(axis, x, scale, shift, y, par, |x, scale, shift| x * scale + shift);
}

/// y = f(x, p, q), where p and q hold one value, or one for each index of `axis`.
pub(super) fn per_index(
    axis: usize,
    x: View<'_>,
    p: &[f32],
    q: &[f32],
    y: &mut [f32],
    par: Par,
    f: impl Fn(f32, f32, f32) -> f32 + Sync + Send,
) {
    let along = |i: usize| isize::from(i == axis && p.len() > 1);
    let strides = strides(x.dims).into_iter().enumerate().map(|(i, stride)| [stride, along(i)]);
    let walk = Walk::new(x.dims.iter().copied().zip(strides), [0, 0]);
    let step = walk.stride(0).map_or(0, |[_, step]| step);
    par.chunks(y, CHUNK, |i, y| {
        let start = i * CHUNK;
        vectorised(
            #[inline(always)]
            || {
                walk.pieces(start, y.len(), |at, len, [from_x, from_p]| {
                    let pairs = y[at - start..][..len].iter_mut().zip(&x.data[from_x..][..len]);
                    if step == 0 {
                        let (p, q) = (p[from_p], q[from_p]);
                        pairs.for_each(|(y, &x)| *y = f(x, p, q));
                    } else {
                        let (p, q) = (&p[from_p..][..len], &q[from_p..][..len]);
                        pairs.zip(p.iter().zip(q)).for_each(|((y, &x), (&p, &q))| *y = f(x, p, q));
                    }
                });
            },
        );
    });
}
