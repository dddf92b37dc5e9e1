//! The table: each operator with each of its parameters, vector tails included.

use ocellus_kernels::op::{
    BinaryKind, Conv, ConvTranspose, Coordinates, Crop, Epilogue, Gemm, MatMul, NearestRounding, Op, PadMode, Pool,
    PoolKind, ReduceKind, Resize, ResizeMode, Unary,
};

use super::{Case, Input, w, x};

/// Errors of single roundings and of the elementary functions.
const POINTWISE: f64 = 2e-6;
/// Errors of short sums.
const SUMS: f64 = 5e-6;

fn conv_desc(size: [usize; 4], k: usize, kernel: [usize; 2]) -> Conv {
    let [n, h, w, c] = size;
    let [r, s] = kernel;
    let (p, q) = (h - r + 1, w - s + 1);
    let (pad, stride, dilation, groups) = ([0; 2], [1; 2], [1; 2], 1);
    Conv { n, h, w, c, k, r, s, p, q, stride, pad, dilation, groups, epilogue: Epilogue::default() }
}

/// Output size from padding on all sides.
fn padded(d: Conv, stride: [usize; 2], pad: [usize; 4], dilation: [usize; 2]) -> Conv {
    let out = |size: usize, kernel: usize, axis: usize| {
        (size + pad[axis] + pad[axis + 2] - (kernel - 1) * dilation[axis] - 1) / stride[axis] + 1
    };
    Conv { p: out(d.h, d.r, 0), q: out(d.w, d.s, 1), stride, pad: [pad[0], pad[1]], dilation, ..d }
}

/// A convolution of random operands.
pub fn conv(d: Conv) -> Case {
    let output = [d.n, d.p, d.q, d.k];
    let mut inputs = vec![x(&[d.n, d.h, d.w, d.c]), w(&[d.k, d.r, d.s, d.c / d.groups])];
    operands(&d.epilogue, d.k, &output, &mut inputs);
    Case::new(Op::Conv(d), &inputs, &output, SUMS)
}

/// A transposed convolution of random operands.
pub fn conv_transpose(d: Conv) -> Case {
    let output = [d.n, d.p, d.q, d.k];
    let mut inputs = vec![x(&[d.n, d.h, d.w, d.c]), w(&[d.k, d.r, d.s, d.c / d.groups])];
    operands(&d.epilogue, d.k, &output, &mut inputs);
    Case::new(Op::ConvTranspose(ConvTranspose(d)), &inputs, &output, SUMS)
}

/// The epilogue's operands.
fn operands(epilogue: &Epilogue, channels: usize, output: &[usize], inputs: &mut Vec<Input>) {
    if epilogue.bias {
        inputs.push(w(&[channels]));
    }
    if epilogue.residual {
        inputs.push(x(output));
    }
}

/// Epilogues with each of their parts.
pub fn epilogues() -> Vec<Epilogue> {
    let relu6 = Unary::Clip { min: 0.0, max: 6.0 };
    let mut all = Vec::new();
    for bias in [false, true] {
        for residual in [false, true] {
            for activation in [None, Some(Unary::Relu), Some(relu6), Some(Unary::Silu), Some(Unary::HardSwish)] {
                all.push(Epilogue { bias, residual, activation });
            }
        }
    }
    all
}

