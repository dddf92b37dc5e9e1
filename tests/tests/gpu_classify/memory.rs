//! A GPU with too little memory, and batches that are too large or not full.

use std::path::PathBuf;

use tests::network::{NetworkBuilder, list};
use tests::ocellus;

use super::{CLASSES, DECODERS, DECODERS_SMALL, Fixture, SIDE_PX, assert_alike, emulator, golden, photo, rows};

/// What the emulator's GPU has is up to the test; a real one has too much.
#[test]
fn a_gpu_with_little_memory_gives_the_same_rows() {
    let Some(fixture) = Fixture::new() else { return };
    if emulator().is_none() {
        return;
    }
    let with = |mib: usize, files: &[PathBuf], options: &[&str]| {
        let mut command = fixture.command("cuda", files, &[&["--precision", "fp32"], options].concat());
        command.env("OCELLUS_EMULATOR_MEMORY_BYTES", (mib << 20).to_string()).output().unwrap()
    };
    // Planes of 3.1 MiB each, and one of 11.4.
    let shot = image::RgbImage::from_fn(1600, 1300, |x, y| image::Rgb([(x / 7) as u8, (y / 5) as u8, (x ^ y) as u8]));
    let files: Vec<PathBuf> = (0..6).map(|n| fixture.path(&format!("shot{n}.jpg"))).collect();
    for path in &files {
        shot.save(path).unwrap();
    }
    let wide = fixture.path("wide.png");
    image::RgbImage::from_pixel(2000, 2000, image::Rgb([9, 90, 200])).save(&wide).unwrap();
    let files = [files, vec![wide]].concat();
    let cpu = fixture.rows("cpu", &files, &[]);
    // How little is too little for a batch at once depends on what the workers take for themselves.
    let mut split = false;
    for mib in [90, 75, 60, 54, 48] {
        let output = with(mib, &files, &[]);
        assert_alike(&rows(&output), &cpu, DECODERS_SMALL);
        split |= String::from_utf8_lossy(&output.stderr).contains("no memory for");
    }
    assert!(split, "no batch was split");
    let mut halved = false;
    for mib in [200, 150, 100, 70] {
        let output = with(mib, &files[..1], &["--batch", "4096"]);
        assert_alike(&rows(&output), &cpu[..1], DECODERS_SMALL);
        halved |= String::from_utf8_lossy(&output.stderr).contains("memory for batches of");
    }
    assert!(halved, "the largest batch always fits");
}

/// 4,096 pictures have more elements than are accepted; fewer do not fit the memory. The first reason is told.
#[test]
fn a_batch_that_cannot_be_counted_is_halved() {
    let Some(fixture) = Fixture::new() else { return };
    if emulator().is_none() {
        return;
    }
    fixture.network(512);
    let files = [photo("flower.jpg")];
    let output = fixture.command("cuda", &files, &["--precision", "fp32", "--batch", "4096"]).output().unwrap();
    assert_alike(&rows(&output), &fixture.rows("cpu", &files, &[]), DECODERS);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("not of 4096: ") && message.contains("over the limit"), "{message}");
}

