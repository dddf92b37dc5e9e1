//! Jobs with a deadline, and what a long job allocates.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;

use super::{Fixture, emulator, golden, golden_files, photo, rows};

/// Any deadline, met or not, changes when rows are there, not the rows.
#[test]
fn a_deadline_changes_no_row() {
    let Some(fixture) = Fixture::new() else { return };
    let files = golden_files();
    for batch in ["5", "64"] {
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

/// A job of many batches takes memory of the GPU and page-locked memory only while its workers begin.
#[test]
fn a_long_job_allocates_no_more_than_a_short_one() {
    /// What the workers may take when they first need it.
    const BEGIN: usize = 100;
    const IMAGES: usize = 400;
    let Some(fixture) = Fixture::new() else { return };
    if emulator().is_none() {
        return;
    }
    let small = golden("jpeg-420-progressive.jpg");
    let report = fixture.path("allocations");
    let allocations = |images: usize| {
        let files = vec![small.clone(); images];
        let mut command = fixture.command("cuda", &files, &["--batch", "1"]);
        command.env("OCELLUS_EMULATOR_REPORT", &report);
        assert_eq!(rows(&command.output().unwrap()).len(), images);
        fs::read_to_string(&report).unwrap().trim().parse::<usize>().unwrap()
    };
    let [one, many] = [1, IMAGES].map(allocations);
    println!("{one} allocations for one image, {many} for {IMAGES}");
    assert!(many <= one + BEGIN, "{many} allocations for {IMAGES} batches, {one} for one");
}
