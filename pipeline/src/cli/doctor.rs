//! `ocellus doctor`.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::time::Instant;

use ocellus_kernels::KernelError;
use ocellus_kernels::cpu::preprocess::Preprocessor;
use ocellus_kernels::cuda::device::Device;
use ocellus_kernels::cuda::gpu::Gpu;
use ocellus_kernels::cuda::jpeg::{Jpeg, JpegDecoder, JpegFile, JpegPath};
use ocellus_kernels::cuda::memory::DeviceMemory;
use ocellus_kernels::cuda::planes::{Plane, PlaneArena, plane_bytes};
use ocellus_kernels::cuda::preprocess::{DevicePicture, DevicePlane, GpuPreprocess, OutputFormat};
use ocellus_kernels::cuda::self_test::run_a_kernel;
use ocellus_kernels::cuda::stream::{Priority, Stream};
use ocellus_kernels::jit::{CacheDir, Stop};
use ocellus_kernels::picture::{ChromaSampling, Orientation, PictureDesc, PixelFormat};
use ocellus_kernels::preprocess::{ColourOrder, Filter, Match, PreprocessDesc, ResizeRule};
use ocellus_kernels::tensor::{DType, Layout};
use ocellus_sys::nvjpeg::Nvjpeg;
use ocellus_sys::{Attempt, Library, LoadError};

use super::device::{Gpus, jit_options};
use super::{Exit, args::DoctorArgs};
use crate::bench::corpus::{self, CorpusDesc};
use crate::decode::{DecodeOptions, decode};
use crate::error::JobError;
use crate::stage::Cancel;

/// Columns of the names on the left.
const NAME_WIDTH: usize = 30;
/// Size of the pictures that are decoded.
const SIZE_PX: (u16, u16) = (256, 192);
/// How far decoders may be apart, 0..255: the mean over a picture, and any one value. They round in different places.
const MEAN_DIFFERENCE: f32 = 1.0;
const LARGEST_DIFFERENCE: f32 = 24.0;

/// Says what there is, tries what is needed, and ends with what to do.
pub(super) fn run(args: &DoctorArgs) -> Exit {
    for library in [Library::Cuda, Library::Nvrtc, Library::Nvjpeg] {
        match ocellus_sys::load(library) {
            Ok(found) => line(library, found.path().display()),
            Err(error) => {
                line(library, format_args!("MISSING: {error}"));
                for place in places(&error) {
                    line("", format_args!("looked in {place}"));
                }
            }
        }
    }
    let folder = CacheDir::Default.folder();
    line("compiled kernels", folder.map_or_else(|| "no folder".into(), |folder| folder.display().to_string()));
    let works = match gpus(args) {
        Ok(works) => works,
        Err(error) => {
            let count = Device::count().unwrap_or(0);
            let missing = ordinals(args).ok().and_then(|listed| listed.into_iter().find(|ordinal| *ordinal >= count));
            if let Some(missing) = missing.filter(|_| count > 0) {
                print(format_args!("\nNothing was tried: there is no cuda:{missing}; give the number of a GPU above"));
                return Exit::Failed;
            }
            print(format_args!("\nThe GPU path does not work: {error}\nThe CPU does: ocellus classify --device cpu"));
            return Exit::Failed;
        }
    };
    print("");
    match works {
        Works::Fully => print("The GPU path works: ocellus classify --device cuda"),
        Works::WithoutJpeg => {
            print(
                "The GPU runs networks, but the CPU decodes: install nvJPEG (CUDA toolkit, or the wheel nvidia-nvjpeg)",
            );
        }
        Works::Badly => {
            print("A self-test failed: update the driver and the CUDA toolkit, or use --device cpu");
            return Exit::Failed;
        }
    }
    Exit::Done
}

/// Where a library was looked for in vain, each folder once, with what the system's loader said of a file that is there.
fn places(error: &LoadError) -> Vec<String> {
    let LoadError::NotFound { tried, .. } = error else { return Vec::new() };
    let place = |Attempt { path, reason }: &Attempt| match (reason, path.parent()) {
        (Some(reason), _) if path.is_absolute() => format!("{}: {reason}", path.display()),
        (None, Some(folder)) => folder.display().to_string(),
        _ => "the folders of the system's loader (ldconfig, LD_LIBRARY_PATH)".into(),
    };
    let mut places: Vec<String> = tried.iter().map(place).collect();
    places.dedup();
    places
}

/// How well the GPU path works, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Works {
    Fully,
    WithoutJpeg,
    Badly,
}

/// Prints a line. Where nobody reads any more, the exit code still tells.
fn print(line: impl Display) {
    let _ = writeln!(io::stdout(), "{line}");
}

