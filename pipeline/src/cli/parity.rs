//! `ocellus parity`.

mod args;
mod output;
mod row;

use std::io::{self, IsTerminal};
use std::thread::available_parallelism;

pub(super) use args::ParityArgs;
use ocellus_kernels::cuda::device::Device as GpuDevice;
use ocellus_kernels::cuda::gpu::Gpu;
use ocellus_kernels::jit::{CacheDir, Stop};
use output::{Output, Style};
use row::{ParityRow, Summary};

use super::device::{Device, explained, jit_options};
use super::job::{blame_the_job, find, nothing_found};
use super::progress::Progress;
use super::{Exit, say, signals};
use crate::decode::DecodeOptions;
use crate::error::JobError;
use crate::frame::{BufferPool, Item};
use crate::gpu::Precision;
use crate::model::load::Model;
use crate::parity::{Compare, Comparison, CpuSteps, EXACT_DECODE, GpuSteps, Steps};
use crate::runner::{Pipeline, Then};
use crate::source::{Input, ReadAhead, ReadLarge, Skipped, Walk};
use crate::stage::Cancel;

/// Threads that read files ahead.
const READERS: usize = 2;
/// Rows that are kept in any case.
const MANY_ROWS: usize = 1024;
/// Arithmetics that are compared on a GPU. The first one's input is looked at.
const PRECISIONS: [Precision; 4] = [Precision::Fp32, Precision::Tf32, Precision::Fp16, Precision::Bf16];

/// Compares the files that the arguments name.
pub(super) fn run(args: &ParityArgs) -> Result<Exit, JobError> {
    let inputs = args.inputs.iter().map(|input| Input::parse(input)).collect::<Result<Vec<_>, _>>()?;
    let spec = find(&args.model)?;
    let model = Model::open(&spec)?;
    let (cancel, compiling) = (Cancel::default(), Stop::default());
    signals::watch(cancel.clone(), compiling.clone())?;
    let output = Output::open(args, &cancel)?;
    // Also with -q: what is assumed decides the results.
    model.warnings.iter().for_each(|warning| say(format_args!("warning: {warning}")));
    let job = Job { args, inputs, model: &model, cancel };
    match &args.device {
        Device::Cpu => job.on_cpu(&output, "--device cpu"),
        Device::Cuda(gpus) => job.on_gpu(&output, job.gpu(gpus.one("parity")?, &compiling).map_err(explained)?),
        Device::Auto => match job.gpu(0, &compiling) {
            Ok(gpu) => job.on_gpu(&output, gpu),
            Err(JobError::Interrupted) => Err(JobError::Interrupted),
            Err(error) => job.on_cpu(&output, &error.to_string()),
        },
    }
}

struct Job<'a> {
    args: &'a ParityArgs,
    inputs: Vec<Input>,
    model: &'a Model,
    cancel: Cancel,
}

impl Job<'_> {
    /// The steps on a GPU, and its name.
    fn gpu(&self, ordinal: usize, compiling: &Stop) -> Result<(GpuSteps, String), JobError> {
        let steps = || {
            let gpu = Gpu::open(ordinal, jit_options(CacheDir::Default, compiling.clone())?)?;
            let steps = GpuSteps::new(&gpu, self.model, self.options(), &PRECISIONS)?;
            Ok((steps, gpu.device.facts().name.clone()))
        };
        // Whatever was stopped has an error of its own.
        steps().map_err(|error| if compiling.is_set() { JobError::Interrupted } else { error })
    }

    fn on_gpu(&self, output: &Output, (steps, name): (GpuSteps, String)) -> Result<Exit, JobError> {
        let decode = if steps.decodes() { "" } else { " (nvJPEG is not there: the CPU decodes)" };
        self.compare(output, steps, &format!("compared: the GPU path on {name}{decode}"))
    }

    fn on_cpu(&self, output: &Output, why: &str) -> Result<Exit, JobError> {
        let why = if GpuDevice::count().is_ok_and(|count| count > 0) { why } else { "no GPU that can be used" };
        let steps = CpuSteps::new(self.model, self.options())?;
        let same = "its decoder is the reference's, so that differences of decoding cannot show";
        self.compare(output, steps, &format!("compared: the CPU path ({why}); {same}"))
    }

    fn options(&self) -> DecodeOptions {
        DecodeOptions { max_pixels: self.args.max_pixels, ..DecodeOptions::default() }
    }

    fn compare(&self, output: &Output, steps: impl Steps + 'static, compared: &str) -> Result<Exit, JobError> {
        let threads = available_parallelism().map_or(1, usize::from);
        let options = self.options();
        let desc = self.model.preprocess();
        let compare = Compare::new(steps, self.model, &desc, options, threads)?;
        let progress = Progress::new(self.args.quiet);
        progress.count(&self.inputs, 0, &self.cancel);
        let skipped = Skipped::default();
        let walk = Walk::new(self.inputs.clone(), skipped.clone(), self.cancel.clone());
        let items = walk.enumerate().map(|(id, found)| found.into_item(id as u64));
        let read = Then(ReadLarge::new(options.max_bytes), compare);
        let pipeline = Pipeline::new(items, self.cancel.clone())?
            .pool("read", vec![ReadAhead::new(options.max_bytes, BufferPool::default()); READERS])?
            .stage("compare", read)?;
        let (mut rows, mut summary) = (Vec::new(), Summary::default());
        let outcome = pipeline.run(|item: Item<Comparison>| {
            blame_the_job(&item)?;
            let row = ParityRow::new(item);
            summary.add(&row);
            progress.row(summary.failed);
            rows.push(row);
            // The best of them will not be shown, and a folder may have any number of files.
            if rows.len() >= output.limit().saturating_mul(2).max(MANY_ROWS) {
                rows.sort_by(ParityRow::worst_first);
                rows.truncate(output.limit());
            }
            Ok(())
        });
        let outcome = outcome.accounted(1);
        progress.clear();
        // What was done until somebody stopped it can be seen.
        let interrupted = matches!(outcome.end, Err(JobError::Interrupted));
        if !interrupted {
            outcome.end?;
        }
        if rows.is_empty() && !interrupted {
            return Err(nothing_found(&self.args.inputs, &skipped));
        }
        rows.sort_by(ParityRow::worst_first);
        let reference = if EXACT_DECODE {
            "reference: libjpeg-turbo's pixels (mozjpeg), Pillow's resize, fp32 on the CPU"
        } else {
            "reference: pixels of the crate image, not quite libjpeg-turbo's (a build with --features libjpeg has those), \
             Pillow's resize, fp32 on the CPU"
        };
        let notes = [compared.to_owned(), reference.to_owned(), summary.to_string()];
        output.write(&rows, &notes, interrupted)?;
        if interrupted {
            return Err(JobError::Interrupted);
        }
        Ok(if summary.failed > 0 { Exit::ItemsFailed } else { Exit::Done })
    }
}

/// The format asked for, or the one that fits where rows go.
fn style_of(args: &ParityArgs) -> Result<Style, JobError> {
    match (args.format, &args.output) {
        (Some(style), _) => Ok(style),
        (None, Some(file)) => Style::of_file(file),
        (None, None) if io::stdout().is_terminal() => Ok(Style::Table),
        (None, None) => Ok(Style::Jsonl),
    }
}
