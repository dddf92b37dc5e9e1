//! What the GPU decodes and what the CPU does, where there is a GPU.

use ocellus_kernels::picture::{ChromaSampling, PictureDesc, PixelFormat};

use super::jpeg_header::JpegHeader;
use super::route::{Planar, Route, Sampling, route_parsed};
use super::{DecodeOptions, LargePictures, decode_parsed, other};
use crate::error::{ItemError, JobError};
use crate::frame::{Decoder, Encoded, Item, Work};
use crate::stage::Stage;

/// The stage: leaves JPEG files that the GPU decodes as they are, and decodes everything else. Pictures and files that are
/// too large to wait in memory until a batch is full are left to be decoded later.
#[derive(Clone, Debug)]
pub struct Split {
    options: DecodeOptions,
    /// The GPU decodes JPEG.
    gpu: bool,
    /// Of the last JPEG file, in memory that is used again for the next one.
    header: JpegHeader,
}

impl Split {
    /// A stage with these settings; without `gpu` the CPU decodes everything.
    pub fn new(options: DecodeOptions, gpu: bool) -> Self {
        Self { options, gpu, header: JpegHeader::default() }
    }

    fn work(&mut self, mut encoded: Encoded) -> Result<Work, ItemError> {
        // Once for whoever gets it: this reads the whole file.
        let header = self.header.read(&encoded.bytes).then_some(&self.header);
        if self.gpu {
            let planar = match route_parsed(&encoded.bytes, header, &self.options) {
                Route::Hardware(planar) => Some((planar, Decoder::NvjpegHw)),
                Route::Hybrid(planar) => Some((planar, Decoder::NvjpegHybrid)),
                Route::Cpu(_) => None,
            };
            if let Some((planar, decoder)) = planar {
                encoded.bytes.truncate(planar.length_bytes);
                return Ok(Work::Jpeg { bytes: encoded.bytes, desc: desc_of(&planar), decoder });
            }
        }
        if self.is_large(&encoded.bytes, header) {
            return Ok(Work::Later(Some(encoded)));
        }
        decode_parsed(&encoded.bytes, header, &self.options, &LargePictures::default()).map(Work::Rgb)
    }

    /// True for a picture that must not wait in memory. What cannot be read is small: its error is.
    fn is_large(&self, bytes: &[u8], header: Option<&JpegHeader>) -> bool {
        let size = match header {
            Some(header) => header.frame.as_ref().map(|frame| (u32::from(frame.width_px), u32::from(frame.height_px))),
            None => other::size(bytes, &self.options),
        };
        size.is_some_and(|(width, height)| u64::from(width) * u64::from(height) > LargePictures::SMALL_PIXELS)
    }
}

impl Stage for Split {
    type In = Item<Option<Encoded>>;
    type Out = Item<Work>;

    fn process(&mut self, item: Self::In, emit: &mut dyn FnMut(Self::Out)) -> Result<(), JobError> {
        emit(item.and_then(|encoded| encoded.map_or(Ok(Work::Later(None)), |encoded| self.work(encoded))));
        Ok(())
    }
}

fn desc_of(planar: &Planar) -> PictureDesc {
    let format = match planar.sampling {
        Sampling::Gray => PixelFormat::Gray,
        Sampling::Y444 => PixelFormat::Ycc(ChromaSampling::Y444),
        Sampling::Y422 => PixelFormat::Ycc(ChromaSampling::Y422),
        Sampling::Y420 => PixelFormat::Ycc(ChromaSampling::Y420),
        Sampling::Y440 => PixelFormat::Ycc(ChromaSampling::Y440),
        Sampling::Y411 => PixelFormat::Ycc(ChromaSampling::Y411),
        Sampling::Y410 => PixelFormat::Ycc(ChromaSampling::Y410),
    };
    PictureDesc {
        width_px: planar.width_px as usize,
        height_px: planar.height_px as usize,
        format,
        orientation: planar.orientation,
    }
}
