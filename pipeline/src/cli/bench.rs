//! `ocellus bench`.

mod args;
mod e2e;

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Instant;

pub(super) use args::BenchArgs;
use args::{CorpusArgs, DecodeArgs, InferArgs, Net, On, PreprocessArgs, StartupArgs, What};
use comfy_table::{Cell, CellAlignment, Table, presets};
use ocellus_kernels::cuda::engine::{CudaEngine, EngineOptions};
use ocellus_kernels::cuda::gpu::Gpu;
use ocellus_kernels::jit::{CacheDir, Stop};

use super::Exit;
use super::device::jit_options;
use crate::bench::Measurement;
use crate::bench::corpus::{self, CorpusDesc};
use crate::bench::decode::{self, DecodeDesc};
use crate::bench::infer::{self, InferDesc, name_of};
use crate::bench::preprocess::{self, Output, PreprocessBench};
use crate::error::JobError;
use crate::model::load::Model;
use crate::model::spec::ModelSpec;

/// Measures and prints.
pub(super) fn run(args: &BenchArgs) -> Result<Exit, JobError> {
    let (on, measurements) = match &args.what {
        What::Infer(args) => (&args.on, infer(args)?),
        What::Startup(args) => (&args.on, startup(args)?),
        What::Decode(args) => (&args.on, vec![decode(args)?]),
        What::Preprocess(args) => (&args.on, preprocess(args)?),
        What::E2e(args) => (&args.on, vec![e2e::run(args)?]),
        What::Corpus(args) => return corpus(args),
    };
    if let Some(file) = &on.json {
        write(file, &measurements)?;
    }
    let failed = |e| JobError::io("writing to the standard output", e);
    writeln!(io::stdout(), "{}", table(&measurements)).map_err(failed)?;
    Ok(Exit::Done)
}

fn infer(args: &InferArgs) -> Result<Vec<Measurement>, JobError> {
    let model = open(&args.net)?;
    let batches = args.batch.iter().map(|n| n.get()).collect();
    let desc = InferDesc { precision: args.net.precision, portable: args.portable, batches };
    infer::measure(&gpu(&args.on)?, &model, &desc)
}

/// From the file to a network that can run: with an empty cache of kernels, then with what that left in it.
fn startup(args: &StartupArgs) -> Result<Vec<Measurement>, JobError> {
    let folder = tempfile::tempdir().map_err(|e| JobError::io("making a temporary folder", e))?;
    let (precision, batch) = (args.net.precision, args.batch.get());
    let mut measurements = Vec::new();
    for state in ["cold", "warm"] {
        let started = Instant::now();
        let model = open(&args.net)?;
        let gpu = Gpu::open(args.on.gpu, jit_options(CacheDir::At(folder.path().to_owned()), Stop::default())?)?;
        let options = EngineOptions { precision, portable: false, batches: vec![batch] };
        let plan = model.plan(batch)?;
        CudaEngine::new(&gpu.device, &gpu.jit, Box::new(move |_| Ok(plan.clone())), &options)?;
        let name = format!("startup.{}.{}.{state}", model.name, name_of(precision));
        measurements.push(Measurement::of(name, "s", vec![started.elapsed().as_secs_f64()]));
    }
    Ok(measurements)
}

fn decode(args: &DecodeArgs) -> Result<Measurement, JobError> {
    let desc = DecodeDesc {
        width_px: args.size.width_px,
        height_px: args.size.height_px,
        pictures: args.pictures,
        batch: args.batch,
        workers: args.workers,
        path: args.path,
    };
    decode::measure(&gpu(&args.on)?, &desc)
}

fn preprocess(args: &PreprocessArgs) -> Result<Vec<Measurement>, JobError> {
    let (width_px, height_px) = (args.size.width_px, args.size.height_px);
    let output = args.output.unwrap_or_else(|| Output::usual(width_px, height_px));
    let batches = args.batch.iter().map(|n| n.get()).collect();
    preprocess::measure(&gpu(&args.on)?, &PreprocessBench { width_px, height_px, output, batches })
}

fn corpus(args: &CorpusArgs) -> Result<Exit, JobError> {
    let failed = |e| JobError::io(args.folder.display().to_string(), e);
    fs::create_dir_all(&args.folder).map_err(failed)?;
    if fs::read_dir(&args.folder).map_err(failed)?.next().is_some() {
        return Err(JobError::Usage(format!("{}: the folder is not empty; name a new one", args.folder.display())));
    }
    corpus::write(&CorpusDesc::photos(args.size.width_px, args.size.height_px, args.pictures.get()), &args.folder)?;
    Ok(Exit::Done)
}

fn gpu(on: &On) -> Result<Gpu, JobError> {
    Ok(Gpu::open(on.gpu, jit_options(CacheDir::Default, Stop::default())?)?)
}

fn open(net: &Net) -> Result<Model, JobError> {
    let spec = ModelSpec::resolve(&net.model).map_err(|e| JobError::Usage(e.to_string()))?;
    Ok(Model::read(&spec)?)
}

fn table(measurements: &[Measurement]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["measurement", "median", "+-", "unit", "% of bound"]);
    for m in measurements {
        let bound = m.bound_percent.map_or_else(String::new, |percent| format!("{percent:.0}"));
        let numbers = [format!("{:.3}", m.value), format!("{:.3}", m.spread / 2.0)];
        let [value, spread] = numbers.map(|n| Cell::new(n).set_alignment(CellAlignment::Right));
        table.add_row([Cell::new(&m.name), value, spread, Cell::new(m.unit), Cell::new(bound)]);
    }
    table
}

fn write(file: &Path, measurements: &[Measurement]) -> Result<(), JobError> {
    let failed = |error| JobError::io(file.display().to_string(), error);
    let json = serde_json::to_string_pretty(measurements).map_err(|e| failed(e.into()))?;
    fs::write(file, json + "\n").map_err(failed)
}
