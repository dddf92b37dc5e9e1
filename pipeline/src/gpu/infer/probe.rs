//! What every step of the GPU path makes of a picture, brought back to the host to be compared.

use half::{bf16, f16};
use ocellus_kernels::KernelError;
use ocellus_kernels::cuda::gpu::Gpu;
use ocellus_kernels::cuda::jpeg::Jpeg;
use ocellus_kernels::cuda::memory::DeviceMemory;
use ocellus_kernels::cuda::planes::{Plane, PlaneArena};
use ocellus_kernels::cuda::preprocess::{DevicePicture, GpuPreprocess, OutputFormat};
use ocellus_kernels::cuda::stream::{Priority, Stream};
use ocellus_kernels::picture::PictureDesc;
use ocellus_kernels::preprocess::PreprocessDesc;
use ocellus_kernels::tensor::{DType, Layout};

use super::super::load::{Load, LoadOutcome, Loaded, LoadedBatch};
use super::super::{LaneOptions, Precision, infer};
use super::{Infer, missing, network};
use crate::error::{ErrorKind, ItemError, JobError, StageName};
use crate::frame::{Decoder, Encoded, Item, Picture, Work};
use crate::model::load::Model;
use crate::stage::Stage;

/// The steps of the GPU path, for one picture at a time. `F` reads and decodes with the CPU what the GPU does not.
pub struct Probe<F> {
    load: Load<F>,
    decodes: bool,
    /// The resize without what follows.
    resize: GpuPreprocess,
    resized: DeviceMemory,
    /// The network in each arithmetic.
    lanes: Vec<(Precision, Infer)>,
    desc: PreprocessDesc,
}

/// What the steps made of a picture.
pub struct Probed {
    /// What its planes are.
    pub desc: PictureDesc,
    /// Each plane's samples and the bytes from row to row.
    pub planes: Vec<(Vec<u8>, usize)>,
    /// Who decoded it.
    pub decoder: Decoder,
    /// The file ends too early or is damaged.
    pub partial: bool,
    /// The resized picture as the network sees it, 0..255 before normalisation: height x width x 3.
    pub resized: Vec<f32>,
    /// The input of the first of the networks, in its layout.
    pub input: Vec<f32>,
    /// Each network's first output.
    pub outputs: Vec<(Precision, Vec<f32>)>,
}

impl<F: Stage<In = Item<Option<Encoded>>, Out = Item<Picture>>> Probe<F> {
    /// Plans, compiles and uploads the network once for each of the precisions. `resize` is the model's preprocessing without
    /// normalisation, in N, H, W, C.
    ///
    /// # Errors
    /// Those of [`super::super::Lane::new`].
    pub fn new(
        gpu: &Gpu,
        model: &Model,
        precisions: &[Precision],
        resize: &PreprocessDesc,
        cpu: F,
    ) -> Result<Self, JobError> {
        let options = |precision| LaneOptions { precision, ranks: 1 };
        let lane = |&precision| Ok((precision, infer(gpu, model, &options(precision), 1)?.0));
        let lanes = precisions.iter().map(lane).collect::<Result<Vec<_>, JobError>>()?;
        let jpeg = Jpeg::new(gpu).ok();
        let stream = Stream::new(&gpu.device, Priority::Low)?;
        let format = OutputFormat { dtype: DType::F32, layout: Layout::Nhwc, pitch: 3, step: 1.0 };
        Ok(Self {
            load: Load::new(&gpu.device, jpeg.as_ref(), cpu)?,
            decodes: jpeg.is_some(),
            resized: DeviceMemory::new(&stream, format.image_bytes(resize))?,
            resize: GpuPreprocess::new(&stream, &gpu.jit, resize.clone(), format, 1)?,
            lanes,
            desc: model.preprocess(),
        })
    }

    /// True where the GPU decodes JPEG.
    pub fn decodes(&self) -> bool {
        self.decodes
    }

