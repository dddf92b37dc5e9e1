//! `ocellus bench decode --path auto`: the stages of a job as far as pictures in a GPU's memory.

use ocellus_kernels::cuda::jpeg::Jpeg;

use super::args::DecodeArgs;
use super::job::{Job, Measured};
use super::{Signals, gpu};
use crate::bench::Measurement;
use crate::error::JobError;

/// Seconds that are measured.
const SECONDS: usize = 5;

/// Images a second, and which decoder had how many.
pub(super) fn measure(args: &DecodeArgs, signals: &Signals) -> Result<Measurement, JobError> {
    let gpu = gpu(args.on.ordinal(), signals)?;
    let jpeg = Jpeg::new(&gpu)?;
    let desc = args.kind.corpus(args.pictures);
    let job = Job::new(&[], &desc, None, signals)?;
    let most_images = jpeg.even_batch(args.batch.get());
    let pipeline = job.stages.decoded_on(job.items(), &gpu, &jpeg, most_images, args.workers.get())?;
    let measured = job.measure(pipeline, SECONDS, |batch| batch.into_iter().map(|item| item.payload))?;
    let Measured { rates, decoders, .. } = measured;
    Ok(Measurement::of(format!("decode.auto.{}", desc.name()), "img/s", rates).decoded_by(&decoders))
}
