//! Disks that fill up.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tests::job::with_limit;
use tests::skip;

use super::{Fixture, device, errors, folder_of, text};

const FILES: usize = 300;
const FORMATS: [&str; 3] = ["jsonl", "csv", "parquet"];

/// A small file system of the test's own.
struct Disk(tempfile::TempDir);

impl Disk {
    /// `None`, with the reason printed, where none can be made.
    fn new(kib: usize) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={kib}k");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(folder.path()).output();
        if !mount.as_ref().is_ok_and(|m| m.status.success()) {
            skip("REQUIRE_MOUNT", &format!("cannot make a small file system: {mount:?}"));
            return None;
        }
        Some(Self(folder))
    }

    fn resize(&self, kib: usize) {
        let size = format!("remount,size={kib}k");
        assert!(Command::new("mount").args(["-o", &size]).arg(self.0.path()).status().unwrap().success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

fn partial(output: &Path) -> PathBuf {
    format!("{}.partial", output.display()).into()
}

/// The one line that a job that ran out of room says.
fn no_room(output: &Output, reason: &str) -> String {
    assert_eq!(output.status.code(), Some(1), "{:?}: {}", output.status, text(&output.stderr));
    let said = errors(&output.stderr);
    assert!(said.len() == 1 && said[0].starts_with("error: ") && said[0].contains(reason), "{said:?}");
    said[0].clone()
}

#[test]
fn a_disk_that_fills_up_keeps_whole_rows_and_the_job_goes_on_when_there_is_room() {
    if device() != "cpu" {
        return;
    }
    let fixture = Fixture::new();
    let input = [folder_of(&fixture, "many", FILES)];
    for format in FORMATS {
        let job = |output: &Path| {
            fixture.command(&input, &["-q", "--resume", "-o", output.to_str().unwrap()]).output().unwrap()
        };
        let whole = fixture.path(&format!("whole.{format}"));
        assert_eq!(job(&whole).status.code(), Some(3));
        let Some(disk) = Disk::new(16) else { return };
        let output = disk.0.path().join(format!("x.{format}"));
        let mut kept = Vec::new();
        // From page to page, so that it fills up wherever it can: in the header, in rows, and in the file that Parquet's
        // rows are written to in the end.
        let mut full = 0;
        for kib in (4..1000).step_by(12) {
            disk.resize(kib);
            let ended = job(&output);
            if ended.status.code() == Some(3) {
                break;
            }
            full += 1;
            let line = no_room(&ended, "No space left");
            assert!(line.contains(output.to_str().unwrap()), "{line}");
            assert!(!output.exists() && !disk.0.path().join(format!("x.{format}.partial.tmp")).exists());
            let now = fs::read(partial(&output)).unwrap_or_default();
            assert!(now.starts_with(&kept) && (now.is_empty() || now.ends_with(b"\n")), "{format}: rows were lost");
            kept = now;
        }
        assert!(full >= 3, "{format}: {full}");
        assert!(fs::read(&output).unwrap() == fs::read(&whole).unwrap(), "{format}: not what one run writes");
        assert!(!partial(&output).exists());
    }
}

/// `ulimit -f`: the system sends a signal that would end the process on the spot.
#[test]
fn a_limit_on_the_size_of_files_is_as_a_full_disk() {
    if device() != "cpu" {
        return;
    }
    let fixture = Fixture::new();
    let input = [folder_of(&fixture, "many", FILES)];
    for format in FORMATS {
        let output = fixture.path(&format!("x.{format}"));
        let job = fixture.command(&input, &["-q", "--resume", "-o", output.to_str().unwrap()]);
        let limited = |limit: &str| with_limit(&job, limit).output().unwrap();
        let line = no_room(&limited("-f 16"), "File too large");
        assert!(line.contains("--resume"), "{line}");
        assert!(fs::read(partial(&output)).unwrap().ends_with(b"\n"));
        assert_eq!(limited("-f unlimited").status.code(), Some(3));
        assert!(!partial(&output).exists());
        let whole = fixture.path(&format!("whole.{format}"));
        let mut job = fixture.command(&input, &["-q", "-o", whole.to_str().unwrap()]);
        assert_eq!(job.output().unwrap().status.code(), Some(3));
        assert!(fs::read(&output).unwrap() == fs::read(&whole).unwrap(), "{format}: not what one run writes");
    }
}

#[test]
fn figures_that_find_no_room_are_an_error_and_the_rows_are_there() {
    if device() != "cpu" {
        return;
    }
    let fixture = Fixture::new();
    let input = [folder_of(&fixture, "many", 20)];
    let Some(disk) = Disk::new(4) else { return };
    // The one page that there is.
    fs::write(disk.0.path().join("page"), [0; 4096]).unwrap();
    let (stats, rows) = (disk.0.path().join("stats.json"), fixture.path("rows.jsonl"));
    let options = ["-q", "--stats", stats.to_str().unwrap(), "-o", rows.to_str().unwrap()];
    let ended = fixture.command(&input, &options).output().unwrap();
    let line = no_room(&ended, "No space left");
    assert!(line.contains(stats.to_str().unwrap()), "{line}");
    assert_eq!(fs::read_to_string(&rows).unwrap().lines().count(), 20);
    // Nothing of it is in the way of the next job.
    disk.resize(64);
    let again = fixture.command(&input, &[&options[..], &["--overwrite"]].concat()).output().unwrap();
    assert_eq!(again.status.code(), Some(3), "{}", text(&again.stderr));
    assert!(serde_json::from_slice::<serde_json::Value>(&fs::read(&stats).unwrap()).is_ok());
}
