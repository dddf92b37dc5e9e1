//! A model: its card, its graph, and the plan an engine runs.
//!
//! `onnx` (file to protobuf) `-> import` (protobuf to graph) `-> passes` (graph to graph) `-> plan` (graph to plan).
//! [`graph`] imports none of them.

pub mod card;
pub mod graph;
pub mod import;
pub mod inspect;
pub mod load;
pub mod onnx;
pub mod passes;
pub mod plan;
pub mod spec;
pub mod text;

use crate::error::too_many_open_files;

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The file could not be read.
    #[error("{path}: {source}{}", too_many_open_files(source))]
    Io {
        /// File.
        path: std::path::PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file that the user or a card names is not there.
    #[error("no {what} at {path}{hint}")]
    Missing {
        /// What it should be.
        what: &'static str,
        /// Where it was looked for.
        path: std::path::PathBuf,
        /// Who named it, and what to do.
        hint: String,
    },
    /// No card has this name.
    #[error(
        "no model {model:?}: known are {known}; looked in {folders}. Give a name, or the path of a .toml or .onnx file, or set \
         OCELLUS_MODELS to the folder of the cards"
    )]
    Unknown {
        /// What was asked for.
        model: String,
        /// Names of the cards found.
        known: String,
        /// Folders looked in.
        folders: String,
    },
    /// Card, labels and network contradict one another.
    #[error("{path}: {message}")]
    Mismatch {
        /// The network's or the labels' file.
        path: std::path::PathBuf,
        /// What does not fit and what to do.
        message: String,
    },
    /// The card is wrong.
    #[error("{path}: {message}")]
    Card {
        /// File.
        path: std::path::PathBuf,
        /// What to change, with the line where known.
        message: String,
    },
    /// The file is no ONNX model, or a damaged one.
    #[error("{path}: not a usable ONNX model: {message}")]
    Parse {
        /// File.
        path: std::path::PathBuf,
        /// What is wrong.
        message: String,
    },
    /// What the file holds is no network that runs here.
    #[error("{path}: {source}")]
    Network {
        /// File.
        path: std::path::PathBuf,
        /// Why.
        source: Box<ModelError>,
    },
    /// An operator, attribute or type that is not supported, or used against its specification.
    #[error("node \"{node}\" ({op}, opset {opset}): {message}")]
    Node {
        /// The node's name, or its first output's where it has none.
        node: String,
        /// Domain and operator type as the file has it.
        op: String,
        /// Version of the operator set.
        opset: i64,
        /// What is wrong.
        message: String,
    },
    /// A tensor has more elements than are accepted. A smaller batch may help.
    #[error("{0}; use a smaller batch or input size")]
    TooLarge(String),
    /// The graph as a whole is wrong.
    #[error("{0}")]
    Graph(String),
}
