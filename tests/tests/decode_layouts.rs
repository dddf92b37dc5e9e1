//! JPEG of every sampling layout, scan layout and small size against djpeg: right or refused, never wrong.
//!
//! Needs cjpeg and djpeg (package libjpeg-turbo-progs); skipped without.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

use ocellus::decode::{DecodeOptions, decode};
use ocellus::error::ErrorKind;
use tempfile::{NamedTempFile, TempDir};
use tests::{Random, skip};

/// One file to make and decode.
struct Case {
    width: usize,
    height: usize,
    sampling: String,
    /// For cjpeg: the process, scans, restart intervals.
    options: Vec<String>,
    /// Real encoders write it, so it must decode.
    ordinary: bool,
}

/// A smooth picture with noise as binary PPM.
fn picture(width: usize, height: usize) -> Vec<u8> {
    let mut random = Random::new((width * 1000 + height) as u64);
    let mut bytes = format!("P6\n{width} {height}\n255\n").into_bytes();
    for y in 0..height {
        for x in 0..width {
            let (x, y) = (x as f32, y as f32);
            for wave in [(x / 9.0 + y / 17.0).sin(), (x / 13.0 - y / 7.0).cos(), ((x + y) / 11.0).sin()] {
                bytes.push((127.0 + 100.0 * wave + random.uniform(-12.0, 12.0)) as u8);
            }
        }
    }
    bytes
}

/// Runs a program of libjpeg-turbo on bytes; `None` if it refuses them.
fn run(program: &str, arguments: &[String], input: &[u8]) -> Option<Vec<u8>> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = thread::scope(|scope| {
        // A program that refuses its input closes the pipe early.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    });
    output.status.success().then_some(output.stdout)
}

/// The case's result: whether it decoded, or what is wrong. `None` where cjpeg or djpeg refuses the layout.
fn check(case: &Case) -> Option<Result<bool, String>> {
    let mut arguments = vec!["-quality".into(), "90".into(), "-sample".into(), case.sampling.clone()];
    arguments.extend(case.options.iter().cloned());
    let jpeg = run("cjpeg", &arguments, &picture(case.width, case.height))?;
    let reference = run("djpeg", &["-dct", "int", "-ppm"].map(String::from), &jpeg)?;
    let expected = &reference[reference.len() - 3 * case.width * case.height..];
    let picture = match decode(&jpeg, &DecodeOptions::default()) {
        Ok(picture) => picture,
        Err(e) if e.kind == ErrorKind::UnsupportedSampling && !case.ordinary => return Some(Ok(false)),
        Err(e) => return Some(Err(e.to_string())),
    };
    if picture.partial {
        return Some(Err("partial".to_owned()));
    }
    let exact = cfg!(feature = "libjpeg");
    // The last chroma sample is interpolated with the encoder's padding by zune-jpeg; libjpeg does not interpolate chroma
    // of two columns or fewer.
    let edge = usize::from(!exact);
    let narrow = case.width <= 4 && !exact;
    let mut max = 0;
    for y in 0..case.height.saturating_sub(edge).max(1) {
        let columns = case.width.saturating_sub(edge).max(1);
        let row = 3 * y * case.width..3 * (y * case.width + columns);
        max = picture.rgb[row.clone()].iter().zip(&expected[row]).map(|(a, b)| a.abs_diff(*b)).max().max(Some(max))?;
    }
    let limit = if exact {
        0
    } else if narrow {
        64
    } else {
        16
    };
    Some(if max <= limit { Ok(true) } else { Err(format!("differs by {max}")) })
}

/// Runs all cases on all cores; gives how many decoded.
fn check_all(cases: &[Case]) -> usize {
    let queue = Mutex::new(cases.iter());
    let results = Mutex::new((0, Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let Some(case) = queue.lock().unwrap().next() else { break };
                    let result = check(case);
                    let mut results = results.lock().unwrap();
                    match result {
                        Some(Ok(decoded)) => results.0 += usize::from(decoded),
                        Some(Err(fault)) => results.1.push(format!(
                            "{} x {} {} {:?}: {fault}",
                            case.width, case.height, case.sampling, case.options
                        )),
                        None if case.ordinary => results.1.push(format!("{} cannot be made", case.sampling)),
                        None => {}
                    }
                }
            });
        }
    });
    let (decoded, faults) = results.into_inner().unwrap();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    decoded
}

