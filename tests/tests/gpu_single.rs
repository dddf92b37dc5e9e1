//! One file at a time on a GPU gives the bits of a job, whoever decodes, and takes any file.

use std::fs;
use std::path::{Path, PathBuf};

use ocellus::error::ErrorKind;
use ocellus::frame::{Decoder, Scored};
use ocellus::gpu::Precision;
use ocellus::model::load::Model;
use ocellus::model::spec::ModelSpec;
use ocellus::single::{Classifier, DecodePath, Options};
use serde_json::Value;
use tests::gpu::gpu;
use tests::network::{NetworkBuilder, list};
use tests::{ocellus, workspace_root};

const CLASSES: usize = 12;

/// A network that is quick to run, as a file; `images` fixes its batch.
fn network(folder: &Path, images: Option<usize>) -> PathBuf {
    let builder = NetworkBuilder::new(7);
    let mut builder = if let Some(images) = images { builder.of_batch(images) } else { builder };
    let x = builder.conv(NetworkBuilder::INPUT, 3, 8, 3, 2, 1.0);
    let x = builder.node("Relu", &[&x], vec![]);
    let x = builder.node("MaxPool", &[&x], vec![list("kernel_shape", &[2; 2]), list("strides", &[2; 2])]);
    let scores = builder.classes(&x, 8, CLASSES, 2.0);
    let path = folder.join("net.onnx");
    fs::write(&path, builder.finish("net", 32, &scores, CLASSES)).unwrap();
    path
}

/// Every file that decoders are tested with.
fn files() -> Vec<PathBuf> {
    let files = fs::read_dir(workspace_root().join("tests/golden/decode")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| !["ppm", "tsv", "py"].iter().any(|e| path.extension().is_some_and(|x| x == *e))).collect();
    files.sort();
    files
}

/// The rows of a job, by path.
fn job(model: &Path, files: &[PathBuf]) -> Vec<Value> {
    let mut command = ocellus();
    command.arg("classify").args(files).arg("--model").arg(model);
    command.args(["--device", "cuda", "--precision", "fp32", "--batch", "3", "--format", "jsonl", "--quiet"]);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn options(path: DecodePath) -> Options {
    Options { precision: Precision::Fp32, path, ..Options::default() }
}

#[test]
fn single_files_give_the_bits_of_a_job() {
    let Some(gpu) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = network(folder.path(), None);
    let model = Model::open(&ModelSpec::Onnx(path.clone())).unwrap();
    let mut classifier = Classifier::new(gpu, &model, &options(DecodePath::Engines)).unwrap();
    let files = files();
    let mut decoders = Vec::new();
    for (file, row) in files.iter().zip(job(&path, &files)) {
        // The whole way twice: what the first left behind must not matter.
        let bytes = fs::read(file).unwrap();
        // Whoever reads files says that they are empty or too long.
        for _ in 0..2 {
            match classifier.classify(bytes.clone()).unwrap() {
                Ok(results) => {
                    let top: Vec<Scored> = serde_json::from_value(row["top"].clone()).unwrap();
                    assert_eq!(*results.top, top, "{}", file.display());
                    assert_eq!(
                        serde_json::to_value(results.info.decoder).unwrap(),
                        row["decoder"],
                        "{}",
                        file.display()
                    );
                    assert_eq!(results.info.width_px, row["width"].as_u64().unwrap() as u32);
                    assert_eq!(results.info.partial, row["partial"] == true);
                    decoders.push(results.info.decoder);
                }
                Err(error) => assert_eq!(error.kind.to_string(), row["error"]["kind"], "{}", file.display()),
            }
        }
    }
    for decoder in [Decoder::NvjpegHw, Decoder::NvjpegHybrid] {
        assert!(decoders.contains(&decoder), "{decoder} served nothing");
    }
}

#[test]
fn whoever_is_asked_decodes() {
    let Some(gpu) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = network(folder.path(), Some(2));
    let model = Model::open(&ModelSpec::Onnx(path)).unwrap();
    let small = fs::read(workspace_root().join("tests/golden/decode/jpeg-420-33x31.jpg")).unwrap();
    let on_cpu = if cfg!(feature = "libjpeg") { Decoder::Libjpeg } else { Decoder::Image };
    let mut tops = Vec::new();
    for (path, decoder) in [
        (DecodePath::Engines, Decoder::NvjpegHw),
        (DecodePath::Hybrid, Decoder::NvjpegHybrid),
        (DecodePath::Cpu, on_cpu),
        (DecodePath::Auto, on_cpu),
    ] {
        let mut classifier = Classifier::new(gpu, &model, &options(path)).unwrap();
        let results = classifier.classify(small.clone()).unwrap().unwrap();
        assert_eq!(results.info.decoder, decoder, "{path:?}");
        tops.push(results.top);
        for (bad, kind) in [(&b""[..], ErrorKind::Empty), (b"no picture", ErrorKind::NotAnImage)] {
            assert_eq!(classifier.classify(bad.to_vec()).unwrap().unwrap_err().kind, kind, "{path:?}");
        }
        // And goes on.
        assert_eq!(&classifier.classify(small.clone()).unwrap().unwrap().top, tops.last().unwrap(), "{path:?}");
    }
    assert_eq!(tops[2], tops[3]);
}
