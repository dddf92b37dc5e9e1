//! Operators that only move elements.

use super::emit::{self, Constants};
use super::function::literal;
use super::{Arg, Launch, Lowered, Target, TypedStep};
use crate::error::KernelError;
use crate::op::{Op, PadMode};
use crate::tensor::{DType, elements};
use crate::walk::{Walk, strides};

/// Side of the squares that the transposing kernel moves.
const TILE: usize = 32;

/// Axes shorter than this are not worth squares.
const SHORT: usize = 8;

pub(super) fn lower(step: &TypedStep<'_>, _: &Target) -> Result<Lowered, KernelError> {
    emit::check_sizes(step)?;
    let mut constants = Constants::default();
    let output = &step.output.dims;
    let launches = match step.op {
        Op::Concat { axis } => concat(step, &mut constants, *axis),
        op => {
            let dims = step.inputs[0].dims();
            let movement = Movement::new(step, &mut constants, 0);
            let x = strides(dims);
            vec![match op {
                Op::Slice { start, step } => {
                    let base = start.iter().zip(&x).map(|(&start, stride)| start as isize * stride).sum();
                    let axes = output.iter().zip(step).zip(&x).map(|((&dim, step), stride)| (dim, step * stride));
                    movement.gather(axes.zip(strides(output)), base, 0)
                }
                Op::Transpose { perm } => movement.permute(perm.iter().map(|&axis| (dims[axis], x[axis])), output),
                Op::Pad { before, mode } if output != dims => movement.pad(before, *mode, dims, output),
                _ => movement.gather([((elements(output), 1), 1)], 0, 0),
            }]
        }
    };
    Ok(Lowered { launches, constants: constants.0, workspace_bytes: 0 })
}

/// One launch an operand.
fn concat(step: &TypedStep<'_>, constants: &mut Constants, axis: usize) -> Vec<Launch> {
    let output = &step.output.dims;
    let row = elements(&output[axis..]) as isize;
    let mut before = 0;
    (0..step.inputs.len())
        .map(|index| {
            let dims = step.inputs[index].dims();
            let block = elements(&dims[axis..]);
            let axes = [((elements(&dims[..axis]), block as isize), row), ((block, 1), 1)];
            let launch = Movement::new(step, constants, index).gather(axes, 0, before);
            before += block as isize;
            launch
        })
        .collect()
}

/// A kernel that moves elements of one operand.
struct Movement {
    x: Arg,
    from: DType,
    to: DType,
}

impl Movement {
    fn new(step: &TypedStep<'_>, constants: &mut Constants, index: usize) -> Self {
        let (x, from) = constants.operand(step, index);
        Self { x, from, to: step.output.dtype }
    }

    fn launch(self, entry: &'static str, mut defines: emit::Defines, len: usize, vector: usize) -> Launch {
        defines.extend([("TX", emit::type_name(self.from)), ("TY", emit::type_name(self.to))]);
        defines.push(("VECTOR", vector.to_string()));
        let kernel = emit::spec("movement.cu", entry, defines);
        emit::launch(kernel, len, vector, [self.x, Arg::Output])
    }

    /// `y[start_y + ...] = x[start_x + ...]` for every index of axes with a length, a stride in x and one in y.
    fn gather(self, axes: impl IntoIterator<Item = ((usize, isize), isize)>, start_x: isize, start_y: isize) -> Launch {
        let walk = Walk::<2>::new(axes.into_iter().map(|((dim, x), y)| (dim, [x, y])), [start_x, start_y]);
        let vector = emit::walk_vector(self.to, &walk, false, &[start_x.unsigned_abs(), start_y.unsigned_abs()]);
        let defines = vec![
            ("GATHER", "1".into()),
            ("DIMS", emit::dims(&walk)),
            ("STRIDES_X", emit::list(emit::strides(&walk, 0))),
            ("STRIDES_Y", emit::list(emit::strides(&walk, 1))),
            ("START_X", start_x.to_string()),
            ("START_Y", start_y.to_string()),
        ];
        let len = walk.dims().iter().product();
        self.launch("gather", defines, len, vector)
    }

