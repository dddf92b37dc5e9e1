//! A job's trace: what every thread and every stream of a GPU did when, as Chrome trace events, which `ui.perfetto.dev` and
//! `chrome://tracing` open.
//!
//! Events go to the file while the job runs, so memory does not grow with it. The file is a JSON array; both programs
//! also open one whose end is missing because the process was killed.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

/// Events that a track holds before it writes them.
const BUFFERED: usize = 1024;
/// Most events in a file, about 100 bytes each: what comes later is only counted. Perfetto opens no larger ones.
pub const MOST_EVENTS: u64 = 4_000_000;
/// What a file begins with.
pub const START: &[u8] = b"[\n{\"name\":\"process_name\"";

/// Records what a job does, or nothing. Clones record the same job.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Option<Arc<Shared>>);

/// What was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Events in the file.
    pub events: u64,
    /// Events that came after [`MOST_EVENTS`] and are not in it.
    pub left_out: u64,
}

#[derive(Debug)]
struct Shared {
    started: Instant,
    left: AtomicU64,
    left_out: AtomicU64,
    file: Mutex<TraceFile>,
}

#[derive(Debug)]
struct TraceFile {
    // None when it is complete or has failed.
    out: Option<BufWriter<File>>,
    failure: Option<io::Error>,
    processes: Vec<String>,
    tracks: u64,
}

/// Something that does one thing after another: a thread, a stream. What it did is written when it is dropped at the latest.
#[derive(Debug, Default)]
pub struct Track(Option<Recording>);

#[derive(Debug)]
struct Recording {
    shared: Arc<Shared>,
    process: u64,
    id: u64,
    events: RefCell<Vec<Event>>,
    /// End of the last span.
    ended_ns: Cell<u64>,
    /// Places that the queue had last.
    places: Cell<Option<usize>>,
}

#[derive(Debug)]
enum Event {
    Span { name: &'static str, start_ns: u64, length_ns: u64, images: Option<u64> },
    Counter { name: &'static str, at_ns: u64, value: u64 },
}

/// An event as the file has it; times in microseconds.
#[derive(Serialize)]
struct Written<'a> {
    name: &'a str,
    ph: &'static str,
    pid: u64,
    tid: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Args::is_empty")]
    args: Args<'a>,
}

#[derive(Default, Serialize)]
struct Args<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sort_index: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    images: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    places: Option<u64>,
}

impl Args<'_> {
    fn is_empty(&self) -> bool {
        self.name.is_none() && self.sort_index.is_none() && self.images.is_none() && self.places.is_none()
    }
}

impl TraceFile {
    fn write(&mut self, event: &Written<'_>) {
        let Some(out) = &mut self.out else { return };
        let comma =
            if self.tracks == 0 && self.processes.len() <= 1 && event.name == "process_name" { "" } else { ",\n" };
        let written =
            out.write_all(comma.as_bytes()).and_then(|()| serde_json::to_writer(out, event).map_err(io::Error::from));
        if let Err(error) = written {
            self.failure.get_or_insert(error);
            self.out = None;
        }
    }

    fn metadata(&mut self, what: &str, (pid, tid): (u64, u64), args: Args<'_>) {
        self.write(&Written { name: what, ph: "M", pid, tid, ts: None, dur: None, args });
    }

    /// Number of a process of this name.
    fn process(&mut self, name: &str) -> u64 {
        if let Some(known) = self.processes.iter().position(|process| process == name) {
            return known as u64 + 1;
        }
        self.processes.push(name.to_owned());
        let pid = self.processes.len() as u64;
        self.metadata("process_name", (pid, 0), Args { name: Some(name), ..Args::default() });
        pid
    }
}

