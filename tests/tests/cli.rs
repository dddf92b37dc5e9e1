//! The command line's promises: exit codes, messages of one line, formats, signals, pipes.

use std::fs;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ExtendedColorType, ImageEncoder};
use serde_json::Value;
use tests::job::{self, PATIENCE, through, with_default_signals, with_limit};
use tests::program::{classify, mixed_folder, photo, rows, text, without_gpu as ocellus};
use tests::workspace_root;

#[test]
fn exit_codes_say_how_it_went() {
    let folder = mixed_folder();
    let mixed = folder.path().to_str().unwrap();
    let good = photo("panda.jpg");
    let good = good.to_str().unwrap();
    let cases: [(&[&str], i32); 8] = [
        (&[good], 0),
        (&[good, good], 0),
        (&[mixed], 3),
        (&["no-such-file.jpg"], 3),
        (&["no-such-folder/*.jpg"], 1),
        (&[mixed, "--fail-fast"], 1),
        (&[good, "-o", "/no/such/folder/x.csv"], 2),
        (&[good, "--model", "no-such.onnx"], 2),
    ];
    for (arguments, code) in cases {
        let output = if arguments.contains(&"--model") {
            ocellus().arg("classify").args(arguments).output().unwrap()
        } else {
            classify(arguments).output().unwrap()
        };
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn wrong_usage_is_exit_2_and_says_what_to_do() {
    let cases: [(&[&str], &str); 19] = [
        (&["classify"], "INPUT"),
        (&["classify", "x.jpg", "-o", "-", "--format", "csv"], "standard output"),
        (&["classify", "x.jpg", "-o", "x.csv/"], "a folder"),
        (&["classify", "x.jpg", "--stats", "-"], "/dev/stderr"),
        (&["classify", "x.jpg", "--stats", "/no/such/s.json"], "no folder /no/such; make it"),
        (&["run", "no-such.toml"], "configs/pipelines/two-models.toml"),
        (&["classify", "x.jpg", "--topp", "3"], "--top"),
        (&["classify", "x.jpg", "--device", "cuda:x"], "cuda:0"),
        (&["classify", "x.jpg", "--device", "tpu"], "auto, cpu, cuda"),
        (&["classify", "x.jpg", "--model", "nope"], "efficientnet-lite0"),
        (&["classify", "x.jpg", "--batch", "0"], "--batch"),
        (&["classify", "x.jpg", "--top", "0"], "--top"),
        (&["classify", "x.jpg", "--threshold", "1.5"], "0 to 1"),
        (&["classify", "x.jpg", "--background", "red"], "hexadecimal"),
        (&["classify", "x.jpg", "--format", "xml"], "jsonl"),
        (&["classify", "x.jpg", "--resume"], "--output"),
        (&["classify", "x.jpg", "-o", "x.xyz"], ".jsonl"),
        (&["classify", "x.jpg", "--format", "parquet"], "-o FILE.parquet"),
        (&["classify", "x["], "pattern"),
    ];
    for (arguments, hint) in cases {
        let output = ocellus().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let message = text(&output.stderr);
        assert!(message.contains(hint) && output.stdout.is_empty(), "{arguments:?}: {message}");
    }
    // So is what a card says, and that it is not there.
    let folder = tempfile::tempdir().unwrap();
    let card = folder.path().join("card.toml");
    for (content, code) in [(Some("task = 3\n"), 2), (Some("= 1\n"), 2), (Some(""), 2), (None, 2)] {
        let _ = fs::remove_file(&card);
        if let Some(content) = content {
            fs::write(&card, content).unwrap();
        }
        for command in [&["classify", "x.jpg", "--model"][..], &["parity", "x.jpg", "--model"], &["inspect"]] {
            let output = ocellus().args(command).arg(&card).output().unwrap();
            let message = text(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{command:?} {content:?}: {message}");
            assert!(message.contains("card.toml") && output.stdout.is_empty(), "{message}");
        }
    }
    let help = ocellus().args(["classify", "--help"]).output().unwrap();
    assert!(help.status.success());
    for word in ["Examples:", "--resume", "Exit codes:", "[default: auto]"] {
        assert!(text(&help.stdout).contains(word), "{word}");
    }
}

#[test]
fn errors_of_a_job_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let existing = folder.path().join("x.csv");
    fs::write(&existing, "mine").unwrap();
    let good = photo("panda.jpg");
    let good = good.to_str().unwrap();
    let empty = folder.path().to_str().unwrap();
    let cases: [(&[&str], &str); 5] = [
        (&["none/*.jpg"], "no images in none/*.jpg"),
        (&[empty], "1 entries skipped"),
        (&[good, "-o", existing.to_str().unwrap()], "--overwrite"),
        (&[good, "-o", empty], "a folder"),
        (&[good, "-o", "/dev/full"], "No space left"),
    ];
    for (arguments, part) in cases {
        let output = classify(arguments).arg("-q").output().unwrap();
        let message = text(&output.stderr);
        assert!(message.starts_with("error: ") && message.contains(part), "{arguments:?}: {message}");
        assert_eq!(message.lines().count(), 1, "{arguments:?}: {message}");
        assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments:?}: {:?}", output.status);
    }
    assert_eq!(fs::read_to_string(&existing).unwrap(), "mine");
}

#[test]
fn a_row_for_every_input_in_its_order() {
    let folder = mixed_folder();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let output =
        classify(&[folder.path().to_str().unwrap(), &path("notes.txt"), "none.jpg", "--top", "2"]).output().unwrap();
    let rows = rows(&output);
    let paths: Vec<&str> = rows.iter().map(|row| row["path"].as_str().unwrap()).collect();
    assert_eq!(paths, [&path("img2.jpg"), &path("img10.jpg"), &path("notes.txt"), "none.jpg"]);
    assert_eq!(rows[0]["top"].as_array().unwrap().len(), 2);
    assert_eq!(rows[0]["top"][0]["label"], "giant panda");
    let errors: Vec<_> =
        rows[1..].iter().map(|r| (r["error"]["stage"].as_str(), r["error"]["kind"].as_str())).collect();
    let no_image = (Some("decode"), Some("not-an-image"));
    assert_eq!(errors, [no_image, no_image, (Some("source"), Some("not-found"))]);
    let summary = text(&output.stderr);
    assert!(summary.contains("4 images") && summary.contains("3 failed (2 not-an-image, 1 not-found)"), "{summary}");
    assert!(summary.contains("1 skipped (1 no images)"), "{summary}");
}

#[test]
fn results_do_not_depend_on_batch_and_threads() {
    let photos = workspace_root().join("samples/photos");
    let run = |arguments: &[&str]| {
        let output = classify(arguments).arg(&photos).arg("-q").output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty());
        text(&output.stdout)
    };
    let reference = run(&["--batch", "1", "--threads", "1"]);
    assert_eq!(reference.lines().count(), 11);
    for arguments in [&["--batch", "3", "--threads", "2"], &["--batch", "64", "--threads", "5"]] {
        assert_eq!(run(arguments), reference, "{arguments:?}");
    }
}

