//! What a job shows of itself while it runs: logs, traces, metrics.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::job::{make_pipe, signal};
use tests::program::{self, mixed_folder, photo, rows, text};
use tests::trace::spans;
use tests::{skip, workspace_root};

/// `ocellus classify` on the CPU.
fn classify(arguments: &[&str]) -> Command {
    let mut command = program::classify(arguments);
    command.args(["--device", "cpu"]);
    command
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
    fs::copy(photo("panda.jpg"), &first).unwrap();
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
        // A source gives what it has no input for. Values that are taken together have one span.
        let values = stage["in"].as_u64().unwrap().max(if name == "source" { 20 } else { 0 });
        assert!(
            (1..=values).contains(&(of_stage.len() as u64)),
            "{name}: {} spans for {values} values",
            of_stage.len()
        );
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
    // A list that does not end, and a signal.
    let mut command = classify(&["-"]);
    let mut job = command.args(profile).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut list = job.stdin.take().unwrap();
    writeln!(list, "{}", folder.path().join("0.jpg").display()).unwrap();
    let mut row = String::new();
    BufReader::new(job.stdout.take().unwrap()).read_line(&mut row).unwrap();
    assert!(row.contains("giant panda"), "{row}");
    signal(&job, "-TERM");
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

/// A page of metrics, line by line as the format wants it: values by name with labels, and types by name.
fn parse(page: &str) -> (BTreeMap<String, f64>, BTreeMap<String, String>) {
    let (mut values, mut types) = (BTreeMap::new(), BTreeMap::<String, String>::new());
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let mut helped = String::new();
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap();
            assert!(is_name(name) && !text.is_empty(), "{line}");
            helped = name.into();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(name == helped && ["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(types.insert(name.into(), kind.into()), None, "{line}");
        } else {
            let (key, value) = line.rsplit_once(' ').unwrap();
            let name = key.split('{').next().unwrap();
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
            // Samples stand below the head of their family.
            assert!(is_name(name) && (name == helped || family == helped), "{line}");
            if types[&helped] == "counter" {
                assert!(name.ends_with("_total"), "{line}");
            }
            if let Some(labels) = key.strip_prefix(name).filter(|labels| !labels.is_empty()) {
                let labels = labels.strip_prefix('{').and_then(|labels| labels.strip_suffix('}')).unwrap();
                for label in labels.split(',') {
                    let (name, value) = label.split_once('=').unwrap();
                    assert!(
                        is_name(name) && value.len() > 2 && value.starts_with('"') && value.ends_with('"'),
                        "{line}"
                    );
                }
            }
            let value: f64 = value.parse().unwrap();
            assert!(value.is_finite() && value >= 0.0, "{line}");
            assert_eq!(values.insert(key.into(), value), None, "{line}");
        }
    }
    (values, types)
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Where a job serves its metrics, from its first line.
fn address_of_metrics(errors: &mut impl BufRead) -> String {
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    line.trim().strip_prefix("metrics: http://").and_then(|l| l.strip_suffix("/metrics")).unwrap().to_owned()
}

/// Before its stages run, here because nobody reads the rows yet, a job has a page as well; also with `-q` it says where.
#[test]
fn metrics_are_there_before_the_job_begins() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("rows.jsonl");
    make_pipe(&pipe);
    let mut job =
        classify(&["samples/photos/panda.jpg", "-q", "--metrics", "127.0.0.1:0", "-o", pipe.to_str().unwrap()])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
    let address = address_of_metrics(&mut BufReader::new(job.stderr.take().unwrap()));
    let answer = get(&address, "/metrics");
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let (values, _) = parse(page);
    assert!(values["process_resident_memory_bytes"] > 1e6 && !page.contains("ocellus_items_total"), "{page}");
    assert_eq!(fs::read_to_string(pipe).unwrap().lines().count(), 1);
    assert_eq!(job.wait().unwrap().code(), Some(0));
}

#[test]
fn metrics_are_those_of_the_figures_at_the_end() {
    const GOOD: u64 = 9;
    let (folder, out) = (mixed_folder(), tempfile::tempdir().unwrap());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let stats = out.path().join("stats.json");
    let mut job = classify(&["-", "--metrics", "127.0.0.1:0", "--stats", stats.to_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(job.stderr.take().unwrap());
    let address = address_of_metrics(&mut errors);
    let mut list = job.stdin.take().unwrap();
    for n in 0..GOOD {
        writeln!(list, "{}", path("img2.jpg")).unwrap();
        if n == 3 {
            writeln!(list, "{}\nnone.jpg", path("img10.jpg")).unwrap();
        }
    }
    let mut rows = BufReader::new(job.stdout.take().unwrap()).lines();
    (0..GOOD + 2).for_each(|_| assert!(rows.next().unwrap().unwrap().starts_with('{')));
    // A row is counted behind its writing.
    let patience = Instant::now() + Duration::from_secs(30);
    let answer = loop {
        let answer = get(&address, "/metrics");
        if answer.contains(&format!("\nocellus_items_total {}\n", GOOD + 2)) || Instant::now() > patience {
            break answer;
        }
    };
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(get(&address, "/other").starts_with("HTTP/1.1 404 "));
    let (values, types) = parse(page);
    drop(list);
    assert_eq!(job.wait().unwrap().code(), Some(3));
    assert!(TcpStream::connect(&address).is_err(), "it serves as long as the job");

    let stats: Value = serde_json::from_str(&fs::read_to_string(stats).unwrap()).unwrap();
    let expect = |key: &str, told: &Value| assert_eq!(values.get(key).copied(), told.as_f64(), "{key}: {page}");
    expect("ocellus_items_total", &stats["images"]);
    expect("ocellus_partial_items_total", &stats["partial"]);
    expect("ocellus_split_batches_total", &stats["batches_split"]);
    expect("ocellus_item_latency_seconds_count", &stats["images"]);
    expect("ocellus_item_latency_seconds_bucket{le=\"+Inf\"}", &stats["images"]);
    for (name, label, figures) in
        [("errors_total", "kind", &stats["errors"]), ("decoder_items_total", "decoder", &stats["decoders"])]
    {
        let family = format!("ocellus_{name}");
        assert_eq!(types[&family], "counter");
        let figures = figures.as_object().unwrap();
        assert_eq!(values.keys().filter(|key| key.starts_with(&family)).count(), figures.len(), "{page}");
        figures.iter().for_each(|(kind, count)| expect(&format!("{family}{{{label}=\"{kind}\"}}"), count));
    }
    for stage in stats["pipeline"]["stages"].as_array().unwrap() {
        let label = format!("{{stage=\"{}\"}}", stage["stage"].as_str().unwrap());
        expect(&format!("ocellus_stage_in_total{label}"), &stage["in"]);
        expect(&format!("ocellus_stage_out_total{label}"), &stage["out"]);
        expect(&format!("ocellus_stage_threads{label}"), &stage["workers"]);
        let busy_s = values[&format!("ocellus_stage_busy_seconds_total{label}")];
        assert!(busy_s <= stage["busy_s"].as_f64().unwrap(), "{stage}");
    }
    assert!(values["process_cpu_seconds_total"] > 0.0 && values["process_resident_memory_bytes"] > 1e6);
    let buckets: Vec<f64> = page
        .lines()
        .filter(|line| line.starts_with("ocellus_item_latency_seconds_bucket"))
        .map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
        .collect();
    assert!(buckets.is_sorted() && buckets.len() > 10, "{buckets:?}");
}

#[test]
fn an_address_that_cannot_be_had_is_wrong_usage() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = photos(1);
    for address in [taken.local_addr().unwrap().to_string().as_str(), "nowhere", "127.0.0.1", "127.0.0.1:99999"] {
        let output = classify(&[folder.path().to_str().unwrap(), "--metrics", address]).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{message}");
        assert!(message.contains("--metrics") && output.stdout.is_empty(), "{message}");
    }
}

/// What a profiler sees: every value of every stage lies in a range that is called as the stage, on the stage's threads, and
/// every range ends. Through NVIDIA's own library, with a listener made with NVIDIA's headers.
#[test]
fn profilers_see_ranges_of_stages() {
    const IMAGES: usize = 9;
    let folders = std::env::var_os("OCELLUS_CUDA_LIBS").unwrap_or_default();
    let Some(libraries) = std::env::split_paths(&folders).find(|folder| folder.join("libnvtx3interop.so.1").exists())
    else {
        return skip("REQUIRE_NVTX", "no libnvtx3interop in OCELLUS_CUDA_LIBS");
    };
    let folder = tempfile::tempdir().unwrap();
    let listener = folder.path().join("listener.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I"]).arg(libraries.join("../include"));
    compiler.arg(workspace_root().join("tests/nvtx/listener.c")).arg("-o").arg(&listener);
    assert!(compiler.status().unwrap().success());
    let files: Vec<_> =
        (0..IMAGES).map(|n| if n % 3 == 2 { "no-such.jpg" } else { "samples/photos/panda.jpg" }).collect();
    let (heard, stats) = (folder.path().join("heard"), folder.path().join("stats.json"));
    let output = classify(&files)
        .args(["--threads", "2", "--stats"])
        .arg(&stats)
        .env("OCELLUS_CUDA_LIBS", &libraries)
        .env("NVTX_INJECTION64_PATH", &listener)
        .env("NVTX_LISTENER", &heard)
        .output()
        .unwrap();
    assert_eq!((output.status.code(), rows(&output).len()), (Some(3), IMAGES), "{}", text(&output.stderr));
    let heard = fs::read_to_string(heard).unwrap();
    let (mut open, mut seen) = (BTreeMap::<&str, usize>::new(), BTreeMap::<&str, usize>::new());
    for line in heard.lines() {
        match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
            ["domain", name] => assert_eq!(name, "ocellus"),
            ["push", thread, count, stage] => {
                *open.entry(thread).or_default() += 1;
                *seen.entry(stage).or_default() += count.parse::<usize>().unwrap();
            }
            ["pop", thread] => *open.get_mut(thread).unwrap() -= 1,
            _ => panic!("{line}"),
        }
    }
    assert!(open.values().all(|ranges| *ranges == 0), "{open:?}");
    let stats: Value = serde_json::from_slice(&fs::read(stats).unwrap()).unwrap();
    for stage in stats["pipeline"]["stages"].as_array().unwrap() {
        // The source's last range is that in which it finds nothing.
        let values = if stage["stage"] == "source" { IMAGES + 1 } else { stage["in"].as_u64().unwrap() as usize };
        // What a thread has no time for in one range is in the next one as well.
        let seen = seen.remove(stage["stage"].as_str().unwrap());
        assert!(seen.is_some_and(|seen| (values..=2 * values).contains(&seen)), "{seen:?}: {stage}");
    }
    assert!(seen.is_empty(), "{seen:?}");
    // A profiler without NVTX is no reason to fail.
    let output = classify(&["samples/photos/panda.jpg"])
        .env("NVTX_INJECTION64_PATH", &listener)
        .env("OCELLUS_CUDA_LIBS", folder.path())
        .output()
        .unwrap();
    assert_eq!((output.status.code(), rows(&output).len()), (Some(0), 1));
}
