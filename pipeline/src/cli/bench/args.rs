//! Arguments of `ocellus bench` and their help.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use ocellus_kernels::cuda::jpeg::JpegPath;
use ocellus_kernels::cuda::lower::Precision;

use crate::bench::corpus::{CorpusDesc, Sampling};
use crate::bench::preprocess::Output;
use crate::cli::args::parse_precision;
use crate::cli::device::{GPU_BATCH, Gpus, only_fp32};
use crate::error::JobError;
use crate::gpu::LOADERS;
use crate::single::DecodePath;

/// Largest numbers that are taken.
const BATCH: usize = 4096;
const PICTURES: usize = 1_000_000;
const WORKERS: usize = 64;
const SECONDS: usize = 3600;
const RUNS: usize = 1_000_000;

/// Different files that decoding is measured with where nobody says.
pub(super) const DECODE_PICTURES: usize = 1024;
/// Seconds that a job is measured where nobody says.
pub(super) const E2E_SECONDS: usize = 8;

const BENCH_HELP: &str = "\
Examples:
  ocellus bench                                       infer, decode, preprocess, e2e
  ocellus bench infer --model net.onnx --batch 1,256  the network alone
  ocellus bench startup --json startup.json           from nothing to ready
  ocellus bench decode --size 1920x1080               JPEG files to planes
  ocellus bench decode --path auto                    the same as a job does it
  ocellus bench decode --quality 75 --sampling 444    of another kind
  ocellus bench preprocess --batch 256                planes to network input
  ocellus bench e2e --size 1280x720 --bound           JPEG files to labels
  ocellus bench e2e --device cpu                      the same without a GPU
  ocellus bench latency --path hybrid                 one file at a time
  ocellus bench corpus pictures                       the files, for others

Pictures are made up, the same ones on every machine, and about as hard to decode as photos (quality 90, 4:2:0). All but \
corpus and e2e --device cpu need a GPU; ocellus doctor says whether it works.";

/// Measures this machine.
#[derive(Debug, Args)]
#[command(after_help = BENCH_HELP, args_conflicts_with_subcommands = true)]
pub(in crate::cli) struct BenchArgs {
    #[command(subcommand)]
    pub(super) what: Option<What>,

    #[command(flatten)]
    pub(super) all: AllArgs,
}

/// Everything that an accelerated job consists of.
#[derive(Debug, Args)]
pub(super) struct AllArgs {
    #[command(flatten)]
    pub(super) net: Net,

    #[command(flatten)]
    pub(super) on: On,

    #[command(flatten)]
    pub(super) kind: Kind,
}

impl BenchArgs {
    /// Whether the GPU is kept busy as by a long job, for which all queues are taken: not where the start is measured, or what
    /// waits for one file.
    pub(super) fn keeps_busy(&self) -> bool {
        !matches!(self.what, Some(What::Startup(_) | What::Latency(_) | What::Corpus(_)))
    }

    /// Where figures go beside the table.
    pub(super) fn json(&self) -> Option<&Path> {
        let on = match &self.what {
            None => &self.all.on,
            Some(What::Infer(args)) => &args.on,
            Some(What::Startup(args)) => &args.on,
            Some(What::Decode(args)) => &args.on,
            Some(What::Preprocess(args)) => &args.on,
            Some(What::E2e(args)) => &args.on,
            Some(What::Latency(args)) => &args.on,
            Some(What::Corpus(_)) => return None,
        };
        on.json.as_deref()
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// The network alone, its input already on the GPU
    Infer(InferArgs),
    /// The time until the network is ready to run, and until the first picture is decoded
    Startup(StartupArgs),
    /// JPEG files in memory to planes on the GPU
    Decode(DecodeArgs),
    /// Planes on the GPU to the network's input
    Preprocess(PreprocessArgs),
    /// Everything: JPEG files in the page cache to labels
    E2e(E2eArgs),
    /// One JPEG file at a time, from memory to labels, and how long it takes
    Latency(LatencyArgs),
    /// Write the JPEG files that the others measure with
    Corpus(CorpusArgs),
}

#[derive(Debug, Args)]
pub(super) struct On {
    /// Number of the GPU [default: 0]
    #[arg(long, value_name = "N")]
    pub(super) gpu: Option<usize>,

