//! Whole networks, imported, optimised, planned and run on the CPU, against ONNX Runtime.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use ocellus::infer::cpu_engine;
use ocellus::model::load::Model;
use ocellus::model::spec::ModelSpec;
use ocellus_kernels::engine::Engine;
use ocellus_kernels::op::Op;
use ocellus_kernels::tensor::Layout;
use serde_json::Value;
use tests::{Random, channels_last, rel_frobenius, skip, test_data, workspace_root};

/// Largest relative Frobenius error of an output. ONNX Runtime's own Sigmoid is off by up to 1.3e-7, two per cent of yunet's
/// smallest scores: the reference has it written out (`make_network_golden.py`).
const TOLERANCE: f64 = 1e-4;

/// Several tests need the results of ONNX Runtime: the first makes them.
static MAKING: Mutex<()> = Mutex::new(());

/// Results of ONNX Runtime for the networks of the test data, without it for those of `samples`: the folder and its index.
/// `None`, with the reason printed, where they cannot be made.
fn golden() -> Option<(PathBuf, Value)> {
    let data = test_data("models").map_or_else(|| workspace_root().join("samples"), |models| models.join(".."));
    let Some(python) = std::env::var_os("OCELLUS_TEST_PYTHON") else {
        skip("REQUIRE_TEST_PYTHON", "set OCELLUS_TEST_PYTHON to a Python with onnxruntime, numpy and pillow");
        return None;
    };
    let _turn = MAKING.lock().unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("networks");
    let script = workspace_root().join("tests/golden/make_network_golden.py");
    let status = Command::new(python).arg(script).arg(&folder).arg(data).status().unwrap();
    assert!(status.success(), "make_network_golden.py: {status}");
    let index = serde_json::from_str(&std::fs::read_to_string(folder.join("index.json")).unwrap()).unwrap();
    Some((folder, index))
}

/// The networks in a folder.
fn models_in(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut models: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "onnx")).collect();
    assert!(!models.is_empty(), "no networks in {}", folder.display());
    models.sort();
    models
}

