//! The GPU path: from JPEG files to the best classes without the host in between.
//!
//! ```text
//! Work -> [WorkBatcher] -> [LaneLoad, a pool] -> [Lanes: LoadParts, InferParts] -> [Collect] -> Ranking
//! ```
//!
//! Each GPU is a [`Lane`] with memory, streams and networks of its own. The loaders of all lanes are one pool, so that the
//! next batch is taken by the first that is free; what they give goes on in the same lane. A lane has the networks of all
//! models, which read the same planes. What a lane was at when it is lost the others do again ([`Lanes`]).
//!
//! [`Load`] waits for its own batch, so that it knows of each file who decoded it before the next stage sees it; several
//! of them keep the JPEG engines busy. [`InferParts`] only enqueues, [`Collect`] waits behind it. Memory and results go round:
//! whoever reads them gives them back, marked with an event that is waited for before they are written again.

mod batch;
mod collect;
mod files;
mod infer;
mod lanes;
mod lend;
mod load;
mod trace;

use std::any::Any;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

pub use batch::WorkBatcher;
pub(crate) use batch::planes_bytes;
pub use collect::Collect;
pub use files::file_memory;
pub use infer::{Answer, Copies, Infer, InferParts, Pending, Probe, Probed, Single};
pub use lanes::{Alive, LaneLoad, Lanes};
pub use load::{LaneInput, Load, LoadOutcome, LoadParts, LoadedBatch, NetworkInput};
pub(crate) use load::{Placed, place};
use ocellus_kernels::KernelError;
use ocellus_kernels::cuda::engine::{CudaEngine, EngineOptions, Planner};
pub use ocellus_kernels::cuda::gpu::Gpu;
use ocellus_kernels::cuda::jpeg::Jpeg;
pub use ocellus_kernels::cuda::lower::Precision;
use ocellus_kernels::cuda::lower::top_k::{Scores, TopKLayout, softmax_top_k};
use ocellus_kernels::cuda::preprocess::{GpuPreprocess, OutputFormat};
use ocellus_kernels::cuda::schedule::{self, Schedule};
pub use ocellus_kernels::cuda::stream::Priority;
use ocellus_kernels::cuda::stream::Stream;
pub use ocellus_kernels::cuda::top_k::MAX_K;
use ocellus_kernels::cuda::top_k::TopK;
use ocellus_kernels::jit::KernelSpec;
use ocellus_kernels::plan::Plan;
use tracing::debug;

use crate::error::{JobError, panic_message};
use crate::frame::{BufferPool, Encoded, Item, Picture};
use crate::model::load::Model;
use crate::model::{ModelError, card};
use crate::observe::Recorder;
use crate::stage::Stage;

/// Workers that decode. With so many the JPEG engines have work while the multiprocessors, which each call waits for several
/// times, are busy with the network. (Files to labels on an H200, 500x375: 24k images a second with 6, 34k with 10; 14 add
/// nothing.)
pub const LOADERS: usize = 10;

/// How a classifier runs on a GPU where it is the only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneOptions {
    /// Arithmetic.
    pub precision: Precision,
    /// Values of the output that are ranked, at most [`MAX_K`].
    pub ranks: usize,
}

/// A model as a GPU runs it.
#[derive(Clone, Copy, Debug)]
pub struct LaneModel<'a> {
    /// The model, a classifier.
    pub model: &'a Model,
    /// Arithmetic.
    pub precision: Precision,
    /// Values of the output that are ranked, at most [`MAX_K`].
    pub ranks: usize,
    /// Whose work goes first where several models have some.
    pub priority: Priority,
    /// Networks of this model, each with weights and a stream of its own, which take batches in turn.
    pub copies: NonZeroUsize,
}

/// Classifiers on a GPU, ready to be put into stages. They read the same pictures.
pub struct Lane {
    name: Arc<str>,
    gpu: Gpu,
    jpeg: Option<Jpeg>,
    networks: Vec<Copies>,
    batch: usize,
    warnings: Vec<String>,
    images: Arc<AtomicU64>,
}

