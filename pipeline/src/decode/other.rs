//! PNG, WebP, BMP, GIF and TIFF through the crate `image`.

use std::error::Error;
use std::io::{Cursor, ErrorKind as IoErrorKind};

use image::metadata::Orientation as ImageOrientation;
use image::{ColorType, DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};

use super::colour::over;
use super::orient::{self, Orientation};
use super::{DecodeOptions, LargePictures, error};
use crate::error::{ErrorKind, ItemError, one_line};
use crate::frame::{Decoder, Picture};

/// Most bytes a pixel has in the output of a decoder that is used: 16-bit RGBA.
const MAX_BYTES_A_PIXEL: u64 = 8;

/// What decoders may use beside their output: tables, one frame's palette.
const OVERHEAD_BYTES: u64 = 64 << 20;

/// What the profile and the text chunks of a PNG file may have, unpacked.
const PNG_METADATA_BYTES: u64 = 16 << 20;

/// Decodes a file that is no JPEG.
pub(super) fn decode(bytes: &[u8], options: &DecodeOptions, large: &LargePictures) -> Result<Picture, ItemError> {
    let format = recognise(bytes)?;
    let fail = |e: ImageError| item_error(&e, bytes, format);
    let mut decoder = reader(bytes, format, options)?.into_decoder().map_err(fail)?;
    let (width, height) = decoder.dimensions();
    options.check_size(width, height)?;
    // Before decoding: with up to 16 bytes a pixel they are over every bound.
    if matches!(decoder.color_type(), ColorType::Rgb32F | ColorType::Rgba32F) {
        return Err(floating_point());
    }
    // RGB8 and the same upright, beside the decoder's output.
    let memory_bytes = decoder.total_bytes().saturating_add(8 * u64::from(width) * u64::from(height));
    let share = large.admit(width, height, memory_bytes)?;
    let orientation = decoder.orientation().map_or(Orientation::Upright, from_image);
    let picture = DynamicImage::from_decoder(decoder).map_err(fail)?;
    let rgb = to_rgb8(picture, options.background)?;
    let (rgb, width_px, height_px) = orient::apply(rgb, width, height, orientation);
    Ok(Picture { width_px, height_px, rgb, decoder: Decoder::Image, partial: false, share })
}

/// Columns and rows as stored, of a file that can be read so far.
pub(super) fn size(bytes: &[u8], options: &DecodeOptions) -> Option<(u32, u32)> {
    let format = recognise(bytes).ok()?;
    let decoder = reader(bytes, format, options).ok()?.into_decoder().ok()?;
    Some(decoder.dimensions())
}

fn reader<'a>(
    bytes: &'a [u8],
    format: ImageFormat,
    options: &DecodeOptions,
) -> Result<ImageReader<Cursor<&'a [u8]>>, ItemError> {
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(max_alloc(bytes, format, options)?);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    Ok(reader)
}

/// What the decoder may allocate. Where the dimensions are at a fixed place, they are checked here, before the decoder
/// allocates anything.
fn max_alloc(bytes: &[u8], format: ImageFormat, options: &DecodeOptions) -> Result<u64, ItemError> {
    if let Some((width, height)) = size_in_header(bytes, format) {
        options.check_size(width, height)?;
        if format == ImageFormat::Png {
            return Ok(u64::from(width) * u64::from(height) * MAX_BYTES_A_PIXEL + PNG_METADATA_BYTES);
        }
    }
    Ok(options.max_pixels.saturating_mul(MAX_BYTES_A_PIXEL).saturating_add(OVERHEAD_BYTES))
}

/// Width and height of formats that have them at a fixed place.
fn size_in_header(bytes: &[u8], format: ImageFormat) -> Option<(u32, u32)> {
    let four = |at: usize| bytes.get(at..)?.first_chunk::<4>().copied();
    match format {
        ImageFormat::Png if bytes.get(12..16)? == b"IHDR" => {
            Some((u32::from_be_bytes(four(16)?), u32::from_be_bytes(four(20)?)))
        }
        // The header of OS/2, 12 bytes long, has 16 bits for each. A negative height means rows from the top.
        ImageFormat::Bmp if u32::from_le_bytes(four(14)?) > 12 => {
            Some((i32::from_le_bytes(four(18)?).unsigned_abs(), i32::from_le_bytes(four(22)?).unsigned_abs()))
        }
        _ => None,
    }
}

