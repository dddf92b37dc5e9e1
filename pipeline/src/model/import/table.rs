//! The operators that can be imported, each with the opsets and the number of operands it has.

use ocellus_kernels::op::{BinaryKind, ReduceKind, Unary};

use super::node::{NodeImport, Outcome};
use super::{constants, conv, matmul, norm, pointwise, pool, quantize, reduce, resize, shape, slice};

/// How an operator of ONNX is imported.
pub(super) struct Rule {
    /// Operator type in the file.
    pub(super) op: &'static str,
    /// First and last opset that have it.
    pub(super) opsets: [i64; 2],
    /// Fewest and most operands over all its opsets.
    pub(super) inputs: [usize; 2],
    /// Adds its nodes to the graph.
    pub(super) lower: fn(&mut NodeImport<'_>) -> Outcome,
}

/// Any number of operands.
const MANY: usize = usize::MAX;

const fn rule(op: &'static str, since: i64, inputs: [usize; 2], lower: fn(&mut NodeImport<'_>) -> Outcome) -> Rule {
    Rule { op, opsets: [since, i64::MAX], inputs, lower }
}

/// The rule for an operator type.
pub(super) fn find(op: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.op == op)
}

#[rustfmt::skip]
static RULES: &[Rule] = &[
    rule("Conv", 1, [2, 3], conv::conv),
    rule("ConvTranspose", 1, [2, 3], conv::conv_transpose),
    rule("Gemm", 1, [2, 3], matmul::gemm),
    rule("MatMul", 1, [2, 2], matmul::matmul),
    rule("MaxPool", 1, [1, 1], pool::max),
    rule("AveragePool", 1, [1, 1], pool::average),
    rule("GlobalMaxPool", 1, [1, 1], |n| pool::global(n, ReduceKind::Max)),
    rule("GlobalAveragePool", 1, [1, 1], |n| pool::global(n, ReduceKind::Mean)),
    rule("ReduceMean", 1, [1, 2], |n| reduce::reduce(n, ReduceKind::Mean, 18)),
    rule("ReduceSum", 1, [1, 2], |n| reduce::reduce(n, ReduceKind::Sum, 13)),
    rule("ReduceMax", 1, [1, 2], |n| reduce::reduce(n, ReduceKind::Max, 18)),
    rule("ReduceMin", 1, [1, 2], |n| reduce::reduce(n, ReduceKind::Min, 18)),
    rule("ArgMax", 1, [1, 1], reduce::arg_max),
    rule("BatchNormalization", 1, [5, 5], norm::batch),
    rule("LayerNormalization", 17, [2, 3], norm::layer),
    rule("Softmax", 1, [1, 1], |n| norm::softmax(n, false)),
    rule("LogSoftmax", 1, [1, 1], |n| norm::softmax(n, true)),

    rule("Relu", 1, [1, 1], |n| pointwise::unary(n, Unary::Relu)),
    rule("Clip", 1, [1, 3], pointwise::clip),
    rule("LeakyRelu", 1, [1, 1], pointwise::leaky_relu),
    rule("PRelu", 1, [2, 2], pointwise::prelu),
    rule("Elu", 1, [1, 1], pointwise::elu),
    rule("Sigmoid", 1, [1, 1], |n| pointwise::unary(n, Unary::Sigmoid)),
    rule("HardSigmoid", 1, [1, 1], pointwise::hard_sigmoid),
    rule("HardSwish", 14, [1, 1], |n| pointwise::unary(n, Unary::HardSwish)),
    rule("Tanh", 1, [1, 1], |n| pointwise::unary(n, Unary::Tanh)),
    rule("Gelu", 20, [1, 1], pointwise::gelu),
    rule("Mish", 18, [1, 1], |n| pointwise::unary(n, Unary::Mish)),
    rule("Softplus", 1, [1, 1], |n| pointwise::unary(n, Unary::Softplus)),
    rule("Erf", 9, [1, 1], |n| pointwise::unary(n, Unary::Erf)),
    rule("Exp", 1, [1, 1], |n| pointwise::unary(n, Unary::Exp)),
    rule("Log", 1, [1, 1], |n| pointwise::unary(n, Unary::Log)),
    rule("Sqrt", 1, [1, 1], |n| pointwise::unary(n, Unary::Sqrt)),
    rule("Reciprocal", 1, [1, 1], |n| pointwise::unary(n, Unary::Reciprocal)),
    rule("Abs", 1, [1, 1], |n| pointwise::unary(n, Unary::Abs)),
    rule("Neg", 1, [1, 1], |n| pointwise::unary(n, Unary::Neg)),
    rule("Floor", 1, [1, 1], |n| pointwise::unary(n, Unary::Floor)),
    rule("Ceil", 1, [1, 1], |n| pointwise::unary(n, Unary::Ceil)),
    rule("Round", 11, [1, 1], |n| pointwise::unary(n, Unary::Round)),
    rule("Add", 1, [2, 2], |n| pointwise::binary(n, BinaryKind::Add)),
    rule("Sub", 1, [2, 2], |n| pointwise::binary(n, BinaryKind::Sub)),
    rule("Mul", 1, [2, 2], |n| pointwise::binary(n, BinaryKind::Mul)),
    rule("Div", 1, [2, 2], |n| pointwise::binary(n, BinaryKind::Div)),
    rule("Pow", 1, [2, 2], |n| pointwise::binary(n, BinaryKind::Pow)),
    rule("Min", 1, [1, MANY], |n| pointwise::variadic(n, BinaryKind::Min)),
    rule("Max", 1, [1, MANY], |n| pointwise::variadic(n, BinaryKind::Max)),
    rule("Sum", 1, [1, MANY], |n| pointwise::variadic(n, BinaryKind::Add)),
    rule("Cast", 1, [1, 1], pointwise::cast),
    rule("QuantizeLinear", 10, [2, 3], quantize::quantize),
    rule("DequantizeLinear", 10, [2, 3], quantize::dequantize),

    rule("Resize", 10, [1, 4], resize::resize),
    Rule { op: "Upsample", opsets: [9, 9], inputs: [2, 2], lower: resize::upsample },
    rule("Reshape", 1, [2, 2], shape::reshape),
    rule("Flatten", 1, [1, 1], shape::flatten),
    rule("Squeeze", 1, [1, 2], shape::squeeze),
    rule("Unsqueeze", 1, [1, 2], shape::unsqueeze),
    rule("Transpose", 1, [1, 1], shape::transpose),
    rule("DepthToSpace", 1, [1, 1], shape::depth_to_space),
    rule("SpaceToDepth", 1, [1, 1], shape::space_to_depth),
    rule("Concat", 1, [1, MANY], slice::concat),
    rule("Split", 1, [1, 2], slice::split),
    rule("Slice", 1, [1, 5], slice::slice),
    rule("Gather", 1, [2, 2], slice::gather),
    rule("Pad", 1, [1, 4], slice::pad),

    rule("Identity", 1, [1, 1], constants::identity),
    rule("Dropout", 1, [1, 3], constants::dropout),
    rule("Constant", 1, [0, 0], constants::constant),
    rule("ConstantOfShape", 9, [1, 1], constants::constant_of_shape),
    rule("Shape", 1, [1, 1], constants::shape),
    rule("Range", 11, [3, 3], constants::range),
    rule("Equal", 1, [2, 2], constants::equal),
    rule("Where", 9, [3, 3], constants::select),
    rule("Expand", 8, [2, 2], constants::expand),
];
