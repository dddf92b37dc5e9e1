//! What every stage did.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Counts of one stage while it runs.
pub(super) struct Counters {
    stage: &'static str,
    workers: usize,
    queue_capacity: usize,
    taken: AtomicU64,
    given: AtomicU64,
    busy_ns: AtomicU64,
    starved_ns: AtomicU64,
    blocked_ns: AtomicU64,
    queue_max: AtomicUsize,
}

impl Counters {
    pub(super) fn new(stage: &'static str, workers: usize, queue_capacity: usize) -> Self {
        Self {
            stage,
            workers,
            queue_capacity,
            taken: AtomicU64::new(0),
            given: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            starved_ns: AtomicU64::new(0),
            blocked_ns: AtomicU64::new(0),
            queue_max: AtomicUsize::new(0),
        }
    }

    pub(super) fn took_one(&self) {
        self.taken.fetch_add(1, Relaxed);
    }

    pub(super) fn gave(&self, values: usize) {
        self.given.fetch_add(values as u64, Relaxed);
    }

    pub(super) fn finished(&self, started: Instant, given: usize) {
        add(&self.busy_ns, started);
        self.gave(given);
    }

    pub(super) fn was_starved(&self, started: Instant) {
        add(&self.starved_ns, started);
    }

    pub(super) fn was_blocked(&self, started: Instant) {
        add(&self.blocked_ns, started);
    }

    pub(super) fn saw_queue(&self, places: usize) {
        self.queue_max.fetch_max(places, Relaxed);
    }
}

fn add(total_ns: &AtomicU64, started: Instant) {
    total_ns.fetch_add(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX), Relaxed);
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
    /// Time at work, all threads together.
    pub busy_s: f64,
    /// `busy_s` as a share of the threads' time in the job, 0..1. The stage nearest to 1 is the bottleneck.
    pub busy_share: f64,
    /// Time in which a thread was ready and no value was there.
    pub starved_s: f64,
    /// Time in which a value was there and the next queue was full.
    pub blocked_s: f64,
    /// Most places seen taken in the queue before the stage.
    pub queue_max: usize,
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
        let wall_s = wall.as_secs_f64();
        let seconds = |ns: &AtomicU64| Duration::from_nanos(ns.load(Relaxed)).as_secs_f64();
        let stages = stages
            .map(|c| StageReport {
                stage: c.stage,
                workers: c.workers,
                taken: c.taken.load(Relaxed),
                given: c.given.load(Relaxed),
                busy_s: seconds(&c.busy_ns),
                busy_share: seconds(&c.busy_ns) / (wall_s * c.workers as f64).max(f64::MIN_POSITIVE),
                starved_s: seconds(&c.starved_ns),
                blocked_s: seconds(&c.blocked_ns),
                queue_max: c.queue_max.load(Relaxed),
                queue_capacity: c.queue_capacity,
            })
            .collect();
        Self { wall_s, stages }
    }
}