#[test]
fn the_threshold_leaves_out_weak_classes() {
    let output = classify(&["samples/photos", "--threshold", "0.5"]).output().unwrap();
    let rows = rows(&output);
    let scores = |row: &Value| -> Vec<f64> {
        row["top"].as_array().unwrap().iter().map(|s| s["score"].as_f64().unwrap()).collect()
    };
    assert!(rows.iter().flat_map(scores).all(|score| score >= 0.5));
    assert!(rows.iter().any(|row| scores(row).is_empty()) && rows.iter().any(|row| !scores(row).is_empty()));
}

#[test]
fn every_format_into_a_file() {
    let folder = mixed_folder();
    let input = folder.path().to_str().unwrap().to_owned();
    let out = tempfile::tempdir().unwrap();
    let write = |name: &str| {
        let path = out.path().join(name);
        let output = classify(&[&input, "-q", "-o", path.to_str().unwrap()]).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty());
        fs::read(&path).unwrap()
    };
    let json = text(&write("x.jsonl"));
    assert_eq!(json.lines().count(), 2);
    let csv = write("x.csv");
    let mut reader = csv::Reader::from_reader(csv.as_slice());
    let header: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let records: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let column = |name: &str| header.iter().position(|h| h == name).unwrap();
    for (record, line) in records.iter().zip(json.lines()) {
        let row: Value = serde_json::from_str(line).unwrap();
        assert_eq!(&record[column("path")], row["path"].as_str().unwrap());
        assert_eq!(&record[column("error_kind")], row["error"]["kind"].as_str().unwrap_or(""));
        assert_eq!(&record[column("label1")], row["top"][0]["label"].as_str().unwrap_or(""));
    }
    assert_eq!(&write("x.parquet")[..4], b"PAR1");
    let table = text(&write("x.txt"));
    assert!(table.contains("giant panda") && table.contains("error: not-an-image"), "{table}");
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 4, "no partial file stays");
}

