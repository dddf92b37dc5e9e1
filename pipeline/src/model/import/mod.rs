//! ONNX messages to a [`Graph`]: names resolved, shapes static, constant arithmetic folded, operators checked.
//!
//! `table` lists the operators; a file per family lowers them. What is not known there, or used in a way that is not
//! supported, is refused by name before anything runs. A node adds itself to the graph through `node::NodeImport`.
//!
//! Not read, because they cannot change a result: names and versions of the producer, documentation strings, metadata,
//! declared shapes of inner values and outputs, quantisation annotations, device configurations and training info.

mod attributes;
mod constants;
mod conv;
mod eval;
mod inputs;
mod matmul;
mod node;
mod norm;
mod order;
mod pointwise;
mod pool;
mod quantize;
mod reduce;
mod refusal;
mod resize;
mod shape;
mod slice;
mod table;
mod tensor;
#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
mod weights;
mod window;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ocellus_kernels::op::Op;

use self::attributes::Attributes;
use self::node::{Builder, NodeImport, Outcome, Slot};
use self::refusal::{Refusal, refuse};
use self::tensor::{Budget, Tensor};
use super::ModelError;
use super::graph::{Graph, ValueId};
use super::onnx::{self, proto};

/// Operator sets of the domain `ai.onnx` that are supported.
const OPSETS: std::ops::RangeInclusive<i64> = 9..=21;
/// Largest batch and largest rows and columns.
const MAX_SIZE: usize = 1 << 16;

/// What the file leaves open.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// Batch size, where the model's first dimension is open. A model with a fixed batch keeps its own.
    pub batch: usize,
    /// Rows and columns of the input image, where the model leaves them open.
    pub input_size: Option<[usize; 2]>,
    /// Folder of the model file, in which its external data may lie; without it external data is an error.
    pub folder: Option<PathBuf>,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self { batch: 1, input_size: None, folder: None }
    }
}

/// The weights of a file, which all batch sizes share.
#[derive(Debug)]
pub struct Initialisers {
    tensors: HashMap<String, Arc<Tensor>>,
    /// What they leave of the limits on constants.
    budget: Budget,
}

impl Initialisers {
    /// Reads those of a model; `folder` is where external data may lie.
    ///
    /// # Errors
    /// [`ModelError::Graph`] that names the one that is damaged or not supported.
    pub fn read(model: &proto::ModelProto, folder: Option<&Path>) -> Result<Self, ModelError> {
        let mut read = Self { tensors: HashMap::new(), budget: Budget::default() };
        let Some(file) = &model.graph else { return Ok(read) };
        if !file.sparse_initializer.is_empty() {
            return fault("the model has sparse initialisers, which are not supported");
        }
        for proto in &file.initializer {
            let name = proto.name.as_deref().unwrap_or_default();
            let tensor = weights::read(proto, folder, &mut read.budget)
                .map_err(|Refusal(why)| ModelError::Graph(format!("initialiser \"{name}\": {why}")))?;
            if name.is_empty() || read.tensors.insert(name.into(), Arc::new(tensor)).is_some() {
                return fault(format!("initialiser \"{name}\": the name is empty or occurs twice"));
            }
        }
        Ok(read)
    }
}

/// Imports a model from memory; touches no file unless `folder` is given.
///
/// # Errors
/// As [`onnx::decode`] and [`import`].
pub fn parse(bytes: bytes::Bytes, folder: Option<&Path>, batch: usize) -> Result<Graph, ModelError> {
    let folder = folder.map(Path::to_owned);
    import(&onnx::decode(bytes)?, &ImportOptions { batch, input_size: None, folder })
}

/// Imports a model. Shapes and axes of the graph are those of the file (N, C, H, W).
///
/// # Errors
/// [`ModelError::Node`] for an operator, attribute or operand that is not supported or against the specification;
/// [`ModelError::TooLarge`] for a tensor of too many elements; [`ModelError::Graph`] for what concerns no single node.
pub fn import(model: &proto::ModelProto, options: &ImportOptions) -> Result<Graph, ModelError> {
    import_with(model, &Initialisers::read(model, options.folder.as_deref())?, options)
}