/// Every kind of memory, every amount from nothing to enough, and every single allocation that fails: the rows of the CPU,
/// or one line that says why not.
#[test]
fn memory_that_ends_anywhere_changes_no_row() {
    const MIB: usize = 1 << 20;
    let Some(fixture) = Fixture::new() else { return };
    if emulator().is_none() {
        return;
    }
    let card = "task = \"classify\"\nonnx = \"net.onnx\"\n[input]\nwidth_px = 32\nheight_px = 32\ncolour = \"rgb\"\n[resize]\n\
        rule = \"stretch\"\nfilter = \"bilinear\"\n[normalise]\nmean = [127, 127, 127]\nstd = [128, 128, 128]\n\
        [output]\ndecoder = \"softmax\"\n";
    let card = fixture.file("card.toml", card.as_bytes());
    // Tables of weights for such widths are large: together, and the widest one's alone, they do not fit what is taken
    // at the start.
    let wide: Vec<PathBuf> = [350_000, 360_000, 700_000]
        .map(|width_px| {
            let path = fixture.path(&format!("wide{width_px}.png"));
            let of = |x, y| image::Rgb([(x / 4000) as u8, (x % 251) as u8, y as u8]);
            image::RgbImage::from_fn(width_px, 2, of).save(&path).unwrap();
            path
        })
        .to_vec();
    let text = fixture.file("text.jpg", b"no picture");
    let files = [vec![photo("flower.jpg"), text], wide, vec![golden("jpeg-420-progressive.jpg")]].concat();
    let command = |device: &str, files: &[PathBuf]| {
        let mut command = ocellus();
        command.arg("classify").args(files).arg("--model").arg(&card);
        command.args(["--device", device, "--top", "12", "--format", "jsonl", "--precision", "fp32", "--batch", "8"]);
        command
    };
    let cpu = rows(&command("cpu", &files).output().unwrap());
    // Whether there were rows, and whether a batch was split.
    let run = |name: &str, value: usize, files: &[PathBuf]| {
        let output = command("cuda", files).env(name, value.to_string()).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() == Some(1) {
            let last = message.lines().last().unwrap_or_default();
            assert!(last.starts_with("error: ") && last.contains("GPU: out of memory"), "{name}={value}: {message}");
            assert!(output.stdout.is_empty(), "{name}={value}");
            return (false, false);
        }
        assert_alike(&rows(&output), &cpu[..files.len()], DECODERS_SMALL);
        (true, message.contains("no memory for"))
    };
    let device = [0, 20, 34, 36, 37, 38, 42, 60, 90, 130, 400];
    let host = [0, 1, 4, 5, 12, 20, 24, 48, 64, 90, 400];
    for (name, sizes) in [("OCELLUS_EMULATOR_MEMORY_BYTES", device), ("OCELLUS_EMULATOR_HOST_BYTES", host)] {
        let ran = sizes.map(|mib| run(name, mib * MIB, &files));
        assert!(ran.is_sorted_by_key(|(rows, _)| *rows), "{name}: {ran:?}");
        assert!(ran.contains(&(false, false)) && ran.contains(&(true, true)), "{name}: {ran:?}");
        assert_eq!(ran[sizes.len() - 1], (true, false), "{name}");
    }
    for failing in 1..=48 {
        assert!(run("OCELLUS_EMULATOR_FAILING_ALLOCATION", failing, &files[..2]).0, "allocation {failing}");
    }
}

/// A file that fixes the batch at four, and whose images influence one another by their mean: the three that are not there
/// are zeros, as on the CPU.
#[test]
fn images_that_are_not_there_are_zeros() {
    let Some(fixture) = Fixture::new() else { return };
    let mut builder = NetworkBuilder::new(3).of_batch(4);
    let x = builder.conv(NetworkBuilder::INPUT, 3, 8, 3, 2, 1.0);
    let mean = builder.node("ReduceMean", &[&x], vec![list("axes", &[0])]);
    let x = builder.node("Sub", &[&x, &mean], vec![]);
    let x = builder.node("Relu", &[&x], vec![]);
    let scores = builder.classes(&x, 8, CLASSES, 2.0);
    fixture.file("net.onnx", &builder.finish("net", SIDE_PX, &scores, CLASSES));
    // The second by way of the CPU's preprocessing: its planes do not fit.
    let large = fixture.path("large.png");
    image::RgbImage::from_pixel(3000, 3000, image::Rgb([9, 90, 200])).save(&large).unwrap();
    for (file, mib) in [(photo("flower.jpg"), 400), (large, 50)] {
        let files = [file];
        let mut command = fixture.command("cuda", &files, &["--precision", "fp32"]);
        command.env("OCELLUS_EMULATOR_MEMORY_BYTES", (mib << 20).to_string());
        assert_alike(&rows(&command.output().unwrap()), &fixture.rows("cpu", &files, &[]), DECODERS);
    }
}