fn open(path: &Path) -> Model {
    Model::read(&ModelSpec::Onnx(path.to_owned())).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn engine(model: &Model, threads: usize) -> Box<dyn Engine> {
    cpu_engine(model, threads).unwrap_or_else(|e| panic!("{}: {e}", model.name))
}

fn floats(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// A case's images in the order of the engine's input.
fn input(folder: &Path, case: &Value, engine: &dyn Engine) -> Vec<f32> {
    let path = folder.join(case["file"].as_str().unwrap());
    let images = case["images"].as_u64().unwrap() as usize;
    let nhwc = engine.inputs()[0].layout == Some(Layout::Nhwc);
    if case["name"] == "photos" {
        assert!(nhwc, "photos are N, H, W, C");
        return std::fs::read(path).unwrap().iter().map(|&x| (f32::from(x) - 127.0) / 128.0).collect();
    }
    let planes = floats(&path);
    if nhwc { channels_last(&planes, images, 3) } else { planes }
}

fn run(engine: &mut dyn Engine, images: usize, input: &[f32]) -> Vec<Vec<f32>> {
    let mut outputs = vec![Vec::new(); engine.outputs().len()];
    engine.run(images, &[input], &mut outputs).unwrap();
    outputs
}

/// The classes of the five highest scores.
fn top_five(scores: &[f32]) -> Vec<usize> {
    let mut classes: Vec<usize> = (0..scores.len()).collect();
    classes.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    classes.truncate(5);
    classes
}

#[test]
fn every_network_agrees_with_onnx_runtime() {
    let Some((folder, index)) = golden() else { return };
    let mut failures = Vec::new();
    for entry in index["models"].as_array().unwrap() {
        let model = open(Path::new(entry["path"].as_str().unwrap()));
        let mut engine = engine(&model, 2);
        for case in entry["cases"].as_array().unwrap() {
            let images = case["images"].as_u64().unwrap() as usize;
            let input = input(&folder, case, &*engine);
            let actual = run(&mut *engine, images, &input);
            let expected = case["outputs"].as_array().unwrap();
            assert_eq!(actual.len(), expected.len(), "{}", model.name);
            for (i, (actual, output)) in actual.iter().zip(expected).enumerate() {
                let what = format!("{} {} {}", model.name, case["name"], output["name"]);
                assert_eq!(engine.outputs()[i].name, output["name"], "{what}");
                let expected = floats(&folder.join(output["file"].as_str().unwrap()));
                let error = rel_frobenius(actual, &expected);
                println!("{error:9.2e} {what}");
                if error.is_nan() || error > TOLERANCE {
                    failures.push(format!("{what}: relative error {error:.2e}"));
                }
                if entry["classifier"] == true && case["name"] == "photos" {
                    let classes = actual.len() / images;
                    for (image, (a, e)) in actual.chunks(classes).zip(expected.chunks(classes)).enumerate() {
                        if top_five(a) != top_five(e) {
                            failures.push(format!("{what}: photo {image}: {:?} for {:?}", top_five(a), top_five(e)));
                        }
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Needs no reference, so the sample networks are always there.
#[test]
fn same_bits_in_any_batch_and_with_any_number_of_threads() {
    const GROUPS: usize = 3;
    let folders = [Some(workspace_root().join("samples/models")), test_data("models")];
    for path in folders.into_iter().flatten().flat_map(|folder| models_in(&folder)) {
        let model = open(&path);
        let (mut one, mut two) = (engine(&model, 1), engine(&model, 2));
        let port = &one.inputs()[0].buffer;
        let (len, images) = (port.len(), port.dims[0]);
        let input = Random::new(1).signal(GROUPS * len);
        let whole = run(&mut *one, GROUPS * images, &input);
        let bits = |outputs: &[Vec<f32>]| outputs.iter().flatten().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert!(whole.iter().flatten().any(|x| *x != 0.0), "{}: nothing but zeros", model.name);
        assert!(bits(&whole) == bits(&run(&mut *two, GROUPS * images, &input)), "{}: two threads", model.name);
        for (i, group) in input.chunks(len).enumerate() {
            let part: Vec<Vec<f32>> =
                whole.iter().map(|o| o[o.len() / GROUPS * i..][..o.len() / GROUPS].to_vec()).collect();
            let engine = if i % 2 == 0 { &mut two } else { &mut one };
            assert!(bits(&part) == bits(&run(&mut **engine, images, group)), "{}: group {i} alone", model.name);
        }
    }
}

#[test]
fn classifiers_keep_no_transpose() {
    let samples = workspace_root().join("samples/models");
    let mut paths = vec![samples.join("efficientnet-lite0.onnx"), samples.join("squeezenet1.1.onnx")];
    paths.extend(test_data("models/mobilenet_v2_1.0_224_tf2_coral.onnx"));
    for path in paths {
        let graph = open(&path).graph(1).unwrap();
        let moved: Vec<_> =
            graph.nodes.iter().filter(|n| matches!(n.op, Op::Transpose { .. })).map(|n| &n.name).collect();
        assert!(moved.is_empty(), "{}: {moved:?}", path.display());
        assert_eq!(graph.input_layouts, [Some(Layout::Nhwc)]);
    }
}

#[test]
fn detectors_transpose_only_where_the_file_does() {
    // How often each file itself transposes.
    let files = [
        ("models/fastestdet_352.onnx", 15),
        ("models/nanodet_m_416.onnx", 22),
        ("models/picodet_s_416.onnx", 18),
        ("models/selfie_segmentation.onnx", 0),
        ("models/deeplabv3_mnv2_pascal_513.onnx", 0),
        ("models/ultraface_rfb_320.onnx", 8),
        ("models/yolox_nano_416.onnx", 1),
        ("models/yunet_n_640.onnx", 12),
        ("models-registry/onnx/blazeface_back_256.onnx", 4),
        ("models-registry/onnx/nanodet_g_coco_416.onnx", 6),
    ];
    for (file, most) in files {
        let Some(path) = test_data(file) else { return };
        let graph = open(&path).graph(1).unwrap();
        let count = graph.nodes.iter().filter(|n| matches!(n.op, Op::Transpose { .. })).count();
        println!("{count:3} of {most:3} {file}");
        assert!(count <= most, "{file}: {count} transposes, the file has {most}");
    }
}
