//! A network ready to run: steps in order, every activation at a fixed place in one arena.

use std::sync::Arc;

use crate::op::Op;
use crate::tensor::{DType, Layout};

/// A tensor in the arena: dense, row-major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// First element in the arena.
    pub offset: usize,
    /// Dimensions, outermost first.
    pub dims: Vec<usize>,
}

impl Buffer {
    /// Elements of the tensor.
    pub fn len(&self) -> usize {
        crate::tensor::elements(&self.dims)
    }

    /// True for a tensor without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Range of arena elements that the tensor covers.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.len()
    }
}

/// A weight or another value known when the plan was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// Dimensions, outermost first, in the order of the op's documentation.
    pub dims: Vec<usize>,
    /// Elements, row-major.
    pub data: Vec<f32>,
}

/// Where a step reads.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// An activation.
    Buffer(Buffer),
    /// A weight.
    Constant(Arc<Constant>),
}

impl Operand {
    /// Dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        match self {
            Self::Buffer(b) => &b.dims,
            Self::Constant(c) => &c.dims,
        }
    }
}

/// One operator at work. Its output overlaps none of its inputs.
#[derive(Clone, Debug)]
pub struct Step {
    /// The model's name of the (first) node, for tables and errors.
    pub name: String,
    /// What it does.
    pub op: Op,
    /// Operands in the order of the op's documentation.
    pub inputs: Vec<Operand>,
    /// Result.
    pub output: Buffer,
}

/// An input or output of the network.
#[derive(Clone, Debug)]
pub struct Port {
    /// The model's name of it.
    pub name: String,
    /// Element type that the model declares. The CPU engine's buffers hold f32 whatever it is.
    pub dtype: DType,
    /// Axis order of an image input; outputs are in the model's own order.
    pub layout: Option<Layout>,
    /// Where it lies in the arena; the first dimension is the batch.
    pub buffer: Buffer,
}

/// A network for one batch size.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Images a run takes. Every input's and output's first dimension is a multiple of it.
    pub batch: usize,
    /// True when the model works for any batch size, so that a batch may be run in parts.
    pub divisible: bool,
    /// Inputs, written by the caller.
    pub inputs: Vec<Port>,
    /// Outputs, read by the caller.
    pub outputs: Vec<Port>,
    /// Operators in order of execution.
    pub steps: Vec<Step>,
    /// Size of the arena in elements.
    pub arena_len: usize,
}

impl Plan {
    /// Checks that every buffer lies in the arena, that no step's output overlaps its inputs, and that every step's
    /// operands have the shapes its description says.
    ///
    /// # Errors
    /// Names the first step that does not.
    pub fn check(&self) -> Result<(), crate::KernelError> {
        todo!()
    }
}