#[test]
fn stats_hold_the_figures_of_the_job() {
    let folder = mixed_folder();
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("stats.json");
    classify(&[folder.path().to_str().unwrap(), "--stats", path.to_str().unwrap()]).output().unwrap();
    let stats: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(
        (&stats["images"], &stats["failed"], &stats["errors"]["not-an-image"]),
        (&2.into(), &1.into(), &1.into())
    );
    assert_eq!((&stats["model"], &stats["skipped"]["not_images"]), (&"squeezenet1.1".into(), &1.into()));
    assert!(stats["images_per_s"].as_f64().unwrap() > 0.0 && stats["peak_memory_bytes"].as_u64().unwrap() > 1 << 20);
    let stages = stats["pipeline"]["stages"].as_array().unwrap();
    let names: Vec<&str> = stages.iter().map(|s| s["stage"].as_str().unwrap()).collect();
    assert_eq!(names, ["source", "read", "decode+resize", "batch", "infer", "postprocess", "order", "sink"]);
    let busy: Vec<f64> = stages.iter().map(|s| s["busy_share"].as_f64().unwrap()).collect();
    assert!(busy.iter().all(|share| (0.0..=1.0).contains(share)), "{busy:?}");
    for stage in stages {
        let spread = &stage["service_ms"];
        let [p50, p90, p99, max] = ["p50", "p90", "p99", "max"].map(|name| spread[name].as_f64().unwrap());
        assert!(0.0 <= p50 && p50 <= p90 && p90 <= p99 && p99 <= max, "{stage}");
        assert!(max <= 1e3 * stats["pipeline"]["wall_s"].as_f64().unwrap(), "{stage}");
        assert!(stage["queue_mean"].as_f64().unwrap() <= stage["queue_max"].as_f64().unwrap(), "{stage}");
        assert!(stage["per_s"].as_f64().unwrap() > 0.0, "{stage}");
    }
    // No item takes less than the stages that work on it alone, nor longer than the job.
    let latency = |name: &str| stats["latency_ms"][name].as_f64().unwrap();
    assert!(latency("p50") > 0.0 && latency("p50") <= latency("p99") && latency("p99") <= latency("max"));
    assert!(latency("max") <= 1e3 * stats["wall_s"].as_f64().unwrap(), "{stats}");
    assert!(stats["cpu_s"].as_f64().unwrap() > 0.0 && stats["cpu_cores"].as_f64().unwrap() > 0.0, "{stats}");
}

#[test]
fn pictures_in_memory_are_bounded_by_their_size() {
    let folder = tempfile::tempdir().unwrap();
    // 70.6 megapixels, 212 MB decoded.
    let side_px = 8_400;
    let first = folder.path().join("0.png");
    let file = BufWriter::new(fs::File::create(&first).unwrap());
    PngEncoder::new_with_quality(file, CompressionType::Fast, FilterType::Sub)
        .write_image(&vec![128; 3 * side_px * side_px], side_px as u32, side_px as u32, ExtendedColorType::Rgb8)
        .unwrap();
    for i in 1..5 {
        fs::hard_link(&first, folder.path().join(format!("{i}.png"))).unwrap();
    }
    let stats = folder.path().join("stats.json");
    let output = classify(&["--threads", "5", "--stats", stats.to_str().unwrap()]).arg(folder.path()).output().unwrap();
    assert_eq!(rows(&output).iter().filter(|row| row["top"].is_array()).count(), 5, "{}", text(&output.stderr));
    let stats: Value = serde_json::from_str(&fs::read_to_string(stats).unwrap()).unwrap();
    let peak_bytes = stats["peak_memory_bytes"].as_u64().unwrap();
    println!("peak memory: {peak_bytes} bytes");
    assert!(peak_bytes < 500_000_000, "{peak_bytes} bytes: more than one picture at a time");
}

