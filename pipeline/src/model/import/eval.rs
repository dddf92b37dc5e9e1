//! Operators on constants, computed while the model is imported: the arithmetic of shapes.

use ocellus_kernels::op::{BinaryKind, Unary};
use ocellus_kernels::tensor::DType;

use super::refusal::{Refusal, refuse};
use super::tensor::{Budget, Data, Encoding, Tensor};

/// Dimensions of two tensors broadcast against each other as in NumPy.
pub(super) fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>, Refusal> {
    let rank = a.len().max(b.len());
    let at = |dims: &[usize], axis: usize| (axis + dims.len()).checked_sub(rank).map_or(1, |i| dims[i]);
    (0..rank)
        .map(|axis| match (at(a, axis), at(b, axis)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            _ => refuse(format!("{a:?} and {b:?} do not broadcast")),
        })
        .collect()
}

/// Row-major strides of dense dimensions.
pub(super) fn strides(dims: &[usize]) -> Vec<isize> {
    let mut strides = vec![1isize; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis] * dims[axis].max(1) as isize;
    }
    strides
}

/// A strided view of a tensor as a tensor: element (i, j, ...) is `start + i strides[0] + j strides[1] + ...`.
pub(super) fn view(
    tensor: &Tensor,
    start: isize,
    strides: &[isize],
    dims: Vec<usize>,
    budget: &mut Budget,
) -> Result<Tensor, Refusal> {
    let count = budget.compute(&dims)?;
    let data = match &tensor.data {
        Data::Float(v) => Data::Float(v.view(start, strides, &dims)),
        Data::Int(v) => Data::Int(walk(v, start, strides, &dims, count)),
    };
    Ok(Tensor::new(tensor.dtype, dims, data))
}

/// The `count` elements of a strided view.
fn walk<T: Copy>(data: &[T], start: isize, strides: &[isize], dims: &[usize], count: usize) -> Vec<T> {
    let mut elements = Vec::with_capacity(count);
    let mut position = vec![0usize; dims.len()];
    let mut index = start;
    while elements.len() < count {
        elements.push(data[index as usize]);
        for axis in (0..dims.len()).rev() {
            position[axis] += 1;
            index += strides[axis];
            if position[axis] < dims[axis] {
                break;
            }
            index -= strides[axis] * dims[axis] as isize;
            position[axis] = 0;
        }
    }
    elements
}

/// A tensor repeated along its axes of length 1 (and new ones before them) up to `dims`.
pub(super) fn expand(tensor: &Tensor, dims: Vec<usize>, budget: &mut Budget) -> Result<Tensor, Refusal> {
    if broadcast(&tensor.dims, &dims)? != dims {
        return refuse(format!("{:?} cannot be expanded to {dims:?}", tensor.dims));
    }
    let mut spread = vec![0; dims.len() - tensor.dims.len()];
    let own = strides(&tensor.dims);
    spread.extend(tensor.dims.iter().zip(own).map(|(&d, stride)| if d == 1 { 0 } else { stride }));
    view(tensor, 0, &spread, dims, budget)
}

/// Tensors of one type one after another along `axis`. The caller checked their dimensions and computed `dims`.
pub(super) fn concat(
    tensors: &[&Tensor],
    axis: usize,
    dims: Vec<usize>,
    budget: &mut Budget,
) -> Result<Tensor, Refusal> {
    budget.compute(&dims)?;
    let dtype = tensors.first().map_or(DType::F32, |t| t.dtype);
    let float = tensors.iter().filter(|t| matches!(t.data, Data::Float(_))).count();
    if float != 0 && float != tensors.len() {
        return refuse("integers and floating-point numbers cannot be joined");
    }
    let outer: usize = dims[..axis].iter().product();
    let blocks: Vec<usize> = tensors.iter().map(|t| t.dims[axis..].iter().product()).collect();
    let mut floats = Vec::new();
    let mut ints = Vec::new();
    for i in 0..outer {
        for (tensor, &block) in tensors.iter().zip(&blocks) {
            match &tensor.data {
                Data::Float(v) => floats.extend_from_slice(&v[i * block..(i + 1) * block]),
                Data::Int(v) => ints.extend_from_slice(&v[i * block..(i + 1) * block]),
            }
        }
    }
    Ok(Tensor::new(dtype, dims, if float == 0 { Data::Int(ints) } else { Data::Float(floats.into()) }))
}

