//! Preprocessing alone, on a GPU: from planes in its memory to the network's input.

use std::time::Instant;

use ocellus_kernels::KernelError;
use ocellus_kernels::cuda::gpu::Gpu;
use ocellus_kernels::cuda::memory::DeviceMemory;
use ocellus_kernels::cuda::planes::{Plane, PlaneArena};
use ocellus_kernels::cuda::preprocess::{DevicePicture, GpuPreprocess, OutputFormat};
use ocellus_kernels::cuda::stream::{Event, Priority, Stream};
use ocellus_kernels::cuda::upload::Uploader;
use ocellus_kernels::picture::PictureDesc;
use ocellus_kernels::preprocess::{ColourOrder, Filter, LetterboxPlace, Match, PreprocessDesc, ResizeRule, Transform};
use ocellus_kernels::tensor::{DType, Layout};

use super::corpus::CorpusDesc;
use super::infer::copy_rate;
use super::{Measurement, repeat};
use crate::error::JobError;
use crate::gpu::{place, planes_bytes};
use crate::stage::Cancel;

/// Runs before the first that counts.
const WARM_UP: usize = 5;
/// Runs that count.
const RUNS: usize = 30;
/// Launches of a run, each with pictures of its own. No more can be enqueued at a time without waiting for one.
const LAUNCHES: usize = 4;
/// Bytes of the copies that a run waits for: they take the pictures out of every cache.
const SWEEP_BYTES: usize = 128 << 20;
/// Longest time of these copies. No host takes as long to enqueue a run that a GPU is waiting for.
const MOST_SWEEP_S: f64 = 0.02;
/// Samples that planes are filled with, taken from different places.
const NOISE_BYTES: usize = 1 << 20;
/// Between those places: odd, so that no two planes of a picture are alike.
const NOISE_STEP_BYTES: usize = 4099;
/// Of a pixel, in the layout that the networks' first layer reads.
const PITCH: usize = 4;

/// What a picture is made into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// 224 x 224: a classifier's input. The shorter side becomes 256 pixels, the centre is cut out, as the default model
    /// wants it.
    Classifier,
    /// 640 x 640: a detector's input. Scaled to fit inside, the rest filled.
    Detector,
}

impl Output {
    /// What pictures of this size are usually made into.
    pub fn usual(width_px: u16, height_px: u16) -> Self {
        if usize::from(width_px.max(height_px)) > Self::Detector.side_px() { Self::Detector } else { Self::Classifier }
    }

    /// Its width and height.
    pub fn side_px(self) -> usize {
        match self {
            Self::Classifier => 224,
            Self::Detector => 640,
        }
    }

