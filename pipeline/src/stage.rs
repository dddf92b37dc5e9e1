//! What a stage of the pipeline is. Channels, threads and counters belong to [`crate::runner`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::JobError;

/// A step that turns values of one type into values of another.
///
/// A stage runs on one thread; a pool runs several stages made by the same constructor. Failures of one item travel
/// inside the item; an `Err` from here ends the job.
pub trait Stage: Send {
    /// What it takes.
    type In: Send;
    /// What it gives.
    type Out: Send;

    /// Takes one value and hands on any number of values through `emit`.
    ///
    /// # Errors
    /// What ends the whole job.
    fn process(&mut self, input: Self::In, emit: &mut dyn FnMut(Self::Out)) -> Result<(), JobError>;

    /// Until when the stage waits for another value with what it keeps back: [`Stage::idle`] is called then, if no value is
    /// there. `None` where it keeps nothing back, or leaves it to the runner.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Asked after every value: true where what was given needs so much memory that the next value must wait until all of
    /// it has been taken, or holds something of which the stage has few: it would wait for what nobody has been given yet.
    fn is_heavy(&mut self) -> bool {
        false
    }

    /// Asked when the values taken are done, and again behind a rest. Of a pool at least one stage must go on. Stages that are
    /// put together of others do not ask theirs.
    fn onward(&mut self) -> Onward {
        Onward::Take
    }

    /// Called when nothing has come for a moment and, of stages that keep order, nothing is under way, or when it is
    /// [due](Stage::due), to hand on what only waits for company. Afterwards it is no longer due.
    ///
    /// # Errors
    /// As in [`Stage::process`].
    fn idle(&mut self, _emit: &mut dyn FnMut(Self::Out)) -> Result<(), JobError> {
        Ok(())
    }

    /// Called once after the last value, to hand on what was kept back.
    ///
    /// # Errors
    /// As in [`Stage::process`].
    fn finish(&mut self, _emit: &mut dyn FnMut(Self::Out)) -> Result<(), JobError> {
        Ok(())
    }
}

/// What a stage of a pool does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onward {
    /// It takes the next values.
    Take,
    /// For so long it leaves them to the others.
    Rest(Duration),
    /// It leaves them to the others for good.
    Leave,
}

/// Asks a job to stop taking new inputs; what is on its way is still finished. Clones are one and the same request.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks to stop. True for the first one who asks.
    pub fn set(&self) -> bool {
        !self.0.swap(true, Ordering::SeqCst)
    }

    /// True once somebody asked.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
