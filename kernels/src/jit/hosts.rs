//! Who compiles: this process, or workers that share what is to be done.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use ocellus_sys::nvrtc::Nvrtc;

use super::worker::{self, Compiled, Compiler, Greeting, Process, Request};
use super::{JitError, Job, Stop};

/// Who compiles, until they are asked to stop.
pub(super) struct Hosts {
    place: Place,
    stop: Stop,
}

/// Where compiling happens.
enum Place {
    /// In this process.
    Here(&'static Nvrtc),
    /// In workers, which `program` is started as.
    Workers {
        program: PathBuf,
        /// The worker that told of its compiler; the first compilation uses it.
        first: Mutex<Option<Process>>,
    },
}

impl Hosts {
    /// With what the compiler is.
    pub(super) fn new(program: Option<PathBuf>, stop: Stop) -> Result<(Self, Compiler), JitError> {
        let Some(program) = program else {
            let nvrtc = Nvrtc::load().map_err(|error| JitError::NoCompiler(error.to_string()))?;
            let compiler = Compiler::of(nvrtc).map_err(JitError::NoCompiler)?;
            return Ok((Self { place: Place::Here(nvrtc), stop }, compiler));
        };
        let (first, greeting) = start(&program, &stop)?;
        let compiler = greeting.map_err(JitError::NoCompiler)?;
        Ok((Self { place: Place::Workers { program, first: Mutex::new(Some(first)) }, stop }, compiler))
    }

    /// Lets go of what only a compilation needs.
    pub(super) fn rest(&self) {
        if let Place::Workers { first, .. } = &self.place {
            drop(lock(first).take());
        }
    }

    /// Compiles all `jobs`, on `count` workers at most, and hands each to `keep` when it is done. After an error no
    /// further job is begun; of several errors it is the one of the first job.
    pub(super) fn compile(
        &self,
        jobs: &[&Job],
        count: usize,
        keep: &(dyn Fn(&Job, &Compiled) + Sync),
    ) -> Result<Vec<Compiled>, JitError> {
        let next = AtomicUsize::new(0);
        let results = Mutex::new(BTreeMap::new());
        let work = || {
            let mut host = None;
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = jobs.get(index) else { break };
                let result = self.compile_one(&mut host, job);
                match &result {
                    Ok(compiled) => keep(job, compiled),
                    Err(_) => next.store(jobs.len(), Ordering::Relaxed),
                }
                lock(&results).insert(index, result);
            }
        };
        // NVRTC takes one program at a time, so that more threads in this process would only wait.
        let count = if matches!(self.place, Place::Here(_)) { 1 } else { count.min(jobs.len()) };
        thread::scope(|scope| {
            // This thread is one of them, so that work is done where no other can be started.
            for _ in 1..count {
                let _ = thread::Builder::new().name("jit".into()).spawn_scoped(scope, work);
            }
            work();
        });
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        // A worker that was killed failed for no reason of its own.
        let cause = |error| if self.stop.is_set() { JitError::Stopped } else { error };
        results.into_values().collect::<Result<_, _>>().map_err(cause)
    }

    /// Compiles one job on `worker`, which is started if need be. A worker that ends meanwhile may have been the victim
    /// of something else, so another one tries the job once more.
    fn compile_one(&self, worker: &mut Option<Process>, job: &Job) -> Result<Compiled, JitError> {
        if self.stop.is_set() {
            return Err(JitError::Stopped);
        }
        let answer = match &self.place {
            Place::Here(nvrtc) => worker::compile(nvrtc, &job.request),
            Place::Workers { program, first } => {
                let start = || start(program, &self.stop).map(|(process, _)| process);
                let first = worker.take().or_else(|| lock(first).take()).map_or_else(start, Ok)?;
                match ask(worker, first, &job.request) {
                    Ok(answer) => answer,
                    Err(_) => ask(worker, start()?, &job.request)
                        .map_err(|why| JitError::Worker { kernel: job.name(), why })?,
                }
            }
        };
        answer.map_err(|log| JitError::Compile { kernel: job.name(), log })
    }
}

/// Asks a worker and puts it into `place` if it is of further use.
fn ask(place: &mut Option<Process>, mut process: Process, request: &Request) -> Result<worker::Answer, String> {
    let answer = process.ask(request)?;
    *place = Some(process);
    Ok(answer)
}

fn start(program: &Path, stop: &Stop) -> Result<(Process, Greeting), JitError> {
    let failed = |why| {
        if stop.is_set() { JitError::Stopped } else { JitError::NoWorker { program: program.into(), why } }
    };
    Process::start(program, stop).map_err(failed)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