/// Dense, grouped and depthwise convolutions.
pub fn convolutions() -> Vec<Case> {
    let mut cases = Vec::new();
    for epilogue in epilogues() {
        cases.push(conv(Conv { epilogue, ..conv_desc([1, 5, 7, 6], 19, [1, 1]) }));
        cases.push(conv(padded(Conv { epilogue, ..conv_desc([1, 6, 7, 5], 9, [3, 3]) }, [1, 1], [1; 4], [1, 1])));
        let depthwise = Conv { epilogue, groups: 21, ..conv_desc([1, 8, 7, 21], 21, [3, 3]) };
        cases.push(conv(padded(depthwise, [1, 1], [1; 4], [1, 1])));
    }
    for channels in [1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 64, 100] {
        for outputs in [1, 3, 8, 17, 33] {
            cases.push(conv(conv_desc([1, 3, 5, channels], outputs, [1, 1])));
            cases.push(conv(conv_desc([1, 4, 5, channels], outputs, [3, 2])));
        }
        for (kernel, stride) in
            [([3, 3], [1, 1]), ([3, 3], [2, 2]), ([5, 5], [2, 1]), ([7, 7], [1, 1]), ([1, 3], [1, 2])]
        {
            let d = Conv { groups: channels, ..conv_desc([1, 11, 13, channels], channels, kernel) };
            let pad = [kernel[0] / 2, kernel[1] / 2, kernel[0] / 2, kernel[1] / 2];
            cases.push(conv(padded(d, stride, pad, [1, 1])));
        }
    }
    // Asymmetric padding, dilation, strides beyond the kernel, windows that lie outside altogether.
    for (stride, pad, dilation) in [
        ([2, 2], [0, 0, 1, 1], [1, 1]),
        ([2, 1], [0, 2, 1, 3], [1, 2]),
        ([1, 1], [2, 2, 2, 2], [2, 2]),
        ([3, 4], [1, 0, 2, 1], [1, 1]),
        ([1, 1], [6, 6, 6, 6], [1, 1]),
        ([1, 2], [3, 0, 0, 3], [3, 1]),
    ] {
        for (groups, c, k) in [(1, 5, 6), (2, 6, 10), (3, 6, 3), (8, 8, 8), (4, 4, 12), (12, 12, 12)] {
            let d = Conv { groups, ..conv_desc([1, 9, 10, c], k, [3, 3]) };
            cases.push(conv(padded(d, stride, pad, dilation)));
        }
    }
    // First layers and large kernels.
    cases.push(conv(padded(conv_desc([1, 17, 19, 3], 24, [7, 7]), [2, 2], [3; 4], [1, 1])));
    cases.push(conv(padded(conv_desc([1, 16, 16, 3], 32, [3, 3]), [2, 2], [0, 0, 1, 1], [1, 1])));
    cases.push(conv(conv_desc([1, 16, 16, 3], 40, [16, 16])));
    cases.push(conv(conv_desc([2, 6, 6, 20], 24, [3, 3])));
    cases
}

/// Transposed convolutions.
pub fn transposed_convolutions() -> Vec<Case> {
    let mut cases = Vec::new();
    for (kernel, stride, pad, extra, dilation, groups, c, k) in [
        ([2, 2], [2, 2], [0, 0], [0, 0], [1, 1], 1, 5, 7),
        ([3, 3], [2, 2], [1, 1], [1, 1], [1, 1], 1, 16, 9),
        ([4, 4], [2, 2], [1, 1], [0, 0], [1, 1], 1, 3, 4),
        ([3, 2], [1, 3], [0, 1], [0, 2], [2, 1], 1, 6, 6),
        ([3, 3], [2, 1], [2, 0], [0, 0], [1, 2], 2, 6, 4),
        ([2, 2], [2, 2], [0, 0], [0, 0], [1, 1], 8, 8, 8),
        ([1, 1], [1, 1], [0, 0], [0, 0], [1, 1], 1, 33, 17),
        ([2, 2], [3, 3], [0, 0], [1, 1], [1, 1], 1, 4, 4),
    ] {
        for (bias, activation) in [(false, None), (true, Some(Unary::Relu))] {
            let (h, w_) = (5, 6);
            let [r, s] = kernel;
            let p = (h - 1) * stride[0] + (r - 1) * dilation[0] + 1 + extra[0] - 2 * pad[0];
            let q = (w_ - 1) * stride[1] + (s - 1) * dilation[1] + 1 + extra[1] - 2 * pad[1];
            let epilogue = Epilogue { bias, residual: false, activation };
            cases.push(conv_transpose(Conv {
                n: 1,
                h,
                w: w_,
                c,
                k,
                r,
                s,
                p,
                q,
                stride,
                pad,
                dilation,
                groups,
                epilogue,
            }));
        }
    }
    cases
}

/// Products with weights and of activations.
pub fn matrix_products() -> Vec<Case> {
    let mut cases = Vec::new();
    for (m, n, k) in [(1, 1, 1), (1, 1000, 64), (2, 3, 5), (7, 16, 33), (17, 31, 100), (1, 5, 1280), (64, 64, 64)] {
        for epilogue in epilogues() {
            let mut inputs = vec![x(&[m, k]), w(&[n, k])];
            operands(&epilogue, n, &[m, n], &mut inputs);
            cases.push(Case::new(Op::Gemm(Gemm { m, n, k, epilogue }), &inputs, &[m, n], SUMS));
        }
        for (batch_a, batch_b) in [(1, 1), (3, 3), (1, 2), (2, 1)] {
            let desc = MatMul { batch_a, batch_b, m, n, k };
            let output = [batch_a.max(batch_b), m, n];
            let case = Case::new(Op::MatMul(desc), &[x(&[batch_a, m, k]), x(&[batch_b, k, n])], &output, SUMS);
            cases.push(if batch_a == batch_b { case } else { case.fixed() });
        }
    }
    // Leading dimensions count as rows.
    let desc = Gemm { m: 6, n: 5, k: 4, epilogue: Epilogue::default() };
    cases.push(Case::new(Op::Gemm(desc), &[x(&[2, 3, 4]), w(&[5, 4])], &[2, 3, 5], SUMS));
    cases
}