/// The same with initialisers that were read before: those of the model, which may have lost them since.
///
/// # Errors
/// As [`import`].
pub fn import_with(
    model: &proto::ModelProto,
    initialisers: &Initialisers,
    options: &ImportOptions,
) -> Result<Graph, ModelError> {
    let opset = opset(model)?;
    let Some(file) = &model.graph else {
        return fault("the file has no graph; is it an ONNX model?");
    };
    if !model.functions.is_empty() {
        return fault("the model defines functions, which are not supported; export it with functions inlined");
    }
    let sizes = [[options.batch; 2], options.input_size.unwrap_or([1; 2])].concat();
    if let Some(size) = sizes.iter().find(|&&size| size == 0 || size > MAX_SIZE) {
        return fault(format!("a batch or input size of {size} is not between 1 and {MAX_SIZE}"));
    }
    let graph = Graph {
        values: Vec::new(),
        nodes: Vec::new(),
        inputs: Vec::new(),
        input_layouts: Vec::new(),
        outputs: Vec::new(),
        batch: options.batch,
        dynamic_batch: false,
    };
    let builder = Builder::new(graph, initialisers.budget.clone(), options.folder.clone());
    let slots = initialisers.tensors.iter().map(|(name, tensor)| (name.as_str(), Slot::Constant(Arc::clone(tensor))));
    let mut importer = Importer { builder, slots: slots.collect(), opset };
    match importer.all(file, options) {
        Ok(()) => Ok(importer.builder.graph),
        Err(error) if importer.builder.too_large => Err(ModelError::TooLarge(error.to_string())),
        Err(error) => Err(error),
    }
}

fn fault<T>(message: impl Into<String>) -> Result<T, ModelError> {
    Err(ModelError::Graph(message.into()))
}

/// True for the domain of the standard operators.
fn is_standard(domain: Option<&str>) -> bool {
    matches!(domain.unwrap_or_default(), "" | "ai.onnx")
}

/// The opset of the standard operators. Others may be declared as long as no node uses them.
fn opset(model: &proto::ModelProto) -> Result<i64, ModelError> {
    let mut versions =
        model.opset_import.iter().filter(|o| is_standard(o.domain.as_deref())).map(|o| o.version.unwrap_or_default());
    match (versions.next(), versions.next()) {
        (None, _) => fault("the file names no opset of the standard operators; is it an ONNX model?"),
        (Some(_), Some(_)) => fault("the file names two opsets of the standard operators"),
        (Some(version), None) if OPSETS.contains(&version) => Ok(version),
        (Some(version), None) => fault(format!(
            "opset {version} is not supported; export the model with opset {} to {}, or convert it with onnx.version_converter",
            OPSETS.start(),
            OPSETS.end()
        )),
    }
}

/// The state of an import.
struct Importer<'a> {
    builder: Builder,
    /// What each name of the file stands for.
    slots: HashMap<&'a str, Slot>,
    opset: i64,
}

impl<'a> Importer<'a> {
    fn all(&mut self, file: &'a proto::GraphProto, options: &ImportOptions) -> Result<(), ModelError> {
        self.inputs(file, options)?;
        self.nodes(file)?;
        self.outputs(file)
    }

    /// Inputs that have an initialiser (IR versions below 4 list all of them) are constants.
    fn inputs(&mut self, file: &'a proto::GraphProto, options: &ImportOptions) -> Result<(), ModelError> {
        let constant: HashSet<&str> = self.slots.keys().copied().collect();
        for info in &file.input {
            let name = info.name.as_deref().unwrap_or_default();
            if constant.contains(name) {
                continue;
            }
            let blame = |Refusal(why)| ModelError::Graph(format!("input \"{name}\": {why}"));
            let input = inputs::resolve(info, options).map_err(blame)?;
            let graph = &mut self.builder.graph;
            if graph.inputs.is_empty() {
                graph.dynamic_batch = input.dynamic_batch;
                graph.batch = input.dims.first().copied().unwrap_or(1);
            }
            let id = self.builder.value(name.into(), input.dims, input.encoding.dtype()).map_err(blame)?;
            self.builder.graph.inputs.push(id);
            self.builder.graph.input_layouts.push(None);
            if name.is_empty() || self.slots.insert(name, Slot::Activation(id)).is_some() {
                return fault(format!("input \"{name}\": the name is empty or occurs twice"));
            }
        }
        if self.builder.graph.inputs.is_empty() {
            return fault("the model has no input");
        }
        Ok(())
    }

    fn nodes(&mut self, file: &'a proto::GraphProto) -> Result<(), ModelError> {
        let order = order::order(&file.node).map_err(|(i, why)| self.blame(&file.node[i], Refusal(why)))?;
        let read: HashSet<&str> = file.node.iter().flat_map(|n| &n.input).map(String::as_str).collect();
        let asked: HashSet<&str> = file.output.iter().filter_map(|o| o.name.as_deref()).collect();
        for i in order {
            let node = &file.node[i];
            let first_new = self.builder.graph.values.len();
            let results = self.node(node).map_err(|refusal| self.blame(node, refusal))?;
            for (i, name) in node.output.iter().map(String::as_str).enumerate().filter(|(_, name)| !name.is_empty()) {
                match results.get(i) {
                    Some(slot) => self.bind(name, slot.clone(), first_new),
                    None if read.contains(name) || asked.contains(name) => {
                        refuse(format!("its output {i} (\"{name}\") is not supported"))
                    }
                    None => Ok(()),
                }
                .map_err(|refusal| self.blame(node, refusal))?;
            }
        }
        Ok(())
    }

