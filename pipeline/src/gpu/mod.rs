//! The GPU path: from JPEG files to the best classes without the host in between.
//!
//! ```text
//! Work -> [WorkBatcher] -> [Load, a pool] -> [LoadParts, InferParts] -> [Collect] -> Ranking
//! ```
//!
//! [`Load`] waits for its own batch, so that it knows of each file who decoded it before the next stage sees it; several
//! of them keep the JPEG engines busy. [`InferParts`] only enqueues, [`Collect`] waits behind it. Memory and results go round:
//! whoever reads them gives them back, marked with an event that is waited for before they are written again.

mod batch;
mod infer;
mod lend;
mod load;
mod trace;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

pub use batch::WorkBatcher;
pub(crate) use batch::planes_bytes;
pub use infer::{Answer, Collect, Infer, InferParts, Pending, Probe, Probed, Single};
pub use load::{Load, LoadOutcome, LoadParts, LoadedBatch};
pub(crate) use load::{Placed, place};
use ocellus_kernels::KernelError;
use ocellus_kernels::cuda::engine::{CudaEngine, EngineOptions, Planner};
pub use ocellus_kernels::cuda::gpu::Gpu;
use ocellus_kernels::cuda::jpeg::Jpeg;
pub use ocellus_kernels::cuda::lower::Precision;
use ocellus_kernels::cuda::lower::top_k::{Scores, TopKLayout, softmax_top_k};
use ocellus_kernels::cuda::preprocess::{GpuPreprocess, OutputFormat};
use ocellus_kernels::cuda::schedule::{self, Schedule};
pub use ocellus_kernels::cuda::top_k::MAX_K;
use ocellus_kernels::cuda::top_k::TopK;
use ocellus_kernels::jit::KernelSpec;
use ocellus_kernels::plan::Plan;
use tracing::debug;

use crate::error::JobError;
use crate::frame::{Encoded, Item, Picture};
use crate::model::load::Model;
use crate::model::{ModelError, card};
use crate::observe::Recorder;
use crate::stage::Stage;

/// Workers that decode. With so many the JPEG engines have work while the multiprocessors, which each call waits for several
/// times, are busy with the network. (Files to labels on an H200, 500x375: 24k images a second with 6, 34k with 10; 14 add
/// nothing.)
pub const LOADERS: usize = 10;

/// How a classifier runs on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneOptions {
    /// Arithmetic.
    pub precision: Precision,
    /// Most images in one run of the network.
    pub batch: NonZeroUsize,
    /// Values of the output that are ranked, at most [`MAX_K`].
    pub ranks: usize,
}

/// A classifier on a GPU, ready to be put into stages.
pub struct Lane {
    gpu: Gpu,
    jpeg: Option<Jpeg>,
    infer: Infer,
    batch: usize,
    warnings: Vec<String>,
}

impl Lane {
    /// Plans, compiles and uploads. Where the batch is too large for the GPU or its memory, half of it is tried, and so on.
    ///
    /// # Errors
    /// [`KernelError::Unsupported`] where the GPU has no kernel for an operator, [`KernelError::OutOfMemory`] or
    /// [`KernelError::TooLarge`] where not even one image fits, and where a kernel does not compile or the driver fails.
    pub fn new(gpu: Gpu, model: &Model, options: &LaneOptions) -> Result<Self, JobError> {
        let mut warnings = Vec::new();
        let mut batch = options.batch.get();
        let mut refused = None;
        let (infer, largest) = loop {
            match infer(&gpu, model, options, batch) {
                Err(error) if batch > 1 && is_too_large(&error) => {
                    debug!(batch, %error, "the batch is halved");
                    batch /= 2;
                    refused.get_or_insert(error);
                }
                made => break made?,
            }
        };
        match refused {
            None => {}
            Some(JobError::Kernel(KernelError::OutOfMemory { .. })) => {
                warnings.push(format!("the GPU has memory for batches of {batch}, not of {}", options.batch));
            }
            Some(error) => warnings.push(format!("batches of {batch}, not of {}: {error}", options.batch)),
        }
        // A network whose file fixes the batch takes no more.
        let batch = batch.min(largest);
        let jpeg = Jpeg::new(&gpu);
        if let Err(error) = &jpeg {
            warnings.push(format!("the CPU decodes: {error}"));
        }
        warnings.extend(gpu.jit.report().warnings);
        Ok(Self { gpu, jpeg: jpeg.ok(), infer, batch, warnings })
    }

    /// Most images in one run of the network.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// True where the GPU decodes JPEG.
    pub fn decodes(&self) -> bool {
        self.jpeg.is_some()
    }

    /// What the user should know, one line each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The GPU's place on the PCI bus.
    pub fn pci_bus_id(&self) -> Option<String> {
        self.gpu.device.pci_bus_id().ok()
    }

    /// As the command line writes it.
    pub fn name(&self) -> String {
        format!("cuda:{}", self.gpu.device.facts().ordinal)
    }

