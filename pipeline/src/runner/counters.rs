//! What every stage did.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ocellus_sys::nvtx::{Label, Range};

use crate::error::JobError;
use crate::observe::{Durations, Spread, Track};

/// Counts of one stage while it runs.
pub(super) struct Counters {
    pub(super) stage: &'static str,
    workers: usize,
    /// Threads that do not wait for a value.
    at_work: AtomicUsize,
    queue_capacity: usize,
    taken: AtomicU64,
    given: AtomicU64,
    busy_ns: AtomicU64,
    starved_ns: AtomicU64,
    blocked_ns: AtomicU64,
    /// How long one value took, of several that were taken at once their mean. Locked for a moment by each thread of the stage.
    service: Mutex<Durations>,
    queue_len: AtomicUsize,
    queue_max: AtomicUsize,
    /// Over all times that the queue was seen.
    queue_sum: AtomicU64,
    queue_seen: AtomicU64,
}

impl Counters {
    pub(super) fn new(stage: &'static str, workers: usize, queue_capacity: usize) -> Self {
        Self {
            stage,
            workers,
            at_work: AtomicUsize::new(workers),
            queue_capacity,
            taken: AtomicU64::new(0),
            given: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            starved_ns: AtomicU64::new(0),
            blocked_ns: AtomicU64::new(0),
            service: Mutex::default(),
            queue_len: AtomicUsize::new(0),
            queue_max: AtomicUsize::new(0),
            queue_sum: AtomicU64::new(0),
            queue_seen: AtomicU64::new(0),
        }
    }

    pub(super) fn took(&self, values: usize) {
        self.taken.fetch_add(values as u64, Relaxed);
    }

    pub(super) fn put_back(&self, values: usize) {
        self.taken.fetch_sub(values as u64, Relaxed);
    }

    pub(super) fn gave(&self, values: usize) {
        self.given.fetch_add(values as u64, Relaxed);
    }

    /// So many values are done together, and have given so many.
    fn finished(&self, took: Duration, values: usize, given: usize) {
        add(&self.busy_ns, took);
        let each = took / u32::try_from(values).unwrap_or(u32::MAX).max(1);
        self.service.lock().unwrap_or_else(PoisonError::into_inner).record_many(each, values);
        self.gave(given);
    }

    /// Values taken so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// Values given so far.
    pub(super) fn given(&self) -> u64 {
        self.given.load(Relaxed)
    }

    /// A thread waits for a value, and will give nothing before it has one; or it has ended.
    pub(super) fn rests(&self) {
        self.at_work.fetch_sub(1, Relaxed);
    }

    /// It goes on.
    pub(super) fn goes_on(&self) {
        self.at_work.fetch_add(1, Relaxed);
    }

    /// Threads that do not rest.
    pub(super) fn at_work(&self) -> usize {
        self.at_work.load(Relaxed)
    }

    pub(super) fn was_starved(&self, started: Instant) {
        add(&self.starved_ns, started.elapsed());
    }

    pub(super) fn was_blocked(&self, started: Instant) {
        add(&self.blocked_ns, started.elapsed());
    }

    /// What was counted so far, `wall` after the start.
    fn report(&self, wall: Duration) -> StageReport {
        let wall_s = wall.as_secs_f64().max(f64::MIN_POSITIVE);
        let seconds = |ns: &AtomicU64| Duration::from_nanos(ns.load(Relaxed)).as_secs_f64();
        let (taken, given, busy_s) = (self.taken.load(Relaxed), self.given.load(Relaxed), seconds(&self.busy_ns));
        let is_source = self.queue_capacity == 0;
        StageReport {
            stage: self.stage,
            workers: self.workers,
            taken,
            given,
            per_s: if is_source { given } else { taken } as f64 / wall_s,
            busy_s,
            busy_share: busy_s / (wall_s * self.workers as f64),
            starved_s: seconds(&self.starved_ns),
            blocked_s: seconds(&self.blocked_ns),
            service_ms: self.service.lock().unwrap_or_else(PoisonError::into_inner).spread(),
            queue_len: self.queue_len.load(Relaxed),
            queue_max: self.queue_max.load(Relaxed),
            queue_mean: self.queue_sum.load(Relaxed) as f64 / self.queue_seen.load(Relaxed).max(1) as f64,
            queue_capacity: self.queue_capacity,
        }
    }

