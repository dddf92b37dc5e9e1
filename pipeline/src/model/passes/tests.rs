//! Every pass leaves the network's values as they are, and does what it is there for.

use ocellus_kernels::op::{BinaryKind, Op, PoolKind, Unary};
use ocellus_kernels::tensor::elements;

use super::testing::{Builder, interpret};
use super::{PASSES, Rewrite, optimise, sweep};
use crate::model::graph::{Graph, ValueId};

mod layout;
mod long;
mod random;

/// Seeded inputs of these dimensions in the file's order, moved to the order of the graph's inputs.
fn inputs(graph: &Graph, dims: &[Vec<usize>]) -> Vec<Vec<f32>> {
    let mut random = super::testing::Random(7);
    let ordered = dims.iter().zip(&graph.inputs).map(|(dims, &id)| {
        let data: Vec<f32> = random.floats(elements(dims)).iter().map(|x| 2.0 * x).collect();
        if graph.dims(id) == dims {
            return data;
        }
        let (c, pixels) = (dims[1], dims[2] * dims[3]);
        let at = |i: usize| data[i / (c * pixels) * c * pixels + i % c * pixels + i / c % pixels];
        (0..data.len()).map(at).collect()
    });
    ordered.collect()
}

/// The graph's outputs for those inputs; `channels_last` for a graph after `layout`.
fn outputs(graph: &Graph, dims: &[Vec<usize>], channels_last: bool) -> Vec<Vec<f64>> {
    interpret(graph, &inputs(graph, dims), channels_last)
}

fn input_dims(graph: &Graph) -> Vec<Vec<usize>> {
    graph.inputs.iter().map(|&id| graph.dims(id).to_vec()).collect()
}

fn assert_close(what: &str, before: &[Vec<f64>], after: &[Vec<f64>]) {
    assert_eq!(before.len(), after.len(), "{what}");
    for (x, y) in before.iter().flatten().zip(after.iter().flatten()) {
        assert!((x - y).abs() <= 1e-4 * (1.0 + x.abs()), "{what}: {x} became {y}");
    }
    assert!(before.iter().flatten().any(|&x| x != 0.0), "{what}: all zero");
}

/// Applies each pass before `layout` by itself and in the list's order, then the whole list; values must stay.
/// Returns the optimised graph.
fn check(what: &str, graph: &Graph) -> Graph {
    let dims = input_dims(graph);
    let expected = outputs(graph, &dims, false);
    let mut stepwise = graph.clone();
    for pass in PASSES {
        let Rewrite::Node(find) = pass.rewrite else { break };
        let mut alone = graph.clone();
        sweep(&mut alone, pass.name, find, usize::MAX);
        assert_close(&format!("{what}, {} alone", pass.name), &expected, &outputs(&alone, &dims, false));
        sweep(&mut stepwise, pass.name, find, usize::MAX);
        assert_close(&format!("{what}, up to {}", pass.name), &expected, &outputs(&stepwise, &dims, false));
    }
    for limit in 0..40 {
        let limited = optimise(graph.clone(), limit);
        assert_close(&format!("{what}, {limit} patches"), &expected, &outputs(&limited, &dims, true));
    }
    let done = optimise(graph.clone(), usize::MAX);
    assert_close(&format!("{what}, all"), &expected, &outputs(&done, &dims, true));
    for (before, after) in graph.outputs.iter().zip(&done.outputs) {
        assert_eq!(graph.value(*before).name, done.value(*after).name, "{what}: outputs keep their names");
        assert_eq!(graph.dims(*before), done.dims(*after), "{what}: outputs keep their shapes");
    }
    done
}

fn names(graph: &Graph) -> Vec<&'static str> {
    graph.nodes.iter().map(|n| n.op.name()).collect()
}

fn scale_shift(b: &mut Builder, x: ValueId, axis: usize) -> ValueId {
    let dims = b.graph.dims(x).to_vec();
    let (scale, shift) = (b.weights(&[dims[axis]]), b.weights(&[dims[axis]]));
    b.node(Op::ScaleShift { axis }, &[x, scale, shift], &dims)
}

