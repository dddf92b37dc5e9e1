//! The steps of a pipeline, each one's result at hand.

use ocellus_kernels::cpu::planes::{Plane, to_rgb};
use ocellus_kernels::cpu::preprocess::Preprocessor;

use super::{preprocessed, resize_alone};
use crate::decode::{Decode, DecodeOptions, Split, decode};
use crate::error::{ErrorKind, ItemError, JobError, StageName};
use crate::frame::{Encoded, Item, Picture};
use crate::gpu::{Gpu, Precision, Probe};
use crate::model::load::Model;
use crate::stage::Stage;

/// What the steps of a pipeline made of a file.
pub struct Stepped {
    /// Decoded.
    pub picture: Picture,
    /// Resized, 0..255 before normalisation: height x width x 3.
    pub resized: Vec<f32>,
    /// The network's input, in its layout.
    pub input: Vec<f32>,
    /// The network's first output in each arithmetic but the CPU's fp32.
    pub outputs: Vec<(Precision, Vec<f32>)>,
}

/// A pipeline that can be looked into.
pub trait Steps: Send {
    /// What becomes of a file; `item` says which one it is.
    ///
    /// # Errors
    /// The outer one ends the job.
    fn run(&mut self, item: &Item<()>, encoded: &Encoded) -> Result<Result<Stepped, ItemError>, JobError>;
}

/// The CPU path.
pub struct CpuSteps {
    preprocess: Preprocessor,
    resize: Preprocessor,
    len: usize,
    decode: DecodeOptions,
}

impl CpuSteps {
    /// The steps of a job on the CPU.
    ///
    /// # Errors
    /// Where the model's preprocessing contradicts itself.
    pub fn new(model: &Model, decode: DecodeOptions) -> Result<Self, JobError> {
        let desc = model.preprocess();
        let len = 3 * desc.width_px * desc.height_px;
        let resize = Preprocessor::new(resize_alone(&desc))?;
        Ok(Self { preprocess: Preprocessor::new(desc)?, resize, len, decode })
    }
}

impl Steps for CpuSteps {
    fn run(&mut self, _: &Item<()>, encoded: &Encoded) -> Result<Result<Stepped, ItemError>, JobError> {
        let unsupported = |e: ocellus_kernels::KernelError| {
            ItemError::new(StageName::Preprocess, ErrorKind::Unsupported, e.to_string())
        };
        let mut steps = || {
            let picture = decode(&encoded.bytes, &self.decode)?;
            let resized = preprocessed(&mut self.resize, &picture, self.len).map_err(unsupported)?;
            let input = preprocessed(&mut self.preprocess, &picture, self.len).map_err(unsupported)?;
            Ok(Stepped { picture, resized, input, outputs: Vec::new() })
        };
        Ok(steps())
    }
}

/// The GPU path.
pub struct GpuSteps {
    split: Split,
    probe: Probe<DecodeHere>,
}

impl GpuSteps {
    /// The steps of a job on a GPU, in each of the arithmetics.
    ///
    /// # Errors
    /// Where the GPU has no kernel for an operator or no memory, a kernel does not compile or the driver fails.
    pub fn new(gpu: &Gpu, model: &Model, decode: DecodeOptions, precisions: &[Precision]) -> Result<Self, JobError> {
        let resize = resize_alone(&model.preprocess());
        let probe = Probe::new(gpu, model, precisions, &resize, DecodeHere(Decode::new(decode)))?;
        Ok(Self { split: Split::new(decode, probe.decodes()), probe })
    }

    /// True where the GPU decodes JPEG.
    pub fn decodes(&self) -> bool {
        self.probe.decodes()
    }
}

impl Steps for GpuSteps {
    fn run(&mut self, item: &Item<()>, encoded: &Encoded) -> Result<Result<Stepped, ItemError>, JobError> {
        let lost = || ItemError::lost(StageName::Decode);
        let file = Encoded { bytes: encoded.bytes.clone(), share: None };
        let input = item.with(Ok(Some(file)));
        let mut work = None;
        self.split.process(input, &mut |item| work = Some(item))?;
        let Some(work) = work else { return Ok(Err(lost())) };
        let probed = match self.probe.run(work)? {
            Ok(probed) => probed,
            Err(error) => return Ok(Err(error)),
        };
        let planes: Vec<_> =
            probed.planes.iter().map(|(data, pitch_bytes)| Plane { data, pitch_bytes: *pitch_bytes }).collect();
        let rgb = to_rgb(&probed.desc, &planes)?;
        let [width_px, height_px] = probed.desc.upright_size().map(|px| px as u32);
        let (decoder, partial) = (probed.decoder, probed.partial);
        let picture = Picture { width_px, height_px, rgb, decoder, partial, share: None };
        Ok(Ok(Stepped { picture, resized: probed.resized, input: probed.input, outputs: probed.outputs }))
    }
}

/// Decodes files that are in memory.
struct DecodeHere(Decode);

impl Stage for DecodeHere {
    type In = Item<Option<Encoded>>;
    type Out = Item<Picture>;

    fn process(&mut self, item: Self::In, emit: &mut dyn FnMut(Self::Out)) -> Result<(), JobError> {
        let missing = || ItemError::new(StageName::Decode, ErrorKind::Internal, "a file was not read");
        self.0.process(item.and_then(|encoded| encoded.ok_or_else(missing)), emit)
    }
}
