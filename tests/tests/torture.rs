//! Odd, hostile and broken JPEG files: each decodes as djpeg and Pillow do, or gives an error row that says why, in a
//! process with bounded memory and time.
//!
//! What is expected of a file follows from the columns of the collection's index, which hold the verdicts of Pillow 13
//! and djpeg 2.1.5. [`EXCEPTIONS`] holds what does not follow.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tests::{skip, test_data};

/// Files of which the default decoder gives something else than the index makes expect.
const EXCEPTIONS: [(&str, Expect); 1] = [
    // Three scans of subsampled components: zune-jpeg gives a wrong picture.
    ("zune__non_interleaved_420_64x64.jpg", Expect::Error("unsupported-sampling")),
];

/// What a file must give.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Expect {
    /// djpeg has no complaint: a whole picture, close to djpeg's.
    Picture,
    /// djpeg warns: a picture of the right size or an error of the file.
    Damaged,
    /// djpeg gives no picture: anything but a fault of ours.
    Anything,
    /// This error.
    Error(&'static str),
}

/// A row of the index.
struct Entry {
    file: String,
    /// What the file is: process, precision, size, sampling; extras.
    special: String,
    pillow: String,
    djpeg: String,
}

impl Entry {
    fn expect(&self) -> Expect {
        let exception = EXCEPTIONS.iter().find(|(file, _)| *file == self.file && !cfg!(feature = "libjpeg"));
        if let Some((_, expect)) = exception {
            return *expect;
        }
        let is = |word: &str| self.special.contains(word);
        match &self.djpeg {
            // A PNG file with a JPEG name, which decodes.
            _ if self.pillow.starts_with("PNG") => Expect::Anything,
            _ if is("lossless") => Expect::Error("unsupported-lossless"),
            _ if is("arith-") => Expect::Error("unsupported-arithmetic"),
            _ if is("12-bit") => Expect::Error("unsupported-12-bit"),
            verdict if verdict.starts_with("rc=0") => Expect::Picture,
            verdict if verdict.starts_with("rc=2") => Expect::Damaged,
            _ => Expect::Anything,
        }
    }

    /// Width and height as Pillow reads them, which does not turn the picture.
    fn size(&self) -> Option<(u32, u32)> {
        let (w, h) = self.pillow.strip_prefix("JPEG ")?.split(' ').next()?.split_once('x')?;
        Some((w.parse().ok()?, h.parse().ok()?))
    }

    fn swaps_axes(&self) -> bool {
        (5..=8).any(|n| self.special.contains(&format!("EXIF orientation {n}")))
    }
}

fn index(folder: &Path) -> Vec<Entry> {
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(b'\t')
        .quoting(false)
        .from_path(folder.join("index.tsv"))
        .expect("the collection has an index");
    reader
        .records()
        .map(|row| {
            let row = row.unwrap();
            let column = |n: usize| row[n].to_owned();
            Entry { file: column(0), special: column(5), pillow: column(6), djpeg: column(7) }
        })
        .collect()
}