#[test]
fn batch_norm_after_conv_and_gemm() {
    for groups in [1, 2, 4] {
        let mut b = Builder::new(1);
        let x = b.input(&[2, 4, 5, 6]);
        let y = b.conv(x, 8, 3, groups, true);
        let y = scale_shift(&mut b, y, 1);
        let c = b.weights(&[8, 1, 1]);
        let y = b.binary(BinaryKind::Mul, y, c);
        let c = b.weights(&[1, 8, 1, 1]);
        let y = b.binary(BinaryKind::Sub, c, y);
        let y = b.unary(Unary::Relu, y);
        let done = check("conv, batch norm, mul, sub, relu", &b.build(&[y]));
        assert_eq!(done.nodes.iter().filter(|n| matches!(n.op, Op::Conv(_))).count(), 1);
        assert!(done.nodes.iter().all(|n| matches!(n.op, Op::Conv(_) | Op::Transpose { .. })), "{:?}", names(&done));
        let fused = &done.nodes[0].fused;
        assert_eq!(fused.len(), 4, "{fused:?}");
        assert!(fused[0].starts_with("batch-norm: ScaleShift") && fused[3].starts_with("activation: Unary"));
    }
    let mut b = Builder::new(2);
    let x = b.input(&[2, 6]);
    let y = b.gemm(x, 5);
    let c = b.weights(&[5]);
    let y = b.binary(BinaryKind::Add, y, c);
    let y = scale_shift(&mut b, y, 1);
    let done = check("gemm, bias, batch norm", &b.build(&[y]));
    assert_eq!(names(&done), ["Gemm"]);
}

#[test]
fn a_constant_that_varies_along_another_axis_is_no_batch_norm() {
    // [W] and [N, 1, 1, 1] look like a channel vector where the lengths happen to agree.
    for dims in [&[4][..], &[1, 1, 4, 1], &[4, 1, 1, 1], &[1, 4, 4, 4]] {
        let mut b = Builder::new(3);
        b.graph.batch = 4;
        let x = b.input(&[4, 2, 4, 4]);
        let y = b.conv(x, 4, 3, 1, true);
        let c = b.weights(dims);
        let y = b.binary(BinaryKind::Mul, y, c);
        let done = check("conv, mul", &b.build(&[y]));
        assert!(names(&done).contains(&"Binary"), "{dims:?}");
    }
}

#[test]
fn scale_before_conv() {
    for (padded, shifted, folds) in [(false, true, true), (true, true, false), (true, false, true)] {
        for groups in [1, 2] {
            let mut b = Builder::new(4);
            let x = b.input(&[2, 4, 5, 5]);
            let y = if shifted {
                scale_shift(&mut b, x, 1)
            } else {
                let c = b.weights(&[4, 1, 1]);
                b.binary(BinaryKind::Div, x, c)
            };
            let y = b.conv(y, 6, 3, groups, padded);
            let done = check("scale, conv", &b.build(&[y]));
            let left = names(&done).iter().any(|n| ["Binary", "ScaleShift"].contains(n));
            assert_eq!(left, !folds, "padded {padded}, shifted {shifted}: {:?}", names(&done));
        }
    }
}

