//! `ocellus bench` writes the figures that it promises, under their names. How large they are is not tested.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};
use tests::gpu::{gpu, is_emulated};
use tests::job::{signal, wait, wait_until, with_default_signals};
use tests::network::{NetworkBuilder, list};
use tests::program::text;
use tests::trace::spans;
use tests::{ocellus, skip};

/// Side of the test network's input.
const SIDE_PX: i64 = 16;
const CLASSES: usize = 6;

/// A network that is quick to run.
fn network(folder: &Path) -> PathBuf {
    let mut builder = NetworkBuilder::new(3);
    let x = builder.conv(NetworkBuilder::INPUT, 3, 8, 3, 2, 1.0);
    let x = builder.node("Relu", &[&x], vec![]);
    let x = builder.node("MaxPool", &[&x], vec![list("kernel_shape", &[2; 2]), list("strides", &[2; 2])]);
    let scores = builder.classes(&x, 8, CLASSES, 1.0);
    let path = folder.join("tiny.onnx");
    fs::write(&path, builder.finish("tiny", SIDE_PX, &scores, CLASSES)).unwrap();
    path
}

fn bench(arguments: &[&str]) -> Command {
    let mut command = ocellus();
    command.arg("bench").args(arguments);
    command
}

/// Measures, and checks that exactly these figures come out, in the table and in the file.
fn measure(arguments: &[&str], unit: &str, names: &[&str]) -> (Vec<Value>, Output) {
    measure_units(arguments, &names.iter().map(|&name| (name, unit)).collect::<Vec<_>>())
}

/// The same for figures of several units.
fn measure_units(arguments: &[&str], names: &[(&str, &str)]) -> (Vec<Value>, Output) {
    measure_with(arguments, names, &[])
}

/// The same with environment variables.
fn measure_with(arguments: &[&str], names: &[(&str, &str)], environment: &[(&str, &str)]) -> (Vec<Value>, Output) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figures.json");
    let output = bench(arguments).arg("--json").arg(&file).envs(environment.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    let figures: Vec<Value> = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let text_of = |figure: &'_ Value, field: &str| figure[field].as_str().unwrap().to_owned();
    let found: Vec<_> = figures.iter().map(|figure| (text_of(figure, "name"), text_of(figure, "unit"))).collect();
    let expected: Vec<_> = names.iter().map(|(name, unit)| ((*name).to_owned(), (*unit).to_owned())).collect();
    assert_eq!(found, expected, "{arguments:?}");
    for figure in &figures {
        // JSON has no infinity and no NaN: they would be null.
        assert!(figure["value"].as_f64().is_some_and(|value| value > 0.0), "{figure}");
        assert!(figure["spread"].as_f64().is_some_and(|spread| spread >= 0.0), "{figure}");
        assert_eq!(figure["bound_percent"].is_null(), figure["bound"].is_null(), "{figure}");
        assert!(text(&output.stdout).contains(figure["name"].as_str().unwrap()), "{}", text(&output.stdout));
    }
    (figures, output)
}

fn assert_bounded(figures: &[Value]) {
    for figure in figures {
        assert!(figure["bound_percent"].as_f64().is_some_and(|percent| percent > 0.0), "{figure}");
    }
}

#[test]
fn the_network_alone() {
    if gpu().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let model = network(folder.path());
    let model = model.to_str().unwrap();
    let names = ["infer.tiny.fp16.b1", "infer.tiny.fp16.b2"];
    assert_bounded(&measure(&["infer", "--model", model, "--batch", "1,2"], "img/s", &names).0);
    let names = ["infer.tiny.fp32.portable.b1"];
    let portable = ["infer", "--model", model, "--batch", "1", "--portable", "--precision", "fp32"];
    assert_bounded(&measure(&portable, "img/s", &names).0);
}

