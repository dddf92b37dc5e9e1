//! Dense and grouped convolutions and matrix products on the GPU against the gold loops: every parameter, every tail,
//! every precision, and the same bits whatever the batch and the place in it.

use ocellus_kernels::cuda::lower::Precision;
use ocellus_kernels::engine::Engine;
use ocellus_kernels::op::{Conv, Epilogue, Gemm, Op, Unary};
use ocellus_kernels::plan::Plan;
use ocellus_kernels::tensor::Layout;
use tests::cases::{Case, Trial, conv, w, x};
use tests::gpu::{engine, gpu, tool};
use tests::{Random, rel_frobenius};

const PRECISIONS: [Precision; 4] = [Precision::Fp32, Precision::Tf32, Precision::Fp16, Precision::Bf16];

/// Eighths: every type holds them, and fp32 every sum of their products, so that only the result is rounded.
fn eighths(v: f32) -> f32 {
    (v * 8.0).round() / 8.0
}

/// One rounding to the activation type, and what an activation function's own roundings add.
fn tolerance(precision: Precision) -> fn(f64) -> f64 {
    match precision {
        Precision::Fp32 | Precision::Tf32 => |_| 2e-6,
        Precision::Fp16 => |_| 5e-4,
        Precision::Bf16 => |_| 4e-3,
    }
}

fn check(precision: Precision, cases: &[Case], layout: Option<Layout>) {
    let Some(gpu) = gpu() else { return };
    let engines = |plan: &Plan| {
        let mut plan = plan.clone();
        plan.inputs[0].layout = layout;
        let engine = engine(gpu, precision, true, &[1], move |_| plan.clone());
        vec![(format!("{precision:?}"), Box::new(engine) as Box<dyn Engine>)]
    };
    let too_large = if precision == Precision::Fp16 { 65_520.0 } else { f64::INFINITY };
    Trial { engines: &engines, rounded: eighths, tolerance: tolerance(precision), too_large }.check(cases);
}

/// Every case in every precision.
fn check_all(cases: &[Case], layout: Option<Layout>) {
    for precision in PRECISIONS {
        check(precision, cases, layout);
    }
}

/// Every case in one precision, one after another.
fn check_each(cases: &[Case]) {
    for (first, precision) in PRECISIONS.into_iter().enumerate() {
        // Another one for every fourth case, so that no loop of four ties a parameter to a precision.
        let mine = |(i, case): (usize, &Case)| ((i + i / 4) % PRECISIONS.len() == first).then(|| case.clone());
        let own: Vec<Case> = cases.iter().enumerate().filter_map(mine).collect();
        check(precision, &own, None);
    }
}

/// Everything but the output size, which follows from the padding on all four sides.
#[derive(Clone, Copy, Debug)]
struct Shape {
    size: [usize; 2],
    channels: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    pad: [usize; 4],
    dilation: [usize; 2],
    groups: usize,
    epilogue: Epilogue,
}

const SHAPE: Shape = Shape {
    size: [7, 9],
    channels: [16, 24],
    kernel: [3, 3],
    stride: [1, 1],
    pad: [1; 4],
    dilation: [1, 1],
    groups: 1,
    epilogue: Epilogue { bias: true, residual: false, activation: None },
};

impl Shape {
    fn case(self) -> Case {
        let Self { size, channels: [c, k], kernel, stride, pad, dilation, groups, epilogue } = self;
        let [p, q] = [0, 1].map(|axis| {
            let span = (kernel[axis] - 1) * dilation[axis] + 1;
            (size[axis] + pad[axis] + pad[axis + 2] - span) / stride[axis] + 1
        });
        let ([h, w], [r, s], pad) = (size, kernel, [pad[0], pad[1]]);
        conv(Conv { n: 1, h, w, c, k, r, s, p, q, stride, pad, dilation, groups, epilogue })
    }
}

#[test]
fn kernels_strides_pads_and_dilations() {
    let mut cases = Vec::new();
    for (i, k) in [1, 2, 3, 5, 7].into_iter().enumerate() {
        for (j, stride) in [[1, 1], [2, 2], [3, 1], [1, 3]].into_iter().enumerate() {
            // Nothing or the usual; too much or another number on each side.
            let pads = [[[0; 4], [k; 4]], [[k / 2; 4], [0, k / 2, 1, k]]];
            for pad in pads[(i + j) % 2] {
                let dilation = [[1, 1], [2, 1], [1, 3]][(i + stride[1] + pad[1]) % 3];
                cases.push(Shape { size: [16, 21], channels: [8, 10], kernel: [k, k], stride, pad, dilation, ..SHAPE });
            }
        }
    }
    // More taps than a word has bits for.
    cases.push(Shape { size: [20, 6], kernel: [17, 2], pad: [3, 1, 0, 0], ..SHAPE });
    cases.push(Shape { size: [5, 22], kernel: [2, 19], pad: [0, 4, 1, 2], dilation: [1, 1], ..SHAPE });
    cases.push(Shape { size: [6, 21], channels: [7, 9], kernel: [1, 18], pad: [0, 1, 0, 2], stride: [2, 2], ..SHAPE });
    cases.push(Shape { size: [33, 1], channels: [6, 9], kernel: [33, 1], pad: [16, 0, 16, 0], ..SHAPE });
    check_each(&cases.into_iter().map(Shape::case).collect::<Vec<_>>());
}

