//! One node on its way into the graph: its operands, its attributes, and the graph it adds to.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use ocellus_kernels::op::Op;
use ocellus_kernels::plan::Constant;
use ocellus_kernels::tensor::DType;

use super::attributes::Attributes;
use super::refusal::{Refusal, product, refuse};
use super::tensor::{Budget, Tensor, is_float};
use crate::model::graph::{Graph, Node, Value, ValueId};

/// Elements that one activation may have (4 GiB as f32).
const MAX_ACTIVATION: usize = 1 << 30;

/// Values that a graph may have, constants among them: the passes look at all of them for every change. The largest
/// networks in use have some thousands.
const MAX_VALUES: usize = 1 << 15;

/// What a name of the file stands for.
#[derive(Clone, Debug)]
pub(super) enum Slot {
    /// Known at import.
    Constant(Arc<Tensor>),
    /// A value of the graph.
    Activation(ValueId),
}

impl From<Tensor> for Slot {
    fn from(tensor: Tensor) -> Self {
        Self::Constant(Arc::new(tensor))
    }
}

/// The graph under construction.
pub(super) struct Builder {
    /// What was added up to here.
    pub(super) graph: Graph,
    /// Limits on constants.
    pub(super) budget: Budget,
    /// Where external data may lie.
    pub(super) folder: Option<PathBuf>,
    /// Whether a value was refused for its size.
    pub(super) too_large: bool,
    /// Constants that are values of the graph already, by address; the `Arc` keeps the address taken.
    constants: HashMap<*const Tensor, (Arc<Tensor>, ValueId)>,
}

impl Builder {
    pub(super) fn new(graph: Graph, budget: Budget, folder: Option<PathBuf>) -> Self {
        Self { graph, budget, folder, too_large: false, constants: HashMap::new() }
    }

    /// Adds a value that is no constant.
    pub(super) fn value(&mut self, name: String, dims: Vec<usize>, dtype: DType) -> Result<ValueId, Refusal> {
        if dims.contains(&0) {
            return refuse(format!("a tensor of {dims:?} has no elements"));
        }
        if product(&dims).is_none_or(|n| n > MAX_ACTIVATION) {
            self.too_large = true;
            return refuse(format!("a tensor of {dims:?} is over the limit of {MAX_ACTIVATION} elements"));
        }
        if self.graph.values.len() >= MAX_VALUES {
            return refuse(format!("the network has more than {MAX_VALUES} tensors, which is over the limit"));
        }
        Ok(self.graph.add(Value { name, dims, dtype, constant: None }))
    }

    /// The value behind a slot; a constant becomes one at its first use.
    pub(super) fn id(&mut self, slot: &Slot, name: &str) -> ValueId {
        let tensor = match slot {
            Slot::Activation(id) => return *id,
            Slot::Constant(tensor) => tensor,
        };
        if let Some((_, id)) = self.constants.get(&Arc::as_ptr(tensor)) {
            return *id;
        }
        let name = if tensor.name.is_empty() {
            format!("{name}.constant{}", self.graph.values.len())
        } else {
            tensor.name.clone()
        };
        let constant = Arc::new(Constant { dims: tensor.dims.clone(), data: tensor.to_floats() });
        let id =
            self.graph.add(Value { name, dims: tensor.dims.clone(), dtype: tensor.dtype, constant: Some(constant) });
        self.constants.insert(Arc::as_ptr(tensor), (Arc::clone(tensor), id));
        id
    }

    /// Adds a node and its output.
    pub(super) fn node(
        &mut self,
        name: &str,
        op: Op,
        inputs: &[&Slot],
        dims: Vec<usize>,
        dtype: DType,
    ) -> Result<ValueId, Refusal> {
        let inputs = inputs.iter().map(|slot| self.id(slot, name)).collect();
        let output = self.value(format!("{name}.{}", self.graph.values.len()), dims, dtype)?;
        self.graph.nodes.push(Node { name: name.into(), op, inputs, output, fused: Vec::new() });
        Ok(output)
    }
}

/// Results of a node, in the order of the operator's outputs.
pub(super) type Outcome = Result<Vec<Slot>, Refusal>;

/// A node being imported.
pub(super) struct NodeImport<'a> {
    /// Its name, or its first output's.
    pub(super) name: &'a str,
    /// Version of the operator set.
    pub(super) opset: i64,
    /// Its attributes.
    pub(super) attributes: Attributes<'a>,
    /// Its operands; `None` where an optional one is left out.
    pub(super) inputs: Vec<Option<Slot>>,
    /// Number of results it names.
    pub(super) outputs: usize,
    /// What it adds to.
    pub(super) builder: &'a mut Builder,
}

