//! The stages of a job, fed with the same files again and again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::available_parallelism;
use std::time::Instant;
use std::{env, io};

use ocellus_kernels::KernelError;
use ocellus_sys::nvml;
use tempfile::TempDir;

use super::Signals;
use crate::bench::SteadyRate;
use crate::bench::corpus::{self, CorpusDesc};
use crate::cli::figures::{FiguresFile, Profile};
use crate::cli::job::RowOrder;
use crate::cli::say;
use crate::cli::stages::{Classifier, Stages};
use crate::cli::stats::stage_lines;
use crate::decode::DecodeOptions;
use crate::error::{ItemError, JobError};
use crate::frame::{Decoder, Item};
use crate::observe::cpu_time;
use crate::runner::Pipeline;
use crate::source::Found;

/// A folder in memory, on Linux.
const MEMORY_FOLDER: &str = "/dev/shm";

/// Stages, and the files that they are fed with.
pub(super) struct Job<'a> {
    pub(super) stages: Stages<'a>,
    profile: Profile,
    /// Who says how the GPUs are.
    pub(super) gpus: Vec<(String, nvml::Monitor)>,
    pub(super) paths: Vec<PathBuf>,
    enough: Arc<AtomicBool>,
    /// A GPU was left out.
    lost: Arc<AtomicBool>,
    _folder: TempDir,
}

/// What a job did.
pub(super) struct Measured {
    /// Images a second, of every second.
    pub(super) rates: Vec<f64>,
    /// Cores that the process was busy on.
    pub(super) cores: f64,
    /// Memory that was taken of the GPUs at the end, by all processes; `None` where nobody says.
    pub(super) gpu_memory_bytes: Option<u64>,
    /// Pictures by who decoded them.
    pub(super) decoders: BTreeMap<Decoder, u64>,
}

impl<'a> Job<'a> {
    pub(super) fn new(
        models: &'a [Classifier],
        desc: &CorpusDesc,
        profile: Option<FiguresFile>,
        signals: &Signals,
    ) -> Result<Self, JobError> {
        let (folder, paths) = write(desc, signals)?;
        let profile = Profile::begin(profile)?;
        let lost = Arc::<AtomicBool>::default();
        let seen = Arc::clone(&lost);
        let stages = Stages {
            models,
            decode: DecodeOptions::default(),
            threads: available_parallelism().map_or(1, usize::from),
            max_latency: None,
            order: RowOrder::Input,
            cancel: signals.cancel.clone(),
            recorder: profile.recorder(),
            split: Arc::default(),
            warn: Arc::new(move |warning| {
                seen.store(true, Relaxed);
                say(format_args!("warning: {warning}"));
            }),
        };
        Ok(Self { stages, profile, gpus: Vec::new(), paths, enough: Arc::default(), lost, _folder: folder })
    }

    /// The files again and again, until there are enough.
    pub(super) fn items(&self) -> impl Iterator<Item = Item<()>> + Send + 'static {
        let enough = Arc::clone(&self.enough);
        let again_and_again = (0..).zip(self.paths.clone().into_iter().cycle());
        let items = again_and_again.map(|(id, path)| Found { path, error: None }.into_item(id));
        items.take_while(move |_| !enough.load(Relaxed))
    }

    /// Runs the stages for so many seconds after those of the start, and says which is the slowest; `decoders` says of what comes
    /// out who decoded the pictures.
    pub(super) fn measure<T, D>(
        &self,
        pipeline: Pipeline<T>,
        seconds: usize,
        decoders: impl Fn(T) -> D,
    ) -> Result<Measured, JobError>
    where
        T: Send + 'static,
        D: IntoIterator<Item = Result<Decoder, ItemError>>,
    {
        let mut rate = SteadyRate::default();
        let mut counts = BTreeMap::<Decoder, u64>::new();
        let (mut since, mut cores, mut gpu_memory_bytes) = (None, 0.0, None);
        let outcome = pipeline.run(|done| {
            for decoder in decoders(done) {
                let decoder = decoder.map_err(|error| KernelError::gpu(format!("a picture failed: {error}")))?;
                *counts.entry(decoder).or_default() += 1;
                if self.enough.load(Relaxed) {
                    continue;
                }
                let now = Instant::now();
                rate.count(now);
                if rate.is_steady() {
                    let (start, busy_s) = *since.get_or_insert((now, cpu_time().as_secs_f64()));
                    if rate.rates().len() == seconds {
                        cores = (cpu_time().as_secs_f64() - busy_s) / (now - start).as_secs_f64();
                        gpu_memory_bytes = self.gpu_memory_bytes();
                        self.enough.store(true, Relaxed);
                    }
                }
            }
            Ok(())
        });
        outcome.end?;
        // A figure over what is not there would be wrong.
        outcome.report.account(counts.values().sum(), 1)?;
        if self.lost.load(Relaxed) {
            return Err(
                KernelError::gpu("one was left out meanwhile, so that the figure would not be that of all").into()
            );
        }
        stage_lines(&outcome.report).iter().for_each(say);
        say(decoded_by(&counts));
        let split = self.stages.split.load(Relaxed);
        if split > 0 {
            say(format_args!("warning: the GPU had no memory for {split} batches at once"));
        }
        let busiest = outcome.report.stages.iter().max_by(|a, b| a.busy_share.total_cmp(&b.busy_share));
        if let Some(stage) = busiest {
            let percent = 100.0 * stage.busy_share;
            say(format_args!("the bound: {}, busy {percent:.0} % of its threads' time", stage.stage));
        }
        self.profile.finish()?.iter().for_each(say);
        Ok(Measured { rates: rate.rates().to_vec(), cores, gpu_memory_bytes, decoders: counts })
    }

    fn gpu_memory_bytes(&self) -> Option<u64> {
        self.gpus.iter().map(|(_, monitor)| monitor.figures().memory_used_bytes).sum()
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
pub(super) fn decoded_by(decoders: &BTreeMap<Decoder, u64>) -> String {
    let decoders: Vec<_> = decoders.iter().map(|(decoder, images)| format!("{decoder} {images}")).collect();
    format!("decoded by: {}", decoders.join(", "))
}
