//! Which decoder real files go to: the golden ones, and the collection of odd and broken ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ocellus::decode::orient::Orientation;
use ocellus::decode::route::{CpuReason, Planar, Route, Sampling, route};
use ocellus::decode::{DecodeOptions, decode};
use tests::{Random, test_data, workspace_root};

fn route_of(path: &Path) -> Route {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    route(&bytes, &DecodeOptions::default())
}

fn golden(name: &str) -> Route {
    route_of(&workspace_root().join("tests/golden/decode").join(name))
}

#[test]
fn golden_files_go_where_they_belong() {
    let samplings = [
        ("444", Sampling::Y444),
        ("422", Sampling::Y422),
        ("420", Sampling::Y420),
        ("440", Sampling::Y440),
        ("411", Sampling::Y411),
        ("410", Sampling::Y410),
    ];
    for (name, sampling) in samplings {
        let planar = |route| match route {
            Route::Hardware(planar) | Route::Hybrid(planar) => planar,
            Route::Cpu(reason) => panic!("{name}: {reason:?}"),
        };
        let baseline = golden(&format!("jpeg-{name}-baseline.jpg"));
        assert_eq!(planar(baseline).sampling, sampling);
        let refused = matches!(sampling, Sampling::Y411 | Sampling::Y410);
        assert_eq!(matches!(baseline, Route::Hybrid(_)), refused, "{name}");
        let progressive = golden(&format!("jpeg-{name}-progressive.jpg"));
        assert_eq!(planar(progressive).sampling, sampling);
        assert!(matches!(progressive, Route::Hybrid(_)));
    }
    let orientations = [
        Orientation::Upright,
        Orientation::FlipHorizontal,
        Orientation::Rotate180,
        Orientation::FlipVertical,
        Orientation::Transpose,
        Orientation::Rotate90,
        Orientation::Transverse,
        Orientation::Rotate270,
    ];
    for (n, orientation) in orientations.into_iter().enumerate() {
        let route = golden(&format!("jpeg-orientation-{}.jpg", n + 1));
        assert!(matches!(route, Route::Hardware(Planar { orientation: o, .. }) if o == orientation), "{route:?}");
    }
    for name in
        ["grey", "optimised", "quality-5", "trailing-garbage", "two-pictures", "fill-bytes", "restart-1-baseline"]
    {
        let route = golden(&format!("jpeg-{name}.jpg"));
        assert!(matches!(route, Route::Hardware(_)), "{name}: {route:?}");
    }
    for name in ["420-separate-scans", "420-progressive-separate", "grey-progressive", "restart-1-progressive"] {
        let route = golden(&format!("jpeg-{name}.jpg"));
        assert!(matches!(route, Route::Hybrid(_)), "{name}: {route:?}");
    }
    for (name, reason) in [
        ("jpeg-cmyk-adobe.jpg", CpuReason::Colour),
        ("jpeg-ycck-adobe-420.jpg", CpuReason::Colour),
        ("jpeg-colour-adobe-0.jpg", CpuReason::Colour),
        ("jpeg-colour-ids-rgb.jpg", CpuReason::Colour),
        ("jpeg-24-baseline.jpg", CpuReason::Sampling),
        ("jpeg-sampling-crossed.jpg", CpuReason::Sampling),
        ("jpeg-grey-sampling-2x2.jpg", CpuReason::Sampling),
        ("jpeg-420-1x1.jpg", CpuReason::Size),
        ("jpeg-420-40x5.jpg", CpuReason::Size),
        ("jpeg-no-eoi.jpg", CpuReason::Damaged),
        ("jpeg-junk-between-segments.jpg", CpuReason::Damaged),
        ("jpeg-no-huffman-tables.jpg", CpuReason::NoTables),
        ("jpeg-12-bit.jpg", CpuReason::Refused),
        ("jpeg-arithmetic.jpg", CpuReason::Refused),
        ("jpeg-lossless-c3.jpg", CpuReason::Refused),
        ("jpeg-hierarchical-c5.jpg", CpuReason::Refused),
        ("jpeg-hierarchical-dhp.jpg", CpuReason::Refused),
        ("jpeg-65500x65500.jpg", CpuReason::Refused),
        ("jpeg-height-0.jpg", CpuReason::Refused),
        ("jpeg-no-scan.jpg", CpuReason::Refused),
        ("jpeg-soi.jpg", CpuReason::Refused),
        ("gif.gif", CpuReason::NotJpeg),
        ("bmp-rgb.bmp", CpuReason::NotJpeg),
    ] {
        assert_eq!(golden(name), Route::Cpu(reason), "{name}");
    }
}

