//! From planes in the GPU's memory to the best classes: preprocessing, network and ranking on one stream for each network,
//! without the host.

mod probe;
mod single;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ocellus_kernels::KernelError;
use ocellus_kernels::cuda::device::Device;
use ocellus_kernels::cuda::engine::CudaEngine;
use ocellus_kernels::cuda::network::Network;
use ocellus_kernels::cuda::planes::PlaneArena;
use ocellus_kernels::cuda::preprocess::GpuPreprocess;
use ocellus_kernels::cuda::top_k::{TopK, TopKResults};
pub use probe::{Probe, Probed};
pub use single::{Answer, Single};
use tracing::info;

use super::lend::{Home, Lent};
use super::load::{Loaded, LoadedBatch, NetworkInput};
use super::trace::StreamTrace;
use crate::error::{ErrorKind, ItemError, JobError, StageName};
use crate::frame::{Branch, Encoded, Item, PictureInfo, Ranked, Tensor};
use crate::observe::Recorder;
use crate::stage::Stage;

/// Enqueues everything between the planes and the results of a batch, and does not wait for it.
pub struct Infer {
    /// The GPU's name.
    gpu: Arc<str>,
    /// Number of the model.
    model: usize,
    // Before the engine, whose stream they work on.
    preprocess: GpuPreprocess,
    top_k: TopK,
    results: Home<TopKResults>,
    /// For a batch when all others are away; read at once.
    spare: TopKResults,
    trace: StreamTrace,
    engine: CudaEngine,
}

/// A batch whose results the GPU is about to write.
pub struct Pending {
    pub(super) gpu: Arc<str>,
    pub(super) model: usize,
    pub(super) items: Vec<Item<PictureInfo>>,
    pub(super) results: Results,
}

impl Pending {
    /// Nobody wants it: its memory is used again.
    pub(super) fn discard(self) {
        if let Results::UnderWay(results) = self.results {
            results.give_back();
        }
    }
}

pub(super) enum Results {
    UnderWay(Lent<TopKResults>),
    /// None where every item has failed.
    Read(Vec<Ranked>),
}

/// What became of a batch.
enum Ran {
    UnderWay(Pending),
    /// The GPU has no memory for all of it at once.
    TooLarge(Vec<Item<Loaded>>),
}

impl Infer {
    /// Takes all memory that one picture needs, so that this much always works.
    /// The results of so many batches may be under way or wait to be read.
    pub(super) fn new(
        (gpu, model): (&Arc<str>, usize),
        mut engine: CudaEngine,
        preprocess: GpuPreprocess,
        top_k: TopK,
        under_way: usize,
    ) -> Result<Self, KernelError> {
        engine.reserve_input(1)?;
        let results = (0..under_way).map(|_| top_k.results()).collect::<Result<Vec<_>, _>>()?;
        let (gpu, trace) = (Arc::clone(gpu), StreamTrace::default());
        let (spare, results) = (top_k.results()?, Home::new(results));
        Ok(Self { gpu, model, preprocess, top_k, results, spare, trace, engine })
    }

    fn pending(&self, items: Vec<Item<PictureInfo>>, results: Results) -> Pending {
        Pending { gpu: Arc::clone(&self.gpu), model: self.model, items, results }
    }

    /// Has a track of this name say when the GPU does what.
    pub(super) fn record(&mut self, name: &str, device: &Device, recorder: &Recorder) -> Result<(), KernelError> {
        self.trace = StreamTrace::new(recorder, device, name)?;
        Ok(())
    }

