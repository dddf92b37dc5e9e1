//! One engine in a process, driven line by line by `compare.py`.
//!
//! `peers ENGINE MODEL N,C,H,W THREADS INPUT OUTPUT`: loads the model, runs it once on INPUT (raw f32, N C H W) and writes
//! all outputs one after another to OUTPUT (raw f32). Then each line on stdin is a number of runs; the answer is a JSON
//! array of their times in ms.

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use ocellus::model::import::{ImportOptions, import};
use ocellus::model::onnx;
use ocellus::model::passes::optimise;
use ocellus::model::plan::plan;
use ocellus_kernels::cpu::CpuEngine;
use ocellus_kernels::engine::Engine;
use ocellus_kernels::tensor::Layout;
use rten_tensor::AsView;

type Result<T> = std::result::Result<T, Box<dyn Error>>;
/// Runs once and gives all outputs one after another.
type Run = Box<dyn FnMut() -> Result<Vec<f32>>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [engine, model, shape, threads, input, output] = args.as_slice() else {
        return Err("usage: peers ocellus|rten MODEL N,C,H,W THREADS INPUT OUTPUT".into());
    };
    let shape: Vec<usize> = shape.split(',').map(str::parse).collect::<std::result::Result<_, _>>()?;
    let bytes = std::fs::read(input)?;
    let images: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let mut run = match engine.as_str() {
        "ocellus" => ocellus(model, &shape, threads.parse()?, &images)?,
        "rten" => rten(model, shape, images)?,
        other => return Err(format!("unknown engine {other}").into()),
    };
    let values = run()?;
    std::fs::write(output, values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())?;
    for line in std::io::stdin().lines() {
        let mut times_ms = Vec::new();
        for _ in 0..line?.trim().parse()? {
            let start = Instant::now();
            run()?;
            times_ms.push(start.elapsed().as_secs_f64() * 1e3);
        }
        println!("{times_ms:?}");
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// This project's CPU engine. A plan for one image where the model's batch is open: the engine spreads a batch itself.
fn ocellus(model: &str, shape: &[usize], threads: usize, images: &[f32]) -> Result<Run> {
    let options = ImportOptions { input_size: Some([shape[2], shape[3]]), ..ImportOptions::default() };
    let graph = import(&onnx::read(Path::new(model))?, &options)?;
    let mut engine = CpuEngine::new(plan(&optimise(graph, usize::MAX))?, threads)?;
    let images = match engine.inputs()[0].layout {
        Some(Layout::Nhwc) => channels_last(images, shape),
        _ => images.to_vec(),
    };
    let (count, mut outputs) = (shape[0], vec![Vec::new(); engine.outputs().len()]);
    Ok(Box::new(move || {
        engine.run(count, &[&images], &mut outputs)?;
        Ok(outputs.concat())
    }))
}

/// N C H W to N H W C.
fn channels_last(images: &[f32], shape: &[usize]) -> Vec<f32> {
    let (c, hw) = (shape[1], shape[2] * shape[3]);
    let image = |image: &[f32]| (0..c * hw).map(|i| image[i % c * hw + i / c]).collect::<Vec<f32>>();
    images.chunks(c * hw).flat_map(image).collect()
}

/// rten; its threads follow the environment variable `RTEN_NUM_THREADS`.
fn rten(model: &str, shape: Vec<usize>, images: Vec<f32>) -> Result<Run> {
    let model = rten::Model::load_file(model)?;
    let outputs = model.output_ids().to_vec();
    Ok(Box::new(move || {
        let input = rten::ValueView::from_shape(&shape, &images)?;
        let values = model.run(vec![(model.input_ids()[0], input.into())], &outputs, None)?;
        let mut all = Vec::new();
        for value in values {
            match value {
                rten::Value::FloatTensor(t) => all.extend(t.to_vec()),
                rten::Value::Int32Tensor(t) => all.extend(t.to_vec().into_iter().map(|v| v as f32)),
                _ => return Err("an output is neither f32 nor an integer".into()),
            }
        }
        Ok(all)
    }))
}
