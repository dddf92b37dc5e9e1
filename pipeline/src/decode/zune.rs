//! JPEG through zune-jpeg, the decoder inside `image`, called directly: `image` sets its lenient mode, which reports no
//! damage.

use std::cell::Cell;
use std::ops::Range;

use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;
use zune_jpeg::{JpegDecoder, errors::DecodeErrors};

use super::colour::{self, FourColour};
use super::error;
use super::jpeg::{Colour, Decoded};
use super::jpeg_header::{Component, Frame, JpegHeader, Process};
use super::watched::Watched;
use crate::error::{ErrorKind, ItemError};
use crate::frame::Decoder;

/// How rows name this decoder.
pub(super) const DECODER: Decoder = Decoder::Image;

/// Refuses the layouts that zune-jpeg decodes wrongly or not at all (found by comparing it with djpeg over all sampling
/// factors and several scan scripts). What is left is what real encoders write.
pub(super) fn check_layout(header: &JpegHeader, frame: &Frame) -> Result<(), ItemError> {
    /// Most scans: zune-jpeg's own limit, which also bounds what [`ones_after`] them takes.
    const MAX_SCANS: usize = 100;
    let components = &frame.components;
    let refuse = |what: &str| {
        let advice = "re-save it as ordinary JPEG, or use a build with the feature libjpeg";
        Err(error(ErrorKind::UnsupportedSampling, format!("JPEG {what} is not supported; {advice}")))
    };
    if header.scans.len() > MAX_SCANS {
        return refuse("of more than 100 scans");
    }
    let [first, others @ ..] = components.as_slice() else { return Ok(()) };
    if others.is_empty() {
        // One component: its sampling factors mean nothing.
        return Ok(());
    }
    let subsampled = components.iter().any(|c| (c.h, c.v) != (1, 1));
    let odd = |c: &Component| {
        let exact = first.h.checked_rem(c.h) == Some(0) && first.v.checked_rem(c.v) == Some(0);
        !exact || c.h == 3 || c.v == 3 || (first.v == 4 && c.v == 2)
    };
    if components.iter().any(odd) {
        return refuse("with unusual sampling factors");
    }
    // Vertical subsampling needs all components at once, and so does a scan of some but not all components.
    let sequential = frame.process != Process::Progressive;
    let whole = header.scans.first().is_some_and(|scan| usize::from(scan.components) == components.len());
    let single = header.scans.iter().all(|scan| scan.components == 1);
    if sequential && subsampled && !whole && !(single && first.v == 1 && first.h <= 2) {
        return refuse("with subsampled colour in separate scans (not interleaved)");
    }
    Ok(())
}

/// Decodes the whole file.
///
/// It gets the file with a header of our making, so that the rules about colour are libjpeg's and odd headers cost
/// nothing. Strict first: in strict mode it stops where entropy data is damaged or missing, and only then is the
/// picture decoded again as far as possible.
pub(super) fn decode(bytes: &[u8], header: &JpegHeader, frame: &Frame) -> Result<Decoded, String> {
    let colour = Colour::of(header, frame);
    let mut damaged = false;
    let left_over = Cell::new(false);
    let run = |ends, strict| {
        let plain = plain_file(bytes, header, colour, ends);
        let reader = Watched::new(&plain.bytes, &plain.data, &left_over);
        decode_plain(reader, header.scans.len(), colour, strict)
    };
    let raw = run(Ends::Marked, true).or_else(|_| {
        damaged = true;
        // Where more scans follow, zeros do less harm than to stop.
        let ends = if header.scans.len() == 1 { Ends::Marked } else { Ends::AsTheyAre };
        run(ends, false)
    });
    let mut raw = raw.map_err(|e| e.to_string())?;
    let rgb = match colour {
        Colour::Grey | Colour::Rgb => raw,
        Colour::YCbCr => {
            // zune-jpeg takes components named R, G, B as such, whatever else the file says.
            if frame.components.iter().map(|c| c.id).eq(*b"RGB") {
                for pixel in raw.as_chunks_mut::<3>().0 {
                    *pixel = colour::ycc_to_rgb(*pixel);
                }
            }
            raw
        }
        Colour::Four(kind) => colour::four_to_rgb(raw.as_chunks::<4>().0, kind),
    };
    Ok(Decoded { rgb, damaged: damaged || left_over.get() })
}

/// What follows the entropy-coded data of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// Ones: a code of ones does not exist (T.81, annex C), so data that ends too early is an error, where zune-jpeg would
    /// go on with zeros.
    Marked,
    /// What follows in the file.
    AsTheyAre,
}

/// What [`plain_file`] makes.
struct PlainFile {
    bytes: Vec<u8>,
    /// The entropy-coded data of the scans, where [`Ends::Marked`] follows it.
    data: Vec<Range<usize>>,
}