/// The blocks behind these indices of `axis`, one after another. The caller checked the indices and computed `dims`.
pub(super) fn gather(
    tensor: &Tensor,
    axis: usize,
    picks: &[usize],
    dims: Vec<usize>,
    budget: &mut Budget,
) -> Result<Tensor, Refusal> {
    budget.compute(&dims)?;
    let block: usize = tensor.dims[axis + 1..].iter().product();
    let outer: usize = tensor.dims[..axis].iter().product();
    let each = (0..outer).flat_map(|i| picks.iter().map(move |pick| (i * tensor.dims[axis] + pick) * block));
    let data = match &tensor.data {
        Data::Float(v) => Data::Float(each.flat_map(|at| &v[at..at + block]).copied().collect()),
        Data::Int(v) => Data::Int(each.flat_map(|at| &v[at..at + block]).copied().collect()),
    };
    Ok(Tensor::new(tensor.dtype, dims, data))
}

/// Conversion between element types; a float becomes an integer by truncation, saturating.
pub(super) fn cast(tensor: &Tensor, target: Encoding) -> Tensor {
    let data = match (&tensor.data, target.integer_range()) {
        (Data::Float(v), None) => Data::Float(v.iter().map(|&x| narrow(x, target)).collect()),
        (Data::Int(v), None) => Data::Float(v.iter().map(|&x| narrow(x as f32, target)).collect()),
        (Data::Float(v), Some(_)) if target == Encoding::Bool => {
            Data::Int(v.iter().map(|&x| (x != 0.0).into()).collect())
        }
        (Data::Int(v), Some(_)) if target == Encoding::Bool => Data::Int(v.iter().map(|&x| (x != 0).into()).collect()),
        (Data::Float(v), Some((low, high))) => Data::Int(v.iter().map(|&x| (x as i64).clamp(low, high)).collect()),
        (Data::Int(v), Some((low, high))) => Data::Int(v.iter().map(|&x| x.clamp(low, high)).collect()),
    };
    Tensor::new(target.dtype(), tensor.dims.clone(), data)
}

/// A value rounded to a 16-bit type.
fn narrow(x: f32, target: Encoding) -> f32 {
    match target {
        Encoding::F16 => half::f16::from_f32(x).to_f32(),
        Encoding::Bf16 => half::bf16::from_f32(x).to_f32(),
        _ => x,
    }
}

/// An element-wise function. Of integers only those functions that ONNX defines for them.
pub(super) fn unary(tensor: &Tensor, function: Unary, budget: &mut Budget) -> Result<Tensor, Refusal> {
    budget.compute(&tensor.dims)?;
    let data = match &tensor.data {
        Data::Float(v) => Data::Float(v.iter().map(|&x| float(function, x)).collect::<Result<_, _>>()?),
        Data::Int(v) => Data::Int(v.iter().map(|&x| int(function, x)).collect::<Result<_, _>>()?),
    };
    Ok(Tensor::new(tensor.dtype, tensor.dims.clone(), data))
}

fn float(function: Unary, x: f32) -> Result<f32, Refusal> {
    Ok(match function {
        Unary::Relu => x.max(0.0),
        Unary::Clip { min, max } => x.max(min).min(max),
        Unary::LeakyRelu { alpha } => {
            if x >= 0.0 {
                x
            } else {
                alpha * x
            }
        }
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::HardSigmoid { alpha, beta } => (alpha * x + beta).clamp(0.0, 1.0),
        Unary::Tanh => x.tanh(),
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Reciprocal => 1.0 / x,
        Unary::Abs => x.abs(),
        Unary::Neg => -x,
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Round => x.round_ties_even(),
        other => return refuse(format!("{other:?} of a constant is not supported")),
    })
}

fn int(function: Unary, x: i64) -> Result<i64, Refusal> {
    match function {
        Unary::Relu => Ok(x.max(0)),
        Unary::Clip { min, max } => Ok(x.max(min as i64).min(max as i64)),
        Unary::Abs => x.checked_abs().ok_or_else(overflow),
        Unary::Neg => x.checked_neg().ok_or_else(overflow),
        other => refuse(format!("{other:?} of integers is not supported")),
    }
}

