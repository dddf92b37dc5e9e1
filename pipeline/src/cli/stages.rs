//! The stages between a list of files and their results, put together.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ocellus_kernels::engine::Engine;

use crate::decode::{Decode, DecodeOptions, Split};
use crate::error::{JobError, StageName};
use crate::frame::{Encoded, Item, Results};
use crate::gpu::{Collect, InferParts, Lane, LoadParts};
use crate::infer::Infer;
use crate::model::load::Model;
use crate::observe::Recorder;
use crate::postprocess::{Classify, ClassifyDesc, ClassifyRanked};
use crate::preprocess::{Batcher, Preprocess};
use crate::runner::{PerItem, Pipeline, Then};
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
        self.files(items)?
            .pool("decode+resize", workers)?
            .stage("batch", Batcher::new(batch))?
            .stage("infer", Infer::new(engine))?
            .stage("postprocess", Classify::new(self.classify.clone()))
    }

    /// From files to results on a GPU.
    pub(super) fn on_gpu(
        &self,
        items: impl Iterator<Item = Item<()>> + Send + 'static,
        lane: Lane,
    ) -> Result<Pipeline<Item<Results>>, JobError> {
        let split = Split::new(self.decode, lane.decodes());
        let splitter = || {
            let split = split.clone();
            PerItem::new(StageName::Decode, move || Ok(split.clone()))
        };
        let splitters = (0..self.threads).map(|_| splitter()).collect::<Result<Vec<_>, JobError>>()?;
        // Before the source starts: nvJPEG takes its time.
        let stages = lane.stages(self.decoder(), &self.recorder)?;
        let resizer = self.resizer();
        let parts = LoadParts::new(stages.parts, resizer()?, Arc::clone(&self.split));
        let infer = InferParts::new(stages.infer, resizer()?, Arc::clone(&self.split));
        self.files(items)?
            .pool("split", splitters)?
            .stage("batch", stages.batcher)?
            .pool("load", stages.loaders)?
            .stage("infer", Then(parts, infer))?
            .stage("postprocess", Then(Collect, ClassifyRanked::new(self.classify.clone())))
    }

    /// Reads the files of the items.
    fn files(
        &self,
        items: impl Iterator<Item = Item<()>> + Send + 'static,
    ) -> Result<Pipeline<Item<Option<Encoded>>>, JobError> {
        let ahead = ReadAhead { max_bytes: self.decode.max_bytes };
        Pipeline::recorded(items, self.cancel.clone(), self.recorder.clone())?.pool("read", vec![ahead; READERS])
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

/// What becomes of a model's scores; without a threshold the model's own counts.
pub(super) fn classify_desc(model: &Model, top: usize, threshold: Option<f32>) -> ClassifyDesc {
    let desc = ClassifyDesc::of(model.labels.clone(), &model.card.output);
    ClassifyDesc { top, threshold: threshold.unwrap_or(desc.threshold), ..desc }
}