    /// Runs all steps, each waited for.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn run(&mut self, item: Item<Work>) -> Result<Result<Probed, ItemError>, JobError> {
        let mut outcome = None;
        self.load.process(vec![item].into(), &mut |loaded| outcome = Some(loaded))?;
        let too_large = || ItemError::new(StageName::Decode, ErrorKind::TooLarge, "the GPU has no memory for it");
        let Some(LoadOutcome::Loaded(LoadedBatch { mut items, arena })) = outcome else {
            return Ok(Err(too_large()));
        };
        let nothing = || Err(ItemError::lost(StageName::Decode));
        let loaded = items.pop().map_or_else(nothing, |item| item.payload);
        let probed = match loaded {
            Err(error) => Ok(Err(error)),
            Ok(loaded) => match self.resize.check(&loaded.picture.desc) {
                Err(e) => Ok(Err(ItemError::new(StageName::Preprocess, ErrorKind::Unsupported, e.to_string()))),
                Ok(()) => self.steps(&loaded, &arena).map(Ok),
            },
        };
        arena.give_back();
        match probed {
            Err(KernelError::OutOfMemory { .. }) => Ok(Err(too_large())),
            probed => Ok(probed?),
        }
    }

    fn steps(&mut self, loaded: &Loaded, arena: &PlaneArena) -> Result<Probed, KernelError> {
        let picture = loaded.picture;
        let planes = (0..picture.desc.planes()).map(|n| read_plane(&picture, n, arena));
        let planes = planes.collect::<Result<Vec<_>, _>>()?;
        self.resize.enqueue(&[picture], arena, (&self.resized, 0))?;
        let mut bytes = vec![0; self.resized.len_bytes()];
        self.resized.read(&mut bytes)?;
        let resized = values(&bytes, DType::F32, 3);
        let mut input = Vec::new();
        let mut outputs = Vec::with_capacity(self.lanes.len());
        for (precision, Infer { preprocess, engine, .. }) in &mut self.lanes {
            let network = network(engine, 1)?;
            network.pad(1)?;
            let (memory, placed) = network.input(0).ok_or_else(missing)?;
            preprocess.enqueue(&[picture], arena, (memory, placed.at_bytes))?;
            if input.is_empty() {
                let format = OutputFormat {
                    dtype: placed.tensor.dtype,
                    layout: self.desc.layout,
                    pitch: placed.tensor.pitch,
                    step: 1.0,
                };
                let mut bytes = vec![0; format.image_bytes(&self.desc)];
                memory.read_from(placed.at_bytes, &mut bytes)?;
                input = values(&bytes, format.dtype, format.pitch);
            }
            network.enqueue()?;
            outputs.push((*precision, engine.read_output(1)?));
        }
        let (decoder, partial) = (loaded.decoder, loaded.partial);
        Ok(Probed { desc: picture.desc, planes, decoder, partial, resized, input, outputs })
    }
}

/// A plane's samples and its pitch.
fn read_plane(picture: &DevicePicture, n: usize, arena: &PlaneArena) -> Result<(Vec<u8>, usize), KernelError> {
    let [_, rows] = picture.desc.plane_size(n);
    let rows = u32::try_from(rows).map_err(|_| missing())?;
    let place = picture.planes[n];
    let plane = Plane { address: place.address, pitch_bytes: place.pitch_bytes, rows };
    Ok((arena.read(&plane)?, place.pitch_bytes as usize))
}

/// Numbers as the GPU stores them, the first three of every `pitch`.
fn values(bytes: &[u8], dtype: DType, pitch: usize) -> Vec<f32> {
    let numbers: Vec<f32> = match dtype {
        DType::F16 => bytes.as_chunks().0.iter().map(|&b| f16::from_le_bytes(b).to_f32()).collect(),
        DType::Bf16 => bytes.as_chunks().0.iter().map(|&b| bf16::from_le_bytes(b).to_f32()).collect(),
        _ => bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect(),
    };
    numbers.chunks(pitch.max(3)).flat_map(|pixel| pixel.iter().take(3).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_are_stored() {
        let pixels = [1.5_f32, -2.0, 0.25, 9.0, 3.0, 4.0, 5.0, 9.0];
        let kept = [1.5_f32, -2.0, 0.25, 3.0, 4.0, 5.0];
        let half: Vec<u8> = pixels.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect();
        let brain: Vec<u8> = pixels.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect();
        let single: Vec<u8> = pixels.iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(values(&half, DType::F16, 4), kept);
        assert_eq!(values(&brain, DType::Bf16, 4), kept);
        assert_eq!(values(&single, DType::F32, 4), kept);
        // Planes have no padding.
        assert_eq!(values(&single[..24], DType::F32, 3), pixels[..6]);
    }
}
