//! Jobs with a deadline, and what a long job allocates.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tests::gpu::tool;

use super::{Fixture, emulator, golden, golden_files, photo, rows};

/// Any deadline, met or not, changes when rows are there, not the rows.
#[test]
fn a_deadline_changes_no_row() {
    let Some(fixture) = Fixture::new() else { return };
    let files = golden_files();
    // A tool takes long to start the program.
    let batches = if tool().is_some() { vec!["5"] } else { vec!["5", "64"] };
    for batch in batches {
        let filled = fixture.rows("cuda", &files, &["--batch", batch]);
        for max_latency in ["0", "3", "60000"] {
            let soon = fixture.rows("cuda", &files, &["--batch", batch, "--max-latency", max_latency]);
            assert_eq!(soon, filled, "{max_latency} ms, batches of {batch}");
        }
    }
    let files = files[..20].to_vec();
    let filled = fixture.rows("cpu", &files, &[]);
    assert_eq!(fixture.rows("cpu", &files, &["--max-latency", "1"]), filled, "on the CPU");
}

/// A path on standard input has its row while nobody knows whether another will come.
#[test]
fn paths_on_a_pipe_have_their_rows_one_by_one() {
    let Some(fixture) = Fixture::new() else { return };
    let files =
        [photo("flower.jpg"), golden("jpeg-420-progressive.jpg"), PathBuf::from("none.jpg"), photo("rocket.jpg")];
    let expected = fixture.rows("cuda", &files, &[]);
    let mut command = fixture.command("cuda", &["-".into()], &[]);
    let mut job = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut paths = job.stdin.take().unwrap();
    let mut lines = BufReader::new(job.stdout.take().unwrap()).lines();
    for (file, expected) in files.iter().zip(expected) {
        writeln!(paths, "{}", file.display()).unwrap();
        paths.flush().unwrap();
        let row: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(row, expected);
    }
    drop(paths);
    assert!(lines.next().is_none());
    assert_eq!(job.wait().unwrap().code(), Some(3), "one of them is not there");
}

/// What a thread of a job did, as the emulator saw it.
#[derive(Debug)]
struct Thread {
    name: String,
    calls: u64,
    allocations: u64,
    /// Calls when it allocated last.
    last: u64,
}

/// All threads of the job whose report this is.
fn threads(report: &Path) -> Vec<Thread> {
    let text = fs::read_to_string(report).unwrap();
    let thread = |line: &str| {
        let (name, numbers) = line.split_once('\t').unwrap();
        let [calls, allocations, last] =
            numbers.split('\t').map(|number| number.parse().unwrap()).collect::<Vec<_>>().try_into().unwrap();
        Thread { name: name.to_owned(), calls, allocations, last }
    };
    text.lines().skip(1).map(thread).collect()
}

/// Sizes of memory that the files take, each twice the one before.
fn sizes_of(files: &[PathBuf]) -> u64 {
    let size = |file: &PathBuf| (fs::metadata(file).unwrap().len() + 1).div_ceil(4096).next_power_of_two();
    files.iter().map(size).collect::<BTreeSet<_>>().len() as u64
}

/// Each thread takes memory of the GPU and page-locked memory for its first batches, and none for those behind them. Every
/// batch is alike here, so that it does not matter which thread has how many.
#[test]
fn no_thread_allocates_after_its_first_batches() {
    const BATCHES: u64 = 300;
    /// A loader has memory for two batches, and each asks for what it needs when it has the first of them.
    const BEGIN: u64 = 3;
    let Some(fixture) = Fixture::new() else { return };
    if emulator().is_none() {
        return;
    }
    let text = fixture.file("text.jpg", b"no picture");
    // By nobody, by the engines, by CPU and GPU, by the CPU.
    let names = ["jpeg-420-16x17.jpg", "jpeg-420-progressive.jpg", "jpeg-cmyk-adobe.jpg"];
    let batch: Vec<PathBuf> = [text].into_iter().chain(names.map(golden)).collect();
    let files = vec![batch; BATCHES as usize].concat();
    let (report, stats) = (fixture.path("report"), fixture.path("stats.json"));
    let mut command = fixture.command("cuda", &files, &["--batch", "3"]);
    command.arg("--stats").arg(&stats).env("OCELLUS_EMULATOR_REPORT", &report);
    assert_eq!(rows(&command.output().unwrap()).len(), files.len());
    let stats: Value = serde_json::from_str(&fs::read_to_string(&stats).unwrap()).unwrap();
    let stages = stats["pipeline"]["stages"].as_array().unwrap();
    let given = |name: &str| stages.iter().find(|stage| stage["stage"] == name).unwrap()["out"].clone();
    assert_eq!(given("batch"), BATCHES, "the batches are not alike");
    let threads = threads(&report);
    for thread in &threads {
        println!("{thread:?}");
    }
    for stage in ["load", "infer", "postprocess"] {
        let of_stage = || threads.iter().filter(|thread| thread.name.starts_with(&format!("{stage}-")));
        let calls_a_batch = of_stage().map(|thread| thread.calls).sum::<u64>().div_ceil(BATCHES);
        assert!(calls_a_batch > 0, "{stage} calls nothing: {threads:?}");
        for thread in of_stage().filter(|thread| thread.allocations > 0) {
            assert!(thread.last <= BEGIN * calls_a_batch, "{calls_a_batch} calls a batch, {thread:?}");
        }
        assert!(of_stage().any(|thread| thread.calls > 2 * BEGIN * calls_a_batch), "{threads:?}");
    }
    // Readers lock memory for files of each size, once: more than are ever under way here fit in.
    let of_readers = threads.iter().filter(|thread| thread.name.starts_with("read+split-"));
    let locked = of_readers.map(|thread| thread.allocations).sum::<u64>();
    assert!((1..=sizes_of(&files)).contains(&locked), "{locked} times: {threads:?}");
}
