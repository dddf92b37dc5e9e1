//! `ocellus parity --device cuda`: the GPU path's steps beside the reference, and what is wrong is seen.

use std::fs;
use std::path::{Path, PathBuf};

use ocellus::decode::DecodeOptions;
use ocellus::error::ItemError;
use ocellus::frame::{Decoder, Encoded, Item, Origin};
use ocellus::gpu::Precision;
use ocellus::model::load::Model;
use ocellus::model::spec::ModelSpec;
use ocellus::parity::{Compare, Comparison, GpuSteps};
use ocellus::stage::Stage;
use ocellus_kernels::cuda::gpu::Gpu;
use ocellus_kernels::preprocess::{Filter, PreprocessDesc};
use serde_json::Value;
use tests::gpu::gpu;
use tests::network::{NetworkBuilder, list};
use tests::{ocellus, workspace_root};

/// Side of the test network's input.
const SIDE_PX: i64 = 32;
const CLASSES: usize = 12;
/// Score drift of each arithmetic that nothing but rounding explains, in this small network.
const PRECISIONS: [(Precision, f64); 4] =
    [(Precision::Fp32, 1e-5), (Precision::Tf32, 1e-3), (Precision::Fp16, 5e-3), (Precision::Bf16, 2e-2)];

/// A network that is quick to run, as a file.
fn network(folder: &Path) -> PathBuf {
    let mut builder = NetworkBuilder::new(7);
    let x = builder.conv(NetworkBuilder::INPUT, 3, 8, 3, 2, 1.0);
    let x = builder.node("Relu", &[&x], vec![]);
    let x = builder.node("MaxPool", &[&x], vec![list("kernel_shape", &[2; 2]), list("strides", &[2; 2])]);
    let scores = builder.classes(&x, 8, CLASSES, 1.0);
    let path = folder.join("net.onnx");
    fs::write(&path, builder.finish("net", SIDE_PX, &scores, CLASSES)).unwrap();
    path
}

fn golden(name: &str) -> PathBuf {
    workspace_root().join("tests/golden/decode").join(name)
}

/// The GPU's steps beside a reference that is described.
fn beside(gpu: &Gpu, model: &Model, reference: &PreprocessDesc) -> Compare<GpuSteps> {
    let options = DecodeOptions::default();
    let steps = GpuSteps::new(gpu, model, options, &PRECISIONS.map(|(precision, _)| precision)).unwrap();
    Compare::new(steps, model, reference, options, 1).unwrap()
}

fn compare(compare: &mut Compare<GpuSteps>, path: &Path) -> Result<Comparison, ItemError> {
    let encoded = Encoded { bytes: fs::read(path).unwrap().into(), share: None };
    let item = Item::new(0, Origin::File(path.into()), Ok(encoded));
    let mut compared = None;
    compare.process(item, &mut |item| compared = Some(item.payload)).unwrap();
    compared.unwrap()
}

/// Files of every decoder: the engines, both together, the CPU.
const FILES: [(&str, Option<Decoder>); 7] = [
    ("jpeg-420-33x31.jpg", Some(Decoder::NvjpegHw)),
    ("jpeg-444-baseline.jpg", Some(Decoder::NvjpegHw)),
    ("jpeg-grey.jpg", Some(Decoder::NvjpegHw)),
    ("jpeg-orientation-6.jpg", Some(Decoder::NvjpegHw)),
    ("jpeg-420-progressive.jpg", Some(Decoder::NvjpegHybrid)),
    ("jpeg-cmyk-adobe.jpg", None),
    ("png-rgb.png", None),
];

#[test]
fn the_steps_of_the_gpu_are_those_of_the_reference() {
    let Some(gpu) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let model = Model::open(&ModelSpec::Onnx(network(folder.path()))).unwrap();
    let mut sound = beside(gpu, &model, &model.preprocess());
    for (name, decoder) in FILES {
        let compared = compare(&mut sound, &golden(name)).unwrap();
        assert_eq!(compared.decoder, decoder.unwrap_or(compared.reference), "{name}");
        if decoder.is_none() {
            assert_eq!((compared.decode.max, compared.resized.max, compared.input.max), (0.0, 0.0, 0.0), "{name}");
            assert_eq!(compared.answer.score, 0.0, "{name}");
        }
        assert_eq!(compared.resize.max, 0.0, "{name}: the resize is exact");
        // Small pictures of strong colours, whose edges two decoders interpolate in their own ways.
        assert!(compared.decode.mean < 3.0, "{name}: {:?}", compared.decode);
        assert!(compared.answer.score < 2e-2, "{name}: {:?}", compared.answer);
        let found: Vec<_> = compared.precisions.iter().map(|(precision, _)| *precision).collect();
        assert_eq!(found, PRECISIONS.map(|(precision, _)| precision));
        for ((precision, drift), (_, bound)) in compared.precisions.iter().zip(PRECISIONS) {
            assert!(drift.score <= bound, "{name} {precision:?}: {drift:?}");
        }
    }
}

#[test]
fn a_wrong_description_is_seen_in_its_step() {
    let Some(gpu) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let model = Model::open(&ModelSpec::Onnx(network(folder.path()))).unwrap();
    let right = model.preprocess();
    let filter = if right.filter == Filter::Bilinear { Filter::Bicubic } else { Filter::Bilinear };
    let mean = right.mean.map(|mean| mean + 8.0);
    for (wrong, resized) in
        [(PreprocessDesc { filter, ..right.clone() }, true), (PreprocessDesc { mean, ..right.clone() }, false)]
    {
        let mut compare_with = beside(gpu, &model, &wrong);
        // Decoded by the CPU on both sides.
        let compared = compare(&mut compare_with, &golden("png-rgb.png")).unwrap();
        assert_eq!(compared.decode.max, 0.0);
        assert_eq!(compared.resize.max > 0.0, resized, "{wrong:?}");
        assert!(compared.input.max > 0.0 && compared.answer.score > 0.0, "{wrong:?}: {compared:?}");
    }
}

#[test]
fn files_are_rows_and_damaged_ones_come_first() {
    if gpu().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let model = network(folder.path());
    let broken = folder.path().join("broken.jpg");
    fs::write(&broken, &fs::read(golden("jpeg-420-33x31.jpg")).unwrap()[..200]).unwrap();
    let mut command = ocellus();
    command.arg("parity").args(["jpeg-420-33x31.jpg", "png-rgb.png"].map(golden)).arg(&broken);
    let output = command.args(["--device", "cuda", "--model"]).arg(&model).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 3, "{text}");
    assert!(rows[0]["path"].as_str().unwrap().ends_with("broken.jpg") && rows[0]["error"]["stage"] == "decode");
    for row in &rows[1..] {
        let names: Vec<_> =
            row["precisions"].as_array().unwrap().iter().map(|p| p["precision"].as_str().unwrap()).collect();
        assert_eq!(names, ["fp32", "tf32", "fp16", "bf16"]);
        assert_eq!(row["resize"]["max"], 0.0);
    }
    for part in ["compared: the GPU path on ", "2 files compared, 1 failed", "fp16 same "] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
}
