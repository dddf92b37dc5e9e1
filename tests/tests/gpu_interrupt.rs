//! Signals while kernels compile: the job ends at once as an interrupted one, and no process of it is left.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tests::gpu::{gpu, is_emulated};
use tests::job::with_default_signals;
use tests::{ocellus, skip, workspace_root};

/// Longest that anything here may take; a compilation takes much longer.
const PATIENCE: Duration = Duration::from_secs(30);
const COMPILATION_MS: &str = "600000";

/// A job whose workers have begun to compile. Its cache, which nobody else has, tells its processes from others.
struct Job {
    cache: tempfile::TempDir,
    child: Child,
}

impl Job {
    /// `None` where there is no emulator, which alone compiles as slowly as that.
    fn start(arguments: &[&str]) -> Option<Self> {
        if !is_emulated(gpu()?) {
            skip("REQUIRE_EMULATOR", "a real compiler is too fast");
            return None;
        }
        let cache = tempfile::tempdir().unwrap();
        let mut command = with_default_signals(&ocellus());
        command.args(arguments);
        command.env("OCELLUS_CACHE_DIR", cache.path()).env("OCELLUS_EMULATOR_COMPILE_MS", COMPILATION_MS);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut job = Self { child: command.spawn().unwrap(), cache };
        job.wait_until("no worker", |job| !job.workers().is_empty());
        // The first one greets before it gets work.
        sleep(Duration::from_millis(500));
        assert!(job.child.try_wait().unwrap().is_none(), "it ended before");
        Some(job)
    }

    fn classify() -> Option<Self> {
        let photo = workspace_root().join("samples/photos/flower.jpg");
        let model = workspace_root().join("samples/models/squeezenet1.1.onnx");
        let [photo, model] = [&photo, &model].map(|path| path.to_str().unwrap());
        Self::start(&["classify", photo, "--model", model, "--device", "auto", "--format", "jsonl"])
    }

    /// Numbers of its processes that compile.
    fn workers(&self) -> Vec<String> {
        let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
        let is_worker = |process: &Path| {
            let holds = |file: &str, bytes: &[u8]| {
                fs::read(process.join(file)).is_ok_and(|all| all.windows(bytes.len()).any(|part| part == bytes))
            };
            holds("cmdline", b"jit-worker") && holds("environ", self.cache.path().to_str().unwrap().as_bytes())
        };
        let workers = processes.filter(|process| is_worker(process));
        workers.map(|process| process.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    }

    fn wait_until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let started = Instant::now();
        while !done(self) {
            if started.elapsed() > PATIENCE {
                let _ = self.child.kill();
                panic!("{what} after {PATIENCE:?}");
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// Sends a signal to it, or with `-` in front of its number to its group, as a terminal does.
    fn signal(&self, name: &str, group: &str) {
        let target = format!("{group}{}", self.child.id());
        assert!(Command::new("kill").args([name, "--", &target]).status().unwrap().success());
    }

    /// What it said, when it has ended as an interrupted job and its workers with it.
    fn assert_interrupted(mut self) -> String {
        self.wait_until("it goes on", |job| job.child.try_wait().unwrap().is_some());
        assert!(self.workers().is_empty(), "a worker is left");
        let output = self.child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{said}");
        assert!(output.stdout.is_empty() && !said.contains("error") && !said.contains("on the CPU"), "{said}");
        said
    }
}

#[test]
fn a_terminals_interrupt_ends_the_start() {
    let Some(job) = Job::classify() else { return };
    job.signal("-INT", "-");
    let said = job.assert_interrupted();
    assert!(said.contains("stopping"), "{said}");
}

#[test]
fn a_request_to_terminate_ends_the_start() {
    let Some(job) = Job::classify() else { return };
    job.signal("-TERM", "");
    job.assert_interrupted();
}

#[test]
fn filling_the_cache_ends_as_an_interrupted_job() {
    let Some(job) = Job::start(&["cache", "warm", "--model", "squeezenet1.1", "--arch", "9.0"]) else { return };
    job.signal("-TERM", "");
    job.assert_interrupted();
}

#[test]
fn a_measurement_ends_as_an_interrupted_job() {
    let Some(job) = Job::start(&["bench", "infer", "--model", "squeezenet1.1", "--batch", "1"]) else { return };
    job.signal("-TERM", "");
    job.assert_interrupted();
}

/// Also in the middle of a compilation, which no signal reaches.
#[test]
fn workers_end_with_a_parent_that_is_killed() {
    for start in [Job::classify, || Job::start(&["doctor"])] {
        let Some(mut job) = start() else { return };
        job.signal("-KILL", "");
        job.wait_until("it lives", |job| job.child.try_wait().unwrap().is_some());
        job.wait_until("a worker lives", |job| job.workers().is_empty());
    }
}
