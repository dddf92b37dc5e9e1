//! Executes a [`Plan`].

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;

use super::aligned::AlignedVec;
use super::conv::PackedConv;
use super::conv_transpose::PackedConvTranspose;
use super::gemm::PackedGemm;
use super::par::{self, Par, View, run_awake};
use super::vector_simd::Isa;
use super::{copy, gemm, norm, pointwise, pool, quantize, reduce, resize};
use crate::engine::{Engine, Signature};
use crate::error::KernelError;
use crate::op::{Epilogue, Op};
use crate::plan::{Constant, Operand, Plan, Port, Step};

/// The CPU engine: weights packed once, one arena for each thread that runs images.
pub struct CpuEngine {
    plan: Plan,
    signature: Signature,
    steps: Vec<Prepared>,
    arenas: Vec<AlignedVec>,
    isa: Isa,
    pool: rayon::ThreadPool,
    /// What a run of the plan takes, in multiply-adds.
    work: usize,
}

/// What is made once for a step: the packed weights of a matrix product.
enum Prepared {
    Conv(PackedConv),
    ConvTranspose(PackedConvTranspose),
    Gemm(PackedGemm),
    Plain,
}

impl CpuEngine {
    /// An engine with `threads` threads (0: rayon's default, one a core).
    ///
    /// # Errors
    /// Where a step contradicts itself, the activations do not fit into the address space, or the threads cannot be
    /// started.
    pub fn new(plan: Plan, threads: usize) -> Result<Self, KernelError> {
        Self::with_isa(plan, threads, Isa::best())
    }

    /// As [`CpuEngine::new`], its matrix products and depthwise convolutions with the given instruction set.
    ///
    /// # Errors
    /// As [`CpuEngine::new`], and where this machine lacks the instruction set.
    pub fn with_isa(plan: Plan, threads: usize, isa: Isa) -> Result<Self, KernelError> {
        if !Isa::available().contains(&isa) {
            return Err(KernelError::invalid("CPU engine", format!("this machine does not have {isa:?}")));
        }
        let pool = par::pool(threads)?;
        plan.check()?;
        check_memory(plan.arena_len)?;
        let steps = plan.steps.iter().map(|step| prepare(step, isa)).collect::<Result<_, _>>()?;
        let work = plan.steps.iter().map(par::work).fold(0, usize::saturating_add);
        Ok(Self { signature: Signature::of(&plan), plan, steps, arenas: Vec::new(), isa, pool, work })
    }
}

/// Refuses here, with a message, an arena that cannot be had: an allocation that fails later would end the process.
fn check_memory(arena_len: usize) -> Result<(), KernelError> {
    let mut trial: Vec<f32> = Vec::new();
    let fits = trial.try_reserve_exact(arena_len);
    // Or else the compiler drops the allocation, which nothing uses, and the check with it.
    std::hint::black_box(&trial);
    fits.map_err(|_| {
        let mib = arena_len >> 18;
        KernelError::invalid("CPU engine", format!("the activations take {mib} MiB, which this machine does not have"))
    })
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

fn prepare(step: &Step, isa: Isa) -> Result<Prepared, KernelError> {
    Ok(match &step.op {
        Op::Conv(desc) => Prepared::Conv(PackedConv::new(desc, weights(step, 1)?, isa)),
        Op::ConvTranspose(desc) => Prepared::ConvTranspose(PackedConvTranspose::new(desc, weights(step, 1)?, isa)),
        Op::Gemm(desc) => Prepared::Gemm(PackedGemm::new(desc, weights(step, 1)?, isa)),
        _ => Prepared::Plain,
    })
}

impl Engine for CpuEngine {
    fn inputs(&self) -> &[Port] {
        &self.signature.inputs
    }

    fn outputs(&self) -> &[Port] {
        &self.signature.outputs
    }

    fn run(&mut self, images: usize, inputs: &[&[f32]], outputs: &mut [Vec<f32>]) -> Result<(), KernelError> {
        let Self { plan, signature, steps, arenas, isa, pool, work } = self;
        signature.check(images, inputs, outputs)?;
        let runs = images / plan.batch;
        for (port, output) in plan.outputs.iter().zip(outputs.iter_mut()) {
            output.resize(port.buffer.len() * runs, 0.0);
        }
        let threads = par::threads_for(work.saturating_mul(runs), pool);
        // Never fewer: a short batch between full ones must not cost their arenas.
        let needed = threads.min(runs);
        if arenas.len() < needed {
            arenas.resize_with(needed, || AlignedVec::zeros(plan.arena_len));
        }
        let mut places: Vec<_> = plan
            .outputs
            .iter()
            .zip(outputs)
            .map(|(port, output)| output.chunks_mut(port.buffer.len().max(1)))
            .collect();
        let mut whole: Vec<Run<'_>> = (0..runs)
            .map(|number| Run {
                number,
                outputs: places.iter_mut().map(|place| place.next().unwrap_or_default()).collect(),
            })
            .collect();
        let network = Network { plan, steps, inputs, isa: *isa };
        if threads == 1 {
            for run in whole {
                network.run(run, &mut arenas[0], Par::Serial);
            }
            return Ok(());
        }
        // A run each, as long as there are as many as threads; the rest side by side, each spread over the free threads.
        let rest = whole.split_off(runs - runs % threads);
        if !whole.is_empty() {
            let whole = Mutex::new(whole.into_iter());
            let next = || whole.lock().unwrap_or_else(PoisonError::into_inner).next();
            let go = |arena: &mut AlignedVec| {
                while let Some(run) = next() {
                    network.run(run, arena, Par::Serial);
                }
            };
            pool.install(|| arenas[..threads].par_iter_mut().with_max_len(1).for_each(go));
        }
        if !rest.is_empty() {
            let go = |(run, arena): (Run<'_>, &mut AlignedVec)| network.run(run, arena, Par::Pool);
            run_awake(pool, || rest.into_par_iter().zip(&mut arenas[..]).for_each(go));
        }
        Ok(())
    }
}

/// One run of the plan, for a group of images.
struct Run<'a> {
    /// Which group.
    number: usize,
    /// Its part of each output.
    outputs: Vec<&'a mut [f32]>,
}

/// What all runs share.
struct Network<'a> {
    plan: &'a Plan,
    steps: &'a [Prepared],
    inputs: &'a [&'a [f32]],
    isa: Isa,
}