    /// Lowers one node.
    fn node(&mut self, node: &'a proto::NodeProto) -> Outcome {
        if !is_standard(node.domain.as_deref()) {
            return refuse("operators of this domain are not supported");
        }
        let Some(rule) = table::find(node.op_type.as_deref().unwrap_or_default()) else {
            return refuse("the operator is not supported");
        };
        let [since, until] = rule.opsets;
        if self.opset < since || self.opset > until {
            return refuse("the operator does not exist in this opset");
        }
        let mut inputs = Vec::with_capacity(node.input.len());
        for name in &node.input {
            inputs.push(match name.as_str() {
                "" => None,
                name => match self.slots.get(name) {
                    Some(slot) => Some(slot.clone()),
                    None => return refuse(format!("it reads \"{name}\", which nothing makes")),
                },
            });
        }
        while inputs.last().is_some_and(Option::is_none) {
            inputs.pop();
        }
        let [fewest, most] = rule.inputs;
        if inputs.len() < fewest || inputs.len() > most {
            return refuse(format!("{} operands do not fit the operator", inputs.len()));
        }
        let mut import = NodeImport {
            name: name_of(node),
            opset: self.opset,
            attributes: Attributes::of(node)?,
            inputs,
            outputs: node.output.len(),
            builder: &mut self.builder,
        };
        let results = (rule.lower)(&mut import)?;
        import.attributes.finish()?;
        Ok(results)
    }

    /// Gives a node's result its name in the file; values from `first_new` on are the node's own.
    fn bind(&mut self, name: &'a str, slot: Slot, first_new: usize) -> Result<(), Refusal> {
        if let Slot::Activation(id) = slot
            && id.0 >= first_new
        {
            self.builder.graph.values[id.0].name = name.into();
        }
        match self.slots.insert(name, slot) {
            None => Ok(()),
            Some(_) => refuse(format!("\"{name}\" is made twice")),
        }
    }

    /// Outputs. One that is an input, a constant or another output under a second name gets a node of its own.
    fn outputs(&mut self, file: &proto::GraphProto) -> Result<(), ModelError> {
        for info in &file.output {
            let name = info.name.as_deref().unwrap_or_default();
            let blame = |Refusal(why)| ModelError::Graph(format!("output \"{name}\": {why}"));
            let Some(slot) = self.slots.get(name) else {
                return fault(format!("output \"{name}\": nothing makes it"));
            };
            let own = match slot {
                Slot::Activation(id) => self.builder.graph.value(*id).name == name,
                Slot::Constant(_) => false,
            };
            let id = self.builder.id(slot, name);
            let graph = &self.builder.graph;
            let id = if own && !graph.inputs.contains(&id) && !graph.outputs.contains(&id) {
                id
            } else {
                let (dims, dtype) = (graph.dims(id).to_vec(), graph.value(id).dtype);
                let id = Slot::Activation(id);
                let copy = self.builder.node(name, Op::Reshape, &[&id], dims, dtype).map_err(blame)?;
                self.builder.graph.values[copy.0].name = name.into();
                copy
            };
            self.builder.graph.outputs.push(id);
        }
        if self.builder.graph.outputs.is_empty() {
            return fault("the model has no output");
        }
        self.batch()
    }

    /// Checks that every input and output holds whole images. A file with sizes of its own that do not go together is
    /// run as one item.
    fn batch(&mut self) -> Result<(), ModelError> {
        let graph = &mut self.builder.graph;
        let whole = |&id: &ValueId| graph.dims(id).first().is_some_and(|d| d % graph.batch == 0);
        match graph.inputs.iter().chain(&graph.outputs).copied().find(|id| !whole(id)) {
            Some(id) if graph.dynamic_batch && graph.batch > 1 => fault(format!(
                "\"{}\" is {:?} for a batch of {}: the model computes with a fixed batch inside; use batch 1",
                graph.value(id).name,
                graph.dims(id),
                graph.batch
            )),
            Some(_) => {
                graph.batch = 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn blame(&self, node: &proto::NodeProto, Refusal(message): Refusal) -> ModelError {
        let op_type = node.op_type.as_deref().unwrap_or_default();
        let op = match node.domain.as_deref() {
            domain if is_standard(domain) => op_type.to_owned(),
            domain => format!("{}.{op_type}", domain.unwrap_or_default()),
        };
        ModelError::Node { node: name_of(node).into(), op, opset: self.opset, message }
    }
}

/// A node's name, or its first output's.
fn name_of(node: &proto::NodeProto) -> &str {
    match node.name.as_deref() {
        Some(name) if !name.is_empty() => name,
        _ => node.output.first().map_or("", String::as_str),
    }
}
