//! From files and pictures to planes in the GPU's memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ocellus_kernels::KernelError;
use ocellus_kernels::cuda::device::Device;
use ocellus_kernels::cuda::jpeg::{Jpeg, JpegDecoder, JpegFile, JpegPath};
use ocellus_kernels::cuda::planes::{Plane, PlaneArena};
use ocellus_kernels::cuda::preprocess::{DevicePicture, DevicePlane};
use ocellus_kernels::cuda::stream::{Priority, Stream};
use ocellus_kernels::cuda::upload::Uploader;
use ocellus_kernels::picture::PictureDesc;
use tracing::{debug, info};

use super::batch::{planes_bytes, rgb_desc};
use super::lend::{Home, Lent};
use super::trace;
use crate::error::{ErrorKind, ItemError, JobError, StageName};
use crate::frame::{Branch, Buffer, Decoder, Encoded, Item, Picture, PooledVec, Tensor, VecPool, Work};
use crate::observe::{Recorder, Track};
use crate::stage::Stage;

/// Batches whose planes one worker has in memory: the network reads one while the next is decoded.
pub(super) const ARENAS: usize = 2;

/// A picture in the GPU's memory.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    pub(super) picture: DevicePicture,
    pub(super) decoder: Decoder,
    pub(super) partial: bool,
}

/// A batch of pictures in the GPU's memory, complete.
pub struct LoadedBatch {
    pub(super) items: PooledVec<Item<Loaded>>,
    pub(super) arena: Lent<PlaneArena>,
}

impl LoadedBatch {
    /// Who decoded the pictures, for who wants nothing else of them: their memory goes back to the worker that loaded them.
    pub fn decoders(self) -> Vec<Item<Decoder>> {
        let Self { mut items, arena } = self;
        arena.give_back();
        items.drain(..).map(|item| item.and_then(|loaded| Ok(loaded.decoder))).collect()
    }
}

/// What a worker made of a batch.
pub enum LoadOutcome {
    /// It is there.
    Loaded(LoadedBatch),
    /// The GPU has no memory for all of it at once.
    TooLarge(Vec<Item<Work>>),
}

/// What a lane is given.
pub enum LaneInput {
    /// What one of its workers made of a batch.
    Outcome(LoadOutcome),
    /// What another lane was at when it was lost.
    Again(Vec<Item<Work>>),
}

/// What networks are given.
pub enum NetworkInput {
    /// Pictures.
    Loaded(LoadedBatch),
    /// One picture as a network's input, made by the CPU.
    Tensor(Branch<Item<Tensor>>),
}

/// A batch that could not be loaded.
pub(super) struct Unloaded {
    pub(super) works: Vec<Item<Work>>,
    /// Why; `None` where memory will not come back, because whoever had it failed: what happened is theirs to say.
    pub(super) error: Option<JobError>,
}

impl Unloaded {
    fn new(works: PooledVec<Item<Work>>, error: impl Into<JobError>) -> Self {
        Self { works: works.into_vec(), error: Some(error.into()) }
    }

    /// Nothing is done with the batch: its error, unless whoever lost the memory has one.
    fn give_up(self) -> Result<(), JobError> {
        self.error.map_or(Ok(()), Err)
    }
}

/// The stage: decodes a batch into planes in the GPU's memory, and uploads what the CPU has decoded. What the GPU's decoders
/// fail at goes to the stage `F`, which reads and decodes with the CPU; so a damaged file costs the others nothing.
///
/// What is given on is complete: it can be read on any stream.
pub struct Load<F> {
    // Before the memory that their work uses.
    jpeg: Option<JpegDecoder>,
    uploader: Uploader,
    arenas: Home<PlaneArena>,
    cpu: F,
    track: Track,
    pool: VecPool<Item<Loaded>>,
    // Of a batch, in memory that is used again for the next one.
    placed: Vec<Option<Placed>>,
    served: Vec<Option<JpegPath>>,
    loaded: Vec<Result<Loaded, ItemError>>,
}

