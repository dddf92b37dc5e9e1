//! Operators that keep the elements and change the dimensions or the order of axes.

use ocellus_kernels::op::Op;

use super::eval;
use super::node::{NodeImport, Outcome, Slot};
use super::refusal::{Refusal, axes, axis, product, refuse, size};
use super::tensor::Tensor;

/// Reshape: 0 keeps a dimension (unless `allowzero`), -1 takes what is left.
pub(super) fn reshape(n: &mut NodeImport<'_>) -> Outcome {
    let x = n.input(0)?;
    let wanted = n.ints(1, "the shape")?;
    let keep_zero = n.attributes.flag("allowzero", false)?;
    let dims = resolve(n.dims(&x), &wanted, keep_zero)?;
    Ok(vec![n.reshape(x, dims)?])
}

fn resolve(from: &[usize], wanted: &[i64], keep_zero: bool) -> Result<Vec<usize>, Refusal> {
    let mut dims = Vec::with_capacity(wanted.len());
    let mut open = None;
    for (i, &d) in wanted.iter().enumerate() {
        dims.push(match d {
            -1 if open.is_some() => return refuse(format!("the shape {wanted:?} leaves two dimensions open")),
            -1 => {
                open = Some(i);
                1
            }
            0 if !keep_zero => match from.get(i) {
                Some(&d) => d,
                None => return refuse(format!("the shape {wanted:?} keeps dimension {i}, {from:?} have none")),
            },
            d => size(d, "a dimension")?,
        });
    }
    if let Some(open) = open {
        dims[open] = match (product(from), product(&dims)) {
            (Some(all), Some(rest)) if rest > 0 && all % rest == 0 => all / rest,
            _ => return refuse(format!("{from:?} cannot become {wanted:?}")),
        };
    }
    Ok(dims)
}

/// Flatten to two dimensions at `axis`.
pub(super) fn flatten(n: &mut NodeImport<'_>) -> Outcome {
    let x = n.input(0)?;
    let dims = n.dims(&x).to_vec();
    let at = n.attributes.int("axis", 1)?;
    let at = if at == dims.len() as i64 { dims.len() } else { axis(at, dims.len())? };
    let two = vec![dims[..at].iter().product(), dims[at..].iter().product()];
    Ok(vec![n.reshape(x, two)?])
}

/// Squeeze: axes are an attribute before opset 13.
pub(super) fn squeeze(n: &mut NodeImport<'_>) -> Outcome {
    let x = n.input(0)?;
    let dims = n.dims(&x).to_vec();
    let drop = match n.ints_since(13, 1, "axes")? {
        Some(stated) => axes(&stated, dims.len())?,
        None => (0..dims.len()).filter(|&i| dims[i] == 1).collect(),
    };
    if let Some(&i) = drop.iter().find(|&&i| dims[i] != 1) {
        return refuse(format!("axis {i} of {dims:?} is not of length 1"));
    }
    let kept = dims.iter().enumerate().filter(|(i, _)| !drop.contains(i)).map(|(_, &d)| d).collect();
    Ok(vec![n.reshape(x, kept)?])
}

/// Unsqueeze: axes are an attribute before opset 13.
pub(super) fn unsqueeze(n: &mut NodeImport<'_>) -> Outcome {
    let x = n.input(0)?;
    let mut dims = n.dims(&x).to_vec();
    let Some(stated) = n.ints_since(13, 1, "axes")? else {
        return refuse("\"axes\" is missing");
    };
    for i in axes(&stated, dims.len() + stated.len())? {
        dims.insert(i, 1);
    }
    Ok(vec![n.reshape(x, dims)?])
}

/// Transpose; without `perm` the axes are reversed.
pub(super) fn transpose(n: &mut NodeImport<'_>) -> Outcome {
    let x = n.input(0)?;
    let rank = n.dims(&x).len();
    let perm = match n.attributes.ints("perm")? {
        None => (0..rank).rev().collect(),
        Some(stated) => {
            // Checks that each axis occurs once; the order is the stated one.
            axes(&stated, rank)?;
            stated.iter().map(|&i| axis(i, rank)).collect::<Result<Vec<_>, _>>()?
        }
    };
    if perm.len() != rank {
        return refuse(format!("perm {perm:?} does not name {rank} axes"));
    }
    Ok(vec![permuted(n, &x, perm)?])
}

fn permuted(n: &mut NodeImport<'_>, x: &Slot, perm: Vec<usize>) -> Result<Slot, Refusal> {
    let dims: Vec<usize> = perm.iter().map(|&i| n.dims(x)[i]).collect();
    let Slot::Constant(tensor) = x else {
        return n.push(Op::Transpose { perm }, &[x], dims);
    };
    let own = eval::strides(&tensor.dims);
    let strides: Vec<isize> = perm.iter().map(|&i| own[i]).collect();
    let turned = eval::view(tensor, 0, &strides, dims, &mut n.builder.budget)?;
    Ok(Tensor { name: tensor.name.clone(), ..turned }.into())
}

/// `DepthToSpace`: depth-column-row order, or column-row-depth.
pub(super) fn depth_to_space(n: &mut NodeImport<'_>) -> Outcome {
    let (x, [batch, c, h, w]) = n.image(0)?;
    let b = block(n)?;
    let depth_first = n.attributes.choice("mode", true, &[("DCR", true), ("CRD", false)])?;
    if c % b.saturating_mul(b) != 0 {
        return refuse(format!("{c} channels are not a multiple of {b} x {b}"));
    }
    let out = c / (b * b);
    let (split, perm) = if depth_first {
        (vec![batch, b, b, out, h, w], vec![0, 3, 4, 1, 5, 2])
    } else {
        (vec![batch, out, b, b, h, w], vec![0, 1, 4, 2, 5, 3])
    };
    let x = n.reshape(x, split)?;
    let x = permuted(n, &x, perm)?;
    Ok(vec![n.reshape(x, vec![batch, out, h * b, w * b])?])
}

/// `SpaceToDepth`.
pub(super) fn space_to_depth(n: &mut NodeImport<'_>) -> Outcome {
    let (x, [batch, c, h, w]) = n.image(0)?;
    let b = block(n)?;
    if h % b != 0 || w % b != 0 {
        return refuse(format!("{h} x {w} pixels are no multiple of blocks of {b}"));
    }
    let x = n.reshape(x, vec![batch, c, h / b, b, w / b, b])?;
    let x = permuted(n, &x, vec![0, 3, 5, 1, 2, 4])?;
    Ok(vec![n.reshape(x, vec![batch, c * b * b, h / b, w / b])?])
}

fn block(n: &mut NodeImport<'_>) -> Result<usize, Refusal> {
    match n.attributes.optional_int("blocksize")? {
        Some(b) if b > 0 => size(b, "blocksize"),
        other => refuse(format!("blocksize must be positive, the model has {other:?}")),
    }
}
