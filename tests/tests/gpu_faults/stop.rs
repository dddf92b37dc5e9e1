//! Signals at random moments.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

use tests::Random;
use tests::job::{self, wait};

use super::{Fixture, device, folder_of};

/// Files of a job.
const FILES: usize = 200;
/// Times that a job is stopped before it may end.
const STOPS: usize = 6;

fn partial(output: &Path) -> PathBuf {
    format!("{}.partial", output.display()).into()
}

/// Hands a job its first `count` paths, a little time apart, and stops it while it waits for more.
fn stop_after(mut child: Child, signal: &str, paths: &[String], count: usize, pause: Duration) {
    let mut stdin = child.stdin.take().unwrap();
    for path in &paths[..count] {
        writeln!(stdin, "{path}").unwrap();
        sleep(Duration::from_micros(500));
    }
    stdin.flush().unwrap();
    sleep(pause);
    job::signal(&child, signal);
    let code = wait(&mut child).code();
    drop(stdin);
    // A killed one has no code.
    assert!([None, Some(130)].contains(&code), "{signal}: {code:?}");
}

/// Hands a job all paths.
fn to_the_end(mut child: Child, paths: &[String]) {
    let mut stdin = child.stdin.take().unwrap();
    for path in paths {
        writeln!(stdin, "{path}").unwrap();
    }
    drop(stdin);
    assert_eq!(wait(&mut child).code(), Some(3));
}

#[test]
fn a_job_that_is_stopped_again_and_again_gives_every_row_once() {
    if tests::gpu::tool().is_some() {
        return;
    }
    let fixture = Fixture::new();
    let folder = folder_of(&fixture, "many", FILES);
    let paths: Vec<String> = (0..FILES).map(|i| format!("{}/{i}, \"x\".jpg", folder.display())).collect();
    let mut random = Random::new(11);
    for extension in ["jsonl", "csv", "parquet"] {
        let start = |name: &str| {
            let output = fixture.path(&format!("{name}.{extension}"));
            let options = ["-o", output.to_str().unwrap(), "-q", "--batch", "4", "--resume"];
            let mut command = fixture.command(&["-".into()], &options);
            (command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap(), output)
        };
        let (job, whole) = start("whole");
        to_the_end(job, &paths);
        let mut kept = 0;
        for _ in 0..STOPS {
            let (job, output) = start("stopped");
            let signal = ["-TERM", "-KILL"][random.below(2)];
            // Also before the first row.
            let pause = Duration::from_millis(random.below(600) as u64);
            stop_after(job, signal, &paths, 1 + random.below(FILES - 1), pause);
            assert!(!output.exists(), "it gets its name when it is complete");
            kept += usize::from(fs::metadata(partial(&output)).is_ok_and(|m| m.len() > 0));
        }
        assert!(kept > 0, "{}, {extension}: rows must have been kept", device());
        let (job, output) = start("stopped");
        to_the_end(job, &paths);
        assert!(fs::read(&output).unwrap() == fs::read(&whole).unwrap(), "{extension}: not what one run writes");
        assert!(!partial(&output).exists());
    }
}
