//! Says which GPU failed.

use std::sync::Arc;
use std::time::Instant;

use crate::error::JobError;
use crate::stage::Stage;

/// A stage of one GPU: its errors name it.
pub struct Named<S> {
    /// The GPU's name.
    pub gpu: Arc<str>,
    /// The stage.
    pub stage: S,
}

impl<S: Stage> Stage for Named<S> {
    type In = S::In;
    type Out = S::Out;

    fn process(&mut self, input: S::In, emit: &mut dyn FnMut(S::Out)) -> Result<(), JobError> {
        self.stage.process(input, emit).map_err(|error| error.on_gpu(&self.gpu))
    }

    fn due(&self) -> Option<Instant> {
        self.stage.due()
    }

    fn is_heavy(&mut self) -> bool {
        self.stage.is_heavy()
    }

    fn idle(&mut self, emit: &mut dyn FnMut(S::Out)) -> Result<(), JobError> {
        self.stage.idle(emit).map_err(|error| error.on_gpu(&self.gpu))
    }

    fn finish(&mut self, emit: &mut dyn FnMut(S::Out)) -> Result<(), JobError> {
        self.stage.finish(emit).map_err(|error| error.on_gpu(&self.gpu))
    }
}
