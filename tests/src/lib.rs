//! Shared helpers of the integration tests: where the test data lies, the program under test, seeded random numbers,
//! error norms.

pub mod allocations;
pub mod cases;
pub mod gold;
pub mod gpu;
pub mod job;
pub mod jpeg;
pub mod network;
pub mod program;
pub mod random;
pub mod trace;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub use random::Random;

/// Root of the workspace: the folder of the top `Cargo.toml`. `$OCELLUS_TEST_ROOT` where the tests were carried to a
/// machine without the sources.
pub fn workspace_root() -> PathBuf {
    if let Some(root) = env::var_os("OCELLUS_TEST_ROOT") {
        return root.into();
    }
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_path_buf()
}

/// The folder or file `sub` of the test data, which is too large or not licensed to lie in the repository: below
/// `$OCELLUS_TEST_DATA`, or below `../shared/data` seen from the workspace root. `None`, with the reason printed, where
/// it is absent: the test then returns at once.
///
/// # Panics
/// Where it is absent and [`require`]`("REQUIRE_TEST_DATA")` holds.
pub fn test_data(sub: &str) -> Option<PathBuf> {
    let path = data_root().join(sub);
    if path.exists() {
        return Some(path);
    }
    skip("REQUIRE_TEST_DATA", &format!("no test data at {} (set OCELLUS_TEST_DATA)", path.display()));
    None
}

fn data_root() -> PathBuf {
    env::var_os("OCELLUS_TEST_DATA").map_or_else(|| workspace_root().join("../shared/data"), PathBuf::from)
}

/// The program `ocellus` of the profile under test, to be run in the workspace root. Built first, so that no test sees an
/// old one; `$OCELLUS_TEST_PROGRAM` where the tests were carried to a machine without the sources.
///
/// # Panics
/// If it does not build.
pub fn ocellus() -> Command {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        if let Some(program) = env::var_os("OCELLUS_TEST_PROGRAM") {
            return program.into();
        }
        // A test lies in TARGET/PROFILE/deps.
        let test = env::current_exe().unwrap_or_default();
        let profile = test.ancestors().nth(2).unwrap_or(&test);
        let mut build = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        build.args(["build", "--quiet", "--package", "ocellus", "--bin", "ocellus"]);
        if profile.ends_with("release") {
            build.arg("--release");
        }
        build.arg("--target-dir").args(profile.parent()).current_dir(workspace_root());
        let status = build.status();
        assert!(status.as_ref().is_ok_and(std::process::ExitStatus::success), "{build:?}: {status:?}");
        profile.join(format!("ocellus{}", env::consts::EXE_SUFFIX))
    });
    let mut command = Command::new(program);
    command.current_dir(workspace_root());
    command
}

/// True when the environment variable `name` is set to anything but an empty string or `0`.
pub fn require(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Prints why a test does not run. The reason goes to the process's own stderr, past the harness's capture, so that a
/// run of the whole suite shows it.
///
/// # Panics
/// When [`require`]`(required_by)` holds: what was asked for must not be skipped.
pub fn skip(required_by: &str, reason: &str) {
    assert!(!require(required_by), "{reason}, and {required_by} is set");
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    // `eprintln!` would be captured and dropped, since the test passes.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("skipped {test}: {reason}\n").as_bytes());
}

/// Relative Frobenius error `|actual - expected| / |expected|`, summed in f64. Infinite when the lengths differ or a
/// value is not finite, so that a comparison with a bound fails then; 0 for two vectors of zeros.
pub fn rel_frobenius(actual: &[f32], expected: &[f32]) -> f64 {
    if actual.len() != expected.len() {
        return f64::INFINITY;
    }
    let (mut error, mut norm) = (0.0f64, 0.0f64);
    for (&a, &e) in actual.iter().zip(expected) {
        error += (f64::from(a) - f64::from(e)).powi(2);
        norm += f64::from(e).powi(2);
    }
    let ratio = if error == 0.0 { 0.0 } else { (error / norm).sqrt() };
    if ratio.is_finite() { ratio } else { f64::INFINITY }
}

/// From N, C, H, W to N, H, W, C.
pub fn channels_last(planes: &[f32], n: usize, c: usize) -> Vec<f32> {
    let pixels = planes.len() / n / c;
    let at = |i: usize| planes[(i / (c * pixels) * c + i % c) * pixels + i / c % pixels];
    (0..planes.len()).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_come_last() {
        // Two images of three channels of two pixels: hundreds the image, tens the channel, ones the pixel.
        let planes = [0.0, 1.0, 10.0, 11.0, 20.0, 21.0, 100.0, 101.0, 110.0, 111.0, 120.0, 121.0];
        let pixels = [0.0, 10.0, 20.0, 1.0, 11.0, 21.0, 100.0, 110.0, 120.0, 101.0, 111.0, 121.0];
        assert_eq!(channels_last(&planes, 2, 3), pixels);
    }

    #[test]
    fn the_root_holds_the_workspace() {
        let manifest = std::fs::read_to_string(workspace_root().join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[workspace]"));
    }

    #[test]
    fn error_of_equal_scaled_and_broken_vectors() {
        let x = [3.0f32, -4.0];
        assert_eq!(rel_frobenius(&x, &x), 0.0);
        assert!((rel_frobenius(&[3.3, -4.4], &x) - 0.1).abs() < 1e-6);
        assert_eq!(rel_frobenius(&[0.0; 4], &[0.0; 4]), 0.0);
        for (actual, expected) in
            [(&[f32::NAN, 0.0][..], &x[..]), (&[3.0], &x), (&[1.0], &[0.0]), (&x, &[f32::INFINITY, 0.0])]
        {
            assert_eq!(rel_frobenius(actual, expected), f64::INFINITY);
        }
    }
}