#[test]
fn padding_into_conv_and_pools() {
    type Window = fn(&mut Builder, ValueId) -> ValueId;
    let cases: [(&str, f32, bool, Window); 8] = [
        ("conv", 0.0, true, |b, x| b.conv(x, 4, 3, 1, true)),
        ("conv", 1.0, false, |b, x| b.conv(x, 4, 3, 1, true)),
        ("average", 0.0, true, |b, x| b.pool(PoolKind::Average, x, 3, 0)),
        ("average with padding of its own", 0.0, false, |b, x| b.pool(PoolKind::Average, x, 3, 1)),
        ("padded average", 0.0, true, |b, x| b.pool(PoolKind::AveragePadded, x, 3, 1)),
        ("max of any sign", 0.0, false, |b, x| b.pool(PoolKind::Max, x, 4, 0)),
        ("max", f32::NEG_INFINITY, true, |b, x| b.pool(PoolKind::Max, x, 4, 0)),
        ("max with windows in the padding", f32::MIN, false, |b, x| b.pool(PoolKind::Max, x, 2, 0)),
    ];
    for (what, fill, folds, window) in cases {
        let mut b = Builder::new(5);
        let x = b.input(&[2, 3, 5, 6]);
        let y = b.pad(x, &[0, 0, 1, 2], &[0, 0, 2, 0], fill);
        let y = window(&mut b, y);
        let graph = b.build(&[y]);
        let finite = |v: &[Vec<f64>]| v.iter().flatten().all(|x| x.is_finite());
        if finite(&outputs(&graph, &input_dims(&graph), false)) {
            let done = check(what, &graph);
            assert_eq!(names(&done).contains(&"Pad"), !folds, "{what}: {:?}", names(&done));
        }
    }
    // Zeros never win against what is not negative.
    for (function, folds) in [
        (Unary::Relu, true),
        (Unary::Sigmoid, true),
        (Unary::Clip { min: 0.0, max: 6.0 }, true),
        (Unary::Clip { min: -1.0, max: 6.0 }, false),
        (Unary::Clip { min: 0.5, max: -0.5 }, false),
        (Unary::Tanh, false),
    ] {
        let mut b = Builder::new(6);
        let x = b.input(&[2, 3, 5, 6]);
        let y = b.unary(function, x);
        let y = b.pad(y, &[0, 0, 1, 1], &[0, 0, 1, 1], 0.0);
        let y = b.pool(PoolKind::Max, y, 3, 0);
        let done = check(&format!("{function:?}, pad, max"), &b.build(&[y]));
        assert_eq!(names(&done).contains(&"Pad"), !folds, "{function:?}");
    }
}

#[test]
fn residual_and_activation() {
    let mut b = Builder::new(7);
    let x = b.input(&[2, 4, 5, 5]);
    let first = b.conv(x, 4, 3, 1, true);
    let second = b.conv(x, 4, 1, 1, true);
    // The first product comes before the other operand and must move behind it.
    let other = b.unary(Unary::Sigmoid, second);
    let y = b.binary(BinaryKind::Add, first, other);
    let y = b.unary(Unary::Relu, y);
    let done = check("two convs, add, relu", &b.build(&[y]));
    assert_eq!(names(&done).iter().filter(|n| **n == "Conv").count(), 2);
    assert!(!names(&done).contains(&"Binary"), "{:?}", names(&done));

    let mut b = Builder::new(8);
    let x = b.input(&[2, 4, 5, 5]);
    let product = b.conv(x, 4, 3, 1, true);
    let y = b.binary(BinaryKind::Add, product, x);
    let done = check("a product with a second reader", &b.build(&[y, product]));
    assert!(names(&done).contains(&"Binary"));

    let mut b = Builder::new(9);
    let x = b.input(&[2, 4, 5, 5]);
    let product = b.conv(x, 4, 3, 1, true);
    let twice = b.binary(BinaryKind::Add, product, product);
    check("a product added to itself", &b.build(&[twice]));

    let mut b = Builder::new(10);
    let x = b.input(&[2, 4, 1, 1]);
    let product = b.conv(x, 4, 1, 1, true);
    let wide = b.input(&[2, 4, 3, 3]);
    let y = b.binary(BinaryKind::Add, product, wide);
    let done = check("a product that is broadcast", &b.build(&[y]));
    assert!(names(&done).contains(&"Binary"));

    let mut b = Builder::new(11);
    let x = b.input(&[2, 6]);
    let y = b.gemm(x, 6);
    let y = b.unary(Unary::Tanh, y);
    let y = b.binary(BinaryKind::Add, y, x);
    let done = check("an activation before the sum", &b.build(&[y]));
    assert_eq!(names(&done), ["Gemm", "Binary"]);
}

