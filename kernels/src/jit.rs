//! Compiles the GPU kernels when they are first wanted: CUDA C++ of this program, specialised by defines, to code for the
//! exact architecture, by NVRTC in worker processes. Results are kept on disk.

pub mod cache;
mod fields;
mod hosts;
mod spec;
mod stop;
pub mod worker;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use tracing::{debug, info};

use crate::error::KernelError;
use cache::{Cache, Entry, Found};
use hosts::Hosts;
use spec::Key;
use worker::{Compiled, Compiler, Request};

pub use cache::CacheDir;
pub use spec::{Arch, KernelSpec};
pub use stop::Stop;

/// How kernels are compiled.
#[derive(Clone, Debug)]
pub struct JitOptions {
    /// Where results are kept.
    pub cache: CacheDir,
    /// Most worker processes at a time; 0 is one a core.
    pub workers: usize,
    /// The program to start as a worker: one that calls [`worker::run`] when its argument is [`worker::COMMAND`].
    /// `None` compiles in this process.
    pub worker: Option<PathBuf>,
    /// Ends compilations before they are done.
    pub stop: Stop,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JitError {
    /// NVRTC cannot be loaded; the text says why and what to do.
    #[error("{0}")]
    NoCompiler(String),
    /// NVRTC is older than the GPU.
    #[error(
        "NVRTC {}.{} knows no {arch}; install a newer CUDA toolkit, or set OCELLUS_CUDA_LIBS to its folder of libnvrtc",
        version.0, version.1
    )]
    UnknownArch {
        /// What was to be compiled for.
        arch: Arch,
        /// NVRTC's version.
        version: (u32, u32),
    },
    /// A spec names a file that is not part of the program.
    #[error("there is no kernel file {0}")]
    NoFile(&'static str),
    /// A worker cannot be started.
    #[error("the process that compiles kernels, {}, {why}", program.display())]
    NoWorker {
        /// What was started.
        program: PathBuf,
        /// How it failed.
        why: String,
    },
    /// Two workers failed over the same kernel.
    #[error("{kernel}: the process that compiles it {why}, and so did one before; is there memory left?")]
    Worker {
        /// Entry, file, defines and architecture.
        kernel: String,
        /// How the second one failed.
        why: String,
    },
    /// [`Stop`] asked for it.
    #[error("compiling was stopped")]
    Stopped,
    /// The compiler refuses a kernel.
    #[error("{kernel} does not compile: {}", first_error(log))]
    Compile {
        /// Entry, file, defines and architecture.
        kernel: String,
        /// All that the compiler said.
        log: String,
    },
}

impl JitError {
    /// All that the compiler said, where it said something.
    pub fn log(&self) -> Option<&str> {
        if let Self::Compile { log, .. } = self { Some(log) } else { None }
    }
}

impl From<JitError> for KernelError {
    fn from(error: JitError) -> Self {
        Self::gpu(error.to_string())
    }
}

/// The first line of a log that is an error, else the first that says anything.
fn first_error(log: &str) -> &str {
    let mut lines = log.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.clone().next().unwrap_or("the compiler does not say why");
    lines.find(|line| line.contains("error")).unwrap_or(first)
}

/// What a [`Jit`] did so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JitReport {
    /// Kernels that were found in the cache.
    pub hits: usize,
    /// Kernels that were compiled.
    pub compiled: usize,
    /// Entries of the cache that could not be used, which were compiled again.
    pub damaged: usize,
    /// Time that compiling took, in milliseconds.
    pub compile_ms: f64,
    /// What the user should know, one line each: at most one about the cache.
    pub warnings: Vec<String>,
}

/// A kernel on its way.
struct Job {
    spec: KernelSpec,
    arch: Arch,
    request: Request,
    key: Key,
}

impl Job {
    /// Entry, file, defines and architecture.
    fn name(&self) -> String {
        format!("{} for {}", self.spec, self.arch)
    }

    fn entry(&self, compiled: &Compiled) -> Entry {
        let defines: Vec<_> = self.spec.defines.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Entry {
            about: [self.arch.to_string(), self.spec.file.to_owned(), defines.join(" ")],
            compiled: compiled.clone(),
        }
    }
}

/// A compiler for one architecture.
pub struct Jit {
    arch: Arch,
    hosts: Hosts,
    compiler: Compiler,
    cache: Cache,
    workers: usize,
    report: Mutex<JitReport>,
    /// Held while kernels are compiled: who wants the same ones at the same time finds them in the cache then.
    compiling: Mutex<()>,
}