/// Each round is a process of its own.
#[test]
fn the_start() {
    let Some(gpu) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let model = network(folder.path());
    let startup = ["startup", "--batch", "2", "--precision", "fp32", "--model", model.to_str().unwrap()];
    let names = ["cold", "warm", "decoders"].map(|part| format!("startup.tiny.fp32.{part}"));
    let names = names.each_ref().map(String::as_str);
    let (_, output) = measure(&startup, "s", &names);
    let said = text(&output.stderr);
    for state in ["cold: model ", "warm: model "] {
        let line = said.lines().find(|line| line.starts_with(state)).unwrap_or_else(|| panic!("{said}"));
        assert!(["GPU ", "plans ", "network ", "then decoders "].iter().all(|part| line.contains(part)), "{line}");
    }
    if !is_emulated(gpu) {
        return skip("REQUIRE_EMULATOR", "a real GPU does not fail on demand");
    }
    let notes = folder.path().join("notes");
    let no_states = [("EMULATED_NVJPEG", "no-states"), ("OCELLUS_EMULATOR_NOTES", notes.to_str().unwrap())];
    let units = names.map(|name| (name, "s"));
    let (_, output) = measure_with(&startup, &units[..2], &no_states);
    assert!(text(&output.stderr).contains("then decoders not measured: "), "{}", text(&output.stderr));
    let notes = fs::read_to_string(notes).unwrap();
    assert_eq!(notes.matches("nvjpeg-handle hardware").count(), 2, "one a process: {notes}");
    assert!(notes.contains("queues default") && !notes.contains("queues 32"), "{notes}");
    // What fails there is said here, once.
    for (variable, value, why) in
        [("OCELLUS_EMULATOR_GPUS", "0", "no GPU"), ("OCELLUS_EMULATOR_FAILING_GPU", "0:40", "illegal memory access")]
    {
        let output = bench(&startup).env(variable, value).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let error = said.lines().last().unwrap();
        assert!(error.starts_with("error: measuring the cold start: ") && error.contains(why), "{said}");
        assert_eq!(said.matches("error: ").count(), 1, "{said}");
    }
}

#[test]
fn decoding() {
    if gpu().is_none() {
        return;
    }
    // Batches are larger than the number of pictures, and there are fewer pictures than workers.
    let size = ["--size", "49x33", "--pictures", "2", "--batch", "3", "--workers", "3"];
    for path in ["hw", "hybrid"] {
        let name = format!("decode.{path}.49x33");
        measure(&[&["decode", "--path", path], &size[..]].concat(), "img/s", &[&name]);
    }
    // As a job does it: each file goes to who can.
    let emulated: &[(&str, &str)] = &[("", "nvjpeg-hw"), ("no-engines", "nvjpeg-hybrid")];
    for (without, decoder) in &emulated[..if is_emulated(gpu().unwrap()) { 2 } else { 1 }] {
        let variable = ("EMULATED_NVJPEG", *without);
        let auto = [&["decode", "--path", "auto"], &size[..]].concat();
        let (figures, output) = measure_with(&auto, &[("decode.auto.49x33", "img/s")], &[variable]);
        assert_eq!(figures[0]["decoders_percent"], json!({ *decoder: 100.0 }));
        assert!(text(&output.stdout).contains(&format!("{decoder} 100")), "{}", text(&output.stdout));
    }
    // Other files have other names.
    for (sampling, quality, name) in
        [("444", "90", "49x33.444"), ("gray", "75", "49x33.q75.gray"), ("422", "75", "49x33.q75.422")]
    {
        let kind = ["decode", "--sampling", sampling, "--quality", quality, "--seed", "7"];
        measure(&[&kind, &size[..]].concat(), "img/s", &[&format!("decode.hw.{name}")]);
    }
}

#[test]
fn preprocessing() {
    if gpu().is_none() {
        return;
    }
    let names = ["preprocess.60x45.224.f16.b1", "preprocess.60x45.224.f16.b2"];
    assert_bounded(&measure(&["preprocess", "--size", "60x45", "--batch", "1,2"], "img/s", &names).0);
    let names = ["preprocess.641x32.640.f16.b1"];
    assert_bounded(&measure(&["preprocess", "--size", "641x32", "--batch", "1"], "img/s", &names).0);
    let detector = ["preprocess", "--size", "60x45", "--batch", "1", "--output", "640"];
    measure(&detector, "img/s", &["preprocess.60x45.640.f16.b1"]);
}

#[test]
fn files_to_labels() {
    if gpu().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let model = network(folder.path());
    let arguments = ["e2e", "--size", "48x32", "--pictures", "3", "--batch", "2", "--seconds", "1", "--model"];
    let arguments = [&arguments[..], &[model.to_str().unwrap()]].concat();
    let whole = [
        ("e2e.tiny.fp16.48x32", "img/s"),
        ("e2e.tiny.fp16.48x32.cores", "cores"),
        ("e2e.tiny.fp16.48x32.gpu_memory", "MiB"),
    ];
    let (_, output) = measure_units(&arguments, &whole);
    let said = text(&output.stderr);
    for part in ["decoded by: nvjpeg-hw ", "the bound: ", "load ", "busy", " cores, ", "images a core-second"] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    assert!(!said.contains("zune"), "{said}");
    let parts = [("infer.tiny.fp16.b2", "img/s"), ("decode.hw.48x32", "img/s")];
    let (figures, _) = measure_units(&[&arguments[..], &["--bound"]].concat(), &[&parts[..], &whole].concat());
    let bound = figures[2]["value"].as_f64().unwrap() / figures[2]["bound_percent"].as_f64().unwrap() * 100.0;
    let slower = figures[..2].iter().map(|figure| figure["value"].as_f64().unwrap()).fold(f64::INFINITY, f64::min);
    assert!((bound / slower - 1.0).abs() < 1e-9, "{bound} instead of {slower}");
}

