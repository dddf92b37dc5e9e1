//! Operator descriptions: plain data, every size static.
//!
//! Descriptions are written by the model importer, rewritten by the graph passes and executed by an engine. In a
//! [`crate::plan::Plan`] every tensor is dense and row-major over the dimensions given there, and image tensors are
//! N, H, W, C; axes below count in that order. Letters: N batch, H W input rows and columns, C input channels, K output
//! channels, R S kernel rows and columns, P Q output rows and columns.

/// Element-wise function y = f(x).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// max(x, 0).
    Relu,
    /// min(max(x, min), max); Relu6 is `Clip { min: 0, max: 6 }`.
    Clip {
        /// Lower bound.
        min: f32,
        /// Upper bound.
        max: f32,
    },
    /// x if x >= 0, else alpha x.
    LeakyRelu {
        /// Slope below 0.
        alpha: f32,
    },
    /// x if x >= 0, else alpha (e^x - 1).
    Elu {
        /// Scale below 0.
        alpha: f32,
    },
    /// 1 / (1 + e^-x).
    Sigmoid,
    /// min(max(alpha x + beta, 0), 1).
    HardSigmoid {
        /// Slope.
        alpha: f32,
        /// Offset.
        beta: f32,
    },
    /// x min(max(x / 6 + 1/2, 0), 1).
    HardSwish,
    /// x / (1 + e^-x), also called Swish.
    Silu,
    /// Hyperbolic tangent.
    Tanh,
    /// x (1 + erf(x / sqrt 2)) / 2, or the tanh approximation of it.
    Gelu {
        /// True: x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2.
        tanh: bool,
    },
    /// x tanh(ln(1 + e^x)).
    Mish,
    /// ln(1 + e^x).
    Softplus,
    /// Error function.
    Erf,
    /// e^x.
    Exp,
    /// Natural logarithm.
    Log,
    /// Square root.
    Sqrt,
    /// 1 / x.
    Reciprocal,
    /// |x|.
    Abs,
    /// -x.
    Neg,
    /// Largest whole number not above x.
    Floor,
    /// Smallest whole number not below x.
    Ceil,
    /// Nearest whole number, halves to even.
    Round,
}

/// Element-wise function of two tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryKind {
    /// a + b.
    Add,
    /// a - b.
    Sub,
    /// a b.
    Mul,
    /// a / b.
    Div,
    /// Smaller of both.
    Min,
    /// Larger of both.
    Max,
    /// a to the power b.
    Pow,
    /// a if a >= 0, else a b (b is the slope).
    PRelu,
}

/// What a matrix product does to its sum before it is stored: y = act(sum + bias + residual).
///
/// The operands follow the operator's own in this order: bias (one value an output channel), residual (shape of the
/// output).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Epilogue {
    /// A bias operand is present.
    pub bias: bool,
    /// A residual operand is present.
    pub residual: bool,
    /// Activation, applied last.
    pub activation: Option<Unary>,
}

/// 2-D convolution. Operands: x [N, H, W, C], weights [K, R, S, C / groups], then those of the epilogue.
/// Output [N, P, Q, K]; `y[n, p, q, k]` is the sum over r, s, c of `x[n, p stride - pad + r dilation, ...] w[k, r, s, c]`,
/// zero outside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conv {
    /// Images.
    pub n: usize,
    /// Input rows.
    pub h: usize,
    /// Input columns.
    pub w: usize,
    /// Input channels.
    pub c: usize,
    /// Output channels.
    pub k: usize,
    /// Kernel rows.
    pub r: usize,
    /// Kernel columns.
    pub s: usize,
    /// Output rows.
    pub p: usize,
    /// Output columns.
    pub q: usize,
    /// Rows, columns.
    pub stride: [usize; 2],
    /// Zero rows above, zero columns to the left. What is needed below and to the right follows from P and Q.
    pub pad: [usize; 2],
    /// Rows, columns.
    pub dilation: [usize; 2],
    /// Channel groups; `groups == c` is depthwise.
    pub groups: usize,
    /// Applied to the sum.
    pub epilogue: Epilogue,
}

/// 2-D transposed convolution. Operands: x [N, H, W, C], weights [K, R, S, C / groups], then those of the epilogue
/// (no residual). Output [N, P, Q, K]; input pixel (h, w) adds to output (h stride - pad + r dilation, ...).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConvTranspose(
    /// H, W, C are the input's; P, Q, K the output's.
    pub Conv,
);

