//! Activations that a file spells out in several nodes: products of x and a gate of x.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

use ocellus_kernels::op::{BinaryKind, Op, Unary};

use super::{Context, Patch};
use crate::model::graph::{Node, ValueId};

/// Levels of multiplications that a product is followed through; the spellings met need two.
const DEPTH: usize = 4;

/// How far, relatively, a constant may be off: files round them to five and more digits.
const TOLERANCE: f64 = 3e-5;

/// - x sigmoid(x): Silu
/// - x `HardSigmoid`(x) with 1/6 and 1/2, or x min(max(x + 3, 0), 6) / 6: `HardSwish`; without the first x: `HardSigmoid`
/// - x (1 + erf(x / sqrt 2)) / 2: Gelu, and its tanh approximation
/// - x tanh(softplus(x)): Mish
pub(super) fn gated(context: &Context<'_>, index: usize) -> Option<Patch> {
    let node = context.node(index);
    let Op::Binary { kind: BinaryKind::Mul | BinaryKind::Div, activation: None } = node.op else { return None };
    let product = Product::of(context, node);
    let (x, function, gate) = match product.terms[..] {
        [gate] => {
            let x = shifted_clip(context, gate)?;
            (x, hard_sigmoid(product.factor)?, gate)
        }
        [a, b] => [(a, b), (b, a)].into_iter().find_map(|(x, gate)| {
            let (function, factor) = gate_of(context, x, gate)?;
            is_factor(product.factor, factor).then_some((x, function, gate))
        })?,
        _ => return None,
    };
    if context.dims(x) != context.dims(node.output) {
        return None;
    }
    let mut merged = Node { op: Op::Unary(function), inputs: vec![x], ..node.clone() };
    if let Some((_, gate)) = context.producer(gate) {
        context.record(&mut merged, gate);
    }
    Some(Patch::replace(index, merged))
}

/// factor * terms[0] * terms[1] * ...
struct Product {
    factor: f64,
    terms: Vec<ValueId>,
}

impl Product {
    /// What a Mul or Div multiplies, through the multiplications before it that it alone reads.
    fn of(context: &Context<'_>, node: &Node) -> Self {
        let mut product = Self { factor: 1.0, terms: Vec::new() };
        product.multiply(context, node, DEPTH);
        product
    }

    /// The product that makes `id`.
    fn behind(context: &Context<'_>, id: ValueId) -> Self {
        let mut product = Self { factor: 1.0, terms: Vec::new() };
        product.operand(context, id, DEPTH);
        product
    }

    fn multiply(&mut self, context: &Context<'_>, node: &Node, depth: usize) {
        let &[a, b] = node.inputs.as_slice() else { return self.terms.push(node.output) };
        match (&node.op, context.scalar(b)) {
            (Op::Binary { kind: BinaryKind::Mul, activation: None }, _) => {
                self.operand(context, a, depth - 1);
                self.operand(context, b, depth - 1);
            }
            (Op::Binary { kind: BinaryKind::Div, activation: None }, Some(c)) => {
                self.factor /= f64::from(c);
                self.operand(context, a, depth - 1);
            }
            _ => self.terms.push(node.output),
        }
    }

    fn operand(&mut self, context: &Context<'_>, id: ValueId, depth: usize) {
        if let Some(c) = context.scalar(id) {
            self.factor *= f64::from(c);
            return;
        }
        match context.producer(id) {
            Some((_, node)) if depth > 0 && context.read_once(id) => self.multiply(context, node, depth),
            _ => self.terms.push(id),
        }
    }
}

