//! Signals at random moments.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use tests::Random;
use tests::job::wait;

use super::{Fixture, device, folder_of};

/// Files of a job.
const FILES: usize = 200;
/// Times that a job is stopped before it may end.
const STOPS: usize = 6;

fn partial(output: &Path) -> PathBuf {
    format!("{}.partial", output.display()).into()
}

fn len(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |m| m.len())
}

/// Sends a signal once the partial file has this length. False where the job ended before.
fn stop_at(mut child: Child, signal: &str, partial: &Path, bytes: u64) -> bool {
    while len(partial) < bytes {
        if let Some(status) = child.try_wait().unwrap() {
            assert_eq!(status.code(), Some(3));
            return false;
        }
        sleep(Duration::from_micros(500));
    }
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    let code = wait(&mut child).code();
    // It may have been done just then; a killed one has no code.
    assert!(sent.success() && [None, Some(3), Some(130)].contains(&code), "{signal}: {code:?}");
    code != Some(3)
}

#[test]
fn a_job_that_is_stopped_again_and_again_gives_every_row_once() {
    if tests::gpu::tool().is_some() {
        return;
    }
    let fixture = Fixture::new();
    let input = [folder_of(&fixture, "many", FILES)];
    let mut random = Random::new(11);
    for extension in ["jsonl", "csv", "parquet"] {
        let command = |name: &str, options: &[&str]| {
            let output = fixture.path(&format!("{name}.{extension}"));
            let mut command = fixture.command(&input, &["-o", output.to_str().unwrap(), "-q", "--batch", "4"]);
            command.args(options).stderr(Stdio::null());
            (command, output)
        };
        let (mut job, whole) = command("whole", &[]);
        assert_eq!(job.status().unwrap().code(), Some(3));
        let mut stopped = 0;
        let output = loop {
            let (mut job, output) = command("stopped", &["--resume"]);
            if stopped == STOPS {
                break output;
            }
            let signal = ["-TERM", "-KILL"][random.below(2)];
            // Rows are more than 100 bytes in every format, so that this is well before the end.
            let bytes = len(&partial(&output)) + random.below(FILES * 100 / STOPS) as u64;
            if !stop_at(job.spawn().unwrap(), signal, &partial(&output), bytes) {
                break output;
            }
            stopped += 1;
            assert!(!output.exists(), "it gets its name when it is complete");
        };
        println!("{}, {extension}: stopped {stopped} times", device());
        assert!(stopped >= 1, "{extension}: it must have been stopped under way");
        let (mut job, _) = command("stopped", &["--resume"]);
        assert_eq!(job.status().unwrap().code(), Some(3));
        assert!(fs::read(&output).unwrap() == fs::read(&whole).unwrap(), "{extension}: not what one run writes");
        assert!(!partial(&output).exists());
    }
}
