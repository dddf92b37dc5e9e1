//! JPEG files into planes in memory of the GPU, by nvJPEG: on the JPEG engines, or by CPU and GPU together.

mod batch;
mod hybrid;
mod proof;
mod turns;

use std::sync::Arc;

use batch::Batch;
use hybrid::Hybrid;
use ocellus_sys::nvjpeg::{Backend, Handle, HandleOptions, HardwareInfo, Nvjpeg, NvjpegError, Planes, Status};
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
    hybrid: Handle,
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

impl Jpeg {
    /// Loads nvJPEG and starts it on this GPU. May wait for the whole GPU: for the start.
    ///
    /// # Errors
    /// Where it is not there or does not start, or a kernel cannot be compiled.
    pub fn new(gpu: &Gpu) -> Result<Self, KernelError> {
        let device = &gpu.device;
        device.bind()?;
        let nvjpeg = Nvjpeg::load().map_err(|e| KernelError::gpu(e.to_string()))?;
        let hybrid = nvjpeg.handle(&HandleOptions::new(Backend::Hybrid)).map_err(failed)?;
        let engines = nvjpeg.handle(&HandleOptions::new(Backend::Hardware)).ok();
        let batch = match engines.filter(|handle| handle.hardware_info().is_some()) {
            Some(handle) => Some((handle, JpegPath::Hardware)),
            // Without either everything else works.
            None => nvjpeg.handle(&HandleOptions::new(Backend::GpuHybrid)).ok().map(|h| (h, JpegPath::Hybrid)),
        };
        let proof = proof::load(gpu)?;
        let mut jpeg =
            Self { device: device.clone(), batch, hybrid, proof, turns: Arc::new(Turns::new(batch::TURN_PX)) };
        if let Some(info) = jpeg.hardware() {
            jpeg.turns = Arc::new(Turns::new(batch::TURN_PX * u64::from(info.decoders())));
        }
        info!(engines = jpeg.hardware().map_or(0, |info| info.decoders()), "nvJPEG is ready");
        Ok(jpeg)
    }

    /// The kernel that this compiles.
    pub fn kernel() -> KernelSpec {
        proof::kernel()
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
trait Path {
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
    batch: Option<Batch>,
    hybrid: Hybrid,
    waiting: Waiting,
    stream: Stream,
    is_timed: bool,
    // Last: its context is that of all the others.
    jpeg: Jpeg,
}

impl JpegDecoder {
    /// Decoders whose work runs on `stream`. May wait for the whole GPU: for the start.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`], or where nvJPEG or the driver fails.
    pub fn new(jpeg: &Jpeg, stream: &Stream) -> Result<Self, KernelError> {
        Self::waiting(jpeg, stream, Waiting::Asleep)
    }

    /// As [`JpegDecoder::new`], and how [`JpegDecoder::decode`] waits.
    ///
    /// # Errors
    /// As there.
    pub fn waiting(jpeg: &Jpeg, stream: &Stream, waiting: Waiting) -> Result<Self, KernelError> {
        jpeg.device.bind()?;
        Ok(Self {
            batch: jpeg.batch.as_ref().map(|batch| Batch::new(jpeg, batch, stream, waiting)).transpose()?,
            hybrid: Hybrid::new(&jpeg.hybrid, stream, waiting)?,
            waiting,
            stream: stream.clone(),
            is_timed: false,
            jpeg: jpeg.clone(),
        })
    }

    /// From now on [`JpegDecoder::spans`] says when decoders were at work.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn record_spans(&mut self) -> Result<(), KernelError> {
        let device = self.jpeg.device.clone();
        self.is_timed = true;
        self.paths().try_for_each(|path| path.spans().start(&device))
    }

    /// When decoders were at work for the last [`JpegDecoder::decode`], and on how many files.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn spans(&mut self) -> Result<Vec<Span>, KernelError> {
        self.paths().flat_map(|path| path.spans().taken()).collect()
    }

    /// Decodes files into planes of `arena` and waits until they are written. Returns for each file who decoded it, `None`
    /// where nobody could. A file that one decoder refuses or fails at goes to the next one, on its own, so that it costs
    /// the others nothing. Files may be damaged in any way.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`] where nvJPEG has too little for several files, or to begin with: it has given back what it
    /// held, and fewer files in a smaller arena may do. Where planes are not the arena's or the driver fails.
    pub fn decode(&mut self, arena: &PlaneArena, files: &[JpegFile<'_>]) -> Result<Vec<Option<JpegPath>>, KernelError> {
        if !files.iter().flat_map(|file| file.planes).all(|plane| arena.holds(plane)) {
            return Err(KernelError::invalid("decode", "planes outside the arena"));
        }
        self.stream.device().bind()?;
        self.complete()?;
        self.paths().try_for_each(|path| path.spans().restart())?;
        let mut served = vec![None; files.len()];
        let enqueued = self.paths().try_for_each(|path| path.decode(files, &mut served));
        // Waited for in any case: the work reads the files, and writes to the planes.
        let waited = self.stream.synchronize();
        if let Err(KernelError::OutOfMemory { .. }) = enqueued {
            // Buffers grow to the largest picture and never shrink. They are let go of here, and taken again when there is
            // something to decode.
            self.batch = None;
            self.hybrid = Hybrid::new(&self.jpeg.hybrid, &self.stream, self.waiting)?;
        }
        enqueued.and(waited).map(|()| served)
    }

    /// Makes anew what was let go of.
    fn complete(&mut self) -> Result<(), KernelError> {
        if let (None, Some(batch)) = (&self.batch, &self.jpeg.batch) {
            self.batch = Some(Batch::new(&self.jpeg, batch, &self.stream, self.waiting)?);
            if self.is_timed {
                self.record_spans()?;
            }
        }
        Ok(())
    }

    /// In the order in which a file goes from one to the next.
    fn paths(&mut self) -> impl Iterator<Item = &mut dyn Path> {
        let batch = self.batch.as_mut().map(|batch| batch as &mut dyn Path);
        batch.into_iter().chain([&mut self.hybrid as &mut dyn Path])
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
        self.batch.as_mut().map_or(Ok(None), |batch| batch.engines_wait(arena, file))
    }
}

impl Drop for JpegDecoder {
    fn drop(&mut self) {
        // Nothing is under way after `decode`, unless it failed.
        let _ = self.stream.synchronize();
    }
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
