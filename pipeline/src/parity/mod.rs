//! How far this pipeline's steps are from a reference chain, on one file at a time.
//!
//! ```text
//! reference:  decode -> resize (Pillow's arithmetic) -> normalise -> fp32 network on the CPU
//! pipeline:   what a job would do, step by step ([`Steps`])
//! ```
//!
//! The reference decodes with the CPU's decoder: with the feature `libjpeg` its pixels are libjpeg-turbo's, else those of the
//! crate `image`, which differ from them by a little ([`crate::decode`], "How close"). It resizes with plain loops
//! instead of this machine's vector instructions.

mod steps;

use ocellus_kernels::KernelError;
use ocellus_kernels::cpu::Isa;
use ocellus_kernels::cpu::preprocess::Preprocessor;
use ocellus_kernels::engine::Engine;
use ocellus_kernels::preprocess::PreprocessDesc;
use ocellus_kernels::tensor::Layout;
pub use steps::{CpuSteps, GpuSteps, Stepped, Steps};

use crate::decode::{DecodeOptions, decode};
use crate::error::{ErrorKind, ItemError, JobError, StageName};
use crate::frame::{Decoder, Encoded, Item, Picture};
use crate::gpu::Precision;
use crate::infer::cpu_engine;
use crate::model::load::Model;
use crate::postprocess::{self, ClassifyDesc};
use crate::stage::Stage;

/// True where the reference's JPEG pixels are those of libjpeg-turbo.
pub const EXACT_DECODE: bool = cfg!(feature = "libjpeg");

/// How far numbers are from those that they should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Difference {
    /// Largest |difference|.
    pub max: f64,
    /// Mean |difference|.
    pub mean: f64,
}

impl Difference {
    /// Between numbers in the same places; `None` where there are not as many. A difference that is no number is infinite.
    pub fn between<T: Copy + Into<f64>>(a: &[T], b: &[T]) -> Option<Self> {
        if a.len() != b.len() {
            return None;
        }
        let (mut max, mut sum) = (0.0_f64, 0.0_f64);
        for (&a, &b) in a.iter().zip(b) {
            let difference = (a.into() - b.into()).abs();
            let difference = if difference.is_nan() { f64::INFINITY } else { difference };
            max = max.max(difference);
            sum += difference;
        }
        Some(Self { max, mean: sum / a.len().max(1) as f64 })
    }
}

/// How far an answer is from another one for the same picture.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Drift {
    /// Whether both name the same first class.
    pub same_top1: bool,
    /// Largest |difference| of a class's score.
    pub score: f64,
}

/// What comparing a file gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Columns of the picture, upright.
    pub width_px: u32,
    /// Rows.
    pub height_px: u32,
    /// Who decoded it in the pipeline.
    pub decoder: Decoder,
    /// Who decoded it for the reference.
    pub reference: Decoder,
    /// Pixels, in steps of 8 bits.
    pub decode: Difference,
    /// The resized picture against Pillow's arithmetic on the same decoded pixels, in steps of 8 bits.
    pub resize: Difference,
    /// The resized picture against the reference's: what the resize leaves of the difference in decoding.
    pub resized: Difference,
    /// The network's input against the reference's, in its own unit.
    pub input: Difference,
    /// fp32 on the CPU: what the pipeline's input does to the answer.
    pub answer: Drift,
    /// Each arithmetic of the pipeline against fp32 on the CPU with the same input.
    pub precisions: Vec<(Precision, Drift)>,
}

impl Comparison {
    /// Orders comparisons by how much they matter, the worst the largest: first classes that changed, then scores, then
    /// pixels.
    pub fn badness(&self) -> [f64; 4] {
        let drifts = || self.precisions.iter().map(|(_, drift)| drift).chain([&self.answer]);
        let changed = drifts().filter(|drift| !drift.same_top1).count() as f64;
        [changed, drifts().map(|drift| drift.score).fold(0.0, f64::max), self.input.mean, self.decode.max]
    }
}

/// The stage: compares what [`Steps`] make of each file with the reference chain.
pub struct Compare<S> {
    steps: S,
    reference: Preprocessor,
    /// The reference's resize without what follows.
    resize: Preprocessor,
    resized_len: usize,
    engine: Box<dyn Engine>,
    classify: ClassifyDesc,
    decode: DecodeOptions,
}

