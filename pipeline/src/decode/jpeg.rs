//! JPEG: what is refused before decoding, which decoder is called how, and what counts as damage.

use super::colour::FourColour;
use super::jpeg_header::{End, Frame, JpegHeader, Process, Scan};
#[cfg(feature = "libjpeg")]
use super::libjpeg as backend;
use super::orient::{self, Orientation};
#[cfg(not(feature = "libjpeg"))]
use super::zune as backend;
use super::{DecodeOptions, LargePictures, error, exif};
use crate::error::{ErrorKind, ItemError, one_line};
use crate::frame::Picture;

/// Pixels as a decoder gives them, before orientation.
pub(super) struct Decoded {
    /// RGB8.
    pub(super) rgb: Vec<u8>,
    /// The decoder noticed data that it could not use, and filled in.
    pub(super) damaged: bool,
}

/// Decodes a JPEG file with this header.
pub(super) fn decode(
    bytes: &[u8],
    header: &JpegHeader,
    options: &DecodeOptions,
    large: &LargePictures,
) -> Result<Picture, ItemError> {
    let frame = check(header, options)?;
    // What libjpeg takes it decodes right.
    #[cfg(not(feature = "libjpeg"))]
    backend::check_layout(header, frame)?;
    let cut = header.end == End::Missing;
    if options.strict && cut {
        return Err(truncated());
    }
    let (width, height) = (u32::from(frame.width_px), u32::from(frame.height_px));
    let share = large.admit(width, height, memory_bytes(frame))?;
    let Decoded { rgb, damaged } = backend::decode(bytes, header, frame).map_err(|message| {
        let (kind, what) = if cut {
            (ErrorKind::Truncated, "the JPEG file ends too early to be decoded")
        } else {
            (ErrorKind::Corrupt, "damaged JPEG")
        };
        error(kind, format!("{what} ({}); get a fresh copy of the file", one_line(&message)))
    })?;
    let damaged = damaged || damage_shows(bytes, header, frame);
    if options.strict && damaged {
        return Err(error(ErrorKind::Corrupt, "damaged JPEG data; get a fresh copy of the file or drop --strict"));
    }
    let orientation = header.exif.clone().and_then(|range| exif::orientation(&bytes[range]));
    let (rgb, width_px, height_px) = orient::apply(rgb, width, height, orientation.unwrap_or(Orientation::Upright));
    Ok(Picture { width_px, height_px, rgb, decoder: backend::DECODER, partial: cut || damaged, share })
}

/// Whether the file is damaged for all that can be seen without decoding it.
pub(super) fn damage_shows(bytes: &[u8], header: &JpegHeader, frame: &Frame) -> bool {
    scans_damaged(header, frame) || header.scans.iter().any(|scan| bits_missing(bytes, scan, frame))
}

/// Damage that shows in the markers: restart markers out of order; in a sequential picture a component without a scan or
/// with several, of which decoders make different pictures; where its first scan has all components, restart markers
/// missing or another scan.
fn scans_damaged(header: &JpegHeader, frame: &Frame) -> bool {
    let out_of_order = header.scans.iter().any(|scan| scan.restarts_out_of_order);
    let [first, others @ ..] = header.scans.as_slice() else { return out_of_order };
    let sequential = frame.process != Process::Progressive;
    let whole = sequential && usize::from(first.components) == frame.components.len();
    let in_scans: usize = header.scans.iter().map(|scan| usize::from(scan.components)).sum();
    let intervals = match usize::from(header.restart_interval) {
        0 => 1,
        interval => frame.mcus().div_ceil(interval),
    };
    let miscounted = sequential && in_scans != frame.components.len();
    out_of_order || miscounted || (whole && (!others.is_empty() || first.restarts + 1 < intervals))
}

/// Whether a scan that refines DC coefficients has fewer bits than blocks, of which each takes one. Such a scan has no
/// codes whose absence a decoder could notice.
fn bits_missing(bytes: &[u8], scan: &Scan, frame: &Frame) -> bool {
    let &[_, ref list @ .., first, _, bit_positions] = &bytes[scan.header.clone()] else { return false };
    if frame.process != Process::Progressive || first != 0 || bit_positions >> 4 == 0 {
        return false;
    }
    let of_scan = || frame.components.iter().filter(|c| list.chunks(2).any(|entry| entry[0] == c.id));
    let blocks = if scan.components == 1 {
        of_scan().map(|c| frame.blocks(c)).sum()
    } else {
        frame.mcus() * of_scan().map(|c| usize::from(c.h) * usize::from(c.v)).sum::<usize>()
    };
    let data = &bytes[scan.data.clone()];
    let stuffed = data.windows(2).filter(|pair| *pair == [0xFF, 0]).count();
    8 * (data.len() - stuffed).saturating_sub(2 * scan.restarts) < blocks
}