/// Pools.
pub fn pools() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in [PoolKind::Max, PoolKind::Average, PoolKind::AveragePadded] {
        for c in [1, 3, 16, 63, 64, 65, 130] {
            for (kernel, stride, pad, dilation) in [
                ([2, 2], [2, 2], [0; 4], [1, 1]),
                ([3, 3], [2, 2], [1; 4], [1, 1]),
                ([3, 3], [1, 1], [0, 1, 2, 1], [1, 1]),
                ([3, 2], [2, 3], [1, 0, 0, 1], [2, 3]),
                ([5, 7], [5, 7], [2, 3, 2, 3], [1, 1]),
            ] {
                let (h, w) = (9, 10);
                // As ceil_mode: the last window may reach beyond the padding.
                let out = |size: usize, axis: usize| {
                    (size + pad[axis] + pad[axis + 2] - (kernel[axis] - 1) * dilation[axis] - 1).div_ceil(stride[axis])
                        + 1
                };
                let starts_inside = |n: usize, size: usize, axis: usize| (n - 1) * stride[axis] < size + pad[axis];
                let [p, q] = [(h, 0), (w, 1)].map(|(size, axis)| {
                    let n = out(size, axis);
                    if starts_inside(n, size, axis) { n } else { n - 1 }
                });
                let [r, s] = kernel;
                let desc = Pool { kind, n: 1, h, w, c, r, s, p, q, stride, pad, dilation };
                cases.push(Case::new(Op::Pool(desc), &[x(&[1, h, w, c])], &[1, p, q, c], SUMS));
            }
        }
    }
    cases
}

/// Functions over whole axes.
pub fn reductions() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in [ReduceKind::Mean, ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min] {
        for (dims, axes) in [
            (vec![1, 7, 7, 70], vec![1, 2]),
            (vec![1, 112, 112, 3], vec![1, 2]),
            (vec![2, 3, 4, 5], vec![1, 3]),
            (vec![2, 3, 4, 5], vec![3]),
            (vec![2, 3, 4, 5], vec![2]),
            (vec![2, 3, 4, 5], vec![1, 2, 3]),
            (vec![1, 5000], vec![1]),
            (vec![1, 3, 2, 2, 2, 2, 2, 2], vec![1, 4, 6]),
            (vec![2, 1, 1, 4], vec![1, 2]),
            (vec![2, 5], vec![]),
        ] {
            let output: Vec<usize> = (0..dims.len()).map(|i| if axes.contains(&i) { 1 } else { dims[i] }).collect();
            cases.push(Case::new(Op::Reduce { kind, axes }, &[x(&dims)], &output, SUMS));
        }
        let case = Case::new(Op::Reduce { kind, axes: vec![0, 2] }, &[x(&[4, 3, 5])], &[1, 3, 1], SUMS);
        cases.push(case.fixed());
    }
    for select_last in [false, true] {
        for (dims, axis) in [(vec![1, 9], 1), (vec![2, 6, 5], 1), (vec![1, 4, 4, 21], 3), (vec![3, 1], 1)] {
            let mut output = dims.clone();
            output[axis] = 1;
            // Few values, so that there are ties.
            let ties = x(&dims).from(-2.0, 2.0).whole();
            cases.push(Case::new(Op::ArgMax { axis, select_last }, &[ties], &output, 0.0));
        }
    }
    cases
}

