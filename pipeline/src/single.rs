//! One file at a time, from its bytes to its labels, on the caller's thread: for whoever waits for the answer.
//!
//! A folder of files goes through the stages of [`crate::cli`], which are faster for many and slower for one.
//!
//! ```no_run
//! # use ocellus::{gpu::{Gpu, Precision}, model::{load::Model, spec::ModelSpec}, single::{Classifier, Options}};
//! # use ocellus_kernels::jit::JitOptions;
//! # fn classify(options: JitOptions, file: Vec<u8>) -> Result<(), Box<dyn std::error::Error>> {
//! let model = Model::open(&ModelSpec::resolve("efficientnet-lite0")?)?;
//! let mut classifier = Classifier::new(&Gpu::open(0, options)?, &model, &Options::default())?;
//! for class in classifier.classify(file)??.top {
//!     println!("{:.2} {}", class.score, class.label);
//! }
//! # Ok(())
//! # }
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use crate::decode::{DecodeOptions, Split, decode};
use crate::error::{ItemError, JobError, StageName};
use crate::frame::{Decoder, Encoded, Item, Origin, PictureInfo, Ranked, Ranking, Results, Work};
use crate::gpu::{Answer, Gpu, LaneOptions, Precision, Single};
use crate::model::load::Model;
use crate::postprocess::{ClassifyDesc, ClassifyRanked};
use crate::stage::Stage;

/// Pictures of up to so many pixels are decoded by the CPU where nobody says who. On an H200 a picture of 500x375 is labelled in
/// 0.38 ms where the JPEG engines decode it, in 0.89 ms with the hybrid decoder and in 1.39 ms with the CPU, which decodes about
/// 150 pixels a microsecond and is the fastest for the smallest pictures only.
const CPU_PIXELS: usize = 30_000;

/// Who decodes a JPEG file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecodePath {
    /// The CPU where the picture is small, else who would decode it in a job.
    #[default]
    Auto,
    /// The GPU's JPEG engines, what they do not take CPU and GPU together.
    Engines,
    /// CPU and GPU together.
    Hybrid,
    /// The CPU alone.
    Cpu,
}

/// How files are classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Arithmetic of the network.
    pub precision: Precision,
    /// Who decodes JPEG. What that one does not take goes to the CPU, as do all other formats.
    pub path: DecodePath,
    /// Limits, and what counts as an error.
    pub decode: DecodeOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self { precision: Precision::Fp16, path: DecodePath::default(), decode: DecodeOptions::default() }
    }
}

/// A classifier of single files on a GPU.
pub struct Classifier {
    single: Single,
    split: Split,
    rows: ClassifyRanked,
    options: Options,
    /// Files have no names here.
    origin: Arc<Origin>,
}

impl Classifier {
    /// Plans, compiles and uploads the model, whose card says how many classes an answer has.
    ///
    /// # Errors
    /// Where the GPU has no kernel for an operator or no memory, a kernel does not compile or the driver fails.
    pub fn new(gpu: &Gpu, model: &Model, options: &Options) -> Result<Self, JobError> {
        let desc = ClassifyDesc::of(model.labels.clone(), &model.card.output);
        let ranks = ClassifyRanked::ranks(&desc);
        let lane = LaneOptions { precision: options.precision, ranks };
        let single = Single::new(gpu, model, &lane)?;
        let on_gpu = single.decodes() && options.path != DecodePath::Cpu;
        Ok(Self {
            split: Split::new(options.decode, on_gpu),
            single,
            rows: ClassifyRanked::new(desc),
            options: *options,
            origin: Arc::new(Origin::File(PathBuf::new())),
        })
    }

    /// What the user should know, one line each.
    pub fn warnings(&self) -> &[String] {
        self.single.warnings()
    }

    /// The best classes of the picture in a file, whose bytes these are.
    ///
    /// # Errors
    /// The outer one where the GPU fails: nothing can be classified any more. The inner one where the file cannot be decoded
    /// or classified.
    pub fn classify(&mut self, bytes: Vec<u8>) -> Result<Result<Results, ItemError>, JobError> {
        let work = match self.work(bytes)? {
            Ok(work) => work,
            Err(error) => return Ok(Err(error)),
        };
        match (self.single.run(&work)?, work) {
            (Answer::NotDecoded, Work::Jpeg { bytes, .. } | Work::Later(Some(Encoded { bytes, .. }))) => {
                match decode(&bytes, &self.options.decode) {
                    Ok(picture) => {
                        let answer = self.single.run(&Work::Rgb(picture))?;
                        self.results(answer)
                    }
                    Err(error) => Ok(Err(error)),
                }
            }
            (answer, _) => self.results(answer),
        }
    }

    /// The file as the GPU takes it.
    fn work(&mut self, bytes: Vec<u8>) -> Result<Result<Work, ItemError>, JobError> {
        let encoded = self.item(Some(Encoded { bytes: bytes.into(), share: None }));
        let mut work = Err(ItemError::lost(StageName::Decode));
        self.split.process(encoded, &mut |item| work = item.payload)?;
        Ok(work.and_then(|work| match (work, self.options.path) {
            (Work::Jpeg { bytes, desc, .. }, DecodePath::Hybrid) => {
                Ok(Work::Jpeg { bytes, desc, decoder: Decoder::NvjpegHybrid })
            }
            (Work::Jpeg { bytes, desc, .. }, DecodePath::Auto) if desc.width_px * desc.height_px <= CPU_PIXELS => {
                decode(&bytes, &self.options.decode).map(Work::Rgb)
            }
            (work, _) => Ok(work),
        }))
    }

    fn results(&mut self, answer: Answer) -> Result<Result<Results, ItemError>, JobError> {
        let (info, ranked): (PictureInfo, Ranked) = match answer {
            Answer::Ranked(info, ranked) => (info, ranked),
            Answer::Failed(error) => return Ok(Err(error)),
            Answer::NotDecoded => return Ok(Err(ItemError::lost(StageName::Decode))),
        };
        let ranking = Ranking { items: vec![self.item(info)].into(), ranked: vec![ranked].into() };
        let mut results = Err(ItemError::lost(StageName::Decode));
        self.rows.process(ranking, &mut |item| results = item.payload)?;
        Ok(results)
    }

    fn item<T>(&self, payload: T) -> Item<T> {
        Item::new(0, Arc::clone(&self.origin), Ok(payload))
    }
}
