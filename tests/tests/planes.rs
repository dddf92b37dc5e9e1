//! Planes to RGB against libjpeg-turbo, and what it does not know: NV12, grey, orientations, bad planes.

use std::path::PathBuf;

use ocellus_kernels::cpu::planes::{Plane, to_rgb};
use ocellus_kernels::picture::{ChromaSampling, Orientation, PictureDesc, PixelFormat};
use tests::Random;

fn desc(width_px: usize, height_px: usize, format: PixelFormat) -> PictureDesc {
    PictureDesc { width_px, height_px, format, orientation: Orientation::Upright }
}

/// Cuts `data` into the planes of `desc`, rows without padding; gives what follows as well.
fn cut<'a>(desc: &PictureDesc, mut data: &'a [u8]) -> (Vec<Plane<'a>>, &'a [u8]) {
    let planes = (0..desc.planes()).map(|i| {
        let [row_bytes, rows] = desc.plane_size(i);
        let (plane, rest) = data.split_at(row_bytes * rows);
        data = rest;
        Plane { data: plane, pitch_bytes: row_bytes }
    });
    let planes = planes.collect();
    (planes, data)
}

/// Samples for every plane of `desc`.
fn noise(desc: &PictureDesc, seed: u64) -> Vec<u8> {
    let size = (0..desc.planes()).map(|i| desc.plane_size(i)).map(|[row_bytes, rows]| row_bytes * rows).sum();
    Random::new(seed).bytes(size)
}

#[test]
fn equals_libjpeg_turbo() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/planes");
    let mut files = [0; ChromaSampling::ALL.len()];
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "bin") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let (sampling, size) = name.split_once('_').unwrap();
        let (width, height) = size.split_once('x').unwrap();
        let at = ["444", "422", "420", "440", "411", "410"].iter().position(|n| *n == sampling).unwrap();
        let format = PixelFormat::Ycc(ChromaSampling::ALL[at]);
        let desc = desc(width.parse().unwrap(), height.parse().unwrap(), format);
        let data = std::fs::read(&path).unwrap();
        let (planes, rgb) = cut(&desc, &data);
        assert!(to_rgb(&desc, &planes).unwrap() == rgb, "{name}");
        files[at] += 1;
    }
    assert_eq!(files, [12; ChromaSampling::ALL.len()]);
}

#[test]
fn nv12_is_interleaved_420() {
    for (width, height) in [(1, 1), (2, 5), (7, 4), (16, 16), (33, 21)] {
        let three = desc(width, height, PixelFormat::Ycc(ChromaSampling::Y420));
        let data = noise(&three, 3);
        let (planes, _) = cut(&three, &data);
        let mixed: Vec<u8> = planes[1].data.iter().zip(planes[2].data).flat_map(|(&b, &r)| [b, r]).collect();
        let two = desc(width, height, PixelFormat::Nv12);
        let mixed = Plane { data: &mixed, pitch_bytes: two.plane_size(1)[0] };
        assert_eq!(to_rgb(&two, &[planes[0], mixed]).unwrap(), to_rgb(&three, &planes).unwrap());
    }
}

#[test]
fn grey_and_rgb_are_copied() {
    let grey = [0, 7, 255, 128, 9, 1];
    let got = to_rgb(&desc(3, 2, PixelFormat::Gray), &[Plane { data: &grey, pitch_bytes: 3 }]).unwrap();
    assert_eq!(got, grey.map(|v| [v; 3]).concat());
    // Rows with padding.
    let padded = Random::new(1).bytes(3 * 9 + 6);
    let got = to_rgb(&desc(2, 4, PixelFormat::Rgb), &[Plane { data: &padded, pitch_bytes: 9 }]).unwrap();
    assert_eq!(got, padded.chunks(9).flat_map(|row| &row[..6]).copied().collect::<Vec<_>>());
}

#[test]
fn stands_upright() {
    for (w, h) in [(1, 1), (1, 5), (5, 1), (2, 3), (4, 4), (17, 10)] {
        let mut desc = desc(w, h, PixelFormat::Rgb);
        let data = noise(&desc, 8);
        for value in 1..=8 {
            desc.orientation = Orientation::from_exif(value).unwrap();
            let [width, height] = desc.upright_size();
            let got = to_rgb(&desc, &cut(&desc, &data).0).unwrap();
            assert_eq!(got.len(), width * height * 3);
            for y in 0..height {
                for x in 0..width {
                    // EXIF 2.32, 4.6.4: where row 0 and column 0 of the stored picture are seen.
                    let (sx, sy) = match value {
                        1 => (x, y),
                        2 => (w - 1 - x, y),
                        3 => (w - 1 - x, h - 1 - y),
                        4 => (x, h - 1 - y),
                        5 => (y, x),
                        6 => (y, h - 1 - x),
                        7 => (w - 1 - y, h - 1 - x),
                        _ => (w - 1 - y, x),
                    };
                    let [got, want] = [&got[(y * width + x) * 3..][..3], &data[(sy * w + sx) * 3..][..3]];
                    assert_eq!(got, want, "orientation {value}, {w}x{h} at {x},{y}");
                }
            }
        }
        assert!(Orientation::from_exif(0).is_none() && Orientation::from_exif(9).is_none());
    }
}

#[test]
fn planes_that_do_not_fit_are_refused() {
    let desc = desc(5, 4, PixelFormat::Ycc(ChromaSampling::Y420));
    let data = noise(&desc, 2);
    let (planes, _) = cut(&desc, &data);
    assert!(to_rgb(&desc, &planes).is_ok());
    assert!(to_rgb(&desc, &planes[..2]).is_err());
    for i in 0..3 {
        let mut short = planes.clone();
        short[i].data = &short[i].data[1..];
        assert!(to_rgb(&desc, &short).is_err());
        let mut narrow = planes.clone();
        narrow[i].pitch_bytes -= 1;
        assert!(to_rgb(&desc, &narrow).is_err());
    }
    assert!(to_rgb(&PictureDesc { width_px: 0, ..desc }, &planes).is_err());
}
