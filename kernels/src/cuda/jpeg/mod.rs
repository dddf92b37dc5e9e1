//! JPEG files into planes in memory of the GPU, by nvJPEG: on the JPEG engines, or by CPU and GPU together.
//!
//! # Start
//! What nvJPEG needs it makes slowly, one thing after another whoever asks: on an H200 its handle takes 0.28 s, a decoder of the
//! engines 0.1 s and the first one 0.35 s. So a [`JpegDecoder`] makes its decoders, on the thread that decodes, when the first
//! file needs them, and [`Jpeg`] the handle of the hybrid decoder likewise: a job of a few files has as many as it uses. While
//! one is made the driver may wait for the whole GPU. So it may where a worker decodes its first batch, or its first file for
//! the hybrid decoder, and never once all workers have theirs.

mod batch;
mod hybrid;
mod on_demand;
mod proof;
mod turns;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use batch::Batch;
use hybrid::Hybrid;
use ocellus_sys::nvjpeg::{Backend, Handle, HandleOptions, HardwareInfo, Nvjpeg, NvjpegError, Planes, Status};
use on_demand::{OnDemand, Place};
use tracing::info;
use turns::Turns;

use super::clock::{Span, Spans};
use super::device::Device;
use super::gpu::Gpu;
use super::module::Function;
use super::planes::{Plane, PlaneArena};
use super::stream::{Stream, Waiting};
use crate::error::KernelError;
use crate::jit::KernelSpec;

/// Who decodes a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JpegPath {
    /// The JPEG engines.
    Hardware,
    /// The GPU's multiprocessors, with the CPU's help where that is of use.
    Hybrid,
}

/// nvJPEG on a GPU. Clones are the same instance.
#[derive(Clone)]
pub struct Jpeg {
    device: Device,
    /// For batches: the engines, or where there are none the multiprocessors.
    batch: Option<(Handle, JpegPath)>,
    /// Made for the first file that needs it.
    hybrid: Arc<Mutex<Option<Handle>>>,
    /// Decoders that nvJPEG failed to make for one worker, and no worker uses any more: who decodes a file must not depend on who
    /// is free.
    given_up: Arc<GivenUp>,
    proof: Function,
    /// Pixels in the engines.
    turns: Arc<Turns>,
}

/// A file and where its planes go.
#[derive(Clone, Copy, Debug)]
pub struct JpegFile<'a> {
    /// The file.
    pub bytes: &'a [u8],
    /// Who tries first.
    pub path: JpegPath,
    /// Y, or Y, Cb, Cr, of the arena that is decoded into.
    pub planes: &'a [Plane],
}

#[derive(Debug, Default)]
struct GivenUp {
    batch: AtomicBool,
    hybrid: AtomicBool,
}

impl Jpeg {
    /// Loads nvJPEG and starts it on this GPU. May wait for the whole GPU: for the start.
    ///
    /// # Errors
    /// Where it is not there or does not start, or a kernel cannot be compiled.
    pub fn new(gpu: &Gpu) -> Result<Self, KernelError> {
        let device = &gpu.device;
        device.bind()?;
        let nvjpeg = loaded()?;
        // Without either everything else works. Who decodes must not depend on who else has memory just now.
        let handle = |backend| match nvjpeg.handle(&HandleOptions::new(backend)).map_err(failed) {
            Err(short @ KernelError::OutOfMemory { .. }) => Err(short),
            made => Ok(made.ok()),
        };
        let batch = match handle(Backend::Hardware)?.filter(|handle| handle.hardware_info().is_some()) {
            Some(handle) => Some((handle, JpegPath::Hardware)),
            None => handle(Backend::GpuHybrid)?.map(|handle| (handle, JpegPath::Hybrid)),
        };
        let proof = proof::load(gpu)?;
        let engines = batch.as_ref().and_then(|(handle, _)| handle.hardware_info()).map_or(0, |info| info.decoders());
        let turns = Arc::new(Turns::new(batch::TURN_PX * u64::from(engines.max(1))));
        let jpeg =
            Self { device: device.clone(), batch, hybrid: Arc::default(), given_up: Arc::default(), proof, turns };
        if jpeg.batch.is_none() {
            // Then there must be this one.
            jpeg.hybrid()?;
        }
        info!(engines, "nvJPEG is ready");
        Ok(jpeg)
    }

    /// The kernel that this compiles.
    pub fn kernel() -> KernelSpec {
        proof::kernel()
    }

