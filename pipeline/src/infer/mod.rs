//! The stage that runs the network.

use std::thread::available_parallelism;

use ocellus_kernels::cpu::CpuEngine;
use ocellus_kernels::engine::Engine;

use crate::error::JobError;
use crate::frame::{Batch, Outputs};
use crate::model::load::Model;
use crate::stage::Stage;

/// The model's network on the CPU, with `threads` threads (0: one a core), or as many as may run at the same time: more would wait
/// for one another. A batch of any size is run in parts.
///
/// # Errors
/// Where the network cannot be planned or the engine refuses the plan.
pub fn cpu_engine(model: &Model, threads: usize) -> Result<Box<dyn Engine>, JobError> {
    let threads = available_parallelism().map_or(threads, |cores| threads.min(cores.get()));
    Ok(Box::new(CpuEngine::new(model.plan(1)?, threads)?))
}

/// Runs each batch through an engine.
pub struct Infer {
    engine: Box<dyn Engine>,
    /// Images that the engine takes at a time: a batch is filled up to a multiple of it.
    group: usize,
}

impl Infer {
    /// A stage around an engine whose network has one input.
    pub fn new(engine: Box<dyn Engine>) -> Self {
        let group = engine.inputs().first().and_then(|port| port.buffer.dims.first()).copied().unwrap_or(1);
        Self { engine, group: group.max(1) }
    }
}

impl Stage for Infer {
    type In = Batch;
    type Out = Outputs;

    fn process(&mut self, batch: Batch, emit: &mut dyn FnMut(Outputs)) -> Result<(), JobError> {
        let Batch { items, data: mut images } = batch;
        let count = items.iter().filter(|item| item.payload.is_ok()).count();
        let mut data = vec![Vec::new(); self.engine.outputs().len()];
        if count > 0 {
            let run = count.next_multiple_of(self.group);
            images.resize(images.len() / count * run, 0.0);
            self.engine.run(run, &[&images], &mut data)?;
            for output in &mut data {
                output.truncate(output.len() / run * count);
            }
        }
        emit(Outputs { items, data });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
