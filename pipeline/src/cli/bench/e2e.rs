//! `ocellus bench e2e`: the stages of `ocellus classify`, fed with the same files again and again.

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::args::{DECODE_PICTURES, E2E_SECONDS, E2eArgs, Kind, Net, On, Place, count};
use super::job::{Job, Measured};
use super::{Signals, gpu};
use crate::bench::Measurement;
use crate::bench::corpus::CorpusDesc;
use crate::bench::cpu::StageRates;
use crate::bench::decode::{self, DecodeDesc};
use crate::bench::infer::{self, InferDesc, name_of};
use crate::cli::device::{CPU_BATCH, GPU_BATCH, Gpus, explained, lanes};
use crate::cli::figures::{FiguresFile, STDOUT};
use crate::cli::job::{ModelDesc, find};
use crate::cli::metrics::monitors;
use crate::cli::say;
use crate::cli::stages::{Classifier, Labelled};
use crate::error::{ItemError, JobError};
use crate::frame::Decoder;
use crate::gpu::{LOADERS, Precision};
use crate::infer::cpu_engine;
use crate::observe::trace;
use crate::stage::Cancel;

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
    /// Where a trace of the job goes.
    profile: Option<&'a Path>,
    /// Measured in the same run.
    bound: Option<Bound>,
    /// Otherwise: measure it first.
    find_bound: bool,
}

impl<'a> E2eBench<'a> {
    /// What the arguments say.
    pub(super) fn of(args: &'a E2eArgs) -> Result<Self, JobError> {
        args.check()?;
        Ok(Self {
            place: args.device.clone(),
            batch: args.batch,
            pictures: args.pictures,
            seconds: args.seconds.get(),
            profile: args.profile.as_deref(),
            // On the CPU the stages alone take seconds.
            find_bound: args.bound || args.device == Place::Cpu,
            ..Self::usual(&args.net, &args.on, args.kind)
        })
    }

    /// A job on a GPU as it usually is.
    pub(super) fn usual(net: &'a Net, on: &'a On, kind: Kind) -> Self {
        Self {
            net,
            on,
            kind,
            place: Place::Gpu(None),
            batch: None,
            pictures: None,
            seconds: E2E_SECONDS,
            profile: None,
            bound: None,
            find_bound: false,
        }
    }

    /// With a bound that was measured in the same run.
    pub(super) fn beside(self, bound: Bound) -> Self {
        Self { bound: Some(bound), ..self }
    }

    fn corpus(&self) -> CorpusDesc {
        let usual = if self.place == Place::Cpu { CPU_PICTURES } else { GPU_PICTURES };
        self.kind.corpus(self.pictures.unwrap_or_else(|| count(usual)))
    }

    /// The file that `--profile` names, and how names end then.
    fn profile(&self, cancel: &Cancel) -> Result<(Option<FiguresFile>, &'static str), JobError> {
        let Some(path) = self.profile else { return Ok((None, "")) };
        let others: Vec<_> = self.on.json.as_deref().into_iter().chain([Path::new(STDOUT)]).collect();
        Ok((Some(FiguresFile::open("--profile", path, trace::START, &others, cancel)?), ".profiled"))
    }

    /// Measures and says which stage is the slowest.
    pub(super) fn run(self, signals: &Signals) -> Result<Vec<Measurement>, JobError> {
        let precision = Some(self.net.precision()).filter(|_| self.place != Place::Cpu);
        let models = [ModelDesc::new(find(&self.net.model)?, precision).open()?];
        match self.place.clone() {
            Place::Gpu(gpus) => {
                let gpus = gpus.unwrap_or_else(|| Gpus::Listed(vec![self.on.ordinal()]));
                self.on_gpus(&gpus, &models, signals)
            }
            Place::Cpu => self.on_cpu(&models, signals),
        }
    }

    fn on_gpus(self, gpus: &Gpus, models: &[Classifier; 1], signals: &Signals) -> Result<Vec<Measurement>, JobError> {
        let [Classifier { model, .. }] = models;
        let precision = self.net.precision();
        let (profile, end) = self.profile(&signals.cancel)?;
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
        let (lanes, warnings) = lanes(gpus, models, batch, &signals.compiling).map_err(explained)?;
        for warning in warnings {
            say(format_args!("warning: {warning}"));
        }
        let images: Vec<_> = lanes.iter().map(|lane| (Arc::clone(lane.name()), lane.images())).collect();
        let mut job = Job::new(models, &self.corpus(), profile, signals)?;
        job.gpus = monitors(&lanes);
        let items = job.items();
        let measured = job.measure(job.stages.on_gpus(items, lanes, *gpus == Gpus::All)?, self.seconds, decoder_of)?;
        let mut name = format!("e2e.{}.{}.{}", model.name, name_of(precision), self.corpus().name());
        if images.len() > 1 {
            let given: Vec<_> = images.iter().map(|(gpu, images)| format!("{gpu} {}", images.load(Relaxed))).collect();
            say(format_args!("images: {}", given.join(", ")));
            let _ = write!(name, ".gpus{}", images.len());
            bound = bound.map(|(rate, _)| {
                (rate * images.len() as f64, "what one GPU's slower part alone does, times their number")
            });
        }
        name += end;
        parts.extend(named(measured, &name, bound));
        Ok(parts)
    }

    fn on_cpu(self, models: &[Classifier; 1], signals: &Signals) -> Result<Vec<Measurement>, JobError> {
        let [Classifier { model, .. }] = models;
        let (profile, end) = self.profile(&signals.cancel)?;
        let job = Job::new(models, &self.corpus(), profile, signals)?;
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
                "each stage alone, images a core-second: decode {decode:.1}, preprocess {preprocess:.1}, network {infer:.1}"
            ));
            bound = Some((rates.ideal(threads), "the work of the stages alone on all cores, which are never without"));
        }
        let items = job.items();
        let engines = vec![cpu_engine(model, threads)?];
        let measured = job.measure(job.stages.on_cpu(items, engines, batch)?, self.seconds, decoder_of)?;
        let name = format!("e2e.{}.{}.cpu.{}{end}", model.name, name_of(Precision::Fp32), self.corpus().name());
        Ok(named(measured, &name, bound))
    }
}

/// The slower of decoding and the network at its best batch size.
pub(super) fn slower(decoding: &Measurement, network: &[Measurement]) -> Bound {
    let network = network.iter().map(|m| m.value).fold(0.0, f64::max);
    (decoding.value.min(network), "the slower of decoding alone and the network alone")
}

/// Who decoded the picture of a result.
fn decoder_of(labelled: Labelled) -> [Result<Decoder, ItemError>; 1] {
    [labelled.value.payload.map(|results| results.info.decoder)]
}

/// What a job did, as figures.
fn named(measured: Measured, name: &str, bound: Option<Bound>) -> Vec<Measurement> {
    let Measured { rates, cores, gpu_memory_bytes, decoders } = measured;
    let rate = Measurement::of(name.to_owned(), "img/s", rates).decoded_by(&decoders);
    let per_core_s = rate.value / cores;
    say(format_args!("CPU: {cores:.2} cores, {per_core_s:.0} images a core-second"));
    let rate = match bound {
        Some((bound, what)) => rate.beside(bound, what),
        None => rate,
    };
    let mut figures = vec![rate, Measurement::of(format!("{name}.cores"), "cores", vec![cores])];
    if let Some(bytes) = gpu_memory_bytes.filter(|bytes| *bytes > 0) {
        let mib = bytes as f64 / f64::from(1 << 20);
        figures.push(Measurement::of(format!("{name}.gpu_memory"), "MiB", vec![mib]));
    }
    figures
}
