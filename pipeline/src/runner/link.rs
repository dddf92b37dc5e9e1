//! The queue between two stages: a bounded channel of places, each filled later by the worker that reserved it.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::counters::{Counters, Meter};

/// How long a stage waits for the next place before [`crate::stage::Stage::idle`] is called.
const IDLE: Duration = Duration::from_millis(100);

/// A place in a queue, for all the results of one input.
pub(super) struct Place<T>(Receiver<Vec<T>>);

/// The worker's end of a [`Place`]. Dropped unfilled it ends the stages behind it: the job has failed.
pub(super) struct Reserved<T>(Sender<Vec<T>>);

impl<T> Place<T> {
    fn reserve() -> (Reserved<T>, Self) {
        let (sender, receiver) = bounded(1);
        (Reserved(sender), Self(receiver))
    }

    pub(super) fn filled(values: Vec<T>) -> Self {
        let (reserved, place) = Self::reserve();
        reserved.fill(values);
        place
    }
}

impl<T> Reserved<T> {
    pub(super) fn fill(self, values: Vec<T>) {
        // Fails only when the reader is gone, which the worker learns at its next place.
        let _ = self.0.send(values);
    }
}

/// What came out of a queue.
pub(super) enum Taken<T> {
    Value(T),
    /// Nothing came for a moment.
    Idle,
    /// Nothing will come any more.
    End,
}

/// The reading end of a queue.
pub(super) struct Intake<T> {
    places: Receiver<Place<T>>,
    ready: std::vec::IntoIter<T>,
}

impl<T> Intake<T> {
    pub(super) fn new(places: Receiver<Place<T>>) -> Self {
        Self { places, ready: Vec::new().into_iter() }
    }

    pub(super) fn next(&mut self, counters: &Meter) -> Taken<T> {
        loop {
            if let Some(value) = self.ready.next() {
                counters.took_one();
                return Taken::Value(value);
            }
            counters.saw_queue(self.places.len());
            let started = Instant::now();
            let place = self.places.recv_timeout(IDLE);
            let values = place.map(|place| place.0.recv());
            counters.was_starved(started);
            match values {
                Ok(Ok(values)) => self.ready = values.into_iter(),
                Err(RecvTimeoutError::Timeout) => return Taken::Idle,
                Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => return Taken::End,
            }
        }
    }
}

impl<T> Drop for Intake<T> {
    fn drop(&mut self) {
        // The channel itself keeps what is in it as long as there is a sender, and that one may be waiting for what its values
        // hold to come back.
        while self.places.try_recv().is_ok() {}
    }
}

/// What the workers of a pool share.
pub(super) struct Feed<I, O> {
    pub(super) intake: Intake<I>,
    pub(super) out: Sender<Place<O>>,
}

impl<I, O> Feed<I, O> {
    /// The next value with the place for its results. Waits while the next queue is full.
    pub(super) fn take(&mut self, counters: &Meter) -> Taken<(I, Reserved<O>)> {
        match self.intake.next(counters) {
            Taken::Value(value) => {
                let (reserved, place) = Place::reserve();
                if self.send(place, counters) { Taken::Value((value, reserved)) } else { Taken::End }
            }
            Taken::Idle => Taken::Idle,
            Taken::End => Taken::End,
        }
    }

    /// Results that belong to no one input.
    pub(super) fn append(&mut self, values: Vec<O>, counters: &Counters) {
        if !values.is_empty() {
            counters.gave(values.len());
            self.send(Place::filled(values), counters);
        }
    }

    /// False when nobody reads any more.
    fn send(&self, place: Place<O>, counters: &Counters) -> bool {
        let started = Instant::now();
        let sent = self.out.send(place).is_ok();
        counters.was_blocked(started);
        sent
    }
}
