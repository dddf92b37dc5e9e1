//! Runs a job: `ocellus classify` and `ocellus run`.

use std::io::{self, IsTerminal, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use ocellus_kernels::jit::Stop;
use tracing::info;

use super::device::{Backend, Chosen, Device, Gpus, choose};
use super::figures::{FiguresFile, Profile, STDOUT};
use super::job::{JobDesc, blame_the_job, nothing_found};
use super::log::Log;
use super::metrics::{self, Facts, Metrics, Page};
use super::progress::Progress;
use super::stages::{Classifier, Labelled, Stages, Warn};
use super::stats::{START, Stats, Tally, stage_lines};
use super::{Exit, queues, say, signals};
use crate::bench::infer::name_of;
use crate::error::{JobError, printable};
use crate::frame::Branch;
use crate::gpu::Precision;
use crate::observe::{cpu_time, peak_memory_bytes, trace};
use crate::runner::{Outcome, Pipeline};
use crate::sink::{Columns, Earlier, Existing, Format, Row, Writer, is_stream};
use crate::source::{Input, Skipped, Walk};
use crate::stage::Cancel;

/// Longest time from a path on standard input to its row that waiting for others may cause on a GPU.
const STREAM_LATENCY: Duration = Duration::from_millis(5);

/// What a job works with.
struct Job {
    args: JobDesc,
    inputs: Vec<Input>,
    models: Vec<Classifier>,
    threads: usize,
    skipped: Skipped,
    cancel: Cancel,
    profile: Profile,
    /// Rows so far.
    tally: Arc<Mutex<Tally>>,
    /// Inputs whose rows an earlier job had written.
    resumed: Arc<AtomicU64>,
    /// Batches that the GPU had no memory for at once.
    split: Arc<AtomicU64>,
}

/// Labels the images that the job names.
pub(super) fn run(args: JobDesc, log: &Log) -> Result<Exit, JobError> {
    let started = Instant::now();
    let inputs = args.inputs.iter().map(|input| Input::parse(input)).collect::<Result<Vec<_>, _>>()?;
    // Before there are other threads.
    queues::take_for(&inputs);
    let format = format_of(&args)?;
    let models = args.open_models()?;
    let (cancel, compiling) = (Cancel::default(), Stop::default());
    signals::watch(cancel.clone(), compiling.clone())?;
    let Figures { stats: stats_file, profile: profile_file } = Figures::open(&args, &cancel)?;
    let page = args.show.metrics.as_deref().map(|address| Page::serve(address, args.show.quiet)).transpose()?;
    // Also with -q: what is assumed decides the results, as the device below does.
    let warnings = models.iter().flat_map(|model| &model.model.warnings);
    warnings.for_each(|warning| say(format_args!("warning: {warning}")));
    let threads = args.threads.unwrap_or_else(|| available_parallelism().map_or(1, usize::from));
    let (skipped, profile) = (Skipped::default(), Profile::default());
    let (tally, resumed, split) = (Arc::default(), Arc::default(), Arc::default());
    let mut job = Job { args, inputs, models, threads, skipped, cancel, profile, tally, resumed, split };

    // Before the output: it takes long and may fail.
    let Chosen { backend, warnings, ignored, note } = choose(&job.args, &job.models, job.threads, &compiling)?;
    for warning in warnings.into_iter().chain(ignored.filter(|_| !job.args.show.quiet)) {
        say(format_args!("warning: {warning}"));
    }
    note.filter(|_| job.args.show.verbose > 0 && !job.args.show.quiet).iter().for_each(say);
    let (device, batch) = (backend.name(), backend.batch());
    let (model, precision) = (job.model_names(), job.precisions(&backend));
    let by_device = images_by_device(&backend);
    info!(model, device, precision, batch, threads, "the network is ready");
    let progress = Progress::new(job.args.show.quiet);
    log.around(&progress);
    let (mut writer, earlier) = job.open_output(format, &progress)?;
    let (earlier_rows, earlier_failed) = (earlier.rows(), earlier.failed());
    if job.args.existing == Existing::Resume {
        info!(rows = earlier_rows, failed = earlier_failed, "an earlier job is continued");
    }
    progress.count(&job.inputs, earlier_rows, &job.cancel);
    let watched = page.as_ref().map(|page| {
        let (model, device, precision) = (model.clone(), device.clone(), precision.clone());
        let gpus = match &backend {
            Backend::Cpu { .. } => Vec::new(),
            Backend::Gpus(lanes) => metrics::monitors(lanes),
        };
        (page, Facts { model, device, precision, gpus })
    });
    let cpu_before = cpu_time();
    let under_way = Profile::begin(profile_file).and_then(|profile| {
        job.profile = profile;
        job.pipeline(backend, earlier, &progress)
    });
    let outcome = match under_way.map(|pipeline| job.work(pipeline, &mut writer, &progress, watched)) {
        Ok(outcome) => outcome,
        Err(error) => {
            progress.clear();
            writer.abandon();
            // How the job ended says more.
            let _ = job.finish_profile();
            return Err(error);
        }
    };
    let cpu_in_stages = cpu_time().saturating_sub(cpu_before);
    progress.clear();

    let tally = job.tally.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (resumed, images) = (job.resumed.load(Relaxed), tally.images);
    let failed = tally.failed + earlier_failed;
    let end = match outcome.end {
        Ok(()) if images + resumed == 0 => Err(nothing_found(&job.args.inputs, &job.skipped)),
        end => end,
    };
    let end = job.close(writer, end);
    let wall_s = started.elapsed().as_secs_f64();
    let stats = Stats {
        version: env!("CARGO_PKG_VERSION"),
        model,
        device,
        images_by_device: by_device.into_iter().map(|(name, images)| (name, images.load(Relaxed))).collect(),
        precision,
        threads: job.threads,
        batch,
        interrupted: matches!(end, Err(JobError::Interrupted)),
        wall_s,
        images_per_s: images as f64 / wall_s.max(f64::MIN_POSITIVE),
        tally,
        resumed,
        resumed_failed: earlier_failed,
        skipped: job.skipped.snapshot(),
        batches_split: job.split.load(Relaxed),
        cpu_s: cpu_time().as_secs_f64(),
        cpu_cores: cpu_in_stages.as_secs_f64() / outcome.report.wall_s.max(f64::MIN_POSITIVE),
        peak_memory_bytes: peak_memory_bytes(),
        pipeline: outcome.report,
    };
    let written = stats_file.map_or(Ok(()), |file| file.write(&stats));
    job.report(&stats);
    let recorded = job.finish_profile();
    // How the job itself ended says more, unless that is no error.
    match end {
        Err(JobError::ReaderLeft) => written.and(recorded).and(end),
        end => end.and(written).and(recorded),
    }?;
    Ok(if failed > 0 { Exit::ItemsFailed } else { Exit::Done })
}

/// The files that `--stats` and `--profile` name.
struct Figures {
    stats: Option<FiguresFile>,
    profile: Option<FiguresFile>,
}

impl Figures {
    fn open(args: &JobDesc, cancel: &Cancel) -> Result<Self, JobError> {
        let rows = args.output.as_deref().unwrap_or(Path::new(STDOUT));
        let (stats, profile) = (args.show.stats.as_deref(), args.show.profile.as_deref());
        let others: Vec<_> = stats.into_iter().chain([rows]).collect();
        Ok(Self {
            stats: stats.map(|path| FiguresFile::open("--stats", path, START, &[rows], cancel)).transpose()?,
            profile: profile
                .map(|path| FiguresFile::open("--profile", path, trace::START, &others, cancel))
                .transpose()?,
        })
    }
}

/// The format asked for, or the one that fits where rows go.
fn format_of(args: &JobDesc) -> Result<Format, JobError> {
    match (args.format, &args.output) {
        (Some(format), _) => Ok(format),
        (None, Some(file)) if is_stream(file) => Ok(Format::Jsonl),
        (None, Some(file)) => Format::of_file(file),
        (None, None) if io::stdout().is_terminal() => Ok(Format::Table),
        (None, None) => Ok(Format::Jsonl),
    }
}

/// Says what goes wrong while the bar is there; also with -q, as what was wrong before.
fn warn_around(progress: &Progress) -> Warn {
    let progress = progress.clone();
    Arc::new(move |warning| {
        // A closed stderr is no reason to stop.
        let _ = progress.around(io::stderr()).write_all(format!("warning: {}\n", printable(warning)).as_bytes());
    })
}

/// Counters of the images that each GPU is given.
fn images_by_device(backend: &Backend) -> Vec<(String, Arc<AtomicU64>)> {
    match backend {
        Backend::Cpu { .. } => Vec::new(),
        Backend::Gpus(lanes) => lanes.iter().map(|lane| (lane.name().to_string(), lane.images())).collect(),
    }
}

impl Job {
    fn open_output(&self, format: Format, progress: &Progress) -> Result<(Writer, Earlier), JobError> {
        if let Some(file) = &self.args.output {
            return Writer::to_file(file, format, self.args.existing, &self.columns(), &self.cancel);
        }
        let width = terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
        let stdout = (Box::new(progress.around(io::stdout())) as Box<_>, "the standard output");
        Ok((Writer::to_stream(stdout, format, &self.columns(), width)?, Earlier::default()))
    }

    /// All stages, at work.
    fn pipeline(
        &self,
        backend: Backend,
        mut earlier: Earlier,
        progress: &Progress,
    ) -> Result<Pipeline<Labelled>, JobError> {
        let walk = Walk::new(self.inputs.clone(), self.skipped.clone(), self.cancel.clone());
        let resumed = Arc::clone(&self.resumed);
        let missing = walk.filter(move |found| {
            let done = earlier.take(&found.path);
            resumed.fetch_add(u64::from(done), Relaxed);
            !done
        });
        let items = missing.enumerate().map(|(id, found)| found.into_item(id as u64));
        let stages = Stages {
            models: &self.models,
            decode: self.args.decode,
            threads: self.threads,
            max_latency: self.max_latency(&backend),
            order: self.args.order,
            cancel: self.cancel.clone(),
            recorder: self.profile.recorder(),
            split: Arc::clone(&self.split),
            warn: warn_around(progress),
        };
        match backend {
            Backend::Cpu { engines, batch } => stages.on_cpu(items, engines, batch),
            Backend::Gpus(lanes) => stages.on_gpus(items, lanes, self.args.device == Device::Cuda(Gpus::All)),
        }
    }

    /// What rows call the models, where there are several.
    fn names(&self) -> Vec<Arc<str>> {
        let several = self.models.len() > 1;
        self.models.iter().filter(|_| several).map(|model| Arc::clone(&model.name)).collect()
    }

    /// What the rows hold.
    fn columns(&self) -> Columns {
        let top = self.models.iter().map(|model| model.classify.top).max().unwrap_or(0);
        Columns { top, models: self.names() }
    }

    fn model_names(&self) -> String {
        self.models.iter().map(|model| &*model.name).collect::<Vec<_>>().join(",")
    }

    /// The networks' arithmetic by name: once where it is the same for all.
    fn precisions(&self, backend: &Backend) -> String {
        let of = |model: &Classifier| match backend {
            Backend::Cpu { .. } => name_of(Precision::Fp32),
            Backend::Gpus(_) => name_of(model.precision.unwrap_or(Precision::Fp16)),
        };
        let mut names: Vec<_> = self.models.iter().map(of).collect();
        names.dedup();
        names.join(",")
    }

    /// A list of paths may come as slowly as its photos are taken. On the CPU a small batch costs more than it gains.
    fn max_latency(&self, backend: &Backend) -> Option<Duration> {
        let is_stream = self.inputs.iter().any(|input| matches!(input, Input::Stdin));
        let usual = is_stream && matches!(backend, Backend::Gpus(_));
        self.args.max_latency.or(usual.then_some(STREAM_LATENCY))
    }

    /// Runs the stages and writes the rows, showing figures meanwhile to those who ask at the address.
    fn work(
        &self,
        pipeline: Pipeline<Labelled>,
        writer: &mut Writer,
        progress: &Progress,
        watched: Option<(&Page, Facts)>,
    ) -> Outcome {
        if let Some((page, facts)) = watched {
            let (tally, skipped) = (Arc::clone(&self.tally), self.skipped.clone());
            let (resumed, split) = (Arc::clone(&self.resumed), Arc::clone(&self.split));
            page.show(Metrics { facts, monitor: pipeline.monitor(), tally, skipped, resumed, split });
        }
        let (names, mut failure) = (self.names(), None);
        let outcome = pipeline.run(|Branch { branch, value: item }| {
            blame_the_job(&item)?;
            let error = item.payload.as_ref().err().filter(|_| self.args.fail_fast).cloned();
            let arrived = item.arrived;
            let row = Row { model: names.get(branch).cloned(), ..Row::new(item) };
            writer.write(&row)?;
            let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.add(&row, arrived, branch == 0);
            failure = failure.take().or(error);
            // The rows of an input stay together.
            if branch + 1 < self.models.len() {
                return Ok(());
            }
            progress.row(tally.failed);
            match failure.take() {
                Some(error) => Err(JobError::FailFast { path: row.path.unwrap_or_default(), error }),
                None => Ok(()),
            }
        });
        outcome.accounted(self.models.len())
    }

    /// Completes the output, or leaves it for another job to continue.
    fn close(&self, writer: Writer, end: Result<(), JobError>) -> Result<(), JobError> {
        let Err(error) = end else { return writer.finish() };
        if let Some(partial) = writer.abandon().filter(|_| !self.args.show.quiet) {
            say(format_args!("{} keeps what is done; --resume continues it", partial.display()));
        }
        Err(error)
    }

    fn finish_profile(&self) -> Result<(), JobError> {
        self.profile.finish()?.filter(|_| !self.args.show.quiet).iter().for_each(say);
        Ok(())
    }

    /// Says what the job did.
    fn report(&self, stats: &Stats) {
        if self.args.show.quiet {
            return;
        }
        let empty = stats.skipped.empty_inputs;
        if empty > 0 && stats.tally.images > 0 {
            say(format_args!("warning: {empty} of the inputs held no images"));
        }
        let split = stats.batches_split;
        if split > 0 {
            say(format_args!(
                "warning: the GPU had no memory for {split} batches at once; a smaller --batch is faster"
            ));
        }
        if self.args.show.verbose > 0 {
            stage_lines(&stats.pipeline).iter().for_each(say);
            stats.latency_line().iter().for_each(say);
        }
        if stats.tally.images + stats.resumed > 0 {
            say(stats.summary());
        }
    }
}
