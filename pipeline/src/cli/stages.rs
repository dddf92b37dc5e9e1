//! The stages between a list of files and their results, put together.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ocellus_kernels::engine::Engine;

use crate::decode::{Decode, DecodeOptions, Split};
use crate::error::{JobError, StageName};
use crate::frame::{Deadline, Item, Results};
use crate::gpu::{Collect, InferParts, Lane, LoadParts};
use crate::infer::Infer;
use crate::model::load::Model;
use crate::observe::Recorder;
use crate::postprocess::{Classify, ClassifyDesc, ClassifyRanked};
use crate::preprocess::{Batcher, Preprocess};
use crate::runner::{InOrder, Order, PerItem, Pipeline, Then, Window};
use crate::source::{ReadAhead, ReadLarge};
use crate::stage::Cancel;

/// Threads that read files: enough to hide a slow disk, few enough not to trouble a good one.
const READERS: usize = 4;

/// What the stages of a job are made from.
pub(super) struct Stages<'a> {
    pub(super) model: &'a Model,
    pub(super) decode: DecodeOptions,
    pub(super) classify: ClassifyDesc,
    /// That decode, or look at files for those who do.
    pub(super) threads: usize,
    /// From an item's arrival to its row, as far as waiting for others goes; `None` fills batches.
    pub(super) max_latency: Option<Duration>,
    pub(super) cancel: Cancel,
    pub(super) recorder: Recorder,
    /// Counts batches that the GPU had no memory for at once.
    pub(super) split: Arc<AtomicU64>,
}

/// Makes a stage anew.
type Make<S> = Box<dyn FnMut() -> Result<S, JobError> + Send>;
/// From files to pictures on the CPU.
type Decoder = Then<ReadLarge, PerItem<Decode, Make<Decode>>>;
/// From files to the network's input on the CPU. On one thread: neither large files nor pictures in full size wait in a
/// queue.
type Resizer = Then<Decoder, PerItem<Preprocess, Make<Preprocess>>>;

impl Stages<'_> {
    /// From files to results on the CPU.
    pub(super) fn on_cpu(
        &self,
        items: impl Iterator<Item = Item<()>> + Send + 'static,
        engine: Box<dyn Engine>,
        batch: usize,
    ) -> Result<Pipeline<Item<Results>>, JobError> {
        let resizer = self.resizer();
        let workers = (0..self.threads).map(|_| resizer()).collect::<Result<Vec<_>, JobError>>()?;
        let latency = self.max_latency.map(Latency::new);
        let results = self
            .source(items, latency.as_ref())?
            .pool("read", vec![ReadAhead::new(self.decode.max_bytes); READERS])?
            .pool("decode+resize", workers)?
            .stage("batch", Batcher::new(batch).with_deadline(latency.as_ref().map(Latency::deadline)))?
            .stage("infer", Infer::new(engine))?
            .stage("postprocess", Classify::new(self.classify.clone()))?;
        in_order(results, latency)
    }

    /// From files to results on a GPU.
    pub(super) fn on_gpu(
        &self,
        items: impl Iterator<Item = Item<()>> + Send + 'static,
        lane: Lane,
    ) -> Result<Pipeline<Item<Results>>, JobError> {
        let (ahead, split) = (ReadAhead::new(self.decode.max_bytes), Split::new(self.decode, lane.decodes()));
        // On one thread, so that the file is looked at while it is in the core's cache.
        let reader = || {
            let split = split.clone();
            Ok(Then(ahead.clone(), PerItem::new(StageName::Decode, move || Ok(split.clone()))?))
        };
        let readers = (0..self.threads.max(READERS)).map(|_| reader()).collect::<Result<Vec<_>, JobError>>()?;
        // Before the source starts: nvJPEG takes its time.
        let stages = lane.stages(self.decoder(), &self.recorder)?;
        let resizer = self.resizer();
        let parts = LoadParts::new(stages.parts, resizer()?, Arc::clone(&self.split));
        let infer = InferParts::new(stages.infer, resizer()?, Arc::clone(&self.split));
        let latency = self.max_latency.map(Latency::new);
        let results = self
            .source(items, latency.as_ref())?
            .pool("read+split", readers)?
            .stage("batch", stages.batcher.with_deadline(latency.as_ref().map(Latency::deadline)))?
            .pool("load", stages.loaders)?
            .stage("infer", Then(parts, infer))?
            .stage("postprocess", Then(Collect, ClassifyRanked::new(self.classify.clone())))?;
        in_order(results, latency)
    }

    /// The items, in pools of the order that fits.
    fn source(
        &self,
        items: impl Iterator<Item = Item<()>> + Send + 'static,
        latency: Option<&Latency>,
    ) -> Result<Pipeline<Item<()>>, JobError> {
        let cancel = self.cancel.clone();
        match latency {
            Some(latency) => {
                let items = latency.window.admit(items, cancel.clone());
                Ok(Pipeline::recorded(items, cancel, self.recorder.clone())?.order(Order::Completion))
            }
            None => Pipeline::recorded(items, cancel, self.recorder.clone()),
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
        let desc = self.model.preprocess();
        move || {
            let desc = desc.clone();
            let make: Make<Preprocess> = Box::new(move || Ok(Preprocess::new(desc.clone())?));
            Ok(Then(decoder()?, PerItem::new(StageName::Preprocess, make)?))
        }
    }
}

/// What the stages of a job with a deadline share.
struct Latency {
    deadline: Deadline,
    window: Window,
}

impl Latency {
    fn new(longest: Duration) -> Self {
        Self { deadline: Deadline::new(longest), window: Window::default() }
    }

    fn deadline(&self) -> Deadline {
        self.deadline.clone()
    }
}

/// Rows in the order of the inputs. Items that wait for no others come as they are done.
fn in_order(results: Pipeline<Item<Results>>, latency: Option<Latency>) -> Result<Pipeline<Item<Results>>, JobError> {
    match latency {
        Some(Latency { deadline, window }) => results.stage("order", InOrder::new(window, deadline, 1)),
        None => Ok(results),
    }
}

/// What becomes of a model's scores; without a threshold the model's own counts.
pub(super) fn classify_desc(model: &Model, top: usize, threshold: Option<f32>) -> ClassifyDesc {
    let desc = ClassifyDesc::of(model.labels.clone(), &model.card.output);
    ClassifyDesc { top, threshold: threshold.unwrap_or(desc.threshold), ..desc }
}