/// Functions of one tensor.
pub fn unary_functions() -> Vec<Case> {
    let (wide, positive) = ((-12.0, 12.0), (1e-3, 50.0));
    let functions = [
        (Unary::Relu, wide),
        (Unary::Clip { min: -1.5, max: 6.0 }, wide),
        (Unary::LeakyRelu { alpha: 0.1 }, wide),
        (Unary::LeakyRelu { alpha: -0.5 }, wide),
        (Unary::Elu { alpha: 1.3 }, wide),
        (Unary::Sigmoid, (-90.0, 90.0)),
        (Unary::HardSigmoid { alpha: 0.2, beta: 0.5 }, wide),
        (Unary::HardSwish, wide),
        (Unary::Silu, wide),
        (Unary::Tanh, wide),
        (Unary::Gelu { tanh: false }, wide),
        (Unary::Gelu { tanh: true }, wide),
        (Unary::Mish, wide),
        (Unary::Softplus, (-90.0, 90.0)),
        (Unary::Erf, (-6.0, 6.0)),
        (Unary::Exp, wide),
        (Unary::Log, positive),
        (Unary::Sqrt, positive),
        (Unary::Reciprocal, positive),
        (Unary::Abs, wide),
        (Unary::Neg, wide),
        (Unary::Floor, wide),
        (Unary::Ceil, wide),
        (Unary::Round, wide),
    ];
    let mut cases = Vec::new();
    for (f, (low, high)) in functions {
        for len in [1, 7, 64, 100, 9000] {
            cases.push(Case::new(Op::Unary(f), &[x(&[1, len]).from(low, high)], &[1, len], POINTWISE));
        }
    }
    // Halves.
    for f in [Unary::Floor, Unary::Ceil, Unary::Round, Unary::Relu, Unary::Neg] {
        cases.push(Case::new(Op::Unary(f), &[x(&[1, 50]).from(-9.0, 9.0).whole()], &[1, 50], 0.0));
    }
    cases
}

/// Functions of two tensors, broadcast.
pub fn binary_functions() -> Vec<Case> {
    use BinaryKind::{Add, Div, Max, Min, Mul, PRelu, Pow, Sub};
    let mut cases = Vec::new();
    for kind in [Add, Sub, Mul, Div, Min, Max, Pow, PRelu] {
        for (a, b, output) in [
            (vec![1, 5, 6, 7], vec![1, 5, 6, 7], vec![1, 5, 6, 7]),
            (vec![1, 5, 6, 20], vec![20], vec![1, 5, 6, 20]),
            (vec![1, 5, 6, 20], vec![1], vec![1, 5, 6, 20]),
            (vec![20], vec![1, 5, 6, 20], vec![1, 5, 6, 20]),
            (vec![1], vec![1, 3, 3], vec![1, 3, 3]),
            (vec![1, 5, 1, 7], vec![1, 1, 6, 1], vec![1, 5, 6, 7]),
            (vec![1, 1, 6, 1], vec![5, 1, 7], vec![1, 5, 6, 7]),
            (vec![1, 1, 1, 40], vec![1, 9, 9, 40], vec![1, 9, 9, 40]),
            (vec![1, 9, 9, 1], vec![1, 9, 9, 40], vec![1, 9, 9, 40]),
            (vec![1, 100, 100], vec![100, 1], vec![1, 100, 100]),
        ] {
            let (low, high) = if kind == Pow { (0.1, 3.0) } else { (-2.0, 2.0) };
            let (low_b, high_b) = if kind == Div { (0.5, 3.0) } else { (-2.0, 2.0) };
            for activation in [None, Some(Unary::Relu)] {
                let op = Op::Binary { kind, activation };
                let operands = [x(&a).from(low, high), x(&b).from(low_b, high_b)];
                let case = Case::new(op, &operands, &output, POINTWISE);
                cases.push(if a == b { case } else { case.fixed() });
            }
        }
        // A constant on either side, a whole power.
        let (low, high) = if kind == Pow { (1.0, 3.0) } else { (0.5, 3.0) };
        let op = Op::Binary { kind, activation: None };
        cases.push(Case::new(op.clone(), &[x(&[1, 4, 5]), w(&[5]).from(low, high).whole()], &[1, 4, 5], POINTWISE));
        let base = w(&[4, 1]).from(0.5, 3.0);
        cases.push(Case::new(op, &[base, x(&[1, 4, 5]).from(0.5, 2.0)], &[1, 4, 5], POINTWISE));
    }
    for (dims, axis) in [(vec![1, 5, 6, 21], 3), (vec![1, 8, 5, 6], 1), (vec![3, 4], 1), (vec![1, 1, 7], 1)] {
        let channels = dims[axis];
        let inputs = [x(&dims), w(&[channels]), w(&[channels])];
        cases.push(Case::new(Op::ScaleShift { axis }, &inputs, &dims, POINTWISE));
    }
    cases
}