impl Lane {
    /// Plans, compiles and uploads, while nvJPEG starts. Where the batch is too large for the GPU or its memory, half of it is
    /// tried, and so on. `lanes` is the number of GPUs in the job.
    ///
    /// # Errors
    /// [`KernelError::Unsupported`] where the GPU has no kernel for an operator, [`KernelError::OutOfMemory`] or
    /// [`KernelError::TooLarge`] where not even one image fits, and where a kernel does not compile or the driver fails.
    pub fn new(gpu: Gpu, models: &[LaneModel<'_>], wanted: NonZeroUsize, lanes: usize) -> Result<Self, JobError> {
        let name = name_of(&gpu);
        let mut warnings = Vec::new();
        let networks = Networks { gpu: &gpu, name: &name, models, under_way: under_way(lanes) };
        let (made, jpeg) = beside_jpeg(&gpu, || networks.halved(wanted.get()));
        let Halved { networks, most, batch, refused } =
            made.map_err(|error| if lanes > 1 { error.on_gpu(&name) } else { error })?;
        match refused {
            None => {}
            Some(JobError::Kernel(KernelError::OutOfMemory { .. })) => {
                warnings.push(format!("the GPU has memory for batches of {batch}, not of {wanted}"));
            }
            Some(error) => warnings.push(format!("batches of {batch}, not of {wanted}: {error}")),
        }
        // A network whose file fixes the batch takes no more.
        let batch = batch.min(most);
        if let Err(error) = &jpeg {
            // A GPU that is lost is not one that lacks nvJPEG.
            gpu.device.memory_bytes()?;
            warnings.push(format!("the CPU decodes: {error}"));
        }
        if lanes > 1 {
            warnings = warnings.into_iter().map(|warning| format!("{name}: {warning}")).collect();
        }
        warnings.extend(gpu.jit.report().warnings);
        Ok(Self { name, gpu, jpeg: jpeg.ok(), networks, batch, warnings, images: Arc::default() })
    }

    /// A lane on each of the GPUs, all made at the same time. Each fails for itself.
    pub fn all(gpus: Vec<Gpu>, models: &[LaneModel<'_>], wanted: NonZeroUsize) -> Vec<Result<Self, JobError>> {
        let lanes = gpus.len();
        on_threads(gpus, |gpu| Self::new(gpu, models, wanted, lanes))
    }

    /// Most images in one run of the network.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// What the user should know, one line each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// As the command line writes it.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The GPU's place on the PCI bus.
    pub fn pci_bus_id(&self) -> Option<String> {
        self.gpu.device.pci_bus_id().ok()
    }

    /// Counts the images that the GPU is given.
    pub fn images(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.images)
    }

    /// The stages, one after another; `cpu` makes stages that read and decode files with the CPU, `recorder` gets a track
    /// for each stream.
    ///
    /// # Errors
    /// Where there is no memory, or the driver fails.
    pub fn stages<F>(
        mut self,
        cpu: impl Fn() -> Result<F, JobError>,
        recorder: &Recorder,
    ) -> Result<LaneStages<F>, JobError>
    where
        F: Stage<In = Item<Option<Encoded>>, Out = Item<Picture>>,
    {
        let (mut loaders, mut parts) = self.workers(cpu)?;
        for network in &mut self.networks {
            network.record(&self.gpu.device, recorder)?;
        }
        for (n, loader) in loaders.iter_mut().chain([&mut parts]).enumerate() {
            loader.record(&format!("decode {n}"), &self.gpu.device, recorder)?;
        }
        // What is left, for all the batches that may be in memory; half of it stays for nvJPEG and others.
        let (free_bytes, _) = self.gpu.device.memory_bytes()?;
        let arenas = load::ARENAS * (LOADERS + 1);
        let most_images = self.jpeg.as_ref().map_or(self.batch, |jpeg| jpeg.even_batch(self.batch));
        let most_bytes = free_bytes / 2 / arenas;
        let file_memory = self.jpeg.is_some().then(|| file_memory(&self.gpu.device));
        let Self { name, networks, images, .. } = self;
        Ok(LaneStages { name, most_images, most_bytes, file_memory, loaders, parts, networks, images })
    }

    /// Workers for a pool, and the one for parts.
    fn workers<F>(&self, cpu: impl Fn() -> Result<F, JobError>) -> Result<(Vec<Load<F>>, Load<F>), JobError>
    where
        F: Stage<In = Item<Option<Encoded>>, Out = Item<Picture>>,
    {
        let make = || Ok(Load::new(&self.gpu.device, self.jpeg.as_ref(), cpu()?)?);
        // One of each there must be: others may give memory back meanwhile.
        let mut tries = LOADERS;
        let mut needed = || loop {
            match make() {
                Err(JobError::Kernel(KernelError::OutOfMemory { .. })) if tries > 0 => tries -= 1,
                made => return made,
            }
        };
        let (parts, mut loaders) = (needed()?, vec![needed()?]);
        while loaders.len() < LOADERS {
            match make() {
                // Those that there are do the work.
                Err(JobError::Kernel(KernelError::OutOfMemory { .. })) => break,
                loader => loaders.push(loader?),
            }
        }
        Ok((loaders, parts))
    }

    /// The stages of each of the lanes, all made at the same time. Each fails for itself, as [`Lane::stages`] does.
    pub fn all_stages<F>(
        lanes: Vec<Self>,
        cpu: impl Fn() -> Result<F, JobError> + Sync,
        recorder: &Recorder,
    ) -> Vec<Result<LaneStages<F>, NotReady>>
    where
        F: Stage<In = Item<Option<Encoded>>, Out = Item<Picture>>,
    {
        let several = lanes.len() > 1;
        let names: Vec<_> = lanes.iter().map(|lane| Arc::clone(&lane.name)).collect();
        let stages = on_threads(lanes, |lane| {
            let name = Arc::clone(&lane.name);
            lane.stages(&cpu, recorder).map_err(|error| if several { error.on_gpu(&name) } else { error })
        });
        let named = names.into_iter().zip(stages);
        named.map(|(gpu, stages)| stages.map_err(|error| NotReady { gpu, error })).collect()
    }
}

/// Batches whose results may be under way, or wait to be read, in a job of so many lanes: in the queue behind the networks,
/// which has room for [`room`], in the hands of those who collect, one for each lane, and beside these two parts of one that
/// was split.
fn under_way(lanes: usize) -> usize {
    room(lanes) + lanes + 3
}

/// Room that the queue behind the networks of so many lanes needs, so that each has work beside what it is at.
pub fn room(lanes: usize) -> usize {
    2 * lanes
}

/// Does something with each value at the same time, on threads of their own; a panic is its error.
pub(crate) fn on_threads<T: Send, U: Send>(
    values: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> Result<U, JobError> + Sync,
) -> Vec<Result<U, JobError>> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = values.into_iter().map(|value| scope.spawn(move || work(value))).collect();
        let panicked = |panic: Box<dyn Any + Send>| {
            Err(JobError::Panic { stage: "worker", message: panic_message(panic.as_ref()) })
        };
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    })
}

