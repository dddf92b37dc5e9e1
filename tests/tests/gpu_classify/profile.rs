//! What `--profile` says of the GPU.

use std::fs;

use serde_json::Value;
use tests::trace::{Span, spans};

use super::{Fixture, photo};

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
