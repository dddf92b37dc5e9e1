//! A job that is killed at any moment can be continued: no row is lost, none comes twice.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use tests::{Random, ocellus, skip, workspace_root};

/// Files of the job: most are no pictures, so that rows come fast.
const FILES: usize = 240;
/// Every how-manieth is a picture.
const PICTURE_EVERY: usize = 12;
/// Times a job is killed before it may end.
const KILLS: usize = 12;

fn job(input: &Path, output: &Path) -> Command {
    let mut command = ocellus();
    command.args(["classify", "--model", "squeezenet1.1", "-q", "--top", "2", "--batch", "2"]);
    command.arg(input).arg("-o").arg(output).stderr(Stdio::null());
    command
}

fn files() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let photo = fs::read(workspace_root().join("samples/photos/coffee.jpg")).unwrap();
    for i in 0..FILES {
        let content = if i % PICTURE_EVERY == 0 { &photo } else { &b"no picture"[..i % 11] };
        fs::write(folder.path().join(format!("{i}, \"x\".jpg")), content).unwrap();
    }
    folder
}

fn partial(output: &Path) -> PathBuf {
    format!("{}.partial", output.display()).into()
}

fn len(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |m| m.len())
}

/// Kills the job once the partial file has this length. False where the job ended before.
fn kill_at(mut child: Child, partial: &Path, bytes: u64) -> bool {
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert_eq!(status.code(), Some(3));
            return false;
        }
        if len(partial) >= bytes {
            child.kill().unwrap();
            return child.wait().unwrap().code().is_none();
        }
        sleep(Duration::from_micros(200));
    }
}

#[test]
fn a_job_killed_at_random_moments_loses_and_repeats_nothing() {
    let input = files();
    let out = tempfile::tempdir().unwrap();
    let mut random = Random::new(1);
    for extension in ["jsonl", "csv", "parquet"] {
        let whole = out.path().join(format!("whole.{extension}"));
        assert_eq!(job(input.path(), &whole).status().unwrap().code(), Some(3));
        let output = out.path().join(format!("killed.{extension}"));
        // What is spooled is about 100 bytes a row in every format.
        let spooled_bytes = FILES as u64 * 100;
        let mut killed = 0;
        for _ in 0..KILLS {
            let bytes = len(&partial(&output)) + random.below((spooled_bytes / KILLS as u64) as usize * 2) as u64;
            let child = job(input.path(), &output).arg("--resume").spawn().unwrap();
            if !kill_at(child, &partial(&output), bytes) {
                break;
            }
            killed += 1;
            assert!(!output.exists(), "it gets its name when it is complete");
        }
        println!("{extension}: killed {killed} times, the last time at {} bytes", len(&partial(&output)));
        assert!(killed >= 2, "{extension}: the job must have been killed under way");
        assert_eq!(job(input.path(), &output).arg("--resume").status().unwrap().code(), Some(3));
        assert!(fs::read(&output).unwrap() == fs::read(&whole).unwrap(), "{extension}: not what one run writes");
        assert!(!partial(&output).exists());
    }
}

#[test]
fn new_files_are_added_to_a_finished_output() {
    let input = tempfile::tempdir().unwrap();
    let out = tempfile::tempdir().unwrap();
    let output = out.path().join("x.jsonl");
    fs::write(input.path().join("2.jpg"), "").unwrap();
    assert_eq!(job(input.path(), &output).status().unwrap().code(), Some(3));
    assert_eq!(job(input.path(), &output).status().unwrap().code(), Some(2), "not unasked");
    fs::write(input.path().join("1.jpg"), "").unwrap();
    // The exit code still tells of the row that failed earlier.
    for _ in 0..2 {
        assert_eq!(job(input.path(), &output).arg("--resume").status().unwrap().code(), Some(3));
        let rows = fs::read_to_string(&output).unwrap();
        let ends: Vec<bool> = rows.lines().zip(["2.jpg", "1.jpg"]).map(|(row, name)| row.contains(name)).collect();
        assert_eq!(ends, [true, true], "{rows}");
    }
    assert_eq!(job(input.path(), &output).arg("--overwrite").status().unwrap().code(), Some(3));
    assert!(
        fs::read_to_string(&output)
            .unwrap()
            .starts_with(&format!("{{\"path\":\"{}", input.path().join("1.jpg").display()))
    );
}

#[test]
fn a_full_disk_keeps_every_whole_row() {
    let input = files();
    let disk = tempfile::tempdir().unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=16k", "none"]).arg(disk.path()).output();
    if !mount.as_ref().is_ok_and(|m| m.status.success()) {
        return skip("REQUIRE_MOUNT", &format!("cannot make a small file system: {mount:?}"));
    }
    let output = disk.path().join("x.jsonl");
    let full = job(input.path(), &output).stderr(Stdio::piped()).output();
    let kept = fs::read(partial(&output));
    let grown = Command::new("mount").args(["-o", "remount,size=1m"]).arg(disk.path()).status();
    let resumed = job(input.path(), &output).arg("--resume").status();
    let rows = fs::read_to_string(&output);
    let unmounted = Command::new("umount").arg(disk.path()).status();
    let full = full.unwrap();
    let message = String::from_utf8(full.stderr).unwrap();
    assert_eq!(full.status.code(), Some(1), "{message}");
    assert!(
        message.lines().count() == 1 && message.contains("--resume") && message.contains("No space left"),
        "{message}"
    );
    let kept = kept.unwrap();
    assert!(kept.len() > 8 << 10 && kept.ends_with(b"}\n"), "whole rows up to the end of the disk");
    assert!(grown.unwrap().success() && unmounted.unwrap().success());
    assert_eq!(resumed.unwrap().code(), Some(3));
    let rows = rows.unwrap();
    assert_eq!(rows.lines().count(), FILES);
    assert!(rows.as_bytes().starts_with(&kept));
}