    fn desc(self) -> PreprocessDesc {
        let (resize, filter) = match self {
            Self::Classifier => (ResizeRule::Shortest { short_px: 256 }, Filter::Bicubic),
            Self::Detector => {
                (ResizeRule::Letterbox { fill: [114; 3], place: LetterboxPlace::Centre }, Filter::Bilinear)
            }
        };
        PreprocessDesc {
            width_px: self.side_px(),
            height_px: self.side_px(),
            resize,
            filter,
            antialias: true,
            matching: Match::Pillow,
            colour: ColourOrder::Rgb,
            mean: [127.0; 3],
            std: [128.0; 3],
            layout: Layout::Nhwc,
        }
    }
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct PreprocessBench {
    /// Columns of the pictures.
    pub width_px: u16,
    /// Rows.
    pub height_px: u16,
    /// What they become.
    pub output: Output,
    /// Batch sizes.
    pub batches: Vec<usize>,
}

/// Images a second for each batch size, in half precision, beside what the memory allows when the samples that the output
/// depends on are read once and the output is written once.
///
/// # Errors
/// Where there is no memory, the GPU fails or `cancel` was set.
pub fn measure(gpu: &Gpu, bench: &PreprocessBench, cancel: &Cancel) -> Result<Vec<Measurement>, JobError> {
    let copy_bytes_per_s = copy_rate(&gpu.device)?;
    let (desc, format) =
        (bench.output.desc(), OutputFormat { dtype: DType::F16, layout: Layout::Nhwc, pitch: PITCH, step: 1.0 });
    let picture = CorpusDesc::photos(bench.width_px, bench.height_px, 1).picture();
    let stream = Stream::new(&gpu.device, Priority::Low)?;
    let mut noise = Noise::new(&stream, planes_bytes(&picture))?;
    let mut measurements = Vec::new();
    for &batch in &bench.batches {
        let preprocess = GpuPreprocess::new(&stream, &gpu.jit, desc.clone(), format, batch)?;
        let output_bytes = format.image_bytes(&desc);
        let sets = (0..LAUNCHES).map(|_| Set::new(&stream, &mut noise, &picture, batch, output_bytes));
        let sets = sets.collect::<Result<Vec<_>, KernelError>>()?;
        let mut run = Run { preprocess, sets, sweep: Sweep::new(&stream)? };
        let transform = run.enqueue()?;
        stream.synchronize()?;
        let rates = run.rates(&stream, copy_bytes_per_s, cancel)?;
        let bound = copy_bytes_per_s / (source_bytes(&picture, &desc, &transform) + output_bytes as f64);
        let (width_px, height_px, side_px) = (bench.width_px, bench.height_px, bench.output.side_px());
        let name = format!("preprocess.{width_px}x{height_px}.{side_px}.f16.b{batch}");
        let measurement = Measurement::of(name, "img/s", rates);
        measurements.push(measurement.beside(bound, "source window and output once at copy bandwidth"));
    }
    Ok(measurements)
}

/// Bytes of the samples under the output.
fn source_bytes(picture: &PictureDesc, desc: &PreprocessDesc, transform: &Transform) -> f64 {
    let upright = picture.upright_size();
    let side = |axis: usize, output_px: usize| {
        let source =
            |at: f64| ((at - transform.offset_px[axis]) / transform.scale[axis]).clamp(0.0, upright[axis] as f64);
        (source(output_px as f64) - source(0.0)) / upright[axis] as f64
    };
    let share = side(0, desc.width_px) * side(1, desc.height_px);
    let samples = (0..picture.planes()).map(|plane| picture.plane_size(plane).iter().product::<usize>());
    share * samples.sum::<usize>() as f64
}

/// A batch in the GPU's memory, and room for what becomes of it.
struct Set {
    pictures: Vec<DevicePicture>,
    output: DeviceMemory,
    arena: PlaneArena,
}

impl Set {
    fn new(
        stream: &Stream,
        noise: &mut Noise,
        desc: &PictureDesc,
        batch: usize,
        output_bytes: usize,
    ) -> Result<Self, KernelError> {
        let mut arena = PlaneArena::new(stream)?;
        arena.begin(batch * planes_bytes(desc))?;
        let mut pictures = Vec::with_capacity(batch);
        for _ in 0..batch {
            let placed = place(&mut arena, desc)?;
            placed.planes().iter().try_for_each(|plane| noise.fill(&arena, plane))?;
            pictures.push(placed.picture());
        }
        Ok(Self { pictures, output: DeviceMemory::new(stream, batch * output_bytes)?, arena })
    }
}

/// Random samples.
struct Noise {
    bytes: Vec<u8>,
    from: usize,
    uploader: Uploader,
}

impl Noise {
    /// For planes of up to this many bytes.
    fn new(stream: &Stream, plane_bytes: usize) -> Result<Self, KernelError> {
        let mut bytes = vec![0; plane_bytes + NOISE_BYTES];
        fill(&mut bytes);
        Ok(Self { bytes, from: 0, uploader: Uploader::new(stream)? })
    }

