//! Where the network runs: the CPU or a GPU, chosen or asked for.

use std::num::NonZeroUsize;
use std::str::FromStr;

use ocellus_kernels::cuda::device;
use ocellus_kernels::engine::Engine;
use ocellus_kernels::jit::{CacheDir, JitOptions, Stop};

use super::args::ClassifyArgs;
use crate::error::JobError;
use crate::gpu::{Gpu, Lane, LaneOptions, MAX_K, Precision};
use crate::infer::cpu_engine;
use crate::model::load::Model;
use crate::postprocess::{ClassifyDesc, ClassifyRanked};

/// Images in a batch on the CPU where neither the user nor the number of threads asks for more.
pub(super) const CPU_BATCH: usize = 8;
/// Images in a batch on a GPU where the user does not say.
pub(super) const GPU_BATCH: usize = 64;

/// Where the user wants the network to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Device {
    /// A GPU where there is one that can, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU of this number.
    Cuda(usize),
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => match text.strip_prefix("cuda:") {
                Some(list) if list.contains(',') => {
                    Err("several GPUs are not supported yet; name one, as in cuda:0".into())
                }
                Some(number) => number.parse().map(Self::Cuda).map_err(|_| "no such device; write cuda:0".into()),
                None => Err("no such device; use auto, cpu, cuda or cuda:N".into()),
            },
        }
    }
}

/// Where the network runs, ready.
pub(super) enum Backend {
    /// On the CPU.
    Cpu {
        /// The network.
        engine: Box<dyn Engine>,
        /// Images in a batch.
        batch: usize,
    },
    /// On a GPU.
    Gpu(Box<Lane>),
}

/// A choice and what is to be said about it.
pub(super) struct Chosen {
    pub(super) backend: Backend,
    /// For everybody.
    pub(super) warnings: Vec<String>,
    /// For `-v`.
    pub(super) note: Option<String>,
}

impl Backend {
    /// As `--device` names it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Cpu { .. } => "cpu".into(),
            Self::Gpu(lane) => lane.name(),
        }
    }

    /// Most images in one run of the network.
    pub(super) fn batch(&self) -> usize {
        match self {
            Self::Cpu { batch, .. } => *batch,
            Self::Gpu(lane) => lane.batch(),
        }
    }
}

/// Prepares the network where the arguments say; `desc` says what becomes of its output, `stop` ends the compilation of
/// kernels, and with it the job.
pub(super) fn choose(
    args: &ClassifyArgs,
    model: &Model,
    desc: &ClassifyDesc,
    threads: usize,
    stop: &Stop,
) -> Result<Chosen, JobError> {
    let cpu = |warnings, note| {
        let batch = args.batch.map_or(CPU_BATCH.max(threads), |n| n as usize);
        let backend = Backend::Cpu { engine: cpu_engine(model, threads)?, batch };
        Ok(Chosen { backend, warnings, note })
    };
    let gpu = |ordinal| -> Result<Chosen, JobError> {
        // Whatever was stopped has an error of its own.
        let cause = |error| if stop.is_set() { JobError::Interrupted } else { error };
        let lane = lane(args, model, desc, ordinal, stop).map_err(cause)?;
        Ok(Chosen { warnings: lane.warnings().to_vec(), backend: Backend::Gpu(Box::new(lane)), note: None })
    };
    let only_gpu = args.precision.0.is_some_and(|precision| precision != Precision::Fp32);
    match args.device {
        Device::Cpu if only_gpu => {
            Err(JobError::Usage("--precision: the CPU computes in fp32 only; drop it or use --device cuda".into()))
        }
        Device::Cpu => cpu(Vec::new(), None),
        Device::Cuda(ordinal) => gpu(ordinal).map_err(explained),
        Device::Auto => match gpu(0) {
            Err(JobError::Interrupted) => Err(JobError::Interrupted),
            Err(error) if only_gpu => Err(JobError::Usage(format!(
                "--precision: the CPU computes in fp32 only, and no GPU can be used. {error}"
            ))),
            // That there is a GPU and it is not used is worth a word.
            Err(error) if device::Device::count().is_ok_and(|count| count > 0) => {
                cpu(vec![format!("on the CPU: {error}")], None)
            }
            Err(error) => cpu(Vec::new(), Some(format!("on the CPU: {error}"))),
            chosen => chosen,
        },
    }
}

fn lane(
    args: &ClassifyArgs,
    model: &Model,
    desc: &ClassifyDesc,
    ordinal: usize,
    stop: &Stop,
) -> Result<Lane, JobError> {
    let ranks = ClassifyRanked::ranks(desc);
    if ranks > MAX_K {
        let most = MAX_K - usize::from(desc.background);
        return Err(JobError::Usage(format!("--top: a GPU finds at most {most} classes, --device cpu more")));
    }
    let options = LaneOptions {
        precision: args.precision.0.unwrap_or(Precision::Fp16),
        batch: NonZeroUsize::new(args.batch.map_or(GPU_BATCH, |n| n as usize)).unwrap_or(NonZeroUsize::MIN),
        ranks,
    };
    Lane::new(Gpu::open(ordinal, jit_options(CacheDir::Default, stop.clone())?)?, model, &options)
}

/// Says what can be done where there is no GPU to use.
pub(super) fn explained(error: JobError) -> JobError {
    match error {
        JobError::Kernel(error) if !device::Device::count().is_ok_and(|count| count > 0) => JobError::NoGpu(error),
        error => error,
    }
}

/// Kernels are compiled by copies of this program.
pub(super) fn jit_options(cache: CacheDir, stop: Stop) -> Result<JitOptions, JobError> {
    let program = std::env::current_exe().map_err(|e| JobError::io("finding this program's file", e))?;
    Ok(JitOptions { cache, workers: 0, worker: Some(program), stop })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_names() {
        let parsed = ["auto", "cpu", "cuda", "cuda:0", "cuda:12"].map(str::parse);
        assert_eq!(parsed, [Device::Auto, Device::Cpu, Device::Cuda(0), Device::Cuda(0), Device::Cuda(12)].map(Ok));
        for bad in ["cudas", "", "cuda:", "cuda:x", "cuda:-1", "cuda:0,cuda:1", "gpu"] {
            let error = bad.parse::<Device>().unwrap_err();
            assert!(error.contains("cuda"), "{bad}: {error}");
        }
    }
}