    /// The output's axes each with its length and its stride in x.
    fn permute(self, axes: impl Iterator<Item = (usize, isize)> + Clone, output: &[usize]) -> Launch {
        let walk = Walk::<1>::new(axes.clone().map(|(dim, stride)| (dim, [stride])), [0]);
        let rank = walk.dims().len();
        let x: Vec<isize> = emit::strides(&walk, 0).collect();
        let y = strides(walk.dims());
        let rows = x.iter().position(|&stride| stride == 1).unwrap_or(rank - 1);
        let worth = |axis: usize| walk.dims()[axis] >= SHORT;
        if rows == rank - 1 || !worth(rows) || !worth(rank - 1) {
            return self.gather(axes.zip(strides(output)), 0, 0);
        }
        let outer: Vec<usize> = (0..rank - 1).filter(|&axis| axis != rows).collect();
        let along = |strides: &[isize]| {
            if outer.is_empty() { "0".into() } else { emit::list(outer.iter().map(|&i| strides[i])) }
        };
        let (height, width) = (walk.dims()[rows], walk.dims()[rank - 1]);
        // The outermost length depends on the batch, and is not looked at.
        let lengths = outer.iter().enumerate().map(|(i, &axis)| if i == 0 { 0 } else { walk.dims()[axis] as isize });
        let defines = vec![
            ("TRANSPOSE", "1".into()),
            ("OUTER", if outer.is_empty() { "0".into() } else { emit::list(lengths) }),
            ("OUTER_X", along(&x)),
            ("OUTER_Y", along(&y)),
            ("COLUMN_X", x[rank - 1].to_string()),
            ("ROW_Y", y[rows].to_string()),
            ("TX", emit::type_name(self.from)),
            ("TY", emit::type_name(self.to)),
        ];
        let squares = height.div_ceil(TILE) * width.div_ceil(TILE);
        let count: usize = outer.iter().map(|&axis| walk.dims()[axis]).product();
        Launch {
            kernel: emit::spec("movement.cu", "transpose", defines),
            grid: [(count * squares) as u32, 1, 1],
            block: emit::BLOCK,
            shared_bytes: 0,
            args: vec![self.x, Arg::Output, Arg::I32(height as i32), Arg::I32(width as i32)],
            overlaps: true,
        }
    }

    fn pad(self, before: &[usize], mode: PadMode, input: &[usize], output: &[usize]) -> Launch {
        // Neighbouring axes without padding become one.
        let mut axes: Vec<PadAxis> = Vec::new();
        for ((&before, &input), &output) in before.iter().zip(input).zip(output) {
            match axes.last_mut() {
                Some(last) if !last.is_padded() && input == output => {
                    last.input *= input;
                    last.output *= output;
                }
                _ => axes.push(PadAxis { before, input, output }),
            }
        }
        let x = strides(&axes.iter().map(|axis| axis.input).collect::<Vec<_>>());
        let vector = match axes.last() {
            Some(last) if !last.is_padded() => emit::vector(self.to, [last.output]),
            _ => 1,
        };
        let (fill, value) = match mode {
            PadMode::Constant(value) => ("kConstant", value),
            PadMode::Reflect => ("kReflect", 0.0),
            PadMode::Edge => ("kEdge", 0.0),
        };
        // The outermost length of an axis that is not padded depends on the batch.
        let inner = |i: usize, len: usize, outer: isize| if i == 0 { outer } else { len as isize };
        let bound = |i: usize, axis: &PadAxis| {
            if axis.is_padded() { axis.input as isize } else { inner(i, axis.input, i32::MAX as isize) }
        };
        let defines = vec![
            ("PAD", "1".into()),
            ("DIMS", emit::list(axes.iter().enumerate().map(|(i, axis)| inner(i, axis.output, 0)))),
            ("INPUT", emit::list(axes.iter().enumerate().map(|(i, axis)| bound(i, axis)))),
            ("BEFORE", emit::list(axes.iter().map(|axis| axis.before as isize))),
            ("STRIDES_X", emit::list(x)),
            ("FILL", fill.into()),
            ("VALUE", literal(value)),
        ];
        self.launch("pad", defines, elements(output), vector)
    }
}

/// An axis of a padded tensor.
struct PadAxis {
    before: usize,
    input: usize,
    output: usize,
}

impl PadAxis {
    fn is_padded(&self) -> bool {
        self.input != self.output
    }
}