impl Shared {
    fn file(&self) -> std::sync::MutexGuard<'_, TraceFile> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ns(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.started).as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Recorder {
    /// Records into this file, from its beginning. `program` is what the host's tracks are called.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn to_file(file: File, program: &str) -> io::Result<Self> {
        let mut out = BufWriter::new(file);
        out.write_all(b"[\n")?;
        let mut file = TraceFile { out: Some(out), failure: None, processes: Vec::new(), tracks: 0 };
        file.process(program);
        let (left, left_out) = (AtomicU64::new(MOST_EVENTS), AtomicU64::new(0));
        Ok(Self(Some(Arc::new(Shared { started: Instant::now(), left, left_out, file: Mutex::new(file) }))))
    }

    /// True where something is recorded.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// A track of the program itself.
    pub fn track(&self, name: &str) -> Track {
        self.track_of(None, name)
    }

    /// A track of something else, such as a GPU.
    pub fn track_of(&self, process: Option<&str>, name: &str) -> Track {
        Track(self.0.as_ref().map(|shared| {
            let mut file = shared.file();
            let process = process.map_or(1, |process| file.process(process));
            file.tracks += 1;
            let id = file.tracks;
            file.metadata("thread_name", (process, id), Args { name: Some(name), ..Args::default() });
            file.metadata("thread_sort_index", (process, id), Args { sort_index: Some(id), ..Args::default() });
            let events = RefCell::new(Vec::with_capacity(BUFFERED));
            Recording {
                shared: Arc::clone(shared),
                process,
                id,
                events,
                ended_ns: Cell::new(0),
                places: Cell::new(None),
            }
        }))
    }

    /// Completes the file; `None` where nothing is recorded. What tracks hold that are still there is lost.
    ///
    /// # Errors
    /// Where the file could not be written.
    pub fn finish(&self) -> io::Result<Option<Recorded>> {
        let Some(shared) = &self.0 else { return Ok(None) };
        let mut file = shared.file();
        if let Some(error) = file.failure.take() {
            return Err(error);
        }
        if let Some(mut out) = file.out.take() {
            out.write_all(b"\n]\n").and_then(|()| out.flush())?;
        }
        let events = MOST_EVENTS - shared.left.load(Relaxed);
        Ok(Some(Recorded { events, left_out: shared.left_out.load(Relaxed) }))
    }
}

impl Track {
    /// Something that lasted from `started` until now.
    pub fn span(&self, name: &'static str, started: Instant) {
        if self.0.is_some() {
            self.span_between(name, [started, Instant::now()], None);
        }
    }

    /// Something that lasted from the first to the second moment, over so many images. What began before the last span had
    /// ended begins there: a track does one thing at a time, and the clocks of host and GPU differ by microseconds.
    pub fn span_between(&self, name: &'static str, [start, end]: [Instant; 2], images: Option<u64>) {
        let Some(recording) = &self.0 else { return };
        let start_ns = recording.shared.ns(start).max(recording.ended_ns.get());
        let end_ns = recording.shared.ns(end).max(start_ns);
        recording.ended_ns.set(end_ns);
        recording.push(Event::Span { name, start_ns, length_ns: end_ns - start_ns, images });
    }

    /// So many places are taken in the queue before the stage of this name, now. Written where it changes.
    pub fn queue(&self, name: &'static str, places: usize) {
        let Some(recording) = &self.0 else { return };
        if recording.places.replace(Some(places)) == Some(places) {
            return;
        }
        let at_ns = recording.shared.ns(Instant::now());
        recording.push(Event::Counter { name, at_ns, value: places as u64 });
    }
}

impl Recording {
    fn push(&self, event: Event) {
        let mut events = self.events.borrow_mut();
        events.push(event);
        if events.len() >= BUFFERED {
            self.write(&mut events);
        }
    }

