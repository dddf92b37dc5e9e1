//! `ocellus classify --device cuda` gives the rows of `--device cpu`, whatever the files, the batch and the memory.

mod lanes;
mod memory;
mod models;
mod observe;
mod start;
mod steady;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tests::gpu::{gpu, is_emulated};
use tests::network::{NetworkBuilder, list};
use tests::program::{photo, rows};
use tests::{ocellus, skip, workspace_root};

/// Side of the test network's input.
const SIDE_PX: i64 = 32;
/// Its classes.
const CLASSES: usize = 12;
/// Difference of scores that two JPEG decoders may make on photographs, in fp32.
const DECODERS: f64 = 2e-3;
/// The same on small pictures of strong colours, whose edges the CPU's decoder interpolates in its own way.
const DECODERS_SMALL: f64 = 1e-2;

/// A network that is quick to run, with large differences between its scores.
struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    /// `None` where there is no GPU.
    fn new() -> Option<Self> {
        gpu()?;
        let fixture = Self { folder: tempfile::tempdir().unwrap() };
        fixture.network(SIDE_PX);
        Some(fixture)
    }

    /// Writes the network for pictures of another size.
    fn network(&self, side_px: i64) {
        let mut builder = NetworkBuilder::new(7);
        let x = builder.conv(NetworkBuilder::INPUT, 3, 8, 3, 2, 1.0);
        let x = builder.node("Relu", &[&x], vec![]);
        let x = builder.conv(&x, 8, 16, 3, 2, 1.0);
        let x = builder.node("Relu", &[&x], vec![]);
        let x = builder.node("MaxPool", &[&x], vec![list("kernel_shape", &[2; 2]), list("strides", &[2; 2])]);
        let scores = builder.classes(&x, 16, CLASSES, 2.0);
        fs::write(self.path("net.onnx"), builder.finish("net", side_px, &scores, CLASSES)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file for a job to read.
    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    fn command(&self, device: &str, files: &[PathBuf], options: &[&str]) -> Command {
        let mut command = ocellus();
        command.arg("classify").args(files).arg("--model").arg(self.path("net.onnx"));
        command.args(["--device", device, "--top", "12", "--format", "jsonl"]).args(options);
        command
    }

    fn rows(&self, device: &str, files: &[PathBuf], options: &[&str]) -> Vec<Value> {
        rows(&self.command(device, files, options).output().unwrap())
    }
}

/// The folder of the emulator, for a test that needs it.
fn emulator() -> Option<PathBuf> {
    if !is_emulated(gpu()?) {
        skip("REQUIRE_EMULATOR", "a real GPU");
        return None;
    }
    folder_of_emulator()
}

/// The same, where that is the GPU.
fn folder_of_emulator() -> Option<PathBuf> {
    is_emulated(gpu()?).then_some(())?;
    std::env::split_paths(&std::env::var_os("OCELLUS_CUDA_LIBS")?).find(|folder| folder.join("libcuda.so.1").exists())
}

fn golden(name: &str) -> PathBuf {
    workspace_root().join("tests/golden/decode").join(name)
}

/// Every file that the decoders are tested with.
fn golden_files() -> Vec<PathBuf> {
    let files = fs::read_dir(golden("")).unwrap().map(|entry| entry.unwrap().path());
    let other = ["ppm", "tsv", "py"].map(OsStr::new);
    let mut files: Vec<_> = files.filter(|path| !path.extension().is_some_and(|e| other.contains(&e))).collect();
    files.sort();
    files
}

/// Scores by class.
fn scores(row: &Value) -> BTreeMap<u64, f64> {
    let top = row["top"].as_array().unwrap_or_else(|| panic!("no result: {row}"));
    top.iter().map(|scored| (scored["class"].as_u64().unwrap(), scored["score"].as_f64().unwrap())).collect()
}

/// The same but for what the decoder's arithmetic and the precision may change.
fn assert_alike(gpu: &[Value], cpu: &[Value], bound: f64) {
    assert_eq!(gpu.len(), cpu.len());
    for (gpu, cpu) in gpu.iter().zip(cpu) {
        // nvJPEG takes scans of subsampled components, one after another, which the CPU's decoder must refuse.
        if cpu["error"]["kind"] == "unsupported-sampling" && gpu["decoder"] == "nvjpeg-hybrid" {
            assert_eq!(gpu["path"], cpu["path"]);
            continue;
        }
        for field in ["path", "width", "height", "error", "partial"] {
            assert_eq!(gpu[field], cpu[field], "{field}: {gpu} instead of {cpu}");
        }
        if cpu["top"].is_null() {
            continue;
        }
        let (gpu_scores, cpu_scores) = (scores(gpu), scores(cpu));
        assert_eq!(gpu_scores.len(), CLASSES, "{gpu}");
        for (class, score) in &gpu_scores {
            let difference = (score - cpu_scores[class]).abs();
            assert!(difference <= bound, "class {class} differs by {difference}: {gpu} instead of {cpu}");
        }
        let order: Vec<f64> = gpu["top"].as_array().unwrap().iter().map(|s| s["score"].as_f64().unwrap()).collect();
        assert!(order.is_sorted_by(|a, b| a >= b), "{gpu}");
    }
}

fn decoders(rows: &[Value]) -> BTreeSet<&str> {
    rows.iter().filter_map(|row| row["decoder"].as_str()).collect()
}

#[test]
fn every_kind_of_file_gives_the_row_of_the_cpu_whatever_the_batch() {
    let Some(fixture) = Fixture::new() else { return };
    let files = golden_files();
    let cpu = fixture.rows("cpu", &files, &[]);
    let gpu = fixture.rows("cuda", &files, &["--precision", "fp32", "--batch", "64"]);
    assert_alike(&gpu, &cpu, DECODERS_SMALL);
    let decoders = decoders(&gpu);
    for decoder in ["nvjpeg-hybrid", "image"] {
        assert!(decoders.contains(decoder), "{decoders:?}");
    }
    // Chroma of a quarter of the width is not for the engines.
    for (path, row) in files.iter().zip(&gpu) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("jpeg-411-") || name.starts_with("jpeg-410-") {
            assert_eq!(row["decoder"], "nvjpeg-hybrid", "{name}");
        }
    }
    for batch in ["1", "3"] {
        let again = fixture.rows("cuda", &files, &["--precision", "fp32", "--batch", batch]);
        assert_eq!(again, gpu, "batch {batch}");
    }
}

