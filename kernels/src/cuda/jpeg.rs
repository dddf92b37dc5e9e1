//! JPEG files into planes in memory of the GPU, by nvJPEG: on the JPEG engines, or by CPU and GPU together.

use std::sync::Arc;

use ocellus_sys::nvjpeg::{
    Backend, BatchDecoder, Handle, HandleOptions, HardwareInfo, HybridDecoder, Inspected, Inspector, Nvjpeg,
    NvjpegError, Output, PlaneSize, Planes,
};

use super::device::Device;
use super::gpu::Gpu;
use super::memory::DeviceMemory;
use super::module::Function;
use super::planes::{Plane, PlaneArena};
use super::proof::{self, Proof, Tail};
use super::stream::{Event, Stream};
use super::turns::Turns;
use crate::error::KernelError;
use crate::jit::KernelSpec;

/// Pixels for each engine in calls that are made at the same time, unless one call has more. Of large pictures the engines
/// lose by every further call: of 1920x1080 in batches of 64 an H200 decodes 6.0k a second with one at a time and 4.8k with
/// six. Of small ones a call is mostly waiting for the multiprocessors, which copy what the engines have decoded, and the
/// more so the busier these are with the network: there as many calls as there are workers are best (500x375, ten workers:
/// 35k a second alone as well as in a job). A call ends before the engines' work: the next one is made during the rest of it.
const TURN_PX: u64 = 18_000_000;

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
        let mut jpeg = Self { device: device.clone(), batch, hybrid, proof, turns: Arc::new(Turns::new(TURN_PX)) };
        if let Some(info) = jpeg.hardware() {
            jpeg.turns = Arc::new(Turns::new(TURN_PX * u64::from(info.decoders())));
        }
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

/// One thread's decoders. The engines rest between two batches of one decoder, and take batches of several in turns: of
/// several threads one is served while the others prepare what follows.
pub struct JpegDecoder {
    batch: Option<Batch>,
    hybrid: HybridDecoder,
    /// What the hybrid decoder enqueued is done.
    hybrid_done: Event,
    done: Event,
    stream: Stream,
    // Last: its context is that of all the others.
    jpeg: Jpeg,
}

/// Decodes many files in one call.
struct Batch {
    inspector: Inspector,
    decoder: BatchDecoder,
    path: JpegPath,
    proof: Proof,
}

impl Batch {
    fn new(jpeg: &Jpeg, (handle, path): &(Handle, JpegPath)) -> Result<Self, KernelError> {
        let inspector = Inspector::new(handle).map_err(failed)?;
        let decoder = BatchDecoder::new(handle, Output::Yuv).map_err(failed)?;
        Ok(Self { inspector, decoder, path: *path, proof: Proof::new(&jpeg.device, jpeg.proof.clone())? })
    }
}

impl JpegDecoder {
    /// Decoders whose work runs on `stream`. May wait for the whole GPU: for the start.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`], or where nvJPEG or the driver fails.
    pub fn new(jpeg: &Jpeg, stream: &Stream) -> Result<Self, KernelError> {
        jpeg.device.bind()?;
        Ok(Self {
            batch: jpeg.batch.as_ref().map(|batch| Batch::new(jpeg, batch)).transpose()?,
            hybrid: HybridDecoder::new(&jpeg.hybrid, Backend::Hybrid).map_err(failed)?,
            hybrid_done: Event::new(&jpeg.device)?,
            done: Event::new(&jpeg.device)?,
            stream: stream.clone(),
            jpeg: jpeg.clone(),
        })
    }