/// The activation that x times `gate` times a factor is, with the factor.
fn gate_of(context: &Context<'_>, x: ValueId, gate: ValueId) -> Option<(Unary, f64)> {
    if !context.read_once(gate) {
        return None;
    }
    if shifted_clip(context, gate) == Some(x) {
        return Some((Unary::HardSwish, 1.0 / 6.0));
    }
    if let Some((function, of)) = unary(context, gate) {
        return match function {
            Unary::Sigmoid if of == x => Some((Unary::Silu, 1.0)),
            Unary::HardSigmoid { alpha, beta } if of == x && close(alpha.into(), 1.0 / 6.0) && beta == 0.5 => {
                Some((Unary::HardSwish, 1.0))
            }
            Unary::Tanh if unary(context, of) == Some((Unary::Softplus, x)) => Some((Unary::Mish, 1.0)),
            _ => None,
        };
    }
    let (inner, one) = sum_with_scalar(context, gate)?;
    let (function, of) = unary(context, inner)?;
    let scaled = Product::behind(context, of);
    let &[argument] = scaled.terms.as_slice() else { return None };
    match function {
        Unary::Erf if one == 1.0 && argument == x && close(scaled.factor, FRAC_1_SQRT_2) => {
            Some((Unary::Gelu { tanh: false }, 0.5))
        }
        Unary::Tanh if one == 1.0 && close(scaled.factor, FRAC_2_PI.sqrt()) && is_cubic(context, x, argument) => {
            Some((Unary::Gelu { tanh: true }, 0.5))
        }
        _ => None,
    }
}

/// x + 0.044715 x^3.
fn is_cubic(context: &Context<'_>, x: ValueId, sum: ValueId) -> bool {
    let Some((_, Node { op: Op::Binary { kind: BinaryKind::Add, activation: None }, inputs, .. })) =
        context.producer(sum)
    else {
        return false;
    };
    let is_cube = |id: ValueId| {
        let product = Product::behind(context, id);
        let cube = match product.terms[..] {
            [a, b, c] => a == x && b == x && c == x,
            [power] => match context.producer(power) {
                Some((_, Node { op: Op::Binary { kind: BinaryKind::Pow, activation: None }, inputs, .. })) => {
                    inputs[0] == x && context.scalar(inputs[1]) == Some(3.0)
                }
                _ => false,
            },
            _ => false,
        };
        cube && close(product.factor, 0.044_715)
    };
    (inputs[0] == x && is_cube(inputs[1])) || (inputs[1] == x && is_cube(inputs[0]))
}

/// x of min(max(x + 3, 0), 6).
fn shifted_clip(context: &Context<'_>, id: ValueId) -> Option<ValueId> {
    match unary(context, id)? {
        (Unary::Clip { min: 0.0, max: 6.0 }, sum) => {
            let (x, shift) = sum_with_scalar(context, sum)?;
            (shift == 3.0).then_some(x)
        }
        _ => None,
    }
}

fn hard_sigmoid(factor: f64) -> Option<Unary> {
    close(factor, 1.0 / 6.0).then_some(Unary::HardSigmoid { alpha: 1.0 / 6.0, beta: 0.5 })
}

/// Function and operand of the Unary that makes a value.
fn unary(context: &Context<'_>, id: ValueId) -> Option<(Unary, ValueId)> {
    match context.producer(id)? {
        (_, Node { op: Op::Unary(function), inputs, .. }) => Some((*function, *inputs.first()?)),
        _ => None,
    }
}

/// x and c of the Add of x and a constant c that makes a value.
fn sum_with_scalar(context: &Context<'_>, id: ValueId) -> Option<(ValueId, f32)> {
    let (_, Node { op: Op::Binary { kind: BinaryKind::Add, activation: None }, inputs, .. }) = context.producer(id)?
    else {
        return None;
    };
    let &[a, b] = inputs.as_slice() else { return None };
    context.scalar(b).map(|c| (a, c)).or_else(|| context.scalar(a).map(|c| (b, c)))
}

/// As [`close`]; a factor of 1 is one that the file does not have, so it is not rounded either.
fn is_factor(value: f64, expected: f64) -> bool {
    if expected == 1.0 { value == 1.0 } else { close(value, expected) }
}

fn close(value: f64, expected: f64) -> bool {
    (value - expected).abs() <= TOLERANCE * expected.abs()
}