/// A model's preprocessing without normalisation: the values are those of the resized picture, 0..255, N, H, W, C.
pub fn resize_alone(desc: &PreprocessDesc) -> PreprocessDesc {
    PreprocessDesc { mean: [0.0; 3], std: [1.0; 3], layout: Layout::Nhwc, ..desc.clone() }
}

impl<S: Steps> Compare<S> {
    /// Compares with the reference that `desc` describes, usually the model's own preprocessing; the network runs on
    /// `threads` threads.
    ///
    /// # Errors
    /// Where the description contradicts itself or the network cannot be planned.
    pub fn new(
        steps: S,
        model: &Model,
        desc: &PreprocessDesc,
        decode: DecodeOptions,
        threads: usize,
    ) -> Result<Self, JobError> {
        Ok(Self {
            steps,
            reference: Preprocessor::with_isa(desc.clone(), Isa::Plain)?,
            resize: Preprocessor::with_isa(resize_alone(desc), Isa::Plain)?,
            resized_len: 3 * desc.width_px * desc.height_px,
            engine: cpu_engine(model, threads)?,
            classify: ClassifyDesc::of(model.labels.clone(), &model.card.output),
            decode,
        })
    }

    fn compare(&mut self, item: &Item<()>, encoded: &Encoded) -> Result<Result<Comparison, ItemError>, JobError> {
        let picture = match decode(&encoded.bytes, &self.decode) {
            Ok(picture) => picture,
            Err(error) => return Ok(Err(error)),
        };
        let stepped = match self.steps.run(item, encoded)? {
            Ok(stepped) => stepped,
            Err(error) => return Ok(Err(error)),
        };
        let len = self.resized_len;
        let run = |by: &mut Preprocessor, picture: &Picture| preprocessed(by, picture, len);
        let inputs = run(&mut self.resize, &picture)
            .and_then(|resized| Ok((resized, run(&mut self.resize, &stepped.picture)?)))
            .and_then(|(resized, pillow)| Ok((resized, pillow, run(&mut self.reference, &picture)?)));
        let (resized, pillow, input) = match inputs {
            Ok(inputs) => inputs,
            Err(e) => {
                return Ok(Err(ItemError::new(StageName::Preprocess, ErrorKind::Unsupported, e.to_string())));
            }
        };
        let reference = self.scores(&input)?;
        let same_input = if input == stepped.input { reference.clone() } else { self.scores(&stepped.input)? };
        Ok((|| {
            let (reference, same_input) = (reference?, same_input?);
            let mut precisions = Vec::with_capacity(stepped.outputs.len());
            for (precision, output) in &stepped.outputs {
                let scores = postprocess::scores(&self.classify, output)?;
                precisions.push((*precision, self.drift(&scores, &same_input)));
            }
            let size = |picture: &Picture| [picture.width_px, picture.height_px];
            if size(&picture) != size(&stepped.picture) {
                let [width, height] = size(&picture);
                let why = format!("the pipeline's picture has another size than the reference's {width} x {height}");
                return Err(ItemError::new(StageName::Decode, ErrorKind::Internal, why));
            }
            let lens = || ItemError::new(StageName::Preprocess, ErrorKind::Internal, "steps of other sizes");
            Ok(Comparison {
                width_px: picture.width_px,
                height_px: picture.height_px,
                decoder: stepped.picture.decoder,
                reference: picture.decoder,
                decode: Difference::between(&stepped.picture.rgb, &picture.rgb).ok_or_else(lens)?,
                resize: Difference::between(&stepped.resized, &pillow).ok_or_else(lens)?,
                resized: Difference::between(&stepped.resized, &resized).ok_or_else(lens)?,
                input: Difference::between(&stepped.input, &input).ok_or_else(lens)?,
                answer: self.drift(&same_input, &reference),
                precisions,
            })
        })())
    }

    /// Scores in fp32 on the CPU.
    fn scores(&mut self, input: &[f32]) -> Result<Result<Vec<f32>, ItemError>, JobError> {
        // A network whose file fixes the batch takes no less.
        let batch = self.engine.inputs().first().and_then(|port| port.buffer.dims.first()).copied().unwrap_or(1).max(1);
        let mut images = input.to_vec();
        images.resize(input.len() * batch, 0.0);
        let mut outputs = vec![Vec::new(); self.engine.outputs().len()];
        self.engine.run(batch, &[&images], &mut outputs)?;
        let values = outputs.first().map_or(&[][..], |values| &values[..values.len() / batch]);
        Ok(postprocess::scores(&self.classify, values))
    }

