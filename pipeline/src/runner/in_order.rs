//! Items that left a pool as they were done, brought back into order.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::Monitor;
use crate::error::JobError;
use crate::frame::{Deadline, Numbered};
use crate::stage::{Cancel, Stage};

/// Items behind one that is not done that may be on their way: their results wait in memory.
const WINDOW: u64 = 1 << 16;
/// How often a source that waits looks whether it should stop.
const POLL: Duration = Duration::from_millis(50);
/// How often in a row the job must be found at rest, a tenth of a second apart, until what has not come is lost: a thread that
/// is to hand on what only waits for company may get no core for long.
const PATIENCE: u32 = 20;

/// How far the source may be ahead of the first item that is not done.
#[derive(Clone, Debug, Default)]
pub struct Window(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Items that are done, without a gap.
    done: Mutex<u64>,
    more: Condvar,
}

impl Window {
    /// The items, numbered from 0 without gaps, each as soon as it may be on its way. Ends when `cancel` is set.
    pub fn admit<I: Iterator + Send>(
        &self,
        mut items: I,
        cancel: Cancel,
    ) -> impl Iterator<Item = I::Item> + Send + use<I> {
        let (window, mut next) = (self.clone(), 0_u64);
        std::iter::from_fn(move || {
            if !window.wait_for(next, &cancel) {
                return None;
            }
            next += 1;
            items.next()
        })
    }

    /// False where `cancel` was set before there was room.
    fn wait_for(&self, id: u64, cancel: &Cancel) -> bool {
        let Inner { done, more } = &*self.0;
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        while id >= *done + WINDOW {
            if cancel.is_set() {
                return false;
            }
            done = more.wait_timeout(done, POLL).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn moved(&self, to: u64) {
        *self.0.done.lock().unwrap_or_else(PoisonError::into_inner) = to;
        self.0.more.notify_all();
    }
}

/// The stage: gives items in the order of their numbers, each when all before it are there. One that never comes, because the
/// job failed at it, ends what is given: what is written then goes on without a gap in the next job. Where a stage has lost it the
/// job fails, at the latest when the source waits for it and all stages have come to rest.
pub struct InOrder<T> {
    window: Window,
    deadline: Option<Deadline>,
    /// Items of each number.
    each: usize,
    /// Number of the first of `waiting`.
    next: u64,
    waiting: VecDeque<Vec<T>>,
    monitor: Monitor,
    /// How often in a row something was missing and nothing under way.
    at_rest: u32,
}

impl<T> InOrder<T> {
    /// A stage behind a source that `window` admits to, and a stage that waits for company until `deadline`, if there is one.
    /// It gets so many items of `each` number. `monitor` sees the job that the stage is in.
    pub fn new(window: Window, deadline: Option<Deadline>, each: usize, monitor: Monitor) -> Self {
        Self { window, deadline, each, next: 0, waiting: VecDeque::new(), monitor, at_rest: 0 }
    }
}

impl<T: Numbered + Send> Stage for InOrder<T> {
    type In = T;
    type Out = T;

    fn process(&mut self, item: T, emit: &mut dyn FnMut(T)) -> Result<(), JobError> {
        self.at_rest = 0;
        if let Some(deadline) = &self.deadline {
            deadline.finished(item.number());
        }
        // One more than announced has nothing to wait for.
        let Some(ahead) = item.number().checked_sub(self.next).map(|ahead| ahead as usize) else {
            emit(item);
            return Ok(());
        };
        if self.waiting.len() <= ahead {
            self.waiting.resize_with(ahead + 1, Vec::new);
        }
        self.waiting[ahead].push(item);
        let before = self.next;
        while self.waiting.front().is_some_and(|items| items.len() >= self.each) {
            self.waiting.pop_front().into_iter().flatten().for_each(&mut *emit);
            self.next += 1;
        }
        // Not for every item: the source is woken by this.
        if self.next / (WINDOW / 16) != before / (WINDOW / 16) {
            self.window.moved(self.next);
        }
        Ok(())
    }

    fn idle(&mut self, _: &mut dyn FnMut(T)) -> Result<(), JobError> {
        let each = self.each as u64;
        let came = self.next * each + self.waiting.iter().map(|items| items.len() as u64).sum::<u64>();
        let is_missing = self.monitor.inputs_at_rest().is_some_and(|inputs| inputs * each != came);
        self.at_rest = if is_missing { self.at_rest + 1 } else { 0 };
        if self.at_rest < PATIENCE { Ok(()) } else { self.monitor.report().account(came, self.each) }
    }
}

/// The stage: gives items as they come, and says that they are done.
pub struct AsDone<T> {
    deadline: Deadline,
    of: PhantomData<fn(T)>,
}

impl<T> AsDone<T> {
    /// A stage behind one that waits for company until `deadline`.
    pub fn new(deadline: Deadline) -> Self {
        Self { deadline, of: PhantomData }
    }
}

impl<T: Numbered + Send> Stage for AsDone<T> {
    type In = T;
    type Out = T;

    fn process(&mut self, item: T, emit: &mut dyn FnMut(T)) -> Result<(), JobError> {
        self.deadline.finished(item.number());
        emit(item);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::frame::{Item, Origin};

    /// Of a job without stages.
    fn monitor() -> Monitor {
        Monitor { started: Instant::now(), stages: Arc::default() }
    }

    fn stage(window: &Window) -> InOrder<Item<()>> {
        InOrder::new(window.clone(), None, 1, monitor())
    }

    fn item(id: u64) -> Item<()> {
        Item::new(id, Origin::File("x".into()), Ok(()))
    }

    #[test]
    fn items_wait_for_those_before_them() {
        let mut stage = stage(&Window::default());
        let mut given = Vec::new();
        for (id, expected) in [(1, &[][..]), (0, &[0, 1]), (2, &[2]), (5, &[]), (4, &[]), (3, &[3, 4, 5]), (7, &[])] {
            given.clear();
            stage.process(item(id), &mut |item| given.push(item.id)).unwrap();
            assert_eq!(given, expected, "at {id}");
        }
        // What is missing failed the job.
        stage.finish(&mut |item| panic!("{}", item.id)).unwrap();
    }

    #[test]
    fn an_item_waits_for_its_equals() {
        let mut stage = InOrder::new(Window::default(), None, 2, monitor());
        let mut given = Vec::new();
        for id in [1, 0, 2, 1, 0, 2] {
            stage.process(item(id), &mut |item| given.push(item.id)).unwrap();
        }
        assert_eq!(given, [0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn the_source_waits_behind_an_item_that_is_not_done() {
        let (window, cancel) = (Window::default(), Cancel::default());
        let mut stage = stage(&window);
        let mut items = window.admit(0.., cancel.clone());
        let mut take = |n: u64| (0..n).map(|_| items.next().unwrap()).last();
        assert_eq!(take(WINDOW), Some(WINDOW - 1));
        // All but the first.
        for id in 1..WINDOW {
            stage.process(item(id), &mut |_| panic!("too early")).unwrap();
        }
        let mut given = 0;
        let stage = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            stage.process(item(0), &mut |_| given += 1).unwrap();
            given
        });
        assert_eq!(take(WINDOW), Some(2 * WINDOW - 1));
        assert_eq!(stage.join().unwrap(), WINDOW);
        cancel.set();
        assert_eq!(items.next(), None);
    }
}
