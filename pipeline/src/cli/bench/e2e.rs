//! `ocellus bench e2e`: the stages of `ocellus classify`, fed with the same files again and again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::available_parallelism;
use std::time::Instant;
use std::{env, io};

use ocellus_kernels::KernelError;
use ocellus_kernels::jit::Stop;
use tempfile::TempDir;

use super::args::E2eArgs;
use super::gpu;
use crate::bench::corpus::{self, CorpusDesc};
use crate::bench::infer::name_of;
use crate::bench::{Measurement, SteadyRate};
use crate::cli::stages::{Stages, classify_desc};
use crate::cli::stats::stage_lines;
use crate::cli::{say, signals};
use crate::decode::DecodeOptions;
use crate::error::JobError;
use crate::gpu::{Lane, LaneOptions};
use crate::model::load::Model;
use crate::model::spec::ModelSpec;
use crate::postprocess::ClassifyRanked;
use crate::runner::Report;
use crate::source::Found;
use crate::stage::Cancel;

/// A folder in memory, on Linux.
const MEMORY_FOLDER: &str = "/dev/shm";

/// Measures and says which stage is the slowest.
pub(super) fn run(args: &E2eArgs) -> Result<Measurement, JobError> {
    let spec = ModelSpec::resolve(&args.net.model).map_err(|e| JobError::Usage(e.to_string()))?;
    let model = Model::open(&spec)?;
    let classify = classify_desc(&model, model.card.output.top, None);
    let precision = args.net.precision;
    let options = LaneOptions { precision, batch: args.batch, ranks: ClassifyRanked::ranks(&classify) };
    let lane = Lane::new(gpu(&args.on)?, &model, &options)?;
    lane.warnings().iter().for_each(|warning| say(format_args!("warning: {warning}")));
    let cancel = Cancel::default();
    // The files must not stay behind; the kernels are compiled.
    signals::watch(cancel.clone(), Stop::default())?;
    let (width_px, height_px) = (args.size.width_px, args.size.height_px);
    let (_folder, paths) = write(&CorpusDesc::photos(width_px, height_px, args.pictures.get()))?;

    let stages = Stages {
        model: &model,
        decode: DecodeOptions::default(),
        classify,
        threads: available_parallelism().map_or(1, usize::from),
        cancel: cancel.clone(),
        split: Arc::default(),
    };
    let again_and_again = (0..).zip(paths.into_iter().cycle());
    let items = again_and_again.map(|(id, path)| Found { path, error: None }.into_item(id));
    let pipeline = stages.on_gpu(items, lane)?;
    let mut rate = SteadyRate::default();
    let mut decoders = BTreeMap::<String, u64>::new();
    let outcome = pipeline.run(|item| {
        let results = item.payload.map_err(|error| KernelError::gpu(format!("a picture failed: {error}")))?;
        *decoders.entry(results.info.decoder.to_string()).or_default() += 1;
        if rate.rates().len() < args.seconds.get() {
            rate.count(Instant::now());
        } else {
            cancel.set();
        }
        Ok(())
    });
    match outcome.end {
        // The end of an endless source.
        Ok(()) | Err(JobError::Interrupted) if rate.rates().len() == args.seconds.get() => {}
        end => return Err(end.err().unwrap_or(JobError::Interrupted)),
    }
    explain(&outcome.report, &decoders, &stages.split);
    let name = format!("e2e.{}.{}.{width_px}x{height_px}", model.name, name_of(precision));
    Ok(Measurement::of(name, "img/s", rate.rates().to_vec()))
}

/// Writes the files where reading them costs least: to memory, or else, where the page cache keeps them, to a disk.
fn write(desc: &CorpusDesc) -> Result<(TempDir, Vec<PathBuf>), JobError> {
    let write = |parent: &Path| {
        let failed = |e: io::Error| JobError::io(format!("cannot make a folder in {}", parent.display()), e);
        let folder = tempfile::Builder::new().prefix("ocellus-bench-").tempdir_in(parent).map_err(failed)?;
        let paths = corpus::write(desc, folder.path())?;
        Ok((folder, paths))
    };
    match write(Path::new(MEMORY_FOLDER)) {
        Err(JobError::Io { .. }) => write(&env::temp_dir()),
        written => written,
    }
}

/// Says where the time went.
fn explain(report: &Report, decoders: &BTreeMap<String, u64>, split: &AtomicU64) {
    stage_lines(report).iter().for_each(say);
    let decoders: Vec<_> = decoders.iter().map(|(decoder, images)| format!("{decoder} {images}")).collect();
    say(format_args!("decoded by: {}", decoders.join(", ")));
    let split = split.load(Relaxed);
    if split > 0 {
        say(format_args!("warning: the GPU had no memory for {split} batches at once"));
    }
    let busiest = report.stages.iter().max_by(|a, b| a.busy_share.total_cmp(&b.busy_share));
    if let Some(stage) = busiest {
        say(format_args!("the bound: {}, busy {:.0} % of its threads' time", stage.stage, 100.0 * stage.busy_share));
    }
}
