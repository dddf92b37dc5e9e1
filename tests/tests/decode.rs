//! The decoders against golden pixels, against every truncation, and against damaged and hostile bytes.

use std::fs;
use std::path::PathBuf;

use ocellus::decode::{Decode, DecodeOptions, decode, exif, jpeg_header};
use ocellus::error::{ErrorKind, ItemError, StageName};
use ocellus::frame::{Buffer, Encoded, Item, Origin, Picture};
use ocellus::stage::Stage;
use proptest::prelude::*;
use tests::job::ends;

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/decode")
}

fn read(name: &str) -> Vec<u8> {
    fs::read(golden().join(name)).unwrap()
}

fn strict() -> DecodeOptions {
    DecodeOptions { strict: true, ..DecodeOptions::default() }
}

/// A row of index.tsv; see `golden/decode/generate.py`.
#[derive(serde::Deserialize)]
struct Row {
    file: String,
    want: String,
    partial: bool,
    max: u8,
    mean: f64,
    edge: usize,
    pixels: String,
}

fn index() -> Vec<Row> {
    let mut reader = csv::ReaderBuilder::new().delimiter(b'\t').from_path(golden().join("index.tsv")).unwrap();
    reader.deserialize().collect::<Result<_, _>>().unwrap()
}

/// A binary PPM: width, height, samples.
fn ppm(name: &str) -> (usize, usize, Vec<u8>) {
    let bytes = read(name);
    let mut fields = bytes.splitn(4, u8::is_ascii_whitespace);
    assert_eq!(fields.next(), Some(&b"P6"[..]));
    let mut number = || std::str::from_utf8(fields.next().unwrap()).unwrap().parse().unwrap();
    let (width, height): (usize, usize) = (number(), number());
    let samples = bytes[bytes.len() - 3 * width * height..].to_vec();
    (width, height, samples)
}

/// Largest and mean difference, the last `edge` columns and rows left out (of pictures that have more).
fn difference(picture: &Picture, expected: &[u8], edge: usize) -> (u8, f64) {
    let (width, height) = (picture.width_px as usize, picture.height_px as usize);
    let keep = |n: usize| if n > edge { n - edge } else { n };
    let (mut max, mut sum, mut count) = (0, 0, 0);
    for y in 0..keep(height) {
        let row = 3 * y * width..3 * (y * width + keep(width));
        for (a, b) in picture.rgb[row.clone()].iter().zip(&expected[row]) {
            max = max.max(a.abs_diff(*b));
            sum += u32::from(a.abs_diff(*b));
            count += 1;
        }
    }
    (max, f64::from(sum) / f64::from(count))
}

/// What is wrong with a result, `None` if it is as the row says.
///
/// With the feature `libjpeg` all JPEG pixels are equal, and what the default build refuses for its layout decodes.
fn fault(row: &Row, result: &Result<Picture, ItemError>) -> Option<String> {
    let exact = cfg!(feature = "libjpeg") && row.file.starts_with("jpeg-");
    let want = if exact && row.want == "unsupported-sampling" { "ok" } else { &row.want };
    let (max_allowed, mean_allowed, edge) = if exact { (0, 0.0, 0) } else { (row.max, row.mean, row.edge) };
    match (result, want) {
        (Ok(picture), "ok") => {
            let (width, height, expected) = ppm(&row.pixels);
            let got = (picture.width_px as usize, picture.height_px as usize);
            if got != (width, height) || picture.rgb.len() != expected.len() {
                return Some(format!("{got:?} pixels instead of {width} x {height}"));
            }
            if picture.partial != row.partial {
                return Some(format!("partial is {}", picture.partial));
            }
            let (max, mean) = difference(picture, &expected, edge);
            (max > max_allowed || mean > mean_allowed).then(|| format!("differs by at most {max}, mean {mean:.3}"))
        }
        (Err(e), want) if e.kind.to_string() == want => {
            let one_line = e.stage == StageName::Decode && e.message.lines().count() == 1;
            (!one_line).then(|| format!("not a one-line decode error: {e:?}"))
        }
        (Ok(_), want) => Some(format!("decoded instead of {want}")),
        (Err(e), want) => Some(format!("{e} instead of {want}")),
    }
}