#[test]
fn photos_give_the_rows_of_the_cpu_in_every_precision() {
    let Some(fixture) = Fixture::new() else { return };
    let files: Vec<_> = ["panda.jpg", "flower.jpg", "astronaut.jpg", "rocket.jpg"].map(photo).to_vec();
    let cpu = fixture.rows("cpu", &files, &[]);
    for (precision, bound) in [("fp32", DECODERS), ("tf32", 1e-2), ("fp16", 1e-2), ("bf16", 5e-2)] {
        let gpu = fixture.rows("cuda", &files, &["--precision", precision]);
        assert_alike(&gpu, &cpu, bound);
        assert!(gpu.iter().all(|row| row["decoder"].as_str().unwrap().starts_with("nvjpeg")), "{precision}");
    }
    let stats = fixture.path("stats.json");
    fixture.rows("auto", &files, &["--stats", stats.to_str().unwrap()]);
    let stats: Value = serde_json::from_str(&fs::read_to_string(stats).unwrap()).unwrap();
    assert_eq!((stats["device"].as_str(), stats["precision"].as_str()), (Some("cuda:0"), Some("fp16")), "{stats}");
    let decoders = stats["decoders"].as_object().unwrap();
    assert_eq!(decoders.values().map(|n| n.as_u64().unwrap()).sum::<u64>(), 4, "{decoders:?}");
}

/// A picture's file with the bytes of the last scan's second half replaced.
fn damaged(file: &Path) -> Vec<u8> {
    let mut bytes = fs::read(file).unwrap();
    let len = bytes.len();
    for (i, byte) in bytes[len / 2..len - 64].iter_mut().enumerate() {
        *byte = (i * 37 % 251) as u8;
    }
    bytes
}

#[test]
fn a_bad_file_costs_its_own_row_wherever_it_is_in_a_batch() {
    const BATCH: usize = 5;
    let Some(fixture) = Fixture::new() else { return };
    let good =
        [photo("flower.jpg"), golden("jpeg-420-progressive.jpg"), golden("jpeg-cmyk-adobe.jpg"), photo("rocket.jpg")];
    let whole = fs::read(photo("flower.jpg")).unwrap();
    let bad = [
        fixture.file("empty.jpg", b""),
        fixture.file("text.jpg", b"no picture"),
        fixture.file("header.jpg", &whole[..100]),
        fixture.file("cut.jpg", &whole[..whole.len() / 2]),
        fixture.file("damaged.jpg", &damaged(&photo("flower.jpg"))),
        fixture.file("damaged-progressive.jpg", &damaged(&golden("jpeg-420-progressive.jpg"))),
        fixture.path("missing.jpg"),
    ];
    let mut files = Vec::new();
    for bad in &bad {
        for place in 0..BATCH {
            let mut batch: Vec<PathBuf> = good.to_vec();
            batch.insert(place, bad.clone());
            files.extend(batch);
        }
    }
    let options = ["--precision", "fp32", "--batch", "5"];
    let alone = fixture.rows("cuda", &good, &options);
    let rows = fixture.rows("cuda", &files, &options);
    let (bad_rows, good_rows): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| bad.iter().any(|bad| row["path"].as_str() == bad.to_str()));
    assert_eq!(good_rows.len(), alone.len() * bad.len() * BATCH);
    for (i, row) in good_rows.into_iter().enumerate() {
        assert_eq!(*row, alone[i % alone.len()]);
    }
    let cpu = fixture.rows("cpu", &bad, &[]);
    for (i, row) in bad_rows.into_iter().enumerate() {
        let cpu = &cpu[i / BATCH];
        assert_eq!((&row["path"], &row["error"]), (&cpu["path"], &cpu["error"]), "{row}");
    }
    // What shows in the markers is told as the CPU tells it.
    let cut = rows.iter().filter(|row| row["path"].as_str() == bad[3].to_str());
    assert!(
        cut.clone().count() == BATCH && cut.clone().all(|row| row["partial"] == true),
        "{:?}",
        cut.collect::<Vec<_>>()
    );
}

