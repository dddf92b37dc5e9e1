//! What a job shows of itself while it runs: logs, traces, metrics.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tests::trace::spans;
use tests::{ocellus, workspace_root};

/// `ocellus classify`, with the faster of the sample models, on the CPU.
fn classify(arguments: &[&str]) -> Command {
    let mut command = ocellus();
    command.arg("classify").args(["--model", "squeezenet1.1", "--device", "cpu"]).args(arguments);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn rows(output: &Output) -> Vec<Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A folder with a photo and a broken picture.
fn mixed_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(workspace_root().join("samples/photos/panda.jpg"), folder.path().join("1.jpg")).unwrap();
    fs::write(folder.path().join("2.jpg"), "no picture").unwrap();
    folder
}

#[test]
fn logs_are_asked_for_and_have_levels() {
    let folder = mixed_folder();
    let input = folder.path().to_str().unwrap();
    let lines = |arguments: &[&str], variable: &str| {
        let output = classify(&[input]).args(arguments).env("OCELLUS_LOG", variable).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
        assert_eq!(rows(&output).len(), 2);
        text(&output.stderr).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let has = |lines: &[String], word: &str| lines.iter().any(|line| line.contains(word));
    let plain = lines(&[], "");
    assert!(!has(&plain, "INFO") && plain.last().unwrap().contains("2 images"), "{plain:?}");
    let verbose = lines(&["-v"], "");
    assert!(has(&verbose, " INFO ocellus::cli") && !has(&verbose, "DEBUG"), "{verbose:?}");
    assert!(has(&verbose, "from arrival to row: p50"), "{verbose:?}");
    assert!(verbose.last().unwrap().contains("2 images"), "{verbose:?}");
    let more = lines(&["-vv"], "");
    assert!(has(&more, "DEBUG ocellus::runner: the stage ended stage=\"decode+resize\""), "{more:?}");
    let chosen = lines(&["-q"], "ocellus::runner=debug");
    assert!(has(&chosen, "DEBUG ocellus::runner") && !has(&chosen, "INFO"), "{chosen:?}");
    let output = classify(&[input]).env("OCELLUS_LOG", "ocellus=loud").output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).lines().count()), (Some(2), 1), "{}", text(&output.stderr));
}

/// A folder of so many links to a photo.
fn photos(count: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("0.jpg");
    fs::copy(workspace_root().join("samples/photos/panda.jpg"), &first).unwrap();
    for n in 1..count {
        fs::hard_link(&first, folder.path().join(format!("{n}.jpg"))).unwrap();
    }
    folder
}

#[test]
fn a_profile_shows_every_stage_on_its_threads() {
    let (folder, out) = (photos(20), tempfile::tempdir().unwrap());
    let (trace, stats) = (out.path().join("trace.json"), out.path().join("stats.json"));
    let figures = ["--profile", trace.to_str().unwrap(), "--stats", stats.to_str().unwrap()];
    // The second time over the file of the first.
    for _ in 0..2 {
        let output = classify(&[folder.path().to_str().unwrap(), "--threads", "2"]).args(figures).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let stats: Value = serde_json::from_str(&fs::read_to_string(stats).unwrap()).unwrap();
    let spans = spans(&trace);
    let wall_ns = (stats["wall_s"].as_f64().unwrap() * 1e9) as u64;
    for stage in stats["pipeline"]["stages"].as_array().unwrap() {
        let name = stage["stage"].as_str().unwrap();
        let of_stage: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
        assert!(of_stage.iter().all(|span| span.process == "ocellus" && span.track.starts_with(name)), "{name}");
        assert!(of_stage.iter().all(|span| span.end_ns <= wall_ns), "{name}");
        // A source gives what it has no input for.
        let values = stage["in"].as_u64().unwrap().max(if name == "source" { 20 } else { 0 });
        assert_eq!(of_stage.len() as u64, values, "{name}");
        let busy_s = of_stage.iter().map(|span| span.end_ns - span.start_ns).sum::<u64>() as f64 / 1e9;
        let told = stage["busy_s"].as_f64().unwrap();
        assert!((busy_s - told).abs() <= 0.01 * told + 1e-3, "{name}: {busy_s} s in the trace, {told} s");
    }
}

#[test]
fn a_profile_is_complete_however_the_job_ends() {
    let (folder, out) = (photos(3), tempfile::tempdir().unwrap());
    let trace = out.path().join("trace.json");
    let profile = ["--profile", trace.to_str().unwrap()];
    let ends: [(&[&str], i32); 2] = [(&["none.jpg", "--fail-fast"], 1), (&["none.jpg"], 3)];
    for (more, code) in ends {
        let output = classify(&[folder.path().to_str().unwrap()]).args(more).args(profile).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        assert!(spans(&trace).iter().any(|span| span.name == "decode+resize"));
    }
    // A list that does not end, and Ctrl-C.
    let mut command = classify(&["-"]);
    let mut job = command.args(profile).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut list = job.stdin.take().unwrap();
    writeln!(list, "{}", folder.path().join("0.jpg").display()).unwrap();
    let mut row = String::new();
    BufReader::new(job.stdout.take().unwrap()).read_line(&mut row).unwrap();
    assert!(row.contains("giant panda"), "{row}");
    assert!(Command::new("kill").args(["-TERM", &job.id().to_string()]).status().unwrap().success());
    assert_eq!(job.wait().unwrap().code(), Some(130));
    drop(list);
    assert_eq!(spans(&trace).iter().filter(|span| span.name == "decode+resize").count(), 1);
}

#[test]
fn a_profile_replaces_nothing_else() {
    let (folder, out) = (photos(1), tempfile::tempdir().unwrap());
    let path = |name: &str| out.path().join(name).to_str().unwrap().to_owned();
    let (mine, rows, stats) = (path("mine.json"), path("rows.jsonl"), path("stats.json"));
    fs::write(&mine, "[1]").unwrap();
    for (profile, more) in [
        (&mine, vec![]),
        (&rows, vec!["-o", &rows]),
        (&format!("{rows}.partial"), vec!["-o", &rows]),
        (&stats, vec!["--stats", &stats]),
        (&"-".to_owned(), vec![]),
    ] {
        let input = folder.path().to_str().unwrap();
        let output = classify(&[input, "--profile", profile]).args(&more).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{profile} {more:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("--profile"), "{}", text(&output.stderr));
        for made in [&rows, &stats] {
            let _ = fs::remove_file(made);
        }
    }
    assert_eq!(fs::read_to_string(&mine).unwrap(), "[1]");
}