    /// Write the figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}

impl On {
    /// The GPU's number.
    pub(super) fn ordinal(&self) -> usize {
        self.gpu.unwrap_or(0)
    }
}

/// What pictures are made.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Kind {
    /// Width and height of the pictures
    #[arg(long, value_name = "WxH", default_value = "500x375")]
    pub(super) size: Size,

    /// Quality of the files; another than 90 becomes part of the names
    #[arg(long, value_name = "1..100", default_value_t = CorpusDesc::QUALITY, value_parser = clap::value_parser!(u8).range(1..=100))]
    quality: u8,

    /// Sampling of their colours; another than 420 becomes part of the names
    #[arg(long, default_value = "420", value_parser = sampling_parser())]
    sampling: Sampling,

    /// Other pictures for every number
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

impl Kind {
    /// So many of them.
    pub(super) fn corpus(&self, pictures: NonZeroUsize) -> CorpusDesc {
        let Self { size, quality, sampling, seed } = *self;
        CorpusDesc { quality, sampling, seed, ..CorpusDesc::photos(size.width_px, size.height_px, pictures.get()) }
    }
}

#[derive(Debug, Args)]
pub(super) struct Net {
    /// Model: a card (.toml), a network (.onnx), or the name of a card
    #[arg(long, value_name = "MODEL", default_value = crate::model::spec::DEFAULT_MODEL)]
    pub(super) model: String,

    /// Arithmetic: fp32, tf32, fp16 or bf16 [default: fp16]
    #[arg(long, value_name = "NAME", value_parser = parse_precision)]
    pub(super) precision: Option<Precision>,
}

impl Net {
    /// Arithmetic on a GPU.
    pub(super) fn precision(&self) -> Precision {
        self.precision.unwrap_or(Precision::Fp16)
    }
}

#[derive(Debug, Args)]
pub(super) struct InferArgs {
    #[command(flatten)]
    pub(super) net: Net,

    #[command(flatten)]
    pub(super) on: On,

    /// Batch sizes
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,32,256", value_parser = up_to::<BATCH>)]
    pub(super) batch: Vec<NonZeroUsize>,

    /// Only kernels that run on every architecture
    #[arg(long)]
    pub(super) portable: bool,
}

#[derive(Debug, Args)]
pub(super) struct StartupArgs {
    #[command(flatten)]
    pub(super) net: Net,

    #[command(flatten)]
    pub(super) on: On,

    /// Batch size
    #[arg(long, value_name = "N", default_value_t = count(GPU_BATCH), value_parser = up_to::<BATCH>)]
    pub(super) batch: NonZeroUsize,

    /// For the process that measures: start once and say how long it took
    #[arg(long, hide = true)]
    pub(super) one_round: bool,
}

#[derive(Debug, Args)]
pub(super) struct DecodeArgs {
    #[command(flatten)]
    pub(super) on: On,

    #[command(flatten)]
    pub(super) kind: Kind,

    /// Different pictures, which are decoded again and again
    #[arg(long, value_name = "N", default_value_t = count(DECODE_PICTURES), value_parser = up_to::<PICTURES>)]
    pub(super) pictures: NonZeroUsize,

    /// Most pictures in a batch; the JPEG engines get a multiple of their number
    #[arg(long, value_name = "N", default_value_t = count(GPU_BATCH), value_parser = up_to::<BATCH>)]
    pub(super) batch: NonZeroUsize,

    /// Threads that decode batches at the same time
    #[arg(long, value_name = "N", default_value_t = count(LOADERS), value_parser = up_to::<WORKERS>)]
    pub(super) workers: NonZeroUsize,

