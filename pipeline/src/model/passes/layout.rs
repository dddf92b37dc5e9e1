//! From the file's axis order (images N, C, H, W; weights K, C, R, S) to the engine's (N, H, W, C; K, R, S, C).
//!
//! Every value is tracked as a tensor in memory plus an order: memory axis i is the file's axis `order[i]`. Operators on
//! images want channels last; element-wise ones take any order and have their axes renumbered; a Transpose of the file
//! only changes the order that is tracked; a Reshape keeps it where the axes that it merges lie side by side in memory.
//! What remains, mostly before a Reshape that mixes channels with rows, becomes an explicit Transpose.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ocellus_kernels::op::Op;
use ocellus_kernels::plan::Constant;
use ocellus_kernels::tensor::{Layout, elements};
use ocellus_kernels::values::Values;

use super::views::moves_only_ones;
use crate::model::graph::{Graph, Node, Value, ValueId};

/// Memory axis i is the file's axis `order[i]`.
type Order = Vec<usize>;

/// Channels last: the memory order of images [N, C, H, W] and of weights [K, C, R, S].
const CHANNELS_LAST: [usize; 4] = [0, 2, 3, 1];

/// The graph in the engine's order. Its outputs are in the file's; `input_layouts` says what became of its inputs.
pub(super) fn channels_last(graph: Graph) -> Graph {
    let nodes = graph.nodes.clone();
    let mut rewriter = Rewriter::new(graph);
    for node in nodes {
        rewriter.node(node);
    }
    rewriter.finish()
}

/// A tensor in memory and the order of its axes.
#[derive(Clone, Debug)]
struct Placed {
    id: ValueId,
    order: Order,
}

struct Rewriter {
    graph: Graph,
    /// Dimensions of the file's values, in the file's order.
    dims: Vec<Vec<usize>>,
    /// Where each of the file's values is. Values without a node before them are in the file's order.
    placed: Vec<Placed>,
    /// Copies already made of a tensor in another shape or order.
    copies: HashMap<(ValueId, Vec<usize>, Vec<usize>), ValueId>,
    nodes: Vec<Node>,
}

fn identity(rank: usize) -> Order {
    (0..rank).collect()
}

/// The tuple `of` in another order.
fn permuted<T: Copy>(of: &[T], order: &[usize]) -> Vec<T> {
    order.iter().map(|&axis| of[axis]).collect()
}

/// Where each of the file's axes is in memory.
fn inverse(order: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; order.len()];
    order.iter().enumerate().for_each(|(i, &axis)| inverse[axis] = i);
    inverse
}

fn wants_channels_last(op: &Op) -> bool {
    matches!(op, Op::Conv(_) | Op::ConvTranspose(_) | Op::Pool(_) | Op::Resize(_))
}

/// Operators that work on any order of the axes.
fn takes_any_order(op: &Op) -> bool {
    !matches!(op, Op::Transpose { .. } | Op::Reshape | Op::Gemm(_) | Op::MatMul(_) | Op::LayerNorm { .. })
}

impl Rewriter {
    fn new(mut graph: Graph) -> Self {
        let dims: Vec<_> = graph.values.iter().map(|v| v.dims.clone()).collect();
        let place = |(i, dims): (usize, &Vec<usize>)| Placed { id: ValueId(i), order: identity(dims.len()) };
        let mut placed: Vec<_> = dims.iter().enumerate().map(place).collect();
        let has_images = graph.nodes.iter().any(|n| wants_channels_last(&n.op));
        // Values that must stay in the file's order.
        let fixed = graph.nodes.iter().filter(|n| !takes_any_order(&n.op)).flat_map(|n| &n.inputs);
        let bound: HashSet<ValueId> = fixed.chain(&graph.outputs).copied().collect();
        for (input, id) in graph.inputs.clone().into_iter().enumerate() {
            let dims = &dims[id.0];
            graph.input_layouts[input] = match dims[..] {
                // Channels last in the file already.
                [_, rows, _, 1..=4] if rows > 4 => Some(Layout::Nhwc),
                [_, _, _, _] if has_images && !bound.contains(&id) => {
                    placed[id.0].order = CHANNELS_LAST.to_vec();
                    graph.values[id.0].dims = permuted(dims, &CHANNELS_LAST);
                    Some(Layout::Nhwc)
                }
                [_, 1..=4, _, _] => Some(Layout::Nchw),
                _ => None,
            };
        }
        let nodes = Vec::with_capacity(graph.nodes.len());
        Self { graph, dims, placed, copies: HashMap::new(), nodes }
    }

