//! Pointwise convolutions of `MobileNetV2` and `EfficientNet-Lite0` as products of matrices, one thread: our kernel with
//! packed weights, and the crates `gemm` and `matrixmultiply`, which pack both operands at each call.
//! `cargo bench -p ocellus-kernels --bench gemm`.
#![allow(unsafe_code, reason = "both crates take raw pointers")]
#![allow(missing_docs, reason = "criterion's macros make public items")]
#![allow(clippy::unwrap_used, reason = "a benchmark may stop")]

use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ocellus_kernels::cpu::{CpuEngine, Isa};
use ocellus_kernels::engine::Engine;
use ocellus_kernels::op::{Epilogue, Gemm, Op};
use ocellus_kernels::plan::{Buffer, Constant, Operand, Plan, Port, Step};
use ocellus_kernels::tensor::DType;

/// Rows (pixels), columns (output channels), depth (input channels).
const SHAPES: [(usize, usize, usize); 8] = [
    (12544, 16, 32),
    (12544, 96, 16),
    (3136, 144, 24),
    (784, 40, 240),
    (196, 112, 480),
    (49, 320, 1152),
    (49, 1280, 320),
    (1, 1000, 1280),
];

/// A network of the product alone, whose input and output are the first elements of its operands: copying them counts
/// for nothing.
fn engine((m, n, k): (usize, usize, usize), isa: Isa) -> CpuEngine {
    let x = Buffer { offset: 0, dims: vec![m, k] };
    let y = Buffer { offset: (m * k).next_multiple_of(16), dims: vec![m, n] };
    let arena_len = y.range().end;
    let port = |offset| Port {
        name: String::new(),
        dtype: DType::F32,
        layout: None,
        buffer: Buffer { offset, dims: vec![1, 1] },
    };
    let (inputs, outputs) = (vec![port(0)], vec![port(y.offset)]);
    let weights = Constant { dims: vec![n, k], data: vec![0.5; n * k].into() };
    let inputs_of_step = vec![Operand::Buffer(x), Operand::Constant(Arc::new(weights))];
    let op = Op::Gemm(Gemm { m, n, k, epilogue: Epilogue::default() });
    let steps = vec![Step { name: "product".into(), op, inputs: inputs_of_step, output: y }];
    CpuEngine::with_isa(Plan { batch: 1, divisible: true, inputs, outputs, steps, arena_len }, 1, isa).unwrap()
}

fn products(criterion: &mut Criterion) {
    for (m, n, k) in SHAPES {
        let mut group = criterion.benchmark_group(format!("{m}x{n}x{k}"));
        // An element is a floating-point operation.
        group.throughput(Throughput::Elements(2 * (m * n * k) as u64));
        for isa in Isa::available() {
            let mut engine = engine((m, n, k), isa);
            let mut y = vec![Vec::new()];
            group.bench_function(format!("ours {isa:?}"), |b| b.iter(|| engine.run(1, &[&[1.0]], &mut y).unwrap()));
        }
        let (a, b, mut c) = (vec![1.0f32; m * k], vec![0.5f32; n * k], vec![0.0f32; m * n]);
        let (m, n, k) = (m as isize, n as isize, k as isize);
        group.bench_function("gemm", |bencher| {
            // SAFETY: the matrices have these sizes.
            bencher.iter(|| unsafe {
                let (a, b, c) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
                let (m, n, k) = (m as usize, n as usize, k as usize);
                let par = gemm::Parallelism::None;
                let (ns, ks) = (n as isize, k as isize);
                gemm::gemm(m, n, k, c, 1, ns, false, a, 1, ks, b, ks, 1, 0.0, 1.0, false, false, false, par);
            });
        });
        group.bench_function("matrixmultiply", |bencher| {
            // SAFETY: the matrices have these sizes.
            bencher.iter(|| unsafe {
                let (a, b, c) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
                let (mu, nu, ku) = (m as usize, n as usize, k as usize);
                matrixmultiply::sgemm(mu, ku, nu, 1.0, a, k, 1, b, 1, k, 0.0, c, n, 1);
            });
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1));
    targets = products
}
criterion_main!(benches);
