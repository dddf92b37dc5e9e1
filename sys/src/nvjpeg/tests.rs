//! Decoding needs planes, and only the tests' emulator takes memory of the host for them: with a real library these tests
//! only load it.

use std::path::PathBuf;

use super::*;
use crate::testing;

/// Pitch beyond the width and rows beyond the height, where nothing may be written.
const MARGIN: u32 = 3;

fn emulated() -> Option<&'static Nvjpeg> {
    let nvjpeg = testing::available(Nvjpeg::load())?;
    assert!(nvjpeg.version().unwrap() >= (12, 0, 0));
    if nvjpeg.library().symbol_address("emulated_nvjpeg").is_none() {
        println!("skipped: {} is not the emulator's", nvjpeg.library().path().display());
        return None;
    }
    Some(nvjpeg)
}

/// What is committed against what the header gives; `UPDATE_BINDINGS=1` commits the latter.
#[cfg(feature = "bindgen")]
#[test]
fn the_declarations_are_those_of_the_header() {
    let made = include_str!(concat!(env!("OUT_DIR"), "/nvjpeg.rs"));
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/src/nvjpeg/bindings.rs");
    if std::env::var_os("UPDATE_BINDINGS").is_some_and(|value| value == "1") {
        std::fs::write(committed, made).unwrap();
    }
    assert!(std::fs::read_to_string(committed).unwrap() == made, "{committed} is not what the header gives");
}

fn handle(nvjpeg: &'static Nvjpeg, backend: Backend) -> Handle {
    nvjpeg.handle(&HandleOptions::new(backend)).unwrap()
}

