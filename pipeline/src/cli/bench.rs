//! `ocellus bench`.

mod args;
mod e2e;
mod job;
mod routed;
mod startup;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

pub(super) use args::BenchArgs;
use args::{
    AllArgs, CorpusArgs, DECODE_PICTURES, DecodeArgs, DecodeWay, InferArgs, LatencyArgs, Net, PreprocessArgs, What,
    count,
};
use comfy_table::{Cell, CellAlignment, Table, presets};
use e2e::E2eBench;
use ocellus_kernels::cuda::gpu::Gpu;
use ocellus_kernels::jit::{CacheDir, Stop};

use super::device::{GPU_BATCH, explained, jit_options};
use super::figures::{FiguresFile, STDOUT};
use super::job::find;
use super::{Exit, queues, say, signals};
use crate::bench::Measurement;
use crate::bench::corpus;
use crate::bench::decode::{self, DecodeDesc};
use crate::bench::infer::{self, InferDesc, name_of};
use crate::bench::latency;
use crate::bench::preprocess::{self, Output, PreprocessBench};
use crate::error::JobError;
use crate::frame::Decoder;
use crate::gpu::LOADERS;
use crate::model::load::Model;
use crate::single::{Classifier, DecodePath, Options};
use crate::stage::Cancel;

/// Batch sizes of the network and of preprocessing where nobody names any. A job's own is among them.
const INFER_BATCHES: [usize; 4] = [1, 32, GPU_BATCH, 256];
const PREPROCESS_BATCHES: [usize; 2] = [32, 256];

/// What a file of `--json` begins with.
const START: &[u8] = b"[\n  {\n    \"name\": ";

/// How the user ends it.
struct Signals {
    cancel: Cancel,
    compiling: Stop,
}

/// Measures and prints.
pub(super) fn run(args: &BenchArgs) -> Result<Exit, JobError> {
    if args.keeps_busy() {
        // Before there are other threads.
        queues::take();
    }
    let signals = Signals { cancel: Cancel::default(), compiling: Stop::default() };
    // Temporary files must not stay behind.
    signals::watch(signals.cancel.clone(), signals.compiling.clone())?;
    let measured = measure(args, &signals);
    // Whatever was stopped has an error of its own. A job that fails sets `cancel` as well.
    measured.map_err(|error| if signals.compiling.is_set() { JobError::Interrupted } else { error })
}

fn measure(args: &BenchArgs, signals: &Signals) -> Result<Exit, JobError> {
    if let Some(What::Startup(args)) = &args.what
        && args.one_round
    {
        return startup::round(args, signals);
    }
    let json = args.json().map(|path| FiguresFile::open("--json", path, START, &[Path::new(STDOUT)], &signals.cancel));
    let json = json.transpose()?;
    let measurements = match &args.what {
        None => all(&args.all, signals)?,
        Some(What::Infer(args)) => infer(args, signals)?,
        Some(What::Startup(args)) => startup::measure(args, signals)?,
        Some(What::Decode(args)) => vec![decode(args, signals)?],
        Some(What::Preprocess(args)) => preprocess(args, signals)?,
        Some(What::E2e(args)) => E2eBench::of(args)?.run(signals)?,
        Some(What::Latency(args)) => latency(args, signals)?,
        Some(What::Corpus(args)) => return corpus(args, signals),
    };
    // Where one of them fails the figures are still in the other.
    let printed = writeln!(io::stdout(), "{}", table(&measurements));
    let written = json.map_or(Ok(()), |file| file.write(&measurements));
    written.and(printed.map_err(|e| JobError::output("writing to the standard output", e)))?;
    Ok(Exit::Done)
}

/// One after the other, so that the whole can be seen beside its parts.
fn all(args: &AllArgs, signals: &Signals) -> Result<Vec<Measurement>, JobError> {
    let gpu = gpu(args.on.ordinal(), signals)?;
    let desc = InferDesc { precision: args.net.precision(), portable: false, batches: INFER_BATCHES.into() };
    let network = infer::measure(&gpu, &open(&args.net)?, &desc, &signals.cancel)?;
    let decoding = decode::measure(&gpu, &usual_decode(&gpu, args)?, &signals.cancel)?;
    let (width_px, height_px) = (args.kind.size.width_px, args.kind.size.height_px);
    let output = Output::usual(width_px, height_px);
    let bench = PreprocessBench { width_px, height_px, output, batches: PREPROCESS_BATCHES.into() };
    let preprocessing = preprocess::measure(&gpu, &bench, &signals.cancel)?;
    drop(gpu);
    let bound = e2e::slower(&decoding, &network);
    let whole = E2eBench::usual(&args.net, &args.on, args.kind).beside(bound).run(signals)?;
    Ok([network, vec![decoding], preprocessing, whole].concat())
}

/// Decoding as a job does it, on the engines where there are some.
fn usual_decode(gpu: &Gpu, args: &AllArgs) -> Result<DecodeDesc, JobError> {
    Ok(DecodeDesc {
        corpus: args.kind.corpus(count(DECODE_PICTURES)),
        batch: count(GPU_BATCH),
        workers: count(LOADERS),
        path: decode::usual_path(gpu)?,
    })
}

fn infer(args: &InferArgs, signals: &Signals) -> Result<Vec<Measurement>, JobError> {
    let model = open(&args.net)?;
    let batches = args.batch.iter().map(|n| n.get()).collect();
    let desc = InferDesc { precision: args.net.precision(), portable: args.portable, batches };
    infer::measure(&gpu(args.on.ordinal(), signals)?, &model, &desc, &signals.cancel)
}

