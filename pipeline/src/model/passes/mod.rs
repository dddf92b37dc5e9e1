//! Graph to graph: a named, ordered list of rewrites that leave the network's values as they are.
//!
//! A pass looks at one node and returns a `Patch` or nothing; [`optimise`] applies the passes in the order of
//! `PASSES` until none returns anything. The pass `layout` is different: it rewrites the whole graph from the file's
//! axis order to the engine's, once, between the passes above and below it in the list.

mod activation;
mod affine;
mod clip;
mod dead;
mod fold;
mod layout;
mod pad;
mod patterns;
mod residual;
#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
mod views;

use std::collections::HashSet;
use std::sync::Arc;

use ocellus_kernels::op::{Epilogue, Op};
use ocellus_kernels::plan::Constant;
use ocellus_kernels::tensor::DType;
use ocellus_kernels::values::Values;

use super::graph::{Graph, Node, Value, ValueId};

/// Nodes that one node may take in; real networks need a handful. A chain of thousands would be copied for every link.
const MAX_FUSED: usize = 64;

/// A rewrite with the name that [`Node::fused`] and `inspect` give it.
#[derive(Debug)]
struct Pass {
    name: &'static str,
    rewrite: Rewrite,
}

/// What a pass wants to change at the node of this index.
type Find = fn(&Context<'_>, usize) -> Option<Patch>;

#[derive(Clone, Copy, Debug)]
enum Rewrite {
    /// Looks at the node of this index.
    Node(Find),
    /// Rewrites everything, once.
    Graph(fn(Graph) -> Graph),
}

/// The passes in order.
const PASSES: &[Pass] = &[
    Pass { name: "constants", rewrite: Rewrite::Node(fold::constants) },
    Pass { name: "dead-code", rewrite: Rewrite::Node(dead::unread) },
    Pass { name: "no-op", rewrite: Rewrite::Node(dead::no_op) },
    Pass { name: "views", rewrite: Rewrite::Node(views::compose) },
    Pass { name: "clip", rewrite: Rewrite::Node(clip::merge) },
    Pass { name: "patterns", rewrite: Rewrite::Node(patterns::gated) },
    Pass { name: "batch-norm", rewrite: Rewrite::Node(affine::into_producer) },
    Pass { name: "input-scale", rewrite: Rewrite::Node(affine::into_consumer) },
    Pass { name: "pad", rewrite: Rewrite::Node(pad::into_window) },
    Pass { name: "residual", rewrite: Rewrite::Node(residual::into_producer) },
    Pass { name: "activation", rewrite: Rewrite::Node(activation::into_producer) },
    Pass { name: "layout", rewrite: Rewrite::Graph(layout::channels_last) },
    Pass { name: "constants", rewrite: Rewrite::Node(fold::constants) },
    Pass { name: "dead-code", rewrite: Rewrite::Node(dead::unread) },
    Pass { name: "no-op", rewrite: Rewrite::Node(dead::no_op) },
    Pass { name: "views", rewrite: Rewrite::Node(views::compose) },
];

/// Applies the passes. At most `limit` patches are applied (to bisect a wrong result); `layout`, without which no engine
/// can run the graph, always is.
pub fn optimise(mut graph: Graph, limit: usize) -> Graph {
    let mut left = limit;
    for group in PASSES.split_inclusive(|pass| matches!(pass.rewrite, Rewrite::Graph(_))) {
        loop {
            let before = left;
            for pass in group {
                if let Rewrite::Node(find) = pass.rewrite {
                    left -= sweep(&mut graph, pass.name, find, left);
                }
            }
            if left == before {
                break;
            }
        }
        if let Some(Pass { rewrite: Rewrite::Graph(rewrite), .. }) = group.last() {
            graph = rewrite(graph);
        }
    }
    graph
}

/// Applies one pass over all nodes, `limit` patches at most; returns how many were applied.
fn sweep(graph: &mut Graph, pass: &'static str, find: Find, limit: usize) -> usize {
    let mut applied = 0;
    let mut context = Context::new(graph, pass);
    for index in 0..context.graph.nodes.len() {
        // Looked at again after a patch, which may leave more to do here.
        while applied < limit && !context.removed[index] {
            let Some(patch) = find(&context, index).filter(Patch::is_bounded) else { break };
            context.apply(patch);
            applied += 1;
        }
    }
    context.finish();
    applied
}

/// The graph during a sweep, with what the passes ask about it. Removed nodes keep their places until the end, so that
/// indices stay what they are and a patch costs little more than the nodes it names.
struct Context<'g> {
    graph: &'g mut Graph,
    pass: &'static str,
    readers: Vec<usize>,
    producers: Vec<Option<usize>>,
    outputs: HashSet<ValueId>,
    removed: Vec<bool>,
}

impl<'g> Context<'g> {
    fn new(graph: &'g mut Graph, pass: &'static str) -> Self {
        let (readers, producers) = (graph.readers(), graph.producers());
        let outputs = graph.outputs.iter().copied().collect();
        let removed = vec![false; graph.nodes.len()];
        Self { graph, pass, readers, producers, outputs, removed }
    }

    fn node(&self, index: usize) -> &Node {
        &self.graph.nodes[index]
    }

