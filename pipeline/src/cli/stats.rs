//! What a job did: the summary line and `--stats`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize as _;

use crate::error::{ErrorKind, JobError};
use crate::frame::Decoder;
use crate::observe::trace::Recorded;
use crate::observe::{Durations, Recorder, Spread};
use crate::runner::Report;
use crate::sink::{Row, partial_of};
use crate::source::SkippedCounts;

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
            self.pipeline.wall_s,
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

/// The file that `--stats` names.
pub(super) struct StatsFile {
    path: PathBuf,
    file: File,
}

impl StatsFile {
    /// Opens the file, which may exist where it holds figures of an earlier job. `output` is the file of the rows.
    pub(super) fn create(path: &Path, output: Option<&Path>) -> Result<Self, JobError> {
        let file = open_figures("--stats", path, b"{\n  \"version\": ", &[output])?;
        Ok(Self { path: path.to_owned(), file })
    }

    pub(super) fn write(&mut self, stats: &Stats) -> Result<(), JobError> {
        let json = serde_json::to_string_pretty(stats).map_err(io::Error::other);
        json.and_then(|json| empty(&self.file).and_then(|()| writeln!(self.file, "{json}")))
            .map_err(|e| JobError::io(format!("cannot write {}", self.path.display()), e))
    }
}

/// True where both paths name one place, which need not exist.
fn is_same(a: &Path, b: &Path) -> bool {
    let place = |path: &Path| {
        if let Ok(place) = path.canonicalize() {
            return Some(place);
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(folder.canonicalize().ok()?.join(path.file_name()?))
    };
    place(a).is_some_and(|a| place(b) == Some(a))
}

/// Opens the file that the option names, which may exist where it begins with `start`: as those of earlier jobs do. `others`
/// are written by this job as well. What the file holds stays until there is something to replace it with.
pub(super) fn open_figures(
    option: &str,
    path: &Path,
    start: &[u8],
    others: &[Option<&Path>],
) -> Result<File, JobError> {
    let refuse = |why: &str| Err(JobError::Usage(format!("{option} {}: {why}", path.display())));
    if path.as_os_str() == "-" {
        return refuse("give the name of a file; /dev/stderr is one");
    }
    let written = others.iter().flatten();
    if written.clone().any(|other| is_same(path, other) || is_same(path, &partial_of(other))) {
        return refuse("rows or other figures go there; choose another file");
    }
    if path.is_file() && !begins(path, start).map_err(|e| JobError::io(format!("cannot read {}", path.display()), e))? {
        return refuse(&format!("it exists and is no file of {option}; remove it or choose another"));
    }
    let file = File::options().write(true).create(true).truncate(false).open(path);
    file.map_err(|e| JobError::io(format!("cannot write {}", path.display()), e))
}

/// Empties a file; a device or a pipe is what it is.
fn empty(file: &File) -> io::Result<()> {
    file.metadata().and_then(|m| if m.is_file() { file.set_len(0) } else { Ok(()) })
}

/// Records into a file that [`open_figures`] has opened, which holds nothing that is still wanted.
pub(super) fn record_to(file: File) -> Result<Recorder, JobError> {
    empty(&file).map_err(|e| JobError::io("cannot write the profile", e))?;
    Recorder::to_file(file, "ocellus")
}

/// Completes a profile, if there is one; a line where it leaves something out.
pub(super) fn finish_profile(recorder: &Recorder) -> Result<Option<String>, JobError> {
    let recorded = recorder.finish()?.filter(|recorded| recorded.left_out > 0);
    Ok(recorded.map(|Recorded { events, left_out }| {
        format!("warning: the profile has the first {events} events; {left_out} more are left out")
    }))
}

/// True for a file that is empty or begins like this.
fn begins(path: &Path, start: &[u8]) -> io::Result<bool> {
    let mut found = Vec::new();
    File::open(path)?.take(start.len() as u64).read_to_end(&mut found)?;
    Ok(found.is_empty() || found == start)
}
