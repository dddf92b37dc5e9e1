//! The lanes of a job together: a GPU may be lost at any call, and what it was at the others do again.
//!
//! The loaders of a lost lane give on what they have and end. What it had loaded already, or was computing, is read anew and
//! goes through another lane, on the thread that finds out: so it keeps its place in the order of rows. Nothing of a batch is
//! given on before all of it is enqueued, so that nothing comes twice. Only the last lane ends the job when it is lost.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ocellus_kernels::KernelError;
use tracing::info;

use super::infer::Pending;
use super::load::{LaneInput, Load, LoadOutcome, Unloaded};
use crate::error::JobError;
use crate::frame::{Branch, Encoded, Item, Picture, PooledVec, Work};
use crate::stage::{Onward, Stage};

/// The lanes of a job that work. Clones see the same ones.
#[derive(Clone)]
pub struct Alive(Arc<Roll>);

struct Roll {
    lanes: Mutex<Vec<Member>>,
    warn: Box<dyn Fn(&str) + Send + Sync>,
}

/// A lane.
struct Member {
    gpu: Arc<str>,
    works: bool,
    /// Workers of its that are there for the work.
    loaders: usize,
}

impl Alive {
    /// All lanes work, on the GPUs of these names; `warn` is told of each that does not any more.
    pub fn new(gpus: impl IntoIterator<Item = Arc<str>>, warn: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let lanes = gpus.into_iter().map(|gpu| Member { gpu, works: true, loaders: 0 }).collect();
        Self(Arc::new(Roll { lanes: Mutex::new(lanes), warn: Box::new(warn) }))
    }