    /// The handle for [`Hybrid`], which the first of the threads makes that ask for it. The context must be current.
    fn hybrid(&self) -> Result<Handle, KernelError> {
        // A thread that panicked left it whole.
        let mut made = self.hybrid.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = &*made {
            return Ok(handle.clone());
        }
        let handle = loaded()?.handle(&HandleOptions::new(Backend::Hybrid)).map_err(failed)?;
        *made = Some(handle.clone());
        Ok(handle)
    }

    /// The JPEG engines.
    pub fn hardware(&self) -> Option<HardwareInfo> {
        self.batch.as_ref().and_then(|(handle, _)| handle.hardware_info())
    }

    /// The largest batch of at most so many pictures that all engines are done with at about the same time. (Pictures of
    /// 1920x1080 on the seven of an H200: 6.2k a second in batches of 63, 5.7k in batches of 64.)
    pub fn even_batch(&self, most: usize) -> usize {
        self.hardware().map_or(most, |info| info.even_batch(most))
    }
}

impl Drop for Jpeg {
    fn drop(&mut self) {
        // What follows, the last owner's destruction of the handles, happens in this context.
        let _ = self.device.bind();
    }
}

/// A way to decode. A further decoder is one more of them.
trait Path: Sized {
    /// Makes it; `None` where this GPU has none. May wait for the whole GPU. The context is current.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`], or where nvJPEG or the driver fails.
    fn make(place: &Place) -> Result<Option<Self>, KernelError>;

    /// Whether it may take this file.
    fn takes(file: &JpegFile<'_>) -> bool;

    /// Set where nobody is to use it any more.
    fn is_given_up(jpeg: &Jpeg) -> &AtomicBool;

    /// When it was at work for the last [`Path::decode`].
    fn spans(&mut self) -> &mut Spans;

    /// Decodes those of the files that it takes and that are not served yet, and notes that it does. A file that it refuses
    /// or fails at is left as it is, and costs the others nothing. What it enqueues on its stream may still run on return:
    /// the caller waits for it, also after an error, before files and planes go or anything outside that stream's order
    /// touches them.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`] where there is too little for several files, or where the driver fails.
    fn decode(&mut self, files: &[JpegFile<'_>], served: &mut [Option<JpegPath>]) -> Result<(), KernelError>;
}

/// One thread's decoders. The engines rest between two batches of one decoder, and take batches of several in turns: of
/// several threads one is served while the others prepare what follows.
pub struct JpegDecoder {
    batch: OnDemand<Batch>,
    hybrid: OnDemand<Hybrid>,
    /// Empty, its memory is used again.
    files: Vec<JpegFile<'static>>,
    served: Vec<Option<JpegPath>>,
    // Last: its context is that of all the others.
    place: Place,
}

impl JpegDecoder {
    /// Decoders whose work runs on `stream`. They are made when a file needs them.
    pub fn new(jpeg: &Jpeg, stream: &Stream) -> Self {
        Self::waiting(jpeg, stream, Waiting::Asleep)
    }

    /// As [`JpegDecoder::new`], and how [`JpegDecoder::decode`] waits.
    pub fn waiting(jpeg: &Jpeg, stream: &Stream, waiting: Waiting) -> Self {
        let place = Place { stream: stream.clone(), waiting, is_timed: false, jpeg: jpeg.clone() };
        let (files, served) = (Vec::new(), Vec::new());
        Self { batch: OnDemand::NotMade, hybrid: OnDemand::NotMade, files, served, place }
    }

    /// From now on [`JpegDecoder::spans`] says when decoders were at work.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn record_spans(&mut self) -> Result<(), KernelError> {
        self.place.is_timed = true;
        self.batch.record_spans(&self.place)?;
        self.hybrid.record_spans(&self.place)
    }

    /// When decoders were at work for the last [`JpegDecoder::decode`], and on how many files.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn spans(&mut self) -> impl Iterator<Item = Result<Span, KernelError>> {
        self.batch.spans().chain(self.hybrid.spans())
    }

    /// Decodes files into planes of `arena` and waits until they are written. Returns for each file who decoded it, `None`
    /// where nobody could. A file that one decoder refuses or fails at goes to the next one, on its own, so that it costs
    /// the others nothing. Files may be damaged in any way.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`] where nvJPEG has too little for several files, or for the decoder that they need: it has given
    /// back what it held, and fewer files in a smaller arena may do. Where planes are not the arena's or the driver fails.
    pub fn decode<'a>(
        &mut self,
        arena: &PlaneArena,
        files: impl IntoIterator<Item = JpegFile<'a>>,
    ) -> Result<&[Option<JpegPath>], KernelError> {
        // What fails loses it, which only costs memory once more.
        let mut list: Vec<JpegFile<'_>> = std::mem::take(&mut self.files);
        list.extend(files);
        self.decode_list(arena, &list)?;
        self.files = emptied(list);
        Ok(&self.served)
    }

