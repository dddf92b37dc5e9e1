//! `ocellus bench e2e`: the stages of `ocellus classify`, fed with the same files again and again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::available_parallelism;
use std::time::Instant;
use std::{env, io};

use ocellus_kernels::KernelError;
use tempfile::TempDir;

use super::args::{DECODE_PICTURES, E2E_SECONDS, E2eArgs, Kind, Net, On, Place, count};
use super::{Signals, gpu};
use crate::bench::corpus::{self, CorpusDesc};
use crate::bench::cpu::StageRates;
use crate::bench::decode::{self, DecodeDesc};
use crate::bench::infer::{self, InferDesc, name_of};
use crate::bench::{Measurement, SteadyRate};
use crate::cli::device::{CPU_BATCH, GPU_BATCH, Gpus, explained, lanes};
use crate::cli::job::{ModelDesc, find};
use crate::cli::say;
use crate::cli::stages::{Classifier, Labelled, Stages};
use crate::cli::stats::stage_lines;
use crate::decode::DecodeOptions;
use crate::error::JobError;
use crate::frame::Item;
use crate::gpu::{LOADERS, Lane, Precision};
use crate::infer::cpu_engine;
use crate::observe::{Recorder, cpu_time};
use crate::runner::{Order, Pipeline, Report};
use crate::source::Found;

/// A folder in memory, on Linux.
const MEMORY_FOLDER: &str = "/dev/shm";
/// Different files where nobody says.
const GPU_PICTURES: usize = 4096;
const CPU_PICTURES: usize = 256;

/// What a job cannot be faster than, images a second, and in words.
pub(super) type Bound = (f64, &'static str);

/// What is measured.
pub(super) struct E2eBench<'a> {
    net: &'a Net,
    on: &'a On,
    kind: Kind,
    place: Place,
    batch: Option<NonZeroUsize>,
    pictures: Option<NonZeroUsize>,
    seconds: usize,
    /// Measured in the same run.
    bound: Option<Bound>,
    /// Otherwise: measure it first.
    find_bound: bool,
}

impl<'a> E2eBench<'a> {
    /// What the arguments say.
    pub(super) fn of(args: &'a E2eArgs) -> Self {
        Self {
            place: args.device.clone(),
            batch: args.batch,
            pictures: args.pictures,
            seconds: args.seconds.get(),
            // On the CPU the stages alone take seconds.
            find_bound: args.bound || args.device == Place::Cpu,
            ..Self::usual(&args.net, &args.on, args.kind)
        }
    }

    /// A job on a GPU as it usually is.
    pub(super) fn usual(net: &'a Net, on: &'a On, kind: Kind) -> Self {
        let (batch, pictures, bound) = (None, None, None);
        Self { net, on, kind, place: Place::Gpu(None), batch, pictures, seconds: E2E_SECONDS, bound, find_bound: false }
    }

    /// With a bound that was measured in the same run.
    pub(super) fn beside(self, bound: Bound) -> Self {
        Self { bound: Some(bound), ..self }
    }

    fn corpus(&self) -> CorpusDesc {
        let usual = if self.place == Place::Cpu { CPU_PICTURES } else { GPU_PICTURES };
        self.kind.corpus(self.pictures.unwrap_or_else(|| count(usual)))
    }

    /// Measures and says which stage is the slowest.
    pub(super) fn run(self, signals: &Signals) -> Result<Vec<Measurement>, JobError> {
        let precision = Some(self.net.precision).filter(|_| self.place != Place::Cpu);
        let models = [ModelDesc::new(find(&self.net.model)?, precision).open()?];
        match self.place.clone() {
            Place::Gpu(gpus) => {
                let gpus = gpus.unwrap_or_else(|| Gpus::Listed(vec![self.on.gpu]));
                self.on_gpus(&gpus, &models, signals)
            }
            Place::Cpu => self.on_cpu(&models, signals),
        }
    }