/// Softmax and layer normalisation.
pub fn normalisations() -> Vec<Case> {
    let mut cases = Vec::new();
    for (dims, axis) in [
        (vec![1, 1000], 1),
        (vec![2, 7], 1),
        (vec![1, 3, 5, 21], 3),
        (vec![1, 21, 5, 30], 1),
        (vec![1, 4, 130], 1),
        (vec![1, 1, 9], 1),
    ] {
        for log in [false, true] {
            let wide = x(&dims).from(-20.0, 20.0);
            cases.push(Case::new(Op::Softmax { axis, log }, &[wide], &dims, SUMS));
        }
        let inner = dims[axis..].to_vec();
        let op = Op::LayerNorm { axis, epsilon: 1e-5 };
        cases.push(Case::new(op, &[x(&dims).from(-3.0, 5.0), w(&inner), w(&inner)], &dims, SUMS));
    }
    cases.push(Case::new(Op::Softmax { axis: 0, log: false }, &[x(&[6, 3])], &[6, 3], SUMS).fixed());
    cases
}

/// Resizes.
pub fn resizes() -> Vec<Case> {
    use Coordinates::{
        AlignCorners, Asymmetric, HalfPixel, HalfPixelSymmetric, PytorchHalfPixel, TfCropAndResize, TfHalfPixelForNn,
    };
    use NearestRounding::{Ceil, Floor, RoundPreferCeil, RoundPreferFloor};
    let mut cases = Vec::new();
    let nearest = [RoundPreferFloor, RoundPreferCeil, Floor, Ceil].map(ResizeMode::Nearest);
    for mode in nearest.into_iter().chain([ResizeMode::Linear]) {
        let crop = |start, end| TfCropAndResize(Crop { start, end, outside: -7.0 });
        for coordinates in [
            HalfPixel,
            HalfPixelSymmetric,
            PytorchHalfPixel,
            AlignCorners,
            Asymmetric,
            TfHalfPixelForNn,
            crop([0.0, 0.0], [1.0, 1.0]),
            crop([0.25, -0.5], [0.75, 1.5]),
            crop([-0.3, 1.2], [1.3, -0.2]),
            crop([2.0, 0.0], [3.0, 1.0]),
        ] {
            for ([h, w], [p, q], scale) in [
                ([5, 6], [10, 12], None),
                ([10, 12], [5, 6], None),
                ([5, 6], [7, 15], None),
                ([9, 4], [4, 9], None),
                ([3, 3], [1, 1], None),
                ([1, 1], [4, 3], None),
                ([5, 5], [8, 8], Some([1.7, 1.7])),
                ([6, 6], [6, 6], None),
            ] {
                let scale = scale.unwrap_or([p as f32 / h as f32, q as f32 / w as f32]);
                for c in [1, 5, 40] {
                    let desc = Resize { n: 1, h, w, c, p, q, scale, mode, coordinates };
                    let tolerance = if mode == ResizeMode::Linear { POINTWISE } else { 0.0 };
                    cases.push(Case::new(Op::Resize(desc), &[x(&[1, h, w, c])], &[1, p, q, c], tolerance));
                }
            }
        }
    }
    cases
}

