//! From planes in the GPU's memory to the best classes: preprocessing, network and ranking on one stream, without the host.

use ocellus_kernels::KernelError;
use ocellus_kernels::cuda::engine::CudaEngine;
use ocellus_kernels::cuda::network::Network;
use ocellus_kernels::cuda::preprocess::GpuPreprocess;
use ocellus_kernels::cuda::top_k::{TopK, TopKResults};

use super::lend::{Home, Lent};
use super::load::{Content, Loaded, LoadedBatch};
use crate::error::{ErrorKind, ItemError, JobError, StageName};
use crate::frame::{Item, PictureInfo, Ranked, Ranking, Tensor};
use crate::stage::Stage;

/// Batches whose results may be under way or wait to be read.
const RESULTS: usize = 6;

/// The stage: enqueues everything between the planes and the results of a batch, and does not wait for it.
pub struct Infer {
    // Before the engine, whose stream they work on.
    preprocess: GpuPreprocess,
    top_k: TopK,
    results: Home<TopKResults>,
    engine: CudaEngine,
}

/// A batch whose results the GPU is about to write.
pub struct Pending {
    items: Vec<Item<PictureInfo>>,
    /// `None` where every item has failed.
    results: Option<Lent<TopKResults>>,
}

impl Infer {
    pub(super) fn new(engine: CudaEngine, preprocess: GpuPreprocess, top_k: TopK) -> Result<Self, KernelError> {
        let results = (0..RESULTS).map(|_| top_k.results()).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { preprocess, top_k, results: Home::new(results), engine })
    }

    fn run(&mut self, batch: LoadedBatch) -> Result<Pending, KernelError> {
        let (items, arena) = match batch.0 {
            Content::Planes { items, arena } => (items, arena),
            Content::Input(item) => return self.run_input(item),
        };
        let items: Vec<Item<Loaded>> = items.into_iter().map(|item| item.and_then(|l| self.check(l))).collect();
        let pictures: Vec<_> = items.iter().filter_map(|item| item.payload.as_ref().ok()).map(|l| l.picture).collect();
        if pictures.is_empty() {
            arena.give_back();
            let items = items.into_iter().map(|item| item.and_then(|_| Err(lost()))).collect();
            return Ok(Pending { items, results: None });
        }
        let (input, _) = network(&mut self.engine, pictures.len())?.input(0).ok_or_else(missing)?;
        let transforms = self.preprocess.enqueue(&pictures, input)?;
        if transforms.len() != pictures.len() {
            return Err(missing());
        }
        arena.read_by(self.engine.stream())?;
        arena.give_back();
        let results = self.enqueue(pictures.len())?;
        let mut transforms = transforms.into_iter();
        let mut info = |loaded: Loaded| {
            let transform = transforms.next().ok_or_else(lost)?;
            let [width_px, height_px] = loaded.picture.desc.upright_size().map(|px| px as u32);
            Ok(PictureInfo { width_px, height_px, decoder: loaded.decoder, partial: loaded.partial, transform })
        };
        let items = items.into_iter().map(|item| item.and_then(&mut info)).collect();
        Ok(Pending { items, results: Some(results) })
    }

    /// A picture that the CPU has preprocessed.
    fn run_input(&mut self, item: Item<Tensor>) -> Result<Pending, KernelError> {
        let mut results = None;
        if let Ok(tensor) = &item.payload {
            self.engine.write_input(1, &tensor.data)?;
            results = Some(self.enqueue(1)?);
        }
        Ok(Pending { items: vec![item.and_then(|tensor| Ok(tensor.info))], results })
    }

    /// Enqueues network and ranking for so many images, whose input is there by then.
    fn enqueue(&mut self, images: usize) -> Result<Lent<TopKResults>, KernelError> {
        let stream = self.engine.stream().clone();
        let network = network(&mut self.engine, images)?;
        network.enqueue(&stream)?;
        let mut results = match self.results.take_now() {
            Some(results) => results,
            // Many parts of one batch are under way: these are not needed again.
            None => Home::new([self.top_k.results()?]).take().ok_or_else(missing)?,
        };
        self.top_k.enqueue(&stream, network.output(0).ok_or_else(missing)?, &mut results)?;
        Ok(results)
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

fn lost() -> ItemError {
    ItemError::new(StageName::Preprocess, ErrorKind::Internal, "a picture was lost")
}

impl Stage for Infer {
    type In = LoadedBatch;
    type Out = Pending;

    fn process(&mut self, batch: LoadedBatch, emit: &mut dyn FnMut(Pending)) -> Result<(), JobError> {
        emit(self.run(batch)?);
        Ok(())
    }
}

/// The stage behind it: waits for each batch's results and reads them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Collect;

impl Stage for Collect {
    type In = Pending;
    type Out = Ranking;

    fn process(&mut self, pending: Pending, emit: &mut dyn FnMut(Ranking)) -> Result<(), JobError> {
        let Pending { items, results } = pending;
        let mut ranked = Vec::new();
        if let Some(results) = results {
            results.wait()?;
            let images = items.iter().filter(|item| item.payload.is_ok()).count();
            ranked = (0..images)
                .map_while(|image| results.row(image))
                .map(|row| match row {
                    row if row.faults > 0 => Ranked::NotFinite,
                    row => row.outside.map_or(Ranked::Best(row.best), Ranked::NoProbability),
                })
                .collect();
            results.give_back();
        }
        emit(Ranking { items, ranked });
        Ok(())
    }
}
