//! Several GPUs in one job.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use ocellus_kernels::cuda::device::Device;
use ocellus_kernels::cuda::gpu::Gpu;
use ocellus_kernels::jit::{CacheDir, JitOptions, KernelSpec, Stop};
use serde_json::Value;

use super::{DECODERS_SMALL, Fixture, assert_alike, emulator, golden, photo, rows};

/// GPUs of the emulator; a real machine has what it has.
fn with_gpus(mut command: Command, gpus: usize) -> Command {
    command.env("OCELLUS_EMULATOR_GPUS", gpus.to_string());
    command
}

/// False, with the reason printed, where there is one GPU only.
fn several() -> bool {
    let several = super::gpu().is_some_and(tests::gpu::is_emulated) || Device::count().is_ok_and(|count| count > 1);
    if !several {
        tests::skip("REQUIRE_GPUS", "one GPU only");
    }
    several
}

/// Enough small files for every worker of two GPUs, some of which the GPU does not decode, or nobody.
fn many_files(fixture: &Fixture) -> Vec<PathBuf> {
    let text = fixture.file("text.jpg", b"no picture");
    let names = ["jpeg-420-16x17.jpg", "jpeg-420-progressive.jpg", "jpeg-420-17x16.jpg", "jpeg-cmyk-adobe.jpg"];
    let few: Vec<PathBuf> = names.map(golden).into_iter().chain([text]).collect();
    few.iter().cycle().take(80).cloned().collect()
}

fn stats(fixture: &Fixture) -> Value {
    serde_json::from_str(&fs::read_to_string(fixture.path("stats.json")).unwrap()).unwrap()
}

fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn sorted(mut rows: Vec<Value>) -> Vec<Value> {
    rows.sort_by_key(ToString::to_string);
    rows
}

#[test]
fn two_gpus_share_the_work_and_give_the_rows_of_one() {
    let Some(fixture) = Fixture::new() else { return };
    if !several() {
        return;
    }
    let files = many_files(&fixture);
    let stats_file = fixture.path("stats.json");
    let options = ["--batch", "2", "--stats", stats_file.to_str().unwrap()];
    let run = |device: &str, order: &str| {
        let mut command = with_gpus(fixture.command(device, &files, &options), 2);
        rows(&command.args(["--order", order]).output().unwrap())
    };
    let one = run("cuda:0", "input");
    let of_one = stats(&fixture);
    assert_eq!(of_one["images_by_device"].as_object().unwrap().len(), 1, "{of_one}");
    assert_eq!(run("cuda:1", "input"), one, "the other one has the same bits");
    for device in ["cuda:0,cuda:1", "cuda:1,cuda:0", "cuda:all"] {
        // Who takes a batch is a matter of time: on a busy machine one may find none left.
        for attempt in 1.. {
            assert_eq!(run(device, "input"), one, "{device}");
            let stats = stats(&fixture);
            let expected = if device == "cuda:all" { "cuda:0,cuda:1" } else { device };
            assert!(stats["device"].as_str().unwrap().starts_with(expected), "{stats}");
            let images: BTreeMap<String, u64> = serde_json::from_value(stats["images_by_device"].clone()).unwrap();
            assert_eq!(Value::from(images.values().sum::<u64>()), of_one["images_by_device"]["cuda:0"], "{images:?}");
            assert!(images.len() >= 2, "{images:?}");
            if images.values().all(|&images| images > 0) {
                break;
            }
            assert!(attempt < 20, "one never has work: {images:?}");
        }
    }
    let paths = |rows: &[Value]| rows.iter().map(|row| row["path"].clone()).collect::<Vec<_>>();
    let unordered = run("cuda:0,cuda:1", "completion");
    assert_eq!(paths(&unordered).len(), paths(&one).len());
    assert_eq!(sorted(unordered), sorted(one.clone()));
    let alone = fixture.command("cpu", &files, &["--order", "completion"]).output().unwrap();
    assert_eq!(sorted(rows(&alone)), sorted(fixture.rows("cpu", &files, &[])));
}

#[test]
fn a_gpu_with_little_memory_beside_another_changes_no_row() {
    let Some(fixture) = Fixture::new() else { return };
    if emulator().is_none() {
        return;
    }
    let shot = image::RgbImage::from_fn(1600, 1300, |x, y| image::Rgb([(x / 7) as u8, (y / 5) as u8, (x ^ y) as u8]));
    let files: Vec<PathBuf> = (0..16).map(|n| fixture.path(&format!("shot{n}.jpg"))).collect();
    for path in &files {
        shot.save(path).unwrap();
    }
    let run = |device: &str, mib: usize| {
        let mut command = with_gpus(fixture.command(device, &files, &["--batch", "4"]), 2);
        command.env("OCELLUS_EMULATOR_SMALL_GPU", format!("1:{}", mib << 20)).output().unwrap()
    };
    let plenty = rows(&run("cuda:0", 8192));
    let mut split = false;
    for mib in [75, 48] {
        let output = run("cuda:0,cuda:1", mib);
        // What does not even fit alone the CPU decodes.
        assert_alike(&rows(&output), &plenty, DECODERS_SMALL);
        split |= message(&output).contains("no memory for");
    }
    assert!(split, "no batch was split");
}

