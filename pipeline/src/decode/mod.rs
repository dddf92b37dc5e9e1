//! From a file's bytes to upright RGB8 pixels, on the CPU.
//!
//! The format is recognised by content: JPEG, PNG, WebP, BMP, GIF, TIFF. An animation gives its first frame. EXIF
//! orientation is applied. **ICC profiles are ignored**: sample values are taken as sRGB, as Pillow and
//! torchvision take them. What is done to reach 8-bit RGB:
//!
//! | stored | becomes |
//! |---|---|
//! | grey | R = G = B |
//! | palette | its colours |
//! | 16 bits a channel | the upper 8 bits (`v >> 8`, as Pillow) |
//! | alpha (8 bits, or the upper 8 of 16) | composited on [`DecodeOptions::background`], rounded to nearest |
//! | CMYK, YCCK JPEG | libjpeg's conversion to CMYK, then Pillow's to RGB; stored values are taken as inverted, with an Adobe marker or without, as Pillow and djpeg do |
//! | floating point (TIFF) | refused |
//!
//! # How close
//! JPEG pixels are not bit-equal to libjpeg-turbo's (`djpeg -dct int`, Pillow): on photographs they differ by at most 9
//! and by 0.05 in the mean. Two places differ by more: the last column and row of pictures with subsampled colour, whose
//! chroma is interpolated with what the encoder padded it with, and pictures at most 4 pixels wide, where libjpeg does
//! not interpolate. The feature `libjpeg` decodes through mozjpeg instead, with equal pixels. Layouts that the default
//! decoder gets wrong (above all subsampled colour in separate scans) are refused as
//! [`ErrorKind::UnsupportedSampling`]; `libjpeg` decodes them. All other formats are exact but for lossy WebP.
//!
//! # Limits
//! Dimensions are read from the header first, and nothing of the picture's size is allocated when they pass
//! [`DecodeOptions::max_pixels`], or when the system does not have the memory that decoding needs. All scans of a JPEG file
//! together may go over 24 times `max_pixels`. All of these are [`ErrorKind::TooLarge`]. Profiles and texts of a PNG file
//! are unpacked up to 16 MiB and no further. Within the limit a decoder needs at most 16 bytes a pixel beside the file and a copy of
//! it: measured at 12 megapixels 3.5 for baseline JPEG, 6.5 for progressive 4:2:0, 13.3 for progressive CMYK, 4 to 8 for
//! PNG, WebP, GIF, TIFF and BMP, 12.3 for animated WebP.
//!
//! Clones of one [`Decode`] share a bound on pictures in memory: each may have one of at most 32 megapixels, and all
//! together larger ones of 128 megapixels, or a single one that is larger still. A picture counts until it is dropped.
//!
//! # Damaged files
//! By default what is there is decoded and [`Picture::partial`] is set; [`DecodeOptions::strict`] makes it an error
//! ([`ErrorKind::Truncated`] or [`ErrorKind::Corrupt`]). Only JPEG can be partial: the other formats fail as a whole.
//! A JPEG file is partial when
//! - it has no end-of-image marker. That its picture data may be complete nevertheless does not show in the markers, and
//!   djpeg warns of such a file as well;
//! - its restart markers are missing or out of order, or a scan follows that has no place;
//! - the decoder meets codes that do not exist, the end of the data before the end of the picture, or in a progressive
//!   picture more data than that.
//!
//! Damage that leaves valid codes cannot be seen, nor can whole scans that are missing from a progressive picture with an
//! end-of-image marker. In a scan that refines AC coefficients the bits after its last code are not counted: they are the
//! last bit of some coefficients.

use std::panic::{AssertUnwindSafe, catch_unwind};

use jpeg_header::JpegHeader;

use crate::error::{ErrorKind, ItemError, JobError, StageName, panic_message};
use crate::frame::{Budget, Encoded, Item, Picture, Share};
use crate::stage::Stage;

pub use split::Split;

mod colour;
pub mod exif;
mod jpeg;
pub mod jpeg_header;
#[cfg(feature = "libjpeg")]
mod libjpeg;
mod markers;
pub mod orient;
mod other;
pub mod route;
mod split;
#[cfg(not(feature = "libjpeg"))]
mod watched;
#[cfg(not(feature = "libjpeg"))]
mod zune;

/// Settings of the decoders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Most pixels a picture may have, checked before anything of its size is allocated. Default 178,000,000, a little
    /// under Pillow's limit for decompression bombs.
    pub max_pixels: u64,
    /// Most bytes a file may have. Default 1 GiB.
    pub max_bytes: u64,
    /// Truncated and damaged files are errors instead of partial pictures.
    pub strict: bool,
    /// R, G, B under transparent pixels. Default white.
    pub background: [u8; 3],
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self { max_pixels: 178_000_000, max_bytes: 1 << 30, strict: false, background: [255; 3] }
    }
}

impl DecodeOptions {
    /// Checks a picture's size.
    fn check_size(&self, width: u32, height: u32) -> Result<(), ItemError> {
        let pixels = u64::from(width) * u64::from(height);
        if pixels > self.max_pixels {
            return Err(error(
                ErrorKind::TooLarge,
                format!(
                    "{width} x {height} pixels, more than the limit of {}: raise it with --max-pixels or scale the picture down",
                    self.max_pixels
                ),
            ));
        }
        Ok(())
    }
}

