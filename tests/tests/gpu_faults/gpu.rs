//! A GPU that fails, or that others use. Only the emulator does so on demand.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Mutex;
use std::thread;

use serde_json::Value;
use tests::gpu::{gpu, is_emulated};
use tests::job::wait;
use tests::skip;

use super::{Fixture, device, errors, mixed, photo, rows, text};

/// True where the GPU is the emulator.
fn is_emulator() -> bool {
    if device() != "cuda" {
        return false;
    }
    let emulated = gpu().is_some_and(is_emulated);
    if !emulated {
        skip("REQUIRE_EMULATOR", "a real GPU does not fail on demand");
    }
    emulated
}

/// Calls that a context can be lost at.
const KINDS: [&str; 14] = [
    "allocate",
    "copy",
    "download",
    "event",
    "fill",
    "free",
    "graph",
    "host-allocate",
    "host-free",
    "launch",
    "load",
    "record",
    "stream",
    "upload",
];

/// What `lose` makes of every kind, two at a time.
fn of_every_kind<T: Send>(lose: impl Fn(&'static str) -> T + Sync) -> BTreeMap<&'static str, T> {
    let queue = Mutex::new(KINDS.iter());
    let made = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(kind) = { queue.lock().unwrap().next() } {
                    let of_kind = lose(kind);
                    made.lock().unwrap().insert(*kind, of_kind);
                }
            });
        }
    });
    made.into_inner().unwrap()
}

/// At every kind of call, from the first of a job to the last, in steps that grow: one line that says which GPU and what, no
/// crash, no hang, and with `--resume` the rows of an undisturbed job.
#[test]
fn a_context_that_is_lost_anywhere_ends_the_job_in_order() {
    if !is_emulator() {
        return;
    }
    let fixture = Fixture::new();
    // Four times, so that many are lost behind their first rows.
    let once = [mixed(&fixture), mixed(&fixture), vec![photo("rocket.jpg")], mixed(&fixture)].concat();
    let files = vec![once; 4].concat();
    let options = ["--batch", "2", "--threads", "2", "--precision", "fp32", "-q"];
    let command = |name: &str| {
        let output = fixture.path(name);
        let mut command = fixture.command(&files, &options);
        command.arg("-o").arg(&output).arg("--resume");
        (command, output)
    };
    let (mut job, whole) = command("whole.jsonl");
    assert_eq!(job.output().unwrap().status.code(), Some(3));
    let whole = fs::read(whole).unwrap();
    let lose = |kind: &str| {
        let (mut failed, mut with_rows) = (0, 0);
        for first in (0..).map(|n: u32| 2_u64.pow(n)) {
            let (mut job, output) = command(&format!("{kind}{first}.jsonl"));
            job.env("OCELLUS_EMULATOR_FAIL", format!("{kind}:{first}:700"));
            job.stdout(Stdio::null()).stderr(Stdio::piped());
            let mut child = job.spawn().unwrap();
            let code = wait(&mut child).code();
            let said = errors(&child.wait_with_output().unwrap().stderr);
            // What only fails when all rows are written changes nothing.
            if code == Some(3) && output.exists() {
                assert!(fs::read(&output).unwrap() == whole, "{kind}:{first}");
                break;
            }
            failed += 1;
            assert_eq!(code, Some(1), "{kind}:{first}: {said:?}");
            let first_line = &said[0];
            assert!(said.len() == 1 && first_line.starts_with("error: "), "{kind}:{first}: {said:?}");
            assert!(
                first_line.contains("cuda:0") && first_line.contains("illegal memory access"),
                "{kind}:{first}: {first_line}"
            );
            let partial = PathBuf::from(format!("{}.partial", output.display()));
            let kept = fs::read(&partial).unwrap_or_default();
            assert!(whole.starts_with(&kept) && (kept.is_empty() || kept.ends_with(b"\n")), "{kind}:{first}");
            with_rows += usize::from(!kept.is_empty());
            // Without a row it is a job like any other.
            if !kept.is_empty() {
                let (mut job, output) = command(&format!("{kind}{first}.jsonl"));
                let ended = job.output().unwrap();
                assert_eq!(ended.status.code(), Some(3), "{kind}:{first}: {}", text(&ended.stderr));
                assert!(fs::read(&output).unwrap() == whole, "{kind}:{first}: not what one run writes");
            }
        }
        (failed, with_rows)
    };
    let lost = of_every_kind(lose);
    println!("kind: jobs that failed, those among them that had written rows: {lost:?}");
    // Copies within the device and back belong to other commands, fills to batches that are not full.
    let silent: Vec<_> = lost.iter().filter(|(_, (failed, _))| *failed == 0).map(|(kind, _)| *kind).collect();
    assert!(
        silent.iter().all(|kind| ["copy", "download", "fill", "free", "host-free"].contains(kind)),
        "never called: {silent:?}"
    );
    let with_rows: usize = lost.values().map(|(_, with_rows)| with_rows).sum();
    assert!(with_rows >= 5, "hardly any job had written a row: {lost:?}");
}

