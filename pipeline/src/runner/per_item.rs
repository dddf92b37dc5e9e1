//! Keeps a panic on one item from ending the job.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tracing::error;

use crate::error::{ErrorKind, ItemError, JobError, StageName, panic_message};
use crate::frame::Item;
use crate::stage::Stage;

/// A stage that gives one item for each it takes, guarded: a panic becomes the item's error, and the stage is made anew,
/// because it may have been left half changed. Failed items pass by it.
pub struct PerItem<S, F> {
    name: StageName,
    make: F,
    stage: S,
}

impl<S, F: FnMut() -> Result<S, JobError>> PerItem<S, F> {
    /// Guards the stages that `make` makes; `name` is what error rows call them.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn new(name: StageName, mut make: F) -> Result<Self, JobError> {
        let stage = make()?;
        Ok(Self { name, make, stage })
    }
}

impl<A: Send, B: Send, S, F> Stage for PerItem<S, F>
where
    S: Stage<In = Item<A>, Out = Item<B>>,
    F: FnMut() -> Result<S, JobError> + Send,
{
    type In = Item<A>;
    type Out = Item<B>;

    fn process(&mut self, input: Item<A>, emit: &mut dyn FnMut(Item<B>)) -> Result<(), JobError> {
        let same = input.with(Ok(()));
        if let Err(error) = input.payload {
            emit(same.with(Err(error)));
            return Ok(());
        }
        let mut output = None;
        let result = catch_unwind(AssertUnwindSafe(|| self.stage.process(input, &mut |item| output = Some(item))));
        let failed = |message: String| same.with(Err(ItemError::new(self.name, ErrorKind::Internal, message)));
        match result {
            Ok(result) => {
                result?;
                emit(output.unwrap_or_else(|| failed("the stage gave no result".into())));
            }
            Err(panic) => {
                let message = panic_message(panic.as_ref());
                error!(stage = %self.name, origin = ?same.origin, message, "a stage panicked and is made anew");
                emit(failed(format!("a fault of this program, please report it: {message}")));
                self.stage = (self.make)()?;
            }
        }
        Ok(())
    }

    fn is_heavy(&mut self) -> bool {
        self.stage.is_heavy()
    }
}
