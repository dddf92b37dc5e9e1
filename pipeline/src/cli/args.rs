//! Arguments and their help.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand};
use ocellus_kernels::jit::{Arch, worker};

use ocellus_kernels::cuda::lower::Precision;

use super::device::{Device, Gpus};
use super::job::{JobDesc, ModelDesc, RowOrder, find};
use crate::decode::DecodeOptions;
use crate::error::JobError;
use crate::sink::{Existing, Format};

// Lines of help are at most 80 characters long, or paragraphs that clap breaks where the terminal ends.
const FIRST_STEPS: &str = "\
First steps:
  ocellus classify photos   a folder of photos to labels
  ocellus doctor            whether there is a GPU to use, and what is missing
  ocellus help classify     all options, with examples";

/// Photos in, labels out.
#[derive(Debug, Parser)]
#[command(name = "ocellus", version, about, arg_required_else_help = true, after_help = FIRST_STEPS)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Say what is on photos
    Classify(Box<ClassifyArgs>),
    /// Run a job that a file describes, with one or several models
    Run(Box<super::run::RunArgs>),
    /// Say how far the results for your own files are from a reference
    Parity(Box<super::parity::ParityArgs>),
    /// Show a model's layers, shapes and costs
    Inspect(InspectArgs),
    /// List, fill or empty the cache of compiled GPU kernels
    Cache(CacheArgs),
    /// Say what this machine's GPU can do for Ocellus, and try it
    Doctor(DoctorArgs),
    /// Measure this machine
    Bench(Box<super::bench::BenchArgs>),
    /// Compile GPU kernels for the process that started this one
    #[command(name = worker::COMMAND, hide = true)]
    JitWorker,
}

const CLASSIFY_HELP: &str = "\
Examples:
  ocellus classify photos                         a folder, with all folders in it
  ocellus classify 'photos/**/*.jpg' --top 1      a pattern
  find . -name '*.png' | ocellus classify -       a list of paths, one a line
  camera | ocellus classify - --max-latency 20    rows soon, not only full batches
  ocellus classify photos -o labels.csv           into a file; also .jsonl, .parquet, .txt
  ocellus classify photos -o labels.csv --resume  go on, or add new photos
  ocellus classify photos --metrics 127.0.0.1:9464    figures for Prometheus
  ocellus classify photos --profile trace.json    for ui.perfetto.dev

What is logged can also be chosen by part, with OCELLUS_LOG or RUST_LOG: OCELLUS_LOG=ocellus::gpu=debug,info

Exit codes: 0 all done; 1 the job could not run to its end; 2 wrong usage, or a model card or job file that is not \
there, says what it may not or names what is not there; 3 done, but some items failed (their rows say why); 130 interrupted.";

#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
#[derive(Debug, Args)]
#[command(after_help = CLASSIFY_HELP)]
pub(super) struct ClassifyArgs {
    /// Files, folders (with everything below them), patterns, or - for a list of paths on standard input
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<OsString>,

    /// Model: a card (.toml), a network (.onnx), or the name of a card
    #[arg(long, value_name = "MODEL", default_value = crate::model::spec::DEFAULT_MODEL)]
    model: String,

    /// Where the network runs: cpu, cuda, cuda:N, several GPUs as cuda:0,cuda:1 or cuda:all, or auto, which is a GPU
    /// where there is one that can
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: Device,

    /// Arithmetic: fp32, tf32, fp16, bf16, or auto, which is fp16 on a GPU and fp32 on the CPU
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = parse_precision_or_auto)]
    precision: AutoPrecision,

    /// Images in one run of the network; up to 22 such batches are in a GPU's memory [default: 64 on a GPU; on the CPU 8, or the
    /// number of threads where that is more]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    batch: Option<u32>,

    /// Milliseconds from an image's arrival to its row, as far as waiting for others is to blame: a batch goes on with the
    /// images that are there before the first of them is late, and slow files hold up no others. A batch that fills goes on
    /// at once [default: batches are filled; for - on a GPU 5]
    #[arg(long, value_name = "MS", value_parser = parse_milliseconds)]
    max_latency: Option<Duration>,

    /// Order of the rows: that of the inputs, or that in which they are done, where none waits for a slower one
    #[arg(long, default_value = "input", value_parser = PossibleValuesParser::new(ORDERS).try_map(|name| parse_order(&name)))]
    order: RowOrder,

    /// Threads of decoding (with resizing), and as many of the network, but at most one a core; with a GPU those that read
    /// files and decode what it does not, at least 4 [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,

    /// Most classes reported for an image [default: the model's, or 5]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1000))]
    top: Option<u32>,

    /// Lowest score reported, 0 to 1 [default: the model's, or 0]
    #[arg(long, value_name = "SCORE", value_parser = parse_score)]
    threshold: Option<f32>,

    /// Format of the rows [default: by the name of -o; else a table on a terminal, JSON lines in a pipe]
    #[arg(long, value_parser = PossibleValuesParser::new(Format::NAMES).try_map(|name| name.parse::<Format>()))]
    format: Option<Format>,

    /// Write rows to this file. They go to FILE.partial, which gets this name when the job is complete
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace FILE if it exists
    #[arg(long, requires = "output", conflicts_with = "resume")]
    overwrite: bool,

    /// Keep the rows that FILE or FILE.partial holds, errors included, and add only what is missing. Give the same model
    /// and options as before: rows do not say by which they were made
    #[arg(long, requires = "output")]
    resume: bool,

    /// Stop at the first item that fails (exit code 1); its row and those before it are written
    #[arg(long)]
    fail_fast: bool,

    /// Truncated and damaged files are errors. Else what is there is decoded and the row says "partial". A GPU's decoders do
    /// not notice all damage that the CPU's does: add --device cpu where that matters
    #[arg(long)]
    strict: bool,

    /// Most pixels of a picture; larger ones are errors
    #[arg(long, value_name = "N", default_value_t = DecodeOptions::default().max_pixels)]
    max_pixels: u64,

    /// Most bytes of a file; larger ones are errors
    #[arg(long, value_name = "N", default_value_t = DecodeOptions::default().max_bytes)]
    max_bytes: u64,

    /// Colour under transparent pixels
    #[arg(long, value_name = "RRGGBB", default_value = "ffffff")]
    background: Colour,

    #[command(flatten)]
    pub(super) show: ShowArgs,
}