    /// Enqueues the filling of a plane.
    fn fill(&mut self, arena: &PlaneArena, plane: &Plane) -> Result<(), KernelError> {
        self.from = (self.from + NOISE_STEP_BYTES) % NOISE_BYTES;
        let pitch = plane.pitch_bytes as usize;
        self.uploader.upload(&self.bytes[self.from..][..pitch * plane.rows as usize], pitch, arena, plane)
    }
}

/// Random bytes, from the high bits of a linear congruential generator (Knuth's MMIX).
fn fill(bytes: &mut [u8]) {
    let mut state = 1_u64;
    for byte in bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (state >> 56) as u8;
    }
}

/// Work that keeps a stream busy.
struct Sweep {
    from: DeviceMemory,
    to: DeviceMemory,
}

impl Sweep {
    fn new(stream: &Stream) -> Result<Self, KernelError> {
        let from = DeviceMemory::new(stream, SWEEP_BYTES / 2)?;
        from.fill(0)?;
        Ok(Self { from, to: DeviceMemory::new(stream, SWEEP_BYTES / 2)? })
    }

    /// Enqueues work of at least `seconds`.
    fn enqueue(&self, seconds: f64, copy_bytes_per_s: f64) -> Result<(), KernelError> {
        let copies = (seconds * copy_bytes_per_s / SWEEP_BYTES as f64).ceil().max(1.0) as usize;
        (0..copies).try_for_each(|_| self.to.copy_part(0, &self.from, 0, self.from.len_bytes()))
    }
}

/// One run: a launch for each set of pictures.
struct Run {
    preprocess: GpuPreprocess,
    sets: Vec<Set>,
    sweep: Sweep,
}

impl Run {
    /// Enqueues the launches; gives what their pictures' transform is.
    fn enqueue(&mut self) -> Result<Transform, KernelError> {
        let mut transform = None;
        for set in &self.sets {
            transform = self.preprocess.enqueue(&set.pictures, &set.arena, (&set.output, 0))?.first().copied();
        }
        transform.ok_or_else(|| KernelError::invalid("bench", "a batch without pictures"))
    }

    /// Images a second in each run that counts.
    fn rates(&mut self, stream: &Stream, copy_bytes_per_s: f64, cancel: &Cancel) -> Result<Vec<f64>, JobError> {
        let (start, end) = (Event::timed(stream.device())?, Event::timed(stream.device())?);
        let images = self.sets.iter().map(|set| set.pictures.len()).sum::<usize>() as f64;
        let mut host_s = 0.0;
        repeat(cancel, WARM_UP, RUNS, || {
            // The GPU starts when everything is enqueued: its own time is measured, not the host's.
            self.sweep.enqueue(MOST_SWEEP_S.min(2.0 * host_s), copy_bytes_per_s)?;
            start.record(stream)?;
            let started = Instant::now();
            self.enqueue()?;
            host_s = started.elapsed().as_secs_f64();
            end.record(stream)?;
            end.synchronize()?;
            Ok(images / (f64::from(start.elapsed_ms(&end)?) / 1e3))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_of_a_crop_is_part_of_the_picture() {
        let picture = CorpusDesc::photos(500, 375, 1).picture();
        let desc = Output::Classifier.desc();
        // 256 of 375 rows, 341 of 500 columns; 224 of them in the middle.
        let scale = [341.0 / 500.0, 256.0 / 375.0];
        let transform = Transform { scale, offset_px: [-58.5, -16.0] };
        let expected = 1.5 * (224.0 / scale[0]) * (224.0 / scale[1]);
        let bytes = source_bytes(&picture, &desc, &transform);
        assert!((bytes / expected - 1.0).abs() < 0.01, "{bytes} {expected}");
        // A letterbox shows everything.
        let desc = Output::Detector.desc();
        let transform = Transform { scale: [1.0 / 3.0; 2], offset_px: [0.0, 140.0] };
        assert_eq!(
            source_bytes(&CorpusDesc::photos(1920, 1080, 1).picture(), &desc, &transform),
            1.5 * 1920.0 * 1080.0
        );
    }

    #[test]
    fn sizes_have_their_usual_outputs() {
        assert_eq!(Output::usual(500, 375), Output::Classifier);
        assert_eq!(Output::usual(1920, 1080), Output::Detector);
    }
}
