//! The best classes of each image, written where the host reads them.

use super::emit;
use super::{Arg, Launch, Tensor};
use crate::tensor::elements;

/// What a classifier's output means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scores {
    /// Logits: a softmax over the classes makes them probabilities.
    Logits,
    /// Probabilities already.
    Probabilities,
    /// Logits of classes that have nothing to do with one another: each becomes 1 / (1 + e^-x).
    Sigmoid,
}

/// Where the kernel writes what, in bytes: a row an image, of 16 bytes and 8 for every class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopKLayout {
    /// Classes a row, at most as many as there are.
    pub k: usize,
}

/// A row as the host sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopKRow<'a> {
    /// Values that make the row worthless: NaN; for logits infinity as well, and all of them where none is finite; for
    /// probabilities whatever is not finite.
    pub faults: u32,
    /// The first value that is no probability, being more than 0.001 outside 0..1, where the output should be
    /// probabilities.
    pub outside: Option<f32>,
    /// Class and score, as the kernel wrote them.
    pairs: &'a [[[u8; 4]; 2]],
}

impl TopKRow<'_> {
    /// Class and score: highest score first, ties by lower class. Without meaning where there are faults.
    pub fn best(&self) -> impl ExactSizeIterator<Item = (u32, f32)> {
        self.pairs.iter().map(|&[class, score]| (u32::from_ne_bytes(class), f32::from_ne_bytes(score)))
    }
}

/// Words before the classes.
const HEADER: usize = 4;

impl TopKLayout {
    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        4 * (HEADER + 2 * self.k)
    }

    /// Row `image` of what the kernel wrote; `None` where `bytes` end before it does.
    pub fn read<'a>(&self, bytes: &'a [u8], image: usize) -> Option<TopKRow<'a>> {
        let (words, _) = bytes.as_chunks::<4>();
        let len = self.row_bytes() / 4;
        let row = words.get(image * len..(image + 1) * len)?;
        let [header, pairs @ ..] = row.as_chunks::<2>().0 else { return None };
        let [[outside_value, _], pairs @ ..] = pairs else { return None };
        let [faults, outside] = header.map(u32::from_ne_bytes);
        Some(TopKRow { faults, outside: (outside > 0).then(|| f32::from_ne_bytes(*outside_value)), pairs })
    }
}

/// The best `layout.k` classes of each image of `scores` [images, classes] (operand 0), written to the output as `layout`
/// says. The output may be memory of the host.
pub fn softmax_top_k(scores: &Tensor, meaning: Scores, layout: TopKLayout) -> Launch {
    let images = scores.dims.first().copied().unwrap_or(1);
    let classes = elements(&scores.dims) / images.max(1);
    let name = match meaning {
        Scores::Logits => "kLogits",
        Scores::Probabilities => "kProbabilities",
        Scores::Sigmoid => "kSigmoid",
    };
    let defines = vec![("SCORES", name.into()), ("TX", emit::type_name(scores.dtype))];
    Launch {
        kernel: emit::spec("top_k.cu", "softmax_top_k", defines),
        grid: [images as u32, 1, 1],
        block: emit::BLOCK,
        shared_bytes: 0,
        args: vec![Arg::Input(0), Arg::Output, Arg::I32(classes as i32), Arg::I32(layout.k as i32)],
        overlaps: true,
    }
}