impl ClassifyArgs {
    /// What is to be done.
    pub(super) fn job(self) -> Result<JobDesc, JobError> {
        let model = ModelDesc {
            top: self.top.map(|n| n as usize),
            threshold: self.threshold,
            ..ModelDesc::new(find(&self.model)?, self.precision.0)
        };
        Ok(JobDesc {
            inputs: self.inputs,
            models: vec![model],
            device: self.device,
            batch: self.batch.map(|n| n as usize),
            threads: self.threads.map(|n| n as usize),
            order: self.order,
            max_latency: self.max_latency,
            decode: DecodeOptions {
                max_pixels: self.max_pixels,
                max_bytes: self.max_bytes,
                strict: self.strict,
                background: self.background.0,
            },
            output: self.output,
            format: self.format,
            existing: existing(self.overwrite, self.resume),
            fail_fast: self.fail_fast,
            show: self.show,
        })
    }
}

/// What a job shows of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(super) struct ShowArgs {
    /// Write figures about the job to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) stats: Option<PathBuf>,

    /// Serve figures about the job to Prometheus while it runs, under /metrics at this address; 127.0.0.1:0 takes any free port
    #[arg(long, value_name = "ADDR")]
    pub(super) metrics: Option<String>,

    /// Write what every thread and every stream of the GPU did when to this file, which ui.perfetto.dev opens: up to
    /// 4 million events, about 100 bytes each
    #[arg(long, value_name = "FILE")]
    pub(super) profile: Option<PathBuf>,

    /// No progress, no summary, no advice. Warnings about what decides the results stay: assumptions about a model without a
    /// card, and where it runs
    #[arg(short, long, conflicts_with = "verbose")]
    pub(super) quiet: bool,

    /// Also say what each stage did and how long images took, and log what happens; -vv logs more of it
    #[arg(short, long, action = ArgAction::Count)]
    pub(super) verbose: u8,
}

/// What two switches say together.
pub(super) fn existing(overwrite: bool, resume: bool) -> Existing {
    match (overwrite, resume) {
        (true, _) => Existing::Overwrite,
        (_, true) => Existing::Resume,
        _ => Existing::Refuse,
    }
}

/// The names of orders.
const ORDERS: [&str; 2] = ["input", "completion"];

pub(super) fn parse_order(name: &str) -> Result<RowOrder, String> {
    match name {
        "input" => Ok(RowOrder::Input),
        "completion" => Ok(RowOrder::Completion),
        _ => Err(format!("no order \"{name}\"; there are {}", ORDERS.join(", "))),
    }
}

/// A name of arithmetic.
pub(super) fn parse_precision(name: &str) -> Result<Precision, String> {
    match name {
        "fp32" => Ok(Precision::Fp32),
        "tf32" => Ok(Precision::Tf32),
        "fp16" => Ok(Precision::Fp16),
        "bf16" => Ok(Precision::Bf16),
        _ => Err("fp32, tf32, fp16 or bf16".into()),
    }
}

/// Arithmetic, or what fits the device. A type of its own: an `Option` would make the argument optional.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AutoPrecision(pub(super) Option<Precision>);

pub(super) fn parse_precision_or_auto(name: &str) -> Result<AutoPrecision, String> {
    if name == "auto" {
        return Ok(AutoPrecision(None));
    }
    let precision = parse_precision(name).map_err(|names| format!("auto, {names}"))?;
    Ok(AutoPrecision(Some(precision)))
}