    /// Restores the order of the graph's outputs.
    fn finish(mut self) -> Graph {
        for output in 0..self.graph.outputs.len() {
            let id = self.graph.outputs[output];
            let restored = self.in_order(id, &identity(self.dims[id.0].len()));
            let name = self.graph.values[id.0].name.clone();
            self.graph.outputs[output] = if self.graph.values[restored.0].name == name {
                restored
            } else if self.nodes.last().is_some_and(|n| n.output == restored) && !self.graph.outputs.contains(&restored)
            {
                self.graph.values[restored.0].name = name;
                restored
            } else {
                // Another value's memory: a view of it carries the output's name.
                let dims = self.dims[id.0].clone();
                self.emit(name, Op::Reshape, restored, dims)
            };
        }
        self.graph.nodes = self.nodes;
        self.graph
    }

    /// Appends a node with one operand and returns its result, which has the node's name.
    fn emit(&mut self, name: String, op: Op, x: ValueId, dims: Vec<usize>) -> ValueId {
        let dtype = self.graph.value(x).dtype;
        let output = self.graph.add(Value { name: name.clone(), dims, dtype, constant: None });
        self.nodes.push(Node { name, op, inputs: vec![x], output, fused: Vec::new() });
        output
    }

    /// The file's value in this memory order, copied where it is in another.
    fn in_order(&mut self, id: ValueId, order: &[usize]) -> ValueId {
        let dims = self.dims[id.0].clone();
        self.aligned(id, &dims, order)
    }

    /// As [`Rewriter::in_order`], seen under `dims`, which are the file's dimensions with ones in front of them.
    fn aligned(&mut self, id: ValueId, dims: &[usize], order: &[usize]) -> ValueId {
        let Placed { id: source, order: placed } = self.placed[id.0].clone();
        let ahead = dims.len() - placed.len();
        let from: Order = (0..ahead).chain(placed.iter().map(|axis| axis + ahead)).collect();
        if from == order && ahead == 0 {
            return source;
        }
        let key = (source, from.clone(), order.to_vec());
        if let Some(&copy) = self.copies.get(&key) {
            return copy;
        }
        // From memory to memory: axis i of the copy is axis perm[i] of the source.
        let at = inverse(&from);
        let perm: Vec<usize> = order.iter().map(|&axis| at[axis]).collect();
        let (seen, target) = (permuted(dims, &from), permuted(dims, order));
        let name = self.graph.value(source).name.clone();
        let copy = if let Some(constant) = self.graph.constant(source) {
            let data = transposed(&constant.data, &seen, &perm);
            let (dtype, dims) = (self.graph.value(source).dtype, target);
            let constant = Some(Arc::new(Constant { dims: dims.clone(), data }));
            self.graph.add(Value { name, dims, dtype, constant })
        } else if moves_only_ones(&perm, &seen) {
            self.emit(format!("{name}.view"), Op::Reshape, source, target)
        } else {
            let source = if ahead == 0 { source } else { self.emit(format!("{name}.view"), Op::Reshape, source, seen) };
            self.emit(format!("{name}.transposed"), Op::Transpose { perm }, source, target)
        };
        self.copies.insert(key, copy);
        copy
    }

    /// Appends a node whose result is in this order.
    fn push(&mut self, mut node: Node, op: Op, inputs: Vec<ValueId>, order: Order) {
        self.graph.values[node.output.0].dims = permuted(&self.dims[node.output.0], &order);
        self.placed[node.output.0].order = order;
        (node.op, node.inputs) = (op, inputs);
        self.nodes.push(node);
    }

