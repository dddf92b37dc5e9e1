//! Element-wise functions as defines for `activation.cuh`.

use crate::op::Unary;

/// `ACTIVATION` is the function's name there, `ALPHA` and `BETA` its parameters.
pub(super) fn defines(function: Option<Unary>) -> [(&'static str, String); 3] {
    let (name, alpha, beta) = match function {
        None => ("kIdentity", 0.0, 0.0),
        Some(Unary::Relu) => ("kRelu", 0.0, 0.0),
        Some(Unary::Clip { min, max }) => ("kClip", min, max),
        Some(Unary::LeakyRelu { alpha }) => ("kLeakyRelu", alpha, 0.0),
        Some(Unary::Elu { alpha }) => ("kElu", alpha, 0.0),
        Some(Unary::Sigmoid) => ("kSigmoid", 0.0, 0.0),
        Some(Unary::HardSigmoid { alpha, beta }) => ("kHardSigmoid", alpha, beta),
        Some(Unary::HardSwish) => ("kHardSwish", 0.0, 0.0),
        Some(Unary::Silu) => ("kSilu", 0.0, 0.0),
        Some(Unary::Tanh) => ("kTanh", 0.0, 0.0),
        Some(Unary::Gelu { tanh: false }) => ("kGelu", 0.0, 0.0),
        Some(Unary::Gelu { tanh: true }) => ("kGeluTanh", 0.0, 0.0),
        Some(Unary::Mish) => ("kMish", 0.0, 0.0),
        Some(Unary::Softplus) => ("kSoftplus", 0.0, 0.0),
        Some(Unary::Erf) => ("kErf", 0.0, 0.0),
        Some(Unary::Exp) => ("kExp", 0.0, 0.0),
        Some(Unary::Log) => ("kLog", 0.0, 0.0),
        Some(Unary::Sqrt) => ("kSqrt", 0.0, 0.0),
        Some(Unary::Reciprocal) => ("kReciprocal", 0.0, 0.0),
        Some(Unary::Abs) => ("kAbs", 0.0, 0.0),
        Some(Unary::Neg) => ("kNeg", 0.0, 0.0),
        Some(Unary::Floor) => ("kFloor", 0.0, 0.0),
        Some(Unary::Ceil) => ("kCeil", 0.0, 0.0),
        Some(Unary::Round) => ("kRound", 0.0, 0.0),
    };
    [("ACTIVATION", name.into()), ("ALPHA", literal(alpha)), ("BETA", literal(beta))]
}

/// An expression with exactly this value, infinities and all.
pub(super) fn literal(x: f32) -> String {
    format!("__int_as_float({:#x})", x.to_bits())
}