/// A GPU that a job cannot begin with, and why.
pub struct NotReady {
    /// The GPU's name.
    pub gpu: Arc<str>,
    /// What it failed at.
    pub error: JobError,
}

/// The stages of a [`Lane`] and what they go by.
pub struct LaneStages<F> {
    /// The GPU's name, for [`Alive`].
    pub name: Arc<str>,
    /// Most images of a batch.
    pub most_images: usize,
    /// Most memory of a batch's planes.
    pub most_bytes: usize,
    /// For files that the GPU decodes; `None` where it decodes none.
    pub file_memory: Option<BufferPool>,
    /// For a pool that brings batches into the GPU's memory.
    pub loaders: Vec<Load<F>>,
    /// For [`LoadParts`].
    pub parts: Load<F>,
    /// For [`InferParts`], behind that on the same thread.
    pub networks: Vec<Copies>,
    /// Counts images, for [`InferParts`].
    pub images: Arc<AtomicU64>,
}

/// As the command line writes it.
fn name_of(gpu: &Gpu) -> Arc<str> {
    format!("cuda:{}", gpu.device.facts().ordinal).into()
}

/// True where a smaller batch may be possible.
fn is_too_large(error: &JobError) -> bool {
    matches!(
        error,
        JobError::Kernel(KernelError::OutOfMemory { .. } | KernelError::TooLarge { .. })
            | JobError::Model(ModelError::TooLarge(_))
    )
}

/// nvJPEG, which starts on a thread of its own while the caller makes what comes behind it: the driver does both at once.
pub(crate) fn beside_jpeg<T>(gpu: &Gpu, make: impl FnOnce() -> T) -> (T, Result<Jpeg, KernelError>) {
    let (made, jpeg) = thread::scope(|scope| {
        let jpeg = thread::Builder::new().spawn_scoped(scope, || Jpeg::new(gpu));
        (make(), jpeg.ok().and_then(|jpeg| jpeg.join().ok()))
    });
    let jpeg = match jpeg {
        // There may have been memory for it but for what was tried beside it.
        None | Some(Err(KernelError::OutOfMemory { .. })) => Jpeg::new(gpu),
        Some(jpeg) => jpeg,
    };
    (made, jpeg)
}

