//! Reads what `--profile` writes, strictly.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

/// Something that a track did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Name of the process.
    pub process: String,
    /// Name of the track.
    pub track: String,
    /// Its own name.
    pub name: String,
    /// From the start of the recording, in nanoseconds.
    pub start_ns: u64,
    /// Not before the start.
    pub end_ns: u64,
    /// Images that it was about, where it says so.
    pub images: Option<u64>,
}

/// All spans of a trace, track by track in their order.
///
/// # Panics
/// Where it is no valid trace: no JSON array of complete events, a process or track without a name, a span that overlaps the
/// one before it on its track, a counter without a value.
pub fn spans(file: &Path) -> Vec<Span> {
    let text = std::fs::read_to_string(file).unwrap();
    let events: Vec<Value> = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let (mut processes, mut tracks) = (BTreeMap::new(), BTreeMap::new());
    let key = |event: &Value| (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
    for event in events.iter().filter(|event| event["ph"] == "M") {
        let (pid, tid) = key(event);
        let name = || event["args"]["name"].as_str().unwrap().to_owned();
        match event["name"].as_str().unwrap() {
            "process_name" => assert_eq!(processes.insert(pid, name()), None, "{event}"),
            "thread_name" => assert_eq!(tracks.insert((pid, tid), name()), None, "{event}"),
            "thread_sort_index" => assert!(event["args"]["sort_index"].is_u64(), "{event}"),
            other => panic!("{other}"),
        }
    }
    assert_eq!(tracks.keys().map(|(_, tid)| tid).collect::<BTreeSet<_>>().len(), tracks.len(), "numbers of tracks");
    let mut spans = BTreeMap::<_, Vec<Span>>::new();
    let ns = |us: &Value| (us.as_f64().filter(|us| us.is_finite() && *us >= 0.0).unwrap() * 1e3).round() as u64;
    for event in &events {
        let at = key(event);
        match event["ph"].as_str().unwrap() {
            "M" => {}
            "C" => assert!(event["args"]["places"].is_u64() && tracks.contains_key(&at) && ns(&event["ts"]) > 0),
            "X" => {
                let start_ns = ns(&event["ts"]);
                spans.entry(at).or_default().push(Span {
                    process: processes[&at.0].clone(),
                    track: tracks[&at].clone(),
                    name: event["name"].as_str().unwrap().to_owned(),
                    start_ns,
                    end_ns: start_ns + ns(&event["dur"]),
                    images: event["args"]["images"].as_u64(),
                });
            }
            other => panic!("an event {other}"),
        }
    }
    for track in spans.values() {
        for pair in track.windows(2) {
            // What is rounded to nanoseconds twice may differ by one.
            assert!(pair[0].end_ns <= pair[1].start_ns + 1, "{pair:?}");
        }
    }
    spans.into_values().flatten().collect()
}
