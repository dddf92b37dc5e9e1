//! The queue between two stages: places in the order of the inputs, each filled by the worker that reserved it.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::counters::{Counters, Meter};

/// In what order values leave a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As their inputs came.
    #[default]
    Input,
    /// As they are done: none waits for a slower one.
    Completion,
    /// As they are done, quick ones a few at a time, which costs less: one that is slow by surprise holds up those few.
    Portions,
}

/// How long a stage waits for the next place before [`crate::stage::Stage::idle`] is called.
const IDLE: Duration = Duration::from_millis(100);

/// Most values that a worker takes at once, and that a blocked source collects in a place.
pub(super) const CHUNK: usize = 32;

/// A place in a queue, for all the results of what a worker took at once.
struct Place<T> {
    values: Vec<T>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// More may come.
    Open,
    /// All is there.
    Closed,
    /// Its worker failed: the job ends here.
    Broken,
}

/// Places and who waits for them. The first place is never closed and empty.
struct Inner<T> {
    places: VecDeque<Place<T>>,
    /// Number of the first place, counted from the beginning of the job.
    first: u64,
    /// Places that are not there yet and will be.
    promised: usize,
    /// Emptied vectors, used again.
    spare: Vec<Vec<T>>,
    /// Workers that have several values, which may come back.
    held: usize,
    writer_gone: bool,
    reader_gone: bool,
    /// A worker failed that had not reserved a place.
    broken: bool,
    /// Threads that wait for values, for room, and for an open place to be emptied.
    waiting_readers: usize,
    waiting_writers: usize,
    waiting_owners: usize,
}

struct Queue<T> {
    inner: Mutex<Inner<T>>,
    filled: Condvar,
    room: Condvar,
    emptied: Condvar,
    capacity: usize,
}

impl<T> Queue<T> {
    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes places that are done with, and wakes who can go on.
    fn settle(&self, inner: &mut Inner<T>) {
        while inner.places.front().is_some_and(|p| p.state == State::Closed && p.values.is_empty()) {
            inner.first += 1;
            let spent = inner.places.pop_front().filter(|_| inner.spare.len() < self.capacity);
            inner.spare.extend(spent.map(|place| place.values));
            if inner.waiting_writers > 0 {
                self.room.notify_one();
            }
        }
        if inner.waiting_readers > 0 && inner.broken | inner.places.front().is_some_and(Place::is_ready) {
            self.filled.notify_one();
        }
    }
}

impl<T> Inner<T> {
    /// Adds a place at the end.
    fn place(&mut self, state: State, fill: impl FnOnce(&mut Vec<T>)) {
        let mut values = self.spare.pop().unwrap_or_default();
        fill(&mut values);
        self.places.push_back(Place { values, state });
    }
}

impl<T> Place<T> {
    fn is_ready(&self) -> bool {
        self.state == State::Broken || !self.values.is_empty()
    }
}

/// A queue of so many places.
pub(super) fn queue<T>(capacity: usize) -> (Outlet<T>, Intake<T>) {
    let inner = Inner {
        places: VecDeque::with_capacity(capacity),
        first: 0,
        promised: 0,
        spare: Vec::new(),
        held: 0,
        writer_gone: false,
        reader_gone: false,
        broken: false,
        waiting_readers: 0,
        waiting_writers: 0,
        waiting_owners: 0,
    };
    let queue = Arc::new(Queue {
        inner: Mutex::new(inner),
        filled: Condvar::new(),
        room: Condvar::new(),
        emptied: Condvar::new(),
        capacity,
    });
    (Outlet(Arc::clone(&queue)), Intake(queue))
}

/// The writing end of a queue; dropped, it ends the stages behind it when they have taken what is there.
pub(super) struct Outlet<T>(Arc<Queue<T>>);

impl<T> Outlet<T> {
    /// Adds a value, the only writer's. It gets a place of its own; where there is none left it joins the last ones, and
    /// waits when they are as many as a worker takes. False when nobody reads any more.
    pub(super) fn push(&self, value: T, counters: &Counters) -> bool {
        let queue = &*self.0;
        let mut inner = queue.lock();
        while !inner.reader_gone {
            let full = inner.places.len() >= queue.capacity;
            match inner.places.back_mut().filter(|_| full) {
                None => {
                    inner.place(State::Closed, |values| values.push(value));
                    queue.settle(&mut inner);
                    return true;
                }
                // Who reads has been woken for this place.
                Some(last) if last.values.len() < CHUNK => {
                    last.values.push(value);
                    return true;
                }
                Some(_) => inner = self.wait_for_room(inner, counters),
            }
        }
        false
    }