#[test]
fn figures_never_replace_anything_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (input, rows, card, labels) = (path("v.jpg"), path("s.jsonl"), path("m.toml"), path("l.txt"));
    fs::copy(photo("panda.jpg"), &input).unwrap();
    for name in [&card, &labels] {
        fs::write(name, "mine").unwrap();
    }
    assert!(classify(&[&input, "-o", &rows]).output().unwrap().status.success());
    let new = path("new.jsonl");
    let new_partial = path("new.jsonl.partial");
    std::os::unix::fs::symlink(&input, path("link.json")).unwrap();
    let cases: [(&str, &[&str]); 8] = [
        (&input, &[]),
        (&path("link.json"), &[]),
        (&card, &[]),
        (&labels, &[]),
        (&rows, &[]),
        (&rows, &["-o", &rows, "--resume"]),
        (&new, &["-o", &new]),
        (&new_partial, &["-o", &new]),
    ];
    for (stats, more) in cases {
        let before = fs::read(stats).ok();
        let output = classify(&[&input, "--stats", stats]).args(more).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{stats} {more:?}");
        assert!(text(&output.stderr).contains("--stats"), "{}", text(&output.stderr));
        assert_eq!(fs::read(stats).ok(), before, "{stats} {more:?}");
    }
    // Figures of an earlier job are replaced, but not by a job that cannot run.
    let stats = path("stats.json");
    assert!(classify(&[&input, "--stats", &stats]).output().unwrap().status.success());
    let before = fs::read(&stats).unwrap();
    assert_eq!(classify(&[&input, "--stats", &stats, "-o", &rows]).output().unwrap().status.code(), Some(2));
    assert_eq!(fs::read(&stats).unwrap(), before);
    assert_eq!(classify(&[&input, "no.jpg", "--stats", &stats]).output().unwrap().status.code(), Some(3));
    let after: Value = serde_json::from_slice(&fs::read(&stats).unwrap()).unwrap();
    assert_eq!(after["images"], 2);
    // How the job ended is said first.
    let output = classify(&[&input, "no.jpg", "--stats", "/dev/full"]).output().unwrap();
    assert!(text(&output.stderr).contains("2 images"), "{}", text(&output.stderr));
}

#[test]
fn a_picture_that_does_not_fit_into_memory_costs_its_row_only() {
    let folder = tempfile::tempdir().unwrap();
    // A BMP header of 13,300 x 13,300 pixels: by 8 bytes a pixel 1.4 GB.
    let side_px = 13_300_u32.to_le_bytes();
    let header = [&b"BM\xff\xff\xff\0\0\0\0\0\x36\0\0\0\x28\0\0\0"[..], &side_px, &side_px, b"\x01\0\x18\0"].concat();
    fs::write(folder.path().join("1.bmp"), [header, vec![0; 1000]].concat()).unwrap();
    fs::copy(photo("panda.jpg"), folder.path().join("2.jpg")).unwrap();
    let program = classify(&["--threads", "1"]);
    let output = with_limit(&program, "-v 1200000").arg(folder.path()).output().unwrap();
    let rows = rows(&output);
    assert_eq!((output.status.code(), rows.len()), (Some(3), 2), "{}", text(&output.stderr));
    assert_eq!(rows[0]["error"]["kind"], "too-large", "{}", rows[0]);
    assert_eq!(rows[1]["top"][0]["label"], "giant panda");
}

#[test]
fn what_is_said_of_strange_names_is_one_harmless_line() {
    let output = classify(&["none\n\u{1b}[31m\u{202e}*.jpg"]).output().unwrap();
    let message = text(&output.stderr);
    assert_eq!(message.lines().count(), 1, "{message:?}");
    assert!(!message.trim_end().contains(|c: char| c.is_control() || c == '\u{202e}'), "{message:?}");
}

/// A job that reads its list from a pipe that stays open.
struct Listener {
    child: Child,
    rows: BufReader<std::process::ChildStdout>,
}

impl Listener {
    fn start(arguments: &[&str]) -> Self {
        let job = [&["-"], arguments].concat();
        Self::spawn(&mut with_default_signals(&classify(&job)))
    }

    fn spawn(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let rows = BufReader::new(child.stdout.take().unwrap());
        Self { child, rows }
    }

    fn ask(&mut self, path: &Path) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{}", path.display()).unwrap();
    }

    fn row(&mut self) -> Value {
        let mut line = String::new();
        self.rows.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn signal(&self, name: &str) {
        job::signal(&self.child, name);
    }

    /// The exit code and what was said, after at most [`PATIENCE`].
    fn end(mut self) -> (Option<i32>, String) {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if started.elapsed() > PATIENCE {
                self.child.kill().unwrap();
                panic!("it hangs");
            }
            sleep(Duration::from_millis(5));
        };
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (status.code(), said)
    }
}

