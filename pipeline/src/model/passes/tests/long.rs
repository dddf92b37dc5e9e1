//! Chains as long as the import lets through: the passes must neither take hours nor copy a chain for each of its links.

use std::time::{Duration, Instant};

use ocellus_kernels::op::{BinaryKind, Op, Unary};

use super::super::testing::Builder;
use super::super::{MAX_FUSED, optimise};
use crate::model::graph::ValueId;
use crate::model::plan::plan;

const LINKS: usize = 1 << 14;

/// Appends the link of this number to a chain.
type Link = fn(&mut Builder, ValueId, usize) -> ValueId;

/// Links that passes merge, remove or leave alone, over an image [1, 4, 2, 2].
const CHAINS: [(&str, Link); 10] = [
    ("relu", |b, x, _| b.unary(Unary::Relu, x)),
    ("tanh", |b, x, _| b.unary(Unary::Tanh, x)),
    ("transpose", |b, x, _| b.transpose(x, &[0, 1, 3, 2])),
    ("reshape", |b, x, i| b.reshape(x, [&[1, 4, 2, 2][..], &[1, 4, 4]][i % 2])),
    ("reshape without effect", |b, x, _| b.reshape(x, &[1, 4, 2, 2])),
    ("scale", |b, x, _| {
        let c = b.scalar(1.0);
        b.binary(BinaryKind::Mul, x, c)
    }),
    ("minimum", |b, x, _| {
        let c = b.scalar(1.0);
        b.binary(BinaryKind::Min, x, c)
    }),
    ("square", |b, x, _| b.binary(BinaryKind::Mul, x, x)),
    ("pad", |b, x, _| b.pad(x, &[0; 4], &[0; 4], 0.0)),
    ("silu", |b, x, i| {
        if i % 2 == 0 {
            return b.unary(Unary::Sigmoid, x);
        }
        let before = b.graph.nodes[b.graph.nodes.len() - 1].inputs[0];
        b.binary(BinaryKind::Mul, before, x)
    }),
];

/// Optimises and plans; fails where it takes longer than any reasonable machine needs.
fn bounded(what: &str, b: Builder, y: ValueId) {
    let started = Instant::now();
    let graph = optimise(b.build(&[y]), usize::MAX);
    assert!(plan(&graph).is_ok(), "{what}");
    assert!(started.elapsed() < Duration::from_secs(20), "{what} took {:?}", started.elapsed());
    let fused = graph.nodes.iter().map(|n| n.fused.len()).max().unwrap_or(0);
    assert!(fused <= MAX_FUSED, "{what}: {fused} nodes in one");
}

#[test]
fn long_chains_take_no_hours() {
    for (what, link) in CHAINS {
        let mut b = Builder::new(1);
        let mut x = b.input(&[1, 4, 2, 2]);
        for i in 0..LINKS {
            x = link(&mut b, x, i);
        }
        bounded(what, b, x);
    }
}

#[test]
fn long_chains_around_a_convolution_take_no_hours() {
    for (what, link) in CHAINS {
        // A chain before, one behind, and one that nobody reads.
        let mut b = Builder::new(2);
        let input = b.input(&[1, 4, 2, 2]);
        let chain = |b: &mut Builder, mut x: ValueId| {
            for i in 0..LINKS / 4 {
                x = link(b, x, i);
            }
            b.reshape(x, &[1, 4, 2, 2])
        };
        let x = chain(&mut b, input);
        let y = b.conv(x, 4, 1, 1, false);
        let _dead = chain(&mut b, y);
        let y = chain(&mut b, y);
        bounded(what, b, y);
    }
}

#[test]
fn replaced_weights_are_let_go() {
    let mut b = Builder::new(3);
    let x = b.input(&[1, 4, 2, 2]);
    let mut y = b.conv(x, 8, 1, 1, false);
    for _ in 0..10 {
        let c = b.weights(&[8, 1, 1]);
        y = b.binary(BinaryKind::Mul, y, c);
    }
    let graph = optimise(b.build(&[y]), usize::MAX);
    assert_eq!(graph.nodes.iter().filter(|n| matches!(n.op, Op::Conv(_))).count(), 1);
    let held: usize = graph.values.iter().filter_map(|v| v.constant.as_ref()).map(|c| c.data.len()).sum();
    let read: usize =
        graph.nodes.iter().flat_map(|n| &n.inputs).filter_map(|&id| graph.constant(id)).map(|c| c.data.len()).sum();
    // The file's weights in its own order may stay beside those in the engine's.
    assert!(held <= 2 * read, "{held} elements are held, {read} read");
}