/// What is said of a GPU.
fn warnings_about(gpu: &str, message: &str) -> Vec<String> {
    let is_about = |line: &&str| line.starts_with("warning: ") && line.contains(gpu);
    message.lines().filter(is_about).map(str::to_owned).collect()
}

/// A GPU that fails for good, at any moment. Where it is the only one, or one of a list at the start: what is done is in the
/// file, one line says which GPU and why, and a later job goes on. Where others work: every row is there, and one line says
/// so.
#[test]
fn a_gpu_that_fails_ends_a_job_only_where_nobody_can_go_on() {
    let Some(fixture) = Fixture::new() else { return };
    if emulator().is_none() {
        return;
    }
    let files = many_files(&fixture);
    let out = fixture.path("rows.jsonl");
    let expected = fixture.path("expected.jsonl");
    let options = |file: &PathBuf| ["--batch".to_owned(), "2".into(), "-o".into(), file.to_str().unwrap().to_owned()];
    let command = |device: &str, file: &PathBuf| {
        let mut command = with_gpus(fixture.command(device, &files, &[]), 2);
        command.args(options(file));
        command
    };
    assert_eq!(command("cuda:0", &expected).status().unwrap().code(), Some(3));
    let expected = fs::read_to_string(&expected).unwrap();
    let lines = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let (mut failed, mut kept, mut left_out, mut lost) = (0, 0, 0, 0);
    for (device, order) in
        [("cuda:1", "input"), ("cuda:0,cuda:1", "input"), ("cuda:all", "input"), ("cuda:1,cuda:0", "completion")]
    {
        // From before the start, of which about 310 calls are, to the middle of the job.
        for calls in [0, 100, 200, 300, 360, 600, 1200, 1500] {
            let mut job = command(device, &out);
            job.args(["--order", order]).env("OCELLUS_EMULATOR_FAILING_GPU", format!("1:{calls}"));
            let output = job.output().unwrap();
            let message = message(&output);
            let said = warnings_about("cuda:1", &message);
            if output.status.code() == Some(3) {
                let all = fs::read_to_string(&out).unwrap();
                assert_eq!(lines(&all), lines(&expected), "{device} {calls}: {message}");
                assert!(order == "completion" || all == expected, "{device} {calls}");
                assert!(said.len() <= 1, "{device} {calls}: {message}");
                assert!(device != "cuda:1" || said.is_empty(), "{calls}: {message}");
                left_out += usize::from(said.iter().any(|line| line.contains("cuda:1 is left out: ")));
                lost += usize::from(said.iter().any(|line| line.contains("goes on without cuda:1: ")));
                fs::remove_file(&out).unwrap();
                continue;
            }
            assert_eq!(output.status.code(), Some(1), "{calls}: {message}");
            assert!(device != "cuda:all", "{calls}: {message}");
            let last = message.lines().last().unwrap();
            assert!(last.starts_with("error: ") && last.contains("illegal memory access"), "{calls}: {message}");
            assert!(calls < 100 || last.contains("cuda:1"), "{calls}: {message}");
            failed += 1;
            let partial = PathBuf::from(format!("{}.partial", out.display()));
            if let Ok(done) = fs::read_to_string(&partial) {
                assert_eq!(device, "cuda:1", "{calls}: {message}");
                kept += 1;
                assert!(message.contains("--resume continues it"), "{message}");
                assert!(expected.starts_with(&done), "{done}");
            }
            let resumed = command("cuda:0", &out).arg("--resume").output().unwrap();
            assert_eq!(resumed.status.code(), Some(3), "{}", self::message(&resumed));
            assert_eq!(fs::read_to_string(&out).unwrap(), expected, "{calls}");
            fs::remove_file(&out).unwrap();
        }
    }
    println!("{failed} jobs failed, {kept} of them with rows; a GPU was left out in {left_out}, lost in {lost}");
    assert!(failed > 5 && kept > 0 && left_out >= 2 && lost > 0);
}

