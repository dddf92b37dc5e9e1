//! What a job did: the summary line and `--stats`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;

use serde::Serialize as _;

use crate::error::ErrorKind;
use crate::frame::Decoder;
use crate::observe::{Durations, Spread};
use crate::runner::Report;
use crate::sink::Row;
use crate::source::SkippedCounts;

/// What a file of `--stats` begins with.
pub(super) const START: &[u8] = b"{\n  \"version\": ";

/// Counts over the rows.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub(super) struct Tally {
    /// Inputs whose rows were written.
    pub(super) images: u64,
    /// Those among them that are errors.
    pub(super) failed: u64,
    /// Those that were decoded from an incomplete file.
    pub(super) partial: u64,
    /// The input that rows are of now has failed.
    #[serde(skip)]
    failing: bool,
    /// Errors by kind.
    pub(super) errors: BTreeMap<ErrorKind, u64>,
    /// Images by decoder.
    pub(super) decoders: BTreeMap<Decoder, u64>,
    /// From an item's arrival to its row, which is written by then.
    #[serde(serialize_with = "spread_of", rename = "latency_ms")]
    pub(super) latency: Durations,
}

impl Tally {
    /// Counts a row that was written just now, the first of its input or that of a further model; its item arrived then.
    pub(super) fn add(&mut self, row: &Row, arrived: Instant, first: bool) {
        if first {
            self.latency.record(arrived.elapsed());
        }
        self.images += u64::from(first);
        self.partial += u64::from(first && row.partial);
        self.failing &= !first;
        if let Some(error) = row.error.as_ref().filter(|_| !self.failing) {
            self.failing = true;
            self.failed += 1;
            *self.errors.entry(error.kind).or_default() += 1;
        }
        if let Some(decoder) = row.decoder.filter(|_| first) {
            *self.decoders.entry(decoder).or_default() += 1;
        }
    }
}

fn spread_of<S: serde::Serializer>(durations: &Durations, serializer: S) -> Result<S::Ok, S::Error> {
    durations.spread().serialize(serializer)
}

/// A job's figures, as `--stats` writes them.
#[derive(Debug, serde::Serialize)]
pub(super) struct Stats {
    pub(super) version: &'static str,
    pub(super) model: String,
    pub(super) device: String,
    /// What each GPU was given.
    pub(super) images_by_device: BTreeMap<String, u64>,
    /// Arithmetic of the networks.
    pub(super) precision: String,
    pub(super) threads: usize,
    pub(super) batch: usize,
    pub(super) interrupted: bool,
    /// From opening the model to the last row.
    pub(super) wall_s: f64,
    /// In that time.
    pub(super) images_per_s: f64,
    #[serde(flatten)]
    pub(super) tally: Tally,
    /// Inputs whose rows an earlier job had written (`--resume`).
    pub(super) resumed: u64,
    /// Rows of earlier jobs that are errors; they are not tried again.
    pub(super) resumed_failed: u64,
    pub(super) skipped: SkippedCounts,
    /// Batches that the GPU had no memory for at once.
    pub(super) batches_split: u64,
    /// CPU time of the process, all cores together.
    pub(super) cpu_s: f64,
    /// Cores that were at work on average while the stages ran.
    pub(super) cpu_cores: f64,
    /// Most memory that the process held at a time, where the system says it.
    pub(super) peak_memory_bytes: Option<u64>,
    /// What each stage did.
    pub(super) pipeline: Report,
}

impl Stats {
    /// The summary: one line.
    pub(super) fn summary(&self) -> String {
        let Self { tally, skipped, .. } = self;
        let mut line = format!(
            "{} {} in {:.1} s ({:.1} a second)",
            tally.images,
            if tally.images == 1 { "image" } else { "images" },
            self.wall_s,
            self.images_per_s
        );
        let part = |line: &mut String, count: u64, what: &str, details: &[(String, u64)]| {
            if count > 0 {
                let _ = write!(line, "; {count} {what}");
                let details: Vec<String> =
                    details.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{n} {what}")).collect();
                if !details.is_empty() {
                    let _ = write!(line, " ({})", details.join(", "));
                }
            }
        };
        let mut errors: Vec<_> = tally.errors.iter().map(|(kind, n)| (kind.to_string(), *n)).collect();
        errors.sort();
        part(&mut line, tally.failed, "failed", &errors);
        part(&mut line, tally.partial, "partial", &[]);
        let reasons = [
            ("hidden", skipped.hidden),
            ("no images", skipped.not_images),
            ("pipes or devices", skipped.special),
            ("links to folders already seen", skipped.folder_links),
        ];
        part(&mut line, skipped.total(), "skipped", &reasons.map(|(what, n)| (what.to_owned(), n)));
        part(&mut line, self.resumed, "done before", &[("failed".to_owned(), self.resumed_failed)]);
        if self.interrupted {
            line.push_str("; interrupted");
        }
        line
    }

    /// How long items took, for `-v`.
    pub(super) fn latency_line(&self) -> Option<String> {
        let Spread { p50, p90, p99, max, .. } = self.tally.latency.spread()?;
        let latency =
            format!("from arrival to row: p50 {p50:.1} ms  p90 {p90:.1} ms  p99 {p99:.1} ms  max {max:.1} ms");
        Some(format!("{latency}; {:.1} cores at work", self.cpu_cores))
    }
}

/// A line for each stage.
pub(super) fn stage_lines(report: &Report) -> Vec<String> {
    let lines = report.stages.iter().map(|s| {
        format!(
            "{:<14} {:>3} threads  {:>8} in {:>8} out  busy {:>5.1} %  starved {:>7.2} s  blocked {:>7.2} s  queue {:.1}, most {} of {}",
            s.stage, s.workers, s.taken, s.given, 100.0 * s.busy_share, s.starved_s, s.blocked_s, s.queue_mean, s.queue_max,
            s.queue_capacity
        )
    });
    lines.collect()
}