/// The format, by the first bytes of the file.
fn recognise(bytes: &[u8]) -> Result<ImageFormat, ItemError> {
    use ImageFormat::{Bmp, Gif, Png, Tiff, WebP};
    match image::guess_format(bytes) {
        Ok(format @ (Png | WebP | Bmp | Gif | Tiff)) => Ok(format),
        Ok(format) => {
            let message = format!("{} is not supported; convert it to JPEG or PNG", name(format));
            Err(error(ErrorKind::Unsupported, message))
        }
        // An ISO base media file of the HEIF family.
        Err(_) if matches!(bytes.get(4..11), Some(b"ftyphei" | b"ftypmif")) => {
            Err(error(ErrorKind::Unsupported, "HEIF is not supported; convert it to JPEG or PNG"))
        }
        Err(_) => Err(error(ErrorKind::NotAnImage, "none of JPEG, PNG, WebP, BMP, GIF, TIFF by its first bytes")),
    }
}

/// A format's usual name.
fn name(format: ImageFormat) -> String {
    format!("{format:?}").to_uppercase()
}

fn from_image(orientation: ImageOrientation) -> Orientation {
    match orientation {
        ImageOrientation::NoTransforms => Orientation::Upright,
        ImageOrientation::Rotate90 => Orientation::Rotate90,
        ImageOrientation::Rotate180 => Orientation::Rotate180,
        ImageOrientation::Rotate270 => Orientation::Rotate270,
        ImageOrientation::FlipHorizontal => Orientation::FlipHorizontal,
        ImageOrientation::FlipVertical => Orientation::FlipVertical,
        ImageOrientation::Rotate90FlipH => Orientation::Transpose,
        ImageOrientation::Rotate270FlipH => Orientation::Transverse,
    }
}

/// Any layout that a decoder gives as RGB8; see the table in the documentation of [`super`].
fn to_rgb8(picture: DynamicImage, background: [u8; 3]) -> Result<Vec<u8>, ItemError> {
    let high = |v: u16| (v >> 8) as u8;
    let composite = |rgb: [u8; 3], alpha: u8| {
        let [r, g, b] = background;
        [over(rgb[0], alpha, r), over(rgb[1], alpha, g), over(rgb[2], alpha, b)]
    };
    Ok(match picture {
        DynamicImage::ImageRgb8(p) => p.into_raw(),
        DynamicImage::ImageLuma8(p) => rgb_of(p.as_raw(), |&[v]| [v; 3]),
        DynamicImage::ImageLumaA8(p) => rgb_of(p.as_raw(), |&[v, a]| composite([v; 3], a)),
        DynamicImage::ImageRgba8(p) => rgb_of(p.as_raw(), |&[r, g, b, a]| composite([r, g, b], a)),
        DynamicImage::ImageLuma16(p) => rgb_of(p.as_raw(), |&[v]| [high(v); 3]),
        DynamicImage::ImageLumaA16(p) => rgb_of(p.as_raw(), |&[v, a]| composite([high(v); 3], high(a))),
        DynamicImage::ImageRgb16(p) => rgb_of(p.as_raw(), |&rgb| rgb.map(high)),
        DynamicImage::ImageRgba16(p) => rgb_of(p.as_raw(), |&[r, g, b, a]| composite([r, g, b].map(high), high(a))),
        _ => return Err(floating_point()),
    })
}

fn floating_point() -> ItemError {
    error(ErrorKind::Unsupported, "pictures of floating-point samples are not supported; convert it to 8 or 16 bits")
}

/// Converts pixels of `N` samples one by one.
fn rgb_of<T, const N: usize>(samples: &[T], convert: impl Fn(&[T; N]) -> [u8; 3]) -> Vec<u8> {
    let (pixels, _) = samples.as_chunks::<N>();
    let mut rgb = vec![0; 3 * pixels.len()];
    for (out, pixel) in rgb.as_chunks_mut::<3>().0.iter_mut().zip(pixels) {
        *out = convert(pixel);
    }
    rgb
}

