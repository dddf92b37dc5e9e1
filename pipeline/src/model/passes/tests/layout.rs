//! What the pass `layout` makes of typical networks.

use ocellus_kernels::op::{BinaryKind, Op, ReduceKind, Unary};
use ocellus_kernels::tensor::Layout;

use super::super::testing::Builder;
use super::{check, names};
use crate::model::graph::ValueId;

#[test]
fn layout_of_a_plain_network_needs_no_transpose() {
    let mut b = Builder::new(16);
    let x = b.input(&[2, 3, 6, 6]);
    let y = b.conv(x, 8, 3, 1, true);
    let left = b.conv(y, 4, 1, 1, false);
    let right = b.conv(y, 4, 3, 1, true);
    let y = b.node(Op::Concat { axis: 1 }, &[left, right], &[2, 8, 6, 6]);
    let y = b.node(Op::Slice { start: vec![0, 2, 1, 0], step: vec![1, 1, 2, 1] }, &[y], &[2, 5, 3, 6]);
    let slope = b.weights(&[5, 1, 1]);
    let y = b.binary(BinaryKind::PRelu, y, slope);
    let y = b.node(Op::Reduce { kind: ReduceKind::Mean, axes: vec![2, 3] }, &[y], &[2, 5, 1, 1]);
    let y = b.reshape(y, &[2, 5]);
    let y = b.gemm(y, 7);
    let y = b.node(Op::Softmax { axis: 1, log: false }, &[y], &[2, 7]);
    let done = check("plain", &b.build(&[y]));
    assert!(!names(&done).contains(&"Transpose"), "{:?}", names(&done));
    assert_eq!(done.input_layouts, [Some(Layout::Nhwc)]);
    assert_eq!(done.dims(done.inputs[0]), [2, 6, 6, 3]);
}

#[test]
fn layout_of_reshapes() {
    // Channel shuffle: the file transposes once, and so does the engine, rows and columns staying where they are.
    let mut b = Builder::new(17);
    let x = b.input(&[2, 3, 4, 5]);
    let y = b.conv(x, 6, 1, 1, false);
    let y = b.reshape(y, &[2, 2, 3, 4, 5]);
    let y = b.transpose(y, &[0, 2, 1, 3, 4]);
    let y = b.reshape(y, &[2, 6, 4, 5]);
    let y = b.conv(y, 4, 3, 2, true);
    let y = b.node(Op::Reduce { kind: ReduceKind::Mean, axes: vec![2, 3] }, &[y], &[2, 4, 1, 1]);
    let done = check("channel shuffle", &b.build(&[y]));
    let transposes: Vec<_> = done.nodes.iter().filter(|n| n.op.name() == "Transpose").collect();
    assert_eq!(transposes.len(), 1, "{:?}", names(&done));
    assert_eq!(transposes[0].op, Op::Transpose { perm: vec![0, 1, 2, 4, 3] });

    // A detector's head: pixels become rows of a table, which the engine's order has already.
    let mut b = Builder::new(18);
    let x = b.input(&[2, 3, 4, 5]);
    let y = b.conv(x, 6, 1, 1, false);
    let y = b.reshape(y, &[2, 6, 20]);
    let y = b.transpose(y, &[0, 2, 1]);
    let y = b.gemm(y, 4);
    let done = check("head", &b.build(&[y]));
    assert!(!names(&done).contains(&"Transpose"), "{:?}", names(&done));

    // Channels and rows mix: one transpose back to the file's order.
    let mut b = Builder::new(19);
    let x = b.input(&[2, 3, 4, 5]);
    let y = b.conv(x, 6, 1, 1, false);
    let y = b.reshape(y, &[2, 8, 15]);
    let y = b.unary(Unary::Relu, y);
    let done = check("mixing", &b.build(&[y]));
    assert_eq!(names(&done).iter().filter(|n| **n == "Transpose").count(), 1);
}

#[test]
fn layout_of_a_file_with_channels_last() {
    let mut b = Builder::new(20);
    let x = b.input(&[2, 6, 6, 3]);
    let y = b.transpose(x, &[0, 3, 1, 2]);
    let y = b.conv(y, 4, 3, 1, true);
    let y = b.transpose(y, &[0, 2, 3, 1]);
    let c = b.weights(&[4]);
    let y = b.binary(BinaryKind::Mul, y, c);
    let done = check("channels last", &b.build(&[y]));
    assert_eq!(done.input_layouts, [Some(Layout::Nhwc)]);
    assert!(!names(&done).contains(&"Transpose"), "{:?}", names(&done));
}

#[test]
fn layout_of_a_file_with_channels_last_and_arithmetic_first() {
    // (x - mean) / std on [N, H, W, C], one node or several of any kind that takes any order, then the transpose.
    type Step = fn(&mut Builder, ValueId) -> ValueId;
    let steps: [(&str, Step); 5] = [
        ("scale", |b, x| {
            let c = b.weights(&[3]);
            b.binary(BinaryKind::Mul, x, c)
        }),
        ("shift by a scalar", |b, x| {
            let c = b.scalar(0.5);
            b.binary(BinaryKind::Sub, x, c)
        }),
        ("unary", |b, x| b.unary(Unary::Tanh, x)),
        ("pad", |b, x| b.pad(x, &[0, 1, 1, 0], &[0, 1, 1, 0], 0.0)),
        ("reversed channels", |b, x| {
            let dims = b.graph.dims(x).to_vec();
            b.node(Op::Slice { start: vec![0, 0, 0, 2], step: vec![1, 1, 1, -1] }, &[x], &dims)
        }),
    ];
    for first in steps {
        for second in steps {
            let mut b = Builder::new(21);
            let x = b.input(&[2, 6, 7, 3]);
            let y = first.1(&mut b, x);
            let y = second.1(&mut b, y);
            let y = b.transpose(y, &[0, 3, 1, 2]);
            let y = b.conv(y, 4, 3, 1, true);
            let y = b.node(Op::Reduce { kind: ReduceKind::Mean, axes: vec![2, 3] }, &[y], &[2, 4, 1, 1]);
            let what = format!("{}, {}", first.0, second.0);
            let done = check(&what, &b.build(&[y]));
            assert_eq!(done.input_layouts, [Some(Layout::Nhwc)], "{what}");
            assert_eq!(done.dims(done.inputs[0]), [2, 6, 7, 3], "{what}");
            assert!(!names(&done).contains(&"Transpose"), "{what}: {:?}", names(&done));
        }
    }
}
