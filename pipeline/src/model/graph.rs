//! The network as a graph of values and nodes, in topological order, every shape static for one batch size.
//!
//! Before the pass `layout` shapes and axes are those of the file (image tensors N, C, H, W; convolution weights
//! K, C, R, S); after it they are physical (N, H, W, C; K, R, S, C), as [`ocellus_kernels::op`] documents them.

use std::collections::HashMap;
use std::sync::Arc;

use ocellus_kernels::op::Op;
use ocellus_kernels::plan::Constant;
use ocellus_kernels::tensor::{DType, Layout};

/// Index into [`Graph::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub usize);

/// A tensor between two nodes, an input, an output or a constant.
#[derive(Clone, Debug)]
pub struct Value {
    /// Name in the file, or one derived from it.
    pub name: String,
    /// Dimensions, outermost first.
    pub dims: Vec<usize>,
    /// Element type that the model declares.
    pub dtype: DType,
    /// Its elements where they are known.
    pub constant: Option<Arc<Constant>>,
}

/// An operator with its operands.
#[derive(Clone, Debug)]
pub struct Node {
    /// Name in the file, or its first output's.
    pub name: String,
    /// What it does.
    pub op: Op,
    /// Operands in the order of the op's documentation.
    pub inputs: Vec<ValueId>,
    /// Result.
    pub output: ValueId,
    /// What passes merged into it, oldest first, as `pass: node`.
    pub fused: Vec<String>,
}

/// A network.
#[derive(Clone, Debug)]
pub struct Graph {
    /// All values; an id stays valid when passes add values.
    pub values: Vec<Value>,
    /// In topological order: a node's operands are inputs, constants or results of earlier nodes.
    pub nodes: Vec<Node>,
    /// What the caller provides.
    pub inputs: Vec<ValueId>,
    /// Axis order of each input once `layout` ran; `None` before it and for inputs that are no images.
    pub input_layouts: Vec<Option<Layout>>,
    /// What the caller reads.
    pub outputs: Vec<ValueId>,
    /// Batch size that the shapes are for.
    pub batch: usize,
    /// True when the file leaves the batch open.
    pub dynamic_batch: bool,
}

impl Graph {
    /// The value behind an id.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0]
    }

    /// Dimensions of a value.
    pub fn dims(&self, id: ValueId) -> &[usize] {
        &self.values[id.0].dims
    }

    /// Elements of a constant.
    pub fn constant(&self, id: ValueId) -> Option<&Arc<Constant>> {
        self.values[id.0].constant.as_ref()
    }

    /// Takes another graph's constants in place of equal ones of its own, so that both hold them once.
    pub fn share_constants(&mut self, other: &Self) {
        let mut known: HashMap<&[usize], Vec<&Arc<Constant>>> = HashMap::new();
        // Only of those that are read: a pass leaves behind what it made others of.
        let read = other.nodes.iter().flat_map(|node| &node.inputs).chain(&other.outputs);
        for constant in read.filter_map(|&id| other.constant(id)) {
            known.entry(&constant.dims).or_default().push(constant);
        }
        for constant in self.values.iter_mut().filter_map(|value| value.constant.as_mut()) {
            let alike = known.get(constant.dims.as_slice()).into_iter().flatten();
            if let Some(shared) = alike.copied().find(|other| other.data.same_as(&constant.data)) {
                *constant = Arc::clone(shared);
            }
        }
    }

    /// Adds a value.
    pub fn add(&mut self, value: Value) -> ValueId {
        self.values.push(value);
        ValueId(self.values.len() - 1)
    }

    /// Number of nodes that read each value, an output of the graph counting as one reader.
    pub fn readers(&self) -> Vec<usize> {
        let mut readers = vec![0; self.values.len()];
        let ids = self.nodes.iter().flat_map(|n| &n.inputs).chain(&self.outputs);
        ids.for_each(|id| readers[id.0] += 1);
        readers
    }

    /// Index of the node that makes each value.
    pub fn producers(&self) -> Vec<Option<usize>> {
        let mut producers = vec![None; self.values.len()];
        self.nodes.iter().enumerate().for_each(|(i, n)| producers[n.output.0] = Some(i));
        producers
    }
}