    fn decode_list(&mut self, arena: &PlaneArena, files: &[JpegFile<'_>]) -> Result<(), KernelError> {
        if !files.iter().flat_map(|file| file.planes).all(|plane| arena.holds(plane)) {
            return Err(KernelError::invalid("decode", "planes outside the arena"));
        }
        let Self { batch, hybrid, place, served, .. } = self;
        place.stream.device().bind()?;
        batch.restart()?;
        hybrid.restart()?;
        served.clear();
        served.resize(files.len(), None);
        // In the order in which a file goes from one to the next.
        let enqueued = batch.decode(place, files, served).and_then(|()| hybrid.decode(place, files, served));
        // Waited for in any case: the work reads the files, and writes to the planes.
        let waited = place.stream.synchronize();
        if let Err(KernelError::OutOfMemory { .. }) = enqueued {
            // Buffers grow to the largest picture and never shrink. They are let go of here, and taken again when there is
            // something to decode.
            batch.let_go();
            hybrid.let_go();
        }
        enqueued.and(waited)
    }

    /// Gives back the decoders and their memory, until files need them.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn let_go(&mut self) -> Result<(), KernelError> {
        self.place.stream.device().bind()?;
        self.batch.let_go();
        self.hybrid.let_go();
        Ok(())
    }

    /// True where there was no memory for a decoder that files need, since this was asked before.
    pub fn take_short(&mut self) -> bool {
        let [batch, hybrid] = [self.batch.take_short(), self.hybrid.take_short()];
        batch || hybrid
    }

    /// Whether the JPEG engines wait for earlier work of the stream they are given; `None` where there are no engines or
    /// they do not take the file. Nothing here relies on it: [`JpegDecoder::decode`] waits on the host.
    ///
    /// # Errors
    /// Where planes are not the arena's, there is no memory or the driver fails.
    pub fn engines_wait(&mut self, arena: &PlaneArena, file: &JpegFile<'_>) -> Result<Option<bool>, KernelError> {
        if !file.planes.iter().all(|plane| arena.holds(plane)) {
            return Err(KernelError::invalid("decode", "planes outside the arena"));
        }
        self.place.stream.device().bind()?;
        self.batch.made(&self.place)?.map_or(Ok(None), |batch| batch.engines_wait(arena, file))
    }
}

impl Drop for JpegDecoder {
    fn drop(&mut self) {
        // Nothing is under way after `decode`, unless it failed.
        let _ = self.place.stream.synchronize();
    }
}

fn loaded() -> Result<&'static Nvjpeg, KernelError> {
    Nvjpeg::load().map_err(|e| KernelError::gpu(e.to_string()))
}

fn planes(file: &JpegFile<'_>) -> Planes {
    let mut planes = Planes::default();
    for (n, plane) in file.planes.iter().take(3).enumerate() {
        planes.pointers[n] = plane.address;
        planes.pitches_bytes[n] = plane.pitch_bytes;
        planes.rows[n] = plane.rows;
    }
    planes
}

/// The vector's memory for values of another lifetime: the standard library collects in place.
fn emptied<T, U>(mut values: Vec<T>) -> Vec<U> {
    values.clear();
    values.into_iter().filter_map(|_| None).collect()
}

/// What a decoder gave, `None` where the next one is to try. For want of memory the whole call ends, unless there is only
/// one file: then the next decoder is tried as after any other failure.
fn taken<T>(result: Result<T, NvjpegError>, files: &[JpegFile<'_>]) -> Result<Option<T>, KernelError> {
    match result.map_err(failed) {
        Ok(given) => Ok(Some(given)),
        Err(short @ KernelError::OutOfMemory { .. }) if files.len() > 1 => Err(short),
        Err(_) => Ok(None),
    }
}

fn failed(error: NvjpegError) -> KernelError {
    if error.status() == Some(Status::AllocatorFailure) {
        return KernelError::OutOfMemory { call: "nvJPEG" };
    }
    KernelError::gpu(error.to_string())
}