const INSPECT_HELP: &str = "\
Examples:
  ocellus inspect efficientnet-lite0              a model by the name of its card
  ocellus inspect net.onnx --json | jq .layers    your own network, as JSON";

const DOCTOR_HELP: &str = "\
Prints the libraries that were found and where, the GPUs, and what came of trying them: compiling and running a kernel, \
decoding on the JPEG engines and by CPU and GPU together.

Examples:
  ocellus doctor            the first GPU
  ocellus doctor --gpu 1    the second
  ocellus doctor --device cuda:all

Exit codes: 0 the GPU path works; 1 it does not, and the last line says what to do.";

#[derive(Debug, Args)]
#[command(after_help = DOCTOR_HELP)]
pub(super) struct DoctorArgs {
    /// Number of the GPU that is tried
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) gpu: usize,

    /// GPUs that are tried, several as cuda:0,cuda:1 or cuda:all
    #[arg(long, value_name = "DEVICE", conflicts_with = "gpu")]
    pub(super) device: Option<Gpus>,
}

#[derive(Debug, Args)]
#[command(after_help = INSPECT_HELP)]
pub(super) struct InspectArgs {
    /// Model: a card (.toml), a network (.onnx), or the name of a card
    #[arg(value_name = "MODEL")]
    pub(super) model: String,

    /// Images in one run of the network
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) batch: u32,

    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

const CACHE_HELP: &str = "\
GPU kernels are compiled when they are first needed and kept in $OCELLUS_CACHE_DIR, else in \
$XDG_CACHE_HOME/ocellus, else in ~/.cache/ocellus. They depend on the GPU's architecture, not on the GPU, so that an image for many machines \
can carry them.

Examples:
  ocellus cache list                                  what is there
  ocellus cache warm --arch 9.0                       for H100 and H200
  ocellus cache warm --model net.onnx --arch 8.0,8.9  for A100 and L4
  ocellus cache clear                                 everything goes";

#[derive(Debug, Args)]
#[command(after_help = CACHE_HELP)]
pub(super) struct CacheArgs {
    #[command(subcommand)]
    pub(super) command: CacheCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum CacheCommand {
    /// Show the folder and what it holds, by architecture and source file
    List,
    /// Compile the kernels of a model, so that its first start is a fast one
    Warm(WarmArgs),
    /// Remove all compiled kernels; the next start compiles what it needs
    Clear,
}

#[derive(Debug, Args)]
pub(super) struct WarmArgs {
    /// Model: a card (.toml), a network (.onnx), or the name of a card
    #[arg(long, value_name = "MODEL", default_value = crate::model::spec::DEFAULT_MODEL)]
    pub(super) model: String,

    /// Architectures by compute capability: 8.0 (A100), 8.6 (A10, RTX 30), 8.9 (L4, RTX 40), 9.0 (H100, H200); or by
    /// NVIDIA's names. `ocellus doctor` shows that of this machine's GPU
    #[arg(long, value_name = "ARCH", required = true, value_delimiter = ',')]
    pub(super) arch: Vec<Arch>,
}

/// Red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Colour(pub(super) [u8; 3]);

impl FromStr for Colour {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix('#').unwrap_or(text);
        let valid = digits.len() == 6 && digits.bytes().all(|c| c.is_ascii_hexdigit());
        let value = u32::from_str_radix(digits, 16).ok().filter(|_| valid);
        let [_, rgb @ ..] = value.ok_or("give six hexadecimal digits, as in ff8000")?.to_be_bytes();
        Ok(Self(rgb))
    }
}

pub(super) fn parse_milliseconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|ms| (0.0..=3.6e6).contains(ms)).map(|ms| ms / 1e3);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| "give milliseconds, 0 to 3600000".into())
}

pub(super) fn parse_score(text: &str) -> Result<f32, String> {
    match text.parse() {
        Ok(score) if (0.0..=1.0).contains(&score) => Ok(score),
        _ => Err("give a number from 0 to 1".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn values_are_checked() {
        assert_eq!("#Ff8000".parse(), Ok(Colour([255, 128, 0])));
        for bad in ["", "fff", "ff80000", "+f8000", "gg0000", "é1234"] {
            assert!(bad.parse::<Colour>().is_err(), "{bad}");
        }
        assert_eq!(parse_precision_or_auto("auto"), Ok(AutoPrecision(None)));
        assert_eq!(parse_precision_or_auto("bf16"), Ok(AutoPrecision(Some(Precision::Bf16))));
        assert!(parse_precision_or_auto("int8").unwrap_err().contains("auto"));
        assert_eq!(parse_milliseconds("2.5"), Ok(Duration::from_micros(2500)));
        for bad in ["-1", "3600001", "5ms", "NaN", ""] {
            assert!(parse_milliseconds(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_score("0.25"), Ok(0.25));
        for bad in ["-0.1", "1.1", "NaN", "inf", ""] {
            assert!(parse_score(bad).is_err(), "{bad}");
        }
    }
}
