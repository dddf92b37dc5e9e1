//! Several models in one job.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;
use tests::ocellus;

use super::{Fixture, emulator, golden_files, photo, rows};

/// Networks for pictures of two sizes, and a job with both of them.
fn write(fixture: &Fixture, settings: &str) -> PathBuf {
    fixture.network(48);
    fs::copy(fixture.path("net.onnx"), fixture.path("large.onnx")).unwrap();
    fixture.network(32);
    let config = format!(
        "batch = 3\n[[model]]\nonnx = \"large.onnx\"\nprecision = \"fp32\"\ntop = 12\n{settings}\n\
         [[model]]\nonnx = \"net.onnx\"\nname = \"small\"\ntop = 2\npriority = \"high\"\n"
    );
    fixture.file("job.toml", config.as_bytes())
}

fn run(config: &PathBuf, files: &[PathBuf], device: &str, environment: &[(&str, &str)]) -> Output {
    let mut command = ocellus();
    command.arg("run").arg(config).args(files).args(["--device", device, "--format", "jsonl"]);
    command.envs(environment.iter().copied()).output().unwrap()
}

/// What each model alone says of the files, as rows of a job with both.
fn expected(fixture: &Fixture, files: &[PathBuf], device: &str) -> Vec<Value> {
    let alone = |net: &str, precision: &str, top: &str| {
        let mut command = ocellus();
        command.arg("classify").args(files).arg("--model").arg(fixture.path(net));
        command.args(["--device", device, "--batch", "3", "--format", "jsonl"]);
        rows(&command.args(["--precision", precision, "--top", top]).output().unwrap())
    };
    let both = [alone("large.onnx", "fp32", "12"), alone("net.onnx", "auto", "2")];
    let of = |row: &Value, model: &str| {
        let mut row = row.clone();
        row["model"] = model.into();
        row
    };
    let pairs = both[0].iter().zip(&both[1]);
    pairs.flat_map(|(large, small)| [of(large, "large"), of(small, "small")]).collect()
}

#[test]
fn each_model_says_what_it_says_alone() {
    let Some(fixture) = Fixture::new() else { return };
    let mut files = golden_files();
    files.extend([photo("flower.jpg"), fixture.path("missing.jpg"), photo("rocket.jpg")]);
    write(&fixture, "");
    let expected = expected(&fixture, &files, "cuda");
    for settings in ["", "instances = 3", "priority = \"high\"\ninstances = 2"] {
        let config = write(&fixture, settings);
        assert_eq!(rows(&run(&config, &files, "cuda", &[])), expected, "{settings}");
    }
}

#[test]
fn a_gpu_that_is_lost_costs_no_model_a_row() {
    let Some(fixture) = Fixture::new() else { return };
    if emulator().is_none() {
        return;
    }
    let few = golden_files().into_iter().take(12).chain([fixture.file("text.jpg", b"no picture"), photo("rocket.jpg")]);
    let files: Vec<PathBuf> = vec![few.collect::<Vec<_>>(); 6].concat();
    let config = write(&fixture, "instances = 2");
    let expected = expected(&fixture, &files, "cuda");
    let (mut left_out, mut lost) = (0, 0);
    for calls in [300, 600, 700, 800, 900, 1200] {
        let failing = format!("1:{calls}");
        let environment = [("OCELLUS_EMULATOR_GPUS", "2"), ("OCELLUS_EMULATOR_FAILING_GPU", failing.as_str())];
        let output = run(&config, &files, "cuda:all", &environment);
        assert_eq!(rows(&output), expected, "{calls}");
        let said = String::from_utf8_lossy(&output.stderr);
        left_out += usize::from(said.contains("cuda:1 is left out: "));
        lost += usize::from(said.contains("goes on without cuda:1: "));
    }
    println!("left out of {left_out} jobs, lost in the middle of {lost}");
    assert!(lost > 0, "never in the middle");
}

#[test]
fn with_two_gpus_or_little_memory_they_say_the_same() {
    let Some(fixture) = Fixture::new() else { return };
    if emulator().is_none() {
        return;
    }
    let shot = image::RgbImage::from_fn(1600, 1300, |x, y| image::Rgb([(x / 7) as u8, (y / 5) as u8, (x ^ y) as u8]));
    let mut files: Vec<PathBuf> = (0..9).map(|n| fixture.path(&format!("shot{n}.jpg"))).collect();
    for path in &files {
        shot.save(path).unwrap();
    }
    files.extend([photo("flower.jpg"), fixture.file("text.jpg", b"no picture"), photo("rocket.jpg")]);
    let config = write(&fixture, "instances = 2");
    let expected = expected(&fixture, &files, "cuda");
    let two = [("OCELLUS_EMULATOR_GPUS", "2")];
    assert_eq!(rows(&run(&config, &files, "cuda:0,cuda:1", &two)), expected);
    let mut split = false;
    for mib in [120, 100, 85, 70] {
        let bytes = (mib << 20).to_string();
        let output = run(&config, &files, "cuda", &[("OCELLUS_EMULATOR_MEMORY_BYTES", &bytes)]);
        let message = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(1) && message.contains("GPU: out of memory") {
            continue;
        }
        let found = rows(&output);
        split |= message.contains("no memory for");
        assert_eq!(found.len(), expected.len(), "{mib} MiB");
        for (found, expected) in found.iter().zip(&expected) {
            // Where there is too little even for one picture the CPU decodes it, in its own way.
            let same_decoder = found["decoder"] == expected["decoder"];
            assert!(found == expected || !same_decoder && found["model"] == expected["model"], "{found} {expected}");
        }
    }
    assert!(split, "no batch was split");
}
