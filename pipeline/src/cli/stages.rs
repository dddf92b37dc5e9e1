//! The stages between a list of files and their results, put together.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ocellus_kernels::KernelError;
use ocellus_kernels::cuda::jpeg::Jpeg;
use ocellus_kernels::engine::Engine;

use super::device::left_out;
use super::job::RowOrder;
use crate::decode::{Decode, DecodeOptions, Split};
use crate::error::{JobError, StageName};
use crate::frame::{Branch, BufferPool, Deadline, Decoder as DecodedBy, Item, PooledVec, Results, Work};
use crate::gpu::{
    self, Alive, Collect, Gpu, InferParts, Lane, LaneLoad, LaneStages, Lanes, Load, LoadOutcome, LoadParts, NotReady,
    Precision, Priority, WorkBatcher,
};
use crate::infer::Infer;
use crate::model::load::Model;
use crate::observe::Recorder;
use crate::postprocess::{Classify, ClassifyDesc, ClassifyRanked};
use crate::preprocess::{Batcher, Preprocess};
use crate::runner::{AsDone, Branches, Fan, InOrder, Join, Order, PerItem, Pipeline, Tag, Then, Window};
use crate::source::{ReadAhead, ReadLarge};
use crate::stage::{Cancel, Stage};

/// Threads that read files: enough to hide a slow disk, few enough not to trouble a good one.
const READERS: usize = 4;

/// A model of a job, and what becomes of its output.
pub(super) struct Classifier {
    /// As rows name it where there are several.
    pub(super) name: Arc<str>,
    pub(super) model: Model,
    pub(super) classify: ClassifyDesc,
    /// Arithmetic; `None` is what fits the device.
    pub(super) precision: Option<Precision>,
    /// On a GPU: whose work goes first, and how many networks take batches in turn.
    pub(super) priority: Priority,
    pub(super) copies: NonZeroUsize,
}

/// What the stages of a job are made from.
pub(super) struct Stages<'a> {
    pub(super) models: &'a [Classifier],
    pub(super) decode: DecodeOptions,
    /// That decode, or look at files for those who do.
    pub(super) threads: usize,
    /// From an item's arrival to its row, as far as waiting for others goes; `None` fills batches.
    pub(super) max_latency: Option<Duration>,
    /// Of the rows.
    pub(super) order: RowOrder,
    pub(super) cancel: Cancel,
    pub(super) recorder: Recorder,
    /// Counts batches that the GPU had no memory for at once.
    pub(super) split: Arc<AtomicU64>,
    pub(super) warn: Warn,
}

/// Tells the user while the job runs.
pub(super) type Warn = Arc<dyn Fn(&str) + Send + Sync>;

/// Makes a stage anew.
type Make<S> = Box<dyn FnMut() -> Result<S, JobError> + Send>;
/// From files to who is to decode them. On one thread, so that the file is looked at while it is in the core's cache.
type Reader = Then<ReadAhead, PerItem<Split, Make<Split>>>;
/// From files to pictures on the CPU.
type Decoder = Then<ReadLarge, PerItem<Decode, Make<Decode>>>;
/// From files to each network's input on the CPU. On one thread: neither large files nor pictures in full size wait in a
/// queue.
type Resizer = Then<Decoder, Fan<PerItem<Preprocess, Make<Preprocess>>>>;
/// What comes out: of each input a result for each model, one after another. The branch is the model.
pub(super) type Labelled = Branch<Item<Results>>;

