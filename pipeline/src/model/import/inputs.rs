//! The model's inputs: their types, and sizes for what the file leaves open.

use super::ImportOptions;
use super::refusal::{Refusal, refuse};
use super::tensor::Encoding;
use crate::model::onnx::proto::tensor_shape_proto::dimension;
use crate::model::onnx::proto::type_proto;
use crate::model::onnx::proto::{TypeProto, ValueInfoProto};

/// An input with all sizes known.
pub(super) struct Input {
    pub(super) dims: Vec<usize>,
    pub(super) encoding: Encoding,
    /// True when the file left the first dimension open.
    pub(super) dynamic_batch: bool,
}

/// Resolves an input's dimensions: an open first one becomes the batch, open rows and columns of an image the size of
/// the options.
pub(super) fn resolve(info: &ValueInfoProto, options: &ImportOptions) -> Result<Input, Refusal> {
    let Some(type_proto::Value::TensorType(tensor)) = info.r#type.as_ref().and_then(|t: &TypeProto| t.value.as_ref())
    else {
        return refuse("it is no tensor");
    };
    let encoding = Encoding::of(tensor.elem_type.unwrap_or_default())?;
    let Some(shape) = &tensor.shape else {
        return refuse("its number of dimensions is open; export the model with input shapes");
    };
    // Writers mark an open dimension by a name, by nothing, by 0 or by -1.
    let mut dims = Vec::new();
    for dimension in &shape.dim {
        dims.push(match &dimension.value {
            Some(dimension::Value::DimValue(d)) if *d > 0 => Some(*d as usize),
            Some(dimension::Value::DimValue(d)) if *d < -1 => return refuse(format!("a dimension is {d}")),
            _ => None,
        });
    }
    let dynamic_batch = dims.first() == Some(&None);
    if dynamic_batch {
        dims[0] = Some(options.batch);
    }
    set_size(&mut dims, options.input_size)?;
    Ok(Input { dims: dims.into_iter().flatten().collect(), encoding, dynamic_batch })
}

/// Fills in rows and columns, which are axes 2 and 3, or 1 and 2 where only the last axis has a known small size.
fn set_size(dims: &mut [Option<usize>], wanted: Option<[usize; 2]>) -> Result<(), Refusal> {
    let open: Vec<usize> = (0..dims.len()).filter(|&i| dims[i].is_none()).collect();
    let image = match dims {
        [_, Some(1..=4), _, _] | [_, _, None, None] => Some(2),
        [_, _, _, Some(1..=4)] => Some(1),
        [_, _, _, _] => Some(2),
        _ => None,
    };
    if let (Some(rows), Some(wanted)) = (image, wanted) {
        for (axis, size) in [rows, rows + 1].into_iter().zip(wanted) {
            if let Some(fixed) = dims[axis].filter(|&fixed| fixed != size) {
                return refuse(format!(
                    "dimension {axis} is fixed at {fixed}; the card asks for {size}, write {fixed} there"
                ));
            }
            dims[axis] = Some(size);
        }
    }
    match dims.iter().position(Option::is_none) {
        None => Ok(()),
        Some(first) if image.is_some_and(|rows| (rows..rows + 2).contains(&first)) => {
            refuse(format!("the model leaves dimensions {open:?} open; set the input's size in the model card"))
        }
        Some(_) => refuse(format!("the model leaves dimensions {open:?} open; export it with these fixed")),
    }
}
