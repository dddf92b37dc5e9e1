//! Two stages on one thread.

use std::time::Instant;

use crate::error::JobError;
use crate::stage::Stage;

/// One stage after another on the same thread: what the first gives the second takes at once, so that nothing large waits
/// between them.
pub struct Then<A, B>(pub A, pub B);

/// Runs the first stage by `first` and gives each of its values to the second.
fn hand_on<T, B: Stage<In = T>>(
    second: &mut B,
    emit: &mut dyn FnMut(B::Out),
    first: impl FnOnce(&mut dyn FnMut(T)) -> Result<(), JobError>,
) -> Result<(), JobError> {
    let mut ended = Ok(());
    let last = first(&mut |value| {
        if ended.is_ok() {
            ended = second.process(value, emit);
        }
    });
    // The first one may have failed for what became of its values.
    ended.and(last)
}

impl<A: Stage, B: Stage<In = A::Out>> Stage for Then<A, B> {
    type In = A::In;
    type Out = B::Out;

    fn process(&mut self, input: A::In, emit: &mut dyn FnMut(B::Out)) -> Result<(), JobError> {
        let Self(first, second) = self;
        hand_on(second, emit, |emit| first.process(input, emit))
    }

    fn due(&self) -> Option<Instant> {
        [self.0.due(), self.1.due()].into_iter().flatten().min()
    }

    fn is_heavy(&mut self) -> bool {
        self.0.is_heavy() | self.1.is_heavy()
    }

    fn idle(&mut self, emit: &mut dyn FnMut(B::Out)) -> Result<(), JobError> {
        let Self(first, second) = self;
        hand_on(second, emit, |emit| first.idle(emit))?;
        second.idle(emit)
    }

    fn finish(&mut self, emit: &mut dyn FnMut(B::Out)) -> Result<(), JobError> {
        let Self(first, second) = self;
        hand_on(second, emit, |emit| first.finish(emit))?;
        second.finish(emit)
    }
}