/// Whether the programs are there.
fn have_reference() -> bool {
    let have = ["cjpeg", "djpeg"].iter().all(|program| Command::new(program).arg("-version").output().is_ok());
    if !have {
        skip("REQUIRE_DJPEG", "cjpeg and djpeg are not installed (package libjpeg-turbo-progs)");
    }
    have
}

const ORDINARY: [&str; 7] = ["1x1", "2x1", "2x2", "1x2", "4x1", "4x2", "2x4"];

#[test]
fn every_sampling_layout() {
    if !have_reference() {
        return;
    }
    let factors: Vec<(usize, usize)> = (1..=4).flat_map(|h| (1..=4).map(move |v| (h, v))).collect();
    let mut cases = Vec::new();
    for luma in &factors {
        // Blue and red chroma alike, and red chroma at full resolution or at the least.
        for blue in &factors {
            for red in [*blue, *luma, (1, 1)] {
                // T.81: at most 10 blocks in an MCU.
                if luma.0 * luma.1 + blue.0 * blue.1 + red.0 * red.1 > 10 {
                    continue;
                }
                let sampling = format!("{}x{},{}x{},{}x{}", luma.0, luma.1, blue.0, blue.1, red.0, red.1);
                let name = format!("{}x{}", luma.0, luma.1);
                let ordinary = *blue == (1, 1) && red == (1, 1) && ORDINARY.contains(&name.as_str());
                for options in [vec![], vec!["-progressive".to_owned()]] {
                    cases.push(Case { width: 61, height: 45, sampling: sampling.clone(), options, ordinary });
                }
            }
        }
    }
    assert!(check_all(&cases) >= 2 * ORDINARY.len());
}

#[test]
fn every_scan_layout() {
    if !have_reference() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let progressive = "0:0-0,0,0;1:0-0,0,0;2:0-0,0,0;0:1-63,0,0;1:1-63,0,0;2:1-63,0,0;";
    let together = "0,1,2:0-0,0,1;0:1-63,0,0;1:1-63,0,0;2:1-63,0,0;0,1,2:0-0,1,0;";
    let mut cases = Vec::new();
    for (script, ordinary) in [
        ("0;1;2;", false),
        ("2;1;0;", false),
        ("0;1,2;", false),
        ("0,1;2;", false),
        (progressive, true),
        (together, true),
    ] {
        let mut file = NamedTempFile::new_in(folder.path()).unwrap();
        file.write_all(script.as_bytes()).unwrap();
        let (_, path) = file.keep().unwrap();
        let path = path.into_os_string().into_string().unwrap();
        for sampling in ORDINARY.iter().copied().chain(["2x2,1x2,1x2", "2x2,2x1,2x1", "2x1,2x1,1x1"]) {
            for (width, height) in [(61, 45), (16, 16), (5, 100)] {
                for restart in ["0", "1"] {
                    let options = ["-scans", &path, "-restart", restart].map(String::from).to_vec();
                    cases.push(Case { width, height, sampling: sampling.to_owned(), options, ordinary });
                }
            }
        }
    }
    assert!(check_all(&cases) > 100);
}

#[test]
fn every_small_size() {
    if !have_reference() {
        return;
    }
    let sizes = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33];
    let mut cases = Vec::new();
    for width in sizes {
        for height in sizes {
            for sampling in ["2x1", "2x2", "1x2"] {
                let sampling = sampling.to_owned();
                cases.push(Case { width, height, sampling, options: Vec::new(), ordinary: true });
            }
        }
    }
    assert_eq!(check_all(&cases), cases.len());
}
