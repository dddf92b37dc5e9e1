//! `--metrics`: the figures of a job while it runs, for Prometheus.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ocellus_sys::nvml;

use super::say;
use super::stats::Tally;
use crate::error::JobError;
use crate::gpu::Lane;
use crate::observe::exposition::{Exposition, Kind};
use crate::observe::http::{PATH, Server};
use crate::observe::{cpu_time, memory_bytes};
use crate::runner::{Monitor, StageReport};
use crate::source::Skipped;

/// What a job works with.
pub(super) struct Facts {
    pub(super) model: String,
    pub(super) device: String,
    pub(super) precision: String,
    /// Of each GPU its name, and who knows how it is.
    pub(super) gpus: Vec<(String, nvml::Monitor)>,
}

/// What is shown.
pub(super) struct Metrics {
    pub(super) facts: Facts,
    pub(super) monitor: Monitor,
    pub(super) tally: Arc<Mutex<Tally>>,
    pub(super) skipped: Skipped,
    pub(super) resumed: Arc<AtomicU64>,
    pub(super) split: Arc<AtomicU64>,
}

/// The page of a job, from before it begins: until it is said what to show it has the figures of the process alone.
pub(super) struct Page {
    metrics: Arc<OnceLock<Metrics>>,
    _server: Server,
}

impl Page {
    /// Takes the address, before the job has cost anything, and serves the page until it is dropped.
    pub(super) fn serve(address: &str, quiet: bool) -> Result<Self, JobError> {
        let usage = |e| {
            JobError::Usage(format!("--metrics {address}: {e}; give HOST:PORT, a free one, such as 127.0.0.1:9464"))
        };
        let listener = TcpListener::bind(address).map_err(usage)?;
        let metrics = Arc::<OnceLock<Metrics>>::default();
        let shown = Arc::clone(&metrics);
        let server = Server::start(listener, move || {
            let mut page = Exposition::default();
            if let Some(metrics) = shown.get() {
                metrics.add_to(&mut page);
            }
            process(&mut page);
            page.finish()
        })?;
        // With port 0 nobody else knows which one it became.
        if !quiet || address.ends_with(":0") {
            say(format_args!("metrics: http://{}{PATH}", server.address()));
        }
        Ok(Self { metrics, _server: server })
    }

    /// From now on these are shown. Only the first ones are.
    pub(super) fn show(&self, metrics: Metrics) {
        let _ = self.metrics.set(metrics);
    }
}

/// Those that can be asked how the GPUs are. Without NVML, or where it does not know a GPU, its figures are absent.
pub(super) fn monitors(lanes: &[Lane]) -> Vec<(String, nvml::Monitor)> {
    let monitor = |lane: &Lane| {
        let monitor = lane.pci_bus_id().and_then(|id| nvml::Monitor::new(&id).ok().flatten());
        Some((lane.name().to_string(), monitor?))
    };
    lanes.iter().filter_map(monitor).collect()
}

impl Metrics {
    fn add_to(&self, page: &mut Exposition) {
        let Facts { model, device, precision, .. } = &self.facts;
        let labels =
            [("version", env!("CARGO_PKG_VERSION")), ("model", model), ("device", device), ("precision", precision)];
        page.family("ocellus_job_info", Kind::Gauge, "What runs; the value is always 1.").sample(&labels, 1.0);
        self.items(page);
        self.stages(page);
        self.gpus(page);
    }

