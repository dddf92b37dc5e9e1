//! Operators whose result is a constant.

use super::eval;
use super::node::{NodeImport, Outcome, Slot};
use super::refusal::{Refusal, refuse, size};
use super::tensor::{Data, Tensor};
use super::weights;

/// Constant, in all forms of its value but strings and sparse tensors.
pub(super) fn constant(n: &mut NodeImport<'_>) -> Outcome {
    let mut found = Vec::new();
    if let Some(proto) = n.attributes.tensor("value")? {
        found.push(weights::read(proto, n.builder.folder.as_deref(), &mut n.builder.budget)?);
    }
    if let Some(value) = n.attributes.optional_float("value_float")? {
        found.push(Tensor::floats(vec![], vec![value]));
    }
    if let Some(values) = n.attributes.floats("value_floats")? {
        found.push(Tensor::floats(vec![values.len()], values));
    }
    if let Some(value) = n.attributes.optional_int("value_int")? {
        found.push(Tensor { dims: vec![], ..Tensor::list(vec![value]) });
    }
    if let Some(values) = n.attributes.ints("value_ints")? {
        found.push(Tensor::list(values));
    }
    // A form of the value that is not known is named as such, not counted as a missing one.
    n.attributes.finish()?;
    match (found.pop(), found.is_empty()) {
        (Some(tensor), true) => Ok(vec![tensor.into()]),
        _ => refuse("exactly one value must be given"),
    }
}

/// `ConstantOfShape`.
pub(super) fn constant_of_shape(n: &mut NodeImport<'_>) -> Outcome {
    let dims = dims(&n.ints(0, "the shape")?)?;
    let value = match n.attributes.tensor("value")? {
        None => Tensor::floats(vec![1], vec![0.0]),
        Some(proto) => weights::read(proto, n.builder.folder.as_deref(), &mut n.builder.budget)?,
    };
    if value.len() != 1 {
        return refuse(format!("its value must be one element, it has {:?}", value.dims));
    }
    let value = Tensor { dims: vec![], ..value };
    Ok(vec![eval::expand(&value, dims, &mut n.builder.budget)?.into()])
}

/// Shape, from opset 15 on of a range of axes.
pub(super) fn shape(n: &mut NodeImport<'_>) -> Outcome {
    let x = n.input(0)?;
    let dims = n.dims(&x).to_vec();
    let rank = dims.len() as i64;
    let clamp = |v: i64| (if v < 0 { v.saturating_add(rank) } else { v }).clamp(0, rank) as usize;
    let (start, end) = (n.attributes.int("start", 0)?, n.attributes.int("end", rank)?);
    let (start, end) = (clamp(start), clamp(end));
    let taken = dims.get(start..end).unwrap_or_default();
    Ok(vec![Tensor::list(taken.iter().map(|&d| d as i64).collect()).into()])
}

/// Range.
pub(super) fn range(n: &mut NodeImport<'_>) -> Outcome {
    let [start, limit, delta] =
        [(0, "the start"), (1, "the limit"), (2, "the step")].map(|(i, what)| n.constant(i, what));
    let (start, limit, delta) = (start?, limit?, delta?);
    let scalars = [&start, &limit, &delta].iter().all(|t| t.len() == 1);
    let budget = &mut n.builder.budget;
    let tensor = match (&start.data, &limit.data, &delta.data) {
        (Data::Int(start_at), Data::Int(limit), Data::Int(delta)) if scalars && delta[0] != 0 => {
            let (first, step) = (i128::from(start_at[0]), i128::from(delta[0]));
            let span = i128::from(limit[0]) - first;
            let count = if (span > 0) == (step > 0) { span.unsigned_abs().div_ceil(step.unsigned_abs()) } else { 0 };
            let count = budget.compute(&[usize::try_from(count).unwrap_or(usize::MAX)])?;
            let values = (0..count).map(|i| (first + i as i128 * step) as i64).collect();
            Tensor::new(start.dtype, vec![count], Data::Int(values))
        }
        (Data::Float(start_at), Data::Float(limit), Data::Float(delta)) if scalars && delta[0] != 0.0 => {
            let count = ((limit[0] - start_at[0]) / delta[0]).ceil().max(0.0) as usize;
            let count = budget.compute(&[count])?;
            let values = (0..count).map(|i| start_at[0] + i as f32 * delta[0]).collect();
            Tensor::new(start.dtype, vec![count], Data::Float(values))
        }
        _ => return refuse("start, limit and step must be scalars of one type, the step not 0"),
    };
    Ok(vec![tensor.into()])
}

/// Equal.
pub(super) fn equal(n: &mut NodeImport<'_>) -> Outcome {
    let (a, b) = (n.constant(0, "its operand")?, n.constant(1, "its operand")?);
    Ok(vec![eval::equal(&a, &b, &mut n.builder.budget)?.into()])
}

/// Where.
pub(super) fn select(n: &mut NodeImport<'_>) -> Outcome {
    let condition = n.constant(0, "the condition")?;
    let (a, b) = (n.constant(1, "its operand")?, n.constant(2, "its operand")?);
    Ok(vec![eval::select(&condition, &a, &b, &mut n.builder.budget)?.into()])
}

/// Expand, of a constant or to the shape that the input has already.
pub(super) fn expand(n: &mut NodeImport<'_>) -> Outcome {
    let (x, shape) = (n.input(0)?, dims(&n.ints(1, "the shape")?)?);
    let dims = eval::broadcast(n.dims(&x), &shape)?;
    match x {
        Slot::Constant(tensor) => Ok(vec![eval::expand(&tensor, dims, &mut n.builder.budget)?.into()]),
        Slot::Activation(_) if n.dims(&x) == dims => Ok(vec![x]),
        Slot::Activation(_) => refuse(format!(
            "an activation of {:?} expanded to {dims:?} is not supported; simplify the model, with onnxsim for instance",
            n.dims(&x)
        )),
    }
}

/// Identity, and Dropout outside training.
pub(super) fn identity(n: &mut NodeImport<'_>) -> Outcome {
    Ok(vec![n.input(0)?])
}

/// Dropout: the identity outside training. Ratio and seed only matter in training.
pub(super) fn dropout(n: &mut NodeImport<'_>) -> Outcome {
    n.attributes.ignore(&["ratio", "seed"]);
    match n.optional_constant(2, "training_mode")? {
        Some(mode) if mode.ints("training_mode")?.iter().any(|&v| v != 0) => refuse("training is not supported"),
        _ => identity(n),
    }
}

/// Dimensions given as numbers.
fn dims(values: &[i64]) -> Result<Vec<usize>, Refusal> {
    values.iter().map(|&v| size(v, "a dimension")).collect()
}
