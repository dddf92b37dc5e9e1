//! A plan as launches with places: which tensor has which type, and where in the network's memory everything lies.
//!
//! Memory of a network, from its start: the inputs, the arena of activations, the workspace of the step at work. Inputs
//! have a place of their own, so that they can be stored with a pitch.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::lower::{self, Arg, Launch, Packed, Packing, Source, Target, Tensor, TensorMap, TypedStep, value_type};
use crate::error::KernelError;
use crate::jit::KernelSpec;
use crate::op::Op;
use crate::plan::{Buffer, Constant, Operand, Plan, Port, Step};
use crate::tensor::{DType, Layout};

/// Everything starts at a multiple of this: what any vector access and the tensor memory accelerator ask for.
const ALIGNMENT: usize = 256;
/// Channels that a picture with fewer is stored with: a pixel is one access.
const PICTURE_PITCH: usize = 4;

/// A tensor and where it starts in the network's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Bytes from the start.
    pub at_bytes: usize,
    /// What lies there.
    pub tensor: Tensor,
}

/// Where an argument points.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// Bytes from the start of the network's memory.
    Memory(usize),
    /// An entry of [`Schedule::constants`].
    Constant(usize),
    /// Nowhere.
    Null,
    /// `int`.
    I32(i32),
    /// `float`.
    F32(f32),
    /// A tensor map over a place.
    Map(TensorMap, Box<Place>),
}

/// A launch whose arguments are known up to the addresses of the network's memory and of the constants.
#[derive(Clone, Debug)]
pub struct PlacedLaunch {
    /// The model's name of the node.
    pub name: String,
    /// Kernel and shape.
    pub launch: Launch,
    /// Arguments.
    pub args: Vec<Place>,
}

/// A network for one batch size, ready to be given memory.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Images a run takes.
    pub batch: usize,
    /// In order of execution.
    pub launches: Vec<PlacedLaunch>,
    /// Constants in the form that the kernels read, none twice.
    pub constants: Vec<Packed>,
    /// Where inputs are written before a run.
    pub inputs: Vec<Placed>,
    /// Where outputs are after it.
    pub outputs: Vec<Placed>,
    /// Memory that the network needs beside its constants.
    pub memory_bytes: usize,
}

impl Schedule {
    /// The kernels to compile, those of the conversions between f32 and its inputs and outputs among them.
    pub fn kernels(&self) -> BTreeSet<KernelSpec> {
        let launches = self.launches.iter().map(|placed| placed.launch.kernel.clone());
        launches.chain(self.conversions().into_iter().map(|launch| launch.kernel)).collect()
    }

    /// Launches that bring inputs from f32 and outputs to f32, as callers of [`crate::engine::Engine`] have them.
    pub(super) fn conversions(&self) -> Vec<Launch> {
        let into = self.inputs.iter().map(|placed| lower::convert(&placed.as_f32(), &placed.tensor));
        let out = self.outputs.iter().map(|placed| lower::convert(&placed.tensor, &placed.as_f32()));
        into.chain(out).collect()
    }
}

impl Placed {
    /// The same tensor as callers of [`crate::engine::Engine`] hold it.
    pub(super) fn as_f32(&self) -> Tensor {
        dense(&self.tensor.dims, DType::F32)
    }
}

/// Bytes of an element on the device.
pub(super) fn size_of(dtype: DType) -> usize {
    if matches!(dtype, DType::F16 | DType::Bf16) { 2 } else { 4 }
}

/// Bytes that a tensor takes with its pitch.
pub(super) fn bytes_of(tensor: &Tensor) -> usize {
    let row = tensor.dims.last().copied().unwrap_or(1).max(1);
    tensor.len() / row * tensor.pitch * size_of(tensor.dtype)
}

fn dense(dims: &[usize], dtype: DType) -> Tensor {
    Tensor { dims: dims.to_vec(), dtype, pitch: dims.last().copied().unwrap_or(1) }
}

/// Lays a plan out for a target.
///
/// # Errors
/// Where the plan contradicts itself, a step has no kernel, or a tensor is too large ([`KernelError::TooLarge`]).
pub fn schedule(plan: &Plan, target: &Target) -> Result<Schedule, KernelError> {
    plan.check()?;
    let types = output_types(plan, target);
    let unit = types.iter().chain([&target.precision.dtype()]).map(|&dtype| size_of(dtype)).max().unwrap_or(4);
    let mut inputs_bytes = 0;
    let mut placed = HashMap::new();
    let mut inputs = Vec::new();
    for port in &plan.inputs {
        let input = Placed { at_bytes: inputs_bytes, tensor: input_tensor(plan, port, target) };
        check_convertible(&port.name, &input.tensor)?;
        inputs_bytes += bytes_of(&input.tensor).next_multiple_of(ALIGNMENT);
        placed.insert(port.buffer.offset, input.clone());
        inputs.push(input);
    }
    let workspace_at = inputs_bytes + (plan.arena_len * unit).next_multiple_of(ALIGNMENT);
    let mut builder = Builder {
        target,
        unit,
        arena_at: inputs_bytes,
        workspace_at,
        workspace_bytes: 0,
        placed,
        constants: Vec::new(),
        known: HashMap::new(),
        launches: Vec::new(),
    };
    for (step, &dtype) in plan.steps.iter().zip(&types) {
        builder.step(step, dtype)?;
    }
    let find = |port: &Port| {
        let output = builder.find(&port.buffer, &port.name)?;
        check_convertible(&port.name, &output.tensor).map(|()| output)
    };
    let outputs = plan.outputs.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    Ok(Schedule {
        batch: plan.batch,
        inputs,
        outputs,
        memory_bytes: workspace_at + builder.workspace_bytes.next_multiple_of(ALIGNMENT),
        launches: builder.launches,
        constants: builder.constants,
    })
}

