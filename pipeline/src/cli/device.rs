//! Where the networks run: the CPU or GPUs, chosen or asked for.

use std::num::NonZeroUsize;
use std::str::FromStr;

use ocellus_kernels::KernelError;
use ocellus_kernels::cuda::device;
use ocellus_kernels::engine::Engine;
use ocellus_kernels::jit::{CacheDir, JitOptions, Stop};

use super::job::JobDesc;
use super::stages::Classifier;
use crate::error::JobError;
use crate::gpu::{Gpu, Lane, LaneModel, MAX_K, Precision, Priority};
use crate::infer::cpu_engine;
use crate::postprocess::ClassifyRanked;

/// Images in a batch on the CPU where neither the user nor the number of threads asks for more.
pub(super) const CPU_BATCH: usize = 8;
/// Images in a batch on a GPU where the user does not say.
pub(super) const GPU_BATCH: usize = 64;

/// Where the user wants the networks to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Device {
    /// A GPU where there is one that can, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// GPUs.
    Cuda(Gpus),
}

/// Which GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Gpus {
    /// Those of these numbers, each once.
    Listed(Vec<usize>),
    /// All that can.
    All,
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            _ => match text.parse() {
                Ok(gpus) => Ok(Self::Cuda(gpus)),
                Err(_) if !text.starts_with("cuda") => {
                    Err("no such device; use auto, cpu, cuda, cuda:N, several as cuda:0,cuda:1, or cuda:all".into())
                }
                Err(why) => Err(why),
            },
        }
    }
}

impl FromStr for Gpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "cuda" => return Ok(Self::Listed(vec![0])),
            "cuda:all" => return Ok(Self::All),
            _ => {}
        }
        let number = |name: &str| name.strip_prefix("cuda:").and_then(|number| number.parse::<u16>().ok());
        let mut listed = Vec::new();
        for name in text.split(',') {
            let Some(number) = number(name).map(usize::from) else {
                let shown =
                    if text.contains(',') { format!("\"{name}\" in the list is no GPU") } else { "no such GPU".into() };
                return Err(format!("{shown}; write cuda:0, or cuda:0,cuda:1, or cuda:all"));
            };
            if listed.contains(&number) {
                return Err(format!("cuda:{number} is named twice"));
            }
            listed.push(number);
        }
        Ok(Self::Listed(listed))
    }
}

impl Gpus {
    /// The number of the only one; `what` is for one.
    pub(super) fn one(&self, what: &str) -> Result<usize, JobError> {
        match self {
            Self::Listed(listed) if listed.len() == 1 => Ok(listed[0]),
            _ => Err(JobError::Usage(format!("--device: {what} works on one GPU; name one, as in cuda:0"))),
        }
    }

    /// Their numbers; all of this machine may be none.
    pub(super) fn ordinals(&self) -> Result<Vec<usize>, JobError> {
        match self {
            Self::Listed(listed) => Ok(listed.clone()),
            Self::All => Ok((0..device::Device::count()?).collect()),
        }
    }
}

/// Where the networks run, ready.
pub(super) enum Backend {
    /// On the CPU.
    Cpu {
        /// One for each model.
        engines: Vec<Box<dyn Engine>>,
        /// Images in a batch.
        batch: usize,
    },
    /// On GPUs, one at least.
    Gpus(Vec<Lane>),
}

/// A choice and what is to be said about it.
pub(super) struct Chosen {
    pub(super) backend: Backend,
    /// For everybody.
    pub(super) warnings: Vec<String>,
    /// What was asked for and changes nothing there: advice.
    pub(super) ignored: Option<String>,
    /// For `-v`.
    pub(super) note: Option<String>,
}

impl Backend {
    /// As `--device` names it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Cpu { .. } => "cpu".into(),
            Self::Gpus(lanes) => lanes.iter().map(|lane| &**lane.name()).collect::<Vec<_>>().join(","),
        }
    }

    /// Most images in one run of a network.
    pub(super) fn batch(&self) -> usize {
        match self {
            Self::Cpu { batch, .. } => *batch,
            Self::Gpus(lanes) => lanes.iter().map(Lane::batch).min().unwrap_or(0),
        }
    }
}

