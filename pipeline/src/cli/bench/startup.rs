//! `ocellus bench startup`: from nothing to a network that can run, and to a picture that is decoded.
//!
//! Each round is a process of its own: the driver starts once in a process, and its start is a good part of all. What the
//! system does before the program's first line is not counted (some milliseconds), nor are signals and arguments. The order is
//! one after another, so that each part can be told; a job starts nvJPEG while the network is made.

use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ocellus_kernels::cuda::engine::{CudaEngine, EngineOptions};
use serde::{Deserialize, Serialize};

use super::args::StartupArgs;
use super::{Signals, gpu, open};
use crate::bench::Measurement;
use crate::bench::corpus::{self, CorpusDesc};
use crate::bench::decode;
use crate::bench::infer::name_of;
use crate::cli::job::find;
use crate::cli::{Exit, say};
use crate::error::JobError;
use crate::gpu::planner;

/// Where kernels are kept.
const CACHE: &str = "OCELLUS_CACHE_DIR";
/// Between two looks whether a round is over. It measures itself.
const PAUSE: Duration = Duration::from_millis(10);

/// What a start took, in seconds, one part after another.
#[derive(Serialize, Deserialize)]
struct Parts {
    /// The model's name.
    name: String,
    /// Reading and importing the file.
    model_s: f64,
    /// Starting the driver and the compiler, and making the context.
    gpu_s: f64,
    /// Planning all batch sizes.
    plans_s: f64,
    /// Kernels, weights, memory and graphs.
    network_s: f64,
    /// nvJPEG and a worker's decoder, until a picture is decoded; or why that cannot be.
    decoders_s: Result<f64, String>,
}

/// With an empty cache of kernels, then with what that left in it.
pub(super) fn measure(args: &StartupArgs, signals: &Signals) -> Result<Vec<Measurement>, JobError> {
    // A name that is none is said once, by this process.
    find(&args.net.model)?;
    let folder = tempfile::tempdir().map_err(|e| JobError::io("making a temporary folder", e))?;
    let mut measurements = Vec::new();
    for state in ["cold", "warm"] {
        let parts = in_a_process(args, folder.path(), state, signals)?;
        let Parts { name, model_s, gpu_s, plans_s, network_s, decoders_s } = &parts;
        let decoders = match decoders_s {
            Ok(decoders_s) => format!("{decoders_s:.3} s"),
            Err(why) => format!("not measured: {why}"),
        };
        say(format_args!(
            "{state}: model {model_s:.3} s, GPU {gpu_s:.3} s, plans {plans_s:.3} s, network {network_s:.3} s, \
             then decoders {decoders}"
        ));
        let name = format!("startup.{name}.{}", name_of(args.net.precision()));
        let whole_s = model_s + gpu_s + plans_s + network_s;
        measurements.push(Measurement::of(format!("{name}.{state}"), "s", vec![whole_s]));
        if let (Ok(decoders_s), "warm") = (decoders_s, state) {
            measurements.push(Measurement::of(format!("{name}.decoders"), "s", vec![*decoders_s]));
        }
    }
    Ok(measurements)
}

/// What [`round`] says in a process of its own, with this folder for kernels.
fn in_a_process(args: &StartupArgs, cache: &Path, state: &str, signals: &Signals) -> Result<Parts, JobError> {
    let failed = |e| JobError::io(format!("measuring the {state} start"), e);
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["bench", "startup", "--one-round", &format!("--model={}", args.net.model)]);
    command.args(["--precision", name_of(args.net.precision())]);
    command.args(["--gpu", &args.on.ordinal().to_string(), "--batch", &args.batch.to_string()]);
    let mut process = command.env(CACHE, cache).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let said = said(&mut process, signals);
    // Whether it runs or not.
    let _ = process.kill();
    let _ = process.wait();
    let said = said.map_err(failed)?.ok_or(JobError::Interrupted)?;
    let parts: Result<Parts, String> = serde_json::from_str(&said).map_err(|e| failed(e.into()))?;
    parts.map_err(|why| failed(io::Error::other(why)))
}

/// What a process said when it ends; `None` where the user does not want to wait for it. It is little, so that there is room
/// for it in the pipe.
fn said(process: &mut Child, signals: &Signals) -> io::Result<Option<String>> {
    let status = loop {
        let status = process.try_wait()?;
        // A Ctrl-C goes to both.
        if signals.cancel.is_set() {
            return Ok(None);
        }
        match status {
            Some(status) => break status,
            None => sleep(PAUSE),
        }
    };
    if !status.success() {
        return Err(io::Error::other(format!("its process ended with {status}")));
    }
    let mut said = String::new();
    process.stdout.take().map_or(Ok(0), |mut stdout| stdout.read_to_string(&mut said))?;
    Ok(Some(said))
}

/// Starts once and prints [`Parts`], or what failed, for [`measure`].
pub(super) fn round(args: &StartupArgs, signals: &Signals) -> Result<Exit, JobError> {
    let parts = match parts(args, signals) {
        Err(error) if signals.compiling.is_set() || matches!(error, JobError::Interrupted) => return Err(error),
        parts => parts.map_err(|error| error.to_string()),
    };
    let text = serde_json::to_string(&parts).map_err(io::Error::other);
    let written = text.and_then(|text| writeln!(io::stdout(), "{text}"));
    written.map_err(|e| JobError::output("writing to the standard output", e))?;
    Ok(Exit::Done)
}

fn parts(args: &StartupArgs, signals: &Signals) -> Result<Parts, JobError> {
    let (precision, batch) = (args.net.precision(), args.batch.get());
    let desc = CorpusDesc::photos(500, 375, 1);
    let files = corpus::make(&desc, &signals.cancel)?;
    let mut last = Instant::now();
    let mut lap_s = || {
        let before = std::mem::replace(&mut last, Instant::now());
        (last - before).as_secs_f64()
    };
    let model = open(&args.net)?;
    let model_s = lap_s();
    let gpu = gpu(args.on.ordinal(), signals)?;
    let gpu_s = lap_s();
    let (planner, batches) = planner(&model, batch)?;
    let options = EngineOptions { precision, portable: false, batches };
    let plans_s = lap_s();
    // Kept: what it takes to let go of it is no part of a start.
    let _engine = CudaEngine::new(&gpu.device, &gpu.jit, planner, &options)?;
    let network_s = lap_s();
    let decoded = decode::first(&gpu, &desc, &files);
    let decoders_s = decoded.map(|()| lap_s()).map_err(|error| error.to_string());
    Ok(Parts { name: model.name, model_s, gpu_s, plans_s, network_s, decoders_s })
}