impl NodeImport<'_> {
    /// Operand `i`, which must be there.
    pub(super) fn input(&self, i: usize) -> Result<Slot, Refusal> {
        self.optional(i).ok_or_else(|| Refusal(format!("operand {i} is missing")))
    }

    /// Operand `i`, if it is there.
    pub(super) fn optional(&self, i: usize) -> Option<Slot> {
        self.inputs.get(i).cloned().flatten()
    }

    /// Operand `i`, which must be there and be of a floating-point type.
    pub(super) fn float_input(&self, i: usize) -> Result<Slot, Refusal> {
        let slot = self.input(i)?;
        match self.dtype(&slot) {
            dtype if is_float(dtype) => Ok(slot),
            dtype => refuse(format!("operand {i} must be floating-point, it is {dtype:?}")),
        }
    }

    /// Operand `i` as images N, C, H, W.
    pub(super) fn image(&self, i: usize) -> Result<(Slot, [usize; 4]), Refusal> {
        let slot = self.float_input(i)?;
        match <[usize; 4]>::try_from(self.dims(&slot)) {
            Ok(dims) => Ok((slot, dims)),
            Err(_) => refuse(format!(
                "its input has {} dimensions {:?}; only two spatial dimensions (N, C, H, W) are supported",
                self.dims(&slot).len(),
                self.dims(&slot)
            )),
        }
    }

    /// Operand `i`, if it is there; it must be a constant then.
    pub(super) fn optional_constant(&self, i: usize, what: &str) -> Result<Option<Arc<Tensor>>, Refusal> {
        match self.optional(i) {
            None => Ok(None),
            Some(Slot::Constant(tensor)) => Ok(Some(tensor)),
            Some(Slot::Activation(_)) => refuse(format!("{what} (operand {i}) must be constant")),
        }
    }

    /// Operand `i`, which must be there and constant.
    pub(super) fn constant(&self, i: usize, what: &str) -> Result<Arc<Tensor>, Refusal> {
        self.optional_constant(i, what)?.ok_or_else(|| Refusal(format!("{what} (operand {i}) is missing")))
    }

    /// Operand `i` as a list of whole numbers, if it is there.
    pub(super) fn optional_ints(&self, i: usize, what: &str) -> Result<Option<Vec<i64>>, Refusal> {
        match self.optional_constant(i, what)? {
            None => Ok(None),
            Some(tensor) if tensor.dims.len() <= 1 => Ok(Some(tensor.ints(what)?.to_vec())),
            Some(tensor) => refuse(format!("{what} must be a list, the model has {:?}", tensor.dims)),
        }
    }

    /// Operand `i` as a list of whole numbers.
    pub(super) fn ints(&self, i: usize, what: &str) -> Result<Vec<i64>, Refusal> {
        self.optional_ints(i, what)?.ok_or_else(|| Refusal(format!("{what} (operand {i}) is missing")))
    }

    /// A list that is attribute `name` before opset `since` and operand `i` from it on.
    pub(super) fn ints_since(&mut self, since: i64, i: usize, name: &str) -> Result<Option<Vec<i64>>, Refusal> {
        if self.opset >= since {
            return self.optional_ints(i, name);
        }
        match self.optional(i) {
            Some(_) => refuse(format!("\"{name}\" is an operand only from opset {since} on")),
            None => self.attributes.ints(name),
        }
    }

    /// Dimensions of a slot.
    pub(super) fn dims<'s>(&'s self, slot: &'s Slot) -> &'s [usize] {
        match slot {
            Slot::Constant(tensor) => &tensor.dims,
            Slot::Activation(id) => self.builder.graph.dims(*id),
        }
    }

    /// Element type of a slot.
    pub(super) fn dtype(&self, slot: &Slot) -> DType {
        match slot {
            Slot::Constant(tensor) => tensor.dtype,
            Slot::Activation(id) => self.builder.graph.value(*id).dtype,
        }
    }

    /// Adds a node; its result has the first operand's element type.
    pub(super) fn push(&mut self, op: Op, inputs: &[&Slot], dims: Vec<usize>) -> Result<Slot, Refusal> {
        let dtype = inputs.first().map_or(DType::F32, |slot| self.dtype(slot));
        self.push_as(op, inputs, dims, dtype)
    }

    /// Adds a node whose result has element type `dtype`.
    pub(super) fn push_as(
        &mut self,
        op: Op,
        inputs: &[&Slot],
        dims: Vec<usize>,
        dtype: DType,
    ) -> Result<Slot, Refusal> {
        self.builder.node(self.name, op, inputs, dims, dtype).map(Slot::Activation)
    }

    /// Adds the node's last part: [`NodeImport::push`], as the only result.
    pub(super) fn emit(&mut self, op: Op, inputs: &[&Slot], dims: Vec<usize>) -> Outcome {
        Ok(vec![self.push(op, inputs, dims)?])
    }

    /// The same elements under other dimensions; nothing is added where they are the same already.
    pub(super) fn reshape(&mut self, slot: Slot, dims: Vec<usize>) -> Result<Slot, Refusal> {
        if self.dims(&slot) == dims {
            return Ok(slot);
        }
        if product(self.dims(&slot)) != product(&dims) {
            return refuse(format!("{:?} cannot become {dims:?}", self.dims(&slot)));
        }
        match &slot {
            Slot::Constant(tensor) => {
                let data = tensor.data.clone();
                self.builder.budget.compute(&dims)?;
                Ok(Tensor::new(tensor.dtype, dims, data).into())
            }
            Slot::Activation(_) => self.push(Op::Reshape, &[&slot], dims),
        }
    }
}