fn line(name: impl Display, what: impl Display) {
    print(format_args!("{:NAME_WIDTH$}  {what}", name.to_string()));
}

/// Prints a self-test's outcome; true where it passed.
fn tell(name: &str, outcome: Result<String, impl Display>) -> bool {
    match outcome {
        Ok(how) => {
            line(name, format_args!("ok{how}"));
            true
        }
        Err(error) => {
            line(name, format_args!("FAILED: {error}"));
            false
        }
    }
}

fn gpus(args: &DoctorArgs) -> Result<Works, JobError> {
    let count = Device::count()?;
    for ordinal in 0..count {
        let device = Device::open(ordinal)?;
        let (facts, (free, all)) = (device.facts(), device.memory_bytes()?);
        let gib = |bytes: usize| bytes as f64 / f64::from(1 << 30);
        line(
            format_args!("cuda:{ordinal}"),
            format_args!(
                "{}, compute capability {}.{}, {} multiprocessors, {:.1} of {:.1} GiB free, driver for CUDA {}.{}",
                facts.name,
                facts.arch.major,
                facts.arch.minor,
                facts.multiprocessors,
                gib(free),
                gib(all),
                facts.driver.0,
                facts.driver.1
            ),
        );
    }
    // Without what earlier runs left: the compiler is to be tried.
    let options = jit_options(CacheDir::None, Stop::default())?;
    let gpus = ordinals(args)?.into_iter().map(|ordinal| Gpu::open(ordinal, options.clone()));
    let gpus = gpus.collect::<Result<Vec<_>, _>>()?;
    let first = gpus.first().ok_or_else(|| KernelError::gpu("there is no GPU on this machine"))?;
    libraries(first);
    let mut works = Works::Fully;
    for gpu in &gpus {
        if gpus.len() > 1 {
            print(format_args!("\ncuda:{}", gpu.device.facts().ordinal));
        }
        works = works.max(try_gpu(gpu)?);
    }
    Ok(works)
}

/// Numbers of those that are tried.
fn ordinals(args: &DoctorArgs) -> Result<Vec<usize>, JobError> {
    args.device.as_ref().map_or_else(|| Ok(vec![args.gpu]), Gpus::ordinals)
}

/// What compiles and decodes.
fn libraries(gpu: &Gpu) {
    let (major, minor) = gpu.jit.version();
    line("NVRTC", format_args!("{major}.{minor}, compiles for {}", gpu.jit.arch()));
    if let Ok(version) = Nvjpeg::load().map_err(|e| e.to_string()).and_then(|n| n.version().map_err(|e| e.to_string()))
    {
        line("nvJPEG", format_args!("{}.{}.{}", version.0, version.1, version.2));
    }
}

/// Tries a GPU.
fn try_gpu(gpu: &Gpu) -> Result<Works, JobError> {
    let jpeg = Jpeg::new(gpu);
    if let Ok(jpeg) = &jpeg {
        let engines = jpeg.hardware().map_or_else(
            || "none that this program can use".into(),
            |info| format!("{} with {} decoder(s) each", info.engines, info.cores_per_engine),
        );
        line("JPEG engines", engines);
    }
    print("");
    let started = Instant::now();
    let kernel = run_a_kernel(gpu).map(|()| format!(", {:.0} ms", started.elapsed().as_secs_f64() * 1e3));
    let mut passed = tell("compile and run a kernel", kernel);
    let jpeg = match jpeg {
        Ok(jpeg) => jpeg,
        Err(error) => {
            line("decode", format_args!("not tried: {error}"));
            return Ok(if passed { Works::WithoutJpeg } else { Works::Badly });
        }
    };
    let mut bench = Bench::new(gpu, &jpeg)?;
    if jpeg.hardware().is_some() {
        passed &= tell("decode on the JPEG engines", bench.decode(JpegPath::Hardware));
    }
    passed &= tell("decode by CPU and GPU", bench.decode(JpegPath::Hybrid));
    match bench.engines_wait() {
        Ok(None) => {}
        Ok(Some(true)) => line("order of the JPEG engines", "they wait for their stream"),
        Ok(Some(false)) => {
            line("order of the JPEG engines", "they do not wait for their stream; Ocellus waits for them");
        }
        Err(error) => passed &= tell("order of the JPEG engines", Err(error)),
    }
    Ok(if passed { Works::Fully } else { Works::Badly })
}

/// What decoding is tried with.
struct Bench<'a> {
    gpu: &'a Gpu,
    stream: Stream,
    decoder: JpegDecoder,
    arena: PlaneArena,
}

impl<'a> Bench<'a> {
    fn new(gpu: &'a Gpu, jpeg: &Jpeg) -> Result<Self, KernelError> {
        let stream = Stream::new(&gpu.device, Priority::Low)?;
        let (decoder, arena) = (JpegDecoder::new(jpeg, &stream), PlaneArena::new(&stream)?);
        Ok(Self { gpu, stream, decoder, arena })
    }

