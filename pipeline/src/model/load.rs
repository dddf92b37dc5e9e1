//! Opens a model: card, labels and network together, checked against one another.

use std::path::Path;
use std::sync::Arc;

use ocellus_kernels::op::Op;
use ocellus_kernels::plan::Plan;
use ocellus_kernels::preprocess::PreprocessDesc;
use ocellus_kernels::tensor::{DType, Layout, elements};

use super::ModelError;
use super::card::Card;
use super::graph::{Graph, Value};
use super::import::{ImportOptions, Initialisers, import_with};
use super::onnx::{self, proto::ModelProto};
use super::passes::optimise;
use super::plan::plan;
use super::spec::{ModelSpec, alternatives};
use super::text;

/// Rows and columns assumed where neither card nor network says them.
const DEFAULT_SIDE_PX: usize = 224;

/// A model ready to be planned for any batch that its network takes.
#[derive(Debug)]
pub struct Model {
    /// Name of the card's or the network's file, without its extension.
    pub name: String,
    /// What the network wants to be fed and how its output is read.
    pub card: Card,
    /// Names of the classes, the first label first; empty where there are none.
    pub labels: Vec<Arc<str>>,
    /// Lines for the user: what was assumed or looks wrong.
    pub warnings: Vec<String>,
    /// The file without its initialisers.
    proto: ModelProto,
    initialisers: Initialisers,
    /// For one image, or the batch that the file fixes.
    graph: Graph,
}

impl Model {
    /// Opens a classifier.
    ///
    /// # Errors
    /// Where a file cannot be read, is damaged or not supported, or where card, labels and network contradict one another.
    pub fn open(spec: &ModelSpec) -> Result<Self, ModelError> {
        let mut model = Self::read(spec)?;
        model.check_input()?;
        let outputs = model.check_outputs()?;
        model.check_labels(outputs)?;
        Ok(model)
    }

    /// Opens any network, to look at it: what it is for is not checked.
    ///
    /// # Errors
    /// Where a file cannot be read, is damaged or not supported.
    pub fn read(spec: &ModelSpec) -> Result<Self, ModelError> {
        let (path, card) = match spec {
            ModelSpec::Card(path) => {
                check_file("model card", path, None)?;
                (path, Some(Card::read(path)?))
            }
            ModelSpec::Onnx(path) => (path, None),
        };
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let file = card.as_ref().map_or(path.as_path(), |card| card.onnx.as_path());
        let named_by = card.as_ref().map(|_| path.as_path());
        check_file("network", file, named_by)?;
        if let Some(labels) = card.as_ref().and_then(|card| card.labels.as_deref()) {
            check_file("labels", labels, named_by)?;
        }
        let mut proto = onnx::read(file)?;
        let of_file = |source| ModelError::Network { path: file.to_owned(), source: Box::new(source) };
        let initialisers = Initialisers::read(&proto, Some(folder_of(file))).map_err(of_file)?;
        // They are in memory a second time now.
        proto.graph.iter_mut().for_each(|graph| graph.initializer.clear());
        let import_for = |size| {
            import_with(
                &proto,
                &initialisers,
                &ImportOptions { batch: 1, input_size: size, folder: Some(folder_of(file).to_owned()) },
            )
        };
        let size = card.as_ref().map(|card| [card.input.height_px, card.input.width_px]);
        let mut warnings = Vec::new();
        let imported = match (import_for(size), size) {
            // Open sizes are one reason among others: where the assumption does not help the first error is the reason.
            (Err(first @ ModelError::Graph(_)), None) => {
                let side = DEFAULT_SIDE_PX;
                warnings.push(format!("assumed: {side}x{side} pixels where the network leaves its input's size open"));
                import_for(Some([side; 2])).map_err(|_| of_file(first))?
            }
            (imported, _) => imported.map_err(of_file)?,
        };
        let graph = optimise(imported, usize::MAX);
        let card = card.unwrap_or_else(|| {
            let [height_px, width_px] = image_size(&graph).unwrap_or([DEFAULT_SIDE_PX; 2]);
            let (card, assumptions) = Card::for_bare_onnx(path, width_px, height_px, ends_in_softmax(&graph));
            warnings.splice(0..0, assumptions);
            card
        });
        let labels = card.labels.as_deref().map(read_labels).transpose()?.unwrap_or_default();
        Ok(Self { name, card, labels, warnings, proto, initialisers, graph })
    }

    /// The network for a batch size, after the passes. A network whose file fixes the batch keeps it. Weights are the same
    /// ones for all sizes, in memory as well.
    ///
    /// # Errors
    /// Where the network does not take the batch size.
    pub fn graph(&self, batch: usize) -> Result<Graph, ModelError> {
        if batch == self.graph.batch || !self.graph.dynamic_batch {
            return Ok(self.graph.clone());
        }
        let input_size = Some([self.card.input.height_px, self.card.input.width_px]);
        let options = ImportOptions { batch, input_size, folder: Some(folder_of(&self.card.onnx).to_owned()) };
        let mut graph = optimise(import_with(&self.proto, &self.initialisers, &options)?, usize::MAX);
        graph.share_constants(&self.graph);
        Ok(graph)
    }

    /// The network laid out for a batch size.
    ///
    /// # Errors
    /// As in [`Model::graph`].
    pub fn plan(&self, batch: usize) -> Result<Plan, ModelError> {
        plan(&self.graph(batch)?)
    }