/// Prepares the networks where the job says; `stop` ends the compilation of kernels, and with it the job.
pub(super) fn choose(job: &JobDesc, models: &[Classifier], threads: usize, stop: &Stop) -> Result<Chosen, JobError> {
    let cpu = |warnings: Vec<String>, note| {
        let batch = job.batch.unwrap_or(CPU_BATCH.max(threads));
        let engines = models.iter().map(|model| cpu_engine(&model.model, threads)).collect::<Result<_, _>>()?;
        Ok(Chosen { backend: Backend::Cpu { engines, batch }, warnings, ignored: ignored_on_the_cpu(models), note })
    };
    let gpus = |gpus: &Gpus| -> Result<Chosen, JobError> {
        // Whatever was stopped has an error of its own.
        let cause = |error| if stop.is_set() { JobError::Interrupted } else { error };
        let batch = job.batch.and_then(NonZeroUsize::new).or(NonZeroUsize::new(GPU_BATCH));
        let (lanes, warnings) = lanes(gpus, models, batch.unwrap_or(NonZeroUsize::MIN), stop).map_err(cause)?;
        Ok(Chosen { warnings, backend: Backend::Gpus(lanes), ignored: None, note: None })
    };
    let only_gpu = models.iter().any(|model| model.precision.is_some_and(|precision| precision != Precision::Fp32));
    match &job.device {
        Device::Cpu if only_gpu => Err(only_fp32()),
        Device::Cpu => cpu(Vec::new(), None),
        Device::Cuda(listed) => gpus(listed).map_err(explained),
        Device::Auto => match gpus(&Gpus::Listed(vec![0])) {
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

/// Says that the CPU has one arithmetic.
pub(super) fn only_fp32() -> JobError {
    JobError::Usage("--precision: the CPU computes in fp32 only; drop it or use --device cuda".into())
}

/// The keys of models that change nothing on the CPU.
fn ignored_on_the_cpu(models: &[Classifier]) -> Option<String> {
    let any = |asked: fn(&Classifier) -> bool| models.iter().any(asked);
    let keys = [
        ("instances", any(|model| model.copies > NonZeroUsize::MIN)),
        ("priority", any(|model| model.priority == Priority::High)),
    ];
    let keys: Vec<_> = keys.iter().filter(|(_, asked)| *asked).map(|(key, _)| *key).collect();
    let why = "of no effect on the CPU, where each model runs once, in turn with the others";
    (!keys.is_empty()).then(|| format!("{}: {why}", keys.join(", ")))
}

/// Lanes on these GPUs, and what the user should know: also a line for each that is left out, of [`Gpus::All`] those that
/// cannot, unless none can.
pub(super) fn lanes(
    gpus: &Gpus,
    models: &[Classifier],
    batch: NonZeroUsize,
    stop: &Stop,
) -> Result<(Vec<Lane>, Vec<String>), JobError> {
    if let Some(model) = models.iter().find(|model| ClassifyRanked::ranks(&model.classify) > MAX_K) {
        let most = MAX_K - usize::from(model.classify.background);
        return Err(JobError::Usage(format!("--top: a GPU finds at most {most} classes, --device cpu more")));
    }
    let ordinals = gpus.ordinals()?;
    let opened = Gpu::open_all(&ordinals, &jit_options(CacheDir::Default, stop.clone())?);
    let (mut able, mut failed) = (Vec::new(), Vec::new());
    for (ordinal, gpu) in ordinals.into_iter().zip(opened) {
        match gpu {
            Ok(gpu) => able.push(gpu),
            Err(error) => failed.push((ordinal, error.into())),
        }
    }
    if *gpus != Gpus::All && !failed.is_empty() {
        return Err(failed.swap_remove(0).1);
    }
    let numbers: Vec<_> = able.iter().map(|gpu| gpu.device.facts().ordinal).collect();
    let models: Vec<_> = models.iter().map(lane_model).collect();
    let mut lanes = Vec::new();
    for (ordinal, lane) in numbers.into_iter().zip(Lane::all(able, &models, batch)) {
        match lane {
            Ok(lane) => lanes.push(lane),
            Err(error) => failed.push((ordinal, error)),
        }
    }
    if lanes.is_empty() || *gpus != Gpus::All && !failed.is_empty() {
        let none = || KernelError::gpu("there is no GPU on this machine").into();
        return Err(failed.into_iter().next().map_or_else(none, |(_, error)| error));
    }
    let mut warnings: Vec<_> =
        failed.into_iter().map(|(ordinal, error)| left_out(&format!("cuda:{ordinal}"), &error)).collect();
    for warning in lanes.iter().flat_map(Lane::warnings) {
        // What is wrong with the cache is said by all of them.
        if !warnings.contains(warning) {
            warnings.push(warning.clone());
        }
    }
    Ok((lanes, warnings))
}

/// What is said of a GPU that the job begins without.
pub(super) fn left_out(gpu: &str, error: &JobError) -> String {
    format!("{gpu} is left out: {error}")
}

fn lane_model(model: &Classifier) -> LaneModel<'_> {
    LaneModel {
        model: &model.model,
        precision: model.precision.unwrap_or(Precision::Fp16),
        ranks: ClassifyRanked::ranks(&model.classify),
        priority: model.priority,
        copies: model.copies,
    }
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
        let listed = |numbers: &[usize]| Ok(Device::Cuda(Gpus::Listed(numbers.to_vec())));
        assert_eq!(["auto", "cpu"].map(str::parse), [Ok(Device::Auto), Ok(Device::Cpu)]);
        assert_eq!("cuda:all".parse(), Ok(Device::Cuda(Gpus::All)));
        for (name, numbers) in [
            ("cuda", &[0][..]),
            ("cuda:0", &[0]),
            ("cuda:12", &[12]),
            ("cuda:0,cuda:1", &[0, 1]),
            ("cuda:3,cuda:0", &[3, 0]),
        ] {
            assert_eq!(name.parse(), listed(numbers), "{name}");
        }
        for (bad, hint) in [
            ("cudas", "cuda:0"),
            ("", "cuda:N"),
            ("gpu", "cuda:N"),
            ("cuda:", "cuda:0"),
            ("cuda:x", "cuda:0"),
            ("cuda:-1", "cuda:0"),
            ("cuda:0,", "\"\" in the list"),
            ("cuda:0,,cuda:1", "\"\" in the list"),
            ("cuda:0,1", "\"1\" in the list"),
            ("cuda:0,cpu", "\"cpu\" in the list"),
            ("cuda:0,cuda:all", "\"cuda:all\" in the list"),
            ("cuda:1,cuda:0,cuda:1", "cuda:1 is named twice"),
            ("cuda:70000", "cuda:0"),
        ] {
            let error = bad.parse::<Device>().unwrap_err();
            assert!(error.contains(hint), "{bad}: {error}");
        }
    }
}