#[test]
fn altered_files_are_routed_as_well() {
    let mut random = Random::new(7);
    for name in ["jpeg-420-baseline", "jpeg-420-progressive", "jpeg-orientation-6", "jpeg-420-separate-scans"] {
        let path = workspace_root().join(format!("tests/golden/decode/{name}.jpg"));
        let original = fs::read(path).unwrap();
        let mut on_gpu = 0;
        for _ in 0..2000 {
            let mut bytes = original.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len());
                bytes[at] = random.below(256) as u8;
            }
            bytes.truncate(original.len() - random.below(2) * random.below(original.len()));
            if let Route::Hardware(planar) | Route::Hybrid(planar) = route(&bytes, &DecodeOptions::default()) {
                on_gpu += 1;
                assert!(planar.length_bytes <= bytes.len());
                assert!(bytes[..planar.length_bytes].ends_with(&[0xFF, 0xD9]));
                assert!(planar.plane_sizes_px()[0] == (planar.width_px, planar.height_px));
            }
        }
        assert!(on_gpu > 0 && on_gpu < 2000, "{name}: {on_gpu}");
    }
}

#[test]
fn odd_and_broken_files_reach_no_decoder_that_is_not_made_for_them() {
    let Some(folder) = test_data("jpeg-torture") else { return };
    let index = fs::read_to_string(folder.join("index.tsv")).unwrap();
    let mut counts = BTreeMap::new();
    for row in index.lines().skip(1) {
        let fields: Vec<_> = row.split('\t').collect();
        let [file, .., special, pillow, djpeg] = fields[..] else { panic!("{row}") };
        let route = route_of(&folder.join(file));
        let (count, planar) = match route {
            Route::Hardware(planar) => ("hardware".to_owned(), Some(planar)),
            Route::Hybrid(planar) => ("hybrid".to_owned(), Some(planar)),
            Route::Cpu(reason) => (format!("CPU, {reason:?}"), None),
        };
        *counts.entry(count).or_insert(0) += 1;
        let Some(planar) = planar else { continue };
        let is = |word: &str| special.contains(word);
        assert!(!["lossless", "arith-", "12-bit", "transform 0"].into_iter().any(is), "{file}: {route:?}, {special}");
        assert!(pillow.starts_with("JPEG") || pillow.starts_with("MPO"), "{file}: {route:?}, {pillow}");
        assert!(!pillow.contains("CMYK"), "{file}: {route:?}, {pillow}");
        // Its size is the one that others see as well.
        let size = format!(" {}x{} ", planar.width_px, planar.height_px);
        assert!(pillow.contains(&size), "{file}: {route:?}, {pillow}");
        assert!(!djpeg.starts_with("rc=1"), "{file}: {route:?}, {djpeg}");
        if matches!(route, Route::Hardware(_)) {
            assert!(!is("progressive"), "{file}: {route:?}, {special}");
        }
        // The default decoder of the CPU is at hand where nvJPEG fails. It leaves out a layout that nvJPEG takes.
        let bytes = fs::read(folder.join(file)).unwrap();
        match decode(&bytes, &DecodeOptions::default()) {
            Ok(picture) => {
                let mut sides = [picture.width_px, picture.height_px];
                let mut stored = [planar.width_px, planar.height_px];
                sides.sort_unstable();
                stored.sort_unstable();
                assert_eq!(sides, stored, "{file}");
            }
            Err(error) => assert_eq!(error.kind, ocellus::error::ErrorKind::UnsupportedSampling, "{file}: {error}"),
        }
    }
    println!("{counts:#?}");
    assert!(counts.len() >= 7, "the collection has files of most kinds");
}