/// y [M, N] = act(x w^T + bias + residual). Operands: x [M, K], w [N, K] (one row an output feature), then those of the
/// epilogue. M counts every leading dimension of the input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gemm {
    /// Rows of the input.
    pub m: usize,
    /// Output features.
    pub n: usize,
    /// Input features.
    pub k: usize,
    /// Applied to the sum.
    pub epilogue: Epilogue,
}

/// Batched product of two activations: a [batch, M, K] times b [batch, K, N] (either batch may be 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatMul {
    /// Matrices in a: `batch` or 1.
    pub batch_a: usize,
    /// Matrices in b: `batch` or 1.
    pub batch_b: usize,
    /// Rows of a.
    pub m: usize,
    /// Columns of b.
    pub n: usize,
    /// Columns of a, rows of b.
    pub k: usize,
}

/// Function over a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolKind {
    /// Largest value; padding never wins.
    Max,
    /// Mean over the window's pixels inside the picture.
    Average,
    /// Mean over the whole window, padding counted as zeros (ONNX `count_include_pad = 1`; pixels that only
    /// `ceil_mode` adds beyond the padding are not counted).
    AveragePadded,
}

/// 2-D pooling. Operand: x [N, H, W, C]; output [N, P, Q, C].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Function.
    pub kind: PoolKind,
    /// Images.
    pub n: usize,
    /// Input rows.
    pub h: usize,
    /// Input columns.
    pub w: usize,
    /// Channels.
    pub c: usize,
    /// Window rows.
    pub r: usize,
    /// Window columns.
    pub s: usize,
    /// Output rows.
    pub p: usize,
    /// Output columns.
    pub q: usize,
    /// Rows, columns.
    pub stride: [usize; 2],
    /// Above, left, below, right.
    pub pad: [usize; 4],
    /// Rows, columns.
    pub dilation: [usize; 2],
}

/// Function over whole axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceKind {
    /// Arithmetic mean; global average pooling is the mean over H and W.
    Mean,
    /// Sum.
    Sum,
    /// Largest value.
    Max,
    /// Smallest value.
    Min,
}

/// Sampling of [`Resize`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeMode {
    /// Nearest sample; the enum says how a coordinate between two samples is rounded.
    Nearest(NearestRounding),
    /// Linear in each axis.
    Linear,
}

/// ONNX `nearest_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NearestRounding {
    /// Halves go down.
    RoundPreferFloor,
    /// Halves go up.
    RoundPreferCeil,
    /// Always down.
    Floor,
    /// Always up.
    Ceil,
}

/// ONNX `coordinate_transformation_mode`: from an output index to a source coordinate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Coordinates {
    /// (i + 0.5) / scale - 0.5.
    HalfPixel,
    /// As `HalfPixel`, around the centre of the unrounded output size (opset 19).
    HalfPixelSymmetric,
    /// As `HalfPixel`, but 0 where the output has one sample.
    PytorchHalfPixel,
    /// i (in - 1) / (out - 1).
    AlignCorners,
    /// i / scale.
    Asymmetric,
    /// (i + 0.5) / scale (TensorFlow 1, opset 11 and 12).
    TfHalfPixelForNn,
    /// start (in - 1) + i (end - start) (in - 1) / (out - 1), the middle of both ends where the output has one sample.
    TfCropAndResize(Crop),
}

/// The part of the picture that is resized, and what lies around the picture. For rows and columns, 0 the first sample
/// and 1 the last; a start behind the end mirrors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crop {
    /// Where the first output sample lies.
    pub start: [f32; 2],
    /// Where the last output sample lies.
    pub end: [f32; 2],
    /// Value of output samples that lie outside the picture.
    pub outside: f32,
}

/// Resize of H and W. Operand: x [N, H, W, C]; output [N, P, Q, C].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resize {
    /// Images.
    pub n: usize,
    /// Input rows.
    pub h: usize,
    /// Input columns.
    pub w: usize,
    /// Channels.
    pub c: usize,
    /// Output rows.
    pub p: usize,
    /// Output columns.
    pub q: usize,
    /// Output over input size for rows and columns as the model states it; may differ from p/h after rounding.
    pub scale: [f32; 2],
    /// Sampling.
    pub mode: ResizeMode,
    /// Where an output sample lies.
    pub coordinates: Coordinates,
}

/// Fill of [`Op::Pad`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PadMode {
    /// A constant.
    Constant(f32),
    /// Mirror without repeating the edge sample.
    Reflect,
    /// Repeat the edge sample.
    Edge,
}

