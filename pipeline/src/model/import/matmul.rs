//! Matrix products.

use std::sync::Arc;

use ocellus_kernels::op::{BinaryKind, Epilogue, Gemm, MatMul, Op};

use super::eval;
use super::node::{NodeImport, Outcome, Slot};
use super::pointwise::combine;
use super::refusal::{Refusal, refuse};
use super::tensor::Tensor;

/// Gemm: alpha A B + beta C, A and B perhaps transposed, C broadcast to the result.
pub(super) fn gemm(n: &mut NodeImport<'_>) -> Outcome {
    let (alpha, beta) = (n.attributes.float("alpha", 1.0)?, n.attributes.float("beta", 1.0)?);
    let (trans_a, trans_b) = (n.attributes.flag("transA", false)?, n.attributes.flag("transB", false)?);
    let (mut a, mut b) = (n.float_input(0)?, n.float_input(1)?);
    for slot in [&a, &b] {
        if n.dims(slot).len() != 2 {
            return refuse(format!("an operand has {:?}; two dimensions are needed", n.dims(slot)));
        }
    }
    if trans_a {
        a = transpose(n, &a)?;
    }
    // Weights are wanted as [N, K], a second activation as [K, N].
    let constant = matches!(b, Slot::Constant(_));
    if trans_b != constant {
        b = transpose(n, &b)?;
    }
    let [m, k] = [n.dims(&a)[0], n.dims(&a)[1]];
    let [columns, rows] = if constant { [n.dims(&b)[0], n.dims(&b)[1]] } else { [n.dims(&b)[1], n.dims(&b)[0]] };
    if rows != k {
        return refuse(format!("matrices of {k} columns and {rows} rows do not fit"));
    }
    let c = n.optional(2);
    if let Some(c) = &c
        && eval::broadcast(n.dims(c), &[m, columns])? != [m, columns]
    {
        return refuse(format!("a summand of {:?} does not fit [{m}, {columns}]", n.dims(c)));
    }
    let Slot::Constant(weights) = &b else {
        let mut product = activations(n, &a, &b)?;
        product = scaled(n, product, alpha)?;
        return add(n, product, c, beta);
    };
    let weights = scaled(n, Slot::Constant(Arc::clone(weights)), alpha)?;
    let bias = match &c {
        Some(Slot::Constant(c)) if c.dims.len() < 2 || c.dims[0] == 1 => {
            let flat = Tensor { name: c.name.clone(), ..eval::expand(c, vec![1, columns], &mut n.builder.budget)? };
            Some(scaled(n, Tensor { dims: vec![columns], ..flat }.into(), beta)?)
        }
        _ => None,
    };
    let epilogue = Epilogue { bias: bias.is_some(), ..Epilogue::default() };
    let op = Op::Gemm(Gemm { m, n: columns, k, epilogue });
    if let Some(bias) = bias {
        return n.emit(op, &[&a, &weights, &bias], vec![m, columns]);
    }
    let product = n.push(op, &[&a, &weights], vec![m, columns])?;
    add(n, product, c, beta)
}

/// The product plus beta C.
fn add(n: &mut NodeImport<'_>, product: Slot, c: Option<Slot>, beta: f32) -> Outcome {
    let Some(c) = c else {
        return Ok(vec![product]);
    };
    let c = scaled(n, c, beta)?;
    Ok(vec![combine(n, BinaryKind::Add, &product, &c)?])
}

fn scaled(n: &mut NodeImport<'_>, slot: Slot, factor: f32) -> Result<Slot, Refusal> {
    if factor == 1.0 {
        return Ok(slot);
    }
    let factor = Tensor { dtype: n.dtype(&slot), ..Tensor::floats(vec![], vec![factor]) };
    combine(n, BinaryKind::Mul, &slot, &factor.into())
}

/// Exchanges the last two axes.
fn transpose(n: &mut NodeImport<'_>, slot: &Slot) -> Result<Slot, Refusal> {
    let mut dims = n.dims(slot).to_vec();
    let rank = dims.len();
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(rank - 2, rank - 1);
    dims.swap(rank - 2, rank - 1);
    let Slot::Constant(tensor) = slot else {
        return n.push(Op::Transpose { perm }, &[slot], dims);
    };
    let mut strides = eval::strides(&tensor.dims);
    strides.swap(rank - 2, rank - 1);
    let turned = eval::view(tensor, 0, &strides, dims, &mut n.builder.budget)?;
    Ok(Tensor { name: tensor.name.clone(), ..turned }.into())
}