/// What ends a measurement is told, whenever it happens.
#[test]
fn a_gpu_that_is_lost_ends_a_measurement_with_its_reason() {
    let Some(gpu) = gpu() else { return };
    if !is_emulated(gpu) {
        return skip("REQUIRE_EMULATOR", "a real GPU does not fail on demand");
    }
    let folder = tempfile::tempdir().unwrap();
    let model = network(folder.path());
    let size = ["--size", "48x32", "--pictures", "3", "--batch", "2"];
    // Far longer than it takes until the GPU is lost.
    let e2e = [&["e2e", "--seconds", "60", "--model", model.to_str().unwrap()], &size[..]].concat();
    let decode = [&["decode", "--path", "auto"], &size[..]].concat();
    // Of several one that fails at the start is left out.
    let all = [&e2e[..], &["--device", "cuda:all"]].concat();
    for (arguments, gpus, calls) in
        [(&e2e, 1, 10), (&e2e, 1, 3000), (&decode, 1, 10), (&decode, 1, 3000), (&all, 2, 3000)]
    {
        let mut job = bench(arguments);
        job.env("OCELLUS_EMULATOR_GPUS", gpus.to_string());
        let output = job.env("OCELLUS_EMULATOR_FAILING_GPU", format!("0:{calls}")).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?} {calls}: {said}");
        assert!(said.contains("illegal memory access"), "{arguments:?} {calls}: {said}");
        assert!(said.lines().last().unwrap().starts_with("error: "), "{arguments:?} {calls}: {said}");
    }
}

#[test]
fn everything_in_one_run() {
    let Some(gpu) = gpu() else { return };
    if is_emulated(gpu) {
        skip("REQUIRE_REAL_GPU", "the emulator is too slow for batches of 256");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let model = network(folder.path());
    let names = [
        ("infer.tiny.fp16.b1", "img/s"),
        ("infer.tiny.fp16.b32", "img/s"),
        ("infer.tiny.fp16.b64", "img/s"),
        ("infer.tiny.fp16.b256", "img/s"),
        ("decode.hw.64x48", "img/s"),
        ("preprocess.64x48.224.f16.b32", "img/s"),
        ("preprocess.64x48.224.f16.b256", "img/s"),
        ("e2e.tiny.fp16.64x48", "img/s"),
        ("e2e.tiny.fp16.64x48.cores", "cores"),
        ("e2e.tiny.fp16.64x48.gpu_memory", "MiB"),
    ];
    let (figures, _) = measure_units(&["--size", "64x48", "--model", model.to_str().unwrap()], &names);
    assert_bounded(&figures[7..8]);
}

#[test]
fn files_to_labels_without_a_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let model = network(folder.path());
    let arguments =
        ["e2e", "--device", "cpu", "--size", "48x32", "--pictures", "3", "--seconds", "1", "--bound", "--model"];
    let arguments = [&arguments[..], &[model.to_str().unwrap()]].concat();
    let names = [("e2e.tiny.fp32.cpu.48x32", "img/s"), ("e2e.tiny.fp32.cpu.48x32.cores", "cores")];
    let (figures, output) = measure_units(&arguments, &names);
    assert_bounded(&figures[..1]);
    let said = text(&output.stderr);
    for part in ["each stage alone, ", "decode+resize", " cores, "] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    assert_eq!(figures[0]["decoders_percent"].as_object().map(serde_json::Map::len), Some(1), "{}", figures[0]);
}

/// What a trace costs is measured under a name of its own, and the trace is that of the job.
#[test]
fn files_to_labels_with_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let model = network(folder.path());
    let trace = folder.path().join("trace.json");
    let arguments =
        ["e2e", "--device", "cpu", "--size", "48x32", "--pictures", "3", "--seconds", "1", "--precision", "fp32"];
    let files = ["--model", model.to_str().unwrap(), "--profile", trace.to_str().unwrap()];
    let names = [("e2e.tiny.fp32.cpu.48x32.profiled", "img/s"), ("e2e.tiny.fp32.cpu.48x32.profiled.cores", "cores")];
    measure_units(&[&arguments[..], &files].concat(), &names);
    let spans = spans(&trace);
    for stage in ["source", "read", "decode+resize", "batch", "infer", "postprocess"] {
        assert!(spans.iter().any(|span| span.name == stage), "no {stage}");
    }
    // What somebody else wrote is not replaced.
    fs::write(&trace, "mine").unwrap();
    let output = bench(&[&arguments[..], &files].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("--profile") && fs::read_to_string(&trace).unwrap() == "mine");
}

