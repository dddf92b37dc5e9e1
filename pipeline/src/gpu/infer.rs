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
use ocellus_kernels::cuda::preprocess::{DevicePicture, GpuPreprocess};
use ocellus_kernels::cuda::top_k::{TopK, TopKResults};
use ocellus_kernels::preprocess::Transform;
pub use probe::{Probe, Probed};
pub use single::{Answer, Single};
use tracing::info;

use super::lend::{Home, Lent};
use super::load::{Loaded, LoadedBatch, NetworkInput};
use super::trace::StreamTrace;
use crate::error::{ErrorKind, ItemError, JobError, StageName};
use crate::frame::{Branch, Encoded, Item, PictureInfo, PooledVec, Ranked, Tensor, VecPool};
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
    ranks: Ranks,
    pool: VecPool<Item<PictureInfo>>,
    // Of a batch, in memory that is used again for the next one.
    pictures: Vec<DevicePicture>,
    transforms: Vec<Transform>,
    engine: CudaEngine,
}

/// A batch whose results the GPU is about to write.
pub struct Pending {
    pub(super) gpu: Arc<str>,
    pub(super) model: usize,
    pub(super) items: PooledVec<Item<PictureInfo>>,
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
    Read(PooledVec<Ranked>),
}

/// What became of a batch.
enum Ran {
    UnderWay(Pending),
    /// The GPU has no memory for all of it at once.
    TooLarge(PooledVec<Item<Loaded>>),
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
        Ok(Self {
            gpu,
            model,
            preprocess,
            top_k,
            results,
            spare,
            trace,
            ranks: Ranks::default(),
            pool: VecPool::default(),
            pictures: Vec::new(),
            transforms: Vec::new(),
            engine,
        })
    }

    fn pending(&self, items: PooledVec<Item<PictureInfo>>, results: Results) -> Pending {
        Pending { gpu: Arc::clone(&self.gpu), model: self.model, items, results }
    }

    /// Has a track of this name say when the GPU does what.
    pub(super) fn record(&mut self, name: &str, device: &Device, recorder: &Recorder) -> Result<(), KernelError> {
        self.trace = StreamTrace::new(recorder, device, name)?;
        Ok(())
    }

    /// Runs pictures, all at once.
    fn run(&mut self, mut items: PooledVec<Item<Loaded>>, arena: &PlaneArena) -> Result<Ran, KernelError> {
        let loaded = items.iter().filter_map(|item| item.payload.as_ref().ok());
        self.pictures.clear();
        self.pictures.extend(loaded.map(|loaded| loaded.picture));
        let images = self.pictures.len();
        let mut results = Results::Read(PooledVec::default());
        if images > 0 {
            self.trace.begin(self.engine.stream(), images)?;
            match self.enqueue_pictures(arena) {
                Err(KernelError::OutOfMemory { .. }) => {
                    // What was enqueued until then uses what is used again now.
                    self.engine.stream().synchronize()?;
                    return Ok(Ran::TooLarge(items));
                }
                enqueued => results = enqueued?,
            }
            if self.transforms.len() != images {
                return Err(missing());
            }
        }
        let mut transforms = self.transforms.drain(..);
        let mut info = |loaded: Loaded| {
            let transform = transforms.next().ok_or_else(|| ItemError::lost(StageName::Preprocess))?;
            let [width_px, height_px] = loaded.picture.desc.upright_size().map(|px| px as u32);
            Ok(PictureInfo { width_px, height_px, decoder: loaded.decoder, partial: loaded.partial, transform })
        };
        let mut infos = self.pool.take();
        infos.extend(items.drain(..).map(|item| item.and_then(&mut info)));
        drop(transforms);
        Ok(Ran::UnderWay(self.pending(infos, results)))
    }

    /// Enqueues everything for `pictures`; their transforms are `transforms`.
    fn enqueue_pictures(&mut self, arena: &PlaneArena) -> Result<Results, KernelError> {
        let images = self.pictures.len();
        let network = network(&mut self.engine, images)?;
        network.pad(images)?;
        let (memory, input) = network.input(0).ok_or_else(missing)?;
        let transforms = self.preprocess.enqueue(&self.pictures, arena, (memory, input.at_bytes));
        self.trace.step(self.engine.stream(), "preprocess")?;
        self.transforms.clear();
        self.transforms.extend_from_slice(transforms?);
        self.enqueue(images)
    }

    /// A picture that the CPU has preprocessed.
    fn run_input(&mut self, item: Item<Tensor>) -> Result<Pending, KernelError> {
        let mut results = Results::Read(PooledVec::default());
        if let Ok(tensor) = &item.payload {
            self.trace.begin(self.engine.stream(), 1)?;
            self.engine.write_input(1, &tensor.data)?;
            self.trace.step(self.engine.stream(), "input")?;
            results = self.enqueue(1)?;
        }
        let mut items = self.pool.take();
        items.push(item.and_then(|tensor| Ok(tensor.info)));
        Ok(self.pending(items, results))
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
        Ok(Results::Read(self.ranks.read(&self.spare, images)?))
    }

    /// Refuses a picture that cannot be preprocessed, as the CPU does.
    fn check(&mut self, loaded: &Loaded) -> Result<(), ItemError> {
        let refused = |e: KernelError| ItemError::new(StageName::Preprocess, ErrorKind::Unsupported, e.to_string());
        self.preprocess.check(&loaded.picture.desc).map_err(refused)
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
        mut items: PooledVec<Item<Loaded>>,
        arena: &PlaneArena,
        emit: &mut dyn FnMut(Pending),
    ) -> Result<(), JobError> {
        let infer = self.networks.get_mut(place).ok_or_else(missing)?.turn()?;
        for item in items.iter_mut() {
            if let Some(error) = item.payload.as_ref().ok().and_then(|loaded| infer.check(loaded).err()) {
                item.payload = Err(error);
            }
        }
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
    mut items: PooledVec<Item<Loaded>>,
    arena: &PlaneArena,
    emit: &mut dyn FnMut(Pending),
) -> Result<(), JobError> {
    if items.len() > 1 {
        let middle = items.len() / 2;
        let rest = items.split_off(middle).into();
        for part in [items, rest] {
            match infer.run(part, arena)? {
                Ran::UnderWay(pending) => emit(pending),
                Ran::TooLarge(part) => halves(infer, cpu, part, arena, emit)?,
            }
        }
        return Ok(());
    }
    for item in items.drain(..) {
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

/// Reads results, into memory that comes back.
#[derive(Default)]
pub(super) struct Ranks {
    images: VecPool<Ranked>,
    best: VecPool<(u32, f32)>,
}

impl Ranks {
    /// Waits for results and reads those of the first `images` images.
    pub(super) fn read(&self, results: &TopKResults, images: usize) -> Result<PooledVec<Ranked>, KernelError> {
        let rows = results.wait()?;
        let mut ranked = self.images.take();
        ranked.extend((0..images).map_while(|image| rows.row(image)).map(|row| match row.outside {
            _ if row.faults > 0 => Ranked::NotFinite,
            Some(value) => Ranked::NoProbability(value),
            None => {
                let mut best = self.best.take();
                best.extend(row.best());
                Ranked::Best(best)
            }
        }));
        Ok(ranked)
    }
}