/// Engines that report success for a batch of which they skipped the last picture, or a part of it.
#[test]
fn a_picture_that_was_skipped_is_decoded_by_another() {
    let Some(fixture) = Fixture::new() else { return };
    if !gpu().is_some_and(is_emulated) {
        skip("REQUIRE_EMULATOR", "a real decoder skips no picture on demand");
        return;
    }
    let files = ["flower.jpg", "rocket.jpg", "panda.jpg", "coffee.jpg"].map(photo);
    let cpu = fixture.rows("cpu", &files, &[]);
    for (batch, skipped) in [("1", "skip-last"), ("3", "skip-last"), ("64", "skip-last"), ("3", "skip-chroma")] {
        let mut command = fixture.command("cuda", &files, &["--precision", "fp32", "--batch", batch]);
        let gpu = rows(&command.env("EMULATED_NVJPEG", skipped).output().unwrap());
        assert_alike(&gpu, &cpu, DECODERS_SMALL);
        assert!(gpu.iter().any(|row| row["decoder"] == "nvjpeg-hybrid"), "nothing was skipped: {skipped}");
    }
}

/// nvJPEG's buffers, of which nobody knows how large they will be, find no room.
#[test]
fn a_batch_that_nvjpeg_has_no_memory_for_is_split_between_the_same_decoders() {
    let Some(fixture) = Fixture::new() else { return };
    if emulator().is_none() {
        return;
    }
    let names = ["flower.jpg", "rocket.jpg", "panda.jpg", "coffee.jpg", "astronaut.jpg"];
    let files: Vec<_> = names.map(photo).into_iter().chain([golden("jpeg-420-progressive.jpg")]).collect();
    let options = ["--precision", "fp32", "--batch", "64"];
    let plenty = fixture.rows("cuda", &files, &options);
    let output = fixture.command("cuda", &files, &options).env("EMULATED_NVJPEG", "little-memory").output().unwrap();
    assert_eq!(rows(&output), plenty);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("no memory for"), "{message}");
    assert!(decoders(&plenty).contains("nvjpeg-hw"));
}

#[test]
fn large_pictures_and_files_wait_for_nobody() {
    let Some(fixture) = Fixture::new() else { return };
    // 32.4 megapixels of one colour are few bytes; zeros behind a picture make a large file.
    let large = image::RgbImage::from_pixel(6000, 5400, image::Rgb([200, 10, 60]));
    large.save(fixture.path("large.png")).unwrap();
    let mut long = fs::read(photo("flower.jpg")).unwrap();
    long.resize(17 << 20, 0);
    let long = fixture.file("long.jpg", &long);
    // A row of more bytes than are uploaded at once.
    let wide = image::RgbImage::from_fn(1_500_000, 2, |x, y| image::Rgb([(x / 6000) as u8, (x % 251) as u8, y as u8]));
    wide.save(fixture.path("wide.png")).unwrap();
    let png = ["large.png", "wide.png"].map(|name| fixture.path(name));
    let files = [&[photo("flower.jpg"), long.clone()], &png[..], &[long, photo("rocket.jpg")]].concat();
    let gpu = fixture.rows("cuda", &files, &["--precision", "fp32"]);
    assert_alike(&gpu, &fixture.rows("cpu", &files, &[]), DECODERS);
}

#[test]
fn without_nvjpeg_the_cpu_decodes_and_says_so() {
    let Some(fixture) = Fixture::new() else { return };
    let Some(libraries) = emulator() else { return };
    let folder = tempfile::tempdir().unwrap();
    for name in ["libcuda.so.1", "libnvrtc.so.13"] {
        std::os::unix::fs::symlink(libraries.join(name), folder.path().join(name)).unwrap();
    }
    let files: Vec<_> = ["panda.jpg", "flower.jpg"].map(photo).to_vec();
    let mut command = fixture.command("cuda", &files, &["--precision", "fp32", "--batch", "2"]);
    let output =
        command.env("OCELLUS_CUDA_LIBS", folder.path()).env("LD_LIBRARY_PATH", folder.path()).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    if !message.contains("the CPU decodes: GPU: libnvjpeg not found") {
        skip("REQUIRE_EMULATOR", "this machine has nvJPEG in one of its own folders");
        return;
    }
    let rows = rows(&output);
    assert_eq!(decoders(&rows).len(), 1);
    // The same pixels on both: what differs is the order of sums.
    assert_alike(&rows, &fixture.rows("cpu", &files, &[]), 1e-5);
}