#[test]
fn one_file_at_a_time() {
    if gpu().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let model = network(folder.path());
    let arguments =
        ["latency", "--size", "48x32", "--pictures", "3", "--runs", "20", "--model", model.to_str().unwrap()];
    for (path, middle, decoder) in [
        ("auto", "", ""),
        ("engines", ".engines", "nvjpeg-hw"),
        ("hybrid", ".hybrid", "nvjpeg-hybrid"),
        ("cpu", ".cpu", ""),
    ] {
        let names = ["p50", "p90", "p99", "max"].map(|end| format!("latency.tiny.fp16{middle}.48x32.{end}"));
        let (figures, output) =
            measure(&[&arguments[..], &["--path", path]].concat(), "ms", &names.each_ref().map(String::as_str));
        let values: Vec<_> = figures.iter().map(|figure| figure["value"].as_f64().unwrap()).collect();
        assert!(values.is_sorted(), "{values:?}");
        assert!(text(&output.stderr).contains(&format!("decoded by: {decoder}")), "{}", text(&output.stderr));
    }
}

/// A measurement that is stopped by a signal ends as an interrupted job does, and leaves nothing behind.
#[test]
fn a_signal_leaves_no_temporary_files() {
    let folder = tempfile::tempdir().unwrap();
    let model = network(folder.path());
    let mut command = with_default_signals(&ocellus());
    command.args(["bench", "e2e", "--device", "cpu", "--size", "48x32", "--seconds", "3600", "--model"]).arg(&model);
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // Its own: other tests have folders of the same kind.
    let prefix = format!("ocellus-bench-{}-", child.id());
    let folders = || {
        let parents = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
        let entries = parents.iter().filter_map(|parent| fs::read_dir(parent).ok()).flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).count()
    };
    wait_until(&mut child, "its folder", || folders() > 0);
    sleep(Duration::from_secs(1));
    signal(&child, "-TERM");
    assert_eq!(wait(&mut child).code(), Some(130));
    assert_eq!(folders(), 0, "left behind");
}

#[test]
fn the_corpus_is_written_once() {
    let folder = tempfile::tempdir().unwrap();
    let photos = folder.path().join("a/photos");
    let corpus = || bench(&["corpus", "--size", "40x30", "--pictures", "5"]).arg(&photos).output().unwrap();
    let output = corpus();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut files: Vec<_> = fs::read_dir(&photos).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert_eq!(files.len(), 5);
    let contents: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    assert!(contents.iter().all(|content| content.starts_with(&[0xff, 0xd8]) && content.ends_with(&[0xff, 0xd9])));
    assert!(contents.windows(2).all(|pair| pair[0] != pair[1]));
    let many = folder.path().join("many");
    let output = bench(&["corpus", "--size", "9999x9999", "--pictures", "999999"]).arg(&many).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--pictures: at most 171"), "{}", text(&output.stderr));
    let again = corpus();
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("not empty"), "{}", text(&again.stderr));
}

#[test]
fn wrong_usage_is_one_line() {
    for (arguments, part) in [
        (&["decode", "--size", "500"][..], "500x375"),
        (&["decode", "--size", "8x8"], "16 to 16384"),
        (&["decode", "--size", "50x50", "--path", "cpu"], "hybrid"),
        (&["decode", "--size", "50x50", "--batch", "0"], "--batch"),
        (&["decode", "--size", "50x50", "--pictures", "18446744073709551615"], "1 to 1000000"),
        (&["preprocess", "--size", "50x50", "--output", "225"], "640"),
        (&["preprocess", "--size", "50x50", "--batch", "32,5000"], "1 to 4096"),
        (&["infer", "--batch", "0"], "--batch"),
        (&["e2e", "--size", "50x50", "--precision", "int4"], "fp16"),
        (&["corpus", "--size", "50x50"], "FOLDER"),
        (&["decode", "--quality", "0"], "1..=100"),
        (&["decode", "--sampling", "411"], "422"),
        (&["e2e", "--device", "tpu"], "cpu"),
        // What would have no effect.
        (&["e2e", "--device", "cpu", "--gpu", "0"], "--gpu"),
        (&["e2e", "--device", "cuda:1", "--gpu", "0"], "--gpu"),
        (&["e2e", "--device", "cuda:all", "--gpu", "1"], "--gpu"),
        (&["e2e", "--device", "cpu", "--precision", "fp16"], "--device cuda"),
        (&["e2e", "--device", "cpu", "--precision", "tf32"], "--precision"),
        (&["latency", "--path", "hw"], "engines"),
        (&["--size", "50x50", "infer"], "infer"),
    ] {
        let output = bench(arguments).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(part), "{arguments:?}: {said}");
    }
}
