//! What the program writes and how it ends: figures, rows, tables, and what others do with them meanwhile.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use tests::ocellus;
use tests::program::{self, photo, text};

const OPTIONS: [&str; 2] = ["--stats", "--profile"];

/// `ocellus classify` on the CPU, of a photo and a file that is not there.
fn classify(arguments: &[&OsStr]) -> Command {
    let mut command = program::classify(&["-q", "--device", "cpu", "none.jpg"]);
    command.arg(photo("panda.jpg")).args(arguments);
    command
}

fn fifo(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

fn said(output: &Output) -> String {
    text(&output.stderr)
}

#[test]
fn a_reader_of_figures_that_leaves_is_told() {
    for option in OPTIONS {
        for more in [&[][..], &["-o", "rows.jsonl"]] {
            let folder = tempfile::tempdir().unwrap();
            let figures = fifo(folder.path(), "figures");
            let mut job = classify(&[option.as_ref(), figures.as_os_str()]);
            job.args(more.iter().map(|arg| if arg.starts_with('-') { (*arg).into() } else { folder.path().join(arg) }));
            let reader = figures.clone();
            let reader = thread::spawn(move || File::open(reader).map(drop));
            let output = job.output().unwrap();
            reader.join().unwrap().unwrap();
            assert_eq!(output.status.code(), Some(1), "{option} {more:?}: {}", said(&output));
            assert!(said(&output).contains("Broken pipe"), "{option} {more:?}: {}", said(&output));
        }
    }
}

#[test]
fn a_reader_of_rows_and_tables_that_leaves_ends_it_quietly() {
    let code = |mut command: Command| {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let errors = said(&output).lines().filter(|line| line.starts_with("error")).count();
        (output.status.code(), errors)
    };
    let command = |arguments: &[&str]| {
        let mut command = ocellus();
        command.args(arguments);
        command
    };
    assert_eq!(code(classify(&[])), (Some(0), 0));
    assert_eq!(code(command(&["inspect", "squeezenet1.1"])), (Some(0), 0));
    assert_eq!(code(command(&["cache", "list"])), (Some(0), 0));
    let mut parity = command(&["parity", "--model", "squeezenet1.1", "--device", "cpu"]);
    parity.arg(photo("panda.jpg"));
    assert_eq!(code(parity), (Some(0), 0));
    // What somebody else should have got is another matter.
    for option in OPTIONS {
        assert_eq!(code(classify(&[option.as_ref(), "/dev/full".as_ref()])), (Some(1), 1), "{option}");
    }
}
