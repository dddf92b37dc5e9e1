//! README's figures of the GPU path are those of the run whose report is committed.

use std::fmt::Write as _;

use serde_json::Value;

/// Rows of README's table: the work in words, and its name in the report.
const ROWS: [(&str, &str); 21] = [
    ("files to labels, EfficientNet-Lite0, fp16, 500x375", "e2e.efficientnet-lite0.fp16.500x375"),
    ("files to labels, ResNet-50, fp16, 500x375", "e2e.resnet50.fp16.500x375"),
    ("files to labels, ResNet-50, fp16, 1920x1080", "e2e.resnet50.fp16.1920x1080"),
    ("two GPUs, files to labels, EfficientNet-Lite0, fp16, 500x375", "e2e.efficientnet-lite0.fp16.500x375.gpus2"),
    ("two GPUs, files to labels, ResNet-50, fp16, 500x375", "e2e.resnet50.fp16.500x375.gpus2"),
    ("decode on the JPEG engines, 500x375", "decode.hw.500x375"),
    ("decode on the JPEG engines, 1920x1080", "decode.hw.1920x1080"),
    ("read and decode as a job does it, 500x375", "decode.auto.500x375"),
    ("read and decode as a job does it, 1920x1080", "decode.auto.1920x1080"),
    ("network alone, ResNet-50, fp16, batch 256", "infer.resnet50.fp16.b256"),
    ("the same, batch 32", "infer.resnet50.fp16.b32"),
    ("the same, batch 1", "infer.resnet50.fp16.b1"),
    ("the same, batch 256, only kernels for every architecture", "infer.resnet50.fp16.portable.b256"),
    ("network alone, EfficientNet-Lite0, fp16, batch 256", "infer.efficientnet-lite0.fp16.b256"),
    ("preprocess 500x375 to 224, fp16, batch 256", "preprocess.500x375.224.f16.b256"),
    ("preprocess 1920x1080 to 640, fp16, batch 256", "preprocess.1920x1080.640.f16.b256"),
    ("one 500x375 file at a time to labels, EfficientNet-Lite0, median", "latency.efficientnet-lite0.fp16.p50"),
    ("the same, the slowest of a hundred", "latency.efficientnet-lite0.fp16.p99"),
    ("from nothing to a network that runs, no kernel compiled before", "startup.efficientnet-lite0.fp16.cold"),
    ("the same with compiled kernels", "startup.efficientnet-lite0.fp16.warm"),
    ("from there to the first decoded picture", "startup.efficientnet-lite0.fp16.decoders"),
];

/// A whole number with commas between thousands.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The table that README must have for a report; a row for each figure that the run measured.
fn table(report: &Value) -> String {
    let mut table = "| work | Ocellus | the fastest of the others, same run | ratio |\n|---|---|---|---|\n".to_owned();
    let results = report["results"].as_array().unwrap();
    for (work, name) in ROWS {
        let Some(result) = results.iter().find(|result| result["name"] == name) else { continue };
        let value = result["value"].as_f64().unwrap();
        let figure = match result["unit"].as_str() {
            Some(unit @ ("s" | "ms")) => format!("{value:.2} {unit}"),
            _ => format!("{} img/s", grouped(value)),
        };
        let (peer, ratio) = match (result["peer"].as_str(), result["peer_value"].as_f64()) {
            (Some(peer), Some(other)) => (format!("{peer} {}", grouped(other)), format!("{:.2}", value / other)),
            _ => Default::default(),
        };
        writeln!(table, "| {work} | {figure} | {peer} | {ratio} |").unwrap();
    }
    table
}

/// What README does not say as the report does.
pub(crate) fn broken(readme: &str, report: &Value) -> Vec<String> {
    let mut broken = Vec::new();
    let table = table(report);
    if !readme.contains(&table) {
        broken.push(format!("README.md: \"Speed on a GPU\" needs the table\n\n{table}"));
    }
    let run = format!("the others in the same run as Ocellus ({}, medians;", report["date"].as_str().unwrap());
    if !readme.contains(&run) {
        broken.push(format!("README.md: \"Speed on a GPU\" needs the words \"{run}\""));
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_have_commas() {
        for (value, text) in
            [(0.4, "0"), (999.0, "999"), (1_000.4, "1,000"), (46_635.265, "46,635"), (1e6, "1,000,000")]
        {
            assert_eq!(grouped(value), text);
        }
    }

    #[test]
    fn other_figures_and_dates_are_seen() {
        let result = |value: f64| json!({ "name": "decode.hw.500x375", "value": value, "unit": "img/s", "peer": "p", "peer_value": 2e4 });
        let report = |value| json!({ "date": "2026-11-30", "results": [result(value)] });
        let row = "| decode on the JPEG engines, 500x375 | 30,000 img/s | p 20,000 | 1.50 |\n";
        let readme = format!("the others in the same run as Ocellus (2026-11-30, medians;\n{}", table(&report(3e4)));
        assert!(readme.ends_with(row), "{readme}");
        assert_eq!(broken(&readme, &report(3e4)), Vec::<String>::new());
        assert_eq!(broken(&readme, &report(30_001.0)).len(), 1);
        assert_eq!(broken("", &report(3e4)).len(), 2);
    }
}