impl Stages<'_> {
    /// From files to results on the CPU; an engine for each model.
    pub(super) fn on_cpu(
        &self,
        items: impl Iterator<Item = Item<()>> + Send + 'static,
        engines: Vec<Box<dyn Engine>>,
        batch: usize,
    ) -> Result<Pipeline<Labelled>, JobError> {
        let resizer = self.resizer();
        let workers = (0..self.threads).map(|_| resizer()).collect::<Result<Vec<_>, JobError>>()?;
        let ends = self.ends();
        let batcher = |_| Batcher::new(batch).with_deadline(ends.deadline.clone());
        let classify = self.models.iter().map(|model| Classify::new(model.classify.clone()));
        let results = self
            .source(items, ends.window.as_ref())?
            .pool("read", vec![ReadAhead::new(self.decode.max_bytes, BufferPool::default()); READERS])?
            .pool("decode+resize", workers)?
            .stage("batch", Branches(Tag::each(engines.iter().map(batcher))))?
            .stage("infer", Branches(Tag::each(engines.into_iter().map(Infer::new))))?
            .stage("postprocess", Then(Branches(Tag::each(classify)), Join::new(self.models.len())))?;
        self.in_order(results, ends)
    }

    /// From files to results on GPUs, one lane each. `all_that_can` leaves out those that cannot begin.
    pub(super) fn on_gpus(
        &self,
        items: impl Iterator<Item = Item<()>> + Send + 'static,
        lanes: Vec<Lane>,
        all_that_can: bool,
    ) -> Result<Pipeline<Labelled>, JobError> {
        // Before the source starts, because it may fail.
        let lanes = self.lanes(lanes, all_that_can)?;
        // Of one GPU's driver, but every GPU copies from it.
        let reader = self.reader(lanes.iter().find_map(|lane| lane.file_memory.clone()));
        let redo = reader()?;
        let (count, resizer) = (lanes.len(), self.resizer());
        // What all of them take.
        let most_images = lanes.iter().map(|lane| lane.most_images).min().unwrap_or(1);
        let most_bytes = lanes.iter().map(|lane| lane.most_bytes).min().unwrap_or(0);
        let warn = Arc::clone(&self.warn);
        let alive = Alive::new(lanes.iter().map(|lane| Arc::clone(&lane.name)), move |line| warn(line));
        let (mut loaders, mut networks) = (Vec::new(), Vec::new());
        for (number, lane) in lanes.into_iter().enumerate() {
            loaders.extend(lane.loaders.into_iter().map(|load| LaneLoad::new(number, load, alive.clone())));
            let parts = LoadParts::new(lane.parts, resizer()?, Arc::clone(&self.split));
            let infer = InferParts::new(lane.networks, resizer()?, lane.images, Arc::clone(&self.split));
            networks.push(Then(parts, infer));
        }
        let lanes = Lanes::new(networks, redo, alive);
        let collector = || {
            let classify = self.models.iter().map(|model| ClassifyRanked::new(model.classify.clone()));
            Then(Collect::new(lanes.clone()), Branches(Tag::each(classify)))
        };
        let ends = self.ends();
        let batcher = WorkBatcher::new(most_images, most_bytes).with_deadline(ends.deadline.clone());
        let results = self
            .loaded(self.source(items, ends.window.as_ref())?, reader, batcher, loaders, count)?
            .room(gpu::room(count))
            .stage("infer", lanes.clone())?
            .pool("postprocess", (0..count).map(|_| collector()))?;
        let models = self.models.len();
        let results = if models == 1 { results } else { results.stage("join", Join::new(models))? };
        self.in_order(results, ends)
    }

    /// From files to pictures on a GPU and no further: by whom each is decoded, in batches of at most `most_images`, by so many
    /// `workers`.
    pub(super) fn decoded_on(
        &self,
        items: impl Iterator<Item = Item<()>> + Send + 'static,
        gpu: &Gpu,
        jpeg: &Jpeg,
        most_images: usize,
        workers: usize,
    ) -> Result<Pipeline<Vec<Item<DecodedBy>>>, JobError> {
        let decoder = self.decoder();
        let loader = |_| Ok(Load::new(&gpu.device, Some(jpeg), decoder()?)?);
        let loaders = (0..workers).map(loader).collect::<Result<Vec<_>, JobError>>()?;
        let batcher = WorkBatcher::new(most_images, usize::MAX);
        let reader = self.reader(Some(gpu::file_memory(&gpu.device)));
        self.loaded(self.source(items, None)?, reader, batcher, loaders, 1)?.stage("look", Look)
    }

    /// From files to batches that `loaders` have brought to a GPU.
    fn loaded<L>(
        &self,
        source: Pipeline<Item<()>>,
        reader: impl Fn() -> Result<Reader, JobError>,
        batcher: WorkBatcher,
        loaders: Vec<L>,
        gpus: usize,
    ) -> Result<Pipeline<L::Out>, JobError>
    where
        L: Stage<In = PooledVec<Item<Work>>, Out: 'static> + 'static,
    {
        let readers = (0..self.threads.max(READERS)).map(|_| reader()).collect::<Result<Vec<_>, JobError>>()?;
        // With two places for two GPUs their loaders waited for a tenth of the time.
        source.pool("read+split", readers)?.room(2 * gpus).stage("batch", batcher)?.pool("load", loaders)
    }

    /// Makes stages that read a file and see who is to decode it. Where a GPU decodes JPEG, files are read into its `memory`, and
    /// the CPU decodes only what it does not.
    fn reader(&self, memory: Option<BufferPool>) -> impl Fn() -> Result<Reader, JobError> {
        let split = Split::new(self.decode, memory.is_some());
        let ahead = ReadAhead::new(self.decode.max_bytes, memory.unwrap_or_default());
        move || {
            let split = split.clone();
            let make: Make<Split> = Box::new(move || Ok(split.clone()));
            Ok(Then(ahead.clone(), PerItem::new(StageName::Decode, make)?))
        }
    }

    /// The stages of the lanes: of those that can make them, or else all or none.
    fn lanes(&self, lanes: Vec<Lane>, all_that_can: bool) -> Result<Vec<LaneStages<Decoder>>, JobError> {
        let (mut able, mut failed) = (Vec::new(), Vec::new());
        for stages in Lane::all_stages(lanes, self.decoder(), &self.recorder) {
            match stages {
                Ok(stages) => able.push(stages),
                Err(not_ready) => failed.push(not_ready),
            }
        }
        if able.is_empty() || !all_that_can {
            return failed.into_iter().next().map_or(Ok(able), |not_ready| Err(not_ready.error));
        }
        for NotReady { gpu, error } in failed {
            (self.warn)(&left_out(&gpu, &error));
        }
        Ok(able)
    }

    /// The items, which do not wait for slower ones before the end, as far as `window` admits them.
    fn source(
        &self,
        items: impl Iterator<Item = Item<()>> + Send + 'static,
        window: Option<&Window>,
    ) -> Result<Pipeline<Item<()>>, JobError> {
        let (cancel, recorder) = (self.cancel.clone(), self.recorder.clone());
        let pipeline = match window {
            Some(window) => Pipeline::recorded(window.admit(items, cancel.clone()), cancel, recorder),
            None => Pipeline::recorded(items, cancel, recorder),
        };
        // Where none must wait, not even the few that its reader took along.
        let none_waits = self.max_latency.is_some() || self.order == RowOrder::Completion;
        Ok(pipeline?.order(if none_waits { Order::Completion } else { Order::Portions }))
    }

    fn ends(&self) -> Ends {
        Ends {
            deadline: self.max_latency.map(Deadline::new),
            window: (self.order == RowOrder::Input).then(Window::default),
        }
    }

    /// Rows in the order that is wanted.
    fn in_order(&self, results: Pipeline<Labelled>, ends: Ends) -> Result<Pipeline<Labelled>, JobError> {
        match ends {
            Ends { window: Some(window), deadline } => {
                let monitor = results.monitor();
                results.stage("order", InOrder::new(window, deadline, self.models.len(), monitor))
            }
            Ends { window: None, deadline: Some(deadline) } => results.stage("order", AsDone::new(deadline)),
            Ends { window: None, deadline: None } => Ok(results),
        }
    }

    /// Makes decoders that have one bound on what is large.
    fn decoder(&self) -> impl Fn() -> Result<Decoder, JobError> {
        let (read, decode) = (ReadLarge::new(self.decode.max_bytes), Decode::new(self.decode));
        move || {
            let decode = decode.clone();
            let make: Make<Decode> = Box::new(move || Ok(decode.clone()));
            Ok(Then(read.clone(), PerItem::new(StageName::Decode, make)?))
        }
    }

    fn resizer(&self) -> impl Fn() -> Result<Resizer, JobError> {
        let decoder = self.decoder();
        let descs: Vec<_> = self.models.iter().map(|model| model.model.preprocess()).collect();
        move || {
            let preprocess = descs.iter().cloned().map(|desc| {
                let make: Make<Preprocess> = Box::new(move || Ok(Preprocess::new(desc.clone())?));
                PerItem::new(StageName::Preprocess, make)
            });
            Ok(Then(decoder()?, Fan(preprocess.collect::<Result<_, _>>()?)))
        }
    }
}

/// The stage: sees who decoded a batch, and gives its memory back.
struct Look;

impl Stage for Look {
    type In = LoadOutcome;
    type Out = Vec<Item<DecodedBy>>;

    fn process(&mut self, outcome: LoadOutcome, emit: &mut dyn FnMut(Self::Out)) -> Result<(), JobError> {
        match outcome {
            LoadOutcome::Loaded(batch) => emit(batch.decoders()),
            LoadOutcome::TooLarge(_) => {
                return Err(KernelError::gpu(
                    "no memory for the batches; a smaller --batch or fewer --workers need less",
                )
                .into());
            }
        }
        Ok(())
    }
}

/// What the first and the last stages of a job share.
struct Ends {
    /// For whom rows must not wait longer than that.
    deadline: Option<Deadline>,
    /// For rows in the order of the inputs.
    window: Option<Window>,
}

/// What becomes of a model's scores; without a threshold the model's own counts.
pub(super) fn classify_desc(model: &Model, top: usize, threshold: Option<f32>) -> ClassifyDesc {
    let desc = ClassifyDesc::of(model.labels.clone(), &model.card.output);
    ClassifyDesc { top, threshold: threshold.unwrap_or(desc.threshold), ..desc }
}