#[test]
fn activations_spelt_out() {
    type Spelling = fn(&mut Builder, ValueId) -> ValueId;
    let cases: [(Unary, Spelling); 13] = [
        (Unary::Silu, |b, x| {
            let g = b.unary(Unary::Sigmoid, x);
            b.binary(BinaryKind::Mul, x, g)
        }),
        (Unary::HardSwish, |b, x| {
            let g = b.unary(Unary::HardSigmoid { alpha: 1.0 / 6.0, beta: 0.5 }, x);
            b.binary(BinaryKind::Mul, g, x)
        }),
        (Unary::HardSigmoid { alpha: 1.0 / 6.0, beta: 0.5 }, |b, x| {
            let g = shifted_clip(b, x);
            let c = b.scalar(6.0);
            b.binary(BinaryKind::Div, g, c)
        }),
        (Unary::HardSwish, |b, x| {
            let g = shifted_clip(b, x);
            let y = b.binary(BinaryKind::Mul, x, g);
            let c = b.scalar(0.166_666_67);
            b.binary(BinaryKind::Mul, c, y)
        }),
        (Unary::HardSwish, |b, x| {
            let g = shifted_clip(b, x);
            let c = b.scalar(6.0);
            let g = b.binary(BinaryKind::Div, g, c);
            b.binary(BinaryKind::Mul, g, x)
        }),
        (Unary::Gelu { tanh: false }, |b, x| {
            let c = b.scalar(std::f32::consts::SQRT_2);
            let g = b.binary(BinaryKind::Div, x, c);
            let g = erf_gate(b, g);
            let y = b.binary(BinaryKind::Mul, x, g);
            let c = b.scalar(0.5);
            b.binary(BinaryKind::Mul, y, c)
        }),
        (Unary::Gelu { tanh: false }, |b, x| {
            let c = b.scalar(std::f32::consts::FRAC_1_SQRT_2);
            let g = b.binary(BinaryKind::Mul, c, x);
            let g = erf_gate(b, g);
            let c = b.scalar(0.5);
            let half = b.binary(BinaryKind::Mul, x, c);
            b.binary(BinaryKind::Mul, half, g)
        }),
        (Unary::Gelu { tanh: true }, |b, x| {
            let three = b.scalar(3.0);
            let cube = b.binary(BinaryKind::Pow, x, three);
            tanh_gelu(b, x, cube)
        }),
        (Unary::Gelu { tanh: true }, |b, x| {
            let square = b.binary(BinaryKind::Mul, x, x);
            let cube = b.binary(BinaryKind::Mul, square, x);
            tanh_gelu(b, x, cube)
        }),
        (Unary::Mish, |b, x| {
            let g = b.unary(Unary::Softplus, x);
            let g = b.unary(Unary::Tanh, g);
            b.binary(BinaryKind::Mul, x, g)
        }),
        (Unary::Clip { min: 0.0, max: 6.0 }, |b, x| {
            let (zero, six) = (b.scalar(0.0), b.scalar(6.0));
            let y = b.binary(BinaryKind::Max, zero, x);
            b.binary(BinaryKind::Min, y, six)
        }),
        (Unary::Clip { min: 0.5, max: 0.5 }, |b, x| {
            let y = b.unary(Unary::Clip { min: -1.0, max: 0.25 }, x);
            b.unary(Unary::Clip { min: 0.5, max: 2.0 }, y)
        }),
        (Unary::LeakyRelu { alpha: 0.25 }, |b, x| {
            let c = b.scalar(0.25);
            b.binary(BinaryKind::PRelu, x, c)
        }),
    ];
    for (function, spelling) in cases {
        let mut b = Builder::new(12);
        let x = b.input(&[2, 3, 2, 2]);
        let y = spelling(&mut b, x);
        let done = check(&format!("{function:?}"), &b.build(&[y]));
        let ops: Vec<_> = done.nodes.iter().map(|n| n.op.clone()).collect();
        assert_eq!(ops, [Op::Unary(function)], "{function:?}");
    }
}

fn shifted_clip(b: &mut Builder, x: ValueId) -> ValueId {
    let c = b.scalar(3.0);
    let y = b.binary(BinaryKind::Add, x, c);
    b.unary(Unary::Clip { min: 0.0, max: 6.0 }, y)
}