impl Jit {
    /// Finds the compiler: starts a worker, or loads NVRTC into this process.
    ///
    /// # Errors
    /// Where there is none, or none for `arch`.
    pub fn new(arch: Arch, options: JitOptions) -> Result<Self, JitError> {
        let (hosts, compiler) = Hosts::new(options.worker, options.stop)?;
        if !compiler.archs.contains(&arch.number()) {
            return Err(JitError::UnknownArch { arch, version: compiler.version });
        }
        let workers = match options.workers {
            0 => thread::available_parallelism().map_or(1, usize::from),
            workers => workers,
        };
        let cache = Cache::new(&options.cache);
        Ok(Self { arch, hosts, compiler, cache, workers, report: Mutex::default(), compiling: Mutex::default() })
    }

    /// The architecture that is compiled for.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// Major and minor version of NVRTC.
    pub fn version(&self) -> (u32, u32) {
        self.compiler.version
    }

    /// Cubins in the order of `specs`: from the cache, else compiled by as many workers as are useful. Specs that differ
    /// only in their entry point share a cubin. No process of ours is left when this returns.
    ///
    /// # Errors
    /// When a spec names no file, does not compile, no worker can be started or compiling was stopped. What is done until
    /// then is kept.
    pub fn compile(&self, specs: &[KernelSpec]) -> Result<Vec<Arc<[u8]>>, JitError> {
        Ok(self.compile_with_logs(specs)?.into_iter().map(|compiled| compiled.cubin).collect())
    }

    /// The same, with what the compiler said of each: registers, shared memory, spills.
    ///
    /// # Errors
    /// As [`Jit::compile`].
    pub fn compile_with_logs(&self, specs: &[KernelSpec]) -> Result<Vec<Compiled>, JitError> {
        let (jobs, places) = self.jobs(specs)?;
        let _compiling = self.compiling.lock().unwrap_or_else(PoisonError::into_inner);
        let found: Vec<_> = jobs.iter().map(|job| self.cache.get(&job.key)).collect();
        let missing: Vec<_> = jobs
            .iter()
            .zip(&found)
            .filter(|(_, found)| !matches!(found, Found::Entry(_)))
            .map(|(job, _)| job)
            .collect();
        self.count(|report| {
            report.hits += jobs.len() - missing.len();
            report.damaged += found.iter().filter(|found| matches!(found, Found::Damaged)).count();
        });
        let started = Instant::now();
        let fresh = self.hosts.compile(&missing, self.workers, &|job, compiled| {
            debug!(kernel = job.name(), "compiled");
            self.cache.put(&job.key, &job.entry(compiled));
            self.count(|report| report.compiled += 1);
        });
        self.hosts.rest();
        if !missing.is_empty() {
            self.count(|report| report.compile_ms += started.elapsed().as_secs_f64() * 1e3);
        }
        let mut fresh = fresh?.into_iter();
        if !jobs.is_empty() {
            let (found, compiled, ms) =
                (jobs.len() - missing.len(), missing.len(), started.elapsed().as_millis() as u64);
            info!(found, compiled, ms, arch = %self.arch, "kernels are ready");
        }
        let complete: Vec<_> = found
            .into_iter()
            .filter_map(|found| if let Found::Entry(entry) = found { Some(entry.compiled) } else { fresh.next() })
            .collect();
        Ok(places.into_iter().map(|place| complete[place].clone()).collect())
    }

    /// The different programs among `specs`, and for each spec which of them it is.
    fn jobs(&self, specs: &[KernelSpec]) -> Result<(Vec<Job>, Vec<usize>), JitError> {
        let (mut jobs, mut places, mut known) = (Vec::new(), Vec::new(), HashMap::new());
        for spec in specs {
            let request = spec.request(self.arch)?;
            let key = Key::new(&request, &self.compiler, cache::FORMAT);
            places.push(*known.entry(key).or_insert(jobs.len()));
            if known.len() > jobs.len() {
                jobs.push(Job { spec: spec.clone(), arch: self.arch, request, key });
            }
        }
        Ok((jobs, places))
    }

    /// What was done so far.
    pub fn report(&self) -> JitReport {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner).clone();
        report.warnings.extend(self.cache.warning());
        report
    }

    fn count(&self, change: impl FnOnce(&mut JitReport)) {
        change(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl fmt::Debug for Jit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jit").field("arch", &self.arch).field("compiler", &self.compiler).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_that_says_the_most() {
        let log = "ptxas info : x\na.cu(1): warning #1: y\n\na.cu(3): error: z is undefined\n1 error detected\n";
        assert_eq!(first_error(log), "a.cu(3): error: z is undefined");
        assert_eq!(first_error("\n  only this \nand that"), "only this");
        assert_eq!(first_error(""), "the compiler does not say why");
    }
}