    fn with<T>(&self, look: impl FnOnce(&mut Vec<Member>) -> T) -> T {
        look(&mut self.0.lanes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn has(&self, lane: usize) -> bool {
        self.with(|lanes| lanes.get(lane).is_some_and(|lane| lane.works))
    }

    fn first(&self) -> Result<usize, JobError> {
        let first = self.with(|lanes| lanes.iter().position(|lane| lane.works));
        Ok(first.ok_or_else(|| KernelError::gpu("none is left"))?)
    }

    /// The lane of the GPU of this name.
    fn lane(&self, gpu: &str) -> usize {
        self.with(|lanes| lanes.iter().position(|lane| *lane.gpu == *gpu)).unwrap_or(usize::MAX)
    }

    /// A worker of this lane is there for the work.
    fn join(&self, lane: usize) {
        self.with(|lanes| lanes.get_mut(lane).into_iter().for_each(|lane| lane.loaders += 1));
    }

    /// A worker of this lane wants to leave the work to others; false where it is the lane's last one.
    fn leave(&self, lane: usize) -> bool {
        self.with(|lanes| {
            let others = lanes.get_mut(lane).filter(|lane| lane.loaders > 1);
            others.map(|lane| lane.loaders -= 1).is_some()
        })
    }

    /// Goes on without a lane where another one works.
    ///
    /// # Errors
    /// The error itself, with the GPU's name, where it was the last one or the GPU is not at fault.
    fn lose(&self, lane: usize, error: JobError) -> Result<(), JobError> {
        let is_lost = matches!(error, JobError::Kernel(KernelError::Gpu { .. } | KernelError::OutOfMemory { .. }));
        let line = self.with(|lanes| {
            let others = lanes.iter().enumerate().any(|(n, other)| n != lane && other.works);
            let Some(Member { gpu, works, .. }) = lanes.get_mut(lane) else { return Err(error) };
            if !is_lost || !others {
                return Err(error.on_gpu(gpu));
            }
            let first = std::mem::replace(works, false);
            Ok(first.then(|| format!("the job goes on without {gpu}: {error}")))
        })?;
        if let Some(line) = line {
            (self.0.warn)(&line);
        }
        Ok(())
    }
}

/// How often a worker found no memory for its decoder, and what it does about it.
struct Shortage {
    /// Batches in a row that needed one.
    batches: u32,
    /// How long it rests the next time.
    rest: Duration,
}

impl Shortage {
    /// Batches in a row, after which a worker leaves the work to others: one may have come at a bad moment.
    const MOST: u32 = 2;
    /// How long it does so at first; each time that it finds none again, for twice as long.
    const REST: Duration = Duration::from_secs(4);
    const LONGEST: Duration = Duration::from_secs(64);

    fn new() -> Self {
        Self { batches: 0, rest: Self::REST }
    }

    /// There was a batch, which needed a decoder or not, for which there was memory or not. True where it has been too little for
    /// too long.
    fn saw(&mut self, is_needed: bool, is_short: bool) -> bool {
        if is_short {
            self.batches = self.batches.saturating_add(1);
        } else if is_needed {
            *self = Self::new();
        }
        is_short && self.batches >= Self::MOST
    }

    /// How long to rest now.
    fn rest(&mut self) -> Duration {
        let rest = self.rest;
        self.rest = Self::LONGEST.min(2 * rest);
        rest
    }
}

/// The stage: a worker of a lane, [`Load`]. It ends with its lane, and gives on what it had for others. Where it finds no memory
/// for its decoder, and the lane has other workers, it gives back what it has and leaves the work to them for a while.
pub struct LaneLoad<F> {
    lane: usize,
    load: Load<F>,
    alive: Alive,
    shortage: Shortage,
    /// For so long the lane's workers are to be without this one.
    rest: Option<Duration>,
    rests: bool,
    has_left: bool,
}

impl<F> LaneLoad<F> {
    /// A worker of this lane.
    pub fn new(lane: usize, load: Load<F>, alive: Alive) -> Self {
        alive.join(lane);
        Self { lane, load, alive, shortage: Shortage::new(), rest: None, rests: false, has_left: false }
    }
}

impl<F: Stage<In = Item<Option<Encoded>>, Out = Item<Picture>>> Stage for LaneLoad<F> {
    type In = PooledVec<Item<Work>>;
    type Out = Branch<LaneInput>;

    fn process(&mut self, works: Self::In, emit: &mut dyn FnMut(Self::Out)) -> Result<(), JobError> {
        let is_needed = works.iter().any(|work| matches!(work.payload, Ok(Work::Jpeg { .. })));
        let value = if self.alive.has(self.lane) {
            match self.load.load(works) {
                Ok(outcome) => LaneInput::Outcome(outcome),
                Err(Unloaded { works, error }) => {
                    match error {
                        Some(error) => self.alive.lose(self.lane, error)?,
                        // The lane's end: who lost the memory is about to say why.
                        None => self.has_left = true,
                    }
                    LaneInput::Again(works)
                }
            }
        } else {
            LaneInput::Again(works.into_vec())
        };
        emit(Branch { branch: self.lane, value });
        let is_short = self.shortage.saw(is_needed, self.load.take_short());
        // The last one of a lane goes on trying.
        if is_short && !self.has_left && self.alive.leave(self.lane) {
            let rest = self.shortage.rest();
            info!(?rest, "a worker finds no memory for its decoder");
            self.rest = Some(rest);
            if let Err(error) = self.load.let_go() {
                self.alive.lose(self.lane, error.into())?;
            }
        }
        Ok(())
    }

    fn is_heavy(&mut self) -> bool {
        self.load.is_heavy()
    }

    fn onward(&mut self) -> Onward {
        if let Some(rest) = self.rest.take() {
            self.rests = true;
            return Onward::Rest(rest);
        }
        if std::mem::take(&mut self.rests) {
            self.alive.join(self.lane);
        }
        if self.has_left || !self.alive.has(self.lane) { Onward::Leave } else { Onward::Take }
    }
}

/// The stage behind it: gives each batch to the stage `S` of its lane, or of another one where that is lost. The stage `R`
/// reads files anew. Clones are the same lanes.
pub struct Lanes<S, R>(Arc<Mutex<All<S, R>>>);

struct All<S, R> {
    stages: Vec<S>,
    reader: R,
    alive: Alive,
    /// Of the batch that is being enqueued.
    pending: Vec<Pending>,
    items: Vec<Item<()>>,
}

impl<S, R> Clone for Lanes<S, R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S, R> Lanes<S, R>
where
    S: Stage<In = LaneInput, Out = Pending>,
    R: Stage<In = Item<()>, Out = Item<Work>>,
{
    /// Lanes with these stages.
    pub fn new(stages: Vec<S>, reader: R, alive: Alive) -> Self {
        let (pending, items) = (Vec::new(), Vec::new());
        Self(Arc::new(Mutex::new(All { stages, reader, alive, pending, items })))
    }

    fn with<T>(&self, work: impl FnOnce(&mut All<S, R>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Enqueues what the GPU of this name had enqueued and has not done, as it says by `error`.
    ///
    /// # Errors
    /// Where no lane is left.
    pub(super) fn again(&self, gpu: &str, error: JobError, items: &[Item<()>]) -> Result<Vec<Pending>, JobError> {
        let mut pending = Vec::new();
        self.with(|all| {
            all.alive.lose(all.alive.lane(gpu), error)?;
            let works = read(&mut all.reader, items)?;
            all.run(all.alive.first()?, LaneInput::Again(works), &mut |part| pending.push(part))
        })?;
        Ok(pending)
    }
}

impl<S, R> All<S, R>
where
    S: Stage<In = LaneInput, Out = Pending>,
    R: Stage<In = Item<()>, Out = Item<Work>>,
{
    /// Enqueues a batch in a lane, or in the next one where that one is lost, and so on.
    fn run(&mut self, lane: usize, input: LaneInput, emit: &mut dyn FnMut(Pending)) -> Result<(), JobError> {
        self.items.clear();
        // Where there is one lane nobody does it again.
        if self.stages.len() > 1 {
            keep_items(&input, &mut self.items);
        }
        let (mut lane, mut next) = (lane, input);
        loop {
            if self.alive.has(lane) {
                let stage = self.stages.get_mut(lane).ok_or_else(|| KernelError::gpu("there is no such lane"))?;
                self.pending.clear();
                match stage.process(next, &mut |part| self.pending.push(part)) {
                    Ok(()) => {
                        self.pending.drain(..).for_each(emit);
                        return Ok(());
                    }
                    Err(error) => self.alive.lose(lane, error)?,
                }
                next = LaneInput::Again(read(&mut self.reader, &self.items)?);
            } else {
                next = LaneInput::Again(match next {
                    LaneInput::Outcome(LoadOutcome::Loaded(_)) => read(&mut self.reader, &self.items)?,
                    LaneInput::Outcome(LoadOutcome::TooLarge(works)) | LaneInput::Again(works) => works,
                });
            }
            lane = self.alive.first()?;
        }
    }
}

/// Reads files anew.
fn read<R>(reader: &mut R, items: &[Item<()>]) -> Result<Vec<Item<Work>>, JobError>
where
    R: Stage<In = Item<()>, Out = Item<Work>>,
{
    let mut works = Vec::with_capacity(items.len());
    items.iter().cloned().try_for_each(|item| reader.process(item, &mut |work| works.push(work)))?;
    Ok(works)
}

impl<S, R> Stage for Lanes<S, R>
where
    S: Stage<In = LaneInput, Out = Pending>,
    R: Stage<In = Item<()>, Out = Item<Work>>,
{
    type In = Branch<LaneInput>;
    type Out = Pending;

    fn process(&mut self, input: Self::In, emit: &mut dyn FnMut(Pending)) -> Result<(), JobError> {
        self.with(|all| all.run(input.branch, input.value, emit))
    }
}

/// Puts what can be read anew behind `items`.
fn keep_items(input: &LaneInput, items: &mut Vec<Item<()>>) {
    match input {
        LaneInput::Outcome(LoadOutcome::Loaded(batch)) => items.extend(batch.items.iter().map(without_payload)),
        LaneInput::Outcome(LoadOutcome::TooLarge(works)) | LaneInput::Again(works) => {
            items.extend(works.iter().map(without_payload));
        }
    }
}

/// The item as it came; a failed one stays as it is.
pub(super) fn without_payload<T>(item: &Item<T>) -> Item<()> {
    item.with(item.payload.as_ref().map(|_| ()).map_err(Clone::clone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_short_rests_ever_longer_until_there_is_memory() {
        let mut shortage = Shortage::new();
        // A batch that needs no decoder tells nothing.
        for (is_needed, is_short, rests) in
            [(true, true, false), (false, false, false), (true, true, true), (true, true, true)]
        {
            assert_eq!(shortage.saw(is_needed, is_short), rests);
        }
        let seconds = |shortage: &mut Shortage| shortage.rest().as_secs();
        assert_eq!([(); 7].map(|()| seconds(&mut shortage)), [4, 8, 16, 32, 64, 64, 64]);
        assert!(!shortage.saw(false, false));
        assert_eq!(seconds(&mut shortage), 64);
        // There is some: one bad moment is none again.
        assert!(!shortage.saw(true, false) && !shortage.saw(true, true) && shortage.saw(true, true));
        assert_eq!(seconds(&mut shortage), 4);
    }
}