fn erf_gate(b: &mut Builder, x: ValueId) -> ValueId {
    let y = b.unary(Unary::Erf, x);
    let c = b.scalar(1.0);
    b.binary(BinaryKind::Add, y, c)
}

fn tanh_gelu(b: &mut Builder, x: ValueId, cube: ValueId) -> ValueId {
    let c = b.scalar(0.044_715);
    let y = b.binary(BinaryKind::Mul, cube, c);
    let y = b.binary(BinaryKind::Add, x, y);
    let c = b.scalar(0.797_884_6);
    let y = b.binary(BinaryKind::Mul, y, c);
    let y = b.unary(Unary::Tanh, y);
    let c = b.scalar(1.0);
    let y = b.binary(BinaryKind::Add, y, c);
    let c = b.scalar(0.5);
    let half = b.binary(BinaryKind::Mul, c, x);
    b.binary(BinaryKind::Mul, half, y)
}

#[test]
fn near_misses_stay() {
    type Spelling = fn(&mut Builder, ValueId, ValueId) -> ValueId;
    let cases: [(&str, Spelling); 6] = [
        ("a factor near 1", |b, x, _| {
            let g = b.unary(Unary::Sigmoid, x);
            let y = b.binary(BinaryKind::Mul, x, g);
            let c = b.scalar(1.000_02);
            b.binary(BinaryKind::Mul, y, c)
        }),
        ("another tensor's gate", |b, x, other| {
            let g = b.unary(Unary::Sigmoid, other);
            b.binary(BinaryKind::Mul, x, g)
        }),
        ("a factor", |b, x, _| {
            let g = b.unary(Unary::Sigmoid, x);
            let y = b.binary(BinaryKind::Mul, x, g);
            let c = b.scalar(1.001);
            b.binary(BinaryKind::Mul, y, c)
        }),
        ("another slope", |b, x, _| {
            let g = b.unary(Unary::HardSigmoid { alpha: 0.2, beta: 0.5 }, x);
            b.binary(BinaryKind::Mul, x, g)
        }),
        ("another shift", |b, x, _| {
            let c = b.scalar(2.5);
            let y = b.binary(BinaryKind::Add, x, c);
            let y = b.unary(Unary::Clip { min: 0.0, max: 6.0 }, y);
            let c = b.scalar(6.0);
            b.binary(BinaryKind::Div, y, c)
        }),
        ("a constant over x", |b, x, _| {
            let c = b.scalar(6.0);
            let y = shifted_clip(b, x);
            let one = b.scalar(1.0);
            let y = b.binary(BinaryKind::Add, y, one);
            b.binary(BinaryKind::Div, c, y)
        }),
    ];
    for (what, spelling) in cases {
        let mut b = Builder::new(13);
        let x = b.input(&[2, 3, 2, 2]);
        let other = b.input(&[2, 3, 2, 2]);
        let y = spelling(&mut b, x, other);
        let done = check(what, &b.build(&[y]));
        assert!(names(&done).contains(&"Binary"), "{what}: {:?}", names(&done));
    }
}

#[test]
fn nodes_without_effect_go_and_outputs_keep_their_names() {
    let mut b = Builder::new(14);
    let x = b.input(&[2, 3, 4, 4]);
    let y = b.reshape(x, &[2, 3, 4, 4]);
    let y = b.pad(y, &[0; 4], &[0; 4], 1.0);
    let _unread = b.unary(Unary::Tanh, y);
    let y = b.transpose(y, &[0, 1, 2, 3]);
    let y = b.conv(y, 4, 1, 1, false);
    let y = b.node(Op::Slice { start: vec![0; 4], step: vec![1; 4] }, &[y], &[2, 4, 4, 4]);
    let y = b.transpose(y, &[0, 2, 3, 1]);
    let done = check("no-ops", &b.build(&[y]));
    // The file's transpose of the output agrees with the engine's order: nothing moves.
    assert_eq!(names(&done), ["Conv"]);

    let mut b = Builder::new(15);
    let x = b.input(&[2, 3]);
    let y = b.reshape(x, &[2, 3]);
    let z = b.reshape(y, &[2, 3]);
    check("an input that is an output", &b.build(&[x, y, z]));
}
