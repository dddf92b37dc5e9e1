//! What engines hold in the GPU's memory: weights once, and nothing of earlier runs that matters.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ocellus::model::import::parse;
use ocellus::model::load::Model;
use ocellus::model::passes::optimise;
use ocellus::model::plan::plan;
use ocellus::model::spec::ModelSpec;
use ocellus_kernels::cpu::CpuEngine;
use ocellus_kernels::cuda::gpu::Gpu;
use ocellus_kernels::cuda::lower::Precision;
use ocellus_kernels::cuda::memory::DeviceMemory;
use ocellus_kernels::cuda::stream::{Priority, Stream};
use ocellus_kernels::engine::Engine;
use ocellus_kernels::plan::Operand;
use tests::gpu::{engine, gpu, is_emulated};
use tests::network::{NetworkBuilder, list};
use tests::{Random, rel_frobenius, skip, workspace_root};

/// One test at a time, since one of them measures memory.
fn alone() -> MutexGuard<'static, ()> {
    static GPU: Mutex<()> = Mutex::new(());
    GPU.lock().unwrap_or_else(PoisonError::into_inner)
}

fn model(name: &str) -> Model {
    Model::read(&ModelSpec::Onnx(workspace_root().join(format!("samples/models/{name}.onnx")))).unwrap()
}

/// Bytes of the GPU's memory that an engine takes.
fn memory_bytes(gpu: &Gpu, name: &str, batches: &[usize]) -> usize {
    let model = model(name);
    let free = || gpu.device.memory_bytes().unwrap().0;
    let before = free();
    let _engine = engine(gpu, Precision::Fp16, false, batches, move |batch| model.plan(batch).unwrap());
    before - free()
}

#[test]
fn all_batch_sizes_have_the_weights_once() {
    let Some(gpu) = gpu() else { return };
    let _alone = alone();
    if !is_emulated(gpu) {
        skip("REQUIRE_EMULATOR", "a real driver keeps freed memory");
        return;
    }
    for name in ["squeezenet1.1", "efficientnet-lite0"] {
        let [one, largest, all] = [&[1][..], &[4], &[1, 2, 3, 4]].map(|batches| memory_bytes(gpu, name, batches));
        assert!(all == largest && one < largest, "{name}: {one} {largest} {all}");
        // The same constants on the host.
        let model = model(name);
        let weights = |batch| {
            let plan = model.plan(batch).unwrap();
            let operands = plan.steps.into_iter().flat_map(|step| step.inputs);
            let weights = operands.filter_map(|input| match input {
                Operand::Constant(constant) => Some(constant),
                Operand::Buffer(_) => None,
            });
            weights.collect::<Vec<_>>()
        };
        let pairs = weights(1).into_iter().zip(weights(4));
        assert!(pairs.map(|(a, b)| assert!(Arc::ptr_eq(&a, &b), "{name}")).count() > 10);
    }
}