    fn write(&self, events: &mut Vec<Event>) {
        let wanted = events.len() as u64;
        let mut granted = 0;
        let _ = self.shared.left.fetch_update(Relaxed, Relaxed, |left| {
            granted = wanted.min(left);
            Some(left - granted)
        });
        self.shared.left_out.fetch_add(wanted - granted, Relaxed);
        let mut file = self.shared.file();
        let us = |ns: u64| Duration::from_nanos(ns).as_secs_f64() * 1e6;
        for event in events.drain(..).take(granted as usize) {
            let (pid, tid) = (self.process, self.id);
            file.write(&match event {
                Event::Span { name, start_ns, length_ns, images } => {
                    let args = Args { images, ..Args::default() };
                    Written { name, ph: "X", pid, tid, ts: Some(us(start_ns)), dur: Some(us(length_ns)), args }
                }
                Event::Counter { name, at_ns, value } => {
                    let name = &format!("queue before {name}");
                    let args = Args { places: Some(value), ..Args::default() };
                    file.write(&Written { name, ph: "C", pid, tid, ts: Some(us(at_ns)), dur: None, args });
                    continue;
                }
            });
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let mut events = self.events.take();
        self.write(&mut events);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::io::{Read, Seek};

    fn written(file: &mut File) -> Vec<Value> {
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert!(text.as_bytes().starts_with(START), "{text}");
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn nothing_is_recorded_where_nobody_asks() {
        let recorder = Recorder::default();
        let track = recorder.track("t");
        track.span("x", Instant::now());
        track.queue("x", 1);
        assert!(!recorder.is_on() && track.0.is_none());
        assert_eq!(recorder.finish().unwrap(), None);
    }

    #[test]
    fn spans_of_threads_and_queues_are_all_there() {
        let mut file = tempfile::tempfile().unwrap();
        let recorder = Recorder::to_file(file.try_clone().unwrap(), "a \"program\"").unwrap();
        let threads = 4;
        let spans = 3 * BUFFERED + 7;
        std::thread::scope(|scope| {
            for n in 0..threads {
                let track = recorder.track(&format!("work-{n}"));
                scope.spawn(move || {
                    for n in 0..spans {
                        let started = Instant::now();
                        track.queue("work", n / 2);
                        track.span("work", started);
                    }
                });
            }
        });
        let gpu = recorder.track_of(Some("cuda:0"), "decode");
        let start = Instant::now();
        gpu.span_between("decode", [start, start + Duration::from_millis(2)], Some(64));
        gpu.span_between("decode", [start + Duration::from_millis(1), start], Some(1));
        drop(gpu);
        let recorded = recorder.finish().unwrap().unwrap();
        assert_eq!(recorded, Recorded { events: (threads * (spans + spans.div_ceil(2))) as u64 + 2, left_out: 0 });
        let events = written(&mut file);
        let of = |phase: &str| events.iter().filter(|e| e["ph"] == phase).collect::<Vec<_>>();
        assert_eq!((of("X").len(), of("C").len()), (threads * spans + 2, threads * spans.div_ceil(2)));
        assert_eq!(of("M").len(), 2 + 2 * (threads + 1));
        assert_eq!(events[0]["args"]["name"], "a \"program\"");
        let decode: Vec<_> = of("X").into_iter().filter(|e| e["name"] == "decode").collect();
        assert_eq!((&decode[0]["args"]["images"], &decode[0]["pid"]), (&64.into(), &2.into()));
        let [ts, dur] = ["ts", "dur"].map(|name| decode[0][name].as_f64().unwrap());
        assert!((dur - 2000.0).abs() < 0.01 && (decode[1]["ts"].as_f64().unwrap() - ts - dur).abs() < 0.01);
        assert_eq!(decode[1]["dur"], 0.0);
    }

    #[test]
    fn a_file_is_valid_without_any_event_and_late_ones_do_no_harm() {
        let mut file = tempfile::tempfile().unwrap();
        let recorder = Recorder::to_file(file.try_clone().unwrap(), "p").unwrap();
        let track = recorder.track("t");
        assert_eq!(recorder.finish().unwrap(), Some(Recorded { events: 0, left_out: 0 }));
        track.span("late", Instant::now());
        drop(track);
        assert_eq!(written(&mut file).len(), 3);
    }

    #[test]
    fn what_is_too_much_is_counted() {
        let mut file = tempfile::tempfile().unwrap();
        let recorder = Recorder::to_file(file.try_clone().unwrap(), "p").unwrap();
        recorder.0.as_ref().unwrap().left.store(10, Relaxed);
        let track = recorder.track("t");
        (0..=BUFFERED).for_each(|_| track.span("x", Instant::now()));
        drop(track);
        assert_eq!(recorder.finish().unwrap().unwrap().left_out, BUFFERED as u64 - 9);
        assert_eq!(written(&mut file).iter().filter(|e| e["ph"] == "X").count(), 10);
    }

    #[test]
    fn a_full_disk_is_told_at_the_end() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let recorder = Recorder::to_file(full, "p").unwrap();
        let track = recorder.track("t");
        (0..10 * BUFFERED).for_each(|_| track.span("x", Instant::now()));
        drop(track);
        assert!(recorder.finish().unwrap_err().to_string().contains("No space left"));
    }
}
