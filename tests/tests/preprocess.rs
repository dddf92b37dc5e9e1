//! Preprocessing against Pillow's golden results and against plain loops.

use std::path::PathBuf;

use half::f16;
use ocellus_kernels::cpu::Isa;
use ocellus_kernels::cpu::preprocess::{Preprocessor, resize_rgb};
use ocellus_kernels::preprocess::{ColourOrder, Filter, LetterboxPlace, Match, PreprocessDesc, ResizeRule};
use ocellus_kernels::tensor::Layout;
use proptest::prelude::*;
use tests::gold::resample::{crop, picture, resize};

const FILTERS: [Filter; 4] = [Filter::Nearest, Filter::Bilinear, Filter::Bicubic, Filter::Lanczos3];

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/resize").join(name)
}

fn filter(name: &str) -> Filter {
    match name {
        "nearest" => Filter::Nearest,
        "bilinear" => Filter::Bilinear,
        "bicubic" => Filter::Bicubic,
        "lanczos3" => Filter::Lanczos3,
        _ => panic!("filter {name}"),
    }
}

fn rows(name: &str) -> Vec<csv::StringRecord> {
    csv::Reader::from_path(golden(name)).unwrap().records().map(Result::unwrap).collect()
}

fn numbers<const N: usize>(row: &csv::StringRecord) -> [usize; N] {
    std::array::from_fn(|i| row[i].parse().unwrap())
}

/// Describes a pipeline whose values are the 8-bit ones.
fn plain(width_px: usize, height_px: usize, resize: ResizeRule, filter: Filter) -> PreprocessDesc {
    PreprocessDesc {
        width_px,
        height_px,
        resize,
        filter,
        antialias: true,
        matching: Match::Pillow,
        colour: ColourOrder::Rgb,
        mean: [0.0; 3],
        std: [1.0; 3],
        layout: Layout::Nhwc,
    }
}

/// The preprocessed picture; every value must have been written.
fn run(desc: &PreprocessDesc, rgb: &[u8], size: [usize; 2]) -> Vec<f32> {
    let mut out = vec![f32::NAN; desc.width_px * desc.height_px * 3];
    Preprocessor::new(desc.clone()).unwrap().run_f32(rgb, size[0], size[1], &mut out).unwrap();
    assert!(out.iter().all(|v| !v.is_nan()), "values left out of {desc:?}");
    out
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().map(|&v| v as u8).collect()
}

#[test]
fn equals_pillow() {
    let mut wrong = Vec::new();
    let rows = rows("resize.csv");
    for row in &rows {
        let [sw, sh, dw, dh] = numbers(row);
        let (seed, crc) = (row[5].parse().unwrap(), row[6].parse::<u32>().unwrap());
        let rgb = picture(sw, sh, seed);
        let got = resize_rgb(Isa::best(), &rgb, [sw, sh], [dw, dh], filter(&row[4]), true, Match::Pillow).unwrap();
        if crc32fast::hash(&got) != crc {
            wrong.push(row.iter().collect::<Vec<_>>().join(","));
        }
    }
    assert!(rows.len() >= 400);
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

#[test]
fn equals_pillow_in_every_sample() {
    let mut files = 0;
    for entry in golden("").read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "bin") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let [source, target, kind, seed] = name.split('_').collect::<Vec<_>>().try_into().unwrap();
        let [source, target] =
            [source, target].map(|s| s.split_once('x').map(|(w, h)| [w.parse().unwrap(), h.parse().unwrap()]).unwrap());
        let rgb = picture(source[0], source[1], seed.parse().unwrap());
        let got = resize_rgb(Isa::best(), &rgb, source, target, filter(kind), true, Match::Pillow).unwrap();
        assert!(got == std::fs::read(&path).unwrap(), "{name}");
        files += 1;
    }
    assert_eq!(files, 12);
}

#[test]
fn shortest_equals_torchvision() {
    let rows = rows("shortest.csv");
    for row in &rows {
        let [sw, sh, short_px, width, height, rw, rh, seed] = numbers(row);
        let rgb = picture(sw, sh, seed as u64);
        let desc = plain(width, height, ResizeRule::Shortest { short_px }, Filter::Bilinear);
        let mut out = vec![f32::NAN; width * height * 3];
        let transform = Preprocessor::new(desc).unwrap().run_f32(&rgb, sw, sh, &mut out).unwrap();
        assert_eq!(transform.scale, [rw as f64 / sw as f64, rh as f64 / sh as f64], "{row:?}");
        assert_eq!(crc32fast::hash(&bytes(&out)), row[8].parse::<u32>().unwrap(), "{row:?}");
    }
    assert!(rows.len() >= 100);
}