/// What decoding may need beside the file.
fn memory_bytes(frame: &Frame) -> u64 {
    let lean = frame.process != Process::Progressive && frame.components.len() < 4;
    u64::from(frame.width_px) * u64::from(frame.height_px) * if lean { 8 } else { 16 }
}

fn truncated() -> ItemError {
    error(ErrorKind::Truncated, "the JPEG file ends too early; get a fresh copy of the file or drop --strict")
}

/// Refuses what cannot or must not be decoded, whoever decodes, and gives the frame header of the rest.
pub(super) fn check<'a>(header: &'a JpegHeader, options: &DecodeOptions) -> Result<&'a Frame, ItemError> {
    let cut = header.end == End::Missing;
    let Some(frame) = &header.frame else {
        return Err(if cut {
            error(ErrorKind::Truncated, "the JPEG file ends inside its header; get a fresh copy of the file")
        } else {
            error(ErrorKind::Corrupt, "a JPEG file without a frame header; get a fresh copy of the file")
        });
    };
    let resave = "re-save it as ordinary 8-bit JPEG";
    match frame.process {
        Process::Lossless => {
            return Err(error(ErrorKind::UnsupportedLossless, format!("lossless JPEG is not supported; {resave}")));
        }
        Process::Hierarchical => {
            let message = format!("hierarchical JPEG is not supported; {resave}");
            return Err(error(ErrorKind::UnsupportedHierarchical, message));
        }
        Process::Baseline | Process::ExtendedSequential | Process::Progressive => {}
    }
    match frame.precision_bits {
        8 => {}
        12 => {
            return Err(error(ErrorKind::Unsupported12Bit, format!("12-bit JPEG is not supported; {resave}")));
        }
        bits => return Err(error(ErrorKind::Corrupt, format!("a JPEG file of {bits} bits a sample cannot be"))),
    }
    if frame.arithmetic {
        let message = format!("arithmetic-coded JPEG is not supported; {resave}");
        return Err(error(ErrorKind::UnsupportedArithmetic, message));
    }
    if frame.width_px == 0 {
        return Err(error(ErrorKind::Corrupt, "a JPEG file of width 0"));
    }
    if frame.height_px == 0 {
        let message = format!("JPEG with its height in a DNL marker is not supported; {resave}");
        return Err(error(ErrorKind::Unsupported, message));
    }
    if !matches!(frame.components.len(), 1 | 3 | 4) {
        let message = format!("JPEG with {} components is not supported; {resave}", frame.components.len());
        return Err(error(ErrorKind::Unsupported, message));
    }
    if frame.components.iter().any(|c| !(1..=4).contains(&c.h) || !(1..=4).contains(&c.v)) {
        return Err(error(ErrorKind::Corrupt, "a JPEG file with sampling factors outside 1 to 4"));
    }
    options.check_size(u32::from(frame.width_px), u32::from(frame.height_px))?;
    let pixels = u64::from(frame.width_px) * u64::from(frame.height_px);
    check_scans(header.scans.len() as u64, pixels, options)?;
    if header.scans.iter().all(|scan| scan.data.is_empty()) {
        return Err(if cut {
            error(ErrorKind::Truncated, "the JPEG file ends before its picture data; get a fresh copy of the file")
        } else {
            error(ErrorKind::Corrupt, "a JPEG file without picture data; get a fresh copy of the file")
        });
    }
    Ok(frame)
}

/// Bounds the work: every scan of a progressive picture costs a pass over all its blocks, however few bytes it has.
/// libjpeg writes 10 scans, of four components 18.
fn check_scans(scans: u64, pixels: u64, options: &DecodeOptions) -> Result<(), ItemError> {
    const SCANS: u64 = 24;
    if scans.saturating_mul(pixels) > options.max_pixels.saturating_mul(SCANS) {
        let message = format!(
            "{scans} scans of {pixels} pixels each, more than {SCANS} times the limit of {} pixels: raise it with \
             --max-pixels or re-save the picture as ordinary JPEG",
            options.max_pixels
        );
        return Err(error(ErrorKind::TooLarge, message));
    }
    Ok(())
}

/// How the components are to be read, by libjpeg's rules (jdapimin.c, `default_decompress_parms`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    /// One component.
    Grey,
    /// Luma and chroma.
    YCbCr,
    /// Red, green, blue as such.
    Rgb,
    /// Four components.
    Four(FourColour),
}

impl Colour {
    pub(super) fn of(header: &JpegHeader, frame: &Frame) -> Self {
        let ids = || frame.components.iter().map(|c| c.id);
        match (frame.components.len(), header.adobe_transform) {
            (1, _) => Self::Grey,
            (3, _) if header.jfif => Self::YCbCr,
            (3, Some(0)) => Self::Rgb,
            (3, None) if ids().eq(*b"RGB") => Self::Rgb,
            (3, _) => Self::YCbCr,
            (_, None | Some(0)) => Self::Four(FourColour::Cmyk),
            (_, Some(_)) => Self::Four(FourColour::Ycck),
        }
    }
}