/// The line that `decode_one` printed, or how it died.
fn decode_one(file: &Path, out: Option<&Path>, memory_bytes: u64) -> Result<String, String> {
    const TIME: Duration = Duration::from_secs(30);
    let mut command = Command::new("sh");
    let limits = format!("ulimit -v {}; ulimit -t {}; exec \"$@\"", memory_bytes / 1024, TIME.as_secs());
    command.args(["-c", &limits, "sh", env!("CARGO_BIN_EXE_decode_one")]).arg(file);
    if let Some(out) = out {
        command.arg("--out").arg(out);
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|e| e.to_string())?;
    let start = Instant::now();
    while child.try_wait().map_err(|e| e.to_string())?.is_none() {
        if start.elapsed() > TIME {
            let _ = child.kill();
            return Err("hangs".to_owned());
        }
        thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || stderr.contains("panicked") {
        return Err(format!("{}: {stderr}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// djpeg's pixels as RGB, with width and height.
fn djpeg(file: &Path) -> Option<(usize, usize, Vec<u8>)> {
    let output = Command::new("djpeg").args(["-dct", "int", "-pnm"]).arg(file).output().ok()?;
    let mut fields = output.stdout.splitn(5, u8::is_ascii_whitespace);
    let grey = fields.next()? == b"P5";
    let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse::<usize>().ok();
    let (width, height) = (number()?, number()?);
    let samples = &output.stdout[output.stdout.len().checked_sub(width * height * if grey { 1 } else { 3 })?..];
    Some((width, height, if grey { samples.iter().flat_map(|&v| [v; 3]).collect() } else { samples.to_vec() }))
}

/// Compares a file's pixels with djpeg's before orientation, which is another test's matter.
fn compare(file: &Path, special: &str, scratch: &Path) -> Result<(), String> {
    let Some((width, height, expected)) = djpeg(file) else { return Err("djpeg gives no picture".to_owned()) };
    let mut bytes = fs::read(file).map_err(|e| e.to_string())?;
    while let Some(at) = bytes.windows(6).position(|w| w == b"Exif\0\0") {
        bytes[at] = b'e';
    }
    let (upright, out) = (scratch.with_extension("jpg"), scratch.with_extension("rgb"));
    fs::write(&upright, bytes).map_err(|e| e.to_string())?;
    decode_one(&upright, Some(&out), 4 << 30)?;
    let got = fs::read(&out).map_err(|e| e.to_string())?;
    if got.len() != expected.len() {
        return Err(format!("{} bytes instead of {}", got.len(), expected.len()));
    }
    let differences = || got.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b));
    let max = differences().max().unwrap_or(0);
    let mean = differences().map(u64::from).sum::<u64>() as f64 / expected.len() as f64;
    // Chroma of one or two columns is interpolated by zune-jpeg and not by libjpeg, and small saturated pictures are off
    // by more in the mean than photographs are.
    let narrow = width <= 4 && special.contains("samp 2x");
    let small = width < 64 && height < 64;
    let (max_allowed, mean_allowed) = match (narrow, small) {
        _ if cfg!(feature = "libjpeg") => (0, 0.0),
        (true, _) => (96, 20.0),
        (_, true) => (16, 0.6),
        _ => (16, 0.3),
    };
    if max > max_allowed || mean > mean_allowed {
        return Err(format!("differs from djpeg by at most {max}, mean {mean:.3}"));
    }
    Ok(())
}

/// What is wrong with a file's result.
fn fault(folder: &Path, entry: &Entry, with_djpeg: bool, scratch: &Path) -> Result<(), String> {
    let file = folder.join(&entry.file);
    // The documented 16 bytes a pixel, the file and its copy, and what any process takes.
    let pixels = entry.size().map_or(0, |(w, h)| u64::from(w) * u64::from(h));
    let length = fs::metadata(&file).map_err(|e| e.to_string())?.len();
    let line = decode_one(&file, None, 16 * pixels + 2 * length + (256 << 20))?;
    let mut words = line.split(' ');
    let expect = entry.expect();
    match (words.next(), expect) {
        (Some("ok"), Expect::Picture | Expect::Damaged | Expect::Anything) => {
            let mut number = || words.next().and_then(|n| n.parse::<u32>().ok()).ok_or(line.clone());
            let (width, height) = (number()?, number()?);
            if let Some((w, h)) = entry.size()
                && expect != Expect::Anything
                && (width, height) != if entry.swaps_axes() { (h, w) } else { (w, h) }
            {
                return Err(format!("{width} x {height} instead of {w} x {h}"));
            }
            if expect == Expect::Picture {
                if words.next() != Some("false") {
                    return Err("partial".to_owned());
                }
                if with_djpeg {
                    return compare(&file, &entry.special, scratch);
                }
            }
            Ok(())
        }
        (Some("error"), Expect::Damaged | Expect::Anything) => match words.next() {
            Some("truncated" | "corrupt" | "unsupported-sampling" | "unsupported") => Ok(()),
            _ => Err(line),
        },
        (Some("error"), Expect::Error(kind)) if words.next() == Some(kind) => Ok(()),
        _ => Err(format!("{line} instead of {expect:?}")),
    }
}

#[test]
fn jpeg_torture() {
    let Some(folder) = test_data("jpeg-torture") else { return };
    let with_djpeg = Command::new("djpeg").arg("-version").output().is_ok();
    if !with_djpeg {
        skip("REQUIRE_DJPEG", "no comparison of pixels: djpeg is not installed (package libjpeg-turbo-progs)");
    }
    let entries = index(&folder);
    assert!(entries.len() > 100, "{} files in the index", entries.len());
    assert!(EXCEPTIONS.iter().all(|(file, _)| entries.iter().any(|entry| entry.file == *file)));
    let scratch = TempDir::new().unwrap();
    let queue = Mutex::new(entries.iter().enumerate());
    let faults = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let Some((n, entry)) = queue.lock().unwrap().next() else { break };
                    if let Err(fault) = fault(&folder, entry, with_djpeg, &scratch.path().join(n.to_string())) {
                        faults.lock().unwrap().push(format!("{}: {fault}", entry.file));
                    }
                }
            });
        }
    });
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}
