//! The trait that callers hold.

use crate::error::KernelError;
use crate::plan::Port;

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
