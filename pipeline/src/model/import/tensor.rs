//! Constants while a model is imported: exact integers beside floats.

use ocellus_kernels::tensor::DType;
use ocellus_kernels::values::Values;

use super::refusal::{Refusal, product, refuse};
use crate::model::onnx::proto::tensor_proto::DataType;

/// Elements that the constants of one model may have together (4 GiB as f32).
const MAX_STORED: usize = 1 << 30;
/// Elements that constants computed at import may have together; a few bytes of file can ask for any number of them.
const MAX_COMPUTED: usize = 1 << 27;

/// A constant, dense and row-major.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tensor {
    /// Name in the file; empty for a computed one.
    pub(super) name: String,
    /// Element type that the model declares.
    pub(super) dtype: DType,
    /// Dimensions, outermost first; 0 is allowed.
    pub(super) dims: Vec<usize>,
    /// Elements.
    pub(super) data: Data,
}

/// Elements of a [`Tensor`].
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Data {
    /// f32, f16, bf16 and f64, as f32.
    Float(Values),
    /// Integers and truth values.
    Int(Vec<i64>),
}

impl Tensor {
    /// A computed tensor. The caller provides as many elements as the dimensions say.
    pub(super) fn new(dtype: DType, dims: Vec<usize>, data: Data) -> Self {
        let tensor = Self { name: String::new(), dtype, dims, data };
        debug_assert_eq!(Some(tensor.len()), product(&tensor.dims));
        tensor
    }

    /// A list of 64-bit integers.
    pub(super) fn list(values: Vec<i64>) -> Self {
        Self::new(DType::I64, vec![values.len()], Data::Int(values))
    }

    /// A list of f32.
    pub(super) fn floats(dims: Vec<usize>, values: impl Into<Values>) -> Self {
        Self::new(DType::F32, dims, Data::Float(values.into()))
    }

    /// Number of elements.
    pub(super) fn len(&self) -> usize {
        match &self.data {
            Data::Float(v) => v.len(),
            Data::Int(v) => v.len(),
        }
    }

    /// The elements as integers; refused for a float tensor.
    pub(super) fn ints(&self, what: &str) -> Result<&[i64], Refusal> {
        match &self.data {
            Data::Int(v) => Ok(v),
            Data::Float(_) => refuse(format!("{what} must be integers, the model has {:?}", self.dtype)),
        }
    }

    /// The elements as floats, whatever they are.
    pub(super) fn to_floats(&self) -> Values {
        match &self.data {
            Data::Float(v) => v.clone(),
            Data::Int(v) => v.iter().map(|&i| i as f32).collect(),
        }
    }

    /// The only element, as a float.
    pub(super) fn float(&self, what: &str) -> Result<f32, Refusal> {
        match &self.data {
            Data::Float(v) if v.len() == 1 => Ok(v[0]),
            Data::Int(v) if v.len() == 1 => Ok(v[0] as f32),
            _ => refuse(format!("{what} must be one value, the model has {:?}", self.dims)),
        }
    }
}

/// What is left of the limits on constants.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    stored: usize,
    computed: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { stored: MAX_STORED, computed: MAX_COMPUTED }
    }
}

impl Budget {
    /// Takes the elements of a constant in the file.
    pub(super) fn store(&mut self, dims: &[usize]) -> Result<usize, Refusal> {
        take(&mut self.stored, dims, MAX_STORED)
    }

    /// Takes the elements of a constant that the import computes.
    pub(super) fn compute(&mut self, dims: &[usize]) -> Result<usize, Refusal> {
        take(&mut self.computed, dims, MAX_COMPUTED)
    }
}

/// Dimensions beside a 0 count as well, so that no product of some of them overflows later.
fn take(left: &mut usize, dims: &[usize], limit: usize) -> Result<usize, Refusal> {
    let ones: Vec<usize> = dims.iter().map(|&d| d.max(1)).collect();
    match product(&ones).and_then(|n| left.checked_sub(n)) {
        Some(_) if dims.contains(&0) => Ok(0),
        Some(rest) => {
            let n = *left - rest;
            *left = rest;
            Ok(n)
        }
        None => {
            refuse(format!("a constant of {dims:?} takes the model's constants over the limit of {limit} elements"))
        }
    }
}

/// How an ONNX element type is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    F32,
    F64,
    F16,
    Bf16,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    Bool,
}

impl Encoding {
    /// The encoding behind an ONNX `data_type`.
    pub(super) fn of(data_type: i32) -> Result<Self, Refusal> {
        Ok(match DataType::try_from(data_type) {
            Ok(DataType::Float) => Self::F32,
            Ok(DataType::Double) => Self::F64,
            Ok(DataType::Float16) => Self::F16,
            Ok(DataType::Bfloat16) => Self::Bf16,
            Ok(DataType::Int8) => Self::I8,
            Ok(DataType::Uint8) => Self::U8,
            Ok(DataType::Int16) => Self::I16,
            Ok(DataType::Uint16) => Self::U16,
            Ok(DataType::Int32) => Self::I32,
            Ok(DataType::Uint32) => Self::U32,
            Ok(DataType::Int64) => Self::I64,
            Ok(DataType::Uint64) => Self::U64,
            Ok(DataType::Bool) => Self::Bool,
            Ok(other) => return refuse(format!("element type {} is not supported", other.as_str_name())),
            Err(_) => return refuse(format!("element type {data_type} is unknown")),
        })
    }

    /// Bytes an element takes.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// The narrowest type of ours that holds it.
    pub(super) fn dtype(self) -> DType {
        match self {
            Self::F32 | Self::F64 => DType::F32,
            Self::F16 => DType::F16,
            Self::Bf16 => DType::Bf16,
            Self::I8 => DType::I8,
            Self::U8 => DType::U8,
            Self::I16 | Self::U16 | Self::I32 => DType::I32,
            Self::U32 | Self::I64 | Self::U64 => DType::I64,
            Self::Bool => DType::Bool,
        }
    }

    /// Smallest and largest value of an integer type.
    pub(super) fn integer_range(self) -> Option<(i64, i64)> {
        Some(match self {
            Self::I8 => (i8::MIN.into(), i8::MAX.into()),
            Self::U8 => (u8::MIN.into(), u8::MAX.into()),
            Self::I16 => (i16::MIN.into(), i16::MAX.into()),
            Self::U16 => (u16::MIN.into(), u16::MAX.into()),
            Self::I32 => (i32::MIN.into(), i32::MAX.into()),
            Self::U32 => (u32::MIN.into(), u32::MAX.into()),
            Self::I64 => (i64::MIN, i64::MAX),
            Self::U64 => (0, i64::MAX),
            Self::Bool => (0, 1),
            Self::F32 | Self::F64 | Self::F16 | Self::Bf16 => return None,
        })
    }
}

/// True for a floating-point type.
pub(super) fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::Bf16)
}
