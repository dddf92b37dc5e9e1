//! The trait that callers hold.

use crate::error::KernelError;
use crate::plan::{Plan, Port};

/// Runs one network. An image's result has the same bits whatever the batch, its place in it and the thread count.
pub trait Engine: Send {
    /// Inputs with their shapes for one image (the first dimension is that of a plan of batch 1, or the model's own
    /// where its batch is fixed).
    fn inputs(&self) -> &[Port];

    /// Outputs, likewise.
    fn outputs(&self) -> &[Port];

    /// Runs `images` images.
    ///
    /// `inputs` holds one slice for each input, the images one after another in the port's layout; `outputs` one vector
    /// for each output, resized and filled likewise.
    ///
    /// # Errors
    /// Where a slice's length does not fit the batch.
    fn run(&mut self, images: usize, inputs: &[&[f32]], outputs: &mut [Vec<f32>]) -> Result<(), KernelError>;
}

/// What a network takes and gives, as its smallest plan says.
#[derive(Clone, Debug)]
pub(crate) struct Signature {
    /// Images that the smallest plan takes.
    batch: usize,
    /// See [`Plan::divisible`].
    pub(crate) divisible: bool,
    /// Inputs.
    pub(crate) inputs: Vec<Port>,
    /// Outputs.
    pub(crate) outputs: Vec<Port>,
}

impl Signature {
    pub(crate) fn of(plan: &Plan) -> Self {
        let Plan { batch, divisible, inputs, outputs, .. } = plan;
        Self { batch: *batch, divisible: *divisible, inputs: inputs.clone(), outputs: outputs.clone() }
    }

    /// Checks what a caller passes to [`Engine::run`].
    pub(crate) fn check(&self, images: usize, inputs: &[&[f32]], outputs: &[Vec<f32>]) -> Result<(), KernelError> {
        let fail = |why: String| Err(KernelError::invalid("run", why));
        if images == 0 || !images.is_multiple_of(self.batch) || (images > self.batch && !self.divisible) {
            return fail(format!("{images} images do not fit a plan for {}", self.batch));
        }
        if inputs.len() != self.inputs.len() || outputs.len() != self.outputs.len() {
            return fail(format!("{} inputs and {} outputs given", inputs.len(), outputs.len()));
        }
        for (port, input) in self.inputs.iter().zip(inputs) {
            let want = port.buffer.len() * (images / self.batch);
            if input.len() != want {
                return fail(format!("input \"{}\" has {} elements instead of {want}", port.name, input.len()));
            }
        }
        Ok(())
    }
}