    /// Who decodes: the JPEG engines (hw), or the CPU and the GPU's cores together (hybrid), each from memory; or, from files in
    /// the page cache, whoever a job sends them to (auto)
    #[arg(long, default_value = "hw", value_parser = path_parser())]
    pub(super) path: DecodeWay,
}

#[derive(Debug, Args)]
pub(super) struct PreprocessArgs {
    #[command(flatten)]
    pub(super) on: On,

    /// Width and height of the pictures
    #[arg(long, value_name = "WxH", default_value = "500x375")]
    pub(super) size: Size,

    /// Side of the network's input: 224 (the centre, as classifiers want it) or 640 (the whole, as detectors do)
    /// [default: 640 for pictures that are larger than that, else 224]
    #[arg(long, value_parser = output_parser())]
    pub(super) output: Option<Output>,

    /// Batch sizes
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "32,256", value_parser = up_to::<BATCH>)]
    pub(super) batch: Vec<NonZeroUsize>,
}

#[derive(Debug, Args)]
pub(super) struct E2eArgs {
    #[command(flatten)]
    pub(super) net: Net,

    #[command(flatten)]
    pub(super) on: On,

    #[command(flatten)]
    pub(super) kind: Kind,

    /// Where everything runs: on the GPU that --gpu names (cuda), on those named here (cuda:0,cuda:1 or cuda:all), or on the
    /// CPU, in fp32
    #[arg(long, value_name = "DEVICE", default_value = "cuda")]
    pub(super) device: Place,

    /// Most images in one run of the network [default: 64 on a GPU; on the CPU 8, or the number of threads where that is more]
    #[arg(long, value_name = "N", value_parser = up_to::<BATCH>)]
    pub(super) batch: Option<NonZeroUsize>,

    /// Different pictures, which are read again and again [default: 4096; on the CPU 256]
    #[arg(long, value_name = "N", value_parser = up_to::<PICTURES>)]
    pub(super) pictures: Option<NonZeroUsize>,

    /// Seconds that are measured, after three that are not
    #[arg(long, value_name = "N", default_value_t = count(E2E_SECONDS), value_parser = up_to::<SECONDS>)]
    pub(super) seconds: NonZeroUsize,

    /// Measure the stages alone first, which bound it: the slower of decoding and the network; on the CPU, where it is always
    /// done, all of them one after another
    #[arg(long)]
    pub(super) bound: bool,

    /// Write a trace of the job to this file as well, as classify does, which costs a little: the names end in .profiled
    #[arg(long, value_name = "FILE")]
    pub(super) profile: Option<PathBuf>,
}

impl E2eArgs {
    /// # Errors
    /// Where one option leaves another without effect.
    pub(super) fn check(&self) -> Result<(), JobError> {
        if self.on.gpu.is_some() && self.device != Place::Gpu(None) {
            return Err(JobError::Usage("--gpu: --device says where the job runs; give one of the two".into()));
        }
        match self.net.precision {
            Some(precision) if self.device == Place::Cpu && precision != Precision::Fp32 => Err(only_fp32()),
            _ => Ok(()),
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct LatencyArgs {
    #[command(flatten)]
    pub(super) net: Net,

    #[command(flatten)]
    pub(super) on: On,

    #[command(flatten)]
    pub(super) kind: Kind,

    /// Who decodes: the CPU where the picture is small and else the GPU (auto), the JPEG engines (engines), CPU and GPU
    /// together (hybrid), or the CPU (cpu). Another than auto becomes part of the names
    #[arg(long, default_value = "auto", value_parser = decode_path_parser())]
    pub(super) path: DecodePath,

    /// Files that are measured, after some that are not
    #[arg(long, value_name = "N", default_value_t = count(2000), value_parser = up_to::<RUNS>)]
    pub(super) runs: NonZeroUsize,

    /// Different pictures, which are taken again and again
    #[arg(long, value_name = "N", default_value_t = count(256), value_parser = up_to::<PICTURES>)]
    pub(super) pictures: NonZeroUsize,
}

#[derive(Debug, Args)]
pub(super) struct CorpusArgs {
    #[command(flatten)]
    pub(super) kind: Kind,

    /// Pictures
    #[arg(long, value_name = "N", default_value_t = count(256), value_parser = up_to::<PICTURES>)]
    pub(super) pictures: NonZeroUsize,

    /// Folder that they are written to; made where it does not exist, else it must be empty
    #[arg(value_name = "FOLDER")]
    pub(super) folder: PathBuf,
}

/// Who decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecodeWay {
    /// Whoever a job sends a file to.
    Auto,
    /// One of the decoders.
    By(JpegPath),
}

/// Where a job runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// `None` is the one that `--gpu` names.
    Gpu(Option<Gpus>),
    Cpu,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Gpu(None)),
            _ => text.parse().map(|gpus| Self::Gpu(Some(gpus))).map_err(|why: String| format!("{why}, or cpu")),
        }
    }
}