fn side(largest: usize) -> impl Strategy<Value = usize> {
    prop_oneof![1..=largest, 1..=5usize, Just(1)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn equals_plain_loops(
        source in [side(150), side(150)],
        target in [side(150), side(150)],
        filter in prop::sample::select(&FILTERS[..]),
        antialias: bool,
        old: bool,
        seed in 0..1000u64,
    ) {
        let matching = if old { Match::Pillow12 } else { Match::Pillow };
        let rgb = picture(source[0], source[1], seed);
        let want = resize(&rgb, source, target, filter, antialias, matching);
        for isa in Isa::available() {
            let got = resize_rgb(isa, &rgb, source, target, filter, antialias, matching).unwrap();
            prop_assert!(got == want, "{isa:?}");
        }
    }

    /// Whatever the crop leaves out is not computed, and what it keeps does not change.
    #[test]
    fn crop_keeps_the_bits(
        source in [side(120), side(120)],
        input in [side(90), side(90)],
        short_px in side(90),
        filter in prop::sample::select(&FILTERS[..]),
        seed in 0..1000u64,
    ) {
        let rgb = picture(source[0], source[1], seed);
        let short = source[0].min(source[1]);
        let resized = source.map(|side| short_px * side / short);
        prop_assume!(resized[0] * resized[1] < 100_000);
        let whole = resize(&rgb, source, resized, filter, true, Match::Pillow);
        // Half the surplus, halves to even; half the lack, rounded down.
        let first = |have: usize, want: usize| if have >= want {
            let (half, odd) = ((have - want) / 2, (have - want) % 2);
            (half + usize::from(odd == 1 && half % 2 == 1)) as isize
        } else {
            -(((want - have) / 2) as isize)
        };
        let [left, top] = [0, 1].map(|axis| first(resized[axis], input[axis]));
        let want = crop(&whole, resized, left, top, input[0], input[1]);
        let desc = plain(input[0], input[1], ResizeRule::Shortest { short_px }, filter);
        prop_assert!(bytes(&run(&desc, &rgb, source)) == want);
    }

    #[test]
    fn letterbox(
        source in [side(120), side(120)],
        input in [side(90), side(90)],
        centre: bool,
        seed in 0..1000u64,
    ) {
        let rgb = picture(source[0], source[1], seed);
        let scale = (input[0] as f64 / source[0] as f64).min(input[1] as f64 / source[1] as f64);
        let resized = source.map(|side| (side as f64 * scale).round_ties_even().max(1.0) as usize);
        let picture = resize(&rgb, source, resized, Filter::Bilinear, true, Match::Pillow);
        let place = if centre { LetterboxPlace::Centre } else { LetterboxPlace::TopLeft };
        let [left, top] = [0, 1].map(|axis| if centre { (input[axis] - resized[axis]) / 2 } else { 0 });
        let fill = [114, 7, 255];
        let desc = plain(input[0], input[1], ResizeRule::Letterbox { fill, place }, Filter::Bilinear);
        let got = bytes(&run(&desc, &rgb, source));
        for y in 0..input[1] {
            for x in 0..input[0] {
                let inside = (left..left + resized[0]).contains(&x) && (top..top + resized[1]).contains(&y);
                let want = if inside { &picture[((y - top) * resized[0] + x - left) * 3..][..3] } else { &fill[..] };
                prop_assert_eq!(&got[(y * input[0] + x) * 3..][..3], want, "at {}, {}", x, y);
            }
        }
    }
}

/// Layouts, colour orders, mean and std, both precisions: from the 8-bit values, element by element.
#[test]
fn normalises_into_every_layout() {
    let (mean, std) = ([123.675, 116.28, 0.0], [58.395, -57.12, 1e-3]);
    let rgb = picture(23, 31, 5);
    for rule in [
        ResizeRule::Stretch,
        ResizeRule::Shortest { short_px: 14 },
        ResizeRule::Letterbox { fill: [9, 99, 199], place: LetterboxPlace::Centre },
    ] {
        let base = plain(17, 13, rule, Filter::Bicubic);
        let fill = if let ResizeRule::Letterbox { fill, .. } = rule { fill } else { [0; 3] };
        let values = bytes(&run(&base, &rgb, [23, 31]));
        // 23 x 31 becomes 10 x 13, in the middle of 17 columns.
        let border = |i: usize| matches!(rule, ResizeRule::Letterbox { .. }) && !(3..13).contains(&(i % 17));
        for layout in [Layout::Nchw, Layout::Nhwc] {
            for colour in [ColourOrder::Rgb, ColourOrder::Bgr] {
                let desc = PreprocessDesc { layout, colour, mean, std, ..base.clone() };
                let got = run(&desc, &rgb, [23, 31]);
                let mut half = vec![f16::NAN; got.len()];
                Preprocessor::new(desc).unwrap().run_f16(&rgb, 23, 31, &mut half).unwrap();
                for i in 0..17 * 13 {
                    for c in 0..3 {
                        let from = if colour == ColourOrder::Bgr { 2 - c } else { c };
                        let v = if border(i) { fill[c] } else { values[i * 3 + from] };
                        let at = if layout == Layout::Nchw { c * 17 * 13 + i } else { i * 3 + c };
                        let want = (f64::from(v) - f64::from(mean[c])) / f64::from(std[c]);
                        let error = (f64::from(got[at]) - want).abs();
                        // Both constants are rounded: the error grows with what cancels.
                        let limit = 2e-7 * (f64::from(v) + f64::from(mean[c]).abs()) / f64::from(std[c]).abs();
                        assert!(
                            error <= limit,
                            "{layout:?} {colour:?} pixel {i} channel {c}: {} is not {want}",
                            got[at]
                        );
                        assert_eq!(half[at], f16::from_f32(got[at]));
                    }
                }
            }
        }
    }
}

/// No panic, no overflow, bounded memory: pictures of one pixel or one line, scales of 1000 up and down.
#[test]
fn extreme_sizes() {
    let sizes = [[1, 1], [1, 7], [7, 1], [1, 30_000], [30_000, 1], [30_000, 3], [2, 2], [2000, 2000]];
    for source in sizes {
        let rgb = picture(source[0], source[1], 1);
        for [width, height] in [[1, 1], [224, 224], [2, 1000], [1000, 2]] {
            for rule in [
                ResizeRule::Stretch,
                ResizeRule::Shortest { short_px: 256 },
                ResizeRule::Shortest { short_px: 1 },
                ResizeRule::Letterbox { fill: [1, 2, 3], place: LetterboxPlace::Centre },
            ] {
                for filter in [Filter::Nearest, Filter::Lanczos3] {
                    for matching in [Match::Pillow, Match::Pillow12] {
                        run(&PreprocessDesc { matching, ..plain(width, height, rule, filter) }, &rgb, source);
                    }
                }
            }
        }
    }
}

#[test]
fn refuses_what_does_not_fit() {
    let good = plain(8, 8, ResizeRule::Stretch, Filter::Bilinear);
    for (why, desc) in [
        ("no width", PreprocessDesc { width_px: 0, ..good.clone() }),
        ("no height", PreprocessDesc { height_px: 0, ..good.clone() }),
        ("too wide", PreprocessDesc { width_px: usize::MAX, ..good.clone() }),
        ("too large", PreprocessDesc { width_px: 1 << 16, height_px: 1 << 16, ..good.clone() }),
        ("no shorter side", PreprocessDesc { resize: ResizeRule::Shortest { short_px: 0 }, ..good.clone() }),
        ("std 0", PreprocessDesc { std: [1.0, 0.0, 1.0], ..good.clone() }),
        ("std NaN", PreprocessDesc { std: [1.0, 1.0, f32::NAN], ..good.clone() }),
        ("std infinite", PreprocessDesc { std: [f32::INFINITY, 1.0, 1.0], ..good.clone() }),
        ("mean infinite", PreprocessDesc { mean: [f32::NEG_INFINITY, 0.0, 0.0], ..good.clone() }),
    ] {
        assert!(Preprocessor::new(desc).is_err(), "{why}");
    }
    let mut preprocessor = Preprocessor::new(good).unwrap();
    let mut out = vec![0.0; 192];
    for (why, len, size, room) in [
        ("too few bytes", 47, [4, 4], 192),
        ("too many bytes", 49, [4, 4], 192),
        ("no picture", 0, [0, 4], 192),
        ("endless picture", 48, [usize::MAX, usize::MAX], 192),
        ("little room", 48, [4, 4], 191),
    ] {
        assert!(preprocessor.run_f32(&vec![0; len], size[0], size[1], &mut out[..room]).is_err(), "{why}");
    }
    assert!(preprocessor.run_f32(&[0; 48], 4, 4, &mut out).is_ok());
    assert!(resize_rgb(Isa::best(), &[0; 3], [1, 1], [0, 1], Filter::Bilinear, true, Match::Pillow).is_err());
    assert!(
        resize_rgb(Isa::best(), &[0; 3], [1, 1], [1 << 20, 1 << 20], Filter::Bilinear, true, Match::Pillow).is_err()
    );
}

/// One preprocessor, many sizes: tables that come back from the cache are those of the size at hand.
#[test]
fn keeps_sizes_apart() {
    let desc = plain(20, 16, ResizeRule::Shortest { short_px: 18 }, Filter::Lanczos3);
    let mut worker = Preprocessor::new(desc.clone()).unwrap();
    for round in 0..3 {
        for i in 0..12usize {
            let size = [20 + i * 7 % 30, 18 + i * 11 % 40];
            let rgb = picture(size[0], size[1], i as u64 + round);
            let mut out = vec![f32::NAN; 20 * 16 * 3];
            worker.run_f32(&rgb, size[0], size[1], &mut out).unwrap();
            assert!(out == run(&desc, &rgb, size), "{size:?}");
        }
    }
}
