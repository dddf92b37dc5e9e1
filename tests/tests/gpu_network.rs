//! Whole networks on the GPU beside the CPU engine.

use ocellus::model::load::Model;
use ocellus::model::spec::ModelSpec;
use ocellus_kernels::cpu::CpuEngine;
use ocellus_kernels::cuda::lower::Precision;
use ocellus_kernels::engine::Engine;
use tests::gpu::{engine, gpu, tool};
use tests::{Random, rel_frobenius, workspace_root};

const MODELS: [&str; 2] = ["squeezenet1.1", "efficientnet-lite0"];
const IMAGES: usize = 3;

fn model(name: &str) -> Model {
    Model::read(&ModelSpec::Onnx(workspace_root().join(format!("samples/models/{name}.onnx")))).unwrap()
}

/// Pictures after normalisation: about -2 to 2.
fn pictures(model: &Model) -> Vec<f32> {
    let plan = model.plan(1).unwrap();
    let mut x = Random::new(7).signal(IMAGES * plan.inputs[0].buffer.len());
    for v in &mut x {
        *v *= 2.0;
    }
    x
}

fn run(engine: &mut dyn Engine, images: usize, x: &[f32]) -> Vec<f32> {
    let mut y = vec![vec![f32::NAN; 3]];
    engine.run(images, &[x], &mut y).unwrap();
    y.remove(0)
}

#[test]
fn networks_agree_with_the_cpu_whatever_the_precision_and_kernels() {
    let Some(gpu) = gpu() else { return };
    // Racecheck needs about ten seconds an image.
    let images = if tool().is_some() { 1 } else { IMAGES };
    for name in MODELS {
        let model = model(name);
        let mut x = pictures(&model);
        x.truncate(x.len() / IMAGES * images);
        let expected = run(&mut CpuEngine::new(model.plan(1).unwrap(), 0).unwrap(), images, &x);
        for portable in [false, true] {
            for (precision, bound) in
                [(Precision::Fp32, 1e-4), (Precision::Tf32, 5e-3), (Precision::Fp16, 1e-2), (Precision::Bf16, 6e-2)]
            {
                let planner = {
                    let model = self::model(name);
                    move |batch| model.plan(batch).unwrap()
                };
                let mut engine = engine(gpu, precision, portable, &[images], planner);
                let error = rel_frobenius(&run(&mut engine, images, &x), &expected);
                println!("{name} {precision:?} portable {portable}: {error:.2e}");
                assert!(error <= bound, "{name} {precision:?} portable {portable}: {error:e}");
            }
        }
    }
}

#[test]
fn an_image_has_the_same_bits_in_every_batch_and_place() {
    let Some(gpu) = gpu() else { return };
    // Racecheck needs about ten seconds an image, and sees the kernels of both in the other test.
    let models = if tool().is_some() { &MODELS[..1] } else { &MODELS[..] };
    for name in models {
        let planner = || {
            let model = model(name);
            move |batch| model.plan(batch).unwrap()
        };
        let x = pictures(&model(name));
        let each = x.len() / IMAGES;
        let mut together = engine(gpu, Precision::Fp16, false, &[1, 2, IMAGES], planner());
        let all = run(&mut together, IMAGES, &x);
        let len = all.len() / IMAGES;
        for i in 0..IMAGES {
            let alone = run(&mut together, 1, &x[i * each..][..each]);
            assert_eq!(alone, all[i * len..][..len], "{name}, image {i} alone");
        }
        let turned: Vec<f32> = (0..IMAGES).rev().flat_map(|i| x[i * each..][..each].to_vec()).collect();
        let backwards = run(&mut together, IMAGES, &turned);
        for i in 0..IMAGES {
            assert_eq!(
                backwards[(IMAGES - 1 - i) * len..][..len],
                all[i * len..][..len],
                "{name}, image {i} elsewhere"
            );
        }
        // The last run is short of the only batch there is.
        let mut pairs = engine(gpu, Precision::Fp16, false, &[2], planner());
        assert_eq!(run(&mut pairs, IMAGES, &x), all, "{name} in pairs");
    }
}