/// The type of every step's output.
fn output_types(plan: &Plan, target: &Target) -> Vec<DType> {
    let mut types: HashMap<usize, DType> = HashMap::new();
    for port in &plan.inputs {
        types.insert(port.buffer.offset, target.precision.dtype());
    }
    plan.steps
        .iter()
        .map(|step| {
            let inputs = step.inputs.iter().filter_map(|input| match input {
                Operand::Buffer(buffer) => types.get(&buffer.offset).copied(),
                Operand::Constant(_) => None,
            });
            let dtype = value_type(&step.op, &inputs.collect::<Vec<_>>(), target.precision);
            types.insert(step.output.offset, dtype);
            dtype
        })
        .collect()
}

/// How an input is stored: a picture with few channels that only dense convolutions read gets a pitch.
fn input_tensor(plan: &Plan, port: &Port, target: &Target) -> Tensor {
    let mut tensor = dense(&port.buffer.dims, target.precision.dtype());
    let reads = |step: &Step, index: usize| matches!(&step.inputs[index], Operand::Buffer(buffer) if buffer.offset == port.buffer.offset);
    let dense_conv = |step: &Step| matches!(&step.op, Op::Conv(conv) if conv.groups == 1);
    // Steps behind one that reuses the place read something else.
    let alive = plan.steps.iter().position(|step| step.output.offset == port.buffer.offset).unwrap_or(plan.steps.len());
    let suits = |step: &Step| {
        let others = (1..step.inputs.len()).any(|i| reads(step, i));
        !others && (!reads(step, 0) || (dense_conv(step) && step.inputs[0].dims() == port.buffer.dims))
    };
    let is_output = plan.outputs.iter().any(|output| output.buffer.offset == port.buffer.offset);
    let picture = port.layout == Some(Layout::Nhwc) && tensor.pitch < PICTURE_PITCH;
    if picture && !is_output && plan.steps[..alive].iter().all(suits) {
        tensor.pitch = PICTURE_PITCH;
    }
    tensor
}

/// Refuses what [`lower::convert`] cannot count: 2^31 elements or more, those between pixels among them.
fn check_convertible(name: &str, tensor: &Tensor) -> Result<(), KernelError> {
    if i32::try_from(bytes_of(tensor) / size_of(tensor.dtype)).is_ok() {
        return Ok(());
    }
    Err(KernelError::TooLarge { op: format!("\"{name}\""), why: lower::TOO_LARGE.into() })
}

struct Builder<'a> {
    target: &'a Target,
    unit: usize,
    arena_at: usize,
    workspace_at: usize,
    workspace_bytes: usize,
    /// What was last written at an offset of the plan's arena.
    placed: HashMap<usize, Placed>,
    constants: Vec<Packed>,
    known: HashMap<(*const Constant, Packing), usize>,
    launches: Vec<PlacedLaunch>,
}

