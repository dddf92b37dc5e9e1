//! What README and samples/README.md promise about the files in `samples/`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tests::{ocellus, workspace_root};

/// All tracked files together; the project stays small enough to clone in seconds.
const MAX_TRACKED_BYTES: u64 = 40 << 20;

/// Rows of `ocellus classify samples/photos ARGUMENTS...` by file name.
fn classify_photos(arguments: &[&str]) -> BTreeMap<String, Value> {
    let output = ocellus().args(["classify", "samples/photos"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = String::from_utf8(output.stdout).unwrap();
    let name = |row: &Value| Path::new(row["path"].as_str().unwrap()).file_name().unwrap().to_str().unwrap().to_owned();
    rows.lines().map(|line| serde_json::from_str(line).unwrap()).map(|row| (name(&row), row)).collect()
}

/// The first column of the table rows in samples/README.md that name a photo, with the size in the second.
fn listed_photos() -> BTreeMap<String, (u64, u64)> {
    let readme = fs::read_to_string(workspace_root().join("samples/README.md")).unwrap();
    let photo = |line: &str| {
        let mut cells = line.split('|').map(str::trim);
        let name = cells.nth(1)?.trim_matches('`').to_owned();
        let (width, height) = cells.next()?.split_once('x')?;
        Some((name, (width.parse().ok()?, height.parse().ok()?)))
    };
    readme.lines().filter_map(photo).collect()
}

#[test]
fn photos_get_their_labels() {
    // A pipe gets JSON lines without being asked.
    let rows = classify_photos(&[]);
    let listed = listed_photos();
    assert_eq!(rows.keys().collect::<Vec<_>>(), listed.keys().collect::<Vec<_>>());
    for (name, row) in &rows {
        assert_eq!((row["width"].as_u64().unwrap(), row["height"].as_u64().unwrap()), listed[name], "{name}");
        let scores: Vec<f64> = row["top"].as_array().unwrap().iter().map(|t| t["score"].as_f64().unwrap()).collect();
        assert!(scores.is_sorted_by(|a, b| a >= b) && scores.iter().sum::<f64>() <= 1.001, "{name}: {scores:?}");
    }
    let first = |name: &str| rows[name]["top"][0]["label"].as_str().unwrap();
    assert_eq!(first("panda.jpg"), "giant panda");
    assert_eq!(first("coffee.jpg"), "espresso");
    assert_eq!(first("crocodile.jpg"), "Nile crocodile");
    assert_eq!(first("china.jpg"), "palace");
    assert!(["tiger cat", "tabby cat", "Egyptian Mau"].contains(&first("cat_chelsea.jpg")));
    assert!(rows["panda.jpg"]["top"][0]["score"].as_f64().unwrap() > 0.9);
}

#[test]
fn the_second_model_knows_the_panda_too() {
    let rows = classify_photos(&["--model", "configs/models/squeezenet1.1.toml"]);
    assert_eq!(rows["panda.jpg"]["top"][0]["label"], "giant panda");
}

#[test]
fn every_sample_has_its_licence_stated() {
    let samples = workspace_root().join("samples");
    let readme = fs::read_to_string(samples.join("README.md")).unwrap();
    for folder in ["models", "labels", "photos", "licences"] {
        for entry in fs::read_dir(samples.join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(readme.contains(&name), "samples/README.md does not mention {folder}/{name}");
        }
    }
}

#[test]
fn readme_names_the_two_commands() {
    let readme = fs::read_to_string(workspace_root().join("README.md")).unwrap();
    for command in ["cargo run --release -- classify samples/photos", "tests/run.sh"] {
        assert!(readme.contains(command), "{command}");
    }
}

#[test]
fn the_repository_stays_small() {
    let listing = Command::new("git").args(["ls-files", "-z"]).current_dir(workspace_root()).output();
    let Some(listing) = listing.ok().filter(|output| output.status.success()) else {
        tests::skip("REQUIRE_TEST_DATA", "not a git checkout");
        return;
    };
    let names = String::from_utf8_lossy(&listing.stdout).into_owned();
    let sizes =
        names.split_terminator('\0').map(|name| fs::metadata(workspace_root().join(name)).map_or(0, |m| m.len()));
    let total: u64 = sizes.sum();
    assert!(total > 0 && total < MAX_TRACKED_BYTES, "{total} bytes tracked");
}