/// Asks the system for the memory that a picture needs and gives it back at once: a decoder that does not get its memory
/// ends the whole program. What other threads take in between can still make it fail.
fn check_memory(bytes: u64) -> Result<(), ItemError> {
    let mut probe = Vec::<u8>::new();
    let holds = usize::try_from(bytes).is_ok_and(|bytes| probe.try_reserve_exact(bytes).is_ok());
    // Seen from outside, or the compiler may leave it out.
    std::hint::black_box(&mut probe);
    if holds {
        return Ok(());
    }
    let mib = bytes >> 20;
    let message = format!("no memory for this picture ({mib} MiB): use fewer --threads or scale the picture down");
    Err(error(ErrorKind::TooLarge, message))
}

/// Decodes one file into upright RGB8 pixels.
///
/// # Errors
/// [`StageName::Decode`] with the kind that fits; see [`ErrorKind`]. A panic inside a decoder is
/// [`ErrorKind::Internal`].
pub fn decode(bytes: &[u8], options: &DecodeOptions) -> Result<Picture, ItemError> {
    decode_beside_others(bytes, options, &LargePictures::default())
}

fn decode_beside_others(bytes: &[u8], options: &DecodeOptions, large: &LargePictures) -> Result<Picture, ItemError> {
    decode_parsed(bytes, jpeg_header::parse(bytes).as_ref(), options, large)
}

/// Decodes a file with this header, if it is a JPEG file.
fn decode_parsed(
    bytes: &[u8],
    header: Option<&JpegHeader>,
    options: &DecodeOptions,
    large: &LargePictures,
) -> Result<Picture, ItemError> {
    if bytes.is_empty() {
        return Err(error(ErrorKind::Empty, "the file has 0 bytes"));
    }
    if bytes.len() as u64 > options.max_bytes {
        return Err(error(
            ErrorKind::TooLarge,
            format!("{} bytes, more than the limit of {}: raise it with --max-bytes", bytes.len(), options.max_bytes),
        ));
    }
    // The decoders are other people's code, run on hostile bytes. A fault of theirs costs this row and not the job.
    // Unwind safety: nothing that a panic could leave half-changed is seen afterwards, the closure only borrows input.
    catch_unwind(AssertUnwindSafe(|| match header {
        Some(header) => jpeg::decode(bytes, header, options, large),
        None => other::decode(bytes, options, large),
    }))
    .unwrap_or_else(|panic| {
        Err(error(ErrorKind::Internal, format!("the decoder failed on this file: {}", panic_message(panic.as_ref()))))
    })
}

/// An error of this stage.
fn error(kind: ErrorKind, message: impl Into<String>) -> ItemError {
    // Messages of decoders repeat bytes of the file, which must not reach a terminal as commands.
    let unsafe_char = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    ItemError::new(StageName::Decode, kind, message.into().replace(unsafe_char, "\u{fffd}"))
}

/// The budget of pictures that are larger than most: as many threads as there are may each have a small one, but not a
/// large one.
#[derive(Clone, Debug)]
struct LargePictures(Budget);

impl LargePictures {
    /// Pixels up to which a picture is small: those of most cameras.
    const SMALL_PIXELS: u64 = 32_000_000;
    /// Pixels that large pictures have together, if there is more than one.
    const TOGETHER_PIXELS: u64 = 128_000_000;

    /// Waits until a picture of this size may be decoded, and fails where the system does not have the memory for it.
    fn admit(&self, width: u32, height: u32, memory_bytes: u64) -> Result<Option<Share>, ItemError> {
        let pixels = u64::from(width) * u64::from(height);
        let share = (pixels > Self::SMALL_PIXELS).then(|| self.0.take(pixels));
        check_memory(memory_bytes)?;
        Ok(share)
    }
}

impl Default for LargePictures {
    fn default() -> Self {
        Self(Budget::new(Self::TOGETHER_PIXELS))
    }
}

/// The stage: [`decode`] on every item that has not failed before. Clones have one budget for large pictures (see
/// "Limits" above): whoever takes a picture from here must let go of it without waiting for the next.
#[derive(Clone, Debug, Default)]
pub struct Decode {
    options: DecodeOptions,
    large: LargePictures,
}

impl Decode {
    /// A stage with these settings.
    pub fn new(options: DecodeOptions) -> Self {
        Self { options, large: LargePictures::default() }
    }
}

impl Stage for Decode {
    type In = Item<Encoded>;
    type Out = Item<Picture>;

    fn process(&mut self, input: Self::In, emit: &mut dyn FnMut(Self::Out)) -> Result<(), JobError> {
        emit(input.and_then(|encoded| decode_beside_others(&encoded.bytes, &self.options, &self.large)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_harmless() {
        for hostile in ["\u{1b}[31m", "\n", "\r", "\0", "\u{7f}", "\u{9b}", "\u{202e}", "\u{2066}"] {
            let e = error(ErrorKind::Corrupt, format!("bad {hostile}chunk"));
            assert_eq!(e.message.trim_end_matches("[31mchunk").matches('\u{fffd}').count(), 1, "{e:?}");
            assert!(!e.message.contains(|c: char| hostile.starts_with(c)), "{e:?}");
        }
        assert_eq!(error(ErrorKind::Corrupt, "größer als 1 × 2").message, "größer als 1 × 2");
    }
}
