//! Signals at random moments.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

use tests::Random;
use tests::job::{self, wait, wait_until};

use super::{Fixture, device, folder_of};

/// Files of a job.
const FILES: usize = 200;
/// Times that a job is stopped before it may end.
const STOPS: usize = 6;

fn partial(output: &Path) -> PathBuf {
    format!("{}.partial", output.display()).into()
}

/// Rows of a partial file, as far as they are whole.
fn rows_of(partial: &Path) -> usize {
    // What follows the last line's end is none yet.
    let lines = fs::read(partial).unwrap_or_default().split(|&byte| byte == b'\n').count() - 1;
    let has_header = partial.to_str().is_some_and(|path| path.contains(".csv."));
    lines.saturating_sub(usize::from(has_header))
}

/// When a job is stopped.
enum When<'a> {
    /// So long after it has its paths, also before it writes the first row.
    After(Duration),
    /// So long after the partial file has more rows than so many.
    Rows(&'a Path, usize, Duration),
}

/// Hands a job paths, a little time apart, and stops it while it waits for more.
fn stop(mut child: Child, signal: &str, paths: &[String], when: &When<'_>) {
    let mut stdin = child.stdin.take().unwrap();
    for path in paths {
        writeln!(stdin, "{path}").unwrap();
        sleep(Duration::from_micros(500));
    }
    stdin.flush().unwrap();
    match when {
        When::After(pause) => sleep(*pause),
        When::Rows(partial, rows, pause) => {
            wait_until(&mut child, "a row", || rows_of(partial) > *rows);
            sleep(*pause);
        }
    }
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
        let start = |output: &Path| {
            let options = ["-o", output.to_str().unwrap(), "-q", "--batch", "4", "--resume"];
            let mut command = fixture.command(&["-".into()], &options);
            command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
        };
        let [whole, output] = ["whole", "stopped"].map(|name| fixture.path(&format!("{name}.{extension}")));
        to_the_end(start(&whole), &paths);
        let mut kept = 0;
        for stopped in 1..=STOPS {
            let ends = FILES * stopped / (STOPS + 1);
            let before = rows_of(&partial(&output));
            let signal = ["-TERM", "-KILL"][random.below(2)];
            // How long a start takes depends on the machine, so half of the stops wait for a row more: no job before had the
            // last of their paths.
            let waits = stopped % 2 == 0;
            let count = if waits { ends } else { 1 + random.below(ends - 1) };
            let when = if waits {
                When::Rows(&partial(&output), before, Duration::from_millis(random.below(50) as u64))
            } else {
                When::After(Duration::from_millis(random.below(600) as u64))
            };
            stop(start(&output), signal, &paths[..count], &when);
            assert!(!output.exists(), "it gets its name when it is complete");
            let now = rows_of(&partial(&output));
            assert!(now >= before && (now > before || !waits), "{extension}, {signal}: {now} rows, {before} before");
            kept += now - before;
        }
        println!("{}, {extension}: {kept} of {FILES} rows in {STOPS} stopped jobs", device());
        to_the_end(start(&output), &paths);
        assert!(fs::read(&output).unwrap() == fs::read(&whole).unwrap(), "{extension}: not what one run writes");
        assert!(!partial(&output).exists());
    }
}