impl<F: Stage<In = Item<Option<Encoded>>, Out = Item<Picture>>> Load<F> {
    /// A worker of its own streams, decoders and memory. Without `jpeg` the CPU decodes everything. The decoders are made for the
    /// first files that need them.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`], or where the driver fails.
    pub fn new(device: &Device, jpeg: Option<&Jpeg>, cpu: F) -> Result<Self, KernelError> {
        let stream = Stream::new(device, Priority::High)?;
        let arenas = (0..ARENAS).map(|_| PlaneArena::new(&stream)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            jpeg: jpeg.map(|jpeg| JpegDecoder::new(jpeg, &stream)),
            uploader: Uploader::new(&stream)?,
            arenas: Home::new(arenas),
            cpu,
            track: Track::default(),
            pool: VecPool::default(),
            placed: Vec::new(),
            served: Vec::new(),
            loaded: Vec::new(),
        })
    }

    /// Has a track of this name say when the GPU's decoders were at work.
    pub(super) fn record(&mut self, name: &str, device: &Device, recorder: &Recorder) -> Result<(), KernelError> {
        if let Some(jpeg) = self.jpeg.as_mut().filter(|_| recorder.is_on()) {
            jpeg.record_spans()?;
            self.track = trace::track(recorder, device, name);
        }
        Ok(())
    }

    /// True where there was no memory for a decoder that files need, since this was asked before.
    pub(super) fn take_short(&mut self) -> bool {
        self.jpeg.as_mut().is_some_and(JpegDecoder::take_short)
    }

    /// Gives back the memory that is here: of the decoders, and of arenas that nobody has.
    pub(super) fn let_go(&mut self) -> Result<(), KernelError> {
        self.release()?;
        self.jpeg.as_mut().map_or(Ok(()), JpegDecoder::let_go)
    }

    /// Loads a batch. Where there is no memory for it, the works are returned and this worker holds none.
    pub(super) fn load(&mut self, mut works: PooledVec<Item<Work>>) -> Result<LoadOutcome, Unloaded> {
        let Some(mut arena) = self.arenas.take() else {
            return Err(Unloaded { works: works.into_vec(), error: None });
        };
        match self.fill(&mut arena, &works) {
            Ok(()) => {
                let mut items = self.pool.take();
                let mut loaded = self.loaded.drain(..);
                let mut next = |_| loaded.next().unwrap_or_else(|| Err(ItemError::lost(StageName::Decode)));
                items.extend(works.drain(..).map(|item| item.and_then(&mut next)));
                Ok(LoadOutcome::Loaded(LoadedBatch { items, arena }))
            }
            Err(JobError::Kernel(KernelError::OutOfMemory { .. })) => {
                arena.give_back();
                match self.release() {
                    Ok(()) => Ok(LoadOutcome::TooLarge(works.into_vec())),
                    Err(error) => Err(Unloaded::new(works, error)),
                }
            }
            Err(error) => Err(Unloaded::new(works, error)),
        }
    }

    /// Gives back the memory of the arenas that nobody has.
    fn release(&self) -> Result<(), KernelError> {
        let mut here: Vec<_> = std::iter::from_fn(|| self.arenas.take_now()).collect();
        let released = here.iter_mut().try_for_each(|arena| arena.release());
        here.into_iter().for_each(Lent::give_back);
        released
    }

    /// Brings the pictures into the arena; `loaded` has them, one for each item that has not failed.
    fn fill(&mut self, arena: &mut PlaneArena, works: &[Item<Work>]) -> Result<(), JobError> {
        arena.begin(works.iter().filter_map(known_desc).map(|desc| planes_bytes(&desc)).sum())?;
        self.placed.clear();
        for item in works {
            self.placed.push(known_desc(item).map(|desc| place(arena, &desc)).transpose()?);
        }
        if let Some(jpeg) = &mut self.jpeg {
            let works = works.iter().zip(&self.placed);
            let files = works.filter_map(|(item, placed)| file_of(item, placed.as_ref()?));
            self.served.clear();
            self.served.extend_from_slice(jpeg.decode(arena, files)?);
            for span in jpeg.spans() {
                let (moments, images) = span?;
                self.track.span_between("decode", moments, Some(images as u64));
            }
        }
        self.loaded.clear();
        let mut files = 0;
        for (n, item) in works.iter().enumerate() {
            let Ok(work) = &item.payload else { continue };
            let loaded = match (work, self.placed[n]) {
                (Work::Jpeg { bytes, .. }, Some(placed)) => {
                    let served = self.served.get(files).copied().flatten();
                    files += 1;
                    match served {
                        Some(path) => Ok(placed.loaded(decoder_of(path), false)),
                        None => self.by_cpu(arena, item, Some(bytes))?,
                    }
                }
                (Work::Rgb(picture), Some(placed)) => {
                    self.upload(arena, picture, &placed)?;
                    Ok(placed.loaded(picture.decoder, picture.partial))
                }
                (Work::Later(encoded), _) => {
                    self.by_cpu(arena, item, encoded.as_ref().map(|encoded| &encoded.bytes))?
                }
                (_, None) => Err(ItemError::lost(StageName::Decode)),
            };
            self.loaded.push(loaded);
        }
        Ok(self.uploader.finish()?)
    }

    /// Decodes with the CPU, reading the file where that has not been done.
    fn by_cpu(
        &mut self,
        arena: &mut PlaneArena,
        item: &Item<Work>,
        bytes: Option<&Buffer>,
    ) -> Result<Result<Loaded, ItemError>, JobError> {
        debug!(origin = ?item.origin, "the CPU decodes");
        let encoded = bytes.map(|bytes| Encoded { bytes: bytes.clone(), share: None });
        let input = item.with(Ok(encoded));
        let mut decoded = None;
        self.cpu.process(input, &mut |item| decoded = Some(item.payload))?;
        let picture = match decoded {
            Some(Ok(picture)) => picture,
            Some(Err(error)) => return Ok(Err(error)),
            None => return Ok(Err(ItemError::new(StageName::Decode, ErrorKind::Internal, "the decoder gave nothing"))),
        };
        let placed = place(arena, &rgb_desc(&picture))?;
        self.upload(arena, &picture, &placed)?;
        Ok(Ok(placed.loaded(picture.decoder, picture.partial)))
    }

    fn upload(&mut self, arena: &PlaneArena, picture: &Picture, placed: &Placed) -> Result<(), KernelError> {
        let row_bytes = 3 * picture.width_px as usize;
        placed.planes().iter().try_for_each(|plane| self.uploader.upload(&picture.rgb, row_bytes, arena, plane))
    }
}