    /// The preprocessing that makes this network's input.
    pub fn preprocess(&self) -> PreprocessDesc {
        let layout = self.graph.input_layouts.first().copied().flatten();
        self.card.preprocess(layout.unwrap_or(Layout::Nchw))
    }

    /// Scores that the network gives for an image.
    pub fn classes(&self) -> usize {
        let output = self.graph.outputs.first().map_or(0, |&id| elements(self.graph.dims(id)));
        output / self.graph.batch.max(1)
    }

    fn mismatch<T>(&self, message: String) -> Result<T, ModelError> {
        Err(ModelError::Mismatch { path: self.card.onnx.clone(), message })
    }

    fn check_input(&self) -> Result<(), ModelError> {
        let &[id] = self.graph.inputs.as_slice() else {
            let count = self.graph.inputs.len();
            return self.mismatch(format!("the network has {count} inputs; only networks with one are supported"));
        };
        let Value { name, dims, dtype, .. } = self.graph.value(id);
        let input = &self.card.input;
        if let Some(wanted) = input.name.as_ref().filter(|wanted| *wanted != name) {
            return self.mismatch(format!("the network's input is \"{name}\", the card's input.name \"{wanted}\""));
        }
        let (h, w) = (input.height_px, input.width_px);
        let batch = self.graph.batch;
        let (expected, channels) = match self.graph.input_layouts[0] {
            Some(Layout::Nhwc) => ([batch, h, w, 3], 3),
            _ => ([batch, 3, h, w], 1),
        };
        if *dims != expected {
            let hint = if dims.get(channels) == Some(&3) {
                "check the card's input.width_px and input.height_px"
            } else {
                "only networks of colour pictures, with 3 channels, are supported"
            };
            return self.mismatch(format!(
                "the network's input \"{name}\" has shape {dims:?} where {expected:?} is needed; {hint}"
            ));
        }
        // Numbers that are not whole would reach an engine that computes with floats, but no other runtime.
        let normalise = self.card.normalise;
        let whole = normalise.mean == [0.0; 3] && normalise.std == [1.0; 3];
        if !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16) && !whole {
            return self.mismatch(format!(
                "the network's input \"{name}\" has element type {dtype:?}; it needs a card with mean = [0, 0, 0] and std = [1, 1, 1]"
            ));
        }
        Ok(())
    }

    /// The number of classes.
    fn check_outputs(&self) -> Result<usize, ModelError> {
        let &[id] = self.graph.outputs.as_slice() else {
            let count = self.graph.outputs.len();
            return self.mismatch(format!("the network has {count} outputs; a classifier has one"));
        };
        let dims = self.graph.dims(id);
        let classes = self.classes();
        let flat = dims.first() == Some(&self.graph.batch) && dims[1..].iter().filter(|&&d| d != 1).count() <= 1;
        if !flat || classes < 2 + usize::from(self.card.output.background) {
            return self.mismatch(format!(
                "the network's output has shape {dims:?}; a classifier's is [batch, classes] with two classes or more"
            ));
        }
        Ok(classes)
    }

    fn check_labels(&mut self, outputs: usize) -> Result<(), ModelError> {
        let classes = outputs - usize::from(self.card.output.background);
        let Some(path) = self.card.labels.clone() else { return Ok(()) };
        if self.labels.len() == classes {
            return Ok(());
        }
        let hint = if self.labels.len() + 1 == classes {
            "; where the network's class 0 is none of them write output.background = true in the card"
        } else {
            ""
        };
        let message = format!("{} labels for {classes} classes of the network{hint}", self.labels.len());
        Err(ModelError::Mismatch { path, message })
    }
}

/// Says who named a file that is not there: the card, or the user.
fn check_file(what: &'static str, path: &Path, named_by: Option<&Path>) -> Result<(), ModelError> {
    // Other faults are told by who reads it.
    if path.try_exists().unwrap_or(true) {
        return Ok(());
    }
    let hint = match named_by {
        Some(card) => format!(", which {} names: paths in a card count from the folder that it is in", card.display()),
        None => alternatives(),
    };
    Err(ModelError::Missing { what, path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()), hint })
}

/// The folder that a file lies in.
fn folder_of(file: &Path) -> &Path {
    // That of a bare file name is the working directory.
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Rows and columns of the first input, where it is an image.
fn image_size(graph: &Graph) -> Option<[usize; 2]> {
    let dims = graph.dims(*graph.inputs.first()?);
    match (graph.input_layouts.first()?, dims) {
        (Some(Layout::Nhwc), &[_, h, w, _]) | (Some(Layout::Nchw), &[_, _, h, w]) => Some([h, w]),
        _ => None,
    }
}

/// True where the network's last operator is a softmax over the classes.
fn ends_in_softmax(graph: &Graph) -> bool {
    let makes = |id| graph.nodes.iter().find(|n| n.output == id);
    let mut last = graph.outputs.first().and_then(|&id| makes(id));
    while let Some(node) = last.filter(|n| n.op == Op::Reshape) {
        last = node.inputs.first().and_then(|&id| makes(id));
    }
    last.is_some_and(|n| matches!(n.op, Op::Softmax { log: false, .. }))
}

/// Reads labels, one a line.
fn read_labels(path: &Path) -> Result<Vec<Arc<str>>, ModelError> {
    let text = text::read(path).map_err(|source| ModelError::Io { path: path.to_owned(), source })?;
    Ok(text.lines().map(|line| Arc::from(line.trim())).collect())
}

#[cfg(test)]
mod tests;
