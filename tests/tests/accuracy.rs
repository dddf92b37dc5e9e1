//! The default model on labelled photos, through the command line.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use tests::{ocellus, test_data};

/// What the reference chain (Pillow, ONNX Runtime) reaches on these photos, less what a few undecided ones may cost.
const MIN_TOP1: f64 = 0.87;

/// File name to class.
fn read_labels(path: &Path) -> HashMap<String, u64> {
    let text = fs::read_to_string(path).unwrap();
    let rows = text.lines().skip(1).map(|line| line.split_once('\t').unwrap());
    rows.map(|(file, class)| (file.to_owned(), class.trim().parse().unwrap())).collect()
}

#[test]
fn efficientnet_lite0_on_imagenet_photos() {
    let Some(folder) = test_data("imagenet-500") else { return };
    let labels = read_labels(&folder.join("labels.tsv"));
    let output = ocellus().arg("classify").arg(&folder).args(["--format", "jsonl", "-q"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), labels.len(), "a row for every photo");
    let correct = |row: &&Value| {
        let name = Path::new(row["path"].as_str().unwrap()).file_name().unwrap().to_str().unwrap();
        row["top"][0]["class"].as_u64() == Some(labels[name])
    };
    let top1 = rows.iter().filter(correct).count() as f64 / rows.len() as f64;
    println!("top-1 {top1:.3} of {} photos", rows.len());
    assert!(top1 >= MIN_TOP1, "top-1 {top1:.3}");
}