/// Operators that only move elements.
pub fn movements() -> Vec<Case> {
    let mut cases = Vec::new();
    for (parts, rest, axis) in [
        (vec![3, 5, 1], vec![1, 4, 6], 3),
        (vec![2, 2], vec![1, 3, 4], 1),
        (vec![7], vec![2, 3], 2),
        (vec![1, 9], vec![2], 1),
    ] {
        let with = |n: usize| {
            let mut dims = rest.clone();
            dims.insert(axis, n);
            dims
        };
        let inputs: Vec<_> = parts.iter().map(|&n| x(&with(n))).collect();
        cases.push(Case::new(Op::Concat { axis }, &inputs, &with(parts.iter().sum()), 0.0));
    }
    cases.push(Case::new(Op::Concat { axis: 0 }, &[x(&[2, 3]), x(&[1, 3])], &[3, 3], 0.0).fixed());
    for (dims, start, step, output) in [
        (vec![1, 6, 7, 8], vec![0, 1, 2, 3], vec![1, 1, 1, 1], vec![1, 4, 3, 5]),
        (vec![1, 6, 7, 8], vec![0, 0, 0, 0], vec![1, 2, 2, 1], vec![1, 3, 4, 8]),
        (vec![1, 6, 7, 8], vec![0, 5, 6, 7], vec![1, -1, -2, -3], vec![1, 6, 4, 3]),
        (vec![1, 6, 7], vec![0, 0, 0], vec![1, 1, 1], vec![1, 6, 7]),
        (vec![1, 9], vec![0, 8], vec![1, -1], vec![1, 9]),
        (vec![1, 9], vec![0, 4], vec![1, 7], vec![1, 1]),
    ] {
        cases.push(Case::new(Op::Slice { start, step }, &[x(&dims)], &output, 0.0));
    }
    cases.push(Case::new(Op::Slice { start: vec![3, 0], step: vec![-2, 1] }, &[x(&[4, 2])], &[2, 2], 0.0).fixed());
    for mode in [PadMode::Constant(0.0), PadMode::Constant(-7.5), PadMode::Reflect, PadMode::Edge] {
        for (dims, before, output) in [
            (vec![1, 4, 5, 3], vec![0, 1, 2, 0], vec![1, 7, 9, 3]),
            (vec![1, 4, 5, 3], vec![0, 0, 0, 2], vec![1, 4, 5, 5]),
            (vec![1, 4, 5, 3], vec![0, 3, 0, 1], vec![1, 10, 6, 5]),
            (vec![1, 4, 5, 3], vec![0, 0, 0, 0], vec![1, 4, 5, 3]),
            (vec![1, 7], vec![0, 6], vec![1, 19]),
        ] {
            cases.push(Case::new(Op::Pad { before, mode }, &[x(&dims)], &output, 0.0));
        }
        let case = Case::new(Op::Pad { before: vec![1, 0], mode }, &[x(&[3, 2])], &[6, 2], 0.0);
        cases.push(case.fixed());
    }
    for (dims, perm) in [
        (vec![1, 3, 20, 21], vec![0, 2, 3, 1]),
        (vec![1, 20, 21, 3], vec![0, 3, 1, 2]),
        (vec![1, 40, 17, 33], vec![0, 2, 3, 1]),
        (vec![1, 5, 6, 7], vec![0, 1, 2, 3]),
        (vec![1, 5, 6, 7], vec![0, 2, 1, 3]),
        (vec![1, 5, 6, 7], vec![0, 3, 2, 1]),
        (vec![1, 2, 3, 2, 3, 2, 3, 2], vec![0, 7, 2, 5, 4, 3, 6, 1]),
        (vec![1, 7], vec![0, 1]),
    ] {
        let output: Vec<usize> = perm.iter().map(|&axis| dims[axis]).collect();
        cases.push(Case::new(Op::Transpose { perm }, &[x(&dims)], &output, 0.0));
    }
    cases.push(Case::new(Op::Transpose { perm: vec![1, 0] }, &[x(&[35, 18])], &[18, 35], 0.0).fixed());
    cases.push(Case::new(Op::Reshape, &[x(&[1, 4, 6])], &[1, 3, 8], 0.0));
    cases
}

/// Conversions between element types.
pub fn conversions() -> Vec<Case> {
    let mut cases = Vec::new();
    for (dims, axis, scales) in
        [(vec![1, 4, 5, 6], 3, 6), (vec![1, 4, 5, 6], 1, 4), (vec![1, 4, 5, 6], 0, 1), (vec![2, 1], 1, 1)]
    {
        for (low, high) in [(-128.0, 127.0), (0.0, 255.0)] {
            // Whole scales of whole numbers over 4: exact quotients, among them halves.
            let inputs = [
                x(&dims).from(-400.0, 400.0).whole(),
                w(&[scales]).from(2.0, 2.0),
                w(&[scales]).from(low, high / 2.0).whole(),
            ];
            let quantize = Op::Quantize { axis, low, high };
            cases.push(Case::new(quantize, &inputs, &dims, 0.0));
            let inputs =
                [x(&dims).from(low, high).whole(), w(&[scales]).from(0.01, 0.1), w(&[scales]).from(low, high).whole()];
            cases.push(Case::new(Op::Dequantize { axis }, &inputs, &dims, POINTWISE));
        }
    }
    for integer_range in [None, Some((-128.0, 127.0)), Some((0.0, 255.0)), Some((0.0, 1.0))] {
        cases.push(Case::new(Op::Cast { integer_range }, &[x(&[1, 300]).from(-300.0, 300.0)], &[1, 300], 0.0));
    }
    cases
}