    fn node(&mut self, node: Node) {
        match &node.op {
            op if wants_channels_last(op) => self.image_node(node),
            Op::Transpose { perm } => {
                let x = &self.placed[node.inputs[0].0];
                let at = inverse(perm);
                let order = x.order.iter().map(|&axis| at[axis]).collect();
                self.placed[node.output.0] = Placed { id: x.id, order };
            }
            Op::Reshape => self.reshape(node),
            Op::Gemm(_) => self.gemm(node),
            Op::MatMul(_) => {
                let inputs = self.file_order(&node.inputs);
                let (op, order) = (node.op.clone(), identity(self.dims[node.output.0].len()));
                self.push(node, op, inputs, order);
            }
            Op::LayerNorm { axis, .. } => {
                let order = self.placed[node.inputs[0].0].order.clone();
                let kept = order[*axis..].iter().copied().eq(*axis..order.len());
                let order = if kept { order } else { identity(order.len()) };
                let mut inputs = vec![self.in_order(node.inputs[0], &order)];
                inputs.extend(self.file_order(&node.inputs[1..]));
                let op = node.op.clone();
                self.push(node, op, inputs, order);
            }
            _ => self.any_order(node),
        }
    }

    fn file_order(&mut self, ids: &[ValueId]) -> Vec<ValueId> {
        ids.iter().map(|&id| self.in_order(id, &identity(self.dims[id.0].len()))).collect()
    }

    /// Conv, `ConvTranspose`, Pool, Resize: every operand of four axes has its second axis moved to the end.
    fn image_node(&mut self, node: Node) {
        let inputs = node.inputs.iter().map(|&id| match self.dims[id.0].len() {
            4 => self.in_order(id, &CHANNELS_LAST),
            rank => self.in_order(id, &identity(rank)),
        });
        let inputs = inputs.collect();
        let op = node.op.clone();
        self.push(node, op, inputs, CHANNELS_LAST.to_vec());
    }

    /// The last axis of a Gemm's operand is summed over and must be last in memory; the axes before it are rows in any
    /// order.
    fn gemm(&mut self, node: Node) {
        let rank = self.dims[node.output.0].len();
        let order = self.placed[node.inputs[0].0].order.clone();
        let keeps = order.len() == rank && order.last() == Some(&(rank - 1));
        let order = if keeps { order } else { identity(rank) };
        let inputs = node.inputs.iter().enumerate().map(|(i, &id)| {
            let dims = &self.dims[id.0];
            let rows = i != 1 && dims.len() == rank && rank > 1;
            let wanted = if rows { order.clone() } else { identity(dims.len()) };
            self.in_order(id, &wanted)
        });
        let inputs = inputs.collect();
        let op = node.op.clone();
        self.push(node, op, inputs, order);
    }

    /// Operators that take any order: the order of the largest operand, of equals one with channels last, is everyone's.
    fn any_order(&mut self, node: Node) {
        let dims = self.dims[node.output.0].clone();
        let broadcasts = matches!(node.op, Op::Binary { .. } | Op::Concat { .. });
        let operands = if broadcasts { node.inputs.as_slice() } else { &node.inputs[..node.inputs.len().min(1)] };
        let leader = operands.iter().filter(|id| self.dims[id.0].len() == dims.len()).max_by_key(|id| {
            let order = &self.placed[id.0].order;
            let variable = self.graph.constant(self.placed[id.0].id).is_none();
            (variable, elements(&self.dims[id.0]), !order.is_sorted())
        });
        let order = leader.map_or_else(|| identity(dims.len()), |id| self.placed[id.0].order.clone());
        let inputs = node.inputs.iter().enumerate().map(|(i, &id)| {
            let own = self.dims[id.0].clone();
            if i >= operands.len() {
                // Scales and zero points of one axis.
                return self.in_order(id, &identity(own.len()));
            }
            let ones = vec![1; dims.len().saturating_sub(own.len())];
            self.aligned(id, &[ones, own].concat(), &order)
        });
        let inputs = inputs.collect();
        let op = renumbered(&node.op, &order);
        self.push(node, op, inputs, order);
    }

    fn reshape(&mut self, node: Node) {
        let x = node.inputs[0];
        let (wanted, order) = reshaped_order(&self.dims[x.0], &self.dims[node.output.0], &self.placed[x.0].order);
        let inputs = vec![self.in_order(x, &wanted)];
        self.push(node, Op::Reshape, inputs, order);
    }
}

