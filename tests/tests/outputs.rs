//! What the program writes and how it ends: figures, rows, tables, and what others do with them meanwhile.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::{self, sleep};
use std::time::Duration;

use serde_json::Value;
use tests::job::{make_pipe, signal, wait, wait_until, with_default_signals, with_limit};
use tests::ocellus;
use tests::program::{self, photo, rows, text};

const OPTIONS: [&str; 2] = ["--stats", "--profile"];

/// `ocellus classify` on the CPU, of a photo and a file that is not there.
fn classify(arguments: &[&OsStr]) -> Command {
    let mut command = program::classify(&["-q", "--device", "cpu", "none.jpg"]);
    command.arg(photo("panda.jpg")).args(arguments);
    command
}

fn fifo(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    make_pipe(&path);
    path
}

/// Waits until the program has a thread of this name.
fn until_thread(child: &mut Child, name: &str) {
    let tasks = PathBuf::from(format!("/proc/{}/task", child.id()));
    let names = || fs::read_dir(&tasks).into_iter().flatten().map(|task| task.unwrap().path().join("comm"));
    let is_there = || names().any(|comm| fs::read_to_string(comm).is_ok_and(|comm| comm.trim() == name));
    wait_until(child, &format!("a thread {name}"), is_there);
}

fn said(output: &Output) -> String {
    text(&output.stderr)
}

#[test]
fn a_reader_of_figures_that_leaves_is_told() {
    for option in OPTIONS {
        for more in [&[][..], &["-o", "rows.jsonl"]] {
            let folder = tempfile::tempdir().unwrap();
            let figures = fifo(folder.path(), "figures");
            let mut job = classify(&[option.as_ref(), figures.as_os_str()]);
            job.args(more.iter().map(|arg| if arg.starts_with('-') { (*arg).into() } else { folder.path().join(arg) }));
            let reader = figures.clone();
            let reader = thread::spawn(move || File::open(reader).map(drop));
            let output = job.output().unwrap();
            reader.join().unwrap().unwrap();
            assert_eq!(output.status.code(), Some(1), "{option} {more:?}: {}", said(&output));
            assert!(said(&output).contains(figures.to_str().unwrap()), "{option} {more:?}: {}", said(&output));
        }
    }
}

#[test]
fn a_reader_of_rows_and_tables_that_leaves_ends_it_quietly() {
    let code = |mut command: Command| {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let errors = said(&output).lines().filter(|line| line.starts_with("error")).count();
        (output.status.code(), errors)
    };
    let command = |arguments: &[&str]| {
        let mut command = ocellus();
        command.args(arguments);
        command
    };
    assert_eq!(code(classify(&[])), (Some(0), 0));
    assert_eq!(code(command(&["inspect", "squeezenet1.1"])), (Some(0), 0));
    assert_eq!(code(command(&["cache", "list"])), (Some(0), 0));
    let mut parity = command(&["parity", "--model", "squeezenet1.1", "--device", "cpu"]);
    parity.arg(photo("panda.jpg"));
    assert_eq!(code(parity), (Some(0), 0));
    // What somebody else should have got is another matter.
    for option in OPTIONS {
        assert_eq!(code(classify(&[option.as_ref(), "/dev/full".as_ref()])), (Some(1), 1), "{option}");
    }
}

#[test]
fn the_file_that_a_profile_does_not_fit_into_is_named() {
    for option in OPTIONS {
        let output = classify(&[option.as_ref(), "/dev/full".as_ref()]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains("/dev/full: No space left"), "{}", said(&output));
    }
}

#[test]
fn figures_never_go_where_the_rows_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("x"), "before\n").unwrap();
    std::os::unix::fs::symlink(path("x"), path("link")).unwrap();
    fs::hard_link(path("x"), path("hard")).unwrap();
    for option in OPTIONS {
        for figures in
            [path("x"), path("link"), path("hard"), "/dev/stdout".into(), "/dev/fd/1".into(), "/proc/self/fd/1".into()]
        {
            for append in [false, true] {
                let before = if append { "before\n" } else { "" };
                fs::write(path("x"), before).unwrap();
                let rows = File::options().write(true).append(append).open(path("x")).unwrap();
                let output = classify(&[option.as_ref(), figures.as_os_str()]).stdout(rows).output().unwrap();
                assert_eq!(output.status.code(), Some(2), "{option} {}: {}", figures.display(), said(&output));
                assert_eq!(fs::read_to_string(path("x")).unwrap(), before);
            }
        }
        let output = classify(&[option.as_ref(), "/dev/stdout".as_ref()]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "a pipe: {}", said(&output));
        // Nothing is lost in these.
        let output = classify(&[option.as_ref(), "/dev/null".as_ref()]).stdout(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
        let rows = path(&format!("rows{option}.jsonl"));
        let output =
            classify(&[option.as_ref(), "/dev/stdout".as_ref(), "-o".as_ref(), rows.as_os_str()]).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
        assert!(serde_json::from_slice::<Value>(&output.stdout).is_ok());
        // What the program has open is written as it is.
        fs::write(path("log"), "before\n").unwrap();
        let log = File::options().append(true).open(path("log")).unwrap();
        let output = classify(&[option.as_ref(), "/dev/stderr".as_ref()]).stderr(log).output().unwrap();
        assert_eq!(output.status.code(), Some(3));
        let log = fs::read_to_string(path("log")).unwrap();
        assert!(serde_json::from_str::<Value>(log.strip_prefix("before\n").unwrap()).is_ok(), "{log}");
    }
}