    fn planes(&mut self) -> Result<Vec<Plane>, KernelError> {
        let desc = picture();
        let sizes: Vec<[usize; 2]> = (0..desc.planes()).map(|n| desc.plane_size(n)).collect();
        self.arena.begin(sizes.iter().map(|&[row, rows]| plane_bytes(row, rows)).sum())?;
        sizes.iter().map(|&[row, rows]| self.arena.plane(row, rows)).collect()
    }

    /// Decodes a picture, makes pixels of its planes, and compares them with the CPU's.
    fn decode(&mut self, path: JpegPath) -> Result<String, JobError> {
        let file = file(path)?;
        let planes = self.planes()?;
        let files = [JpegFile { bytes: &file, path, planes: &planes }];
        if self.decoder.decode(&self.arena, files)? != [Some(path)] {
            return Err(KernelError::gpu("the decoder refused a plain picture").into());
        }
        let picture = decode(&file, &DecodeOptions::default()).map_err(|e| KernelError::gpu(e.to_string()))?;
        let desc = as_it_is();
        let mut expected = vec![0.0; 3 * desc.width_px * desc.height_px];
        let (width, height) = (picture.width_px as usize, picture.height_px as usize);
        Preprocessor::new(desc.clone())?.run_f32(&picture.rgb, width, height, &mut expected)?;
        let got = self.pixels(desc, &planes, expected.len())?;
        let differences = got.iter().zip(&expected).map(|(a, b)| (a - b).abs());
        let (sum, largest) = differences.fold((0.0, 0.0_f32), |(sum, largest), d| (sum + d, largest.max(d)));
        let mean = sum / expected.len() as f32;
        if mean <= MEAN_DIFFERENCE && largest <= LARGEST_DIFFERENCE {
            return Ok(format!(", {mean:.2} of 255 from the CPU's pixels in the mean, {largest:.0} at most"));
        }
        Err(KernelError::gpu(format!("pixels differ from the CPU's by {mean:.1} in the mean, {largest:.0} at most"))
            .into())
    }

    /// The pixels of planes, as values of 0 to 255.
    fn pixels(&mut self, desc: PreprocessDesc, planes: &[Plane], len: usize) -> Result<Vec<f32>, KernelError> {
        let format = OutputFormat { dtype: DType::F32, layout: Layout::Nhwc, pitch: 3, step: 1.0 };
        let output = DeviceMemory::new(&self.stream, 4 * len)?;
        output.fill(0xff)?;
        let mut preprocess = GpuPreprocess::new(&self.stream, &self.gpu.jit, desc, format, 1)?;
        let mut device_planes = [DevicePlane::default(); 3];
        for (to, from) in device_planes.iter_mut().zip(planes) {
            *to = DevicePlane { address: from.address, pitch_bytes: from.pitch_bytes };
        }
        preprocess.enqueue(&[DevicePicture { desc: picture(), planes: device_planes }], &self.arena, (&output, 0))?;
        let mut bytes = vec![0; 4 * len];
        output.read(&mut bytes)?;
        Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    fn engines_wait(&mut self) -> Result<Option<bool>, JobError> {
        let file = file(JpegPath::Hardware)?;
        let planes = self.planes()?;
        let file = JpegFile { bytes: &file, path: JpegPath::Hardware, planes: &planes };
        Ok(self.decoder.engines_wait(&self.arena, &file)?)
    }
}

/// The picture that is decoded; progressive for the decoder that takes such.
fn file(path: JpegPath) -> Result<Vec<u8>, JobError> {
    let (width_px, height_px) = SIZE_PX;
    let desc = CorpusDesc { progressive: path == JpegPath::Hybrid, ..CorpusDesc::photos(width_px, height_px, 1) };
    Ok(corpus::make(&desc, &Cancel::default())?.swap_remove(0))
}

fn picture() -> PictureDesc {
    let (width, height) = SIZE_PX;
    PictureDesc {
        width_px: width.into(),
        height_px: height.into(),
        format: PixelFormat::Ycc(ChromaSampling::Y420),
        orientation: Orientation::Upright,
    }
}

/// Preprocessing that changes nothing but the type.
fn as_it_is() -> PreprocessDesc {
    PreprocessDesc {
        width_px: SIZE_PX.0.into(),
        height_px: SIZE_PX.1.into(),
        resize: ResizeRule::Stretch,
        filter: Filter::Nearest,
        antialias: false,
        matching: Match::Pillow,
        colour: ColourOrder::Rgb,
        mean: [0.0; 3],
        std: [1.0; 3],
        layout: Layout::Nhwc,
    }
}