/// The networks of all models for a batch that the GPU takes.
struct Halved {
    networks: Vec<Copies>,
    /// The largest batch that all of them take.
    most: usize,
    /// What they were made for: what was wanted, or half of it, and so on.
    batch: usize,
    /// Why it is not what was wanted.
    refused: Option<JobError>,
}

/// What the networks of a lane are made from.
struct Networks<'a> {
    gpu: &'a Gpu,
    /// The GPU's.
    name: &'a Arc<str>,
    models: &'a [LaneModel<'a>],
    /// Batches whose results may be under way or wait to be read.
    under_way: usize,
}

impl Networks<'_> {
    /// Those of all models, for half of the batch where the GPU or its memory is too small, and so on.
    fn halved(&self, wanted: usize) -> Result<Halved, JobError> {
        let (mut batch, mut refused) = (wanted, None);
        loop {
            match self.all(batch) {
                Err(error) if batch > 1 && is_too_large(&error) => {
                    debug!(batch, %error, "the batch is halved");
                    batch /= 2;
                    refused.get_or_insert(error);
                }
                made => return made.map(|(networks, most)| Halved { networks, most, batch, refused }),
            }
        }
    }

    /// Those of all models, of high priority first, and the largest batch that all of them take.
    fn all(&self, batch: usize) -> Result<(Vec<Copies>, usize), JobError> {
        let mut order: Vec<_> = self.models.iter().enumerate().collect();
        order.sort_by_key(|(_, model)| model.priority != Priority::High);
        let mut most = batch;
        let mut networks = Vec::new();
        for (number, model) in order {
            let mut copies = Vec::new();
            for _ in 0..model.copies.get() {
                let (copy, largest) = self.one(number, model, batch)?;
                most = most.min(largest);
                copies.push(copy);
            }
            networks.push(Copies::new(number, copies));
        }
        Ok((networks, most))
    }

    /// What runs the model of this number, and the largest batch of its network.
    fn one(&self, number: usize, model: &LaneModel<'_>, batch: usize) -> Result<(Infer, usize), JobError> {
        let Gpu { device, jit } = self.gpu;
        let LaneModel { model, precision, ranks, priority, .. } = *model;
        let (planner, batches) = planner(model, batch)?;
        let engine_options = EngineOptions { precision, portable: false, batches };
        let stream = Stream::new(device, priority)?;
        let mut engine = CudaEngine::on(&stream, jit, planner, &engine_options)?;
        let largest = engine.network(batch).ok_or_else(|| KernelError::invalid("engine", "no network"))?;
        let missing = |what| KernelError::invalid("engine", format!("the network has no {what}"));
        let (_, input) = largest.input(0).ok_or_else(|| missing("input"))?;
        let (desc, format) = (model.preprocess(), input_format(model, input));
        let preprocess = GpuPreprocess::new(&stream, jit, desc, format, largest.batch())?;
        let (_, output) = largest.output(0).ok_or_else(|| missing("output"))?;
        let top_k = TopK::new(device, jit, output, scores(model), ranks, largest.batch())?;
        let most = largest.batch();
        Ok((Infer::new((self.name, number), engine, preprocess, top_k, self.under_way)?, most))
    }
}

/// What runs a model alone on a GPU, and the largest batch of its network.
fn infer(gpu: &Gpu, model: &Model, options: &LaneOptions, batch: usize) -> Result<(Infer, usize), JobError> {
    let LaneOptions { precision, ranks } = *options;
    let alone = LaneModel { model, precision, ranks, priority: Priority::Low, copies: NonZeroUsize::MIN };
    Networks { gpu, name: &name_of(gpu), models: &[alone], under_way: under_way(1) }.one(0, &alone, batch)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_give_their_results_in_order_and_fail_each_for_itself() {
        let ended = on_threads(0..4, |n| match n {
            1 => Err(JobError::Interrupted),
            2 => panic!("made up"),
            n => Ok(n * n),
        });
        assert!(matches!(ended[..], [Ok(0), Err(JobError::Interrupted), Err(_), Ok(9)]), "{ended:?}");
        assert!(ended[2].as_ref().unwrap_err().to_string().contains("made up"));
    }
}