    fn saw_queue(&self, places: usize) {
        self.queue_len.store(places, Relaxed);
        self.queue_max.fetch_max(places, Relaxed);
        self.queue_sum.fetch_add(places as u64, Relaxed);
        self.queue_seen.fetch_add(1, Relaxed);
    }
}

fn add(total_ns: &AtomicU64, time: Duration) {
    total_ns.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
}

/// One thread's view of its stage: its own track, its name for profilers, and the counts of all.
pub(super) struct Meter {
    pub(super) counters: Arc<Counters>,
    pub(super) track: Track,
    pub(super) label: Option<Label>,
}

/// Values that a thread is at work on.
pub(super) struct Work {
    started: Instant,
    range: Option<Range>,
}

impl Work {
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Deref for Meter {
    type Target = Counters;

    fn deref(&self) -> &Counters {
        &self.counters
    }
}

impl Meter {
    /// Work on so many values begins.
    pub(super) fn begin(&self, values: usize) -> Work {
        let range = self.label.map(|label| label.range(values as u64));
        Work { started: Instant::now(), range }
    }

    /// It ends with so many values done, and has given so many. Gives back how long it took.
    pub(super) fn finished(&self, work: Work, values: usize, given: usize) -> Duration {
        let Work { started, range } = work;
        drop(range);
        let ended = Instant::now();
        self.counters.finished(ended - started, values, given);
        self.track.span_between(self.stage, [started, ended], None);
        ended - started
    }

    pub(super) fn saw_queue(&self, places: usize) {
        self.counters.saw_queue(places);
        self.track.queue(self.stage, places);
    }
}

/// What one stage did.
#[derive(Clone, Debug, serde::Serialize)]
pub struct StageReport {
    /// Its name.
    pub stage: &'static str,
    /// Its threads.
    pub workers: usize,
    /// Values taken.
    #[serde(rename = "in")]
    pub taken: u64,
    /// Values given.
    #[serde(rename = "out")]
    pub given: u64,
    /// Values a second: taken, by the source given.
    pub per_s: f64,
    /// Time at work, all threads together.
    pub busy_s: f64,
    /// `busy_s` as a share of the threads' time in the job, 0..1. The stage nearest to 1 is the bottleneck.
    pub busy_share: f64,
    /// Time in which a thread was ready and no value was there.
    pub starved_s: f64,
    /// Time in which a value was there and the next queue was full.
    pub blocked_s: f64,
    /// Time at work on one value.
    pub service_ms: Option<Spread>,
    /// Places that were taken when the stage last looked into the queue before it.
    #[serde(skip)]
    pub queue_len: usize,
    /// Most places seen taken in the queue before the stage.
    pub queue_max: usize,
    /// Mean of the places taken in that queue, whenever the stage looked for a value.
    pub queue_mean: f64,
    /// Places of that queue.
    pub queue_capacity: usize,
}

/// What all stages did, source first and sink last.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// From the first thread's start to the last one's end.
    pub wall_s: f64,
    /// Stages in order.
    pub stages: Vec<StageReport>,
}

impl Report {
    pub(super) fn new<'a>(wall: Duration, stages: impl Iterator<Item = &'a Counters>) -> Self {
        Self { wall_s: wall.as_secs_f64(), stages: stages.map(|stage| stage.report(wall)).collect() }
    }

    /// Compares what came out with what the source gave.
    ///
    /// # Errors
    /// [`JobError::Lost`] where these `results` are not `each` for every value of the source.
    pub fn account(&self, results: u64, each: usize) -> Result<(), JobError> {
        let inputs = self.stages.first().map_or(0, |source| source.given);
        let expected = inputs * each as u64;
        if results == expected {
            return Ok(());
        }
        let stages = self.stages.iter().map(|stage| format!("{} {}/{}", stage.stage, stage.taken, stage.given));
        Err(JobError::Lost { results, expected, inputs, stages: stages.collect::<Vec<_>>().join(", ") })
    }
}
