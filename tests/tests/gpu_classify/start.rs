//! What a job starts of the GPU's driver and of nvJPEG, and when: what it needs, when it needs it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tests::job::{wait, wait_until};
use tests::ocellus;

use super::{DECODERS_SMALL, Fixture, assert_alike, emulator, golden, photo, rows};

/// What the emulator noted of the processes that this command is.
fn notes(fixture: &Fixture, command: &mut Command) -> (Vec<Value>, String) {
    let file = fixture.path("notes");
    let _ = fs::remove_file(&file);
    let output = command.env("OCELLUS_EMULATOR_NOTES", &file).output().unwrap();
    (rows(&output), fs::read_to_string(&file).unwrap())
}

/// Handles of the engines and for CPU and GPU together, decoders of both.
fn made(notes: &str) -> [usize; 4] {
    ["nvjpeg-handle hardware", "nvjpeg-handle hybrid", "nvjpeg-state batch", "nvjpeg-state single"]
        .map(|note| notes.lines().filter(|line| *line == note).count())
}

#[test]
fn a_job_makes_the_decoders_that_its_files_need() {
    let Some(fixture) = Fixture::new() else { return };
    if emulator().is_none() {
        return;
    }
    let (baseline, progressive) = (golden("jpeg-420-16x17.jpg"), golden("jpeg-420-progressive.jpg"));
    let png = golden("png-rgb.png");
    for (files, expected) in [
        (vec![baseline.clone()], [1, 0, 1, 0]),
        (vec![progressive.clone()], [1, 1, 0, 1]),
        (vec![png], [1, 0, 0, 0]),
        (vec![progressive, baseline], [1, 1, 1, 1]),
    ] {
        let (rows, notes) = notes(&fixture, &mut fixture.command("cuda", &files, &[]));
        assert_eq!(made(&notes), expected, "{files:?}: {notes}");
        assert!(rows.iter().all(|row| row["error"].is_null()), "{rows:?}");
    }
}

/// Wherever the first file for another decoder comes, it costs the others nothing.
#[test]
fn a_decoder_may_be_needed_early_or_late() {
    const BATCHES: usize = 120;
    const BATCH: usize = 3;
    let Some(fixture) = Fixture::new() else { return };
    if emulator().is_none() {
        return;
    }
    let (baseline, progressive) = (golden("jpeg-420-16x17.jpg"), golden("jpeg-420-progressive.jpg"));
    let options = ["--batch", "3", "--precision", "fp32"];
    let alone = fixture.rows("cuda", &[baseline.clone(), progressive.clone()], &options);
    assert_eq!((&alone[0]["decoder"], &alone[1]["decoder"]), (&"nvjpeg-hw".into(), &"nvjpeg-hybrid".into()));
    for places in [&[1][..], &[3 * 99 + 2], &[0, 3 * 50, 3 * 119 + 2]] {
        let mut files = vec![baseline.clone(); BATCHES * BATCH];
        for &place in places {
            files[place] = progressive.clone();
        }
        let (rows, notes) = notes(&fixture, &mut fixture.command("cuda", &files, &options));
        for (place, row) in rows.iter().enumerate() {
            assert_eq!(*row, alone[usize::from(places.contains(&place))], "{place} of {places:?}");
        }
        let [hardware, hybrid, batch, single] = made(&notes);
        assert_eq!((rows.len(), hardware, hybrid), (files.len(), 1, 1), "{notes}");
        assert!((1..=11).contains(&batch) && (1..=places.len()).contains(&single), "{notes}");
    }
}

/// nvJPEG has no memory for the first decoders, or fails at all of them: no row is lost, and memory that comes back is used.
#[test]
fn decoders_that_cannot_be_made_cost_no_row() {
    let Some(fixture) = Fixture::new() else { return };
    if emulator().is_none() {
        return;
    }
    let several: Vec<PathBuf> =
        ["jpeg-420-16x17.jpg", "jpeg-420-progressive.jpg", "jpeg-444-baseline.jpg", "png-rgb.png"]
            .map(golden)
            .into_iter()
            .chain(["flower.jpg", "rocket.jpg"].map(photo))
            .collect();
    let one = several[..1].to_vec();
    let options = ["--batch", "6", "--precision", "fp32"];
    for files in [several, one] {
        let plenty = fixture.rows("cuda", &files, &options);
        let cpu = fixture.rows("cpu", &files, &[]);
        let run = |how: &str| {
            let output = fixture.command("cuda", &files, &options).env("EMULATED_NVJPEG", how).output().unwrap();
            let rows = rows(&output);
            assert_alike(&rows, &cpu, DECODERS_SMALL);
            (rows, String::from_utf8_lossy(&output.stderr).contains("no memory for"))
        };
        let by_gpu = |rows: &[Value]| rows.iter().filter(|row| row["decoder"].to_string().contains("nvjpeg")).count();
        for first in 1..=12 {
            let (rows, split) = run(&format!("states-from:{first}"));
            // Several files are tried again in parts, one alone goes to the next decoder.
            assert_eq!(split, files.len() > 1, "{first}");
            if first == 1 {
                assert_eq!(by_gpu(&rows), by_gpu(&plenty), "{rows:?}");
                assert!(files.len() == 1 || rows == plenty, "{rows:?}");
            }
        }
        let (rows, split) = run("no-states");
        assert!(by_gpu(&rows) == 0 && !split, "{rows:?}");
    }
}

