//! A network ready to run: steps in order, every activation at a fixed place in one arena.

use std::sync::Arc;

use crate::error::KernelError;
use crate::op::Op;
use crate::shape::{self, MAX_ELEMENTS, checked_elements};
use crate::tensor::{DType, Layout};
use crate::values::Values;

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
    pub data: Values,
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
    /// Where it lies in the arena; its first dimension is a multiple of the batch.
    pub buffer: Buffer,
}

/// A network for one batch size.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Images a run takes. Every input's and output's first dimension is a multiple of it.
    pub batch: usize,
    /// True when the batch is the first dimension of every input and output, so that several batches may be run one
    /// after another and their outputs joined.
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
    /// Checks that every buffer lies in the arena, that inputs do not overlap one another nor a step's output its
    /// inputs, that every constant has as many elements as its shape says, and that every step's operands have the
    /// shapes its description says.
    ///
    /// # Errors
    /// Names the first port or step that does not.
    pub fn check(&self) -> Result<(), KernelError> {
        let fail = |name: &str, why: String| Err(KernelError::invalid(name, why));
        if self.batch == 0 {
            return fail("plan", "a batch of 0 images".into());
        }
        if self.arena_len > MAX_ELEMENTS {
            let why = format!("the tensors need {} elements together", self.arena_len);
            return Err(KernelError::TooLarge { op: "plan".into(), why });
        }
        for port in self.inputs.iter().chain(&self.outputs) {
            self.check_buffer(&port.name, &port.buffer)?;
            if port.buffer.dims.first().is_none_or(|n| !n.is_multiple_of(self.batch)) {
                return fail(&port.name, format!("shape {:?} in a batch of {}", port.buffer.dims, self.batch));
            }
        }
        for (i, port) in self.inputs.iter().enumerate() {
            if let Some(other) = self.inputs[..i].iter().find(|other| overlap(&other.buffer, &port.buffer)) {
                return fail(&port.name, format!("overlaps input \"{}\"", other.name));
            }
        }
        self.steps.iter().try_for_each(|step| self.check_step(step))
    }

    fn check_step(&self, step: &Step) -> Result<(), KernelError> {
        let fail = |why: String| Err(KernelError::invalid(&step.name, why));
        self.check_buffer(&step.name, &step.output)?;
        for input in &step.inputs {
            match input {
                Operand::Buffer(buffer) => {
                    self.check_buffer(&step.name, buffer)?;
                    if overlap(buffer, &step.output) {
                        return fail("its output overlaps its input".into());
                    }
                }
                Operand::Constant(c) if checked_elements(&c.dims) != Some(c.data.len()) => {
                    return fail(format!("constant of shape {:?} with {} elements", c.dims, c.data.len()));
                }
                Operand::Constant(_) => {}
            }
        }
        let inputs: Vec<&[usize]> = step.inputs.iter().map(Operand::dims).collect();
        shape::check(&step.op, &inputs, &step.output.dims)
            .map_err(|e| KernelError::invalid(format!("node \"{}\"", step.name), e.to_string()))
    }

    fn check_buffer(&self, name: &str, buffer: &Buffer) -> Result<(), KernelError> {
        let end = checked_elements(&buffer.dims).and_then(|len| buffer.offset.checked_add(len));
        if end.is_some_and(|end| end <= self.arena_len) {
            return Ok(());
        }
        let (dims, at, arena) = (&buffer.dims, buffer.offset, self.arena_len);
        Err(KernelError::invalid(name, format!("tensor {dims:?} at {at} does not fit the arena of {arena} elements")))
    }
}

/// True where two buffers share an element.
fn overlap(a: &Buffer, b: &Buffer) -> bool {
    a.range().start < b.range().end && b.range().start < a.range().end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Unary;

    fn buffer(offset: usize, dims: &[usize]) -> Buffer {
        Buffer { offset, dims: dims.to_vec() }
    }

    fn port(buffer: Buffer) -> Port {
        Port { name: "port".into(), dtype: DType::F32, layout: None, buffer }
    }

    fn relu(from: Buffer, to: Buffer) -> Plan {
        Plan {
            batch: 2,
            divisible: true,
            inputs: vec![port(from.clone())],
            outputs: vec![port(to.clone())],
            steps: vec![Step {
                name: "relu".into(),
                op: Op::Unary(Unary::Relu),
                inputs: vec![Operand::Buffer(from)],
                output: to,
            }],
            arena_len: 16,
        }
    }

    #[test]
    fn sound_plans_pass() {
        assert!(relu(buffer(0, &[2, 4]), buffer(8, &[2, 4])).check().is_ok());
        assert!(relu(buffer(8, &[2, 4]), buffer(0, &[2, 4])).check().is_ok());
    }

    #[test]
    fn unsound_plans_are_refused() {
        for (from, to, why) in [
            (buffer(0, &[2, 4]), buffer(9, &[2, 4]), "output behind the arena"),
            (buffer(9, &[2, 4]), buffer(0, &[2, 4]), "input behind the arena"),
            (buffer(0, &[2, 4]), buffer(7, &[2, 4]), "overlap at the end"),
            (buffer(4, &[2, 4]), buffer(4, &[2, 4]), "in place"),
            (buffer(0, &[2, 4]), buffer(8, &[4, 2]), "other shape"),
            (buffer(0, &[2, 0]), buffer(8, &[2, 0]), "no elements"),
            (buffer(0, &[1, 8]), buffer(8, &[1, 8]), "first dimension no multiple of the batch"),
            (buffer(usize::MAX, &[2, 4]), buffer(0, &[2, 4]), "offset overflows"),
            (buffer(0, &[2, usize::MAX]), buffer(8, &[2, usize::MAX]), "size overflows"),
        ] {
            assert!(relu(from, to).check().is_err(), "{why}");
        }
        let mut plan = relu(buffer(0, &[2, 2]), buffer(8, &[2, 2]));
        plan.inputs.push(port(buffer(3, &[2, 2])));
        assert!(plan.check().is_err(), "inputs overlap");
        let mut plan = relu(buffer(0, &[2, 2]), buffer(8, &[2, 2]));
        plan.steps[0].inputs =
            vec![Operand::Constant(Arc::new(Constant { dims: vec![2, 2], data: vec![0.0; 3].into() }))];
        assert!(plan.check().is_err(), "constant too short");
        let mut plan = relu(buffer(0, &[2, 2]), buffer(8, &[2, 2]));
        plan.batch = 0;
        assert!(plan.check().is_err(), "no batch");
        let mut plan = relu(buffer(0, &[2, 2]), buffer(8, &[2, 2]));
        plan.arena_len = usize::MAX;
        assert!(plan.check().is_err(), "endless arena");
    }
}