    /// Runs pictures, all at once.
    fn run(&mut self, items: Vec<Item<Loaded>>, arena: &PlaneArena) -> Result<Ran, KernelError> {
        let pictures: Vec<_> = items.iter().filter_map(|item| item.payload.as_ref().ok()).map(|l| l.picture).collect();
        if pictures.is_empty() {
            let items =
                items.into_iter().map(|item| item.and_then(|_| Err(ItemError::lost(StageName::Preprocess)))).collect();
            return Ok(Ran::UnderWay(self.pending(items, Results::Read(Vec::new()))));
        }
        self.trace.begin(self.engine.stream(), pictures.len())?;
        let network = network(&mut self.engine, pictures.len())?;
        network.pad(pictures.len())?;
        let (memory, input) = network.input(0).ok_or_else(missing)?;
        let transforms = self.preprocess.enqueue(&pictures, arena, (memory, input.at_bytes));
        self.trace.step(self.engine.stream(), "preprocess")?;
        let ran = transforms.and_then(|transforms| Ok((transforms, self.enqueue(pictures.len())?)));
        let (transforms, results) = match ran {
            Err(KernelError::OutOfMemory { .. }) => {
                // What was enqueued until then uses what is used again now.
                self.engine.stream().synchronize()?;
                return Ok(Ran::TooLarge(items));
            }
            ran => ran?,
        };
        if transforms.len() != pictures.len() {
            return Err(missing());
        }
        let mut transforms = transforms.into_iter();
        let mut info = |loaded: Loaded| {
            let transform = transforms.next().ok_or_else(|| ItemError::lost(StageName::Preprocess))?;
            let [width_px, height_px] = loaded.picture.desc.upright_size().map(|px| px as u32);
            Ok(PictureInfo { width_px, height_px, decoder: loaded.decoder, partial: loaded.partial, transform })
        };
        let items = items.into_iter().map(|item| item.and_then(&mut info)).collect();
        Ok(Ran::UnderWay(self.pending(items, results)))
    }

    /// A picture that the CPU has preprocessed.
    fn run_input(&mut self, item: Item<Tensor>) -> Result<Pending, KernelError> {
        let mut results = Results::Read(Vec::new());
        if let Ok(tensor) = &item.payload {
            self.trace.begin(self.engine.stream(), 1)?;
            self.engine.write_input(1, &tensor.data)?;
            self.trace.step(self.engine.stream(), "input")?;
            results = self.enqueue(1)?;
        }
        Ok(self.pending(vec![item.and_then(|tensor| Ok(tensor.info))], results))
    }

    /// Enqueues network and ranking for so many images, whose input is there by then.
    fn enqueue(&mut self, images: usize) -> Result<Results, KernelError> {
        let network = network(&mut self.engine, images)?;
        network.enqueue()?;
        let output = network.output(0).ok_or_else(missing)?;
        let stream = output.0.stream();
        self.trace.step(stream, "network")?;
        if let Some(mut results) = self.results.take_now() {
            self.top_k.enqueue(output, &mut results)?;
            self.trace.step(stream, "top k")?;
            return Ok(Results::UnderWay(results));
        }
        // Many parts of one batch are under way, which nobody reads before they all are.
        self.top_k.enqueue(output, &mut self.spare)?;
        self.trace.step(stream, "top k")?;
        Ok(Results::Read(ranked(&self.spare, images)?))
    }

    /// Refuses a picture that cannot be preprocessed, as the CPU does.
    fn check(&mut self, loaded: Loaded) -> Result<Loaded, ItemError> {
        let refused = |e: KernelError| ItemError::new(StageName::Preprocess, ErrorKind::Unsupported, e.to_string());
        self.preprocess.check(&loaded.picture.desc).map_err(refused).map(|()| loaded)
    }
}

impl Drop for Infer {
    fn drop(&mut self) {
        // What is under way uses what is dropped now.
        let _ = self.engine.stream().synchronize();
    }
}

/// The network for so many images, all at once.
fn network(engine: &mut CudaEngine, images: usize) -> Result<&mut Network, KernelError> {
    engine.network(images).filter(|network| network.batch() >= images).ok_or_else(missing)
}

fn missing() -> KernelError {
    KernelError::invalid("infer", "the engine has no network for this batch")
}

/// Copies of a model's network, which take batches in turn.
pub struct Copies {
    model: usize,
    infers: Vec<Infer>,
    next: usize,
}

impl Copies {
    /// Copies of the model's network, one at least.
    pub(super) fn new(model: usize, infers: Vec<Infer>) -> Self {
        Self { model, infers, next: 0 }
    }