/// One worker of several never finds memory for its decoder, or fails at it: no row is lost, and it troubles nobody for long.
#[test]
fn a_worker_without_a_decoder_leaves_the_work_to_others() {
    let Some(fixture) = Fixture::new() else { return };
    if emulator().is_none() {
        return;
    }
    let small = ["jpeg-420-16x17.jpg", "jpeg-420-progressive.jpg", "jpeg-420-17x16.jpg"].map(golden);
    let files: Vec<PathBuf> = small.iter().cycle().take(360).cloned().collect();
    let options = ["--batch", "3", "--precision", "fp32"];
    let plenty = fixture.rows("cuda", &files, &options);
    let cpu = fixture.rows("cpu", &files, &[]);
    for gpus in ["1", "2"] {
        for thread in 1..=4 {
            let mut command = fixture.command("cuda:all", &files, &options);
            command.env("OCELLUS_EMULATOR_GPUS", gpus).env("EMULATED_NVJPEG", format!("short-thread:{thread}"));
            let (rows, notes) = notes(&fixture, &mut command);
            assert_alike(&rows, &cpu, DECODERS_SMALL);
            let refused = notes.matches("nvjpeg-refused").count();
            println!("{gpus} GPUs, thread {thread}: {refused} refused");
            // Two, where it would be one with every batch: a dozen.
            assert!(refused <= 4, "thread {thread}: {refused} refused");
            assert!(refused > 0 || thread > 1, "thread {thread}");
            if refused <= 2 {
                assert_eq!(rows, plenty, "thread {thread}");
            }
        }
    }
    // Nobody has one: the last worker of each GPU stays.
    for gpus in ["1", "2"] {
        for how in ["states-from:1000000", "no-states", "failing-thread:1", "failing-thread:2"] {
            let mut command = fixture.command("cuda:all", &files[..120], &[&options[..], &["-v"]].concat());
            command.env("OCELLUS_EMULATOR_GPUS", gpus).env("EMULATED_NVJPEG", how);
            let output = command.output().unwrap();
            assert_alike(&rows(&output), &cpu[..120], DECODERS_SMALL);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(said.contains("cannot be made"), !how.starts_with("states"), "{how}: {said}");
        }
    }
}

/// Memory that is short for a while costs a job its speed for a while: who has left the work to others comes back.
#[test]
fn a_worker_that_found_no_memory_comes_back() {
    let Some(fixture) = Fixture::new() else { return };
    if emulator().is_none() {
        return;
    }
    let file = golden("jpeg-420-16x17.jpg");
    let options = ["--batch", "1", "--precision", "fp32", "--order", "completion"];
    let stats = fixture.path("stats.json");
    let mut command = fixture.command("cuda", std::slice::from_ref(&file), &options);
    assert!(command.arg("--stats").arg(&stats).status().unwrap().success());
    let stats: Value = serde_json::from_slice(&fs::read(&stats).unwrap()).unwrap();
    let stages = stats["pipeline"]["stages"].as_array().unwrap();
    let workers = stages.iter().find(|stage| stage["stage"] == "load").unwrap()["workers"].as_u64().unwrap() as usize;

    // A file for the engines and then for CPU and GPU together: one worker at least has no decoder for two files.
    let refused = 2 * workers + 2;
    let notes = fixture.path("notes");
    let mut command = fixture.command("cuda", &["-".into()], &options);
    command.env("EMULATED_NVJPEG", format!("states-from:{refused}")).env("OCELLUS_EMULATOR_NOTES", &notes);
    let mut job = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut paths, rows) = (job.stdin.take().unwrap(), job.stdout.take().unwrap());
    let rows = thread::spawn(move || BufReader::new(rows).lines().map(Result::unwrap).collect::<Vec<_>>());
    let mut asked = 0;
    wait_until(&mut job, "a decoder of every worker", || {
        for _ in 0..4 * workers {
            writeln!(paths, "{}", file.display()).unwrap();
            asked += 1;
        }
        thread::sleep(Duration::from_millis(100));
        let notes = fs::read_to_string(&notes).unwrap_or_default();
        notes.matches("nvjpeg-state batch").count() == workers + notes.matches("nvjpeg-refused batch").count()
    });
    drop(paths);
    assert!(wait(&mut job).success());
    let rows = rows.join().unwrap();
    assert_eq!(rows.len(), asked);
    assert!(rows.iter().all(|row| serde_json::from_str::<Value>(row).unwrap()["top"].is_array()), "{rows:?}");
}