impl<F: Stage<In = Item<Option<Encoded>>, Out = Item<Picture>>> Stage for Load<F> {
    type In = PooledVec<Item<Work>>;
    type Out = LoadOutcome;

    fn process(&mut self, works: Self::In, emit: &mut dyn FnMut(LoadOutcome)) -> Result<(), JobError> {
        match self.load(works) {
            Ok(outcome) => emit(outcome),
            Err(unloaded) => unloaded.give_up()?,
        }
        Ok(())
    }

    fn is_heavy(&mut self) -> bool {
        // The arena of a batch comes back when others have had the batch, and there are few.
        true
    }
}

/// The stage behind [`Load`]: loads in parts what was too large at once, each part when the one before has been taken. A
/// picture that is too large alone is read and made the input of each network by the stage `G`, on the CPU.
///
/// Must run on the thread of the stage that takes the parts ([`crate::runner::Then`]): they use the same memory in turn.
pub struct LoadParts<F, G> {
    load: Load<F>,
    cpu: G,
    split: Arc<AtomicU64>,
}

impl<F, G> LoadParts<F, G>
where
    F: Stage<In = Item<Option<Encoded>>, Out = Item<Picture>>,
    G: Stage<In = Item<Option<Encoded>>, Out = Branch<Item<Tensor>>>,
{
    /// A stage that loads with this worker, and counts the batches that it had to split.
    pub fn new(load: Load<F>, cpu: G, split: Arc<AtomicU64>) -> Self {
        Self { load, cpu, split }
    }

    fn parts(&mut self, works: Vec<Item<Work>>, emit: &mut dyn FnMut(NetworkInput)) -> Result<(), JobError> {
        let mut works = match self.load.load(works.into()) {
            Ok(LoadOutcome::Loaded(batch)) => {
                emit(NetworkInput::Loaded(batch));
                return Ok(());
            }
            Ok(LoadOutcome::TooLarge(works)) => works,
            Err(unloaded) => return unloaded.give_up(),
        };
        if works.len() > 1 {
            let rest = works.split_off(works.len() / 2);
            self.parts(works, emit)?;
            return self.parts(rest, emit);
        }
        for item in works {
            let item = item.and_then(|_| Ok(None));
            self.cpu.process(item, &mut |item| emit(NetworkInput::Tensor(item)))?;
        }
        Ok(())
    }
}

