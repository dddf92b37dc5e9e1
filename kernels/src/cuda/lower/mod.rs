//! From a plan's step to kernel launches, as data: what to compile, with which grid, block and arguments.
//!
//! Nothing here calls a driver. So every kernel of a network can be listed, compiled for any architecture and looked at
//! without a GPU, and [`super::engine`] is the only place that executes.
//!
//! Rules that lowerings keep:
//! - An image's result has the same bits whatever the batch and its place in it: the order of a sum follows from the
//!   layer's shape for one image and the precision, never from N.
//! - Activations have the type of [`Target::precision`], or f32 where they hold whole numbers ([`value_type`]). A matrix
//!   product reads and writes the activation type; the engine converts what has another before it lowers.
//! - A kernel writes every element of its output and nothing else.
//! - N is an argument and never a define: all batch sizes run the same compiled kernels. (M = N P Q is one as well.)

#![deny(unsafe_code)]

mod conv;
mod conv_sm90;
mod conv_transpose;
mod depthwise;
mod emit;
mod function;
mod gemm;
mod matmul;
mod movement;
mod norm;
mod pack;
mod pointwise;
mod pool;
mod reduce;
mod resize;
pub mod top_k;

use std::sync::Arc;

pub use pack::Packing;
pub(super) use pointwise::convert;

use crate::error::KernelError;
use crate::jit::{Arch, KernelSpec};
use crate::op::Op;
use crate::plan::Constant;
use crate::tensor::DType;

/// Arithmetic of the matrix products and type of the activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// fp32 everywhere.
    Fp32,
    /// fp32 activations, products of operands rounded to TF32, fp32 sums.
    Tf32,
    /// binary16 activations and weights, fp32 sums.
    Fp16,
    /// bfloat16 activations and weights, fp32 sums.
    Bf16,
}

impl Precision {
    /// Element type of activations and packed weights.
    pub fn dtype(self) -> DType {
        match self {
            Self::Fp32 | Self::Tf32 => DType::F32,
            Self::Fp16 => DType::F16,
            Self::Bf16 => DType::Bf16,
        }
    }
}

/// What kernels are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Architecture.
    pub arch: Arch,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Shared memory that a block can have.
    pub shared_bytes: u32,
    /// Arithmetic.
    pub precision: Precision,
    /// True: only kernels that run on every architecture, to compare with and to measure.
    pub portable: bool,
}

impl Target {
    /// A usual GPU of an architecture, for looking at kernels and compiling them without one.
    pub fn typical(arch: Arch, precision: Precision) -> Self {
        // Of the largest products: A100, A10, L40, H100, B200, RTX PRO 6000.
        let (multiprocessors, shared_kib) = match (arch.major, arch.minor) {
            (8, 0) => (108, 163),
            (8, 6) => (84, 99),
            (8, _) => (142, 99),
            (9, _) => (132, 227),
            (10, _) => (148, 227),
            _ => (188, 99),
        };
        Self { arch, multiprocessors, shared_bytes: shared_kib << 10, precision, portable: false }
    }
}

/// An activation: dense and row-major, except that an image may be stored with more channels than it has.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Dimensions, outermost first.
    pub dims: Vec<usize>,
    /// Element type in memory: f32, f16 or bf16.
    pub dtype: DType,
    /// Elements from one pixel to the next: the last dimension, or more in the network's image input, whose other
    /// channels are zero. Only [`Op::Conv`] sees more.
    pub pitch: usize,
}

impl Tensor {
    /// Elements, without those between pixels.
    pub fn len(&self) -> usize {
        crate::tensor::elements(&self.dims)
    }

    /// True for a tensor without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a step reads.
#[derive(Clone, Debug)]
pub enum Source<'a> {
    /// The result of an earlier step.
    Activation(Tensor),
    /// A weight.
    Constant(&'a Arc<Constant>),
}

impl Source<'_> {
    /// Dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        match self {
            Self::Activation(tensor) => &tensor.dims,
            Self::Constant(constant) => &constant.dims,
        }
    }
}

/// A step with the types its operands have on the device.
#[derive(Clone, Debug)]
pub struct TypedStep<'a> {
    /// The model's name of the node.
    pub name: &'a str,
    /// What it does.
    pub op: &'a Op,
    /// Operands in the order of the op's documentation.
    pub inputs: Vec<Source<'a>>,
    /// Result.
    pub output: Tensor,
}

/// An argument of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// Address of operand `n` of the step. A constant operand has none: name its packed form.
    Input(usize),
    /// Address of the result.
    Output,
    /// Address of entry `n` of [`Lowered::constants`].
    Packed(usize),
    /// Address in the step's workspace, bytes from its start.
    Workspace(usize),
    /// A null pointer.
    Null,
    /// `int`.
    I32(i32),
    /// `float`.
    F32(f32),
    /// A tensor map of the tensor memory accelerator, passed by value as `__grid_constant__ const` 128 bytes.
    Map(TensorMap),
}