    fn on_gpus(self, gpus: &Gpus, models: &[Classifier; 1], signals: &Signals) -> Result<Vec<Measurement>, JobError> {
        let [Classifier { model, .. }] = models;
        let precision = self.net.precision;
        let batch = self.batch.unwrap_or_else(|| count(GPU_BATCH));
        let mut parts = Vec::new();
        let mut bound = self.bound;
        if self.find_bound {
            let first = gpus.ordinals()?.first().copied().unwrap_or(0);
            let gpu = gpu(first, signals)?;
            let desc = InferDesc { precision, portable: false, batches: vec![batch.get()] };
            let network = infer::measure(&gpu, model, &desc, &signals.cancel)?;
            let path = decode::usual_path(&gpu)?;
            let desc =
                DecodeDesc { corpus: self.kind.corpus(count(DECODE_PICTURES)), batch, workers: count(LOADERS), path };
            let decoding = decode::measure(&gpu, &desc, &signals.cancel)?;
            bound = Some(slower(&decoding, &network));
            parts.extend(network);
            parts.push(decoding);
        }
        let (lanes, left_out) = lanes(gpus, models, batch, &signals.compiling).map_err(explained)?;
        let warnings = left_out.iter().chain(lanes.iter().flat_map(Lane::warnings));
        warnings.for_each(|warning| say(format_args!("warning: {warning}")));
        let images: Vec<_> = lanes.iter().map(|lane| (Arc::clone(lane.name()), lane.images())).collect();
        let job = Job::new(models, &self.corpus(), signals)?;
        let items = job.items();
        let measured = job.measure(job.stages.on_gpus(items, lanes)?, self.seconds)?;
        let mut name = format!("e2e.{}.{}.{}", model.name, name_of(precision), self.corpus().name());
        if images.len() > 1 {
            let given: Vec<_> = images.iter().map(|(gpu, images)| format!("{gpu} {}", images.load(Relaxed))).collect();
            say(format_args!("images: {}", given.join(", ")));
            let _ = write!(name, ".gpus{}", images.len());
            bound = bound.map(|(rate, _)| {
                (rate * images.len() as f64, "what one GPU's slower part alone does, times their number")
            });
        }
        parts.extend(measured.named(&name, bound));
        Ok(parts)
    }

    fn on_cpu(self, models: &[Classifier; 1], signals: &Signals) -> Result<Vec<Measurement>, JobError> {
        let [Classifier { model, .. }] = models;
        let job = Job::new(models, &self.corpus(), signals)?;
        let threads = job.stages.threads;
        let batch = self.batch.map_or(CPU_BATCH.max(threads), NonZeroUsize::get);
        let mut bound = None;
        if self.find_bound {
            let files =
                job.paths.iter().map(|path| std::fs::read(path).map_err(|e| JobError::io("reading a picture", e)));
            let files = files.collect::<Result<Vec<_>, JobError>>()?;
            let rates = StageRates::measure(model, &files, threads, batch, &signals.cancel)?;
            let StageRates { decode, preprocess, infer } = rates;
            say(format_args!(
                "each stage alone on {threads} threads: decode {decode:.1}, preprocess {preprocess:.1}, network {infer:.1} img/s"
            ));
            bound = Some((rates.ideal(), "the stages alone on all cores, one after another"));
        }
        let items = job.items();
        let engines = vec![cpu_engine(model, threads)?];
        let measured = job.measure(job.stages.on_cpu(items, engines, batch)?, self.seconds)?;
        let name = format!("e2e.{}.{}.cpu.{}", model.name, name_of(Precision::Fp32), self.corpus().name());
        Ok(measured.named(&name, bound))
    }
}

/// The slower of decoding and the network at its best batch size.
pub(super) fn slower(decoding: &Measurement, network: &[Measurement]) -> Bound {
    let network = network.iter().map(|m| m.value).fold(0.0, f64::max);
    (decoding.value.min(network), "the slower of decoding alone and the network alone")
}

/// Stages, and the files that they are fed with.
struct Job<'a> {
    stages: Stages<'a>,
    paths: Vec<PathBuf>,
    enough: Arc<AtomicBool>,
    _folder: TempDir,
}

/// What a job did.
struct Measured {
    rates: Vec<f64>,
    /// Cores that the process was busy on.
    cores: f64,
}