    /// Decodes files into planes of `arena` and waits until they are written. Returns for each file who decoded it, `None`
    /// where nobody could. A file that one decoder refuses or fails at goes to the next one, on its own, so that it costs
    /// the others nothing. Files may be damaged in any way.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`] where nvJPEG has too little for several files: it has given back what it held, and
    /// fewer files in a smaller arena may do. Where planes are not the arena's or the driver fails.
    pub fn decode(&mut self, arena: &PlaneArena, files: &[JpegFile<'_>]) -> Result<Vec<Option<JpegPath>>, KernelError> {
        if !files.iter().flat_map(|file| file.planes).all(|plane| arena.holds(plane)) {
            return Err(KernelError::invalid("decode", "planes outside the arena"));
        }
        self.stream.device().bind()?;
        let mut served = vec![None; files.len()];
        let enqueued = self.enqueue(files, &mut served);
        // Waited for in any case: the work reads the files, and writes to the planes.
        let waited = self.stream.synchronize();
        if let Err(KernelError::OutOfMemory { .. }) = enqueued {
            // Buffers grow to the largest picture and never shrink.
            *self = Self::new(&self.jpeg.clone(), &self.stream.clone())?;
        }
        enqueued.and(waited).map(|()| served)
    }

    fn enqueue(&mut self, files: &[JpegFile<'_>], served: &mut [Option<JpegPath>]) -> Result<(), KernelError> {
        self.in_batch(files, served)?;
        for (file, served) in files.iter().zip(served) {
            if served.is_none() && self.by_both(file, files)? {
                *served = Some(JpegPath::Hybrid);
            }
        }
        // While others may need the processor.
        self.hybrid_done.synchronize()
    }

    /// Decodes together those that the batch decoder takes.
    fn in_batch(&mut self, files: &[JpegFile<'_>], served: &mut [Option<JpegPath>]) -> Result<(), KernelError> {
        let Some(Batch { inspector, decoder, path, proof }) = &mut self.batch else { return Ok(()) };
        let mut works = Vec::with_capacity(files.len());
        let mut tails = Vec::with_capacity(3 * files.len());
        for (index, file) in files.iter().enumerate().filter(|(_, file)| file.path == JpegPath::Hardware) {
            if let Ok(inspected) = inspector.inspect(file.bytes)
                && has_planes(&inspected, file)
            {
                let tail = |(plane, size): (&Plane, &PlaneSize)| {
                    Tail::new(plane.address, plane.pitch_bytes, [size.width_px, size.height_px])
                };
                tails.extend(file.planes.iter().zip(inspected.planes()).map(tail));
                works.push((inspected, planes(file), index));
            }
        }
        if works.is_empty() {
            return Ok(());
        }
        // Waits for what comes before it as well: memory is taken in the order of the stream.
        proof.spoil(&self.stream, &tails)?;
        // One call decodes all, or fails as a whole. Then each half is tried, so that a file which costs the call costs
        // the others nothing.
        let mut left = vec![works.as_slice()];
        while let Some(part) = left.pop().filter(|part| !part.is_empty()) {
            let (batch, outputs): (Vec<_>, Vec<_>) = part.iter().map(|(file, planes, _)| (*file, *planes)).unzip();
            let pixels = batch.iter().map(|file| px(file.planes()[0])).sum();
            let turn = (*path == JpegPath::Hardware).then(|| self.jpeg.turns.wait(pixels));
            // SAFETY: the stream and the handle belong to the context that is current; the planes are memory of the
            // arena, which this call's caller borrows and whose readers it has waited for; the files are borrowed until
            // the end of `decode`, which waits for the work; the decoder is only used again behind the wait below.
            let decoded = unsafe { decoder.decode(&batch, &outputs, self.stream.raw()) };
            // What is left is the work of the engines alone: the next call prepares its own meanwhile.
            drop(turn);
            let decoded = taken(decoded, files)?.is_some();
            if decoded {
                for &(.., index) in part {
                    served[index] = Some(*path);
                }
            } else if part.len() > 1 {
                let (front, back) = part.split_at(part.len() / 2);
                left.extend([back, front]);
            }
            // Also what failed may be under way in part, over planes that the next decoder writes.
            self.done.record(&self.stream)?;
            self.done.synchronize()?;
        }
        let mut written = proof.written(&self.stream, &tails)?.into_iter();
        for (inspected, _, index) in &works {
            let unwritten = written.by_ref().take(inspected.planes().len()).filter(|written| !written).count();
            if unwritten > 0 {
                served[*index] = None;
            }
        }
        Ok(())
    }

    /// Enqueues one of the files for the hybrid decoder; false where that does not take it.
    fn by_both(&mut self, file: &JpegFile<'_>, files: &[JpegFile<'_>]) -> Result<bool, KernelError> {
        let Some(read) = taken(self.hybrid.host(file.bytes), files)? else { return Ok(false) };
        if read.planes().len() != file.planes.len() {
            return Ok(false);
        }
        self.hybrid_done.synchronize()?;
        // SAFETY: as above; what this decoder enqueued before was waited for.
        let enqueued = unsafe { read.enqueue(&planes(file), self.stream.raw()) };
        self.hybrid_done.record(&self.stream)?;
        if enqueued.is_err() {
            self.hybrid_done.synchronize()?;
        }
        taken(enqueued, files).map(|enqueued| enqueued.is_some())
    }
}

impl Drop for JpegDecoder {
    fn drop(&mut self) {
        // Nothing is under way after `decode`, unless it failed.
        let _ = self.stream.synchronize();
    }
}

/// Whether the decoder would write the planes that there are, and no others.
fn has_planes(inspected: &Inspected<'_>, file: &JpegFile<'_>) -> bool {
    let fits = |(size, plane): (&PlaneSize, &Plane)| size.height_px == plane.rows && size.width_px <= plane.pitch_bytes;
    inspected.planes().len() == file.planes.len() && inspected.planes().iter().zip(file.planes).all(fits)
}

fn px(size: PlaneSize) -> u64 {
    u64::from(size.width_px) * u64::from(size.height_px)
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
    if error.status() == Some(ocellus_sys::nvjpeg::Status::AllocatorFailure) {
        return KernelError::OutOfMemory { call: "nvJPEG" };
    }
    KernelError::gpu(error.to_string())
}

/// Work that keeps a stream busy for several milliseconds: fills of this many bytes.
const DELAY_BYTES: usize = 512 << 20;
/// Their number.
const DELAYS: usize = 32;

impl JpegDecoder {
    /// Whether the JPEG engines wait for earlier work of the stream they are given; `None` where there are no engines or
    /// they do not take the file. Nothing here relies on it: [`JpegDecoder::decode`] waits on the host.
    ///
    /// A copy of the file's first plane is enqueued behind work that takes long, then the file is decoded over it without
    /// waiting. Where the copy has new samples, the engines were first.
    ///
    /// # Errors
    /// Where planes are not the arena's, there is no memory or the driver fails.
    pub fn engines_wait(&mut self, arena: &PlaneArena, file: &JpegFile<'_>) -> Result<Option<bool>, KernelError> {
        const POISON: u8 = 0xa5;
        if !file.planes.iter().all(|plane| arena.holds(plane)) {
            return Err(KernelError::invalid("decode", "planes outside the arena"));
        }
        let Some(Batch { inspector, decoder, path: JpegPath::Hardware, .. }) = &mut self.batch else { return Ok(None) };
        let Ok(inspected) = inspector.inspect(file.bytes) else { return Ok(None) };
        let Some(plane) = file.planes.first().filter(|_| has_planes(&inspected, file)) else { return Ok(None) };
        self.stream.device().bind()?;
        let bytes = plane.pitch_bytes as usize * plane.rows as usize;
        let (busy, copy) = (DeviceMemory::new(&self.stream, DELAY_BYTES)?, DeviceMemory::new(&self.stream, bytes)?);
        arena.fill(plane, POISON)?;
        self.stream.synchronize()?;
        for _ in 0..DELAYS {
            busy.fill(0)?;
        }
        // SAFETY: the plane is in the arena, which is borrowed until the copy has been read.
        unsafe { copy.copy_from_address(plane.address) }?;
        // SAFETY: as in `in_batch`, but for what was enqueued before, which only reads the plane: that is the question.
        let decoded = unsafe { decoder.decode(&[inspected], &[planes(file)], self.stream.raw()) };
        let mut samples = vec![0; bytes];
        copy.read(&mut samples)?;
        decoded.map_err(failed)?;
        Ok(Some(samples.iter().all(|&sample| sample == POISON)))
    }
}
