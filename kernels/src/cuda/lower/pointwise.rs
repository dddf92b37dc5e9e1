//! Element-wise functions of one to three tensors, quantisation and conversion.

use super::emit::{self, Constants, Defines};
use super::function::{self, literal};
use super::{Arg, Launch, Lowered, Target, Tensor, TypedStep};
use crate::error::KernelError;
use crate::op::{BinaryKind, Op, Unary};
use crate::tensor::{DType, elements};
use crate::walk::{Walk, broadcast_strides, strides};

/// Most operands of a function.
const OPERANDS: usize = 3;

/// A function of the kernel, in the kernel's words.
struct Function {
    name: &'static str,
    operands: usize,
    activation: Option<Unary>,
    /// Bounds of the result, where the function has any.
    range: (f32, f32),
}

impl Function {
    fn new(name: &'static str, operands: usize) -> Self {
        Self { name, operands, activation: None, range: (0.0, 0.0) }
    }
}

pub(super) fn lower(step: &TypedStep<'_>, _: &Target) -> Result<Lowered, KernelError> {
    emit::check_sizes(step)?;
    let function = match step.op {
        Op::Unary(f) => Function { activation: Some(*f), ..Function::new("kFirst", 1) },
        Op::Binary { kind, activation } => Function { activation: *activation, ..Function::new(combination(*kind), 2) },
        Op::ScaleShift { .. } => Function::new("kScaleShift", 3),
        Op::Quantize { low, high, .. } => Function { range: (*low, *high), ..Function::new("kQuantize", 3) },
        Op::Dequantize { .. } => Function::new("kDequantize", 3),
        Op::Cast { integer_range: Some(range) } => Function { range: *range, ..Function::new("kCast", 1) },
        _ => Function::new("kFirst", 1),
    };
    let output = &step.output;
    let along = |index: usize| match step.op {
        Op::ScaleShift { axis } | Op::Quantize { axis, .. } | Op::Dequantize { axis } if index > 0 => {
            let per_index = elements(step.inputs[index].dims()) > 1;
            (0..output.dims.len()).map(|i| isize::from(i == *axis && per_index)).collect()
        }
        _ => broadcast_strides(step.inputs[index].dims(), output.dims.len()),
    };
    let mut constants = Constants::default();
    let operands: Vec<_> = (0..function.operands)
        .map(|index| {
            let (arg, dtype) = constants.operand(step, index);
            (arg, dtype, along(index))
        })
        .collect();
    let launch = elementwise(&function, operands, output);
    Ok(Lowered { launches: vec![launch], constants: constants.0, workspace_bytes: 0 })
}

fn combination(kind: BinaryKind) -> &'static str {
    match kind {
        BinaryKind::Add => "kAdd",
        BinaryKind::Sub => "kSub",
        BinaryKind::Mul => "kMul",
        BinaryKind::Div => "kDiv",
        BinaryKind::Min => "kMin",
        BinaryKind::Max => "kMax",
        BinaryKind::Pow => "kPow",
        BinaryKind::PRelu => "kPRelu",
    }
}

/// A function of operands, each its address, type and strides along the output's axes.
fn elementwise(function: &Function, operands: Vec<(Arg, DType, Vec<isize>)>, output: &Tensor) -> Launch {
    let count = operands.len();
    // An operand that is not there is read like the first, and not used.
    let stride = |i: usize, axis: usize| operands[if i < count { i } else { 0 }].2[axis];
    let axes = output.dims.iter().enumerate().map(|(axis, &dim)| (dim, [0, 1, 2].map(|i| stride(i, axis))));
    let walk = Walk::<OPERANDS>::new(axes, [0; OPERANDS]);
    let vector = emit::walk_vector(output.dtype, &walk, true, &[]);
    let types = [0, 1, 2].map(|i| emit::type_name(operands.get(i).map_or(DType::F32, |(_, dtype, _)| *dtype)));
    let [type_a, type_b, type_c] = types;
    let lists = [0, 1, 2].map(|i| emit::list(emit::strides(&walk, i)));
    let [strides_a, strides_b, strides_c] = lists;
    let mut defines: Defines = vec![
        ("FUNCTION", function.name.into()),
        ("OPERANDS", count.to_string()),
        ("LOW", literal(function.range.0)),
        ("HIGH", literal(function.range.1)),
        ("DIMS", emit::dims(&walk)),
        ("STRIDES_A", strides_a),
        ("STRIDES_B", strides_b),
        ("STRIDES_C", strides_c),
        ("TA", type_a),
        ("TB", type_b),
        ("TC", type_c),
        ("TY", emit::type_name(output.dtype)),
        ("VECTOR", vector.to_string()),
    ];
    defines.extend(function::defines(function.activation));
    let kernel = emit::spec("pointwise.cu", "pointwise", defines);
    let absent = OPERANDS - count;
    let args = operands.into_iter().map(|(arg, ..)| arg).chain(vec![Arg::Null; absent]).chain([Arg::Output]);
    emit::launch(kernel, output.len(), vector, args)
}

/// A copy of operand 0 into the output, which differ in element type and pitch only; channels that the output has beyond
/// its own are zero. Both have fewer than 2^31 elements.
pub(in crate::cuda) fn convert(from: &Tensor, to: &Tensor) -> Launch {
    let channels = to.dims.last().copied().unwrap_or(1);
    if [from.pitch, to.pitch] == [channels; 2] {
        return elementwise(&Function::new("kFirst", 1), vec![(Arg::Input(0), from.dtype, strides(&to.dims))], to);
    }
    let vector = emit::vector(to.dtype, [to.pitch]);
    let defines = vec![
        ("CHANNELS", channels.to_string()),
        ("PITCH_X", from.pitch.to_string()),
        ("PITCH_Y", to.pitch.to_string()),
        ("TX", emit::type_name(from.dtype)),
        ("TY", emit::type_name(to.dtype)),
        ("VECTOR", vector.to_string()),
    ];
    let len = to.len() / channels.max(1) * to.pitch;
    emit::launch(emit::spec("pointwise.cu", "convert", defines), len, vector, [Arg::Input(0), Arg::Output])
}