impl<F, G> Stage for LoadParts<F, G>
where
    F: Stage<In = Item<Option<Encoded>>, Out = Item<Picture>>,
    G: Stage<In = Item<Option<Encoded>>, Out = Branch<Item<Tensor>>>,
{
    type In = LaneInput;
    type Out = NetworkInput;

    fn process(&mut self, input: LaneInput, emit: &mut dyn FnMut(NetworkInput)) -> Result<(), JobError> {
        match input {
            LaneInput::Outcome(LoadOutcome::Loaded(batch)) => emit(NetworkInput::Loaded(batch)),
            LaneInput::Outcome(LoadOutcome::TooLarge(works)) => {
                info!(items = works.len(), "no memory to decode a batch at once; it is loaded in parts");
                self.split.fetch_add(1, Relaxed);
                self.parts(works, emit)?;
            }
            LaneInput::Again(works) => self.parts(works, emit)?,
        }
        Ok(())
    }
}

/// A picture's place in the arena.
#[derive(Clone, Copy)]
pub(crate) struct Placed {
    desc: PictureDesc,
    /// The first ones, as many as it has.
    planes: [Plane; 3],
}

impl Placed {
    /// As many as it has.
    pub(crate) fn planes(&self) -> &[Plane] {
        &self.planes[..self.desc.planes()]
    }

    /// As preprocessing takes it.
    pub(crate) fn picture(&self) -> DevicePicture {
        let mut planes = [DevicePlane::default(); 3];
        for (to, from) in planes.iter_mut().zip(self.planes()) {
            *to = DevicePlane { address: from.address, pitch_bytes: from.pitch_bytes };
        }
        DevicePicture { desc: self.desc, planes }
    }

    fn loaded(&self, decoder: Decoder, partial: bool) -> Loaded {
        Loaded { picture: self.picture(), decoder, partial }
    }
}

/// Room for a picture.
pub(crate) fn place(arena: &mut PlaneArena, desc: &PictureDesc) -> Result<Placed, KernelError> {
    let mut planes = [Plane::default(); 3];
    for (n, plane) in planes.iter_mut().enumerate().take(desc.planes()) {
        let [row_bytes, rows] = desc.plane_size(n);
        *plane = arena.plane(row_bytes, rows)?;
    }
    Ok(Placed { desc: *desc, planes })
}

/// What nvJPEG is asked to decode, and where to.
fn file_of<'a>(item: &'a Item<Work>, placed: &'a Placed) -> Option<JpegFile<'a>> {
    let Ok(Work::Jpeg { bytes, decoder, .. }) = &item.payload else { return None };
    let path = if *decoder == Decoder::NvjpegHw { JpegPath::Hardware } else { JpegPath::Hybrid };
    Some(JpegFile { bytes, path, planes: placed.planes() })
}

/// The planes of a work, where they are known before it is done.
fn known_desc(item: &Item<Work>) -> Option<PictureDesc> {
    match &item.payload {
        Ok(Work::Jpeg { desc, .. }) => Some(*desc),
        Ok(Work::Rgb(picture)) => Some(rgb_desc(picture)),
        Ok(Work::Later(_)) | Err(_) => None,
    }
}

pub(super) fn decoder_of(path: JpegPath) -> Decoder {
    match path {
        JpegPath::Hardware => Decoder::NvjpegHw,
        JpegPath::Hybrid => Decoder::NvjpegHybrid,
    }
}
