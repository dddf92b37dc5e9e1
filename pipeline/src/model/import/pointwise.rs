//! Element-wise functions.

use ocellus_kernels::op::{BinaryKind, Op, Unary};
use ocellus_kernels::tensor::DType;

use super::eval;
use super::node::{NodeImport, Outcome, Slot};
use super::refusal::{Refusal, refuse};
use super::tensor::{Encoding, Tensor, is_float};

/// A function without attributes.
pub(super) fn unary(n: &mut NodeImport<'_>, function: Unary) -> Outcome {
    let x = n.input(0)?;
    if let Slot::Constant(tensor) = &x {
        return Ok(vec![eval::unary(tensor, function, &mut n.builder.budget)?.into()]);
    }
    let any_type = matches!(function, Unary::Relu | Unary::Clip { .. } | Unary::Abs | Unary::Neg);
    if !any_type && !is_float(n.dtype(&x)) {
        return refuse(format!("its input must be floating-point, it is {:?}", n.dtype(&x)));
    }
    let dims = n.dims(&x).to_vec();
    n.emit(Op::Unary(function), &[&x], dims)
}

/// Clip: bounds are attributes before opset 11, operands from it on.
pub(super) fn clip(n: &mut NodeImport<'_>) -> Outcome {
    let (min, max) = if n.opset < 11 {
        (n.attributes.optional_float("min")?, n.attributes.optional_float("max")?)
    } else {
        (bound(n, 1, "the lower bound")?, bound(n, 2, "the upper bound")?)
    };
    match (min, max) {
        (None, None) => Ok(vec![n.input(0)?]),
        (min, max) => unary(n, Unary::Clip { min: min.unwrap_or(f32::MIN), max: max.unwrap_or(f32::MAX) }),
    }
}

fn bound(n: &NodeImport<'_>, i: usize, what: &str) -> Result<Option<f32>, Refusal> {
    n.optional_constant(i, what)?.map(|tensor| tensor.float(what)).transpose()
}

/// `LeakyRelu`.
pub(super) fn leaky_relu(n: &mut NodeImport<'_>) -> Outcome {
    let alpha = n.attributes.float("alpha", 0.01)?;
    unary(n, Unary::LeakyRelu { alpha })
}

/// `Elu`.
pub(super) fn elu(n: &mut NodeImport<'_>) -> Outcome {
    let alpha = n.attributes.float("alpha", 1.0)?;
    unary(n, Unary::Elu { alpha })
}

/// `HardSigmoid`.
pub(super) fn hard_sigmoid(n: &mut NodeImport<'_>) -> Outcome {
    let (alpha, beta) = (n.attributes.float("alpha", 0.2)?, n.attributes.float("beta", 0.5)?);
    unary(n, Unary::HardSigmoid { alpha, beta })
}

/// Gelu.
pub(super) fn gelu(n: &mut NodeImport<'_>) -> Outcome {
    let tanh = n.attributes.choice("approximate", false, &[("none", false), ("tanh", true)])?;
    unary(n, Unary::Gelu { tanh })
}

/// A function of two tensors.
pub(super) fn binary(n: &mut NodeImport<'_>, kind: BinaryKind) -> Outcome {
    let (a, b) = (n.input(0)?, n.input(1)?);
    Ok(vec![combine(n, kind, &a, &b)?])
}

/// A function of two tensors, applied from left to right over any number of operands: Min, Max and Sum.
pub(super) fn variadic(n: &mut NodeImport<'_>, kind: BinaryKind) -> Outcome {
    let mut result = n.input(0)?;
    for i in 1..n.inputs.len() {
        let next = n.input(i)?;
        result = combine(n, kind, &result, &next)?;
    }
    Ok(vec![result])
}

/// `PRelu`: the slope broadcasts to the input, never the other way.
pub(super) fn prelu(n: &mut NodeImport<'_>) -> Outcome {
    let (x, slope) = (n.float_input(0)?, n.float_input(1)?);
    if eval::broadcast(n.dims(&x), n.dims(&slope))? != n.dims(&x) {
        return refuse(format!("slopes of {:?} do not fit an input of {:?}", n.dims(&slope), n.dims(&x)));
    }
    Ok(vec![combine(n, BinaryKind::PRelu, &x, &slope)?])
}

/// Adds a function of two tensors, or computes it where both are constant.
pub(super) fn combine(n: &mut NodeImport<'_>, kind: BinaryKind, a: &Slot, b: &Slot) -> Result<Slot, Refusal> {
    if let (Slot::Constant(a), Slot::Constant(b)) = (a, b) {
        return Ok(eval::binary(a, b, kind, &mut n.builder.budget)?.into());
    }
    let dtype = n.dtype(a);
    if kind != BinaryKind::Pow && dtype != n.dtype(b) {
        return refuse(format!("its operands have different types, {dtype:?} and {:?}", n.dtype(b)));
    }
    let wraps = matches!(dtype, DType::I8 | DType::U8 | DType::Bool);
    let exact = matches!(kind, BinaryKind::Min | BinaryKind::Max);
    if !is_float(dtype) && !exact && (wraps || matches!(kind, BinaryKind::Div | BinaryKind::Pow)) {
        return refuse(format!("integer arithmetic on {dtype:?} activations is not supported"));
    }
    let dims = eval::broadcast(n.dims(a), n.dims(b))?;
    n.push(Op::Binary { kind, activation: None }, &[a, b], dims)
}

/// Cast. How a value saturates matters for 8-bit floats only, which are refused.
pub(super) fn cast(n: &mut NodeImport<'_>) -> Outcome {
    n.attributes.ignore(&["saturate"]);
    let Some(to) = n.attributes.optional_int("to")? else {
        return refuse("attribute \"to\" is missing");
    };
    let target = Encoding::of(i32::try_from(to).unwrap_or(-1))?;
    let x = n.input(0)?;
    if let Slot::Constant(tensor) = &x {
        return Ok(vec![cast_constant(n, tensor, target)?.into()]);
    }
    if target == Encoding::Bool {
        return refuse("a cast of activations to truth values is not supported");
    }
    let integer_range = target.integer_range().map(|(low, high)| (low as f32, high as f32));
    let dims = n.dims(&x).to_vec();
    Ok(vec![n.push_as(Op::Cast { integer_range }, &[&x], dims, target.dtype())?])
}

fn cast_constant(n: &mut NodeImport<'_>, tensor: &Tensor, target: Encoding) -> Result<Tensor, Refusal> {
    n.builder.budget.compute(&tensor.dims)?;
    Ok(eval::cast(tensor, target))
}