#[test]
fn figures_of_bench_replace_nothing_else_and_are_found_unwritable_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let mine = folder.path().join("mine.toml");
    fs::write(&mine, "mine").unwrap();
    let missing = folder.path().join("none/x.json");
    for what in ["", "infer", "startup", "decode", "preprocess", "e2e", "latency"] {
        let on_cpu: &[&str] = if what == "e2e" { &["--device", "cpu"] } else { &[] };
        let cases = [
            (mine.as_path(), 2),
            (Path::new("-"), 2),
            (Path::new("/dev/stdout"), 2),
            (&missing, 2),
            (folder.path(), 1),
        ];
        for (json, code) in cases {
            let mut command = ocellus();
            command.arg("bench").args(Some(what).filter(|what| !what.is_empty())).args(on_cpu).arg("--json").arg(json);
            let output = command.output().unwrap();
            let message = said(&output);
            assert_eq!(output.status.code(), Some(code), "bench {what} --json {}: {message}", json.display());
            assert!(message.lines().count() == 1 && message.contains(json.to_str().unwrap()), "{message}");
        }
    }
    assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
}

#[test]
fn figures_that_did_not_come_leave_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("rows.jsonl"), "mine").unwrap();
    let figures = path("figures");
    for option in OPTIONS {
        for before in [None, Some("")] {
            let _ = fs::remove_file(&figures);
            if let Some(before) = before {
                fs::write(&figures, before).unwrap();
            }
            let rows = path("rows.jsonl");
            let refused = classify(&[option.as_ref(), figures.as_os_str(), "-o".as_ref(), rows.as_os_str()]).output();
            assert_eq!(refused.unwrap().status.code(), Some(2), "{option}");
            assert_eq!(figures.exists(), before.is_some(), "{option}: as it was");
        }
    }
    let _ = fs::remove_file(&figures);
    let mut bench = ocellus();
    bench.args(["bench", "e2e", "--device", "cpu", "--model", "no-such-model", "--json"]).arg(&figures);
    assert_eq!(bench.output().unwrap().status.code(), Some(2));
    assert!(!figures.exists());
}

/// Two jobs with one file of figures: the one that is stopped before it has any takes none away.
#[test]
fn figures_of_others_stay_where_a_job_has_none() {
    for option in OPTIONS {
        let folder = tempfile::tempdir().unwrap();
        let (figures, pipe) = (folder.path().join("figures"), fifo(folder.path(), "rows.jsonl"));
        // It waits for a reader of its rows.
        let job = classify(&[option.as_ref(), figures.as_os_str(), "-o".as_ref(), pipe.as_os_str()]);
        let mut child = with_default_signals(&job).spawn().unwrap();
        wait_until(&mut child, "figures", || figures.exists());
        fs::write(&figures, "another job's").unwrap();
        signal(&child, "-TERM");
        assert_eq!(wait(&mut child).code(), Some(130), "{option}");
        assert_eq!(fs::read_to_string(&figures).unwrap(), "another job's", "{option}");
    }
}

#[test]
fn rows_of_parity_are_found_unwritable_before_anything_is_compared() {
    let folder = tempfile::tempdir().unwrap();
    for (output, code) in [(&*folder.path().join("none/x.csv"), 2), (Path::new("/proc/x.csv"), 1), (folder.path(), 1)] {
        let mut command = ocellus();
        command
            .args(["parity", "-", "--model", "squeezenet1.1", "--device", "cpu", "--format", "csv", "-o"])
            .arg(output);
        // The list never ends.
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let list = child.stdin.take().unwrap();
        assert_eq!(wait(&mut child).code(), Some(code), "{}", output.display());
        drop(list);
        let message = said(&child.wait_with_output().unwrap());
        assert!(message.contains(output.to_str().unwrap()), "{message}");
    }
}

