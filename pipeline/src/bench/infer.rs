//! The network alone, on a GPU: its input already there, its output left there.

use ocellus_kernels::KernelError;
use ocellus_kernels::cuda::device::Device;
use ocellus_kernels::cuda::engine::{CudaEngine, EngineOptions};
use ocellus_kernels::cuda::gpu::Gpu;
use ocellus_kernels::cuda::lower::Precision;
use ocellus_kernels::cuda::memory::DeviceMemory;
use ocellus_kernels::cuda::stream::{Event, Priority, Stream};
use ocellus_kernels::plan::Plan;

use super::corpus::hash;
use super::{Measurement, repeat};
use crate::error::JobError;
use crate::model::load::Model;
use crate::stage::Cancel;

/// Runs before the first that counts.
const WARM_UP: usize = 5;
/// Runs that count.
const RUNS: usize = 30;
/// Launches in a run.
const LAUNCHES: usize = 10;
/// Of the random input.
const INPUT_SEED: u64 = 11;
/// Bytes of the copy that measures the memory: many times any cache.
const COPY_BYTES: usize = 1 << 30;

/// What is measured.
#[derive(Clone, Debug)]
pub struct InferDesc {
    /// Arithmetic.
    pub precision: Precision,
    /// Only kernels that run on every architecture.
    pub portable: bool,
    /// Batch sizes.
    pub batches: Vec<usize>,
}

/// Images a second for each batch size, beside what memory traffic allows when every layer reads its operands and writes
/// its result once.
///
/// # Errors
/// Where the engine cannot be made or fails, or `cancel` was set.
pub fn measure(gpu: &Gpu, model: &Model, desc: &InferDesc, cancel: &Cancel) -> Result<Vec<Measurement>, JobError> {
    let Gpu { device, jit } = gpu;
    let copy_bytes_per_s = copy_rate(device)?;
    let mut measurements = Vec::new();
    for &batch in &desc.batches {
        let plan = model.plan(batch)?;
        let bound = copy_bytes_per_s / (traffic_bytes(&plan, desc.precision) as f64 / plan.batch as f64);
        let values = plan.inputs.first().map_or(0, |input| input.buffer.len());
        let options = EngineOptions { precision: desc.precision, portable: desc.portable, batches: vec![batch] };
        let mut engine = CudaEngine::new(device, jit, Box::new(move |_| Ok(plan.clone())), &options)?;
        let rates = rates(device, &mut engine, batch, values, cancel)?;
        let portable = if desc.portable { ".portable" } else { "" };
        let name = format!("infer.{}.{}{portable}.b{batch}", model.name, name_of(desc.precision));
        let measurement = Measurement::of(name, "img/s", rates);
        measurements.push(measurement.beside(bound, "every layer's operands and result once at copy bandwidth"));
    }
    Ok(measurements)
}

/// As the command line and the names of measurements write it.
pub fn name_of(precision: Precision) -> &'static str {
    match precision {
        Precision::Fp32 => "fp32",
        Precision::Tf32 => "tf32",
        Precision::Fp16 => "fp16",
        Precision::Bf16 => "bf16",
    }
}

/// Images a second in each run. The input is random and written again before every launch, outside of what is timed: how much
/// power a GPU draws, and so how fast it is, depends on the numbers.
fn rates(
    device: &Device,
    engine: &mut CudaEngine,
    images: usize,
    values: usize,
    cancel: &Cancel,
) -> Result<Vec<f64>, JobError> {
    let stream = engine.stream().clone();
    let input: Vec<f32> = (0..values).map(|i| (hash(i as u32, 0, INPUT_SEED) - 0.5) * 4.0).collect();
    engine.write_input(images, &input)?;
    let network =
        engine.network(images).ok_or_else(|| KernelError::invalid("bench", "the engine has no batch size"))?;
    let input = network.keep_input()?;
    let timed = || Ok((Event::timed(device)?, Event::timed(device)?));
    let events = (0..LAUNCHES).map(|_| timed()).collect::<Result<Vec<_>, KernelError>>()?;
    repeat(cancel, WARM_UP, RUNS, || {
        for (start, end) in &events {
            network.restore_input(&input)?;
            start.record(&stream)?;
            network.enqueue()?;
            end.record(&stream)?;
        }
        stream.synchronize()?;
        let mut ms = 0.0;
        for (start, end) in &events {
            ms += f64::from(start.elapsed_ms(end)?);
        }
        Ok((images * LAUNCHES) as f64 / (ms / 1e3))
    })
}

/// Bytes that a plan moves when each step reads its operands and writes its result once.
fn traffic_bytes(plan: &Plan, precision: Precision) -> usize {
    let element = if matches!(precision, Precision::Fp16 | Precision::Bf16) { 2 } else { 4 };
    let elements = |dims: &[usize]| dims.iter().product::<usize>();
    let step = |step: &ocellus_kernels::plan::Step| {
        step.inputs.iter().map(|input| elements(input.dims())).sum::<usize>() + step.output.len()
    };
    plan.steps.iter().map(step).sum::<usize>() * element
}

/// Bytes a second that a copy inside the GPU's memory moves, reads and writes counted.
///
/// # Errors
/// Where the driver fails.
pub fn copy_rate(device: &Device) -> Result<f64, KernelError> {
    let stream = Stream::new(device, Priority::Low)?;
    let (from, to) = (DeviceMemory::new(&stream, COPY_BYTES)?, DeviceMemory::new(&stream, COPY_BYTES)?);
    from.fill(1)?;
    let (start, end) = (Event::timed(device)?, Event::timed(device)?);
    let mut best = 0.0_f64;
    for _ in 0..WARM_UP {
        start.record(&stream)?;
        to.copy_part(0, &from, 0, COPY_BYTES)?;
        end.record(&stream)?;
        end.synchronize()?;
        best = best.max(2.0 * COPY_BYTES as f64 / (f64::from(start.elapsed_ms(&end)?) / 1e3));
    }
    Ok(best)
}