#[test]
fn golden_files() {
    let wrong: Vec<String> = index()
        .iter()
        .filter_map(|row| {
            let result = decode(&read(&row.file), &DecodeOptions::default());
            fault(row, &result).map(|fault| format!("{}: {fault}", row.file))
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn strict_refuses_what_is_partial() {
    for row in index().iter().filter(|row| row.want == "ok") {
        let result = decode(&read(&row.file), &strict());
        if row.partial {
            assert_eq!(result.unwrap_err().kind, ErrorKind::Truncated, "{}", row.file);
        } else {
            assert!(result.is_ok(), "{}: {}", row.file, result.unwrap_err());
        }
    }
}

#[test]
fn every_cut_of_a_jpeg() {
    for name in [
        "jpeg-420-baseline.jpg",
        "jpeg-420-progressive.jpg",
        "jpeg-restart-1B-baseline.jpg",
        "jpeg-444-separate-scans.jpg",
        "jpeg-cmyk-adobe.jpg",
    ] {
        let whole = read(name);
        let full = decode(&whole, &DecodeOptions::default()).unwrap();
        assert!(!full.partial);
        let mut decoded = 0;
        for cut in 1..whole.len() {
            let expected_kind = if cut == 1 { ErrorKind::NotAnImage } else { ErrorKind::Truncated };
            match decode(&whole[..cut], &DecodeOptions::default()) {
                Ok(picture) => {
                    assert!(picture.partial, "{name} cut at {cut} is not partial");
                    assert_eq!((picture.width_px, picture.height_px), (full.width_px, full.height_px));
                    assert_eq!(picture.rgb.len(), full.rgb.len());
                    decoded += 1;
                }
                Err(e) => assert_eq!(e.kind, expected_kind, "{name} cut at {cut}: {e}"),
            }
            assert_eq!(decode(&whole[..cut], &strict()).unwrap_err().kind, expected_kind, "{name} cut at {cut}");
        }
        assert!(decoded > 100, "{name}: only {decoded} of {} cuts decode", whole.len());
    }
}

#[test]
fn what_was_there_before_a_cut_is_right() {
    let whole = read("jpeg-444-baseline.jpg");
    let full = decode(&whole, &DecodeOptions::default()).unwrap();
    let cut = decode(&whole[..whole.len() - 300], &DecodeOptions::default()).unwrap();
    let rows = 8 * 3 * full.width_px as usize;
    assert!(cut.partial);
    assert_eq!(cut.rgb[..rows], full.rgb[..rows], "the first row of blocks");
    assert_ne!(cut.rgb, full.rgb);
}

#[test]
fn every_cut_of_other_formats() {
    for name in ["png-rgb.png", "gif.gif", "webp-lossless.webp", "webp-lossy.webp", "bmp-rgb.bmp", "tiff-rgb-lzw.tiff"]
    {
        let whole = read(name);
        for cut in (1..whole.len()).step_by(7) {
            if let Err(e) = decode(&whole[..cut], &DecodeOptions::default()) {
                // Too short a beginning has no signature.
                let known = cut > 16 || e.kind != ErrorKind::NotAnImage;
                assert!(!known || e.kind == ErrorKind::Truncated, "{name} cut at {cut}: {e}");
            }
        }
    }
}

#[test]
fn empty_and_oversized_files() {
    // The advice names the option.
    let kind = |bytes: &[u8], options| {
        let e = decode(bytes, &options).unwrap_err();
        assert!(e.kind != ErrorKind::TooLarge || e.message.contains("--max-"), "{e}");
        e.kind
    };
    assert_eq!(kind(b"", DecodeOptions::default()), ErrorKind::Empty);
    let bytes = read("jpeg-444-baseline.jpg");
    assert_eq!(kind(&bytes, DecodeOptions { max_bytes: 100, ..DecodeOptions::default() }), ErrorKind::TooLarge);
    for row in index().iter().filter(|row| row.want == "ok") {
        let bytes = read(&row.file);
        let (width, height, _) = ppm(&row.pixels);
        let pixels = (width * height) as u64;
        let limit = |max_pixels| DecodeOptions { max_pixels, ..DecodeOptions::default() };
        assert!(decode(&bytes, &limit(pixels)).is_ok(), "{} at its limit", row.file);
        assert_eq!(kind(&bytes, limit(pixels - 1)), ErrorKind::TooLarge, "{}", row.file);
    }
}

#[test]
fn header_bombs_are_refused_without_the_work() {
    for row in index().iter().filter(|row| row.want == "too-large") {
        let bytes = read(&row.file);
        // Clearing the 4.29 billion pixels so many times would take longer than a hang.
        ends(move || {
            for _ in 0..1000 {
                assert_eq!(decode(&bytes, &DecodeOptions::default()).unwrap_err().kind, ErrorKind::TooLarge);
            }
        });
    }
}

#[test]
fn alpha_goes_on_the_background() {
    let bytes = read("png-rgba.png");
    let on = |background| decode(&bytes, &DecodeOptions { background, ..DecodeOptions::default() }).unwrap().rgb;
    // The first rows of the file are fully transparent.
    assert_eq!(on([1, 2, 3])[..6], [1, 2, 3, 1, 2, 3]);
    assert_eq!(on([255; 3])[..3], [255; 3]);
}

#[test]
fn the_stage_passes_failures_on() {
    let origin = std::sync::Arc::new(Origin::File("a.jpg".into()));
    let mut stage = Decode::new(DecodeOptions::default());
    let mut outputs = Vec::new();
    let earlier = ItemError::new(StageName::Source, ErrorKind::NotFound, "gone");
    let encoded = |bytes| Ok(Encoded { bytes: Buffer::from(bytes), share: None });
    let payloads = [encoded(read("jpeg-grey.jpg")), Err(earlier.clone()), encoded(vec![1, 2])];
    for (id, payload) in (0..).zip(payloads) {
        stage.process(Item::new(id, origin.clone(), payload), &mut |item| outputs.push(item)).unwrap();
    }
    assert_eq!(outputs.iter().map(|item| item.id).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(outputs[0].payload.is_ok());
    assert_eq!(outputs[1].payload.as_ref().unwrap_err(), &earlier);
    assert_eq!(outputs[2].payload.as_ref().unwrap_err().kind, ErrorKind::NotAnImage);
}

/// Names of small files of every format, for damage.
fn victims() -> impl Strategy<Value = String> {
    let names: Vec<_> = index().into_iter().filter(|row| row.want == "ok").map(|row| row.file).collect();
    proptest::sample::select(names)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// A few bytes changed anywhere: a picture or an error row, in bounded memory and without a hang, never a panic.
    #[test]
    fn damaged_files(name in victims(), flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..6)) {
        let mut bytes = read(&name);
        for (at, mask) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= mask;
        }
        // Flipped dimensions are refused above this limit.
        let options = DecodeOptions { max_pixels: 1 << 22, ..DecodeOptions::default() };
        match ends(move || decode(&bytes, &options)) {
            Ok(picture) => {
                let pixels = u64::from(picture.width_px) * u64::from(picture.height_px);
                prop_assert_eq!(picture.rgb.len() as u64, 3 * pixels);
            }
            Err(e) => {
                prop_assert_ne!(e.kind, ErrorKind::Internal, "{}: {}", name, e.message);
                prop_assert!(!e.message.contains(char::is_control), "{}: {:?}", name, e.message);
            }
        }
    }

    /// The parsers take any bytes.
    #[test]
    fn parsers_take_anything(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = jpeg_header::parse(&bytes);
        let _ = jpeg_header::parse(&[&[0xFF, 0xD8, 0xFF][..], &bytes].concat());
        let _ = exif::orientation(&bytes);
        let _ = exif::orientation(&[&b"MM\0*"[..], &bytes].concat());
        let _ = exif::orientation(&[&b"II*\0\x08\0\0\0"[..], &bytes].concat());
    }
}

/// One header for files of every kind, whole, cut and damaged: each is as if it were read alone.
#[test]
fn a_header_remembers_nothing_of_the_file_before() {
    let files: Vec<_> = index().into_iter().map(|row| read(&row.file)).collect();
    let mut random = tests::Random::new(11);
    let mut header = jpeg_header::JpegHeader::default();
    for _ in 0..2000 {
        let mut bytes = files[random.below(files.len())].clone();
        bytes.truncate(if random.below(3) == 0 { random.below(bytes.len() + 1) } else { bytes.len() });
        for _ in 0..random.below(4).min(bytes.len()) {
            let at = random.below(bytes.len());
            bytes[at] = [0xFF, 0xDA, 0xC0, 0xC4, 0][random.below(5)];
        }
        let again = header.read(&bytes).then(|| header.clone());
        assert_eq!(again, jpeg_header::parse(&bytes));
    }
    // Empty scans, of which so many are not remembered.
    let many = [&[0xFF, 0xD8][..], &[0xFF, 0xDA, 0, 2].repeat(1000)].concat();
    assert!(header.read(&many) && header.scans.len() == 1000);
    assert!(!header.read(b"") && header.scans.capacity() < 1000);
}

/// As [`every_cut_of_a_jpeg`], with an end-of-image marker after what is left, as some tools write it.
#[test]
fn every_mended_cut_of_a_sequential_jpeg() {
    for name in ["jpeg-420-baseline.jpg", "jpeg-444-baseline.jpg", "jpeg-restart-1B-baseline.jpg", "jpeg-grey.jpg"] {
        let whole = read(name);
        let data = jpeg_header::parse(&whole).unwrap().scans[0].data.clone();
        // The last byte may hold nothing but padding.
        for cut in data.start + 1..data.end - 1 {
            let mended = [&whole[..cut], &[0xFF, 0xD9]].concat();
            match decode(&mended, &DecodeOptions::default()) {
                Ok(picture) => assert!(picture.partial, "{name} cut at {cut} of {data:?}"),
                Err(e) => assert_eq!(e.kind, ErrorKind::Corrupt, "{name} cut at {cut}: {e}"),
            }
            assert_eq!(decode(&mended, &strict()).unwrap_err().kind, ErrorKind::Corrupt, "{name} cut at {cut}");
        }
    }
}

/// As [`every_cut_of_a_jpeg`] with an end-of-image marker, of progressive pictures. What is not noticed is what the
/// documentation says: whole scans, and bits after the last code of a scan that refines AC coefficients.
#[test]
fn every_mended_cut_of_a_progressive_jpeg() {
    for name in ["jpeg-420-progressive.jpg", "jpeg-444-progressive.jpg", "jpeg-grey-progressive.jpg"] {
        let whole = read(name);
        let (mut noticed, mut in_refinement) = (0, 0);
        for scan in jpeg_header::parse(&whole).unwrap().scans {
            let header = &whole[scan.header];
            let refines_ac = header[header.len() - 3] > 0 && header[header.len() - 1] >> 4 > 0;
            // The last byte may hold nothing but padding.
            for cut in scan.data.start..scan.data.end - 1 {
                let mended = [&whole[..cut], &[0xFF, 0xD9]].concat();
                match decode(&mended, &DecodeOptions::default()) {
                    Ok(picture) if picture.partial => noticed += 1,
                    Ok(_) => {
                        assert!(refines_ac, "{name} cut at {cut} of {:?} is not partial", scan.data);
                        in_refinement += 1;
                        continue;
                    }
                    Err(e) => assert_eq!(e.kind, ErrorKind::Corrupt, "{name} cut at {cut}: {e}"),
                }
                assert_eq!(decode(&mended, &strict()).unwrap_err().kind, ErrorKind::Corrupt, "{name} cut at {cut}");
            }
        }
        assert!(20 * in_refinement < noticed, "{name}: {in_refinement} of {noticed} cuts are not noticed");
    }
}

/// Data that is left over at the end of a scan of a progressive picture. The decoder reads up to eight bytes ahead.
#[test]
fn data_left_over_in_a_progressive_jpeg() {
    for name in ["jpeg-420-progressive.jpg", "jpeg-444-progressive.jpg", "jpeg-grey-progressive.jpg"] {
        let whole = read(name);
        for scan in jpeg_header::parse(&whole).unwrap().scans {
            let (before, after) = whole.split_at(scan.data.end);
            let with = |more: &[u8]| decode(&[before, more, after].concat(), &DecodeOptions::default()).unwrap();
            assert!(with(&[0x55; 16]).partial, "{name}: {:?}", scan.data);
            // Fill and restart markers are no data.
            assert!(!with(&[0xFF; 16]).partial, "{name}: {:?}", scan.data);
        }
    }
}

/// Bytes taken out of the scans of progressive pictures. What is left may be valid codes of about as much data by chance,
/// most easily in scans of so few bytes, so not all holes are noticed.
#[test]
fn holes_in_a_progressive_jpeg() {
    for name in ["jpeg-420-progressive.jpg", "jpeg-444-progressive.jpg", "jpeg-grey-progressive.jpg"] {
        let whole = read(name);
        let (mut noticed, mut count) = (0, 0);
        for scan in jpeg_header::parse(&whole).unwrap().scans {
            for size in [1, 5, 20, 60] {
                for at in scan.data.start..scan.data.end.saturating_sub(size) {
                    let holed = [&whole[..at], &whole[at + size..]].concat();
                    count += 1;
                    noticed += usize::from(decode(&holed, &DecodeOptions::default()).map_or(true, |p| p.partial));
                }
            }
        }
        assert!(2 * noticed > count, "{name}: only {noticed} of {count} holes are noticed");
    }
}