#[test]
fn a_file_that_appears_meanwhile_is_not_replaced_unasked() {
    for command in ["classify", "parity"] {
        for overwrite in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("x.jsonl");
            let mut job = ocellus();
            job.args([command, "-", "--model", "squeezenet1.1", "--device", "cpu", "-q", "-o"]).arg(&path);
            job.args(Some("--overwrite").filter(|_| overwrite));
            let mut child = job.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            // It reads the list when the output is open.
            until_thread(&mut child, "list");
            fs::write(&path, "foreign").unwrap();
            writeln!(child.stdin.take().unwrap(), "{}", photo("panda.jpg").display()).unwrap();
            let output = child.wait_with_output().unwrap();
            let code = i32::from(!overwrite);
            assert_eq!(output.status.code(), Some(code), "{command} {overwrite}: {}", said(&output));
            let content = fs::read_to_string(&path).unwrap();
            assert_eq!(content == "foreign", !overwrite, "{command} {overwrite}: {content}");
            if !overwrite {
                assert!(said(&output).contains(path.to_str().unwrap()), "{}", said(&output));
            }
        }
    }
}

#[test]
fn a_pipe_without_a_reader_is_waited_for_until_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = fifo(folder.path(), "pipe.jsonl");
    let parity = ["parity", "-", "--model", "squeezenet1.1", "--device", "cpu"].map(OsStr::new);
    let bench = ["bench", "e2e", "--device", "cpu"].map(OsStr::new);
    let jobs: [(&[&OsStr], &str); 5] =
        [(&[], "-o"), (&[], "--stats"), (&[], "--profile"), (&parity, "-o"), (&bench, "--json")];
    for (arguments, option) in jobs {
        let command = || {
            let mut command = with_default_signals(&if arguments.is_empty() { classify(&[]) } else { ocellus() });
            command.args(arguments).arg(option).arg(&pipe);
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        for name in ["-TERM", "-INT"] {
            let mut child = command().spawn().unwrap();
            until_thread(&mut child, "signals");
            // Most likely it waits by now; if not, it comes to the same.
            sleep(Duration::from_millis(300));
            signal(&child, name);
            assert_eq!(wait(&mut child).code(), Some(130), "{arguments:?} {option} {name}");
        }
    }
    // A reader that comes late gets everything.
    let mut child = classify(&["-o".as_ref(), pipe.as_os_str()]).spawn().unwrap();
    until_thread(&mut child, "signals");
    sleep(Duration::from_millis(300));
    let mut rows = String::new();
    File::open(&pipe).unwrap().read_to_string(&mut rows).unwrap();
    assert_eq!((rows.lines().count(), wait(&mut child).code()), (2, Some(3)), "{rows}");
}

#[test]
fn too_few_descriptors_end_the_job_and_are_no_rows() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in/deep/deeper");
    fs::create_dir_all(&input).unwrap();
    for i in 0..60 {
        fs::write(input.join(format!("{i}.jpg")), "no picture").unwrap();
        fs::write(folder.path().join(format!("in/{i}.jpg")), "no picture").unwrap();
    }
    fs::copy(photo("panda.jpg"), input.join("panda.jpg")).unwrap();
    let job = |output: &Path| {
        let mut command = program::classify(&["-q", "--device", "cpu", "--resume", "-o"]);
        command.arg(output).arg(folder.path().join("in"));
        command
    };
    let whole = folder.path().join("whole.jsonl");
    assert_eq!(job(&whole).output().unwrap().status.code(), Some(3));
    let mut ended = 0;
    for files in 4..24 {
        let limit = format!("-n {files}");
        let mut version = ocellus();
        version.arg("--version");
        if !with_limit(&version, &limit).output().unwrap().status.success() {
            continue;
        }
        let path = folder.path().join(format!("{files}.jsonl"));
        let output = with_limit(&job(&path), &limit).output().unwrap();
        let message = said(&output);
        if output.status.code() == Some(1) {
            ended += 1;
            let errors: Vec<_> = message.lines().filter(|line| line.starts_with("error: ")).collect();
            assert!(errors.len() == 1 && errors[0].contains("ulimit -n"), "{files}: {message}");
            assert_eq!(job(&path).output().unwrap().status.code(), Some(3), "{files}");
        } else {
            assert_eq!(output.status.code(), Some(3), "{files}: {message}");
        }
        assert!(fs::read(&path).unwrap() == fs::read(&whole).unwrap(), "{files}: not what one run writes");
    }
    assert!(ended > 0, "none was too few");
}

#[test]
fn a_rate_is_that_of_the_time_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("stats.json");
    let output = classify(&["--stats".as_ref(), stats.as_os_str()]).output().unwrap();
    let images = rows(&output).len() as f64;
    let stats: Value = serde_json::from_slice(&fs::read(&stats).unwrap()).unwrap();
    let [rate, wall_s] = ["images_per_s", "wall_s"].map(|name| stats[name].as_f64().unwrap());
    assert!((rate * wall_s - images).abs() < 1e-6 * images, "{images} images, {rate} in {wall_s} s");
}
