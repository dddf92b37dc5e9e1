//! Executes a [`Plan`].

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use super::conv::PackedConv;
use super::conv_transpose::PackedConvTranspose;
use super::gemm::PackedGemm;
use super::par::{Par, View};
use super::{copy, gemm, norm, pointwise, pool, quantize, reduce, resize};
use crate::engine::Engine;
use crate::error::KernelError;
use crate::op::{Epilogue, Op};
use crate::plan::{Constant, Operand, Plan, Port, Step};

/// The CPU engine: weights packed once, one arena for each thread that runs images.
pub struct CpuEngine {
    plan: Plan,
    steps: Vec<Prepared>,
    arenas: Vec<Vec<f32>>,
    pool: rayon::ThreadPool,
}

/// What is made once for a step: the packed weights of a matrix product.
enum Prepared {
    Conv(PackedConv),
    ConvTranspose(PackedConvTranspose),
    Gemm(PackedGemm),
    Plain,
}

impl CpuEngine {
    /// An engine with `threads` threads (0: one a core).
    ///
    /// # Errors
    /// Where a step contradicts itself or the threads cannot be started.
    pub fn new(plan: Plan, threads: usize) -> Result<Self, KernelError> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("infer-{i}"))
            .build()
            .map_err(|e| KernelError::invalid("CPU engine", format!("cannot start its threads: {e}")))?;
        plan.check()?;
        let steps = plan.steps.iter().map(prepare).collect::<Result<_, _>>()?;
        Ok(Self { plan, steps, arenas: Vec::new(), pool })
    }
}

/// Constant operand `index` of a step.
fn weights(step: &Step, index: usize) -> Result<&Arc<Constant>, KernelError> {
    match step.inputs.get(index) {
        Some(Operand::Constant(c)) => Ok(c),
        _ => Err(KernelError::Unsupported {
            op: step.name.clone(),
            engine: "cpu",
            why: "its weights are computed by the network".into(),
        }),
    }
}

fn prepare(step: &Step) -> Result<Prepared, KernelError> {
    Ok(match &step.op {
        Op::Conv(desc) => Prepared::Conv(PackedConv::new(desc, weights(step, 1)?)),
        Op::ConvTranspose(desc) => Prepared::ConvTranspose(PackedConvTranspose::new(desc, weights(step, 1)?)),
        Op::Gemm(desc) => Prepared::Gemm(PackedGemm::new(desc, weights(step, 1)?)),
        _ => Prepared::Plain,
    })
}

impl Engine for CpuEngine {
    fn inputs(&self) -> &[Port] {
        &self.plan.inputs
    }

    fn outputs(&self) -> &[Port] {
        &self.plan.outputs
    }

    fn run(&mut self, images: usize, inputs: &[&[f32]], outputs: &mut [Vec<f32>]) -> Result<(), KernelError> {
        let Self { plan, steps, arenas, pool } = self;
        check_call(plan, images, inputs, outputs)?;
        let runs = images / plan.batch;
        for (port, output) in plan.outputs.iter().zip(outputs.iter_mut()) {
            output.resize(port.buffer.len() * runs, 0.0);
        }
        // Whole runs side by side while there is one for every thread; the rest one by one, each spread over the threads.
        let threads = pool.current_num_threads();
        arenas.resize_with(threads.min(runs).max(1), || vec![0.0; plan.arena_len]);
        let mut start = 0;
        while start < runs {
            let count = if runs - start >= threads { threads } else { 1 };
            let par = if count > 1 { Par::Serial } else { Par::Pool };
            pool.install(|| {
                let go = |(i, arena): (usize, &mut Vec<f32>)| run_once(plan, steps, arena, inputs, start + i, par);
                match par {
                    Par::Serial => arenas[..count].par_iter_mut().enumerate().for_each(go),
                    Par::Pool => arenas[..1].iter_mut().enumerate().for_each(go),
                }
            });
            for (i, arena) in arenas[..count].iter().enumerate() {
                for (port, output) in plan.outputs.iter().zip(outputs.iter_mut()) {
                    let len = port.buffer.len();
                    output[(start + i) * len..][..len].copy_from_slice(&arena[port.buffer.range()]);
                }
            }
            start += count;
        }
        Ok(())
    }
}

fn check_call(plan: &Plan, images: usize, inputs: &[&[f32]], outputs: &[Vec<f32>]) -> Result<(), KernelError> {
    let fail = |why: String| Err(KernelError::invalid("run", why));
    if images == 0 || !images.is_multiple_of(plan.batch) || (images > plan.batch && !plan.divisible) {
        return fail(format!("{images} images do not fit a plan for {}", plan.batch));
    }
    if inputs.len() != plan.inputs.len() || outputs.len() != plan.outputs.len() {
        return fail(format!("{} inputs and {} outputs given", inputs.len(), outputs.len()));
    }
    for (port, input) in plan.inputs.iter().zip(inputs) {
        let want = port.buffer.len() * (images / plan.batch);
        if input.len() != want {
            return fail(format!("input \"{}\" has {} elements instead of {want}", port.name, input.len()));
        }
    }
    Ok(())
}

