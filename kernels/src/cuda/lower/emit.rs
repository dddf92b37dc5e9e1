//! What lowerings share: defines, launches, operands.

use std::sync::Arc;

use super::{Arg, Launch, Packed, Packing, Source, TypedStep, too_large, unsupported};
use crate::error::KernelError;
use crate::jit::KernelSpec;
use crate::op::{Conv, Epilogue};
use crate::plan::Constant;
use crate::tensor::{DType, elements};
use crate::walk::Walk;

/// Threads of a block whose threads have nothing to do with one another.
pub(super) const BLOCK: u32 = 256;

/// Bytes that one access of a thread moves at most.
const ACCESS_BYTES: usize = 16;

/// Macros and their values.
pub(super) type Defines = Vec<(&'static str, String)>;

/// A kernel with its defines in order.
pub(super) fn spec(file: &'static str, entry: &'static str, mut defines: Defines) -> KernelSpec {
    defines.sort_unstable();
    KernelSpec { file, entry, defines }
}

/// A launch of one thread for every `vector` of `len` elements; `len` follows the arguments.
pub(super) fn launch(kernel: KernelSpec, len: usize, vector: usize, args: impl IntoIterator<Item = Arg>) -> Launch {
    let args = args.into_iter().chain([Arg::I32(len as i32)]).collect();
    let grid = [len.div_ceil(vector).div_ceil(BLOCK as usize) as u32, 1, 1];
    Launch { kernel, grid, block: BLOCK, shared_bytes: 0, args, overlaps: true }
}

/// How a block of a reducing kernel is divided (`parts.cuh`). The order of a sum follows from it, so it is chosen from
/// lengths that do not grow with the batch.
pub(super) struct Parts {
    threads: usize,
    parts: usize,
}

impl Parts {
    /// About `wanted` threads for each result, and `least_columns` results side by side or more.
    pub(super) fn new(wanted: usize, least_columns: usize) -> Self {
        let threads = if wanted > 256 { 1024 } else { 256 };
        let most = threads / least_columns.next_power_of_two();
        Self { threads, parts: wanted.next_power_of_two().clamp(1, most.max(1)) }
    }

    /// `columns` results; their number follows the arguments.
    pub(super) fn launch(
        &self,
        file: &'static str,
        entry: &'static str,
        mut defines: Defines,
        columns: usize,
        args: impl IntoIterator<Item = Arg>,
    ) -> Launch {
        defines.extend([("THREADS", self.threads.to_string()), ("PARTS", self.parts.to_string())]);
        Launch {
            kernel: spec(file, entry, defines),
            grid: [columns.div_ceil(self.threads / self.parts) as u32, 1, 1],
            block: self.threads as u32,
            shared_bytes: 0,
            args: args.into_iter().chain([Arg::I32(columns as i32)]).collect(),
            overlaps: true,
        }
    }
}

/// The kernels' name of an element type.
pub(super) fn type_name(dtype: DType) -> String {
    match dtype {
        DType::F16 => "f16",
        DType::Bf16 => "bf16",
        _ => "float",
    }
    .into()
}

/// A list of numbers as an array's initialiser.
pub(super) fn list(numbers: impl IntoIterator<Item = isize>) -> String {
    numbers.into_iter().map(|n| n.to_string()).collect::<Vec<_>>().join(",")
}

/// Elements of a type that a thread takes at once: a power of two that divides all of `lengths`.
pub(super) fn vector(dtype: DType, lengths: impl IntoIterator<Item = usize>) -> usize {
    let most = ACCESS_BYTES / if type_name(dtype) == "float" { 4 } else { 2 };
    lengths.into_iter().fold(most, |vector, len| if len == 0 { vector } else { vector.min(1 << len.trailing_zeros()) })
}

/// Refuses tensors whose elements an `int` does not count.
pub(super) fn check_sizes(step: &TypedStep<'_>) -> Result<(), KernelError> {
    let mut all = step.inputs.iter().map(Source::dims).chain([step.output.dims.as_slice()]);
    if all.all(|dims| i32::try_from(elements(dims)).is_ok()) {
        return Ok(());
    }
    Err(too_large(step))
}

/// How a window goes along one axis.
pub(super) struct Axis {
    pub(super) input: usize,
    pub(super) output: usize,
    pub(super) taps: usize,
    pub(super) stride: usize,
    pub(super) dilation: usize,
    /// On both sides.
    pub(super) pad: usize,
}

/// Refuses windows whose places in the padded picture an `int` does not count.
pub(super) fn check_reach(step: &TypedStep<'_>, axes: &[Axis; 2]) -> Result<(), KernelError> {
    let reach = |a: &Axis| a.output * a.stride + a.taps * a.dilation + a.pad + a.input;
    if axes.iter().all(|axis| i32::try_from(reach(axis)).is_ok()) {
        return Ok(());
    }
    Err(unsupported(step, "its window reaches too far"))
}

/// The axes of a convolution.
pub(super) fn axes(desc: &Conv) -> [Axis; 2] {
    let Conv { h, w, r, s, p, q, stride, pad, dilation, .. } = *desc;
    let axis = |i: usize, input, output, taps| Axis {
        input,
        output,
        taps,
        stride: stride[i],
        dilation: dilation[i],
        pad: pad[i],
    };
    [axis(0, h, p, r), axis(1, w, q, s)]
}

/// The constants that a step's launches read.
#[derive(Default)]
pub(super) struct Constants(pub(super) Vec<Packed>);

impl Constants {
    /// The address of a constant in the form that a kernel reads.
    pub(super) fn add(&mut self, constant: &Arc<Constant>, packing: Packing) -> Arg {
        self.0.push(Packed { constant: Arc::clone(constant), packing });
        Arg::Packed(self.0.len() - 1)
    }

    /// Operand `index` and its element type: that of the activation, f32 for a constant.
    pub(super) fn operand(&mut self, step: &TypedStep<'_>, index: usize) -> (Arg, DType) {
        match &step.inputs[index] {
            Source::Activation(tensor) => (Arg::Input(index), tensor.dtype),
            Source::Constant(constant) => (self.add(constant, Packing::Cast(DType::F32)), DType::F32),
        }
    }

    /// The weights of a matrix product with their first dimension last.
    pub(super) fn weights(&mut self, step: &TypedStep<'_>, dtype: DType) -> Result<Arg, KernelError> {
        match &step.inputs[1] {
            Source::Constant(constant) => Ok(self.add(constant, Packing::FirstLast(dtype))),
            Source::Activation(_) => Err(unsupported(step, "its weights are computed by the network")),
        }
    }

    /// Bias and residual of a matrix product; null where there is none.
    pub(super) fn epilogue(&mut self, step: &TypedStep<'_>, epilogue: &Epilogue) -> Result<[Arg; 2], KernelError> {
        let mut next = 2..;
        let bias = match epilogue.bias.then(|| next.next()).flatten().map(|i| self.operand(step, i)) {
            Some((_, dtype)) if dtype != DType::F32 => {
                return Err(unsupported(step, "its bias is computed by the network"));
            }
            bias => bias.map_or(Arg::Null, |(bias, _)| bias),
        };
        let residual = match epilogue.residual.then(|| next.next()).flatten() {
            Some(index) => match &step.inputs[index] {
                Source::Activation(_) => Arg::Input(index),
                Source::Constant(constant) => self.add(constant, Packing::Cast(step.output.dtype)),
            },
            None => Arg::Null,
        };
        Ok([bias, residual])
    }
}

/// A walk's lengths as an initialiser. The outermost, which depends on the batch, is 0: kernels do not look at it.
pub(super) fn dims<const N: usize>(walk: &Walk<N>) -> String {
    list(walk.dims().iter().enumerate().map(|(axis, &dim)| if axis == 0 { 0 } else { dim as isize }))
}

/// The strides of operand `i` of a walk, outermost first.
pub(super) fn strides<const N: usize>(walk: &Walk<N>, i: usize) -> impl DoubleEndedIterator<Item = isize> {
    (0..walk.dims().len()).rev().filter_map(move |back| walk.stride(back).map(|strides| strides[i]))
}

/// Elements that a thread takes at once along the innermost axis of a walk, given that operands' bases are multiples of
/// `bases`: 1 where an operand is not read in order there.
pub(super) fn walk_vector<const N: usize>(dtype: DType, walk: &Walk<N>, repeats: bool, bases: &[usize]) -> usize {
    let rank = walk.dims().len();
    let in_order = (0..N).all(|i| walk.stride(0).is_some_and(|step| step[i] == 1 || (repeats && step[i] == 0)));
    if !in_order {
        return 1;
    }
    let inner = if rank > 1 { walk.dims()[rank - 1] } else { 0 };
    let outer = (0..N).flat_map(|i| strides(walk, i).take(rank - 1).collect::<Vec<_>>());
    vector(dtype, outer.map(isize::unsigned_abs).chain([inner]).chain(bases.iter().copied()))
}

/// The numbers of a convolution that every kernel for one wants.
pub(super) fn window(desc: &Conv) -> Defines {
    let numbers = [
        ("IN_H", desc.h),
        ("IN_W", desc.w),
        ("FEATURES", desc.k),
        ("KERNEL_H", desc.r),
        ("KERNEL_W", desc.s),
        ("OUT_H", desc.p),
        ("OUT_W", desc.q),
        ("STRIDE_H", desc.stride[0]),
        ("STRIDE_W", desc.stride[1]),
        ("PAD_H", desc.pad[0]),
        ("PAD_W", desc.pad[1]),
        ("DILATION_H", desc.dilation[0]),
        ("DILATION_W", desc.dilation[1]),
        ("BIAS", usize::from(desc.epilogue.bias)),
    ];
    numbers.map(|(name, number)| (name, number.to_string())).into()
}
