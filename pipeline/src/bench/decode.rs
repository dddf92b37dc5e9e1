//! Decoding on a GPU: files in memory as a job reads them to, planes left in the GPU's.

use std::collections::TryReserveError;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ocellus_kernels::KernelError;
use ocellus_kernels::cuda::device::Device;
use ocellus_kernels::cuda::jpeg::{Jpeg, JpegDecoder, JpegFile, JpegPath};
use ocellus_kernels::cuda::planes::PlaneArena;
use ocellus_kernels::cuda::stream::{Priority, Stream};
use ocellus_kernels::picture::PictureDesc;

use super::corpus::{self, CorpusDesc};
use super::{Measurement, repeat};
use crate::error::JobError;
use crate::frame::Buffer;
use crate::gpu::{Gpu, Placed, file_memory, on_threads, place, planes_bytes};
use crate::stage::Cancel;

/// Passes before the first that counts.
const WARM_UP: usize = 1;
/// Passes that count.
const PASSES: usize = 5;
/// Time that a pass lasts at least.
const PASS: Duration = Duration::from_secs(1);
/// What the JPEG engines of a GPU decode: its name, their number, pixels a second of all together. The
/// most that was measured, with 4:2:0 pictures of 1920x1080 pixels.
const ENGINE_RATES: [(&str, u32, f64); 1] = [("H200", 7, 12.4e9)];

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct DecodeDesc {
    /// The files.
    pub corpus: CorpusDesc,
    /// Most files in a batch; the engines get the largest one that is even for them.
    pub batch: NonZeroUsize,
    /// Threads, each with decoders of its own.
    pub workers: NonZeroUsize,
    /// Who decodes.
    pub path: JpegPath,
}

/// Who decodes in a job on this GPU.
///
/// # Errors
/// Where nvJPEG is not there.
pub fn usual_path(gpu: &Gpu) -> Result<JpegPath, JobError> {
    Ok(path_of(&Jpeg::new(gpu)?))
}

fn path_of(jpeg: &Jpeg) -> JpegPath {
    jpeg.hardware().map_or(JpegPath::Hybrid, |_| JpegPath::Hardware)
}

/// Starts nvJPEG on this GPU and decodes the first of these files, as the first worker of a job does.
///
/// # Errors
/// Where nvJPEG is not there or does not decode it, there is no memory or the driver fails.
pub fn first(gpu: &Gpu, corpus: &CorpusDesc, files: &[Vec<u8>]) -> Result<(), JobError> {
    let jpeg = Jpeg::new(gpu)?;
    let one = NonZeroUsize::MIN;
    let desc = DecodeDesc { corpus: *corpus, batch: one, workers: one, path: path_of(&jpeg) };
    let files = in_memory(&gpu.device, files)?;
    Worker::new(&gpu.device, &jpeg, &desc, 1)?.decode(&files, 0)?;
    Ok(())
}

/// Images a second.
///
/// # Errors
/// Where a file is not decoded by who was asked for, there is no memory, nvJPEG or the driver fails, or `cancel` was set.
pub fn measure(gpu: &Gpu, desc: &DecodeDesc, cancel: &Cancel) -> Result<Measurement, JobError> {
    let (device, jpeg) = (&gpu.device, Jpeg::new(gpu)?);
    if desc.path == JpegPath::Hardware && jpeg.hardware().is_none() {
        return Err(KernelError::gpu("this GPU has no JPEG engines; use --path hybrid").into());
    }
    let files = in_memory(device, &corpus::make(&desc.corpus, cancel)?)?;
    let batch = match desc.path {
        JpegPath::Hardware => jpeg.even_batch(desc.batch.get()),
        JpegPath::Hybrid => desc.batch.get(),
    };
    let workers = (0..desc.workers.get()).map(|_| Worker::new(device, &jpeg, desc, batch));
    let mut workers = workers.collect::<Result<Vec<_>, KernelError>>()?;
    let rates = repeat(cancel, WARM_UP, PASSES, || rate(&mut workers, &files))?;
    let path = match desc.path {
        JpegPath::Hardware => "hw",
        JpegPath::Hybrid => "hybrid",
    };
    let measurement = Measurement::of(format!("decode.{path}.{}", desc.corpus.name()), "img/s", rates);
    Ok(match engines_px_per_s(device, &jpeg).filter(|_| desc.path == JpegPath::Hardware) {
        Some(px_per_s) => {
            let pixels = f64::from(desc.corpus.width_px) * f64::from(desc.corpus.height_px);
            measurement.beside(px_per_s / pixels, "pixels that the JPEG engines decode")
        }
        None => measurement,
    })
}