/// nvJPEG starts while the network takes all memory, and half of the batch is tried, and so on.
#[test]
fn nvjpeg_starts_beside_a_batch_that_is_halved() {
    let Some(fixture) = Fixture::new() else { return };
    if emulator().is_none() {
        return;
    }
    let files = [photo("flower.jpg"), golden("jpeg-420-progressive.jpg")];
    let cpu = fixture.rows("cpu", &files, &[]);
    let mut halved = 0;
    for mib in [200, 150, 100] {
        for refused in [0, 1, 2, 100] {
            let mut command = fixture.command("cuda", &files, &["--batch", "4096", "--precision", "fp32"]);
            command.env("OCELLUS_EMULATOR_MEMORY_BYTES", (mib << 20).to_string());
            command.env("EMULATED_NVJPEG", format!("handles-from:{refused}"));
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            let rows = rows(&output);
            assert_alike(&rows, &cpu, DECODERS_SMALL);
            halved += usize::from(said.contains("memory for batches of"));
            // What it found no memory for beside the network it finds behind it, once.
            let decodes = refused <= 1;
            assert_eq!(said.contains("the CPU decodes: "), !decodes, "{mib} MiB, {refused}: {said}");
            let by_gpu = rows.iter().all(|row| row["decoder"].to_string().contains("nvjpeg"));
            assert_eq!(by_gpu, decodes, "{mib} MiB, {refused}: {rows:?}");
        }
    }
    assert!(halved > 0, "the largest batch always fits");
}

/// All queues are taken, before the driver starts, by what may be long, and by nothing else.
#[test]
fn the_driver_keeps_many_queues_for_long_jobs_only() {
    let Some(fixture) = Fixture::new() else { return };
    if emulator().is_none() {
        return;
    }
    let file = photo("flower.jpg");
    let folder = fixture.path("photos");
    fs::create_dir(&folder).unwrap();
    fs::copy(&file, folder.join("a.jpg")).unwrap();
    let large = fixture.path("many");
    fs::create_dir(&large).unwrap();
    fs::copy(&file, large.join("a.jpg")).unwrap();
    (0..5000).for_each(|n| fs::write(large.join(format!("{n}.txt")), "").unwrap());
    let (net, pattern) = (fixture.path("net.onnx"), large.join("*.jpg"));
    let [net, file, folder, large, pattern] =
        [&net, &file, &folder, &large, &pattern].map(|path| path.to_str().unwrap());
    let classify = |input| vec!["classify", input, "--model", net, "--device", "cuda"];
    let of_job = |name: &str, input: &str| {
        let text = format!("[input]\npaths = [\"{input}\"]\n[[model]]\nonnx = \"net.onnx\"\n");
        fixture.file(name, text.as_bytes()).to_str().unwrap().to_owned()
    };
    let (few_job, many_job) = (of_job("few.toml", file), of_job("many.toml", large));
    let bench = |what| vec!["bench", what, "--model", net, "--size", "48x32", "--pictures", "2"];
    for (arguments, queues) in [
        (classify(file), "default"),
        (classify(folder), "default"),
        (classify(large), "32"),
        (classify(pattern), "32"),
        (classify("-"), "32"),
        (vec!["run", &few_job, "--device", "cuda"], "default"),
        (vec!["run", &many_job, "--device", "cuda"], "32"),
        (vec!["run", &few_job, large, "--device", "cuda"], "32"),
        (vec!["parity", file, "--model", net, "--device", "cuda"], "default"),
        ([bench("latency"), vec!["--runs", "2"]].concat(), "default"),
        ([bench("e2e"), vec!["--seconds", "1"]].concat(), "32"),
        (vec!["doctor", "--gpu", "9"], "default"),
    ] {
        let notes = fixture.path("notes");
        let _ = fs::remove_file(&notes);
        let mut command = ocellus();
        command.args(&arguments).env_remove("CUDA_DEVICE_MAX_CONNECTIONS").env("OCELLUS_EMULATOR_NOTES", &notes);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        // Whoever does not read a list does not mind.
        let _ = writeln!(process.stdin.take().unwrap(), "{file}");
        let output = process.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || arguments[0] == "doctor", "{arguments:?}: {said}");
        let notes = fs::read_to_string(&notes).unwrap();
        let found: Vec<_> = notes.lines().filter_map(|line| line.strip_prefix("queues ")).collect();
        assert!(!found.is_empty() && found.iter().all(|found| *found == queues), "{arguments:?}: {notes}");
    }
}
