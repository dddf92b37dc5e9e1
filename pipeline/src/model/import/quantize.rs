//! Linear quantisation.

use ocellus_kernels::op::Op;
use ocellus_kernels::tensor::DType;

use super::eval;
use super::node::{NodeImport, Outcome, Slot};
use super::refusal::{Refusal, axis, refuse};
use super::tensor::{Data, Encoding, Tensor};

/// `QuantizeLinear`. How a value saturates matters for 8-bit floats only, which are refused.
pub(super) fn quantize(n: &mut NodeImport<'_>) -> Outcome {
    n.attributes.ignore(&["saturate"]);
    let x = n.float_input(0)?;
    let stated = match n.attributes.int("output_dtype", 0)? {
        0 => None,
        stated => Some(Encoding::of(i32::try_from(stated).unwrap_or(-1))?),
    };
    let zero = n.optional_constant(2, "the zero point")?.map(|zero| zero.dtype);
    let dtype = stated.map(Encoding::dtype).or(zero).unwrap_or(DType::U8);
    if zero.is_some_and(|zero| zero != dtype) {
        return refuse(format!("output_dtype {dtype:?} is not the zero point's type"));
    }
    let (low, high) = match dtype {
        DType::U8 => (0.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        other => return refuse(format!("quantisation to {other:?} is not supported, to 8-bit integers only")),
    };
    let scale = Scale::read(n, &x)?;
    let dims = n.dims(&x).to_vec();
    let op = Op::Quantize { axis: scale.axis, low, high };
    let (factor, zero) = (scale.factor.into(), scale.zero.into());
    Ok(vec![n.push_as(op, &[&x, &factor, &zero], dims, dtype)?])
}

/// `DequantizeLinear`. Quantised weights become floats here.
pub(super) fn dequantize(n: &mut NodeImport<'_>) -> Outcome {
    let x = n.input(0)?;
    if !matches!(n.dtype(&x), DType::I8 | DType::U8 | DType::I32) {
        return refuse(format!("its input is {:?}; 8-bit and 32-bit integers are supported", n.dtype(&x)));
    }
    let scale = Scale::read(n, &x)?;
    let dims = n.dims(&x).to_vec();
    let Slot::Constant(tensor) = &x else {
        let op = Op::Dequantize { axis: scale.axis };
        let (factor, zero) = (scale.factor.into(), scale.zero.into());
        return Ok(vec![n.push_as(op, &[&x, &factor, &zero], dims, DType::F32)?]);
    };
    let weights = scale.apply(n, tensor)?;
    Ok(vec![Tensor { name: tensor.name.clone(), ..weights }.into()])
}

/// Scales and zero points: one value each, or one for each index of an axis.
struct Scale {
    axis: usize,
    factor: Tensor,
    zero: Tensor,
}

impl Scale {
    fn read(n: &mut NodeImport<'_>, x: &Slot) -> Result<Self, Refusal> {
        let dims = n.dims(x).to_vec();
        let stated = n.attributes.int("axis", 1)?;
        if n.attributes.int("block_size", 0)? != 0 {
            return refuse("quantisation in blocks is not supported");
        }
        let scale = n.constant(1, "the scale")?;
        let zero = n.optional_constant(2, "the zero point")?;
        if !matches!(scale.data, Data::Float(_)) {
            return refuse("the scale must be floating-point");
        }
        if zero.as_ref().is_some_and(|zero| zero.len() != scale.len()) {
            return refuse("scale and zero point have different sizes");
        }
        let (axis, own) = match scale.dims.as_slice() {
            [] | [1] => (0, vec![]),
            [count] => {
                let axis = axis(stated, dims.len())?;
                if dims[axis] != *count {
                    return refuse(format!("{count} scales for axis {axis} of {dims:?}"));
                }
                (axis, vec![*count])
            }
            other => return refuse(format!("scales of {other:?} are not supported")),
        };
        let zeros = zero.map_or_else(|| vec![0.0; scale.len()].into(), |zero| zero.to_floats());
        let scale = Tensor::floats(own.clone(), scale.to_floats());
        Ok(Self { axis, factor: scale, zero: Tensor::floats(own, zeros) })
    }

    /// (x - zero point) scale of a constant.
    fn apply(self, n: &mut NodeImport<'_>, tensor: &Tensor) -> Result<Tensor, Refusal> {
        let mut spread = vec![1; tensor.dims.len()];
        if let (Some(axis), [count]) = (spread.get_mut(self.axis), self.factor.dims.as_slice()) {
            *axis = *count;
        }
        let budget = &mut n.builder.budget;
        let mut spread = |of: Tensor| {
            let of = Tensor { dims: spread.clone(), ..of };
            Ok(eval::expand(&of, tensor.dims.clone(), budget)?.to_floats())
        };
        let (factor, zero) = (spread(self.factor)?, spread(self.zero)?);
        let x = tensor.to_floats();
        let values = x.iter().zip(zero.iter()).zip(factor.iter()).map(|((x, zero), factor)| (x - zero) * factor);
        Ok(Tensor::floats(tensor.dims.clone(), values.collect::<Vec<_>>()))
    }
}
