//! ONNX import: every model of the data folder, and every operator against ONNX Runtime.

use std::path::{Path, PathBuf};

use ocellus::model::graph::Graph;
use ocellus::model::onnx::proto::{ModelProto, TensorProto};
use ocellus::model::{ModelError, import, onnx, passes, plan};
use ocellus_kernels::cpu::CpuEngine;
use ocellus_kernels::engine::Engine;
use ocellus_kernels::plan::Port;
use ocellus_kernels::tensor::Layout;
use tests::{Random, channels_last, test_data};

/// The model files of the data folder, or none with the reason printed.
fn models() -> Vec<PathBuf> {
    let folders = ["models", "models-registry/onnx"].into_iter().filter_map(test_data);
    let mut files: Vec<PathBuf> = folders
        .flat_map(|folder| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "onnx"))
        .collect();
    files.sort();
    files
}

fn load(path: &Path, batch: usize) -> Result<Graph, ModelError> {
    let model = onnx::read(path)?;
    let folder = path.parent().map(Path::to_owned);
    // One model of the folder leaves its rows and columns open.
    let input_size = path.ends_with("centerface.onnx").then_some([480, 640]);
    import::import(&model, &import::ImportOptions { batch, input_size, folder })
}

#[test]
fn every_model_of_the_data_folder_imports() {
    for path in models() {
        for batch in [1, 3] {
            let graph = load(&path, batch).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert_eq!(graph.batch, if graph.dynamic_batch { batch } else { 1 });
            for &output in &graph.outputs {
                assert_eq!(graph.dims(output)[0] % graph.batch, 0, "{}: {:?}", path.display(), graph.dims(output));
            }
            println!("{}: {} nodes", path.display(), graph.nodes.len());
        }
    }
}

/// Elements of a tensor that Python wrote: raw, in one of the types that the cases use.
fn elements(tensor: &TensorProto) -> Vec<f32> {
    let raw = tensor.raw_data.as_deref().unwrap_or_default();
    match tensor.data_type.unwrap_or_default() {
        1 => raw.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect(),
        2 => raw.iter().map(|&b| b.into()).collect(),
        3 => raw.iter().map(|&b| f32::from(b as i8)).collect(),
        6 => raw.as_chunks().0.iter().map(|&b| i32::from_le_bytes(b) as f32).collect(),
        7 => raw.as_chunks().0.iter().map(|&b| i64::from_le_bytes(b) as f32).collect(),
        other => panic!("element type {other}"),
    }
}

/// The tensors of a case whose names start with `prefix`, in the order of `names`.
fn stored(model: &ModelProto, prefix: &str, names: &[String]) -> Vec<Vec<f32>> {
    let tensors = &model.graph.as_ref().unwrap().initializer;
    let find = |name: &String| tensors.iter().find(|t| t.name() == format!("{prefix}{name}"));
    names.iter().map(|name| elements(find(name).unwrap_or_else(|| panic!("{prefix}{name}")))).collect()
}

/// An input of the file's dimensions in the order that the engine wants: the same, or N, H, W, C for N, C, H, W. The
/// cases have no image of as many channels as rows and columns.
fn arranged(port: &Port, file_dims: &[usize], data: Vec<f32>) -> Vec<f32> {
    if port.buffer.dims == file_dims {
        return data;
    }
    let &[n, h, w, c] = <&[usize; 4]>::try_from(&port.buffer.dims[..]).unwrap();
    assert_eq!((port.layout, file_dims), (Some(Layout::Nhwc), &[n, c, h, w][..]));
    channels_last(&data, n, c)
}

/// Imports, plans and runs a case; the largest relative Frobenius error over its outputs.
fn error_of(model: &ModelProto) -> Result<f64, String> {
    let graph = import::import(model, &import::ImportOptions::default()).map_err(|e| e.to_string())?;
    let name = |id| graph.value(id).name.clone();
    let inputs = stored(model, "test/input/", &graph.inputs.iter().copied().map(name).collect::<Vec<_>>());
    let wanted = stored(model, "test/output/", &graph.outputs.iter().copied().map(name).collect::<Vec<_>>());
    let file_dims: Vec<_> = graph.inputs.iter().map(|&id| graph.dims(id).to_vec()).collect();
    let graph = passes::optimise(graph, usize::MAX);
    let mut engine = CpuEngine::new(plan::plan(&graph).map_err(|e| e.to_string())?, 1).map_err(|e| e.to_string())?;
    let ports = engine.inputs().iter();
    let inputs = ports.zip(inputs).zip(&file_dims).map(|((port, data), dims)| arranged(port, dims, data));
    let inputs: Vec<Vec<f32>> = inputs.collect();
    let slices: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
    let mut outputs = vec![Vec::new(); wanted.len()];
    engine.run(graph.batch, &slices, &mut outputs).map_err(|e| e.to_string())?;
    let mut worst = 0.0f64;
    for (output, wanted) in outputs.iter().zip(&wanted) {
        if output.len() != wanted.len() {
            return Err(format!("{} elements instead of {}", output.len(), wanted.len()));
        }
        let square = |v: f32| f64::from(v) * f64::from(v);
        let difference: f64 = output.iter().zip(wanted).map(|(a, b)| square(a - b)).sum();
        let norm: f64 = wanted.iter().map(|&b| square(b)).sum();
        // A result of zeros has to be met in absolute terms; a NaN stays one and fails.
        let error = (difference / norm.max(1e-12)).sqrt();
        worst = if error > worst || error.is_nan() { error } else { worst };
    }
    Ok(worst)
}

/// The cases of `golden/onnx_ops`, encoded.
fn cases() -> Vec<prost::bytes::Bytes> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/onnx_ops"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "models"))
        .collect();
    files.sort();
    let mut cases = Vec::new();
    for path in &files {
        let mut bytes = prost::bytes::Bytes::from(std::fs::read(path).unwrap());
        while !bytes.is_empty() {
            let length = prost::decode_length_delimiter(&mut bytes).unwrap();
            cases.push(bytes.split_to(length));
        }
    }
    assert!(files.len() > 70 && cases.len() > 1000, "{} cases in {} files", cases.len(), files.len());
    cases
}

/// Every operator in every opset and variant against ONNX Runtime; `golden/onnx_ops/generate.py` made the cases.
#[test]
fn every_operator_agrees_with_onnx_runtime() {
    let cases = cases();
    let mut faults = Vec::new();
    for case in &cases {
        let model = onnx::decode(case.clone()).unwrap();
        let name = model.graph.as_ref().unwrap().name();
        match error_of(&model) {
            Ok(error) if error <= 1e-5 => {}
            Ok(error) => faults.push(format!("{name}: relative error {error:.1e}")),
            Err(why) => faults.push(format!("{name}: {why}")),
        }
    }
    assert!(faults.is_empty(), "{} of {} cases fail:\n{}", faults.len(), cases.len(), faults.join("\n"));
}

/// Cases with a few bytes changed end in a graph or an error, never in a panic.
#[test]
fn damaged_operators_never_panic() {
    let mut random = Random::new(1);
    for case in cases() {
        for _ in 0..10 {
            let mut bytes = case.to_vec();
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len());
                bytes[at] = random.below(256) as u8;
            }
            let _ = import::parse(bytes.into(), None, 1);
        }
    }
}
