//! Graph to plan: which tensor lies where in the arena, and for how long.

use std::collections::BTreeMap;

use ocellus_kernels::op::Op;
use ocellus_kernels::plan::{Buffer, Operand, Plan, Port, Step};
use ocellus_kernels::tensor::{Layout, elements};

use super::ModelError;
use super::graph::{Graph, Node, ValueId};

/// Offsets in the arena are multiples of this many elements: 64 bytes, a cache line and an AVX-512 register.
const ALIGNMENT: usize = 16;

/// Lays out a graph that the passes went over.
///
/// A Reshape costs nothing: its result is its operand's memory under another shape, which lives as long as either. The
/// same holds for an input that is an output. A constant that is an output is copied by a step.
///
/// # Errors
/// Where the arena's size overflows.
pub fn plan(graph: &Graph) -> Result<Plan, ModelError> {
    let storages = Storages::of(graph);
    let (offsets, arena_len) = pack(&storages.lifetimes)
        .ok_or_else(|| ModelError::TooLarge("the model's tensors are too large for this machine".into()))?;
    let buffer = |id: ValueId| {
        let offset = storages.of_value.get(&id).map_or(0, |&storage| offsets[storage]);
        Buffer { offset, dims: graph.dims(id).to_vec() }
    };
    let operand = |&id: &ValueId| match graph.constant(id) {
        Some(constant) => Operand::Constant(constant.clone()),
        None => Operand::Buffer(buffer(id)),
    };
    let step = |node: &Node| Step {
        name: node.name.clone(),
        op: node.op.clone(),
        inputs: node.inputs.iter().map(operand).collect(),
        output: buffer(node.output),
    };
    let copied = graph.outputs.iter().filter_map(|&id| {
        let constant = Operand::Constant(graph.constant(id)?.clone());
        let name = graph.value(id).name.clone();
        Some(Step { name, op: Op::Reshape, inputs: vec![constant], output: buffer(id) })
    });
    let port = |id: ValueId, layout: Option<Layout>| {
        let value = graph.value(id);
        Port { name: value.name.clone(), dtype: value.dtype, layout, buffer: buffer(id) }
    };
    let first = |id: &ValueId| graph.dims(*id).first() == Some(&graph.batch);
    Ok(Plan {
        batch: graph.batch,
        divisible: graph.inputs.iter().chain(&graph.outputs).all(first),
        inputs: graph.inputs.iter().zip(&graph.input_layouts).map(|(&id, &layout)| port(id, layout)).collect(),
        outputs: graph.outputs.iter().map(|&id| port(id, None)).collect(),
        steps: graph.nodes.iter().filter(|n| !is_view(graph, n)).map(step).chain(copied).collect(),
        arena_len,
    })
}

/// True for a Reshape of a tensor in the arena.
fn is_view(graph: &Graph, node: &Node) -> bool {
    node.op == Op::Reshape && node.inputs.iter().all(|&id| graph.constant(id).is_none())
}

/// Memory for one tensor and its views, from the step that writes it to the last that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lifetime {
    len: usize,
    first: usize,
    last: usize,
}