    /// The stages, one after another; `cpu` makes stages that read and decode files with the CPU, `recorder` gets a track
    /// for each stream.
    ///
    /// # Errors
    /// Where there is no memory, or nvJPEG or the driver fails.
    pub fn stages<F>(
        mut self,
        cpu: impl Fn() -> Result<F, JobError>,
        recorder: &Recorder,
    ) -> Result<LaneStages<F>, JobError>
    where
        F: Stage<In = Item<Option<Encoded>>, Out = Item<Picture>>,
    {
        let load = || match Load::new(&self.gpu.device, self.jpeg.as_ref(), cpu()?) {
            // The CPU decodes what this worker gets.
            Err(KernelError::OutOfMemory { .. }) => Ok(Load::new(&self.gpu.device, None, cpu()?)?),
            made => Ok(made?),
        };
        let mut parts = load()?;
        let mut loaders = vec![load()?];
        while loaders.len() < LOADERS {
            match load() {
                // Those that there are do the work.
                Err(JobError::Kernel(KernelError::OutOfMemory { .. })) => break,
                loader => loaders.push(loader?),
            }
        }
        self.infer.record(&self.gpu.device, recorder)?;
        for (n, loader) in loaders.iter_mut().chain([&mut parts]).enumerate() {
            loader.record(&format!("decode {n}"), &self.gpu.device, recorder)?;
        }
        // What is left, for all the batches that may be in memory; half of it stays for nvJPEG and others.
        let (free_bytes, _) = self.gpu.device.memory_bytes()?;
        let arenas = load::ARENAS * (LOADERS + 1);
        let images = self.jpeg.as_ref().map_or(self.batch, |jpeg| jpeg.even_batch(self.batch));
        Ok(LaneStages { batcher: WorkBatcher::new(images, free_bytes / 2 / arenas), loaders, parts, infer: self.infer })
    }
}

/// The stages of a [`Lane`], in their order.
pub struct LaneStages<F> {
    /// Collects works.
    pub batcher: WorkBatcher,
    /// A pool that brings batches into the GPU's memory.
    pub loaders: Vec<Load<F>>,
    /// For [`LoadParts`].
    pub parts: Load<F>,
    /// For [`InferParts`], behind that on the same thread.
    pub infer: Infer,
}

/// True where a smaller batch may be possible.
fn is_too_large(error: &JobError) -> bool {
    matches!(
        error,
        JobError::Kernel(KernelError::OutOfMemory { .. } | KernelError::TooLarge { .. })
            | JobError::Model(ModelError::TooLarge(_))
    )
}

/// The stage, and the largest batch of its network.
fn infer(gpu: &Gpu, model: &Model, options: &LaneOptions, batch: usize) -> Result<(Infer, usize), JobError> {
    let Gpu { device, jit } = gpu;
    let (planner, batches) = planner(model, batch)?;
    let engine_options = EngineOptions { precision: options.precision, portable: false, batches };
    let mut engine = CudaEngine::new(device, jit, planner, &engine_options)?;
    let stream = engine.stream().clone();
    let largest = engine.network(batch).ok_or_else(|| KernelError::invalid("engine", "no network"))?;
    let missing = |what| KernelError::invalid("engine", format!("the network has no {what}"));
    let (_, input) = largest.input(0).ok_or_else(|| missing("input"))?;
    let (desc, format) = (model.preprocess(), input_format(model, input));
    let preprocess = GpuPreprocess::new(&stream, jit, desc, format, largest.batch())?;
    let (_, output) = largest.output(0).ok_or_else(|| missing("output"))?;
    let top_k = TopK::new(device, jit, output, scores(model), options.ranks, largest.batch())?;
    let most = largest.batch();
    Ok((Infer::new(engine, preprocess, top_k)?, most))
}

/// How the network reads pictures.
fn input_format(model: &Model, input: &schedule::Placed) -> OutputFormat {
    OutputFormat { dtype: input.tensor.dtype, layout: model.preprocess().layout, pitch: input.tensor.pitch, step: 1.0 }
}

/// What the network's output means.
fn scores(model: &Model) -> Scores {
    match model.card.output.decoder {
        card::Decoder::Softmax => Scores::Logits,
        card::Decoder::Probabilities => Scores::Probabilities,
    }
}

/// Batch sizes that a job of so many images at once has networks for: powers of two, and that many. A batch runs with the next
/// size up, so that few images do not pay for many. All use the same memory and weights, and mostly the same kernels.
pub(crate) fn network_batches(most: usize) -> Vec<usize> {
    let most = most.max(1);
    let smaller = std::iter::successors(Some(1_usize), |size| size.checked_mul(2)).take_while(|size| *size < most);
    smaller.chain([most]).collect()
}

/// Plans of a model for [`network_batches`], and what gives them to an engine.
pub(crate) fn planner(model: &Model, most: usize) -> Result<(Planner, Vec<usize>), JobError> {
    let plans = network_batches(most).into_iter().map(|size| Ok((size, model.plan(size)?)));
    let plans = plans.collect::<Result<BTreeMap<usize, Plan>, JobError>>()?;
    let batches = plans.keys().copied().collect();
    let planner = move |batch: usize| {
        let plan = plans.get(&batch).cloned();
        plan.ok_or_else(|| KernelError::invalid("plan", format!("no plan for a batch of {batch}")))
    };
    Ok((Box::new(planner), batches))
}

/// The kernels before and behind a classifier's network, decoding included.
pub(crate) fn kernels_around(model: &Model, schedule: &Schedule) -> Vec<KernelSpec> {
    let before = schedule.inputs.first().map(|input| input_format(model, input).kernel());
    // Which classes are ranked, and how many, is no matter of the kernel.
    let rank = |output: &schedule::Placed| softmax_top_k(&output.tensor, scores(model), TopKLayout { k: 1 }).kernel;
    before.into_iter().chain(schedule.outputs.first().map(rank)).chain([Jpeg::kernel()]).collect()
}