impl Builder<'_> {
    fn find(&self, buffer: &Buffer, name: &str) -> Result<Placed, KernelError> {
        let Some(placed) = self.placed.get(&buffer.offset) else {
            return Err(KernelError::invalid(name, "reads what nobody wrote"));
        };
        let mut placed = placed.clone();
        if placed.tensor.dims != buffer.dims {
            placed.tensor = dense(&buffer.dims, placed.tensor.dtype);
        }
        Ok(placed)
    }

    fn step(&mut self, step: &Step, dtype: DType) -> Result<(), KernelError> {
        let output = Placed {
            at_bytes: self.arena_at + step.output.offset * self.unit,
            tensor: dense(&step.output.dims, dtype),
        };
        let mut workspace_at = self.workspace_at;
        let mut sources = Vec::new();
        let mut places = Vec::new();
        for input in &step.inputs {
            match input {
                Operand::Constant(constant) => {
                    sources.push(Source::Constant(constant));
                    places.push(Place::Null);
                }
                Operand::Buffer(buffer) => {
                    let mut placed = self.find(buffer, &step.name)?;
                    if is_product(&step.op) && placed.tensor.dtype != dtype {
                        placed = self.convert(&step.name, &placed, dtype, &mut workspace_at)?;
                    }
                    places.push(Place::Memory(placed.at_bytes));
                    sources.push(Source::Activation(placed.tensor));
                }
            }
        }
        let typed = TypedStep { name: &step.name, op: &step.op, inputs: sources, output: output.tensor.clone() };
        let lowered = lower::lower(&typed, self.target)?;
        self.reserve(workspace_at + lowered.workspace_bytes);
        let constants: Vec<usize> = lowered.constants.into_iter().map(|packed| self.constant(packed)).collect();
        for launch in lowered.launches {
            let place = |arg: &Arg| resolve(arg, &places, output.at_bytes, &constants, workspace_at);
            let args = launch.args.iter().map(place).collect::<Result<_, _>>();
            let args = args.map_err(|why: String| KernelError::invalid(&step.name, why))?;
            self.launches.push(PlacedLaunch { name: step.name.clone(), launch, args });
        }
        self.placed.insert(step.output.offset, output);
        Ok(())
    }

    /// A copy in another type, in the workspace.
    fn convert(
        &mut self,
        name: &str,
        from: &Placed,
        dtype: DType,
        workspace_at: &mut usize,
    ) -> Result<Placed, KernelError> {
        check_convertible(name, &from.tensor)?;
        let to = Placed { at_bytes: *workspace_at, tensor: dense(&from.tensor.dims, dtype) };
        *workspace_at += bytes_of(&to.tensor).next_multiple_of(ALIGNMENT);
        self.reserve(*workspace_at);
        let launch = lower::convert(&from.tensor, &to.tensor);
        let place = |arg: &Arg| match arg {
            Arg::Input(_) => Place::Memory(from.at_bytes),
            Arg::Output => Place::Memory(to.at_bytes),
            Arg::I32(x) => Place::I32(*x),
            Arg::F32(x) => Place::F32(*x),
            _ => Place::Null,
        };
        let args = launch.args.iter().map(place).collect();
        self.launches.push(PlacedLaunch { name: name.into(), launch, args });
        Ok(to)
    }

    fn reserve(&mut self, end: usize) {
        self.workspace_bytes = self.workspace_bytes.max(end - self.workspace_at);
    }

    fn constant(&mut self, packed: Packed) -> usize {
        let key = (Arc::as_ptr(&packed.constant), packed.packing);
        *self.known.entry(key).or_insert_with(|| {
            self.constants.push(packed);
            self.constants.len() - 1
        })
    }
}

/// Operators whose kernels read activations of the activation type only.
fn is_product(op: &Op) -> bool {
    matches!(op, Op::Conv(_) | Op::ConvTranspose(_) | Op::Gemm(_) | Op::MatMul(_))
}

fn resolve(arg: &Arg, inputs: &[Place], output: usize, constants: &[usize], workspace: usize) -> Result<Place, String> {
    let again = |arg| resolve(arg, inputs, output, constants, workspace);
    Ok(match arg {
        Arg::Input(n) => match inputs.get(*n) {
            Some(place @ Place::Memory(_)) => place.clone(),
            _ => return Err(format!("operand {n} has no address")),
        },
        Arg::Output => Place::Memory(output),
        Arg::Packed(n) => Place::Constant(*constants.get(*n).ok_or_else(|| format!("no packed constant {n}"))?),
        Arg::Workspace(at) => Place::Memory(workspace + at),
        Arg::Null => Place::Null,
        Arg::I32(x) => Place::I32(*x),
        Arg::F32(x) => Place::F32(*x),
        Arg::Map(map) => Place::Map(map.clone(), Box::new(again(&map.base)?)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jit::Arch;
    use crate::op::{Conv, Epilogue};

    /// A convolution of 1x1 that makes one channel of three.
    fn plan(side_px: usize) -> Plan {
        let port = |offset, channels, layout| {
            let buffer = Buffer { offset, dims: vec![1, side_px, side_px, channels] };
            Port { name: "port".into(), dtype: DType::F32, layout, buffer }
        };
        let pixels = side_px * side_px;
        let (x, y) = (port(0, 3, Some(Layout::Nhwc)), port(3 * pixels, 1, None));
        let conv = Conv {
            n: 1,
            h: side_px,
            w: side_px,
            c: 3,
            k: 1,
            r: 1,
            s: 1,
            p: side_px,
            q: side_px,
            stride: [1; 2],
            pad: [0; 2],
            dilation: [1; 2],
            groups: 1,
            epilogue: Epilogue::default(),
        };
        let weights = Arc::new(Constant { dims: vec![1, 1, 1, 3], data: vec![1.0; 3].into() });
        let step = Step {
            name: "conv".into(),
            op: Op::Conv(conv),
            inputs: vec![Operand::Buffer(x.buffer.clone()), Operand::Constant(weights)],
            output: y.buffer.clone(),
        };
        let (inputs, outputs, arena_len) = (vec![x], vec![y], 4 * pixels);
        Plan { batch: 1, divisible: true, inputs, outputs, steps: vec![step], arena_len }
    }

    /// With four elements a pixel: 23,170 squared times 4 is just below 2^31.
    #[test]
    fn an_input_that_cannot_be_counted_is_refused() {
        let target = Target::typical(Arch { major: 8, minor: 0 }, lower::Precision::Fp16);
        assert!(schedule(&plan(23_170), &target).is_ok());
        let refused = schedule(&plan(23_171), &target).err();
        assert!(matches!(refused, Some(KernelError::TooLarge { .. })), "{refused:?}");
    }
}
