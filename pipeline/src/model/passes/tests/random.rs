//! Random graphs of everything that the tests' loops can run.

use ocellus_kernels::cpu::CpuEngine;
use ocellus_kernels::engine::Engine;
use ocellus_kernels::op::{BinaryKind, Op, PoolKind, ReduceKind, Unary};
use ocellus_kernels::tensor::elements;

use super::super::optimise;
use super::super::testing::Builder;
use super::{assert_close, input_dims, inputs, outputs, scale_shift};
use crate::model::graph::Graph;
use crate::model::plan::plan;

/// Random graphs of everything the loops can run, in the file's order.
fn random_graph(seed: u64) -> Graph {
    let mut b = Builder::new(seed);
    let mut values = vec![b.input(&[2, 4, 3, 5]), b.input(&[2, 4, 3, 5])];
    for _ in 0..12 {
        let x = values[b.random.below(values.len())];
        let dims = b.graph.dims(x).to_vec();
        let axis = b.random.below(dims.len());
        let image = dims.len() == 4;
        let y = match b.random.below(14) {
            0 | 1 if image && dims[1].is_multiple_of(2) => {
                let groups = 1 + b.random.below(2);
                b.conv(x, 4, 3, groups, true)
            }
            2 if image => b.pool(PoolKind::Max, x, 3, 1),
            3 if image => scale_shift(&mut b, x, 1),
            4 => b.unary([Unary::Relu, Unary::Tanh, Unary::Sigmoid][axis % 3], x),
            5 | 6 => match values.iter().copied().find(|&v| v != x && b.graph.dims(v) == dims) {
                Some(other) => b.binary([BinaryKind::Add, BinaryKind::Mul][axis % 2], other, x),
                None => continue,
            },
            7 => {
                let mut shape = vec![1; 1 + b.random.below(dims.len())];
                let last = shape.len() - 1;
                shape[last] = dims[dims.len() - 1];
                let c = b.weights(&shape);
                b.binary([BinaryKind::Add, BinaryKind::Mul][axis % 2], x, c)
            }
            8 => {
                let mut perm: Vec<usize> = (0..dims.len()).collect();
                perm.swap(axis, dims.len() - 1);
                b.transpose(x, &perm)
            }
            9 => {
                let merged = axis.min(dims.len().saturating_sub(2));
                if dims.len() < 2 {
                    continue;
                }
                let shape = [&dims[..merged], &[dims[merged] * dims[merged + 1]], &dims[merged + 2..]].concat();
                b.reshape(x, &shape)
            }
            10 if dims[axis].is_multiple_of(2) && dims.len() < 6 => {
                let shape = [&dims[..axis], &[2, dims[axis] / 2], &dims[axis + 1..]].concat();
                b.reshape(x, &shape)
            }
            11 => {
                let mut grown = dims.clone();
                grown[axis] *= 2;
                if elements(&grown) > 4000 {
                    continue;
                }
                b.node(Op::Concat { axis }, &[x, x], &grown)
            }
            12 if dims[axis] > 1 => {
                let (mut start, mut step, mut cut) = (vec![0; dims.len()], vec![1; dims.len()], dims.clone());
                (start[axis], step[axis]) = (dims[axis] - 1, -1);
                cut[axis] -= 1;
                b.node(Op::Slice { start, step }, &[x], &cut)
            }
            13 => {
                let mut reduced = dims.clone();
                reduced[axis] = 1;
                b.node(Op::Reduce { kind: ReduceKind::Mean, axes: vec![axis] }, &[x], &reduced)
            }
            _ => continue,
        };
        values.push(y);
    }
    let outputs = [values[values.len() - 1], values[values.len() / 2]];
    // Some of these graphs mix the images of a batch.
    b.graph.batch = 1;
    b.build(&outputs)
}

#[test]
fn random_graphs_keep_their_values() {
    for seed in 0..150 {
        let graph = random_graph(1000 + seed);
        let dims = input_dims(&graph);
        let expected = outputs(&graph, &dims, false);
        for limit in [0, 3, usize::MAX] {
            let done = optimise(graph.clone(), limit);
            assert_close(&format!("seed {seed}, {limit} patches"), &expected, &outputs(&done, &dims, true));
            let mut results = vec![Vec::new(); done.outputs.len()];
            let mut engine = CpuEngine::new(plan(&done).expect("small"), 1).expect("known operators");
            let inputs = inputs(&done, &dims);
            let inputs: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
            engine.run(done.batch, &inputs, &mut results).expect("inputs of the right lengths");
            let wide = |v: Vec<f32>| v.into_iter().map(f64::from).collect();
            let results: Vec<_> = results.into_iter().map(wide).collect();
            assert_close(&format!("seed {seed}, {limit} patches, on the engine"), &expected, &results);
        }
    }
}
