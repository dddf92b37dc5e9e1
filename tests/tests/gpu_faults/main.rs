//! What may go wrong around a job: damaged and huge files, disks that fill up, signals, readers that do not read, a GPU that
//! fails or is full. No row is lost, none is wrong, none comes twice, and whoever waits for the job learns what happened.
//!
//! All of it runs on the CPU, and with `REQUIRE_GPU` on the GPU instead.

mod disk;
mod gpu;

mod stages;
mod stop;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tests::job::{memory_bytes, with_a_blocked_sink, with_default_signals};
use tests::network::{NetworkBuilder, list};
use tests::program::{photo, rows, text};
use tests::{job, jpeg, ocellus, require, workspace_root};

/// `--device` of the jobs.
fn device() -> &'static str {
    // Says why where there is none.
    if require("REQUIRE_GPU") && tests::gpu::gpu().is_some() { "cuda" } else { "cpu" }
}

/// A folder with a network that is quick to run.
struct Fixture(tempfile::TempDir);

impl Fixture {
    fn new() -> Self {
        const CLASSES: usize = 12;
        let mut builder = NetworkBuilder::new(7);
        let x = builder.conv(NetworkBuilder::INPUT, 3, 8, 3, 2, 1.0);
        let x = builder.node("Relu", &[&x], vec![]);
        let x = builder.node("MaxPool", &[&x], vec![list("kernel_shape", &[2; 2]), list("strides", &[2; 2])]);
        let scores = builder.classes(&x, 8, CLASSES, 2.0);
        let fixture = Self(tempfile::tempdir().unwrap());
        fixture.file("net.onnx", &builder.finish("net", 32, &scores, CLASSES));
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file for a job to read.
    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    /// A job on [`device`].
    fn command(&self, inputs: &[PathBuf], options: &[&str]) -> Command {
        self.command_on(device(), inputs, options)
    }

    fn command_on(&self, device: &str, inputs: &[PathBuf], options: &[&str]) -> Command {
        let mut command = with_default_signals(&ocellus());
        command.arg("classify").args(inputs).arg("--model").arg(self.path("net.onnx"));
        command.args(["--device", device, "--top", "3"]).args(options);
        command
    }

    fn rows(&self, inputs: &[PathBuf], options: &[&str]) -> Vec<Value> {
        rows(&self.command(inputs, &[&["--format", "jsonl"], options].concat()).output().unwrap())
    }
}

/// What a job said, without warnings about the network, which has no card.
fn errors(stderr: &[u8]) -> Vec<String> {
    let said = text(stderr);
    said.lines().filter(|line| !line.starts_with("warning: ")).map(str::to_owned).collect()
}

fn golden(name: &str) -> PathBuf {
    workspace_root().join("tests/golden/decode").join(name)
}

/// Files of every kind that are quick: small pictures of several decoders, and what is none.
fn mixed(fixture: &Fixture) -> Vec<PathBuf> {
    let small = ["jpeg-420-baseline.jpg", "jpeg-420-progressive.jpg", "jpeg-cmyk-adobe.jpg", "png-rgb.png"].map(golden);
    let cut = fs::read(golden("jpeg-444-baseline.jpg")).unwrap();
    let bad = [
        fixture.file("empty.jpg", b""),
        fixture.file("text.jpg", b"no picture"),
        fixture.file("cut.jpg", &cut[..cut.len() / 2]),
        fixture.path("missing.jpg"),
    ];
    small.into_iter().zip(bad).flat_map(|(good, bad)| [good, bad]).collect()
}

/// A folder of `count` files, every fifth one a picture.
fn folder_of(fixture: &Fixture, name: &str, count: usize) -> PathBuf {
    let picture = fs::read(golden("jpeg-420-baseline.jpg")).unwrap();
    fs::create_dir(fixture.path(name)).unwrap();
    for i in 0..count {
        let content = if i % 5 == 0 { &picture } else { &b"no picture"[..i % 11] };
        fixture.file(&format!("{name}/{i}, \"x\".jpg"), content);
    }
    fixture.path(name)
}

#[test]
fn a_bad_file_in_any_place_of_a_batch_costs_its_own_row() {
    const BATCH: usize = 5;
    let fixture = Fixture::new();
    let good = [photo("flower.jpg"), golden("jpeg-420-progressive.jpg"), golden("png-rgb.png"), photo("rocket.jpg")];
    let whole = fs::read(photo("flower.jpg")).unwrap();
    let bad = [
        fixture.file("empty.jpg", b""),
        fixture.file("text.jpg", b"no picture"),
        fixture.file("header.jpg", &whole[..100]),
        fixture.file("zeros.png", &[b"\x89PNG\r\n\x1a\n", &[0; 100][..]].concat()),
        fixture.path("missing.jpg"),
    ];
    let options = ["--batch", "5", "--threads", "2"];
    let alone = fixture.rows(&good, &options);
    assert!(alone.iter().all(|row| row["top"].is_array()), "{alone:?}");
    let places = bad.iter().flat_map(|bad| (0..BATCH).map(move |place| (bad, place)));
    let files: Vec<PathBuf> = places
        .clone()
        .flat_map(|(bad, place)| {
            let mut batch = good.to_vec();
            batch.insert(place, bad.clone());
            batch
        })
        .collect();
    let rows = fixture.rows(&files, &options);
    assert_eq!(rows.len(), files.len());
    for (batch, (bad, place)) in rows.chunks(BATCH).zip(places) {
        let mut batch = batch.to_vec();
        let row = batch.remove(place);
        assert_eq!(row["path"].as_str(), bad.to_str());
        assert!(row["error"]["kind"].is_string() && row["top"].is_null(), "{row}");
        assert_eq!(batch, alone, "{} in place {place}", bad.display());
    }
}

/// Pictures of 100 megapixels among small ones: one of them is in memory at a time. (The emulator takes ten seconds for each.)
#[test]
fn huge_pictures_among_small_ones_take_bounded_memory() {
    let fixture = Fixture::new();
    let count = if device() == "cpu" { 3 } else { 1 };
    let huge = jpeg::striped(12_500, 8_000);
    let small = fixture.rows(&[photo("rocket.jpg")], &[])[0].clone();
    let huge: Vec<PathBuf> = (0..count).map(|n| fixture.file(&format!("huge{n}.jpg"), &huge)).collect();
    let mut files = vec![photo("rocket.jpg"); 9];
    for (n, huge) in huge.iter().enumerate() {
        files.insert(2 + 2 * n, huge.clone());
    }
    let peak = |name: &str, files: &[PathBuf]| {
        let stats = fixture.path(name);
        let rows = fixture.rows(files, &["--threads", "4", "--stats", stats.to_str().unwrap()]);
        let stats: Value = serde_json::from_slice(&fs::read(stats).unwrap()).unwrap();
        (rows, stats["peak_memory_bytes"].as_u64().unwrap() >> 20)
    };
    let (_, without_mib) = peak("without.json", &vec![photo("rocket.jpg"); 9]);
    let (rows, with_mib) = peak("with.json", &files);
    println!("{}: at most {without_mib} MiB without, {with_mib} MiB with pictures of 100 megapixels", device());
    assert_eq!(rows.len(), files.len());
    for (row, file) in rows.iter().zip(&files) {
        if huge.contains(file) {
            assert_eq!((row["width"].as_u64(), row["height"].as_u64()), (Some(12_500), Some(8_000)), "{row}");
            assert_eq!(row["top"], rows[2]["top"], "{row}");
            assert!(row["top"].is_array());
        } else {
            assert_eq!(*row, small);
        }
    }
    // On the CPU 3 bytes a pixel, and what the decoder holds beside them: not those of two. The emulator's GPU has its planes
    // in the same memory, and its nvJPEG a copy of them.
    let most_mib = if device() == "cpu" { 450 } else { 600 };
    assert!(with_mib < without_mib + most_mib, "{with_mib} MiB, {without_mib} without");
}

/// `OCELLUS_TEST_BLOCKED_S=60` makes it a minute.
#[test]
fn a_reader_that_does_not_read_holds_everything_back() {
    /// A pipe of each end, and what all places and hands hold, with batches of four.
    const UNDER_WAY: u64 = 500;
    /// Rows that may wait for an earlier one, whose decoder was made meanwhile, and are handed on together.
    const WINDOW: u64 = 1 << 16;
    let fixture = Fixture::new();
    let seconds = std::env::var("OCELLUS_TEST_BLOCKED_S").ok().map_or(2, |text| text.parse().unwrap());
    let files = [golden("jpeg-420-baseline.jpg"), photo("rocket.jpg"), fixture.file("text.jpg", b"no picture")];
    let files: Vec<PathBuf> = files.iter().map(|file| job::long_path(file)).collect();
    for (order, most) in [("input", WINDOW + UNDER_WAY), ("completion", UNDER_WAY)] {
        let options = ["--format", "jsonl", "--batch", "4", "--threads", "2", "--order", order];
        let mut command = fixture.command(&["-".into()], &options);
        let blocked = with_a_blocked_sink(&mut command, &files, Duration::from_secs(seconds));
        assert_eq!(blocked.code, Some(3), "{}", blocked.said);
        assert!(blocked.asked < most, "{order}: {} paths taken", blocked.asked);
        let path = |row: &String| serde_json::from_str::<Value>(row).unwrap()["path"].as_str().unwrap().to_owned();
        let mut found: Vec<String> = blocked.rows.iter().map(path).collect();
        let asked = files.iter().cycle().take(blocked.asked as usize);
        let mut asked: Vec<String> = asked.map(|file| file.to_str().unwrap().to_owned()).collect();
        if order == "completion" {
            found.sort_unstable();
            asked.sort_unstable();
        }
        assert!(found == asked, "{order}: {} rows for {} paths, or others", found.len(), asked.len());
        let (least, most) = (blocked.rss_bytes.iter().min().unwrap(), blocked.rss_bytes.iter().max().unwrap());
        println!("{order}: {} paths taken; {} to {} KiB for {seconds} s", blocked.asked, least >> 10, most >> 10);
        assert!(most - least < 4 << 20, "{order}: memory changes while nothing happens: {:?}", blocked.rss_bytes);
    }
}

/// [`job::memory_bytes`] sees this process.
#[test]
fn memory_is_measured() {
    let own = memory_bytes(std::process::id(), "VmRSS").unwrap();
    assert!(own > 1 << 20 && memory_bytes(std::process::id(), "VmHWM").unwrap() >= own);
    assert!(memory_bytes(std::process::id(), "NoSuchField").is_none() && !Path::new("/proc/0").exists());
}
