//! Normalisations and softmax.

use ocellus_kernels::op::Op;

use super::eval;
use super::node::{NodeImport, Outcome, Slot};
use super::refusal::{axis, refuse};
use super::tensor::Tensor;

/// `BatchNormalization` outside training: y = x scale / sqrt(variance + epsilon) + (bias - mean that).
pub(super) fn batch(n: &mut NodeImport<'_>) -> Outcome {
    // The momentum matters in training only.
    n.attributes.ignore(&["momentum"]);
    if n.attributes.flag("training_mode", false)? {
        return refuse("training is not supported");
    }
    let epsilon = f64::from(n.attributes.float("epsilon", 1e-5)?);
    let x = n.float_input(0)?;
    let dims = n.dims(&x).to_vec();
    let Some(&c) = dims.get(1) else {
        return refuse(format!("an input of {dims:?} has no channels"));
    };
    let mut parts = Vec::new();
    for (i, what) in [(1, "the scale"), (2, "the bias"), (3, "the mean"), (4, "the variance")] {
        let tensor = n.constant(i, what)?;
        if tensor.dims != [c] {
            return refuse(format!("{what} has {:?}, the input {c} channels", tensor.dims));
        }
        parts.push(tensor.to_floats());
    }
    let factor: Vec<f64> = (0..c).map(|i| f64::from(parts[0][i]) / (f64::from(parts[3][i]) + epsilon).sqrt()).collect();
    let shift: Vec<_> = (0..c).map(|i| (f64::from(parts[1][i]) - f64::from(parts[2][i]) * factor[i]) as f32).collect();
    let scale: Vec<_> = factor.iter().map(|&f| f as f32).collect();
    n.builder.budget.compute(&[2, c])?;
    let scale = Slot::from(Tensor::floats(vec![c], scale));
    let shift = Slot::from(Tensor::floats(vec![c], shift));
    n.emit(Op::ScaleShift { axis: 1 }, &[&x, &scale, &shift], dims)
}

/// `LayerNormalization`.
pub(super) fn layer(n: &mut NodeImport<'_>) -> Outcome {
    let x = n.float_input(0)?;
    let dims = n.dims(&x).to_vec();
    let first = axis(n.attributes.int("axis", -1)?, dims.len())?;
    let epsilon = n.attributes.float("epsilon", 1e-5)?;
    if n.attributes.int("stash_type", 1)? != 1 {
        return refuse("only stash_type 1 (mean and variance in f32) is supported");
    }
    let tail = dims[first..].to_vec();
    let scale = n.constant(1, "the scale")?;
    let bias = n.optional_constant(2, "the bias")?;
    let scale = Slot::from(eval::expand(&scale, tail.clone(), &mut n.builder.budget)?);
    let zero = Tensor::floats(vec![], vec![0.0]);
    let bias = Slot::from(eval::expand(bias.as_deref().unwrap_or(&zero), tail, &mut n.builder.budget)?);
    n.emit(Op::LayerNorm { axis: first, epsilon }, &[&x, &scale, &bias], dims)
}

/// Softmax and `LogSoftmax`: along one axis from opset 13 on, before it over all axes from one on.
pub(super) fn softmax(n: &mut NodeImport<'_>, log: bool) -> Outcome {
    let x = n.float_input(0)?;
    let dims = n.dims(&x).to_vec();
    let flattens = n.opset < 13;
    let at = axis(n.attributes.int("axis", if flattens { 1 } else { -1 })?, dims.len())?;
    if !flattens || dims[at + 1..].iter().all(|&d| d == 1) {
        return n.emit(Op::Softmax { axis: at, log }, &[&x], dims);
    }
    let two = vec![dims[..at].iter().product(), dims[at..].iter().product()];
    let rows = n.reshape(x, two.clone())?;
    let rows = n.push(Op::Softmax { axis: 1, log }, &[&rows], two)?;
    Ok(vec![n.reshape(rows, dims)?])
}