    fn dims(&self, id: ValueId) -> &[usize] {
        self.graph.dims(id)
    }

    /// The node that makes a value, with its index.
    fn producer(&self, id: ValueId) -> Option<(usize, &Node)> {
        self.producers[id.0].map(|i| (i, self.node(i)))
    }

    /// True where one node alone reads the value, or the caller alone.
    fn read_once(&self, id: ValueId) -> bool {
        self.readers[id.0] == 1
    }

    fn is_output(&self, id: ValueId) -> bool {
        self.outputs.contains(&id)
    }

    fn constant(&self, id: ValueId) -> Option<&Arc<Constant>> {
        self.graph.constant(id)
    }

    /// The value of a constant of one element.
    fn scalar(&self, id: ValueId) -> Option<f32> {
        // Asked for the number first: elements that nobody looks at are not computed.
        self.constant(id).filter(|c| c.data.len() == 1).and_then(|c| c.data.first().copied())
    }

    /// Notes in `node` that the pass merged `other` into it.
    fn record(&self, node: &mut Node, other: &Node) {
        node.fused.extend(other.fused.iter().cloned());
        node.fused.push(format!("{}: {}", self.pass, other.name));
    }

    fn apply(&mut self, patch: Patch) {
        self.graph.values.extend(patch.values);
        self.readers.resize(self.graph.values.len(), 0);
        self.producers.resize(self.graph.values.len(), None);
        let replaced: Vec<usize> = patch.replace.iter().map(|(index, _)| *index).collect();
        for &index in replaced.iter().chain(&patch.remove) {
            self.producers[self.graph.nodes[index].output.0] = None;
        }
        for (index, node) in patch.replace {
            self.producers[node.output.0] = Some(index);
            node.inputs.iter().for_each(|id| self.readers[id.0] += 1);
            let before = std::mem::replace(&mut self.graph.nodes[index], node);
            self.unread(&before.inputs);
        }
        for index in patch.remove {
            self.removed[index] = true;
            let inputs = std::mem::take(&mut self.graph.nodes[index].inputs);
            self.unread(&inputs);
        }
        if let Some((id, constant)) = patch.known {
            self.graph.values[id.0].constant = Some(constant);
        }
        if let Some((from, to)) = patch.redirect {
            for id in self.graph.nodes.iter_mut().flat_map(|n| &mut n.inputs).filter(|id| **id == from) {
                *id = to;
                self.readers[from.0] -= 1;
                self.readers[to.0] += 1;
            }
        }
    }

    /// One reader of these values is gone. A constant without any is let go: those that patches replace are as large as
    /// the model.
    fn unread(&mut self, ids: &[ValueId]) {
        for id in ids {
            self.readers[id.0] -= 1;
            if self.readers[id.0] == 0 {
                self.graph.values[id.0].constant = None;
            }
        }
    }

    fn finish(self) {
        let mut removed = self.removed.iter();
        self.graph.nodes.retain(|_| removed.next() != Some(&true));
    }
}

/// A change of the graph.
#[derive(Debug, Default)]
struct Patch {
    /// Nodes that go.
    remove: Vec<usize>,
    /// Nodes that others take the place of.
    replace: Vec<(usize, Node)>,
    /// New values; the first has the id `graph.values.len()`.
    values: Vec<Value>,
    /// A value that became known.
    known: Option<(ValueId, Arc<Constant>)>,
    /// Who reads the first reads the second from then on (the graph's outputs stay as they are).
    redirect: Option<(ValueId, ValueId)>,
}

impl Patch {
    fn replace(index: usize, node: Node) -> Self {
        Self { replace: vec![(index, node)], ..Self::default() }
    }

    fn removing(mut self, index: usize) -> Self {
        self.remove.push(index);
        self
    }

    /// Adds a constant and returns its id.
    fn constant(&mut self, graph: &Graph, name: String, dims: Vec<usize>, data: Values) -> ValueId {
        let constant = Some(Arc::new(Constant { dims: dims.clone(), data }));
        self.values.push(Value { name, dims, dtype: DType::F32, constant });
        ValueId(graph.values.len() + self.values.len() - 1)
    }

    /// False where a node would have taken in too many others.
    fn is_bounded(&self) -> bool {
        self.replace.iter().all(|(_, node)| node.fused.len() <= MAX_FUSED)
    }
}

/// Operand `index` of a node.
fn operand(node: &Node, index: usize) -> Option<ValueId> {
    node.inputs.get(index).copied()
}

/// The epilogue of an operator that has one.
fn epilogue(op: &Op) -> Option<&Epilogue> {
    match op {
        Op::Conv(c) => Some(&c.epilogue),
        Op::ConvTranspose(c) => Some(&c.0.epilogue),
        Op::Gemm(g) => Some(&g.epilogue),
        _ => None,
    }
}

/// The epilogue of an operator that has one, to change it.
fn epilogue_mut(op: &mut Op) -> Option<&mut Epilogue> {
    match op {
        Op::Conv(c) => Some(&mut c.epilogue),
        Op::ConvTranspose(c) => Some(&mut c.0.epilogue),
        Op::Gemm(g) => Some(&mut g.epilogue),
        _ => None,
    }
}