#[test]
fn a_gpu_that_is_there_and_not_used_is_worth_a_word() {
    let Some(fixture) = Fixture::new() else { return };
    let Some(libraries) = emulator() else { return };
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(libraries.join("libcuda.so.1"), folder.path().join("libcuda.so.1")).unwrap();
    let files = [photo("flower.jpg")];
    let mut command = fixture.command("auto", &files, &[]);
    let output =
        command.env("OCELLUS_CUDA_LIBS", folder.path()).env("LD_LIBRARY_PATH", folder.path()).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    if !message.contains("warning: on the CPU: GPU: libnvrtc not found") {
        skip("REQUIRE_EMULATOR", "this machine has NVRTC in one of its own folders");
        return;
    }
    assert_alike(&rows(&output), &fixture.rows("cpu", &files, &[]), 0.0);
}

#[test]
fn a_job_ends_and_goes_on_as_on_the_cpu() {
    let Some(fixture) = Fixture::new() else { return };
    let files = [photo("flower.jpg"), fixture.file("text.jpg", b"no picture"), photo("rocket.jpg")];
    let output = fixture.command("cuda", &files, &["--fail-fast"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--fail-fast"));
    let out = fixture.path("rows.jsonl");
    let to = ["-o", out.to_str().unwrap()];
    assert_eq!(fixture.command("cuda", &files[..2], &to).output().unwrap().status.code(), Some(3));
    let resumed = [to[0], to[1], "--resume"];
    assert_eq!(fixture.command("cuda", &files, &resumed).output().unwrap().status.code(), Some(3));
    let text = fs::read_to_string(&out).unwrap();
    let paths: Vec<_> = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["path"].clone()).collect();
    assert_eq!(paths, files.iter().map(|f| Value::from(f.to_str().unwrap())).collect::<Vec<_>>());
}

#[test]
fn a_warm_cache_has_every_kernel_of_a_job() {
    let Some(fixture) = Fixture::new() else { return };
    let arch = gpu().unwrap().device.facts().arch.to_string();
    let kernels = || {
        let files = fs::read_dir(fixture.path("cache/kernels")).unwrap();
        files.map(|entry| entry.unwrap().file_name()).collect::<BTreeSet<_>>()
    };
    let mut warm = ocellus();
    warm.args(["cache", "warm", "--arch", &arch, "--model"]).arg(fixture.path("net.onnx"));
    assert!(warm.env("OCELLUS_CACHE_DIR", fixture.path("cache")).status().unwrap().success());
    let warmed = kernels();
    let mut job = fixture.command("cuda", &[photo("flower.jpg")], &[]);
    assert!(job.env("OCELLUS_CACHE_DIR", fixture.path("cache")).status().unwrap().success());
    assert_eq!(kernels(), warmed);
}

#[test]
fn doctor_outlives_its_reader() {
    let Some(_) = gpu() else { return };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut doctor = ocellus();
    // Without a GPU it is soon done.
    let output = doctor.args(["doctor", "--gpu", "99"]).stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_the_gpu_cannot_do_is_said() {
    let Some(fixture) = Fixture::new() else { return };
    let files = [photo("flower.jpg")];
    for (options, hint) in [
        (&["--device", "cuda", "--top", "101"][..], "--top"),
        (&["--device", "cpu", "--precision", "fp16"], "--device cuda"),
        (&["--device", "cuda:0,cuda:0"], "cuda:0 is named twice"),
        (&["--device", "cuda:0,1"], "cuda:0,cuda:1"),
    ] {
        let mut command = ocellus();
        command.arg("classify").args(&files).arg("--model").arg(fixture.path("net.onnx")).args(options);
        let output = command.output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{options:?}: {message}");
        assert!(message.contains(hint), "{options:?}: {message}");
    }
    // Also with -q: it decides what computes the rows.
    let mut command = ocellus();
    command.arg("classify").args(&files).arg("--model").arg(fixture.path("net.onnx"));
    let output = command.args(["--top", "101", "-q"]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("warning: on the CPU: --top: a GPU finds at most 100 classes"), "{message}");
    assert_eq!(rows(&output).len(), 1);
    let output = fixture.command("cuda:99", &files, &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no GPU cuda:99"));
}
