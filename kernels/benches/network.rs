//! Whole networks at batch 1, weights random: the layers of `EfficientNet-Lite0` and `MobileNetV2` as the importer plans
//! them (activations and residuals fused). `cargo bench -p ocellus-kernels --bench network`.
//!
//! An element of the printed throughput is a multiply-add: the reader divides by the cores' peak (cores x vectors a cycle x
//! lanes x clock). ONNX Runtime is compared from outside (`tests/peers/compare.py`), in the same minute, because its speed
//! on a shared machine is not the same twice.
#![allow(missing_docs, reason = "criterion's macros make public items")]
#![allow(clippy::unwrap_used, reason = "a benchmark may stop")]

use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ocellus_kernels::cpu::CpuEngine;
use ocellus_kernels::engine::Engine;
use ocellus_kernels::op::{Conv, Epilogue, Gemm, Op, ReduceKind, Unary};
use ocellus_kernels::plan::{Buffer, Constant, Operand, Plan, Port, Step};
use ocellus_kernels::tensor::DType;

/// Blocks of one kind: expansion, output channels, kernel, stride of the first, how many.
type Stage = (usize, usize, usize, usize, usize);

const EFFICIENTNET_LITE0: [Stage; 7] = [
    (1, 16, 3, 1, 1),
    (6, 24, 3, 2, 2),
    (6, 40, 5, 2, 2),
    (6, 80, 3, 2, 3),
    (6, 112, 5, 1, 3),
    (6, 192, 5, 2, 4),
    (6, 320, 3, 1, 1),
];

const MOBILENET_V2: [Stage; 7] = [
    (1, 16, 3, 1, 1),
    (6, 24, 3, 2, 2),
    (6, 32, 3, 2, 3),
    (6, 64, 3, 2, 4),
    (6, 96, 3, 1, 3),
    (6, 160, 3, 2, 3),
    (6, 320, 3, 1, 1),
];

/// Elements that a slot holds: the largest activation.
const SLOT: usize = 112 * 112 * 96;

/// Appends layers to a plan; activations take turns in four slots.
struct Builder {
    steps: Vec<Step>,
    current: Buffer,
    slot: usize,
    macs: usize,
}

impl Builder {
    fn new(side: usize) -> Self {
        let current = Buffer { offset: 0, dims: vec![1, side, side, 3] };
        Self { steps: Vec::new(), current, slot: 0, macs: 0 }
    }

    fn constant(dims: &[usize]) -> Operand {
        let data = (0..dims.iter().product::<usize>()).map(|i| (i * 37 % 101) as f32 * 1e-3 - 0.05).collect();
        Operand::Constant(Arc::new(Constant { dims: dims.to_vec(), data }))
    }

    fn push(&mut self, op: Op, operands: Vec<Operand>, dims: Vec<usize>) {
        self.slot = (self.slot + 1) % 4;
        let output = Buffer { offset: self.slot * SLOT, dims };
        let inputs = std::iter::once(Operand::Buffer(self.current.clone())).chain(operands).collect();
        self.steps.push(Step { name: op.name().into(), op, inputs, output: output.clone() });
        self.current = output;
    }

    fn conv(&mut self, k: usize, kernel: usize, stride: usize, depthwise: bool, clip: bool, residual: Option<&Buffer>) {
        let (h, c) = (self.current.dims[1], self.current.dims[3]);
        let p = h.div_ceil(stride);
        let pad = ((p - 1) * stride + kernel).saturating_sub(h) / 2;
        let groups = if depthwise { c } else { 1 };
        let activation = clip.then_some(Unary::Clip { min: 0.0, max: 6.0 });
        let epilogue = Epilogue { bias: true, residual: residual.is_some(), activation };
        let (r, s, q, w) = (kernel, kernel, p, h);
        let (stride, pad, dilation) = ([stride; 2], [pad; 2], [1; 2]);
        let desc = Conv { n: 1, h, w, c, k, r, s, p, q, stride, pad, dilation, groups, epilogue };
        self.macs += p * q * k * r * s * (c / groups);
        let mut operands = vec![Self::constant(&[k, r, s, c / groups]), Self::constant(&[k])];
        operands.extend(residual.cloned().map(Operand::Buffer));
        self.push(Op::Conv(desc), operands, vec![1, p, q, k]);
    }

    fn classifier(mut self, stages: &[Stage]) -> (Plan, usize) {
        let input = self.current.clone();
        self.conv(32, 3, 2, false, true, None);
        for &(expansion, k, kernel, first_stride, count) in stages {
            for i in 0..count {
                let (start, c) = (self.current.clone(), self.current.dims[3]);
                let stride = if i == 0 { first_stride } else { 1 };
                if expansion > 1 {
                    self.conv(c * expansion, 1, 1, false, true, None);
                }
                self.conv(c * expansion, kernel, stride, true, true, None);
                self.conv(k, 1, 1, false, false, (i > 0).then_some(&start));
            }
        }
        self.conv(1280, 1, 1, false, true, None);
        self.push(Op::Reduce { kind: ReduceKind::Mean, axes: vec![1, 2] }, vec![], vec![1, 1, 1, 1280]);
        self.push(Op::Reshape, vec![], vec![1, 1280]);
        let epilogue = Epilogue { bias: true, ..Epilogue::default() };
        let operands = vec![Self::constant(&[1000, 1280]), Self::constant(&[1000])];
        self.push(Op::Gemm(Gemm { m: 1, n: 1000, k: 1280, epilogue }), operands, vec![1, 1000]);
        let port = |name: &str, buffer| Port { name: name.into(), dtype: DType::F32, layout: None, buffer };
        let plan = Plan {
            batch: 1,
            divisible: true,
            inputs: vec![port("x", input)],
            outputs: vec![port("y", self.current)],
            steps: self.steps,
            arena_len: 4 * SLOT,
        };
        (plan, self.macs)
    }
}

fn networks(criterion: &mut Criterion) {
    for (name, stages) in [("efficientnet-lite0", &EFFICIENTNET_LITE0), ("mobilenet_v2", &MOBILENET_V2)] {
        let mut group = criterion.benchmark_group(name);
        for (threads, images) in [(1, 1), (2, 1), (2, 8)] {
            let (plan, macs) = Builder::new(224).classifier(stages);
            let mut engine = CpuEngine::new(plan, threads).unwrap();
            let x = vec![0.5; images * 224 * 224 * 3];
            let mut y = vec![Vec::new()];
            group.throughput(Throughput::Elements((macs * images) as u64));
            group.bench_function(format!("{threads} threads, batch {images}"), |b| {
                b.iter(|| engine.run(images, &[&x], &mut y).unwrap());
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = networks
}
criterion_main!(benches);