#[test]
fn channels_and_groups() {
    let mut cases = Vec::new();
    let outputs = [1, 3, 8, 17, 32, 40, 66, 130];
    for (i, c) in [1, 2, 3, 4, 6, 8, 12, 13, 16, 24, 29, 32, 40, 64, 72, 96].into_iter().enumerate() {
        for (j, kernel) in [[1, 1], [3, 3], [2, 1]].into_iter().enumerate() {
            let channels = [c, outputs[(i + 3 * j) % outputs.len()]];
            cases.push(Shape { size: [4, 5], channels, kernel, pad: [0, 1, 1, 0], ..SHAPE });
        }
    }
    for (groups, c, k) in [(2, 1, 1), (2, 3, 5), (2, 16, 32), (3, 4, 4), (3, 8, 7), (4, 13, 2), (5, 2, 24), (32, 4, 4)]
    {
        for kernel in [[1, 1], [3, 3]] {
            let channels = [groups * c, groups * k];
            // Depthwise convolutions have kernels of their own.
            if c > 1 {
                cases.push(Shape { channels, kernel, groups, pad: [kernel[0] / 2; 4], ..SHAPE });
            }
        }
    }
    check_each(&cases.into_iter().map(Shape::case).collect::<Vec<_>>());
}

#[test]
fn epilogues() {
    let functions = [
        Unary::Relu,
        Unary::Clip { min: 0.0, max: 6.0 },
        Unary::LeakyRelu { alpha: 0.1 },
        Unary::Elu { alpha: 1.0 },
        Unary::Sigmoid,
        Unary::HardSigmoid { alpha: 0.2, beta: 0.5 },
        Unary::HardSwish,
        Unary::Silu,
        Unary::Tanh,
        Unary::Gelu { tanh: false },
        Unary::Gelu { tanh: true },
        Unary::Mish,
    ];
    let mut cases = Vec::new();
    for (i, activation) in functions.map(Some).into_iter().chain([None]).enumerate() {
        for residual in [false, true] {
            let epilogue = Epilogue { bias: residual == (i % 2 == 0), residual, activation };
            // Rows that are stored in one piece, and others.
            let channels = [8, [24, 21][i / 2 % 2]];
            cases.push(Shape { channels, epilogue, kernel: [1, 1], pad: [0; 4], ..SHAPE }.case());
        }
    }
    check_each(&cases);
}

#[test]
fn pictures_stored_with_a_pitch() {
    let mut cases = Vec::new();
    let shapes = [
        ([18, 20], [3, 3], [2, 2], [1; 4]),
        ([18, 20], [3, 3], [2, 2], [0, 0, 1, 1]),
        ([17, 19], [3, 3], [2, 2], [1; 4]),
        ([20, 22], [7, 7], [2, 2], [3; 4]),
        ([20, 22], [7, 7], [2, 2], [2, 2, 3, 3]),
        ([9, 12], [3, 3], [1, 1], [1; 4]),
        ([16, 16], [4, 4], [4, 4], [0; 4]),
        ([12, 14], [6, 6], [2, 2], [2; 4]),
        ([9, 16], [3, 4], [1, 2], [0, 3, 0, 1]),
    ];
    for (i, (size, kernel, stride, pad)) in shapes.into_iter().enumerate() {
        let channels = [[3, 32], [3, 17], [1, 16], [2, 8]][i % 4];
        cases.push(Shape { size, channels, kernel, stride, pad, ..SHAPE }.case());
    }
    check_all(&cases, Some(Layout::Nhwc));
}

#[test]
fn matrix_products() {
    let mut cases = Vec::new();
    for (m, n, k) in [(1, 1000, 128), (3, 10, 8), (5, 21, 33), (2, 7, 1), (40, 130, 96), (1, 5, 1281), (70, 66, 10)] {
        for bias in [false, true] {
            for residual in [false, true] {
                let epilogue = Epilogue { bias, residual, activation: Some(Unary::Relu) };
                let mut inputs = vec![x(&[m, k]), w(&[n, k])];
                inputs.extend(bias.then(|| w(&[n])));
                inputs.extend(residual.then(|| x(&[m, n])));
                cases.push(Case::new(Op::Gemm(Gemm { m, n, k, epilogue }), &inputs, &[m, n], 0.0));
            }
        }
    }
    check_each(&cases);
}

