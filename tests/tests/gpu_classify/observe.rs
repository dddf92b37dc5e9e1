//! What `--profile` and `--metrics` say of the GPU.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::Value;
use tests::skip;
use tests::trace::{Span, spans};

use super::{Fixture, folder_of_emulator, photo};

#[test]
fn a_profile_shows_what_the_gpu_did_to_which_images() {
    /// That the clocks of host and GPU may differ by.
    const APART_NS: u64 = 1_000_000;
    let Some(fixture) = Fixture::new() else { return };
    let photos = ["panda.jpg", "flower.jpg", "astronaut.jpg", "rocket.jpg"].map(photo);
    let files: Vec<_> = photos.iter().cycle().take(10).cloned().collect();
    let (trace, stats) = (fixture.path("trace.json"), fixture.path("stats.json"));
    let figures = ["--batch", "4", "--profile", trace.to_str().unwrap(), "--stats", stats.to_str().unwrap()];
    fixture.rows("cuda", &files, &figures);
    let stats: Value = serde_json::from_str(&fs::read_to_string(stats).unwrap()).unwrap();
    let wall_ns = (stats["wall_s"].as_f64().unwrap() * 1e9) as u64;
    let spans = spans(&trace);
    let (gpu, host): (Vec<_>, Vec<_>) = spans.iter().partition(|span| span.process == "cuda:0");
    assert!(host.iter().all(|span| span.process == "ocellus"));
    assert!(spans.iter().all(|span| span.end_ns <= wall_ns), "in the job");
    for step in ["decode", "preprocess", "network", "top k"] {
        let images: u64 = gpu.iter().filter(|span| span.name == step).map(|span| span.images.unwrap()).sum();
        assert_eq!(images, files.len() as u64, "{step}: {gpu:?}");
    }
    // Decoding is waited for by the stage that asks for it, so it lies within.
    let within = |inner: &Span, outer: &Span| {
        outer.start_ns <= inner.start_ns + APART_NS && inner.end_ns <= outer.end_ns + APART_NS
    };
    for decode in gpu.iter().filter(|span| span.name == "decode") {
        assert!(decode.track.starts_with("decode "), "{decode:?}");
        assert!(host.iter().any(|span| span.name == "load" && within(decode, span)), "{decode:?}: {host:?}");
    }
    // One batch after another on the stream of the network.
    let steps: Vec<&str> = gpu.iter().filter(|span| span.track == "network").map(|span| span.name.as_str()).collect();
    assert!(steps.len() >= 9 && steps.chunks(3).all(|batch| batch == ["preprocess", "network", "top k"]), "{steps:?}");
}

#[test]
fn metrics_have_the_figures_of_the_gpu() {
    let Some(fixture) = Fixture::new() else { return };
    let emulator = folder_of_emulator();
    if emulator.as_ref().is_some_and(|folder| !folder.join("libnvidia-ml.so.1").exists()) {
        return skip("REQUIRE_NVML", "an emulator without NVML");
    }
    let mut command = fixture.command("cuda", &["-".into()], &["--metrics", "127.0.0.1:0"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut job = command.spawn().unwrap();
    let mut list = job.stdin.take().unwrap();
    writeln!(list, "{}", photo("panda.jpg").display()).unwrap();
    let mut errors = BufReader::new(job.stderr.take().unwrap()).lines().map(Result::unwrap);
    let address =
        errors.find_map(|line| Some(line.strip_prefix("metrics: http://")?.strip_suffix("/metrics")?.to_owned()));
    let mut rows = BufReader::new(job.stdout.take().unwrap()).lines();
    assert!(rows.next().unwrap().unwrap().contains("nvjpeg"));
    let mut client = TcpStream::connect(address.unwrap()).unwrap();
    client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut page = String::new();
    client.read_to_string(&mut page).unwrap();
    drop(list);
    assert!(job.wait().unwrap().success());
    let figure = |name: &str| {
        let start = format!("ocellus_gpu_{name}{{gpu=\"cuda:0\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&start)).map(|value| value.parse::<f64>().unwrap())
    };
    let told = ["utilization_ratio", "jpeg_utilization_ratio", "memory_used_bytes", "memory_total_bytes"].map(figure);
    let felt = ["temperature_celsius", "power_watts"].map(figure);
    if emulator.is_some() {
        assert_eq!(told, [0.87, 0.55, 3.0 * f64::from(1 << 30), 8.0 * f64::from(1 << 30)].map(Some), "{page}");
        assert_eq!(felt, [41.0, 123.456].map(Some), "{page}");
    } else if let [_, _, Some(used), Some(total)] = told {
        assert!(0.0 < used && used <= total, "{page}");
    }
}