fn golden(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/decode"));
    std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Planes with a margin, filled with one value.
struct Memory {
    planes: Vec<Vec<u8>>,
    sizes: Vec<PlaneSize>,
    poison: u8,
}

impl Memory {
    fn new(sizes: &[PlaneSize], poison: u8) -> Self {
        let bytes = |size: &PlaneSize| ((size.width_px + MARGIN) * (size.height_px + MARGIN)) as usize;
        let planes = sizes.iter().map(|size| vec![poison; bytes(size)]).collect();
        Self { planes, sizes: sizes.to_vec(), poison }
    }

    fn planes(&mut self) -> Planes {
        let mut planes = Planes::default();
        for (n, (plane, size)) in self.planes.iter_mut().zip(&self.sizes).enumerate() {
            planes.pointers[n] = plane.as_mut_ptr() as u64;
            planes.pitches_bytes[n] = size.width_px + MARGIN;
            planes.rows[n] = size.height_px + MARGIN;
        }
        planes
    }

    /// The samples without the margins, which must be untouched.
    fn samples(&self) -> Vec<Vec<u8>> {
        let unpad = |(plane, size): (&Vec<u8>, &PlaneSize)| {
            let (width, height) = (size.width_px as usize, size.height_px as usize);
            let mut samples = Vec::new();
            for (y, row) in plane.chunks(width + MARGIN as usize).enumerate() {
                let inside = if y < height { width } else { 0 };
                samples.extend(&row[..inside]);
                assert!(row[inside..].iter().all(|&byte| byte == self.poison), "row {y}: written beside the plane");
            }
            samples
        };
        self.planes.iter().zip(&self.sizes).map(unpad).collect()
    }
}

fn decode_batch(decoder: &mut BatchDecoder, pictures: &[Inspected<'_>]) -> Result<Vec<Vec<Vec<u8>>>, NvjpegError> {
    decode_planes(decoder, pictures, 3)
}

/// A batch into the first planes, decoded twice over different poison: what was not written would differ.
fn decode_planes(
    decoder: &mut BatchDecoder,
    pictures: &[Inspected<'_>],
    count: usize,
) -> Result<Vec<Vec<Vec<u8>>>, NvjpegError> {
    let sizes = |picture: &Inspected<'_>| picture.planes()[..count.min(picture.planes().len())].to_vec();
    let mut results = Vec::new();
    for poison in [0x5A, 0xC3] {
        let mut memory: Vec<_> = pictures.iter().map(|picture| Memory::new(&sizes(picture), poison)).collect();
        let planes: Vec<_> = memory.iter_mut().map(Memory::planes).collect();
        // SAFETY: the default stream; the emulator takes memory of the host, which is as large as it says; without the
        // emulator's driver its work is finished on return.
        unsafe { decoder.decode(pictures, &planes, ptr::null_mut()) }?;
        results.push(memory.iter().map(Memory::samples).collect::<Vec<_>>());
    }
    assert!(results[0] == results[1], "not every sample was written");
    Ok(results.swap_remove(0))
}

fn decode_hybrid(decoder: &mut HybridDecoder, bytes: &[u8]) -> Result<Vec<Vec<u8>>, NvjpegError> {
    let mut results = Vec::new();
    for poison in [0x5A, 0xC3] {
        let picture = decoder.host(bytes)?;
        let mut memory = Memory::new(picture.planes(), poison);
        let planes = memory.planes();
        // SAFETY: as in `decode_batch`.
        unsafe { picture.enqueue(&planes, ptr::null_mut()) }?;
        results.push(memory.samples());
    }
    assert!(results[0] == results[1], "not every sample was written");
    Ok(results.swap_remove(0))
}

/// R, G, B by libjpeg's integers (jdcolor.c).
fn rgb(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    let fix = |x: f64| (x * 65536.0 + 0.5) as i32;
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let r = y + ((fix(1.402) * cr + 32768) >> 16);
    let g = y + ((-fix(0.344_14) * cb - fix(0.714_14) * cr + 32768) >> 16);
    let b = y + ((fix(1.772) * cb + 32768) >> 16);
    [r, g, b].map(|value| u8::try_from(value.clamp(0, 255)).unwrap())
}

fn status(error: NvjpegError) -> Status {
    error.status().unwrap_or_else(|| panic!("{error}"))
}

#[test]
fn engines_are_counted() {
    let Some(nvjpeg) = emulated() else { return };
    let info = handle(nvjpeg, Backend::Hardware).hardware_info();
    assert_eq!(info, Some(HardwareInfo { engines: 7, cores_per_engine: 1 }));
}

#[test]
fn even_batches_are_multiples_of_the_decoders() {
    for (engines, cores_per_engine) in [(1, 1), (7, 1), (1, 5), (4, 2)] {
        let info = HardwareInfo { engines, cores_per_engine };
        let decoders = (engines * cores_per_engine) as usize;
        for most in 1..200 {
            let batch = info.even_batch(most);
            assert!(batch <= most && most - batch < decoders, "{batch} of {most}");
            assert!(batch.is_multiple_of(decoders) || batch == most && most < decoders, "{batch} of {most}");
        }
    }
}

#[test]
fn planes_are_those_of_the_picture() {
    let Some(nvjpeg) = emulated() else { return };
    let handle = handle(nvjpeg, Backend::Hardware);
    let (mut inspector, mut decoder) =
        (Inspector::new(&handle).unwrap(), BatchDecoder::new(&handle, Output::Yuv).unwrap());
    for name in ["jpeg-grey", "jpeg-444-baseline", "jpeg-444-1x40"] {
        let bytes = golden(&format!("{name}.jpg"));
        let picture = inspector.inspect(&bytes).unwrap();
        let planes = decode_batch(&mut decoder, &[picture]).unwrap().remove(0);
        let ours: Vec<u8> = match &planes[..] {
            [y] => y.iter().flat_map(|&y| [y; 3]).collect(),
            [y, cb, cr] => y.iter().zip(cb).zip(cr).flat_map(|((&y, &cb), &cr)| rgb(y, cb, cr)).collect(),
            planes => panic!("{} planes", planes.len()),
        };
        let theirs = golden(&format!("{name}.ppm"));
        assert_eq!(ours, theirs[theirs.len() - ours.len()..], "{name}");
    }
}

#[test]
fn all_backends_give_the_same_planes_in_one_batch_of_all_sizes() {
    let Some(nvjpeg) = emulated() else { return };
    let sizes = ["420-15x1", "420-1x1", "420-33x31", "420-17x16", "444-1x40", "grey-sampling-2x2", "narrow-1-2x2"];
    let kinds = ["444-baseline", "422-baseline", "420-baseline", "440-baseline", "grey", "restart-1-baseline"];
    let files: Vec<_> = sizes.iter().chain(&kinds).map(|name| golden(&format!("jpeg-{name}.jpg"))).collect();
    let mut hybrid = HybridDecoder::new(&handle(nvjpeg, Backend::Hybrid), Backend::Hybrid).unwrap();
    let alone: Vec<_> = files.iter().map(|file| decode_hybrid(&mut hybrid, file).unwrap()).collect();
    for backend in [Backend::Hardware, Backend::GpuHybrid] {
        let handle = handle(nvjpeg, backend);
        let mut inspector = Inspector::new(&handle).unwrap();
        let pictures: Vec<_> = files.iter().map(|file| inspector.inspect(file).unwrap()).collect();
        let mut decoder = BatchDecoder::new(&handle, Output::Yuv).unwrap();
        decoder.pre_allocate(pictures.len(), 64, 64).unwrap();
        assert_eq!(decode_batch(&mut decoder, &pictures).unwrap(), alone, "{backend:?}");
        // Another batch size sets the state up again.
        assert_eq!(decode_batch(&mut decoder, &pictures[1..4]).unwrap(), alone[1..4], "{backend:?}");
        let mut luma = BatchDecoder::new(&handle, Output::Luma).unwrap();
        for (n, picture) in pictures.iter().enumerate() {
            assert_eq!(decode_planes(&mut luma, &[*picture], 1).unwrap()[0], alone[n][..1], "{backend:?}");
        }
    }
}

#[test]
fn what_engines_refuse_the_hybrid_decoder_takes() {
    let Some(nvjpeg) = emulated() else { return };
    let hardware = handle(nvjpeg, Backend::Hardware);
    let mut inspector = Inspector::new(&hardware).unwrap();
    // Of a handle of another backend.
    let mut hybrid = HybridDecoder::new(&hardware, Backend::Hybrid).unwrap();
    for (progressive, baseline) in [
        ("420-progressive", Some("420-baseline")),
        ("grey-progressive", Some("grey")),
        ("411-baseline", None),
        ("410-baseline", None),
        ("444-separate-scans", Some("444-baseline")),
    ] {
        let bytes = golden(&format!("jpeg-{progressive}.jpg"));
        let error = inspector.inspect(&bytes).unwrap_err();
        assert_eq!(status(error), Status::JpegNotSupported, "{progressive}");
        let planes = decode_hybrid(&mut hybrid, &bytes).unwrap();
        if let Some(baseline) = baseline {
            let same = decode_hybrid(&mut hybrid, &golden(&format!("jpeg-{baseline}.jpg"))).unwrap();
            assert_eq!(planes, same, "{progressive}");
        }
    }
    for name in ["cmyk-plain", "arithmetic", "12-bit", "lossless-c3", "hierarchical-c5"] {
        let bytes = golden(&format!("jpeg-{name}.jpg"));
        assert_eq!(status(inspector.inspect(&bytes).unwrap_err()), Status::JpegNotSupported, "{name}");
        let Err(error) = hybrid.host(&bytes) else { panic!("{name}: taken") };
        assert_eq!(status(error), Status::JpegNotSupported, "{name}");
    }
}

#[test]
fn a_damaged_file_fails_its_batch_and_nothing_after_it() {
    let Some(nvjpeg) = emulated() else { return };
    let handle = handle(nvjpeg, Backend::Hardware);
    let mut inspector = Inspector::new(&handle).unwrap();
    let mut decoder = BatchDecoder::new(&handle, Output::Yuv).unwrap();
    let mut hybrid = HybridDecoder::new(&handle, Backend::Hybrid).unwrap();
    let good = golden("jpeg-420-baseline.jpg");
    let expected = decode_hybrid(&mut hybrid, &good).unwrap();
    let cut = &good[..good.len() - 40];
    let pictures = [inspector.inspect(&good).unwrap(), inspector.inspect(cut).unwrap()];
    assert_eq!(status(decode_batch(&mut decoder, &pictures).unwrap_err()), Status::IncompleteBitstream);
    assert_eq!(decode_batch(&mut decoder, &[pictures[0], pictures[0]]).unwrap(), [expected.clone(), expected.clone()]);
    for bytes in [cut, b"", b"\xFF\xD8", b"not a picture", &golden("jpeg-no-frame.jpg")] {
        let Err(error) = hybrid.host(bytes) else { panic!("{} bytes were taken", bytes.len()) };
        assert!(matches!(status(error), Status::IncompleteBitstream | Status::BadJpeg), "{error}");
        assert_eq!(decode_hybrid(&mut hybrid, &good).unwrap(), expected);
    }
}

/// Which of two sizes the engines would write is not known, so none is.
#[test]
fn a_second_frame_header_is_refused_wherever_it_is() {
    let Some(nvjpeg) = emulated() else { return };
    let mut inspector = Inspector::new(&handle(nvjpeg, Backend::Hardware)).unwrap();
    let bytes = golden("jpeg-420-baseline.jpg");
    let scan = (0..bytes.len()).find(|&at| bytes[at..].starts_with(&[0xFF, 0xDA])).unwrap();
    for at in scan + 14..=bytes.len() {
        for marker in 0xC0..=0xCF {
            let changed = [&bytes[..at], &[0xFF, marker], &bytes[at..]].concat();
            let taken = inspector.inspect(&changed).is_ok();
            assert_eq!(taken, [0xC4, 0xC8, 0xCC].contains(&marker), "{marker:02X} at {at}");
        }
    }
    // One in a thumbnail is not the picture's.
    let thumbnail = [&bytes[..2], &[0xFF, 0xE1, 0, 6, 0xFF, 0xC0, 0xFF, 0xC2], &bytes[2..]].concat();
    assert!(inspector.inspect(&thumbnail).is_ok());
    let filled = [&bytes[..2], &[0xFF; 3], &bytes[2..]].concat();
    assert!(inspector.inspect(&filled).is_ok());
    // Where segments do not follow one another nobody knows what else there is.
    let junk = [&bytes[..2], &[0xFF, 0xFE, 0, 2, 7], &bytes[2..]].concat();
    assert!(inspector.inspect(&junk).is_err());
}

#[test]
fn wrong_calls_are_refused_before_anything_is_written() {
    let Some(nvjpeg) = emulated() else { return };
    let handle = handle(nvjpeg, Backend::Hardware);
    let mut decoder = BatchDecoder::new(&handle, Output::Yuv).unwrap();
    let mut hybrid = HybridDecoder::new(&handle, Backend::Hybrid).unwrap();
    let bytes = golden("jpeg-420-33x31.jpg");
    let picture = Inspector::new(&handle).unwrap().inspect(&bytes).unwrap();
    let mut memory = [Memory::new(picture.planes(), 0), Memory::new(picture.planes(), 0)];
    let [first, second] = &mut memory;
    let [good, other] = [first.planes(), second.planes()];
    let mut bad = Vec::new();
    for plane in 0..3 {
        for wrong in 0..3 {
            let mut planes = other;
            match wrong {
                0 => planes.pointers[plane] = 0,
                1 => planes.pitches_bytes[plane] -= MARGIN + 1,
                _ => planes.rows[plane] -= MARGIN + 1,
            }
            bad.push(planes);
        }
    }
    for planes in bad {
        // SAFETY: as in `decode_batch`; nothing is to be decoded at all.
        let error = unsafe { decoder.decode(&[picture, picture], &[good, planes], ptr::null_mut()) }.unwrap_err();
        assert_eq!(error, NvjpegError::PlanesTooSmall { index: 1 });
        // SAFETY: as above.
        let error = unsafe { hybrid.host(&bytes).unwrap().enqueue(&planes, ptr::null_mut()) }.unwrap_err();
        assert_eq!(error, NvjpegError::PlanesTooSmall { index: 0 });
    }
    for (pictures, outputs) in [(0, 0), (1, 0), (0, 1), (1, 2), (2, 1)] {
        // SAFETY: as above.
        let result = unsafe { decoder.decode(&vec![picture; pictures], &vec![good; outputs], ptr::null_mut()) };
        assert_eq!(result.unwrap_err(), NvjpegError::WrongBatch { pictures, outputs });
    }
    assert!(memory.iter().flat_map(|memory| &memory.planes).flatten().all(|&byte| byte == 0));
}

#[test]
fn a_handle_outlives_what_was_made_of_it() {
    let Some(nvjpeg) = emulated() else { return };
    let handle = handle(nvjpeg, Backend::Hardware);
    let mut hybrid = HybridDecoder::new(&handle, Backend::Hybrid).unwrap();
    drop(handle);
    let bytes = golden("jpeg-grey.jpg");
    let thread = std::thread::spawn(move || decode_hybrid(&mut hybrid, &bytes).unwrap().len());
    assert_eq!(thread.join().unwrap(), 1);
}

#[test]
fn every_status_has_its_name() {
    for code in 1..12 {
        let status = Status::from(nvjpegStatus_t(code));
        assert_eq!(matches!(status, Status::Other(_)), code == 11);
        assert!(status.to_string().contains(&code.to_string()), "{status}");
    }
}