/// Whichever size serves an image, alone or with others, first or last of a batch that is full or not.
#[test]
fn every_batch_size_gives_an_image_the_same_bits() {
    const SIZES: [usize; 5] = [1, 2, 4, 8, 13];
    const MOST: usize = 13;
    let Some(gpu) = gpu() else { return };
    let _alone = alone();
    let mut builder = NetworkBuilder::new(5);
    let x = builder.conv(NetworkBuilder::INPUT, 3, 16, 3, 2, 1.0);
    let x = builder.node("Relu", &[&x], vec![]);
    let x = builder.conv(&x, 16, 32, 3, 1, 1.0);
    let x = builder.node("MaxPool", &[&x], vec![list("kernel_shape", &[2; 2]), list("strides", &[2; 2])]);
    let scores = builder.classes(&x, 32, 7, 2.0);
    let file = builder.finish("net", 12, &scores, 7);
    for precision in [Precision::Fp32, Precision::Fp16] {
        let file = file.clone();
        let planner = move |batch| {
            let graph = parse(file.clone().into(), None, batch).unwrap();
            plan(&optimise(graph, usize::MAX)).unwrap()
        };
        let mut engine = engine(gpu, precision, false, &SIZES, planner);
        for size in SIZES {
            assert_eq!(engine.network(size).unwrap().batch(), size);
        }
        let each = 3 * 12 * 12;
        let x = Random::new(9).signal(MOST * each);
        let mut run = |first: usize, images: usize| {
            let mut y = vec![Vec::new()];
            engine.run(images, &[&x[first * each..(first + images) * each]], &mut y).unwrap();
            y.remove(0).into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        let alone: Vec<_> = (0..MOST).flat_map(|image| run(image, 1)).collect();
        for images in 1..=MOST {
            for first in [0, (MOST - images) / 2, MOST - images] {
                let expected = &alone[first * 7..(first + images) * 7];
                assert_eq!(run(first, images), expected, "{precision:?}: {images} images from {first} on");
            }
        }
    }
}

/// Of a network whose images influence one another, whatever ran before.
#[test]
fn images_that_are_not_there_are_zeros() {
    const BATCH: usize = 4;
    let Some(gpu) = gpu() else { return };
    let _alone = alone();
    let mut builder = NetworkBuilder::new(3).of_batch(BATCH);
    let x = builder.conv(NetworkBuilder::INPUT, 3, 8, 3, 2, 1.0);
    let mean = builder.node("ReduceMean", &[&x], vec![list("axes", &[0])]);
    let x = builder.node("Sub", &[&x, &mean], vec![]);
    let scores = builder.classes(&x, 8, 5, 2.0);
    let graph = parse(builder.finish("net", 8, &scores, 5).into(), None, BATCH).unwrap();
    let plan = plan(&optimise(graph, usize::MAX)).unwrap();
    let each = plan.inputs[0].buffer.len() / BATCH;
    let x = Random::new(2).signal(BATCH * each);
    let expected = |images: usize| {
        let mut padded = x[..images * each].to_vec();
        padded.resize(BATCH * each, 0.0);
        let mut y = vec![Vec::new()];
        CpuEngine::new(plan.clone(), 1).unwrap().run(BATCH, &[&padded], &mut y).unwrap();
        y[0].truncate(images * 5);
        y.remove(0)
    };
    let same = plan.clone();
    let mut engine = engine(gpu, Precision::Fp32, false, &[BATCH], move |_| same.clone());
    // The first with what the memory held before, the others with what the run before left.
    for images in [1, BATCH, 2, 3, 1] {
        engine.write_input(images, &x[..images * each]).unwrap();
        let network = engine.network(images).unwrap();
        network.enqueue().unwrap();
        let (memory, placed) = network.output(0).unwrap();
        let mut bytes = vec![0; placed.at_bytes + 4 * 5 * images];
        memory.read(&mut bytes).unwrap();
        let values = bytes[placed.at_bytes..].chunks_exact(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
        let error = rel_frobenius(&values.collect::<Vec<_>>(), &expected(images));
        assert!(error <= 1e-5, "{images} images: {error:e}");
    }
}

#[test]
fn parts_of_memory_are_copied_and_nothing_beside_them() {
    let Some(gpu) = gpu() else { return };
    let _alone = alone();
    let stream = Stream::new(&gpu.device, Priority::Low).unwrap();
    let numbers: Vec<u8> = (0..100).collect();
    let from = DeviceMemory::from_slice(&stream, &numbers).unwrap();
    let to = DeviceMemory::from_slice(&stream, &[0xff; 50]).unwrap();
    to.copy_part(7, &from, 21, 30).unwrap();
    to.copy_part(49, &from, 99, 1).unwrap();
    let mut bytes = [0; 50];
    to.read(&mut bytes).unwrap();
    let mut expected = [0xff; 50];
    expected[7..37].copy_from_slice(&numbers[21..51]);
    expected[49] = 99;
    assert_eq!(bytes, expected);
    for (at, from_at, len) in
        [(49, 0, 2), (0, 99, 2), (51, 0, 0), (0, 0, usize::MAX), (usize::MAX, 0, 1), (1, 0, usize::MAX)]
    {
        assert!(to.copy_part(at, &from, from_at, len).is_err(), "{len} bytes at {from_at} to {at}");
    }
    let other = Stream::new(&gpu.device, Priority::Low).unwrap();
    let elsewhere = DeviceMemory::from_slice(&other, &numbers).unwrap();
    assert!(to.copy_part(0, &elsewhere, 0, 1).is_err());
}