    /// Has tracks say when the GPU does what.
    pub(super) fn record(&mut self, device: &Device, recorder: &Recorder) -> Result<(), KernelError> {
        for (n, infer) in self.infers.iter_mut().enumerate() {
            let name = if (self.model, n) == (0, 0) { "network".into() } else { format!("network {}.{n}", self.model) };
            infer.record(&name, device, recorder)?;
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<&mut Infer, KernelError> {
        let turn = self.next % self.infers.len().max(1);
        self.next = turn + 1;
        self.infers.get_mut(turn).ok_or_else(missing)
    }
}

/// The stage: gives each batch to the network of every model, and in parts what is too large at once. A picture that is too
/// large alone is read and made the networks' inputs by the stage `G`, on the CPU.
pub struct InferParts<G> {
    /// In the order of their turns: those of high priority first, which must not wait until others have read a picture.
    networks: Vec<Copies>,
    cpu: G,
    /// Images that this GPU was given.
    images: Arc<AtomicU64>,
    split: Arc<AtomicU64>,
}

impl<G: Stage<In = Item<Option<Encoded>>, Out = Branch<Item<Tensor>>>> InferParts<G> {
    /// A stage that counts the images it gets and the batches that it had to split.
    pub fn new(networks: Vec<Copies>, cpu: G, images: Arc<AtomicU64>, split: Arc<AtomicU64>) -> Self {
        Self { networks, cpu, images, split }
    }

    /// Runs a batch through the network at `place`.
    fn whole(
        &mut self,
        place: usize,
        items: Vec<Item<Loaded>>,
        arena: &PlaneArena,
        emit: &mut dyn FnMut(Pending),
    ) -> Result<(), JobError> {
        let infer = self.networks.get_mut(place).ok_or_else(missing)?.turn()?;
        let items = items.into_iter().map(|item| item.and_then(|loaded| infer.check(loaded))).collect();
        match infer.run(items, arena)? {
            Ran::UnderWay(pending) => emit(pending),
            Ran::TooLarge(items) => {
                info!(items = items.len(), "no memory to run a batch at once; it is run in parts");
                self.split.fetch_add(1, Relaxed);
                halves(infer, &mut self.cpu, items, arena, emit)?;
            }
        }
        Ok(())
    }
}

fn halves<G: Stage<In = Item<Option<Encoded>>, Out = Branch<Item<Tensor>>>>(
    infer: &mut Infer,
    cpu: &mut G,
    mut items: Vec<Item<Loaded>>,
    arena: &PlaneArena,
    emit: &mut dyn FnMut(Pending),
) -> Result<(), JobError> {
    if items.len() > 1 {
        let rest = items.split_off(items.len() / 2);
        for part in [items, rest] {
            match infer.run(part, arena)? {
                Ran::UnderWay(pending) => emit(pending),
                Ran::TooLarge(part) => halves(infer, cpu, part, arena, emit)?,
            }
        }
        return Ok(());
    }
    for item in items {
        let mut inputs = Vec::new();
        let item = item.and_then(|_| Ok(None));
        cpu.process(item, &mut |input| inputs.push(input))?;
        let model = infer.model;
        for input in inputs.into_iter().filter(|input| input.branch == model) {
            emit(infer.run_input(input.value)?);
        }
    }
    Ok(())
}

impl<G: Stage<In = Item<Option<Encoded>>, Out = Branch<Item<Tensor>>>> Stage for InferParts<G> {
    type In = NetworkInput;
    type Out = Pending;

    fn process(&mut self, input: NetworkInput, emit: &mut dyn FnMut(Pending)) -> Result<(), JobError> {
        match input {
            NetworkInput::Loaded(LoadedBatch { items, arena }) => {
                let images = items.iter().filter(|item| item.payload.is_ok()).count();
                self.images.fetch_add(images as u64, Relaxed);
                let last = self.networks.len().saturating_sub(1);
                for place in 0..last {
                    self.whole(place, items.clone(), &arena, emit)?;
                }
                self.whole(last, items, &arena, emit)?;
                // Its next user waits until all have read it.
                arena.give_back();
            }
            NetworkInput::Tensor(Branch { branch, value }) => {
                let first = branch == 0 && value.payload.is_ok();
                self.images.fetch_add(u64::from(first), Relaxed);
                let network = self.networks.iter_mut().find(|network| network.model == branch);
                emit(network.ok_or_else(missing)?.turn()?.run_input(value)?);
            }
        }
        Ok(())
    }
}

/// Waits for results and reads them.
pub(super) fn ranked(results: &TopKResults, images: usize) -> Result<Vec<Ranked>, KernelError> {
    let rows = results.wait()?;
    let rows = (0..images).map_while(|image| rows.row(image));
    let ranked = rows.map(|row| match row {
        row if row.faults > 0 => Ranked::NotFinite,
        row => row.outside.map_or(Ranked::Best(row.best), Ranked::NoProbability),
    });
    Ok(ranked.collect())
}