impl Network<'_> {
    fn run(&self, run: Run<'_>, arena: &mut [f32], par: Par) {
        for (port, input) in self.plan.inputs.iter().zip(self.inputs) {
            let len = port.buffer.len();
            arena[port.buffer.range()].copy_from_slice(&input[run.number * len..][..len]);
        }
        for (step, prepared) in self.plan.steps.iter().zip(self.steps) {
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
            run_step(step, prepared, &views, output, self.isa, par);
        }
        for (port, output) in self.plan.outputs.iter().zip(run.outputs) {
            output.copy_from_slice(&arena[port.buffer.range()]);
        }
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

fn run_step(step: &Step, prepared: &Prepared, views: &[View<'_>], y: &mut [f32], isa: Isa, par: Par) {
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
        (Op::MatMul(d), _) => gemm::matmul(d, x.data, views[1].data, y, isa, par),
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

#[cfg(test)]
mod tests {
    use super::super::testing::{BusyThreads, Random, assert_same_bits};
    use super::*;
    use crate::op::Unary;
    use crate::tensor::DType;

    /// Numbers an image: one image is not worth waking a thread for, nor are eight; one is.
    const SMALL: usize = 50;
    const LARGE: usize = 100_000;

    /// Three functions of `len` numbers an image, one after another.
    fn functions(len: usize) -> Plan {
        let buffer = |offset| crate::plan::Buffer { offset, dims: vec![1, len] };
        let port = |buffer| Port { name: String::new(), dtype: DType::F32, layout: None, buffer };
        let step = |f, from, to| Step {
            name: format!("{f:?}"),
            op: Op::Unary(f),
            inputs: vec![Operand::Buffer(buffer(from))],
            output: buffer(to),
        };
        let steps = vec![step(Unary::Sigmoid, 0, len), step(Unary::Tanh, len, 0), step(Unary::Softplus, 0, len)];
        let (inputs, outputs) = (vec![port(buffer(0))], vec![port(buffer(len))]);
        Plan { batch: 1, divisible: true, inputs, outputs, steps, arena_len: 2 * len }
    }

    #[test]
    fn arenas_outlive_a_short_batch() {
        let mut engine = CpuEngine::new(functions(LARGE), 3).unwrap();
        let addresses = |engine: &CpuEngine| engine.arenas.iter().map(|arena| arena.as_ptr()).collect::<Vec<_>>();
        let mut outputs = vec![Vec::new()];
        let x = vec![0.5; 7 * LARGE];
        engine.run(7, &[&x], &mut outputs).unwrap();
        let full = addresses(&engine);
        assert_eq!(full.len(), 3);
        for images in [1, 2, 3] {
            engine.run(images, &[&x[..images * LARGE]], &mut outputs).unwrap();
            assert_eq!(outputs[0].len(), images * LARGE);
            assert_eq!(addresses(&engine), full, "after {images} images");
        }
    }

    /// Threads that do not come hold up no batch, and one that is not worth waking any does without them all. Small or large,
    /// whole images or pieces of them, beside busy threads or not, the bits are the same.
    #[test]
    fn nobody_waits_for_busy_threads() {
        for (len, busy) in [(SMALL, 3), (LARGE, 2)] {
            for images in [1, 2, 3, 7] {
                let x = Random::new(images as u64).values(images * len);
                let run = |threads, busy| {
                    let mut engine = CpuEngine::new(functions(len), threads).unwrap();
                    let mut outputs = vec![Vec::new()];
                    let busy = BusyThreads::of(&engine.pool, busy);
                    engine.run(images, &[&x], &mut outputs).unwrap();
                    busy.end();
                    outputs.remove(0)
                };
                let alone = run(1, 0);
                for busy in [0, busy] {
                    assert_same_bits(&alone, &run(3, busy), &format!("{images} images of {len}, {busy} threads busy"));
                }
            }
        }
    }

    /// Only what is too little for them is kept from the threads: one image or all of a batch.
    #[test]
    fn large_batches_are_for_the_pool() {
        let pool = par::pool(3).unwrap();
        let work = |len| functions(len).steps.iter().map(par::work).sum();
        assert_eq!(par::threads_for(work(SMALL), &pool), 1);
        assert_eq!(par::threads_for(work(SMALL) * 8, &pool), 1);
        assert_eq!(par::threads_for(work(LARGE), &pool), 3);
        assert_eq!(par::threads_for(work(LARGE / 8) * 8, &pool), 3);
    }

    /// More than any address space has, so that the machine's memory does not matter.
    #[test]
    fn an_impossible_arena_is_an_error() {
        let error = check_memory(1 << 60).unwrap_err().to_string();
        assert!(error.contains("4398046511104 MiB") && error.lines().count() == 1, "{error}");
        assert!(check_memory(1 << 20).is_ok());
    }
}