/// Layers of which each, alone and three times, has another size of tile on a large GPU.
#[test]
fn large_layers() {
    let epilogue = Epilogue { bias: true, residual: true, activation: Some(Unary::Relu) };
    let case = |(size, channels)| Shape { size, channels, kernel: [1, 1], pad: [0; 4], epilogue, ..SHAPE }.case();
    let cases = [
        ([40, 50], [8, 64]),
        ([40, 50], [64, 72]),
        ([60, 100], [8, 130]),
        ([60, 100], [64, 64]),
        ([100, 120], [8, 64]),
        ([100, 120], [8, 128]),
        ([150, 200], [8, 128]),
    ];
    let cases = cases.map(case);
    // compute-sanitizer makes minutes of it, and looks at how threads work together more than at numbers.
    if tool().is_some() { check_each(&cases) } else { check_all(&cases, None) }
}

#[test]
fn random_shapes() {
    for seed in 0..24u64 {
        let mut random = Random::new(seed);
        let mut pick = |choices: &[usize]| choices[random.below(choices.len())];
        let groups = pick(&[1, 1, 1, 1, 2, 3]);
        let channels = [
            groups * pick(&[2, 3, 4, 5, 8, 13, 16, 24, 32, 40, 64]),
            groups * pick(&[1, 3, 8, 10, 17, 32, 40, 64, 72, 130]),
        ];
        let kernel = [pick(&[1, 2, 3, 5, 7]), pick(&[1, 2, 3, 5, 7])];
        let (stride, dilation) = ([pick(&[1, 2, 3]), pick(&[1, 2, 3])], [pick(&[1, 1, 2, 3]), pick(&[1, 1, 2, 3])]);
        let pad = [0, 1, 0, 1].map(|axis| pick(&[0, 0, kernel[axis] / 2, kernel[axis]]));
        let size = [0, 1].map(|axis| {
            let span = (kernel[axis] - 1) * dilation[axis] + 1;
            span.saturating_sub(pad[axis] + pad[axis + 2]).max(1) + pick(&[0, 1, 4, 9])
        });
        let activation = [None, Some(Unary::Relu), Some(Unary::HardSwish)][pick(&[0, 1, 2])];
        let epilogue = Epilogue { bias: pick(&[0, 1]) == 1, residual: pick(&[0, 1]) == 1, activation };
        let shape = Shape { size, channels, kernel, stride, pad, dilation, groups, epilogue };
        println!("seed {seed}: {shape:?}");
        check(PRECISIONS[seed as usize % PRECISIONS.len()], &[shape.case()], None);
    }
}

/// Operands that have to be rounded, within the bounds that users are told.
#[test]
fn errors_of_whole_tensors() {
    let Some(gpu) = gpu() else { return };
    let shape = Shape { size: [9, 11], channels: [64, 48], ..SHAPE };
    for (precision, bound) in PRECISIONS.into_iter().zip([1e-5, 1e-3, 5e-3, 2e-2]) {
        for epilogue in [SHAPE.epilogue, Epilogue { bias: true, residual: true, activation: Some(Unary::Silu) }] {
            let case = Shape { epilogue, ..shape }.case();
            let mut random = Random::new(5);
            let data: Vec<Vec<f32>> = case.inputs.iter().map(|input| input.draw(&mut random, 1)).collect();
            let gold: Vec<_> =
                case.inputs.iter().zip(&data).map(|(i, d)| tests::gold::Tensor::new(&i.dims, d)).collect();
            let want = tests::gold::run(&case.op, &gold, &case.output);
            let want: Vec<f32> = want.data.iter().map(|&v| v as f32).collect();
            let constants: Vec<_> = case.inputs.iter().zip(&data).map(|(i, d)| i.constant.then(|| d.clone())).collect();
            let plan = case.plan(&constants);
            let mut engine = engine(gpu, precision, true, &[1], move |_| plan.clone());
            let poison = vec![f32::NAN; want.len()];
            let variables = case.inputs.iter().zip(&data).filter(|(input, _)| !input.constant);
            let inputs: Vec<&[f32]> = variables.map(|(_, data)| &data[..]).chain([&poison[..]]).collect();
            let mut outputs = vec![Vec::new()];
            engine.run(1, &inputs, &mut outputs).unwrap();
            let error = rel_frobenius(&outputs[0], &want);
            assert!(error <= bound, "{precision:?} {epilogue:?}: {error:e}");
        }
    }
}