    /// Waits for room for a place; `None` when nobody reads any more.
    pub(super) fn room(&self, counters: &Counters) -> Option<Room<'_, T>> {
        let mut inner = self.0.lock();
        while !inner.reader_gone {
            if inner.places.len() + inner.promised < self.0.capacity {
                inner.promised += 1;
                return Some(Room { outlet: self, kept: true });
            }
            inner = self.wait_for_room(inner, counters);
        }
        None
    }

    fn wait_for_room<'a>(&self, mut inner: MutexGuard<'a, Inner<T>>, counters: &Counters) -> MutexGuard<'a, Inner<T>> {
        let started = Instant::now();
        inner.waiting_writers += 1;
        let mut inner = self.0.room.wait(inner).unwrap_or_else(PoisonError::into_inner);
        inner.waiting_writers -= 1;
        counters.was_blocked(started);
        inner
    }
}

impl<T> Drop for Outlet<T> {
    fn drop(&mut self) {
        self.0.lock().writer_gone = true;
        self.0.filled.notify_all();
    }
}

/// Room for a place that is not there yet.
pub(super) struct Room<'a, T> {
    outlet: &'a Outlet<T>,
    kept: bool,
}

impl<'a, T> Room<'a, T> {
    /// Takes the place for results that come later, before all that are reserved after it.
    pub(super) fn reserve(mut self) -> Reserved<'a, T> {
        self.kept = false;
        let queue = &*self.outlet.0;
        let mut inner = queue.lock();
        inner.promised -= 1;
        let number = inner.first + inner.places.len() as u64;
        if !inner.reader_gone {
            inner.place(State::Open, |_| ());
        }
        Reserved { outlet: self.outlet, number: Some(number), closed: false }
    }

    /// Leaves it open which place results will have: that of their completion.
    pub(super) fn reserve_none(mut self) -> Reserved<'a, T> {
        self.kept = false;
        Reserved { outlet: self.outlet, number: None, closed: false }
    }

    /// Results that are there and belong to no input.
    pub(super) fn append(self, values: &mut Vec<T>) {
        self.reserve_none().close(values);
    }
}

impl<T> Drop for Room<'_, T> {
    fn drop(&mut self) {
        if self.kept {
            self.outlet.0.lock().promised -= 1;
            self.outlet.0.room.notify_one();
        }
    }
}

/// A worker's place. Dropped before it is closed it ends the stages behind it: the job has failed.
pub(super) struct Reserved<'a, T> {
    outlet: &'a Outlet<T>,
    /// Of the place; `None` where it has none yet.
    number: Option<u64>,
    closed: bool,
}

impl<T> Reserved<'_, T> {
    /// The last results.
    pub(super) fn close(mut self, values: &mut Vec<T>) {
        self.closed = true;
        self.fill(values, State::Closed);
    }

    /// Results; more will follow.
    pub(super) fn add(&mut self, values: &mut Vec<T>) {
        self.fill(values, State::Open);
    }

    /// Waits until all that was added has been taken.
    pub(super) fn wait_until_taken(&self, counters: &Counters) {
        let Some(number) = self.number else { return };
        let queue = &*self.outlet.0;
        let started = Instant::now();
        let mut inner = queue.lock();
        inner.waiting_owners += 1;
        let left = |inner: &mut Inner<T>| {
            let at = number.checked_sub(inner.first).map(|at| at as usize);
            !inner.reader_gone && at.and_then(|at| inner.places.get(at)).is_some_and(|place| !place.values.is_empty())
        };
        let mut inner = queue.emptied.wait_while(inner, left).unwrap_or_else(PoisonError::into_inner);
        inner.waiting_owners -= 1;
        counters.was_blocked(started);
    }

    fn fill(&mut self, values: &mut Vec<T>, state: State) {
        let queue = &*self.outlet.0;
        let mut inner = queue.lock();
        if self.number.is_none() && state != State::Open {
            inner.promised -= 1;
        }
        if inner.reader_gone {
            drop(inner);
            values.clear();
            return;
        }
        match self.number.map(|number| (number - inner.first) as usize) {
            Some(at) => {
                let place = &mut inner.places[at];
                place.state = state;
                if place.values.is_empty() {
                    std::mem::swap(&mut place.values, values);
                } else {
                    place.values.append(values);
                }
            }
            None if values.is_empty() => {}
            None => inner.place(State::Closed, |to| std::mem::swap(to, values)),
        }
        queue.settle(&mut inner);
    }
}

impl<T> Drop for Reserved<'_, T> {
    fn drop(&mut self) {
        if self.closed {
            return;
        }
        let queue = &*self.outlet.0;
        let mut inner = queue.lock();
        let at = self.number.and_then(|number| number.checked_sub(inner.first)).map(|at| at as usize);
        match at.and_then(|at| inner.places.get_mut(at)) {
            Some(place) => place.state = State::Broken,
            None => inner.broken = true,
        }
        queue.settle(&mut inner);
    }
}

