//! The best classes found on the GPU against a sorted list.

use half::{bf16, f16};
use ocellus_kernels::cuda::lower::Tensor;
use ocellus_kernels::cuda::lower::top_k::Scores;
use ocellus_kernels::cuda::memory::DeviceMemory;
use ocellus_kernels::cuda::schedule::Placed;
use ocellus_kernels::cuda::stream::{Priority, Stream};
use ocellus_kernels::cuda::top_k::TopK;
use ocellus_kernels::tensor::DType;
use tests::Random;
use tests::gpu::gpu;

const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

fn bytes(values: &[f32], dtype: DType) -> Vec<u8> {
    let bytes = |&v: &f32| match dtype {
        DType::F16 => f16::from_f32(v).to_ne_bytes().to_vec(),
        DType::Bf16 => bf16::from_f32(v).to_ne_bytes().to_vec(),
        _ => v.to_ne_bytes().to_vec(),
    };
    values.iter().flat_map(bytes).collect()
}

/// What the GPU says of a row of values.
struct Row {
    faults: u32,
    outside: Option<f32>,
    best: Vec<(u32, f32)>,
}

/// What the GPU finds in rows of `classes` values; `None` without a GPU.
fn find(values: &[f32], classes: usize, dtype: DType, scores: Scores, k: usize) -> Option<Vec<Row>> {
    let gpu = gpu()?;
    let images = values.len() / classes;
    let stream = Stream::new(&gpu.device, Priority::Low).unwrap();
    let memory = DeviceMemory::from_slice(&stream, &bytes(values, dtype)).unwrap();
    let output = Placed { at_bytes: 0, tensor: Tensor { dims: vec![images, classes], dtype, pitch: classes } };
    let mut top_k = TopK::new(&gpu.device, &gpu.jit, &output, scores, k, images).unwrap();
    let mut results = top_k.results().unwrap();
    top_k.enqueue((&memory, &output), &mut results).unwrap();
    let rows = results.wait().unwrap();
    assert_eq!(rows.row(images), None);
    let rows = (0..images).map(|image| rows.row(image).unwrap());
    Some(rows.map(|row| Row { faults: row.faults, outside: row.outside, best: row.best().collect() }).collect())
}

/// Every class with its score, best first.
fn sorted(values: &[f32], scores: Scores) -> Vec<(u32, f64)> {
    let top = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exp = |v: f32| (f64::from(v) - f64::from(top)).exp();
    let sum: f64 = values.iter().map(|&v| exp(v)).sum();
    let score = |v: f32| match scores {
        Scores::Logits => exp(v) / sum,
        Scores::Probabilities => f64::from(v).clamp(0.0, 1.0),
        Scores::Sigmoid => 1.0 / (1.0 + (-f64::from(v)).exp()),
    };
    let mut all: Vec<_> = values.iter().enumerate().map(|(class, &v)| (class as u32, score(v))).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all
}

/// In the emulator's lazy order the kernel has not run when it is let go.
#[test]
fn the_kernel_may_go_before_its_work_is_done() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu.device, Priority::Low).unwrap();
    let memory = DeviceMemory::from_slice(&stream, &bytes(&[1.0, 3.0, 2.0], DType::F32)).unwrap();
    let tensor = Tensor { dims: vec![1, 3], dtype: DType::F32, pitch: 3 };
    let output = Placed { at_bytes: 0, tensor };
    let mut top_k = TopK::new(&gpu.device, &gpu.jit, &output, Scores::Logits, 1, 1).unwrap();
    let mut results = top_k.results().unwrap();
    for outside in [4, usize::MAX] {
        let output = Placed { at_bytes: outside, ..output.clone() };
        assert!(top_k.enqueue((&memory, &output), &mut results).is_err());
    }
    for (dims, dtype) in [(vec![1, 2], DType::F32), (vec![3, 1], DType::F32), (vec![1, 3], DType::F16)] {
        let other = Placed { at_bytes: 0, tensor: Tensor { pitch: dims[1], dims, dtype } };
        assert!(top_k.enqueue((&memory, &other), &mut results).is_err(), "{other:?}");
    }
    top_k.enqueue((&memory, &output), &mut results).unwrap();
    drop((top_k, memory));
    assert_eq!(results.wait().unwrap().row(0).unwrap().best().next().unwrap().0, 1);
}

#[test]
fn best_first_and_ties_by_lower_class() {
    let mut random = Random::new(5);
    for classes in [1, 2, 7, 256, 257, 1000] {
        for (scores, step, most) in
            [(Scores::Logits, 0.25, 32), (Scores::Probabilities, 1.0 / 64.0, 64), (Scores::Sigmoid, 0.25, 32)]
        {
            for (dtype, k) in TYPES.into_iter().zip([1, 5, 100]) {
                // Few different values, exact in every type: many ties.
                let low = if scores == Scores::Probabilities { 0 } else { most / 2 };
                let values: Vec<f32> =
                    (0..3 * classes).map(|_| (random.below(most) as f32 - low as f32) * step).collect();
                let Some(rows) = find(&values, classes, dtype, scores, k) else { return };
                for (row, values) in rows.iter().zip(values.chunks(classes)) {
                    let want = sorted(values, scores);
                    assert_eq!((row.faults, row.outside, row.best.len()), (0, None, k.min(classes)));
                    for ((class, score), want) in row.best.iter().zip(want) {
                        assert_eq!(*class, want.0, "{scores:?} {dtype:?} {classes}");
                        assert!((f64::from(*score) - want.1).abs() < 1e-6, "{score} instead of {}", want.1);
                    }
                }
            }
        }
    }
}

#[test]
fn values_that_are_no_numbers_are_counted() {
    let (nan, infinity) = (f32::NAN, f32::INFINITY);
    for dtype in TYPES {
        for (scores, values, faults, outside) in [
            (Scores::Logits, [nan, 1.0, nan], 2, None),
            (Scores::Logits, [infinity, 1.0, 2.0], 1, None),
            (Scores::Logits, [-infinity; 3], 3, None),
            (Scores::Logits, [-infinity, 1.0, 2.0], 0, None),
            (Scores::Logits, [0.5, 34.0, -0.5], 0, None),
            (Scores::Sigmoid, [nan, -infinity, infinity], 1, None),
            (Scores::Probabilities, [nan, 0.5, -infinity], 2, Some(nan)),
            (Scores::Probabilities, [0.5, 1.125, -0.25], 0, Some(1.125)),
            (Scores::Probabilities, [0.5, 1.0, -0.000_5], 0, None),
        ] {
            // A sound image behind the broken one.
            let all = [&values[..], &[0.0, 1.0, 0.0]].concat();
            let Some(rows) = find(&all, 3, dtype, scores, 2) else { return };
            assert_eq!(rows[0].faults, faults, "{scores:?} {values:?}");
            let bits = |v: Option<f32>| v.map(|v| if v.is_nan() { nan.to_bits() } else { v.to_bits() });
            assert_eq!(bits(rows[0].outside), bits(outside), "{scores:?} {values:?}");
            assert_eq!((rows[1].faults, rows[1].outside, rows[1].best[0].0), (0, None, 1));
            if (faults, outside) == (0, None) {
                let want = sorted(&values, scores);
                assert_eq!(rows[0].best.iter().map(|b| b.0).collect::<Vec<_>>(), [want[0].0, want[1].0]);
            }
        }
    }
}