/// An operator with all its static parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// See [`Conv`].
    Conv(Conv),
    /// See [`ConvTranspose`].
    ConvTranspose(ConvTranspose),
    /// See [`Gemm`].
    Gemm(Gemm),
    /// See [`MatMul`].
    MatMul(MatMul),
    /// See [`Pool`].
    Pool(Pool),
    /// One function over `axes`, which the output keeps with length 1 (a Reshape drops them).
    Reduce {
        /// Function.
        kind: ReduceKind,
        /// Ascending, none twice.
        axes: Vec<usize>,
    },
    /// Element-wise function.
    Unary(Unary),
    /// Two operands broadcast against each other as in `NumPy`, then the activation.
    Binary {
        /// Function.
        kind: BinaryKind,
        /// Applied to the result.
        activation: Option<Unary>,
    },
    /// y = x scale + shift, both one value for each index of `axis`. Operands: x, scale, shift. A batch normalisation
    /// that no convolution could take.
    ScaleShift {
        /// Channel axis.
        axis: usize,
    },
    /// e^(x - max) / sum of e^(x - max) along `axis`, or its logarithm.
    Softmax {
        /// Axis that sums to 1.
        axis: usize,
        /// True: logarithm of the softmax.
        log: bool,
    },
    /// (x - mean) / sqrt(variance + epsilon) over the axes from `axis` on, times scale, plus bias.
    /// Operands: x, scale, bias (both with the shape of the normalised axes).
    LayerNorm {
        /// First normalised axis.
        axis: usize,
        /// Added to the (biased) variance.
        epsilon: f32,
    },
    /// See [`Resize`].
    Resize(Resize),
    /// Operands one after another along `axis`.
    Concat {
        /// Axis that grows.
        axis: usize,
    },
    /// `y[i] = x[start + i step]` on every axis; `step` may be negative.
    Slice {
        /// First index taken, an entry per axis.
        start: Vec<usize>,
        /// Step, an entry per axis.
        step: Vec<isize>,
    },
    /// Padding on every axis; what lies behind follows from the output's shape.
    Pad {
        /// Samples before, an entry per axis.
        before: Vec<usize>,
        /// Fill.
        mode: PadMode,
    },
    /// Output axis i is input axis `perm[i]`.
    Transpose {
        /// Permutation of all axes.
        perm: Vec<usize>,
    },
    /// Same elements in the same order under another shape: costs nothing, the planner aliases the buffers.
    Reshape,
    /// Index of the largest value along `axis`, which the output keeps with length 1.
    ArgMax {
        /// Axis searched.
        axis: usize,
        /// Of equal values take the last instead of the first.
        select_last: bool,
    },
    /// clamp(round half to even(x / scale) + zero point, low, high). Operands: x, scale, zero point; both one value, or
    /// one for each index of `axis`.
    Quantize {
        /// Axis of the scales where there is more than one.
        axis: usize,
        /// Smallest value of the integer type.
        low: f32,
        /// Largest value of the integer type.
        high: f32,
    },
    /// (x - zero point) scale. Operands and axis as in `Quantize`.
    Dequantize {
        /// Axis of the scales where there is more than one.
        axis: usize,
    },
    /// Conversion between element types, here only what it does to the value: truncation to a whole number, saturating
    /// to the type's range.
    Cast {
        /// Smallest and largest value of an integer target; none for a floating-point target.
        integer_range: Option<(f32, f32)>,
    },
}

impl Op {
    /// Name of the kind, as tables and errors print it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Conv(c) if c.groups > 1 && c.groups == c.c => "DepthwiseConv",
            Self::Conv(_) => "Conv",
            Self::ConvTranspose(_) => "ConvTranspose",
            Self::Gemm(_) => "Gemm",
            Self::MatMul(_) => "MatMul",
            Self::Pool(Pool { kind: PoolKind::Max, .. }) => "MaxPool",
            Self::Pool(_) => "AveragePool",
            Self::Reduce { .. } => "Reduce",
            Self::Unary(_) => "Unary",
            Self::Binary { .. } => "Binary",
            Self::ScaleShift { .. } => "ScaleShift",
            Self::Softmax { .. } => "Softmax",
            Self::LayerNorm { .. } => "LayerNorm",
            Self::Resize(_) => "Resize",
            Self::Concat { .. } => "Concat",
            Self::Slice { .. } => "Slice",
            Self::Pad { .. } => "Pad",
            Self::Transpose { .. } => "Transpose",
            Self::Reshape => "Reshape",
            Self::ArgMax { .. } => "ArgMax",
            Self::Quantize { .. } => "Quantize",
            Self::Dequantize { .. } => "Dequantize",
            Self::Cast { .. } => "Cast",
        }
    }
}