/// Description of a tensor map over an operand, as `cuTensorMapEncodeTiled` and `cuTensorMapEncodeIm2col` take it. The
/// engine encodes it once the address is known. Swizzle 128 bytes, no interleave, zeros outside.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorMap {
    /// Whose memory: `Input`, `Output`, `Packed` or `Workspace`.
    pub base: Box<Arg>,
    /// Element type.
    pub dtype: DType,
    /// Sizes, innermost first.
    pub dims: Vec<u64>,
    /// Bytes from one index to the next for every dimension but the innermost.
    pub strides_bytes: Vec<u64>,
    /// Elements from one element taken to the next, a number a dimension.
    pub element_strides: Vec<u32>,
    /// Box.
    pub kind: MapKind,
}

/// Which elements a copy takes.
#[derive(Clone, Debug, PartialEq)]
pub enum MapKind {
    /// A box of these sizes, innermost first.
    Tiled(Vec<u32>),
    /// Columns of pixels for a convolution, dimensions C, W, H, N.
    Im2col {
        /// Lower corner for W, H.
        lower: [i32; 2],
        /// Upper corner for W, H.
        upper: [i32; 2],
        /// Channels a pixel.
        channels: u32,
        /// Pixels a copy.
        pixels: u32,
    },
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// What to compile.
    pub kernel: KernelSpec,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads a block.
    pub block: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// Arguments in the order of the kernel's parameters.
    pub args: Vec<Arg>,
    /// The kernel calls `wait_for_predecessor` before it touches an activation, so it may start before the launch ahead
    /// of it ends.
    pub overlaps: bool,
}

/// A constant in the form that a kernel reads. Equal ones share memory, over steps and batch sizes.
#[derive(Clone, Debug)]
pub struct Packed {
    /// Values.
    pub constant: Arc<Constant>,
    /// Form.
    pub packing: Packing,
}

/// A step as launches, run one after another.
#[derive(Clone, Debug, Default)]
pub struct Lowered {
    /// In order.
    pub launches: Vec<Launch>,
    /// What [`Arg::Packed`] counts.
    pub constants: Vec<Packed>,
    /// Memory that only this step uses while it runs.
    pub workspace_bytes: usize,
}

/// Element type that a step's result has on the device: f32 for whole numbers, which smaller types do not hold
/// exactly, and for what is copied from such a tensor; else the activation type.
pub fn value_type(op: &Op, inputs: &[DType], precision: Precision) -> DType {
    match op {
        Op::ArgMax { .. } | Op::Quantize { .. } | Op::Cast { .. } => DType::F32,
        Op::Concat { .. } | Op::Slice { .. } | Op::Pad { .. } | Op::Transpose { .. } | Op::Reshape => {
            if inputs.contains(&DType::F32) { DType::F32 } else { precision.dtype() }
        }
        _ => precision.dtype(),
    }
}

/// The launches for a step.
///
/// # Errors
/// [`KernelError::Unsupported`] where the GPU has no kernel for it, [`KernelError::TooLarge`] where it has none for so many
/// elements.
pub fn lower(step: &TypedStep<'_>, target: &Target) -> Result<Lowered, KernelError> {
    match step.op {
        Op::Conv(desc) if desc.groups == desc.c && desc.groups > 1 => depthwise::lower(step, desc, target),
        Op::Conv(desc) => match conv_sm90::lower(step, desc, target) {
            Some(lowered) => Ok(lowered),
            None => conv::lower(step, desc, target),
        },
        Op::ConvTranspose(desc) => conv_transpose::lower(step, &desc.0, target),
        Op::Gemm(desc) => gemm::lower(step, desc, target),
        Op::MatMul(desc) => matmul::lower(step, desc, target),
        Op::Pool(desc) => pool::lower(step, desc, target),
        Op::Reduce { .. } | Op::ArgMax { .. } => reduce::lower(step, target),
        Op::Unary(_)
        | Op::Binary { .. }
        | Op::ScaleShift { .. }
        | Op::Quantize { .. }
        | Op::Dequantize { .. }
        | Op::Cast { .. } => pointwise::lower(step, target),
        Op::Softmax { .. } | Op::LayerNorm { .. } => norm::lower(step, target),
        Op::Resize(desc) => resize::lower(step, desc, target),
        Op::Concat { .. } | Op::Slice { .. } | Op::Pad { .. } | Op::Transpose { .. } | Op::Reshape => {
            movement::lower(step, target)
        }
    }
}

/// The error for a step that the GPU cannot run.
fn unsupported(step: &TypedStep<'_>, why: &str) -> KernelError {
    KernelError::Unsupported { op: name_of(step), engine: "GPU", why: format!("{why}; use --device cpu") }
}

/// The error for a step that the GPU can run with fewer images at most.
fn too_large(step: &TypedStep<'_>) -> KernelError {
    KernelError::TooLarge { op: name_of(step), why: TOO_LARGE.into() }
}

fn name_of(step: &TypedStep<'_>) -> String {
    format!("{} (node \"{}\")", step.op.name(), step.name)
}

/// Why a tensor is refused that an `int` does not count.
pub(super) const TOO_LARGE: &str = "a tensor has 2^31 elements or more, which is too many for the GPU";