/// What came out of a queue.
pub(super) enum Taken<V, R> {
    Values(V),
    /// Nothing came for a moment, or until the stage was due.
    Idle(R),
    /// Nothing will come any more.
    End(R),
}

/// How much a worker takes.
pub(super) struct Portion {
    /// Most values.
    pub(super) most: usize,
    /// When not to wait any longer.
    pub(super) due: Option<Instant>,
}

/// The reading end of a queue.
pub(super) struct Intake<T>(Arc<Queue<T>>);

impl<T> Intake<T> {
    /// Places that it has.
    pub(super) fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// True where nothing will come any more. (What others have taken may still come back: who rests need not be there for it.)
    pub(super) fn is_at_end(&self) -> bool {
        let inner = self.0.lock();
        inner.broken || inner.writer_gone && inner.places.is_empty()
    }

    /// Waits for the next values and moves them to `into`; `before_others` is called before anybody else can take any, with
    /// `room`. Who has got several says by [`Intake::done_with`] that none of them comes back any more.
    pub(super) fn take<R, V>(
        &self,
        portion: &Portion,
        counters: &Meter,
        into: &mut Vec<T>,
        room: R,
        before_others: impl FnOnce(R) -> V,
    ) -> Taken<V, R> {
        let queue = &*self.0;
        let mut inner = queue.lock();
        counters.saw_queue(inner.places.len());
        let mut waiting_since = None;
        let taken = loop {
            let front_broken = inner.places.front().is_some_and(|p| p.state == State::Broken && p.values.is_empty());
            if inner.broken || front_broken {
                // Nothing will come for the others either, and only they let go of what the writers wait for.
                queue.filled.notify_all();
                break Taken::End(room);
            }
            if inner.writer_gone && inner.places.is_empty() && inner.held == 0 {
                break Taken::End(room);
            }
            match inner.places.front_mut() {
                Some(place) if !place.values.is_empty() => {
                    // Quick work is soon done by one, and others need not be woken for it.
                    let most = portion.most.clamp(1, place.values.len());
                    into.extend(place.values.drain(..most));
                    if place.values.is_empty() && inner.waiting_owners > 0 {
                        queue.emptied.notify_all();
                    }
                    let value = before_others(room);
                    inner.held += usize::from(into.len() > 1);
                    queue.settle(&mut inner);
                    break Taken::Values(value);
                }
                _ => {}
            }
            let now = Instant::now();
            let since = *waiting_since.get_or_insert(now);
            let idle_at = inner.places.is_empty().then_some(since + IDLE);
            let until = [idle_at, portion.due].into_iter().flatten().min();
            let left = until.map(|until| until.saturating_duration_since(now));
            if left == Some(Duration::ZERO) {
                break Taken::Idle(room);
            }
            inner.waiting_readers += 1;
            // What a stage keeps back until it is due will come without another value.
            let rests = portion.due.is_none();
            if rests {
                counters.rests();
            }
            inner = match left {
                Some(left) => queue.filled.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0,
                None => queue.filled.wait(inner).unwrap_or_else(PoisonError::into_inner),
            };
            if rests {
                counters.goes_on();
            }
            inner.waiting_readers -= 1;
        };
        drop(inner);
        counters.took(into.len());
        if let Some(since) = waiting_since {
            counters.was_starved(since);
        }
        taken
    }

    /// So many values that were taken together are done, or back: none ends before, who might have got them.
    pub(super) fn done_with(&self, values: usize) {
        if values > 1 {
            let mut inner = self.0.lock();
            inner.held -= 1;
            if inner.held == 0 && inner.writer_gone && inner.places.is_empty() {
                self.0.filled.notify_all();
            }
        }
    }

    /// Values that were taken go to the front again, where they are the next for anybody.
    pub(super) fn put_back(&self, values: impl ExactSizeIterator<Item = T>, counters: &Counters) {
        counters.put_back(values.len());
        let queue = &*self.0;
        let mut inner = queue.lock();
        match inner.places.front_mut() {
            Some(first) => {
                first.values.splice(0..0, values);
            }
            None => inner.place(State::Closed, |place| place.extend(values)),
        }
        queue.settle(&mut inner);
    }
}

impl<T> Drop for Intake<T> {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.reader_gone = true;
        // What is dropped may be waited for by those who fill places.
        let left = std::mem::take(&mut inner.places);
        drop(inner);
        self.0.room.notify_all();
        self.0.emptied.notify_all();
        drop(left);
    }
}