#[test]
fn rows_come_while_the_list_is_still_open_and_signals_end_the_wait() {
    for signal in ["-INT", "-TERM"] {
        let mut job = Listener::start(&[]);
        for name in ["panda.jpg", "none.jpg", "coffee.jpg"] {
            job.ask(&photo(name));
            assert!(job.row()["path"].as_str().unwrap().ends_with(name));
        }
        job.signal(signal);
        let (code, said) = job.end();
        assert_eq!(code, Some(130), "{said}");
        assert!(said.contains("3 images") && said.contains("interrupted"), "{said}");
    }
}

#[test]
fn the_network_has_no_more_threads_than_there_are_cores() {
    let cores = std::thread::available_parallelism().unwrap().get();
    for (threads, of_network) in [(1, 1), (cores, cores), (300, cores)] {
        let mut job = Listener::start(&["--threads", &threads.to_string()]);
        job.ask(&photo("panda.jpg"));
        job.row();
        let tasks = fs::read_dir(format!("/proc/{}/task", job.child.id())).unwrap();
        let names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
        let names: Vec<String> = names.collect();
        let count = |prefix: &str| names.iter().filter(|name| name.starts_with(prefix)).count();
        // Those of the pool are numbered, the stage that gives them work as well.
        assert_eq!((count("decode+resize"), count("infer-")), (threads, of_network + 1), "{names:?}");
        job.signal("-TERM");
        assert_eq!(job.end().0, Some(130));
    }
}

#[test]
fn signals_that_were_ignored_at_the_start_stay_ignored() {
    let ignoring = ["sh", "-c", "trap '' INT HUP; exec \"$0\" \"$@\""];
    let mut job = Listener::spawn(&mut through(&ignoring, &classify(&["-"])));
    job.ask(Path::new("none.jpg"));
    job.row();
    job.signal("-INT");
    job.signal("-HUP");
    sleep(Duration::from_millis(200));
    job.ask(Path::new("none.jpg"));
    job.row();
    job.signal("-TERM");
    assert_eq!(job.end().0, Some(130));
}

#[test]
fn an_interrupted_file_can_be_resumed() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("x.jsonl");
    let partial = out.path().join("x.jsonl.partial");
    let output = path.to_str().unwrap();
    let mut job = Listener::start(&["-o", output]);
    job.ask(&photo("panda.jpg"));
    let started = Instant::now();
    while fs::metadata(&partial).map_or(0, |m| m.len()) == 0 {
        assert!(started.elapsed() < PATIENCE, "no row");
        sleep(Duration::from_millis(5));
    }
    let second = classify(&["samples/photos", "-o", output, "--resume"]).output().unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(text(&second.stderr).contains("another job"), "{}", text(&second.stderr));
    job.signal("-INT");
    let (code, said) = job.end();
    assert_eq!(code, Some(130));
    assert!(said.contains("--resume") && partial.exists() && !path.exists(), "{said}");
    let list = format!("{}\n{}\n", photo("panda.jpg").display(), photo("coffee.jpg").display());
    let mut resumed =
        classify(&["-", "-o", output, "--resume"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    resumed.stdin.take().unwrap().write_all(list.as_bytes()).unwrap();
    let output = resumed.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("1 image") && text(&output.stderr).contains("1 done before"));
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 2);
}

#[test]
fn a_reader_that_leaves_ends_the_job_quietly() {
    let mut job = Listener::start(&["-q"]);
    job.ask(&photo("none.jpg"));
    job.row();
    let Listener { mut child, rows } = job;
    drop(rows);
    let mut stdin = child.stdin.take().unwrap();
    // The job notices at its next row; then nobody reads the list any more.
    while writeln!(stdin, "none.jpg").is_ok() {
        sleep(Duration::from_millis(1));
        if child.try_wait().unwrap().is_some() {
            break;
        }
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn inspect_shows_the_layers() {
    let table = ocellus().args(["inspect", "squeezenet1.1"]).output().unwrap();
    assert!(table.status.success() && text(&table.stdout).contains("GFLOP"));
    let json =
        ocellus().args(["inspect", "samples/models/squeezenet1.1.onnx", "--json", "--batch", "4"]).output().unwrap();
    let report: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report["batch"], 4);
    assert_eq!(ocellus().args(["inspect", "nope"]).output().unwrap().status.code(), Some(2));
}
