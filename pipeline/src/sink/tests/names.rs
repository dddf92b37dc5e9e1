//! The name that a complete output gets, and what others do with it and with the partial file meanwhile.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

/// Puts something under the name, as another program does: never by writing into what is there.
fn appear(what: &str, path: &Path) {
    let new = path.with_extension("new");
    match what {
        "a file" => fs::write(&new, "foreign").unwrap(),
        "an empty file" => fs::write(&new, "").unwrap(),
        "a folder" => fs::create_dir(&new).unwrap(),
        "a link" => symlink("nowhere", &new).unwrap(),
        _ => unreachable!("{what}"),
    }
    fs::rename(&new, path).unwrap();
}

const APPEAR: [&str; 4] = ["a file", "an empty file", "a folder", "a link"];

#[test]
fn what_appears_under_the_name_meanwhile_is_not_replaced_unasked() {
    let row = &sample_rows()[0];
    for (extension, _) in FORMATS {
        // Of a new output, of one that is continued from a partial file, and of a finished one that is continued.
        for (start, existing) in [
            ("new", Existing::Refuse),
            ("new", Existing::Resume),
            ("partial", Existing::Resume),
            ("whole", Existing::Resume),
        ] {
            for what in APPEAR {
                let case = format!("{extension}, {start}, {existing:?}, {what}");
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join(format!("x.{extension}"));
                let mut expected = 1;
                if start != "new" {
                    expected = 2;
                    let (mut writer, _) = open(&path, Existing::Refuse).unwrap();
                    writer.write(row).unwrap();
                    if start == "whole" { writer.finish().unwrap() } else { drop(writer.abandon()) }
                }
                let (mut writer, _) = open(&path, existing).unwrap();
                writer.write(row).unwrap();
                if start == "whole" && what == "a folder" && path.exists() {
                    // A finished Parquet file keeps its name meanwhile.
                    fs::remove_file(&path).unwrap();
                }
                appear(what, &path);
                let id = path.symlink_metadata().unwrap().ino();
                let error = writer.finish().unwrap_err().to_string();
                assert!(error.contains("appeared") && error.contains("--resume"), "{case}: {error}");
                assert_eq!(path.symlink_metadata().unwrap().ino(), id, "{case}: it is still there");
                assert_eq!(fs::metadata(partial(&path)).unwrap().permissions().mode() & 0o111, 0, "{case}");
                assert!(!folder.path().join(format!("x.{extension}.partial.tmp")).exists(), "{case}");
                // As the message says.
                fs::rename(&path, folder.path().join("away")).unwrap();
                let (writer, earlier) = open(&path, Existing::Resume).unwrap();
                assert_eq!(earlier.rows(), expected, "{case}: no row is lost");
                writer.finish().unwrap();
                assert!(path.is_file() && !partial(&path).exists(), "{case}");
            }
        }
    }
}

#[test]
fn what_appears_meanwhile_is_replaced_where_that_was_asked_for() {
    for (extension, _) in FORMATS {
        for what in APPEAR {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(format!("x.{extension}"));
            let (mut writer, _) = open(&path, Existing::Overwrite).unwrap();
            writer.write(&sample_rows()[0]).unwrap();
            appear(what, &path);
            // Only what is a file can be meant.
            let replaced = writer.finish().is_ok();
            assert_eq!(replaced, what.ends_with("file"), "{extension}, {what}");
            assert_eq!(partial(&path).exists(), !replaced, "{extension}, {what}");
        }
    }
}

#[test]
fn a_partial_file_that_was_taken_away_is_not_promised() {
    for (extension, _) in FORMATS {
        for replaced in [false, true] {
            for finished in [false, true] {
                let case = format!("{extension}, replaced: {replaced}, finished: {finished}");
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join(format!("x.{extension}"));
                let (mut writer, _) = open(&path, Existing::Refuse).unwrap();
                writer.write(&sample_rows()[0]).unwrap();
                fs::remove_file(partial(&path)).unwrap();
                if replaced {
                    fs::write(partial(&path), "of another job").unwrap();
                }
                writer.write(&sample_rows()[1]).unwrap();
                if finished {
                    let error = writer.finish().unwrap_err().to_string();
                    assert!(error.contains("removed") && !error.contains("--resume"), "{case}: {error}");
                } else {
                    assert_eq!(writer.abandon(), None, "{case}");
                }
                assert!(!path.exists(), "{case}");
                let left = fs::read_to_string(partial(&path)).ok();
                assert_eq!(left.as_deref(), replaced.then_some("of another job"), "{case}");
            }
        }
    }
}
