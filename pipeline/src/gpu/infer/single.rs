//! One picture at a time, for whoever waits for it.
//!
//! The stages of a job gain by company: queues, batches, decoders that work ahead. One picture only loses there: each thread
//! that hands it on sleeps and wakes, some tens of microseconds a time. Here everything happens on the caller's thread and on
//! one stream, so that the host waits once, at the end (a GPU's decoder waits for itself), and it waits awake.

use ocellus_kernels::KernelError;
use ocellus_kernels::cuda::gpu::Gpu;
use ocellus_kernels::cuda::jpeg::{JpegDecoder, JpegFile, JpegPath};
use ocellus_kernels::cuda::planes::PlaneArena;
use ocellus_kernels::cuda::stream::{Stream, Waiting};
use ocellus_kernels::cuda::top_k::TopKResults;
use ocellus_kernels::cuda::upload::Uploader;

use super::super::batch::{planes_bytes, rgb_desc};
use super::super::load::{Placed, decoder_of, place};
use super::super::{LaneOptions, beside_jpeg, infer};
use super::{Infer, missing, network};
use crate::error::{ErrorKind, ItemError, JobError, StageName};
use crate::frame::{Decoder, PictureInfo, Ranked, Work};
use crate::model::load::Model;

/// A classifier on a GPU that takes one picture and gives its best classes, before it takes the next.
pub struct Single {
    // Before the memory that their work uses.
    jpeg: Option<JpegDecoder>,
    uploader: Uploader,
    results: TopKResults,
    arena: PlaneArena,
    infer: Infer,
    warnings: Vec<String>,
}

/// What became of a picture.
pub enum Answer {
    /// Facts about it, and its best classes.
    Ranked(PictureInfo, Ranked),
    /// No decoder of the GPU takes it: the CPU's turn.
    NotDecoded,
    /// It cannot be classified here.
    Failed(ItemError),
}

impl Single {
    /// Plans, compiles and uploads.
    ///
    /// # Errors
    /// Those of [`super::super::Lane::new`].
    pub fn new(gpu: &Gpu, model: &Model, options: &LaneOptions) -> Result<Self, JobError> {
        let (made, jpeg) = beside_jpeg(gpu, || infer(gpu, model, options, 1));
        let (infer, _) = made?;
        let stream = infer.engine.stream().clone();
        let mut warnings = gpu.jit.report().warnings;
        let jpeg = jpeg.map(|jpeg| JpegDecoder::waiting(&jpeg, &stream, Waiting::Awake));
        if let Err(error) = &jpeg {
            warnings.push(format!("the CPU decodes: {error}"));
        }
        Ok(Self {
            jpeg: jpeg.ok(),
            uploader: Uploader::new(&stream)?,
            results: infer.top_k.results_waited_for(Waiting::Awake)?,
            arena: PlaneArena::new(&stream)?,
            infer,
            warnings,
        })
    }

    /// True where the GPU decodes JPEG.
    pub fn decodes(&self) -> bool {
        self.jpeg.is_some()
    }

    /// What the user should know, one line each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Classifies a picture and waits for it. [`Work::Later`] is [`Answer::NotDecoded`].
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn run(&mut self, work: &Work) -> Result<Answer, KernelError> {
        let ran = self.answer(work);
        if ran.is_ok() {
            return ran;
        }
        // What was enqueued until then uses what is used again next time.
        self.stream().synchronize()?;
        match ran {
            Err(KernelError::OutOfMemory { .. }) => {
                self.arena.release()?;
                let message = "the GPU has no memory for this picture; scale it down";
                Ok(Answer::Failed(ItemError::new(StageName::Preprocess, ErrorKind::TooLarge, message)))
            }
            ran => ran,
        }
    }

    fn answer(&mut self, work: &Work) -> Result<Answer, KernelError> {
        let (desc, partial) = match work {
            Work::Jpeg { desc, .. } => (*desc, false),
            Work::Rgb(picture) => (rgb_desc(picture), picture.partial),
            Work::Later(_) => return Ok(Answer::NotDecoded),
        };
        if let Err(error) = self.infer.preprocess.check(&desc) {
            let refused = ItemError::new(StageName::Preprocess, ErrorKind::Unsupported, error.to_string());
            return Ok(Answer::Failed(refused));
        }
        self.arena.begin(planes_bytes(&desc))?;
        let placed = place(&mut self.arena, &desc)?;
        let Some(decoder) = self.load(work, &placed)? else { return Ok(Answer::NotDecoded) };
        let Infer { preprocess, top_k, ranks, engine, .. } = &mut self.infer;
        let network = network(engine, 1)?;
        network.pad(1)?;
        let (memory, input) = network.input(0).ok_or_else(missing)?;
        let transforms = preprocess.enqueue(&[placed.picture()], &self.arena, (memory, input.at_bytes))?;
        network.enqueue()?;
        top_k.enqueue(network.output(0).ok_or_else(missing)?, &mut self.results)?;
        let ranked = ranks.read(&self.results, 1)?.pop();
        let [width_px, height_px] = desc.upright_size().map(|px| px as u32);
        Ok(match (transforms.first(), ranked) {
            (Some(&transform), Some(ranked)) => {
                Answer::Ranked(PictureInfo { width_px, height_px, decoder, partial, transform }, ranked)
            }
            _ => Answer::Failed(ItemError::lost(StageName::Preprocess)),
        })
    }

    /// Brings a picture into its place; gives who decoded it, `None` where that is left to the CPU.
    fn load(&mut self, work: &Work, placed: &Placed) -> Result<Option<Decoder>, KernelError> {
        match (work, &mut self.jpeg) {
            (Work::Jpeg { bytes, decoder, .. }, Some(jpeg)) => {
                let path = if *decoder == Decoder::NvjpegHw { JpegPath::Hardware } else { JpegPath::Hybrid };
                let served = jpeg.decode(&self.arena, [JpegFile { bytes, path, planes: placed.planes() }])?;
                Ok(served.first().copied().flatten().map(decoder_of))
            }
            (Work::Rgb(picture), _) => {
                // What follows is behind it on the same stream.
                let row_bytes = 3 * picture.width_px as usize;
                let mut planes = placed.planes().iter();
                planes.try_for_each(|plane| self.uploader.upload(&picture.rgb, row_bytes, &self.arena, plane))?;
                Ok(Some(picture.decoder))
            }
            _ => Ok(None),
        }
    }

    fn stream(&self) -> &Stream {
        self.infer.engine.stream()
    }
}
