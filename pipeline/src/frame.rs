//! What travels between the stages: one type a hop, each inside an [`Item`] with its identity.

mod budget;
mod buffer;
mod deadline;
mod vectors;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

pub use budget::{Budget, Share};
pub use buffer::{Buffer, BufferPool, LockedMemory};
pub use deadline::Deadline;
use ocellus_kernels::picture::PictureDesc;
use ocellus_kernels::preprocess::Transform;
pub use vectors::{PooledVec, VecPool};

use crate::error::ItemError;

/// Where an item came from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A file, named as the user or the folder walk named it.
    File(PathBuf),
    /// A frame of a stream.
    Frame {
        /// Address of the stream.
        stream: String,
        /// Number in the stream, from 0.
        frame: u64,
        /// Presentation time.
        pts_ns: u64,
    },
}

/// One image on its way. A failed item keeps travelling, so that every input ends as exactly one row.
#[derive(Clone, Debug)]
pub struct Item<T> {
    /// Position among the job's inputs, from 0 without gaps.
    pub id: u64,
    /// Where it came from.
    pub origin: Arc<Origin>,
    /// When the source gave it.
    pub arrived: Instant,
    /// What it is at this point, or why it failed.
    pub payload: Result<T, ItemError>,
}

impl<T> Item<T> {
    /// An item that arrives now.
    pub fn new(id: u64, origin: impl Into<Arc<Origin>>, payload: Result<T, ItemError>) -> Self {
        Self { id, origin: origin.into(), arrived: Instant::now(), payload }
    }

    /// The same item with another payload.
    pub fn with<U>(&self, payload: Result<U, ItemError>) -> Item<U> {
        Item { id: self.id, origin: Arc::clone(&self.origin), arrived: self.arrived, payload }
    }

    /// The same item with its payload moved on by `f`; a failed item stays as it is.
    pub fn and_then<U>(self, f: impl FnOnce(T) -> Result<U, ItemError>) -> Item<U> {
        Item { id: self.id, origin: self.origin, arrived: self.arrived, payload: self.payload.and_then(f) }
    }
}

/// What belongs to an input with a number.
pub trait Numbered {
    /// [`Item::id`].
    fn number(&self) -> u64;
}

impl<T> Numbered for Item<T> {
    fn number(&self) -> u64 {
        self.id
    }
}

/// A value on one of several ways side by side, such as GPUs or models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch<T> {
    /// Which way, from 0.
    pub branch: usize,
    /// What is on it.
    pub value: T,
}

impl<T: Numbered> Numbered for Branch<T> {
    fn number(&self) -> u64 {
        self.value.number()
    }
}

/// A file's bytes. source -> decode.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// The whole file.
    pub bytes: Buffer,
    /// Its share of the memory for large files, held as long as the bytes.
    pub share: Option<Share>,
}

/// Which decoder served an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decoder {
    /// The crate `image`.
    Image,
    /// libjpeg (mozjpeg), feature `libjpeg`.
    Libjpeg,
    /// nvJPEG on the GPU's JPEG engines.
    NvjpegHw,
    /// nvJPEG, the CPU reading the codes and the GPU doing the rest.
    NvjpegHybrid,
}

impl std::fmt::Display for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The serde name is the public one.
        serde::Serialize::serialize(self, f)
    }
}

/// Decoded pixels, upright (EXIF orientation applied). decode -> preprocess.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Columns.
    pub width_px: u32,
    /// Rows.
    pub height_px: u32,
    /// R, G, B, 8 bits each, row-major without padding: `3 * width_px * height_px` bytes.
    pub rgb: Vec<u8>,
    /// Who decoded it.
    pub decoder: Decoder,
    /// The file's data ends too early or is damaged; what could be decoded was, the rest is filler.
    pub partial: bool,
    /// Its share of the memory for large pictures, held as long as the picture.
    pub share: Option<Share>,
}

/// A file on its way to the GPU. decode -> gpu.
#[derive(Clone, Debug)]
pub enum Work {
    /// A JPEG file for the GPU to decode.
    Jpeg {
        /// The file.
        bytes: Buffer,
        /// The planes that it becomes.
        desc: PictureDesc,
        /// Who tries first: [`Decoder::NvjpegHw`] or [`Decoder::NvjpegHybrid`].
        decoder: Decoder,
    },
    /// A picture that the CPU has decoded.
    Rgb(Picture),
    /// What is too large to wait in memory: the CPU decodes it when its turn comes. `None` is not even read yet.
    Later(Option<Encoded>),
}

/// Facts about a picture that its result row repeats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PictureInfo {
    /// Columns after orientation.
    pub width_px: u32,
    /// Rows after orientation.
    pub height_px: u32,
    /// Who decoded it.
    pub decoder: Decoder,
    /// See [`Picture::partial`].
    pub partial: bool,
    /// From the network's input back to the picture.
    pub transform: Transform,
}

/// A picture as the network's input. preprocess -> batch.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Facts for the row.
    pub info: PictureInfo,
    /// One image in the layout of the network's input.
    pub data: Vec<f32>,
}

/// Several images for one run of the network; failed items ride along. batch -> infer.
#[derive(Clone, Debug)]
pub struct Batch {
    /// In the order of arrival. The payload of the n-th good item describes the n-th image of `data`.
    pub items: Vec<Item<PictureInfo>>,
    /// The good items' images one after another.
    pub data: Vec<f32>,
}

/// What the network made of a batch. infer -> postprocess.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// As in [`Batch`].
    pub items: Vec<Item<PictureInfo>>,
    /// One vector for each output of the network, the good items' values one after another.
    pub data: Vec<Vec<f32>>,
}

/// The best classes of a batch's images, found by the GPU. gpu -> postprocess.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// In the order of arrival. The payload of the n-th good item belongs to the n-th of `ranked`.
    pub items: PooledVec<Item<PictureInfo>>,
    /// One for each good item.
    pub ranked: PooledVec<Ranked>,
}

/// What the GPU says about an image's scores.
#[derive(Clone, Debug, PartialEq)]
pub enum Ranked {
    /// Values of the network's output with their probabilities, the highest first, ties by lower index.
    Best(PooledVec<(u32, f32)>),
    /// Values that are not finite make it worthless.
    NotFinite,
    /// This value should be a probability and is none.
    NoProbability(f32),
}

/// A class and its score.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Scored {
    /// Index of the class.
    pub class: u32,
    /// Its name.
    pub label: Arc<str>,
    /// Probability, 0..1.
    pub score: f32,
}

/// The end of the way: what a row says. postprocess -> sink.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// Facts about the picture.
    pub info: PictureInfo,
    /// Best classes, best first; ties by lower class.
    pub top: PooledVec<Scored>,
}