/// GPUs that fail one after the other: the last one ends the job.
#[test]
fn a_job_ends_when_the_last_gpu_is_lost() {
    let Some(fixture) = Fixture::new() else { return };
    if emulator().is_none() {
        return;
    }
    let files = many_files(&fixture);
    let expected = rows(&fixture.command("cuda:0", &files, &["--batch", "2"]).output().unwrap());
    let mut went_on = 0;
    for launch in [50, 80, 120] {
        // All of them.
        let mut job = with_gpus(fixture.command("cuda:all", &files, &["--batch", "2"]), 3);
        let output = job.env("OCELLUS_EMULATOR_FAIL", format!("launch:{launch}:700")).output().unwrap();
        let message = message(&output);
        assert_eq!(output.status.code(), Some(1), "{launch}: {message}");
        let last = message.lines().last().unwrap();
        assert!(
            last.starts_with("error: ") && last.contains("cuda:") && last.contains("illegal memory access"),
            "{launch}: {message}"
        );
        let of_gpus = warnings_about("cuda:", &message);
        assert!(of_gpus.len() <= 2, "{launch}: {message}");
        let done: Vec<Value> =
            String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(expected.starts_with(&done), "{launch}: {message}");
        went_on += usize::from(message.contains("the job goes on without cuda:"));
        println!("launch {launch}: {} rows, {of_gpus:?}", done.len());
    }
    assert!(went_on > 0, "no GPU was lost before the last one");
}

#[test]
fn of_all_gpus_those_that_cannot_are_left_out_and_of_a_list_none() {
    let Some(fixture) = Fixture::new() else { return };
    if emulator().is_none() {
        return;
    }
    let files = [photo("flower.jpg"), photo("rocket.jpg")];
    let run = |device: &str, gpus: usize, small: &str| {
        let mut command = with_gpus(fixture.command(device, &files, &[]), gpus);
        command.env("OCELLUS_EMULATOR_SMALL_GPU", small).output().unwrap()
    };
    let expected = fixture.rows("cuda", &files, &[]);
    let output = run("cuda:all", 3, "1:1000");
    assert_eq!(rows(&output), expected);
    assert!(
        message(&output).contains("warning: cuda:1 is left out: cuda:1: GPU: out of memory"),
        "{}",
        message(&output)
    );
    for (device, gpus, small, hint) in [
        ("cuda:0,cuda:1", 2, "1:1000", "cuda:1: GPU: out of memory"),
        ("cuda:all", 1, "0:1000", "error: GPU: out of memory"),
        ("cuda:all", 0, "", "no GPU"),
        ("cuda:0,cuda:2", 2, "", "there is no GPU cuda:2 on this machine; it has cuda:0 to cuda:1"),
        ("cuda:7", 2, "", "there is no GPU cuda:7"),
    ] {
        let output = run(device, gpus, small);
        assert_eq!(output.status.code(), Some(1), "{device}: {}", message(&output));
        assert_eq!(message(&output).lines().filter(|line| line.starts_with("error: ")).count(), 1);
        assert!(message(&output).contains(hint), "{device}: {}", message(&output));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn doctor_tries_all_that_are_named() {
    if super::gpu().is_none() || emulator().is_none() {
        return;
    }
    for (devices, tried) in [("cuda:all", 2), ("cuda:1", 1), ("cuda:0,cuda:3", 0)] {
        let mut doctor = with_gpus(tests::ocellus(), 2);
        // Too little for the test that takes long, which fails then.
        doctor.env("OCELLUS_EMULATOR_MEMORY_BYTES", (256 << 20).to_string());
        let output = doctor.args(["doctor", "--device", devices]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert_eq!(text.matches("compile and run a kernel").count(), tried, "{devices}: {text}");
    }
}

/// GPUs of one kind share a compiler, and what both want at the same time is compiled once.
#[test]
fn gpus_of_one_kind_compile_a_kernel_once() {
    let Some(_) = super::gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheDir::At(folder.path().to_owned());
    let options = JitOptions { cache, workers: 1, worker: None, stop: Stop::default() };
    let gpus: Vec<Gpu> = Gpu::open_all(&[0, 0], &options).into_iter().map(Result::unwrap).collect();
    let specs = &KernelSpec::samples()[..2];
    std::thread::scope(|scope| {
        for gpu in &gpus {
            scope.spawn(|| gpu.jit.compile(specs).unwrap());
        }
    });
    let report = gpus[0].jit.report();
    assert_eq!((report.compiled + report.hits, gpus[1].jit.report()), (4, report.clone()));
    assert_eq!(report.compiled, report.hits, "{report:?}");
    assert!(Gpu::open_all(&[0, 99], &options).into_iter().map(|gpu| gpu.is_ok()).eq([true, false]));
}

#[test]
fn bench_measures_several_together() {
    let Some(fixture) = Fixture::new() else { return };
    if !several() {
        return;
    }
    let mut bench = with_gpus(tests::ocellus(), 2);
    bench.args(["bench", "e2e", "--size", "48x32", "--pictures", "3", "--batch", "2", "--seconds", "1"]);
    bench.args(["--device", "cuda:0,cuda:1", "--model"]).arg(fixture.path("net.onnx"));
    let output = bench.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", message(&output));
    assert!(text.contains("e2e.net.fp16.48x32.gpus2 "), "{text}");
    assert!(message(&output).contains("images: cuda:0 "), "{}", message(&output));
}