impl Lifetime {
    /// A step's output must not overlap its inputs, so a step that ends one lifetime and starts another is in both.
    fn meets(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Which values share memory, and when it is in use. Times: 0 is the copy of the inputs into the arena, node i works at
/// i + 1, the outputs are read after the last.
struct Storages {
    of_value: BTreeMap<ValueId, usize>,
    lifetimes: Vec<Lifetime>,
}

impl Storages {
    fn of(graph: &Graph) -> Self {
        let mut storages = Self { of_value: BTreeMap::new(), lifetimes: Vec::new() };
        let end = graph.nodes.len() + 1;
        for &id in &graph.inputs {
            storages.write(graph, id, 0);
        }
        for (i, node) in graph.nodes.iter().enumerate() {
            for id in &node.inputs {
                storages.read(*id, i + 1);
            }
            match node.inputs.first().and_then(|id| storages.of_value.get(id)) {
                Some(&storage) if is_view(graph, node) => {
                    storages.of_value.insert(node.output, storage);
                }
                _ => storages.write(graph, node.output, i + 1),
            }
        }
        for &id in &graph.outputs {
            if graph.constant(id).is_some() {
                storages.write(graph, id, end);
            }
            storages.read(id, end);
        }
        storages
    }

    fn write(&mut self, graph: &Graph, id: ValueId, time: usize) {
        self.of_value.insert(id, self.lifetimes.len());
        self.lifetimes.push(Lifetime { len: elements(graph.dims(id)), first: time, last: time });
    }

    fn read(&mut self, id: ValueId, time: usize) {
        if let Some(&storage) = self.of_value.get(&id) {
            self.lifetimes[storage].last = self.lifetimes[storage].last.max(time);
        }
    }
}

/// Offset of each storage, and the arena's length: largest first, each into the smallest gap that holds it between those
/// already placed whose lifetime meets its own.
fn pack(lifetimes: &[Lifetime]) -> Option<(Vec<usize>, usize)> {
    let mut by_size: Vec<usize> = (0..lifetimes.len()).collect();
    by_size.sort_by_key(|&i| std::cmp::Reverse(lifetimes[i].len));
    let mut offsets = vec![0; lifetimes.len()];
    // In the order of their offsets: start, end, index.
    let mut placed: Vec<(usize, usize, usize)> = Vec::new();
    let mut arena_len = 0;
    for i in by_size {
        // At least one, so that a tensor without elements lies inside no other.
        let len = lifetimes[i].len.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let mut best: Option<(usize, usize)> = None;
        let mut free_from = 0;
        for &(start, end, other) in &placed {
            if !lifetimes[i].meets(&lifetimes[other]) {
                continue;
            }
            let gap = start.saturating_sub(free_from);
            if gap >= len && best.is_none_or(|(smallest, _)| gap < smallest) {
                best = Some((gap, free_from));
            }
            free_from = free_from.max(end);
        }
        let offset = best.map_or(free_from, |(_, offset)| offset);
        let end = offset.checked_add(len)?;
        offsets[i] = offset;
        let at = placed.partition_point(|&(start, ..)| start <= offset);
        placed.insert(at, (offset, end, i));
        arena_len = arena_len.max(end);
    }
    Some((offsets, arena_len))
}

#[cfg(test)]
mod tests {
    use ocellus_kernels::op::{BinaryKind, Unary};
    use proptest::prelude::*;

    use super::super::passes::testing::Builder;
    use super::*;

    /// A graph of element-wise nodes, concatenations and views over random earlier values, constants among them.
    fn random_graph(seed: u64, nodes: usize) -> Graph {
        let mut b = Builder::new(seed);
        let mut values = vec![b.input(&[2, 3, 4]), b.input(&[2, 5]), b.weights(&[2, 12])];
        for _ in 0..nodes {
            let x = values[b.random.below(values.len())];
            let dims = b.graph.dims(x).to_vec();
            let y = match b.random.below(5) {
                0 | 1 => b.reshape(x, &[2, elements(&dims) / 2]),
                2 => b.unary(Unary::Relu, x),
                3 => {
                    let other = values.iter().rev().copied().find(|&v| b.graph.dims(v) == dims).unwrap_or(x);
                    b.binary(BinaryKind::Add, x, other)
                }
                _ => {
                    let grown = [&[2 * dims[0]], &dims[1..]].concat();
                    if elements(&grown) > 500 {
                        continue;
                    }
                    b.node(Op::Concat { axis: 0 }, &[x, x], &grown)
                }
            };
            values.push(y);
        }
        let outputs: Vec<_> = (0..3).map(|_| values[b.random.below(values.len())]).collect();
        b.build(&outputs)
    }

    /// Runs a plan on an arena of labels, one for each tensor, and checks that every reader finds the label it expects.
    /// Views are followed here by the graph's nodes alone, without the planner's notion of memory.
    fn simulate(graph: &Graph, plan: &Plan) {
        let mut label: Vec<usize> = (0..graph.values.len()).collect();
        let mut arena = vec![usize::MAX; plan.arena_len];
        for (port, id) in plan.inputs.iter().zip(&graph.inputs) {
            assert!(arena[port.buffer.range()].iter().all(|&l| l == usize::MAX), "inputs overlap");
            arena[port.buffer.range()].fill(id.0);
        }
        let mut steps = plan.steps.iter();
        for node in &graph.nodes {
            let constant = node.inputs.iter().any(|&id| graph.constant(id).is_some());
            if node.op == Op::Reshape && !constant {
                label[node.output.0] = label[node.inputs[0].0];
                continue;
            }
            let step = steps.next().expect("a step for each node that is no view");
            for (operand, id) in step.inputs.iter().zip(&node.inputs) {
                match operand {
                    Operand::Buffer(buffer) => {
                        assert_eq!(buffer.dims, graph.dims(*id));
                        assert!(arena[buffer.range()].iter().all(|&l| l == label[id.0]), "{} reads garbage", node.name);
                        let (read, written) = (buffer.range(), step.output.range());
                        assert!(read.end <= written.start || written.end <= read.start, "{} overlaps", node.name);
                    }
                    Operand::Constant(constant) => assert_eq!(Some(constant), graph.constant(*id)),
                }
            }
            assert_eq!(step.output.offset % ALIGNMENT, 0);
            arena[step.output.range()].fill(node.output.0);
        }
        for step in steps {
            let [Operand::Constant(constant)] = step.inputs.as_slice() else { panic!("a copy of a constant") };
            let id = graph.outputs.iter().find(|&&id| graph.constant(id) == Some(constant)).expect("an output");
            arena[step.output.range()].fill(id.0);
        }
        for (port, id) in plan.outputs.iter().zip(&graph.outputs) {
            assert_eq!(port.buffer.dims, graph.dims(*id));
            assert!(
                arena[port.buffer.range()].iter().all(|&l| l == label[id.0]),
                "output {} was overwritten",
                port.name
            );
        }
    }

    proptest! {
        #[test]
        fn readers_find_what_was_written(seed in any::<u64>(), nodes in 0_usize..40) {
            let graph = random_graph(seed, nodes);
            simulate(&graph, &plan(&graph).expect("small"));
        }

        #[test]
        fn tensors_alive_together_lie_apart(
            spans in prop::collection::vec((0_usize..100, 0_usize..20, 0_usize..8), 1..40)
        ) {
            let lifetimes: Vec<_> =
                spans.iter().map(|&(len, first, more)| Lifetime { len, first, last: first + more }).collect();
            let (offsets, arena_len) = pack(&lifetimes).expect("small");
            for (i, a) in lifetimes.iter().enumerate() {
                prop_assert!(offsets[i] + a.len <= arena_len);
                for (j, b) in lifetimes.iter().enumerate().skip(i + 1).filter(|(_, b)| a.meets(b)) {
                    prop_assert!(offsets[i] + a.len <= offsets[j] || offsets[j] + b.len <= offsets[i]);
                }
            }
            // Never more than all side by side; never less than what is alive at one time.
            let aligned = |l: &Lifetime| l.len.max(1).next_multiple_of(ALIGNMENT);
            prop_assert!(arena_len <= lifetimes.iter().map(aligned).sum());
            for time in 0..30 {
                let alive = lifetimes.iter().filter(|l| l.first <= time && time <= l.last);
                prop_assert!(alive.map(|l| l.len).sum::<usize>() <= arena_len);
            }
        }
    }

    #[test]
    fn a_chain_needs_two_tensors() {
        let mut b = Builder::new(1);
        let mut x = b.input(&[2, 16]);
        for _ in 0..10 {
            x = b.unary(Unary::Relu, x);
            x = b.reshape(x, &[2, 16]);
        }
        let plan = plan(&b.build(&[x])).expect("small");
        assert_eq!((plan.arena_len, plan.steps.len()), (64, 10));
    }

    #[test]
    fn a_plan_is_divisible_where_the_batch_leads_every_port() {
        let divisible = |dims: &[usize]| {
            let mut b = Builder::new(1);
            let x = b.input(&[2, 3]);
            let y = b.reshape(x, dims);
            plan(&b.build(&[y])).expect("small").divisible
        };
        assert!(divisible(&[2, 3]));
        assert!(!divisible(&[6]));
        assert!(!divisible(&[3, 2]));
    }

    #[test]
    fn sizes_that_overflow_are_an_error() {
        let mut b = Builder::new(1);
        let x = b.value("huge", &[usize::MAX - 3], None);
        b.graph.inputs.push(x);
        b.graph.input_layouts.push(None);
        assert!(plan(&b.build(&[x])).is_err());
    }
}