/// The op with its axes counted in memory order.
fn renumbered(op: &Op, order: &[usize]) -> Op {
    let at = inverse(order);
    match op.clone() {
        Op::Reduce { kind, axes } => {
            let mut axes = permuted(&at, &axes);
            axes.sort_unstable();
            Op::Reduce { kind, axes }
        }
        Op::ScaleShift { axis } => Op::ScaleShift { axis: at[axis] },
        Op::Softmax { axis, log } => Op::Softmax { axis: at[axis], log },
        Op::Concat { axis } => Op::Concat { axis: at[axis] },
        Op::Slice { start, step } => Op::Slice { start: permuted(&start, order), step: permuted(&step, order) },
        Op::Pad { before, mode } => Op::Pad { before: permuted(&before, order), mode },
        Op::ArgMax { axis, select_last } => Op::ArgMax { axis: at[axis], select_last },
        // A single scale has an axis of no meaning, which may lie outside a tensor of fewer axes.
        Op::Quantize { axis, low, high } => Op::Quantize { axis: at.get(axis).copied().unwrap_or(axis), low, high },
        Op::Dequantize { axis } => Op::Dequantize { axis: at.get(axis).copied().unwrap_or(axis) },
        other => other,
    }
}

/// The order that a Reshape's operand must be in, as near as can be to the one it is in, and the order of the result.
///
/// The shapes are cut into the smallest runs of axes with equal numbers of elements, [N | C | H, W] and [N | C | HW] for
/// instance. A run whose axes lie side by side and in order in memory can be read as its counterpart; the runs may lie in
/// any order. Axes of length 1 belong anywhere.
fn reshaped_order(from: &[usize], to: &[usize], order: &[usize]) -> (Order, Order) {
    if from.contains(&0) {
        return (identity(from.len()), identity(to.len()));
    }
    let long = |dims: &[usize]| (0..dims.len()).filter(|&i| dims[i] != 1).collect::<Vec<_>>();
    let (from_axes, to_axes) = (long(from), long(to));
    let mut runs: Vec<(&[usize], &[usize])> = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < from_axes.len() && j < to_axes.len() {
        let (i0, j0) = (i, j);
        let (mut a, mut b) = (from[from_axes[i]], to[to_axes[j]]);
        (i, j) = (i + 1, j + 1);
        while a != b {
            // The numbers of elements are equal in all, so the shorter side has axes left.
            let (axes, dims, next, product) =
                if a < b { (&from_axes, from, &mut i, &mut a) } else { (&to_axes, to, &mut j, &mut b) };
            let Some(&axis) = axes.get(*next) else { break };
            *product *= dims[axis];
            *next += 1;
        }
        runs.push((&from_axes[i0..i], &to_axes[j0..j]));
    }
    let in_memory: Vec<usize> = order.iter().copied().filter(|&axis| from[axis] != 1).collect();
    runs.sort_by_key(|(axes, _)| in_memory.iter().position(|axis| axes.contains(axis)));
    let wanted: Vec<usize> = runs.iter().flat_map(|(axes, _)| axes.iter().copied()).collect();
    let result = runs.iter().flat_map(|(_, axes)| axes.iter().copied()).collect();
    let wanted = if wanted == in_memory { order.to_vec() } else { with_ones(wanted, from) };
    (wanted, with_ones(result, to))
}

/// Adds the axes of length 1, each behind the one before it, so that an order of the file's stays one.
fn with_ones(mut order: Order, dims: &[usize]) -> Order {
    for axis in (0..dims.len()).filter(|&i| dims[i] == 1) {
        let place = order.iter().position(|&a| a + 1 == axis).map_or(0, |p| p + 1);
        order.insert(place, axis);
    }
    order
}

/// Elements of a dense tensor of shape `dims` with its axes permuted.
fn transposed(values: &Values, dims: &[usize], perm: &[usize]) -> Values {
    let mut strides = vec![1; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis] * dims[axis] as isize;
    }
    values.view(0, &permuted(&strides, perm), &permuted(dims, perm))
}