/// Runs the plan once, for the `run`-th group of images.
fn run_once(plan: &Plan, prepared: &[Prepared], arena: &mut [f32], inputs: &[&[f32]], run: usize, par: Par) {
    for (port, input) in plan.inputs.iter().zip(inputs) {
        let len = port.buffer.len();
        arena[port.buffer.range()].copy_from_slice(&input[run * len..][..len]);
    }
    for (step, prepared) in plan.steps.iter().zip(prepared) {
        let (before, output, after) = split_out(arena, step.output.range());
        let start = step.output.offset;
        let views: Vec<View<'_>> = step
            .inputs
            .iter()
            .map(|input| match input {
                Operand::Constant(c) => View { dims: &c.dims, data: &c.data },
                Operand::Buffer(b) if b.offset < start => View { dims: &b.dims, data: &before[b.range()] },
                Operand::Buffer(b) => {
                    let from = b.offset - start - output.len();
                    View { dims: &b.dims, data: &after[from..from + b.len()] }
                }
            })
            .collect();
        run_step(step, prepared, &views, output, par);
    }
}

/// The arena before, in and after `range`.
fn split_out(arena: &mut [f32], range: Range<usize>) -> (&[f32], &mut [f32], &[f32]) {
    let (before, rest) = arena.split_at_mut(range.start);
    let (out, after) = rest.split_at_mut(range.len());
    (before, out, after)
}

/// Bias and residual among the operands behind x and the weights.
fn epilogue_operands<'a>(epilogue: &Epilogue, views: &[View<'a>]) -> (Option<&'a [f32]>, Option<&'a [f32]>) {
    let bias = epilogue.bias.then(|| views[2].data);
    let residual = epilogue.residual.then(|| views[2 + usize::from(epilogue.bias)].data);
    (bias, residual)
}

fn run_step(step: &Step, prepared: &Prepared, views: &[View<'_>], y: &mut [f32], par: Par) {
    let x = views[0];
    let dims = step.output.dims.as_slice();
    match (&step.op, prepared) {
        (Op::Conv(d), Prepared::Conv(packed)) => {
            let (bias, residual) = epilogue_operands(&d.epilogue, views);
            packed.run(x.data, bias, residual, y, par);
        }
        (Op::ConvTranspose(d), Prepared::ConvTranspose(packed)) => {
            let (bias, _) = epilogue_operands(&d.0.epilogue, views);
            packed.run(x.data, bias, y, par);
        }
        (Op::Gemm(d), Prepared::Gemm(packed)) => {
            let (bias, residual) = epilogue_operands(&d.epilogue, views);
            packed.run(x.data, bias, residual, y, par);
        }
        (Op::MatMul(d), _) => gemm::matmul(d, x.data, views[1].data, y, par),
        (Op::Pool(d), _) => pool::pool(d, x.data, y, par),
        (Op::Reduce { kind, axes }, _) => reduce::reduce(*kind, axes, x, y, par),
        (Op::ArgMax { axis, select_last }, _) => reduce::arg_max(*axis, *select_last, x, y),
        (Op::Unary(f), _) => pointwise::unary(*f, x.data, y, par),
        (Op::Binary { kind, activation }, _) => pointwise::binary(*kind, *activation, x, views[1], dims, y, par),
        (Op::ScaleShift { axis }, _) => pointwise::scale_shift(*axis, x, views[1].data, views[2].data, y, par),
        (Op::Softmax { axis, log }, _) => norm::softmax(*axis, *log, x, y, par),
        (Op::LayerNorm { axis, epsilon }, _) => {
            norm::layer_norm(*axis, *epsilon, x, views[1].data, views[2].data, y, par);
        }
        (Op::Resize(d), _) => resize::resize(d, x.data, y, par),
        (Op::Concat { axis }, _) => copy::concat(*axis, views, y),
        (Op::Slice { start, step }, _) => copy::slice(start, step, x, dims, y),
        (Op::Pad { before, mode }, _) => copy::pad(before, *mode, x, dims, y),
        (Op::Transpose { perm }, _) => copy::transpose(perm, x, y, par),
        (Op::Reshape, _) => y.copy_from_slice(x.data),
        (Op::Quantize { axis, low, high }, _) => {
            quantize::quantize(*axis, *low, *high, x, views[1].data, views[2].data, y);
        }
        (Op::Dequantize { axis }, _) => quantize::dequantize(*axis, x, views[1].data, views[2].data, y),
        (Op::Cast { integer_range }, _) => quantize::cast(*integer_range, x.data, y),
        (Op::Conv(_) | Op::ConvTranspose(_) | Op::Gemm(_), _) => debug_assert!(false, "prepared with the step"),
    }
}
