//! The stages of the CPU path, each alone on all cores: what a job could reach if nothing were lost between them.
//!
//! What a stage costs is counted in time of the cores, not of a clock: other programs that have them for a while, and threads that
//! wait, would make a bound of it that a job in a better moment passes.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ocellus_kernels::cpu::preprocess::Preprocessor;
use ocellus_kernels::engine::Engine;

use super::{Measurement, repeat};
use crate::decode::{DecodeOptions, decode};
use crate::error::JobError;
use crate::frame::Picture;
use crate::gpu::on_threads;
use crate::infer::cpu_engine;
use crate::model::load::Model;
use crate::observe::cpu_time;
use crate::stage::Cancel;

/// Passes before the first that counts, and those that count.
const WARM_UP: usize = 1;
const PASSES: usize = 5;
/// Time of a pass, at least.
const PASS: Duration = Duration::from_millis(600);
/// Pictures that are resized in turn: more than any cache holds.
const PICTURES: usize = 64;

/// Images of each stage in a second of a core, when all of them are at it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageRates {
    /// From a file's bytes to pixels.
    pub decode: f64,
    /// From pixels to the network's input.
    pub preprocess: f64,
    /// The network.
    pub infer: f64,
}

impl StageRates {
    /// Measures a model's stages on `threads` threads, the network with `batch` images at a time, while the process does nothing else.
    ///
    /// # Errors
    /// Where a file is not decoded or the network cannot be planned, and where `cancel` was set.
    pub fn measure(
        model: &Model,
        files: &[Vec<u8>],
        threads: usize,
        batch: usize,
        cancel: &Cancel,
    ) -> Result<Self, JobError> {
        let options = DecodeOptions::default();
        let decode_one = |file: &Vec<u8>| decode(file, &options).map_err(|e| JobError::Usage(e.to_string()));
        let median = |rates: Vec<f64>| Measurement::of(String::new(), "img/core-s", rates).value;
        let nothing = || (0..threads).map(|_| Ok(())).collect::<Result<Vec<()>, JobError>>();
        let decoded = repeat(cancel, WARM_UP, PASSES, || {
            rate(&mut nothing()?, |(), n| decode_one(&files[n % files.len()]).map(drop))
        })?;
        let pictures = files.iter().take(PICTURES).map(decode_one).collect::<Result<Vec<Picture>, JobError>>()?;
        let desc = model.preprocess();
        let input_len = 3 * desc.width_px * desc.height_px;
        let workers = (0..threads).map(|_| Ok((Preprocessor::new(desc.clone())?, vec![0.0; input_len])));
        let mut workers = workers.collect::<Result<Vec<_>, JobError>>()?;
        let preprocessed = repeat(cancel, WARM_UP, PASSES, || {
            rate(&mut workers, |(preprocessor, input), n| {
                let picture = &pictures[n % pictures.len()];
                let [width_px, height_px] = [picture.width_px as usize, picture.height_px as usize];
                Ok(preprocessor.run_f32(&picture.rgb, width_px, height_px, input).map(drop)?)
            })
        })?;
        let mut engine = cpu_engine(model, threads)?;
        let inferred = repeat(cancel, WARM_UP, PASSES, || infer(&mut *engine, batch))?;
        Ok(Self { decode: median(decoded), preprocess: median(preprocessed), infer: median(inferred) })
    }

    /// Images a second on so many cores where an image's time is the sum of its times in the stages.
    pub fn ideal(&self, cores: usize) -> f64 {
        cores as f64 / (1.0 / self.decode + 1.0 / self.preprocess + 1.0 / self.infer)
    }
}

/// Images in a second of a core, of one pass: each worker takes the next until its time is over.
fn rate<W: Send>(
    workers: &mut [W],
    work: impl Fn(&mut W, usize) -> Result<(), JobError> + Sync,
) -> Result<f64, JobError> {
    let (next, started, busy) = (AtomicUsize::new(0), Instant::now(), cpu_time());
    let counts = on_threads(workers.iter_mut(), |worker| {
        let mut count = 0;
        while count == 0 || started.elapsed() < PASS {
            work(worker, next.fetch_add(1, Relaxed))?;
            count += 1;
        }
        Ok(count)
    });
    Ok(counts.into_iter().sum::<Result<usize, JobError>>()? as f64 / core_s(busy))
}

/// Seconds that the cores were at work for this process since it had taken so much of their time.
fn core_s(before: Duration) -> f64 {
    cpu_time().saturating_sub(before).as_secs_f64().max(f64::MIN_POSITIVE)
}

/// Images in a second of a core, of the network in one pass.
fn infer(engine: &mut dyn Engine, batch: usize) -> Result<f64, JobError> {
    let port = engine.inputs().first();
    let (group, values) = port.map_or((1, 0), |port| {
        let group = port.buffer.dims.first().copied().unwrap_or(1).max(1);
        (group, port.buffer.len() / group)
    });
    let images = batch.next_multiple_of(group);
    let input = vec![0.5; images * values];
    let mut outputs = vec![Vec::new(); engine.outputs().len()];
    let (mut count, started, busy) = (0, Instant::now(), cpu_time());
    while count == 0 || started.elapsed() < PASS {
        engine.run(images, &[&input], &mut outputs)?;
        count += images;
    }
    Ok(count as f64 / core_s(busy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up() {
        let rates = StageRates { decode: 100.0, preprocess: 300.0, infer: 150.0 };
        assert!((rates.ideal(1) - 50.0).abs() < 1e-9);
        assert!((rates.ideal(4) - 200.0).abs() < 1e-9);
    }
}