    fn drift(&self, scores: &[f32], reference: &[f32]) -> Drift {
        let first = |scores: &[f32]| {
            let classes = scores.iter().enumerate().skip(usize::from(self.classify.background));
            // Ties by lower class, as in rows.
            classes.rev().max_by(|a, b| a.1.total_cmp(b.1)).map(|(class, _)| class)
        };
        let score = Difference::between(scores, reference).map_or(f64::INFINITY, |difference| difference.max);
        Drift { same_top1: first(scores) == first(reference), score }
    }
}

fn preprocessed(by: &mut Preprocessor, picture: &Picture, len: usize) -> Result<Vec<f32>, KernelError> {
    let mut values = vec![0.0; len];
    by.run_f32(&picture.rgb, picture.width_px as usize, picture.height_px as usize, &mut values)?;
    Ok(values)
}

impl<S: Steps> Stage for Compare<S> {
    type In = Item<Encoded>;
    type Out = Item<Comparison>;

    fn process(&mut self, input: Item<Encoded>, emit: &mut dyn FnMut(Self::Out)) -> Result<(), JobError> {
        let item = input.with(Ok(()));
        let payload = match input.payload {
            Ok(encoded) => self.compare(&item, &encoded)?,
            Err(error) => Err(error),
        };
        emit(item.with(payload));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn differences_are_those_of_their_places() {
        let difference = Difference::between(&[1.0_f32, 2.0, 5.0, 5.0], &[1.0, 4.0, 4.0, 5.0]).unwrap();
        assert_eq!(difference, Difference { max: 2.0, mean: 0.75 });
        assert_eq!(Difference::between(&[255_u8, 0], &[0, 255]), Some(Difference { max: 255.0, mean: 255.0 }));
        assert_eq!(Difference::between::<u8>(&[], &[]), Some(Difference::default()));
        assert_eq!(Difference::between(&[1_u8], &[]), None);
        for odd in [f32::NAN, f32::INFINITY] {
            assert_eq!(Difference::between(&[odd, 1.0], &[1.0, 1.0]).unwrap().max, f64::INFINITY, "{odd}");
        }
    }

    #[test]
    fn a_changed_class_is_worse_than_any_drift() {
        let drift = |same_top1, score| Drift { same_top1, score };
        let comparison = |answer, precisions: &[Drift], input| Comparison {
            width_px: 1,
            height_px: 1,
            decoder: Decoder::Image,
            reference: Decoder::Image,
            decode: Difference::default(),
            resize: Difference::default(),
            resized: Difference::default(),
            input: Difference { max: input, mean: input },
            answer,
            precisions: precisions.iter().map(|&drift| (Precision::Fp16, drift)).collect(),
        };
        let order = [
            comparison(drift(true, 0.0), &[drift(true, 0.0)], 0.0),
            comparison(drift(true, 0.0), &[drift(true, 0.0)], 1.0),
            comparison(drift(true, 0.1), &[drift(true, 0.0)], 0.0),
            comparison(drift(true, 0.0), &[drift(true, 0.2)], 0.0),
            comparison(drift(true, 0.0), &[drift(false, 0.0)], 0.0),
            comparison(drift(false, 0.0), &[drift(false, 0.0)], 0.0),
        ];
        assert!(order.windows(2).all(|pair| pair[0].badness() < pair[1].badness()));
    }

    proptest! {
        #[test]
        fn a_difference_has_no_direction(pairs in prop::collection::vec(any::<(u8, u8)>(), 1..50)) {
            let (a, b): (Vec<u8>, Vec<u8>) = pairs.into_iter().unzip();
            let difference = Difference::between(&a, &b).unwrap();
            prop_assert_eq!(Difference::between(&b, &a).unwrap(), difference);
            prop_assert!(difference.mean <= difference.max && difference.max <= 255.0);
            prop_assert_eq!(difference.max == 0.0, a == b);
        }
    }
}