/// The file with its header reduced to what decoding needs: an APP0 that asks for the standard Huffman tables where the
/// file has none (motion JPEG; libjpeg does the same), an Adobe segment with the colour transform, and the tables.
fn plain_file(bytes: &[u8], header: &JpegHeader, colour: Colour, ends: Ends) -> PlainFile {
    let first_sos = header.first_sos.unwrap_or(bytes.len());
    let transform = match colour {
        Colour::Grey | Colour::YCbCr => 1,
        Colour::Rgb | Colour::Four(FourColour::Cmyk) => 0,
        Colour::Four(FourColour::Ycck) => 2,
    };
    let mut plain = Vec::with_capacity(bytes.len() + 64);
    plain.extend(b"\xFF\xD8\xFF\xE0\x00\x09AVI1\0\0\0");
    if colour != Colour::Grey {
        plain.extend(b"\xFF\xEE\x00\x0EAdobe\0\x64\0\0\0\0");
        plain.push(transform);
    }
    for range in &header.tables {
        plain.extend(&bytes[range.clone()]);
    }
    if ends == Ends::AsTheyAre {
        plain.extend(&bytes[first_sos..]);
        return PlainFile { bytes: plain, data: Vec::new() };
    }
    let progressive = header.frame.as_ref().is_some_and(|frame| frame.process == Process::Progressive);
    if progressive && let Some(scan) = header.scans.first() {
        plain.extend(empty_scan(&bytes[scan.header.clone()]));
    }
    let last = header.scans.last().map_or(first_sos, |scan| scan.data.end);
    let mut from = first_sos;
    let mut data = Vec::with_capacity(header.scans.len());
    for scan in &header.scans {
        plain.extend(&bytes[from..scan.data.end]);
        let data_start = plain.len() - scan.data.len();
        data.push(data_start..data_start + codes_bytes(&bytes[scan.data.clone()]));
        // Between the scans of a sequential picture zune-jpeg takes nothing.
        if progressive || scan.data.end == last {
            plain.extend(ones_after(&bytes[scan.header.clone()], progressive));
        }
        from = scan.data.end;
    }
    plain.extend(b"\xFF\xD9");
    PlainFile { bytes: plain, data }
}

/// Length of a scan's data without what may come before the marker that ends it: bytes of ones, which are fill, and
/// restart markers, which some writers put behind the last interval.
fn codes_bytes(mut data: &[u8]) -> usize {
    while let [rest @ .., 0xFF] | [rest @ .., 0xFF, 0xD0..=0xD7] = data {
        data = rest;
    }
    data.len()
}

/// Ones as entropy-coded data has them, enough to reach the next code. A refinement scan takes correction bits from them
/// before, of which libjpeg's encoder leaves at most 1000 to a code.
fn ones_after(scan_header: &[u8], progressive: bool) -> Vec<u8> {
    let refines = progressive && scan_header.last().is_some_and(|bit_positions| bit_positions >> 4 != 0);
    [0xFF, 0].repeat(if refines { 4096 } else { 16 })
}

/// A scan that changes nothing, to come before the first one of a progressive picture: it refines DC coefficients by
/// zeros. zune-jpeg wants the marker after the very first scan right behind its data, which ones would prevent.
fn empty_scan(first_header: &[u8]) -> Vec<u8> {
    match *first_header {
        [_, component, tables, ..] => vec![0xFF, 0xDA, 0, 8, 1, component, tables, 0, 0, 0x10, 0],
        _ => Vec::new(),
    }
}

/// One run of zune-jpeg: RGB8 of one and three components, the four samples as they are of four.
fn decode_plain(reader: Watched<'_>, scans: usize, colour: Colour, strict: bool) -> Result<Vec<u8>, DecodeErrors> {
    let out = match colour {
        Colour::Grey | Colour::YCbCr | Colour::Rgb => ColorSpace::RGB,
        Colour::Four(FourColour::Cmyk) => ColorSpace::CMYK,
        Colour::Four(FourColour::Ycck) => ColorSpace::YCCK,
    };
    let options = DecoderOptions::default()
        .set_max_width(usize::MAX)
        .set_max_height(usize::MAX)
        .jpeg_set_out_colorspace(out)
        // Their number has been checked; one more is made here.
        .jpeg_set_max_scans(scans + 2)
        .set_strict_mode(strict);
    JpegDecoder::new_with_options(reader, options).decode()
}

#[cfg(test)]
mod tests {
    use super::super::{DecodeOptions, decode, jpeg_header};
    use super::*;

    #[test]
    fn more_scans_than_the_decoder_takes_are_refused_before_it_tries() {
        for (scans, refused) in [(100, false), (101, true), (2000, true)] {
            let sof = b"\xFF\xC2\0\x0B\x08\0\x08\0\x08\x01\x01\x11\0";
            let sos = b"\xFF\xDA\0\x08\x01\x01\0\0\x3F\0x";
            let file = [&b"\xFF\xD8"[..], sof, &sos.repeat(scans), b"\xFF\xD9"].concat();
            let header = jpeg_header::parse(&file).unwrap();
            assert_eq!(header.scans.len(), scans);
            assert_eq!(check_layout(&header, header.frame.as_ref().unwrap()).is_err(), refused, "{scans} scans");
            let error = decode(&file, &DecodeOptions::default()).unwrap_err();
            assert_eq!(error.kind == ErrorKind::UnsupportedSampling, refused, "{scans} scans: {error}");
        }
    }
}