/// A function of two tensors of one kind, broadcast against each other.
pub(super) fn binary(a: &Tensor, b: &Tensor, kind: BinaryKind, budget: &mut Budget) -> Result<Tensor, Refusal> {
    let dims = broadcast(&a.dims, &b.dims)?;
    let dtype = a.dtype;
    let (a, b) = (expand(a, dims.clone(), budget)?, expand(b, dims.clone(), budget)?);
    let data = match (a.data, b.data) {
        (Data::Float(a), Data::Float(b)) => {
            Data::Float(a.iter().zip(b.iter()).map(|(&a, &b)| floats(kind, a, b)).collect())
        }
        (Data::Float(a), Data::Int(b)) if kind == BinaryKind::Pow => {
            Data::Float(a.iter().zip(b).map(|(&a, b)| a.powf(b as f32)).collect())
        }
        (Data::Int(a), Data::Int(b)) => {
            Data::Int(a.into_iter().zip(b).map(|(a, b)| ints(kind, a, b)).collect::<Result<_, _>>()?)
        }
        _ => return refuse("its operands mix integers and floating-point numbers"),
    };
    Ok(Tensor::new(dtype, dims, data))
}

fn floats(kind: BinaryKind, a: f32, b: f32) -> f32 {
    match kind {
        BinaryKind::Add => a + b,
        BinaryKind::Sub => a - b,
        BinaryKind::Div => a / b,
        BinaryKind::Min => a.min(b),
        BinaryKind::Max => a.max(b),
        BinaryKind::Pow => a.powf(b),
        BinaryKind::PRelu if a >= 0.0 => a,
        BinaryKind::PRelu | BinaryKind::Mul => a * b,
    }
}

fn ints(kind: BinaryKind, a: i64, b: i64) -> Result<i64, Refusal> {
    match kind {
        BinaryKind::Add => a.checked_add(b),
        BinaryKind::Sub => a.checked_sub(b),
        BinaryKind::Mul => a.checked_mul(b),
        BinaryKind::Div => a.checked_div(b),
        BinaryKind::Min => Some(a.min(b)),
        BinaryKind::Max => Some(a.max(b)),
        BinaryKind::Pow => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
        BinaryKind::PRelu => None,
    }
    .ok_or_else(overflow)
}

fn overflow() -> Refusal {
    Refusal("integer arithmetic on constants overflows or divides by 0".into())
}

/// Where both are equal, as truth values.
pub(super) fn equal(a: &Tensor, b: &Tensor, budget: &mut Budget) -> Result<Tensor, Refusal> {
    let dims = broadcast(&a.dims, &b.dims)?;
    let (a, b) = (expand(a, dims.clone(), budget)?, expand(b, dims.clone(), budget)?);
    let truth = match (a.data, b.data) {
        (Data::Float(a), Data::Float(b)) => a.iter().zip(b.iter()).map(|(a, b)| (a == b).into()).collect(),
        (Data::Int(a), Data::Int(b)) => a.iter().zip(&b).map(|(a, b)| (a == b).into()).collect(),
        _ => return refuse("its operands mix integers and floating-point numbers"),
    };
    Ok(Tensor::new(DType::Bool, dims, Data::Int(truth)))
}

/// The first choice where the condition holds, else the second.
pub(super) fn select(condition: &Tensor, a: &Tensor, b: &Tensor, budget: &mut Budget) -> Result<Tensor, Refusal> {
    let dims = broadcast(&condition.dims, &broadcast(&a.dims, &b.dims)?)?;
    let dtype = a.dtype;
    let condition = expand(condition, dims.clone(), budget)?;
    let (a, b) = (expand(a, dims.clone(), budget)?, expand(b, dims.clone(), budget)?);
    let picks = condition.ints("the condition's elements")?.iter().map(|&c| c != 0);
    let data = match (a.data, b.data) {
        (Data::Float(a), Data::Float(b)) => Data::Float(pick(picks, &a, &b).into()),
        (Data::Int(a), Data::Int(b)) => Data::Int(pick(picks, &a, &b)),
        _ => return refuse("its operands mix integers and floating-point numbers"),
    };
    Ok(Tensor::new(dtype, dims, data))
}

fn pick<T: Copy>(picks: impl Iterator<Item = bool>, a: &[T], b: &[T]) -> Vec<T> {
    picks.zip(a.iter().zip(b)).map(|(first, (a, b))| if first { *a } else { *b }).collect()
}