/// The same where another GPU works: nothing but a warning says that one was lost. Each row is there once, in its place.
#[test]
fn a_context_of_several_that_is_lost_anywhere_costs_no_row() {
    if !is_emulator() {
        return;
    }
    let fixture = Fixture::new();
    let files = vec![mixed(&fixture); 4].concat();
    let options = ["--batch", "2", "--threads", "2", "--precision", "fp32", "--format", "jsonl", "-q"];
    let command = || {
        let mut command = fixture.command_on("cuda:all", &files, &options);
        command.env("OCELLUS_EMULATOR_GPUS", "2");
        command
    };
    let undisturbed = command().output().unwrap();
    let whole = rows(&undisturbed);
    let lose = |kind: &str| {
        let (mut before, mut meanwhile) = (0, 0);
        for first in (0..).map(|n: u32| 3_u64.pow(n)) {
            let output = command().env("OCELLUS_EMULATOR_FAIL", format!("{kind}:{first}:700:1")).output().unwrap();
            let said = text(&output.stderr);
            assert_eq!(rows(&output), whole, "{kind}:{first}: {said}");
            let warnings: Vec<_> = said.lines().filter(|line| line.contains("cuda:1")).collect();
            match warnings[..] {
                [] => break,
                [one] if one.starts_with("warning: cuda:1 is left out: ") => before += 1,
                [one] if one.starts_with("warning: the job goes on without cuda:1: ") => meanwhile += 1,
                _ => panic!("{kind}:{first}: {said}"),
            }
        }
        (before, meanwhile)
    };
    let lost = of_every_kind(lose);
    println!("kind: how often the GPU was lost before the job and during it: {lost:?}");
    let meanwhile: usize = lost.values().map(|(_, meanwhile)| meanwhile).sum();
    assert!(meanwhile > 0, "never during a job: {lost:?}");
}

/// nvJPEG alone fails from some call on: the CPU decodes what it does not.
#[test]
fn decoders_that_fail_from_some_call_on_cost_no_row() {
    if !is_emulator() {
        return;
    }
    let fixture = Fixture::new();
    let files = vec![[mixed(&fixture), vec![photo("rocket.jpg")]].concat(); 3].concat();
    let options = ["--batch", "4", "--threads", "2", "--precision", "fp32", "--format", "jsonl"];
    let undisturbed = rows(&fixture.command(&files, &options).output().unwrap());
    let mut by_gpu = Vec::new();
    for first in [1, 2, 5, 9, 30] {
        let mut command = fixture.command(&files, &options);
        let failing = rows(&command.env("EMULATED_NVJPEG", format!("fail-from:{first}")).output().unwrap());
        assert_same_but_for_the_decoder(&failing, &undisturbed);
        by_gpu.push(
            failing.iter().filter(|row| row["decoder"].as_str().is_some_and(|d| d.starts_with("nvjpeg"))).count(),
        );
    }
    assert!(by_gpu[0] == 0 && by_gpu.is_sorted() && by_gpu[4] > 0, "{by_gpu:?}");
}

/// Rows are equal, bit for bit where the same decoder made the picture.
fn assert_same_but_for_the_decoder(rows: &[Value], undisturbed: &[Value]) {
    assert_eq!(rows.len(), undisturbed.len());
    for (row, expected) in rows.iter().zip(undisturbed) {
        if row["decoder"] == expected["decoder"] {
            assert_eq!(row, expected);
            continue;
        }
        for field in ["path", "width", "height", "error"] {
            assert_eq!(row[field], expected[field], "{row} instead of {expected}");
        }
        let scores = |row: &Value| {
            let top = row["top"].as_array().unwrap_or_else(|| panic!("no result: {row}"));
            top.iter().map(|s| (s["class"].clone(), s["score"].as_f64().unwrap())).collect::<Vec<_>>()
        };
        for ((_, a), (_, b)) in scores(row).iter().zip(scores(expected)) {
            assert!((a - b).abs() < 2e-2, "{row} instead of {expected}");
        }
    }
}

/// Other programs have the rest of the GPU's memory for a while, from any point of a job on: the rows of an undisturbed job,
/// or, where it could not even start, one line that says so.
#[test]
fn memory_that_others_take_meanwhile_costs_no_row() {
    if !is_emulator() {
        return;
    }
    let fixture = Fixture::new();
    // Larger and larger, so that every batch needs more memory than those before it.
    let shot = |n: u32| {
        let path = fixture.path(&format!("shot{n}.jpg"));
        let of = |x, y| image::Rgb([(x / 7) as u8, (y / 5) as u8, (x ^ y) as u8]);
        image::RgbImage::from_fn(120 + 70 * n, 90 + 50 * n, of).save(&path).unwrap();
        path
    };
    let files: Vec<PathBuf> = mixed(&fixture).into_iter().chain((0..10).map(shot)).collect();
    let options = ["--batch", "3", "--threads", "2", "--precision", "fp32", "--format", "jsonl"];
    let report = fixture.path("allocations");
    let command = || {
        let mut command = fixture.command(&files, &options);
        command.env("OCELLUS_EMULATOR_REPORT", &report);
        command
    };
    let undisturbed = rows(&command().output().unwrap());
    let allocations: usize = fs::read_to_string(&report).unwrap().lines().next().unwrap().parse().unwrap();
    let (mut refused_to_start, mut split) = (0, 0);
    for from in (1..=allocations).step_by(allocations.div_ceil(10)) {
        for count in [1, 3, 20] {
            let output = command().env("OCELLUS_EMULATOR_OTHERS", format!("{from}:{count}")).output().unwrap();
            let said = text(&output.stderr);
            if output.status.code() == Some(1) {
                assert!(
                    said.lines().last().is_some_and(|line| line.contains("out of memory")),
                    "{from}:{count}: {said}"
                );
                assert!(output.stdout.is_empty(), "{from}:{count}: rows, then {said}");
                refused_to_start += 1;
                continue;
            }
            assert_same_but_for_the_decoder(&rows(&output), &undisturbed);
            split += usize::from(said.contains("no memory for"));
        }
    }
    println!("{allocations} allocations; jobs that did not start: {refused_to_start}, that split a batch: {split}");
    assert!(split > 0, "others were never in the way of a batch");
}