/// `MatMul` with NumPy's rules: vectors get a dimension that is dropped again, leading dimensions broadcast.
pub(super) fn matmul(n: &mut NodeImport<'_>) -> Outcome {
    let (a, b) = (n.float_input(0)?, n.float_input(1)?);
    let (a_dims, b_dims) = (n.dims(&a).to_vec(), n.dims(&b).to_vec());
    if a_dims.is_empty() || b_dims.is_empty() {
        return refuse("a scalar is no matrix");
    }
    let (mut wide_a, mut wide_b) = (a_dims.clone(), b_dims.clone());
    if a_dims.len() == 1 {
        wide_a.insert(0, 1);
    }
    if b_dims.len() == 1 {
        wide_b.push(1);
    }
    let (a, b) = (n.reshape(a, wide_a)?, n.reshape(b, wide_b)?);
    let product = product(n, &a, &b)?;
    let mut dims = n.dims(&product).to_vec();
    if b_dims.len() == 1 {
        dims.pop();
    }
    if a_dims.len() == 1 {
        dims.remove(dims.len() - 1 - usize::from(b_dims.len() > 1));
    }
    Ok(vec![n.reshape(product, dims)?])
}

/// Product of two tensors of two or more dimensions.
fn product(n: &mut NodeImport<'_>, a: &Slot, b: &Slot) -> Result<Slot, Refusal> {
    let (a_dims, b_dims) = (n.dims(a).to_vec(), n.dims(b).to_vec());
    let (a_lead, b_lead) = (&a_dims[..a_dims.len() - 2], &b_dims[..b_dims.len() - 2]);
    let [k, columns] = [b_dims[b_dims.len() - 2], b_dims[b_dims.len() - 1]];
    if a_dims[a_dims.len() - 1] != k {
        return refuse(format!("matrices {a_dims:?} and {b_dims:?} do not fit"));
    }
    let lead = eval::broadcast(a_lead, b_lead)?;
    let is_weight = matches!(b, Slot::Constant(_)) && b_lead.iter().all(|&d| d == 1);
    if is_weight && matches!(a, Slot::Activation(_)) {
        let matrix = n.reshape(b.clone(), vec![k, columns])?;
        let weights = transpose(n, &matrix)?;
        let m = a_dims[..a_dims.len() - 1].iter().product();
        let mut dims = a_dims.clone();
        dims.pop();
        dims.push(columns);
        let op = Op::Gemm(Gemm { m, n: columns, k, epilogue: Epilogue::default() });
        let result = n.push(op, &[a, &weights], dims)?;
        return n.reshape(result, [&lead[..], &[a_dims[a_dims.len() - 2], columns]].concat());
    }
    activations(n, a, b)
}

/// Product of two activations, or of a batch of constant matrices.
fn activations(n: &mut NodeImport<'_>, a: &Slot, b: &Slot) -> Result<Slot, Refusal> {
    let (a_dims, b_dims) = (n.dims(a).to_vec(), n.dims(b).to_vec());
    let (a_lead, b_lead) = (&a_dims[..a_dims.len() - 2], &b_dims[..b_dims.len() - 2]);
    let lead = eval::broadcast(a_lead, b_lead)?;
    let (m, k) = (a_dims[a_dims.len() - 2], a_dims[a_dims.len() - 1]);
    let (rows, columns) = (b_dims[b_dims.len() - 2], b_dims[b_dims.len() - 1]);
    if rows != k {
        return refuse(format!("matrices {a_dims:?} and {b_dims:?} do not fit"));
    }
    let count = |dims: &[usize]| dims.iter().product::<usize>();
    let (batch_a, batch_b, batch) = (count(a_lead), count(b_lead), count(&lead));
    if [batch_a, batch_b].iter().any(|&own| own != 1 && own != batch) {
        return refuse(format!(
            "matrices {a_dims:?} and {b_dims:?} broadcast in part, which is not supported; simplify the model, with onnxsim for instance"
        ));
    }
    let a = n.reshape(a.clone(), vec![batch_a, m, k])?;
    let b = n.reshape(b.clone(), vec![batch_b, k, columns])?;
    let op = Op::MatMul(MatMul { batch_a, batch_b, m, n: columns, k });
    let product = n.push(op, &[&a, &b], vec![batch, m, columns])?;
    n.reshape(product, [&lead[..], &[m, columns]].concat())
}