    fn items(&self, page: &mut Exposition) {
        let tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut counter = |name: &str, help: &str, value: u64| {
            page.family(name, Kind::Counter, help).sample(&[], value as f64);
        };
        counter("ocellus_items_total", "Inputs whose rows were written, those of failed items as well.", tally.images);
        counter("ocellus_partial_items_total", "Items that were decoded from an incomplete file.", tally.partial);
        counter(
            "ocellus_resumed_items_total",
            "Inputs whose rows an earlier job had written.",
            self.resumed.load(Relaxed),
        );
        counter(
            "ocellus_split_batches_total",
            "Batches that the GPU had no memory for at once.",
            self.split.load(Relaxed),
        );
        let mut errors = page.family("ocellus_errors_total", Kind::Counter, "Items that failed, by kind of error.");
        for (kind, count) in &tally.errors {
            errors.sample(&[("kind", &kind.to_string())], *count as f64);
        }
        let mut decoders = page.family("ocellus_decoder_items_total", Kind::Counter, "Items by who decoded them.");
        for (decoder, count) in &tally.decoders {
            decoders.sample(&[("decoder", &decoder.to_string())], *count as f64);
        }
        let counts = self.skipped.snapshot();
        let mut skipped = page.family("ocellus_skipped_inputs_total", Kind::Counter, "Entries of folders passed over.");
        for (reason, count) in [
            ("hidden", counts.hidden),
            ("no-image", counts.not_images),
            ("special", counts.special),
            ("folder-link", counts.folder_links),
        ] {
            skipped.sample(&[("reason", reason)], count as f64);
        }
        page.histogram("ocellus_item_latency_seconds", "From an item's arrival to its row.", &tally.latency);
    }

    fn stages(&self, page: &mut Exposition) {
        type Read = fn(&StageReport) -> f64;
        let families: [(&str, Kind, &str, Read); 8] = [
            ("ocellus_stage_in_total", Kind::Counter, "Values that the stage has taken.", |s| s.taken as f64),
            ("ocellus_stage_out_total", Kind::Counter, "Values that the stage has given.", |s| s.given as f64),
            ("ocellus_stage_busy_seconds_total", Kind::Counter, "Time at work, all threads together.", |s| s.busy_s),
            ("ocellus_stage_starved_seconds_total", Kind::Counter, "Time without a value to work on.", |s| s.starved_s),
            ("ocellus_stage_blocked_seconds_total", Kind::Counter, "Time with the next queue full.", |s| s.blocked_s),
            ("ocellus_stage_threads", Kind::Gauge, "Threads of the stage.", |s| s.workers as f64),
            ("ocellus_stage_queue_depth", Kind::Gauge, "Places taken in the queue before it.", |s| s.queue_len as f64),
            ("ocellus_stage_queue_capacity", Kind::Gauge, "Places of that queue.", |s| s.queue_capacity as f64),
        ];
        let report = self.monitor.report();
        for (name, kind, help, read) in families {
            let mut family = page.family(name, kind, help);
            for stage in &report.stages {
                family.sample(&[("stage", stage.stage)], read(stage));
            }
        }
    }

    fn gpus(&self, page: &mut Exposition) {
        type Read = fn(&nvml::Figures) -> Option<f64>;
        let families: [(&str, &str, Read); 6] = [
            ("ocellus_gpu_utilization_ratio", "Share of time in which a kernel ran, 0 to 1.", |f| f.utilization),
            ("ocellus_gpu_jpeg_utilization_ratio", "The same of the JPEG engines.", |f| f.jpeg_utilization),
            ("ocellus_gpu_memory_used_bytes", "Memory taken, by all processes.", |f| {
                f.memory_used_bytes.map(|b| b as f64)
            }),
            ("ocellus_gpu_memory_total_bytes", "Memory in all.", |f| f.memory_total_bytes.map(|b| b as f64)),
            ("ocellus_gpu_temperature_celsius", "Temperature of the chip.", |f| f.temperature_celsius),
            ("ocellus_gpu_power_watts", "Power of the board.", |f| f.power_watts),
        ];
        let figures: Vec<_> = self.facts.gpus.iter().map(|(name, monitor)| (name, monitor.figures())).collect();
        for (name, help, read) in families {
            let values: Vec<_> = figures.iter().filter_map(|(gpu, figures)| Some((gpu, read(figures)?))).collect();
            if values.is_empty() {
                continue;
            }
            let mut family = page.family(name, Kind::Gauge, help);
            for (gpu, value) in values {
                family.sample(&[("gpu", gpu)], value);
            }
        }
    }
}

/// Names as Prometheus's own libraries have them.
fn process(page: &mut Exposition) {
    let help = "CPU time of the process, all cores together.";
    page.family("process_cpu_seconds_total", Kind::Counter, help).sample(&[], cpu_time().as_secs_f64());
    if let Some(bytes) = memory_bytes() {
        page.family("process_resident_memory_bytes", Kind::Gauge, "Memory of the process.").sample(&[], bytes as f64);
    }
}
