//! The model card: what a network wants to be fed and how its output is read, as a TOML file.
//!
//! `configs/models/efficientnet-lite0.toml` has every key with a comment.

use std::path::{Path, PathBuf};

use ocellus_kernels::preprocess::{ColourOrder, Filter, LetterboxPlace, Match, PreprocessDesc, ResizeRule};
use ocellus_kernels::tensor::Layout;

use super::{ModelError, text};

mod file;

/// Largest side of an input; larger ones are a slip of the pen.
const MAX_SIDE_PX: usize = 8192;

/// Classes that a row names where neither card nor command line says how many.
const DEFAULT_TOP: usize = 5;

/// What the network does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// One score a class for the whole picture.
    Classify,
}

/// How scores are read from the network's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoder {
    /// Logits: a softmax makes them probabilities.
    Softmax,
    /// Probabilities already.
    Probabilities,
}

/// The network's image input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Its name in the file, to be checked.
    pub name: Option<String>,
    /// Columns.
    pub width_px: usize,
    /// Rows.
    pub height_px: usize,
    /// Channel order.
    pub colour: ColourOrder,
}

/// From a picture of any size to the input's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resize {
    /// Rule.
    pub rule: ResizeRule,
    /// Filter.
    pub filter: Filter,
    /// Widen the filter when shrinking.
    pub antialias: bool,
    /// Whose arithmetic.
    pub matching: Match,
}

/// From 0..=255 to the input's values: (x - mean) / std, in the order of the input's channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalise {
    /// Subtracted.
    pub mean: [f32; 3],
    /// Divided by.
    pub std: [f32; 3],
}

/// The network's output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Output {
    /// How scores are read.
    pub decoder: Decoder,
    /// The network's class 0 stands for none of the labels: it takes part in the softmax but is never reported, and the
    /// class after it is the first label's, 0 in rows.
    pub background: bool,
    /// Classes that a row names.
    pub top: usize,
    /// Lowest score that a row names.
    pub threshold: f32,
}

/// A checked model card.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    /// What the network does.
    pub task: Task,
    /// The network.
    pub onnx: PathBuf,
    /// Names of the classes, one a line.
    pub labels: Option<PathBuf>,
    /// The network's image input.
    pub input: Input,
    /// From a picture to the input's size.
    pub resize: Resize,
    /// From 8 bits to the input's values.
    pub normalise: Normalise,
    /// The network's output.
    pub output: Output,
}

impl Card {
    /// Reads and checks a card. Paths in it count from its folder.
    ///
    /// # Errors
    /// One line naming the file, the line or key, and what to write.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let text = text::read(path).map_err(|source| ModelError::Io { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// As [`Card::read`], for a card's text; `path` is where it would be.
    ///
    /// # Errors
    /// As in [`Card::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ModelError> {
        let card = |message| ModelError::Card { path: path.to_owned(), message };
        file::parse(text, path.parent().unwrap_or(Path::new(""))).map_err(card)
    }

    /// The card of an ONNX file that has none: the preprocessing of most ImageNet classifiers. Also a line for each thing
    /// that was assumed.
    pub fn for_bare_onnx(
        onnx: &Path,
        width_px: usize,
        height_px: usize,
        normalised_output: bool,
    ) -> (Self, Vec<String>) {
        let short_px = (width_px.max(height_px) as f64 / 0.875).round() as usize;
        let card = Self {
            task: Task::Classify,
            onnx: onnx.to_owned(),
            labels: None,
            input: Input { name: None, width_px, height_px, colour: ColourOrder::Rgb },
            resize: Resize {
                rule: ResizeRule::Shortest { short_px },
                filter: Filter::Bilinear,
                antialias: true,
                matching: Match::Pillow,
            },
            normalise: Normalise { mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375] },
            output: Output {
                decoder: if normalised_output { Decoder::Probabilities } else { Decoder::Softmax },
                background: false,
                top: DEFAULT_TOP,
                threshold: 0.0,
            },
        };
        let decoder = if normalised_output { "probabilities" } else { "logits" };
        let assumptions = vec![
            format!(
                "{}: no model card; write one (see configs/models) where these assumptions are wrong",
                onnx.display()
            ),
            format!(
                "assumed: RGB, shorter side to {short_px} px, centre crop {width_px}x{height_px}, bilinear with antialias"
            ),
            "assumed: mean 123.675 116.28 103.53, std 58.395 57.12 57.375 (ImageNet, 0..255 units)".into(),
            format!("assumed: a classifier whose output is {decoder}; classes are numbers, there are no labels"),
        ];
        (card, assumptions)
    }

    /// The preprocessing for an input in this axis order.
    pub fn preprocess(&self, layout: Layout) -> PreprocessDesc {
        PreprocessDesc {
            width_px: self.input.width_px,
            height_px: self.input.height_px,
            resize: self.resize.rule,
            filter: self.resize.filter,
            antialias: self.resize.antialias,
            matching: self.resize.matching,
            colour: self.input.colour,
            mean: self.normalise.mean,
            std: self.normalise.std,
            layout,
        }
    }
}

/// Position of a picture in a letterbox where the card does not say.
const DEFAULT_PLACE: LetterboxPlace = LetterboxPlace::Centre;

#[cfg(test)]
mod tests;