fn decode(args: &DecodeArgs, signals: &Signals) -> Result<Measurement, JobError> {
    let path = match args.path {
        DecodeWay::Auto => return routed::measure(args, signals),
        DecodeWay::By(path) => path,
    };
    let desc = DecodeDesc { corpus: args.kind.corpus(args.pictures), batch: args.batch, workers: args.workers, path };
    decode::measure(&gpu(args.on.ordinal(), signals)?, &desc, &signals.cancel)
}

fn preprocess(args: &PreprocessArgs, signals: &Signals) -> Result<Vec<Measurement>, JobError> {
    let (width_px, height_px) = (args.size.width_px, args.size.height_px);
    let output = args.output.unwrap_or_else(|| Output::usual(width_px, height_px));
    let batches = args.batch.iter().map(|n| n.get()).collect();
    let bench = PreprocessBench { width_px, height_px, output, batches };
    preprocess::measure(&gpu(args.on.ordinal(), signals)?, &bench, &signals.cancel)
}

fn latency(args: &LatencyArgs, signals: &Signals) -> Result<Vec<Measurement>, JobError> {
    let spec = find(&args.net.model)?;
    let model = Model::open(&spec)?;
    let options = Options { precision: args.net.precision(), path: args.path, ..Options::default() };
    let mut classifier = Classifier::new(&gpu(args.on.ordinal(), signals)?, &model, &options)?;
    classifier.warnings().iter().for_each(|warning| say(format_args!("warning: {warning}")));
    let desc = args.kind.corpus(args.pictures);
    let files = corpus::make(&desc, &signals.cancel)?;
    let mut decoders = BTreeMap::<Decoder, u64>::new();
    let mut classify = |file| {
        let results = classifier.classify(file)?;
        let results = results.map_err(|error| JobError::io("classifying a picture", io::Error::other(error)))?;
        *decoders.entry(results.info.decoder).or_default() += 1;
        Ok(())
    };
    let name = latency_name(&model.name, name_of(args.net.precision()), args.path, &desc.name());
    let measured = latency::measure(&name, &files, args.runs.get(), &signals.cancel, &mut classify)?;
    say(job::decoded_by(&decoders));
    Ok(measured)
}

/// `latency.NET.PRECISION`, and what is not as usual.
fn latency_name(net: &str, precision: &str, path: DecodePath, corpus: &str) -> String {
    let path = match path {
        DecodePath::Auto => "",
        DecodePath::Engines => ".engines",
        DecodePath::Hybrid => ".hybrid",
        DecodePath::Cpu => ".cpu",
    };
    let corpus = if corpus == "500x375" { String::new() } else { format!(".{corpus}") };
    format!("latency.{net}.{precision}{path}{corpus}")
}

fn corpus(args: &CorpusArgs, signals: &Signals) -> Result<Exit, JobError> {
    let failed = |e| JobError::io(args.folder.display().to_string(), e);
    fs::create_dir_all(&args.folder).map_err(failed)?;
    if fs::read_dir(&args.folder).map_err(failed)?.next().is_some() {
        return Err(JobError::Usage(format!("{}: the folder is not empty; name a new one", args.folder.display())));
    }
    corpus::write(&args.kind.corpus(args.pictures), &args.folder, &signals.cancel)?;
    say(format_args!("{} files in {}", args.pictures, args.folder.display()));
    Ok(Exit::Done)
}

fn gpu(ordinal: usize, signals: &Signals) -> Result<Gpu, JobError> {
    let gpu = Gpu::open(ordinal, jit_options(CacheDir::Default, signals.compiling.clone())?);
    gpu.map_err(|error| explained(error.into()))
}

fn open(net: &Net) -> Result<Model, JobError> {
    let spec = find(&net.model)?;
    Ok(Model::read(&spec)?)
}

fn table(measurements: &[Measurement]) -> Table {
    let mut table = Table::new();
    let mut header = vec!["measurement", "median", "+-", "unit", "% of bound"];
    // Most have none.
    if measurements.iter().any(|m| !m.decoders_percent.is_empty()) {
        header.push("% decoded by");
    }
    table.load_style(presets::NOTHING).set_header(header);
    for m in measurements {
        let bound = m.bound_percent.map_or_else(String::new, |percent| format!("{percent:.0}"));
        let numbers = [format!("{:.3}", m.value), format!("{:.3}", m.spread / 2.0)];
        let [value, spread] = numbers.map(|n| Cell::new(n).set_alignment(CellAlignment::Right));
        let decoders: Vec<_> =
            m.decoders_percent.iter().map(|(name, percent)| format!("{name} {percent:.0}")).collect();
        let decoders = Cell::new(decoders.join(", "));
        table.add_row([Cell::new(&m.name), value, spread, Cell::new(m.unit), Cell::new(bound), decoders]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_begin_as_those_of_earlier_runs() {
        let measured = [Measurement::of("x".into(), "s", vec![1.0])];
        assert!(serde_json::to_string_pretty(&measured).unwrap().as_bytes().starts_with(START));
    }

    #[test]
    fn only_the_usual_has_the_short_name() {
        let name = |path, corpus| latency_name("net", "fp16", path, corpus);
        assert_eq!(name(DecodePath::Auto, "500x375"), "latency.net.fp16");
        assert_eq!(name(DecodePath::Cpu, "500x375"), "latency.net.fp16.cpu");
        assert_eq!(name(DecodePath::Auto, "1920x1080.q75"), "latency.net.fp16.1920x1080.q75");
    }
}