/// Width and height of pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) width_px: u16,
    pub(super) height_px: u16,
}

/// Sides of pictures that a GPU is given to decode.
const SIDES_PX: std::ops::RangeInclusive<u16> = 16..=16_384;

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let side = |text: &str| text.parse().ok().filter(|side| SIDES_PX.contains(side));
        let size = text.split_once('x').and_then(|(width, height)| Some((side(width)?, side(height)?)));
        let (width_px, height_px) = size
            .ok_or_else(|| format!("give two numbers of {} to {}, as in 500x375", SIDES_PX.start(), SIDES_PX.end()))?;
        Ok(Self { width_px, height_px })
    }
}

/// A number of things.
fn up_to<const MOST: usize>(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse().ok().filter(|n: &NonZeroUsize| n.get() <= MOST);
    number.ok_or_else(|| format!("give a number of 1 to {MOST}"))
}

/// Defaults are never 0.
pub(super) fn count(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN)
}

fn sampling_parser() -> impl TypedValueParser<Value = Sampling> {
    PossibleValuesParser::new(["444", "422", "420", "gray"]).map(|name| match name.as_str() {
        "444" => Sampling::Y444,
        "422" => Sampling::Y422,
        "gray" => Sampling::Gray,
        _ => Sampling::Y420,
    })
}

fn decode_path_parser() -> impl TypedValueParser<Value = DecodePath> {
    PossibleValuesParser::new(["auto", "engines", "hybrid", "cpu"]).map(|name| match name.as_str() {
        "engines" => DecodePath::Engines,
        "hybrid" => DecodePath::Hybrid,
        "cpu" => DecodePath::Cpu,
        _ => DecodePath::Auto,
    })
}

fn path_parser() -> impl TypedValueParser<Value = DecodeWay> {
    PossibleValuesParser::new(["auto", "hw", "hybrid"]).map(|name| match name.as_str() {
        "hw" => DecodeWay::By(JpegPath::Hardware),
        "hybrid" => DecodeWay::By(JpegPath::Hybrid),
        _ => DecodeWay::Auto,
    })
}

fn output_parser() -> impl TypedValueParser<Value = Output> {
    PossibleValuesParser::new(["224", "640"])
        .map(|side| if side == "224" { Output::Classifier } else { Output::Detector })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_bounded() {
        assert_eq!(up_to::<5>("5").map(NonZeroUsize::get), Ok(5));
        for bad in ["0", "6", "", "-1", "18446744073709551616"] {
            assert!(up_to::<5>(bad).unwrap_err().contains("1 to 5"), "{bad}");
        }
    }

    #[test]
    fn sizes_are_two_numbers() {
        assert_eq!("500x375".parse(), Ok(Size { width_px: 500, height_px: 375 }));
        for bad in ["", "500", "500x", "x375", "500x375x3", "15x16", "16x16385", "-5x16", "500X375"] {
            assert!(bad.parse::<Size>().unwrap_err().contains("500x375"), "{bad}");
        }
    }
}