impl<'a> Job<'a> {
    fn new(models: &'a [Classifier; 1], desc: &CorpusDesc, signals: &Signals) -> Result<Self, JobError> {
        let (folder, paths) = write(desc, signals)?;
        let stages = Stages {
            models,
            decode: DecodeOptions::default(),
            threads: available_parallelism().map_or(1, usize::from),
            max_latency: None,
            order: Order::Input,
            cancel: signals.cancel.clone(),
            recorder: Recorder::default(),
            split: Arc::default(),
        };
        Ok(Self { stages, paths, enough: Arc::default(), _folder: folder })
    }

    /// The files again and again, until there are enough.
    fn items(&self) -> impl Iterator<Item = Item<()>> + Send + 'static {
        let enough = Arc::clone(&self.enough);
        let again_and_again = (0..).zip(self.paths.clone().into_iter().cycle());
        let items = again_and_again.map(|(id, path)| Found { path, error: None }.into_item(id));
        items.take_while(move |_| !enough.load(Relaxed))
    }

    /// Runs the stages for so many seconds after the first.
    fn measure(&self, pipeline: Pipeline<Labelled>, seconds: usize) -> Result<Measured, JobError> {
        let mut rate = SteadyRate::default();
        let mut decoders = BTreeMap::<String, u64>::new();
        let (mut since, mut cores) = (None, 0.0);
        let outcome = pipeline.run(|labelled| {
            let results =
                labelled.value.payload.map_err(|error| KernelError::gpu(format!("a picture failed: {error}")))?;
            *decoders.entry(results.info.decoder.to_string()).or_default() += 1;
            if self.enough.load(Relaxed) {
                return Ok(());
            }
            let now = Instant::now();
            rate.count(now);
            if rate.is_steady() {
                let (start, busy_s) = *since.get_or_insert((now, cpu_time().as_secs_f64()));
                if rate.rates().len() == seconds {
                    cores = (cpu_time().as_secs_f64() - busy_s) / (now - start).as_secs_f64();
                    self.enough.store(true, Relaxed);
                }
            }
            Ok(())
        });
        outcome.end?;
        explain(&outcome.report, &decoders, &self.stages.split);
        Ok(Measured { rates: rate.rates().to_vec(), cores })
    }
}

impl Measured {
    fn named(self, name: &str, bound: Option<Bound>) -> Vec<Measurement> {
        let rate = Measurement::of(name.to_owned(), "img/s", self.rates);
        let per_core_s = rate.value / self.cores;
        say(format_args!("CPU: {:.2} cores, {per_core_s:.0} images a core-second", self.cores));
        let rate = match bound {
            Some((bound, what)) => rate.beside(bound, what),
            None => rate,
        };
        vec![rate, Measurement::of(format!("{name}.cores"), "cores", vec![self.cores])]
    }
}

/// Writes the files where reading them costs least: to memory, or else, where the page cache keeps them, to a disk.
fn write(desc: &CorpusDesc, signals: &Signals) -> Result<(TempDir, Vec<PathBuf>), JobError> {
    let write = |parent: &Path| {
        let failed = |e: io::Error| JobError::io(format!("cannot make a folder in {}", parent.display()), e);
        let prefix = format!("ocellus-bench-{}-", std::process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(parent).map_err(failed)?;
        let paths = corpus::write(desc, folder.path(), &signals.cancel)?;
        Ok((folder, paths))
    };
    match write(Path::new(MEMORY_FOLDER)) {
        Err(JobError::Io { .. }) => write(&env::temp_dir()),
        written => written,
    }
}

/// How many pictures each decoder had.
pub(super) fn decoded_by(decoders: &BTreeMap<String, u64>) -> String {
    let decoders: Vec<_> = decoders.iter().map(|(decoder, images)| format!("{decoder} {images}")).collect();
    format!("decoded by: {}", decoders.join(", "))
}

/// Says where the time went.
fn explain(report: &Report, decoders: &BTreeMap<String, u64>, split: &AtomicU64) {
    stage_lines(report).iter().for_each(say);
    say(decoded_by(decoders));
    let split = split.load(Relaxed);
    if split > 0 {
        say(format_args!("warning: the GPU had no memory for {split} batches at once"));
    }
    let busiest = report.stages.iter().max_by(|a, b| a.busy_share.total_cmp(&b.busy_share));
    if let Some(stage) = busiest {
        say(format_args!("the bound: {}, busy {:.0} % of its threads' time", stage.stage, 100.0 * stage.busy_share));
    }
}