/// The files, where a job on this GPU has them.
fn in_memory(device: &Device, files: &[Vec<u8>]) -> Result<Vec<Buffer>, JobError> {
    let memory = file_memory(device);
    let copy = |file: &Vec<u8>| {
        let mut buffer = memory.take(file.len())?;
        buffer.as_mut_slice().copy_from_slice(file);
        Ok(buffer)
    };
    let no_memory = |e: TryReserveError| JobError::io("no memory for the files", io::Error::other(e));
    files.iter().map(copy).collect::<Result<_, _>>().map_err(no_memory)
}

/// Pixels a second of all JPEG engines, where that is known.
fn engines_px_per_s(device: &Device, jpeg: &Jpeg) -> Option<f64> {
    let engines = jpeg.hardware()?.engines;
    let known = ENGINE_RATES.iter().find(|(name, n, _)| device.facts().name.contains(name) && engines == *n);
    known.map(|(_, _, px_per_s)| *px_per_s)
}

/// Images a second of one pass: the workers take batches in turn until its time is over.
fn rate(workers: &mut [Worker], files: &[Buffer]) -> Result<f64, JobError> {
    let next = AtomicUsize::new(0);
    let started = Instant::now();
    let counts = on_threads(workers.iter_mut(), |worker| {
        let mut count = 0;
        while count == 0 || started.elapsed() < PASS {
            count += worker.decode(files, next.fetch_add(1, Relaxed))?;
        }
        Ok(count)
    });
    Ok(counts.into_iter().sum::<Result<usize, JobError>>()? as f64 / started.elapsed().as_secs_f64())
}

/// One thread's decoders and memory.
struct Worker {
    // Before the memory that its work uses.
    decoder: JpegDecoder,
    arena: PlaneArena,
    picture: PictureDesc,
    path: JpegPath,
    batch: usize,
}

impl Worker {
    fn new(device: &Device, jpeg: &Jpeg, desc: &DecodeDesc, batch: usize) -> Result<Self, KernelError> {
        let stream = Stream::new(device, Priority::High)?;
        Ok(Self {
            decoder: JpegDecoder::new(jpeg, &stream),
            arena: PlaneArena::new(&stream)?,
            picture: desc.corpus.picture(),
            path: desc.path,
            batch,
        })
    }

    /// Decodes batch number `batch` of files that are taken in turn, again from the first after the last; gives its images.
    fn decode(&mut self, files: &[Buffer], batch: usize) -> Result<usize, JobError> {
        self.arena.begin(self.batch * planes_bytes(&self.picture))?;
        let places = (0..self.batch).map(|_| place(&mut self.arena, &self.picture));
        let places = places.collect::<Result<Vec<Placed>, KernelError>>()?;
        let (path, batch_files) = (self.path, files.iter().cycle().skip(batch * self.batch % files.len()));
        let batch_files = batch_files.zip(&places);
        let batch_files = batch_files.map(|(file, placed)| JpegFile { bytes: file, path, planes: placed.planes() });
        let served = self.decoder.decode(&self.arena, batch_files)?;
        let others = served.iter().filter(|&&served| served != Some(self.path)).count();
        if others > 0 {
            let who = match self.path {
                JpegPath::Hardware => "the JPEG engines",
                JpegPath::Hybrid => "the hybrid decoder",
            };
            return Err(KernelError::gpu(format!("{others} of {} files were not decoded by {who}", self.batch)).into());
        }
        Ok(served.len())
    }
}
