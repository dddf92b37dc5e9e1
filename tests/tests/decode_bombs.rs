//! Small files that ask for much memory or work, and machines that have none to give.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::Command;

use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};
use ocellus::decode::{DecodeOptions, decode, jpeg_header};
use ocellus::error::ErrorKind;
use tests::job::ends;

fn read(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/decode");
    fs::read(folder.join(name)).unwrap()
}

/// A file of the golden folder that says to be `side` x `side` pixels.
fn enlarged(name: &str, side: u16) -> Vec<u8> {
    let mut bytes = read(name);
    let wide = u32::from(side);
    match Path::new(name).extension().unwrap().to_str().unwrap() {
        "jpg" => {
            let header = jpeg_header::parse(&bytes).unwrap();
            // The SOF segment: marker, length, precision, height, width.
            let is_frame = |at: &usize| (0xC0..=0xC2).contains(&bytes[at + 1]);
            let frame = header.tables.iter().map(|segment| segment.start).find(is_frame).unwrap();
            bytes[frame + 5..frame + 7].copy_from_slice(&side.to_be_bytes());
            bytes[frame + 7..frame + 9].copy_from_slice(&side.to_be_bytes());
        }
        "png" => {
            bytes[16..20].copy_from_slice(&wide.to_be_bytes());
            bytes[20..24].copy_from_slice(&wide.to_be_bytes());
            let crc = crc32fast::hash(&bytes[12..29]);
            bytes[29..33].copy_from_slice(&crc.to_be_bytes());
        }
        "bmp" => {
            bytes[18..22].copy_from_slice(&wide.to_le_bytes());
            bytes[22..26].copy_from_slice(&wide.to_le_bytes());
        }
        "gif" => {
            bytes[6..8].copy_from_slice(&side.to_le_bytes());
            bytes[8..10].copy_from_slice(&side.to_le_bytes());
        }
        other => unreachable!("no recipe for {other}"),
    }
    bytes
}

const ENLARGED: [&str; 7] = [
    "jpeg-420-baseline.jpg",
    "jpeg-420-progressive.jpg",
    "jpeg-cmyk-adobe-progressive.jpg",
    "jpeg-grey.jpg",
    "png-rgb.png",
    "bmp-rgb.bmp",
    "gif.gif",
];

#[test]
fn too_many_pixels_are_refused_by_the_header() {
    for name in ENLARGED {
        let e = decode(&enlarged(name, 20_000), &DecodeOptions::default()).unwrap_err();
        assert_eq!(e.kind, ErrorKind::TooLarge, "{name}: {e}");
        assert!(e.message.contains("20000 x 20000") && e.message.contains("--max-pixels"), "{name}: {e}");
    }
}

/// Whether a process with so much memory dies of the file, and the line that it prints.
#[cfg(target_os = "linux")]
fn decode_in(file: &Path, memory_mib: u32) -> (bool, String) {
    let limit = format!("ulimit -v {}; exec \"$@\"", memory_mib << 10);
    let mut command = Command::new("sh");
    command.args(["-c", &limit, "sh", env!("CARGO_BIN_EXE_decode_one")]).arg(file);
    let output = command.output().unwrap();
    (!output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The decoders abort the process where an allocation fails: that must not come so far.
#[cfg(target_os = "linux")]
#[test]
fn too_little_memory_is_an_error_of_the_row() {
    let folder = tempfile::tempdir().unwrap();
    for name in ENLARGED {
        let file = folder.path().join(name);
        fs::write(&file, enlarged(name, 12_000)).unwrap();
        for memory_mib in [100, 300, 600] {
            let (died, line) = decode_in(&file, memory_mib);
            assert!(!died, "{name} in {memory_mib} MiB");
            assert!(line.starts_with("error too-large no memory"), "{name} in {memory_mib} MiB: {line}");
        }
    }
}

/// 10 x 10 pixels with a colour profile of so many bytes, which packs to a thousandth.
fn png_with_profile(profile_bytes: usize) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    let mut encoder = PngEncoder::new(&mut file);
    encoder.set_icc_profile(vec![0; profile_bytes]).unwrap();
    encoder.write_image(&[7; 300], 10, 10, ExtendedColorType::Rgb8).unwrap();
    file.into_inner()
}

/// The same file with the packed data of its profile in a chunk of another kind, `head` before it.
fn in_chunk(png: &[u8], kind: [u8; 4], head: &[u8]) -> Vec<u8> {
    let at = png.windows(4).position(|name| name == b"iCCP").unwrap();
    let length = u32::from_be_bytes(*png[at - 4..].first_chunk().unwrap()) as usize;
    let (body, rest) = png[at + 4..].split_at(length);
    // A name, a zero, the method of packing.
    let packed = &body[body.iter().position(|&b| b == 0).unwrap() + 2..];
    let chunk = [&kind, head, packed].concat();
    let size = (chunk.len() as u32 - 4).to_be_bytes();
    [&png[..at - 4], &size, &chunk, &crc32fast::hash(&chunk).to_be_bytes(), &rest[4..]].concat()
}

#[cfg(target_os = "linux")]
#[test]
fn png_metadata_unpacks_within_a_limit() {
    let usual = png_with_profile(2 << 20);
    assert!(decode(&usual, &DecodeOptions::default()).is_ok());
    let profile = png_with_profile(128 << 20);
    let text = in_chunk(&profile, *b"zTXt", b"a\0\0");
    let unicode = in_chunk(&profile, *b"iTXt", b"a\0\x01\0\0\0");
    let folder = tempfile::tempdir().unwrap();
    for (name, bomb) in [("iCCP", profile), ("zTXt", text), ("iTXt", unicode)] {
        assert!(bomb.len() < 1 << 20);
        let file = folder.path().join(name);
        fs::write(&file, bomb).unwrap();
        let (died, line) = decode_in(&file, 100);
        assert!(!died, "{name}");
        assert!(line.starts_with("ok 10 10") || line.starts_with("error too-large"), "{name}: {line}");
    }
}

/// A progressive picture of this size with so many scans more, each without data.
fn many_scans(side: u16, scans: usize) -> Vec<u8> {
    let mut bytes = enlarged("jpeg-420-progressive.jpg", side);
    let header = jpeg_header::parse(&bytes).unwrap();
    let first = header.frame.unwrap().components[0].id;
    bytes.truncate(header.scans.last().unwrap().data.end);
    bytes.extend([0xFF, 0xDA, 0, 8, 1, first, 0, 1, 63, 0, 0].repeat(scans));
    bytes.extend([0xFF, 0xD9]);
    bytes
}

#[test]
fn the_work_for_scans_is_bounded() {
    for (side, scans) in [(13_000, 20), (8000, 2000), (1000, 40_000)] {
        let file = many_scans(side, scans);
        let e = ends(move || decode(&file, &DecodeOptions::default())).unwrap_err();
        assert_eq!(e.kind, ErrorKind::TooLarge, "{side} x {side}, {scans} scans: {e}");
        assert!(e.message.contains("scans") && e.message.contains("--max-pixels"), "{e}");
    }
    // Of a small picture many cost little.
    let picture = decode(&many_scans(64, 80), &DecodeOptions::default()).unwrap();
    assert_eq!((picture.width_px, picture.height_px), (64, 64));
}
