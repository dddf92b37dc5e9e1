//! Inputs that are large, strange or hostile, through the command line.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tests::job::make_pipe;
use tests::program::{self, photo, rows};
use tests::skip;

fn classify(inputs: &[&Path]) -> Command {
    let mut command = program::classify(&[]);
    command.args(inputs);
    command
}

/// File names of the rows, `name: kind` for errors.
fn outcomes(output: &Output) -> Vec<String> {
    let outcome = |row: Value| {
        let name = Path::new(row["path"].as_str().unwrap()).file_name().unwrap().to_str().unwrap().to_owned();
        row["error"]["kind"].as_str().map_or(name.clone(), |kind| format!("{name}: {kind}"))
    };
    rows(output).into_iter().map(outcome).collect()
}

#[test]
fn memory_does_not_grow_with_the_number_of_files() {
    // In memory where possible: a disk takes long over so many files.
    let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let peak = |files: u32| {
        let folder = root.path().join(files.to_string());
        fs::create_dir(&folder).unwrap();
        for i in 0..files {
            // Not in the order of their names.
            File::create(folder.join(format!("photo{}.jpg", (u64::from(i) * 7919) % u64::from(files)))).unwrap();
        }
        let stats = root.path().join("stats.json");
        let output = root.path().join(format!("{files}.jsonl"));
        let status = classify(&[&folder]).arg("-q").arg("-o").arg(&output).arg("--stats").arg(&stats).status().unwrap();
        assert_eq!(status.code(), Some(3));
        let rows = fs::read_to_string(&output).unwrap();
        let names = rows.lines().map(|line| line.split('"').nth(3).unwrap());
        let expected = (0..files).map(|i| folder.join(format!("photo{i}.jpg")));
        assert!(names.map(Path::new).eq(expected), "natural order");
        let stats: Value = serde_json::from_str(&fs::read_to_string(stats).unwrap()).unwrap();
        stats["peak_memory_bytes"].as_u64().unwrap()
    };
    let (few, many) = (peak(2_000), peak(200_000));
    println!("peak memory: {few} bytes for 2,000 files, {many} for 200,000");
    assert!(many < few + (16 << 20), "{few} bytes for 2,000 files, {many} for 200,000");
}

#[test]
fn strange_files_get_a_row_or_are_counted() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    let panda = photo("panda.jpg");
    fs::copy(&panda, path("photo.jpg")).unwrap();
    fs::copy(&panda, root.path().join(OsStr::from_bytes(b"\xff\xfe.jpg"))).unwrap();
    fs::write(path("zero.jpg"), "").unwrap();
    symlink("nowhere", path("broken.jpg")).unwrap();
    symlink("round.jpg", path("round.jpg")).unwrap();
    symlink(".", path("self")).unwrap();
    make_pipe(&path("pipe.jpg"));
    let output = classify(&[root.path()]).output().unwrap();
    let expected = ["broken.jpg: not-found", "photo.jpg", "round.jpg: io", "zero.jpg: empty", "\u{fffd}\u{fffd}.jpg"];
    assert_eq!(outcomes(&output), expected);
    let odd = rows(&output)[4]["path_bytes"].as_str().unwrap().to_owned();
    assert!(odd.ends_with("fffe2e6a7067"), "{odd}");
    let summary = String::from_utf8(output.stderr).unwrap();
    assert!(summary.contains("2 skipped (1 pipes or devices, 1 links to folders already seen)"), "{summary}");
    // Named, they get rows, and a pipe does not keep the job waiting.
    let named = classify(&[&path("pipe.jpg"), Path::new("/dev/zero"), &path("zero.jpg")]).output().unwrap();
    assert_eq!(outcomes(&named), ["pipe.jpg: unsupported", "zero: unsupported", "zero.jpg: empty"]);
}

#[test]
fn what_may_not_be_read_gets_a_row() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    fs::create_dir(path("closed")).unwrap();
    fs::write(path("closed/inside.jpg"), "x").unwrap();
    fs::copy(photo("panda.jpg"), path("open.jpg")).unwrap();
    fs::write(path("secret.jpg"), "x").unwrap();
    let mode = |name: &str, bits| fs::set_permissions(path(name), PermissionsExt::from_mode(bits)).unwrap();
    mode("", 0o755);
    mode("closed", 0o000);
    mode("secret.jpg", 0o000);
    let mut command = classify(&[root.path()]);
    if File::open(path("secret.jpg")).is_ok() {
        // The administrator may read everything: run as nobody.
        command.uid(65534).gid(65534);
    }
    let output = command.output();
    mode("closed", 0o755);
    match output {
        Ok(output) if output.status.code() == Some(3) => {
            let expected = ["closed: permission-denied", "open.jpg", "secret.jpg: permission-denied"];
            assert_eq!(outcomes(&output), expected);
        }
        other => skip("REQUIRE_NOBODY", &format!("the program cannot run as nobody: {other:?}")),
    }
}

#[test]
fn a_list_on_standard_input() {
    let root = tempfile::tempdir().unwrap();
    let odd = root.path().join(OsStr::from_bytes(b"\xff.jpg"));
    fs::write(&odd, "").unwrap();
    fs::create_dir(root.path().join("folder")).unwrap();
    fs::write(root.path().join("folder/a b.jpg"), "").unwrap();
    let mut list = Vec::new();
    for path in [&odd, &root.path().join("folder"), &root.path().join("none.jpg")] {
        list.extend(path.as_os_str().as_bytes());
        list.extend(b"\r\n\n");
    }
    let file = root.path().join("list");
    fs::write(&file, list).unwrap();
    let output = classify(&[Path::new("-")]).stdin(File::open(&file).unwrap()).output().unwrap();
    assert_eq!(outcomes(&output), ["\u{fffd}.jpg: empty", "a b.jpg: empty", "none.jpg: not-found"]);
    let nothing = classify(&[Path::new("-")]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(nothing.status.code(), Some(1));
}