/// An error of `image` as a row's error.
fn item_error(e: &ImageError, bytes: &[u8], format: ImageFormat) -> ItemError {
    let cut = ends_too_early(e) || cut_short(e, bytes, format);
    let metadata = format == ImageFormat::Png;
    let format = name(format);
    let text = one_line(&e.to_string());
    match e {
        ImageError::Limits(_) => {
            // The pixels of a PNG file are within the limit when it is opened.
            let advice = if metadata {
                "re-save it without its colour profile and texts"
            } else {
                "raise --max-pixels or scale the picture down"
            };
            error(ErrorKind::TooLarge, format!("{format} beyond the memory limit ({text}); {advice}"))
        }
        ImageError::Unsupported(_) => {
            error(ErrorKind::Unsupported, format!("{format}: {text}; convert it to 8-bit PNG or JPEG"))
        }
        _ if cut => {
            error(ErrorKind::Truncated, format!("the {format} file ends too early; get a fresh copy of the file"))
        }
        _ => error(ErrorKind::Corrupt, format!("damaged {format}: {text}; get a fresh copy of the file")),
    }
}

/// Whether a file ends too early whose decoder reports it as something else.
fn cut_short(e: &ImageError, bytes: &[u8], format: ImageFormat) -> bool {
    match format {
        // An error type of the crate `gif`, known here by its text alone.
        ImageFormat::Gif => e.to_string().contains("Unexpected End of File"),
        // A RIFF file has its size after its name, less these eight bytes.
        ImageFormat::WebP => bytes
            .get(4..)
            .and_then(|rest| rest.first_chunk())
            .is_some_and(|&size| (bytes.len() as u64) < 8 + u64::from(u32::from_le_bytes(size))),
        _ => false,
    }
}

/// Whether an unexpected end of the data is among the causes of an error.
fn ends_too_early(e: &ImageError) -> bool {
    let at_end = |e: &std::io::Error| e.kind() == IoErrorKind::UnexpectedEof;
    // `source` of the variant `IoError` passes over the I/O error itself.
    if let ImageError::IoError(io) = e {
        return at_end(io);
    }
    std::iter::successors(e.source(), |&cause| cause.source())
        .any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(at_end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floating_point_is_refused_before_it_is_decoded() {
        for picture in [DynamicImage::new_rgb32f(40, 30), DynamicImage::new_rgba32f(40, 30)] {
            let mut file = Cursor::new(Vec::new());
            picture.write_to(&mut file, ImageFormat::Tiff).unwrap();
            let mut file = file.into_inner();
            let decode = |file: &[u8]| decode(file, &DecodeOptions::default(), &LargePictures::default()).unwrap_err();
            assert_eq!(decode(&file).kind, ErrorKind::Unsupported);
            // Samples that lie nowhere: who looked for them would call the file cut or damaged.
            let directory = u32::from_le_bytes(*file[4..].first_chunk().unwrap()) as usize;
            let strip_offsets =
                file[directory..].array_windows().position(|tag| *tag == 273_u16.to_le_bytes()).unwrap();
            file[directory + strip_offsets + 8..][..4].fill(0xFF);
            assert_eq!(decode(&file).kind, ErrorKind::Unsupported);
        }
    }

    #[test]
    fn the_size_of_a_png_file_is_read_before_anything_else() {
        let mut file = Cursor::new(Vec::new());
        DynamicImage::new_rgb8(40, 30).write_to(&mut file, ImageFormat::Png).unwrap();
        let file = file.into_inner();
        assert_eq!(size_in_header(&file, ImageFormat::Png), Some((40, 30)));
        assert_eq!(size_in_header(&file[..23], ImageFormat::Png), None);
        let options = DecodeOptions { max_pixels: 40 * 30 - 1, ..DecodeOptions::default() };
        for cut in [24, 33, file.len()] {
            let error = decode(&file[..cut], &options, &LargePictures::default()).unwrap_err();
            assert!(error.kind == ErrorKind::TooLarge && error.message.contains("40 x 30"), "cut at {cut}: {error}");
        }
    }
}
