//! Runs stages: a thread or a pool of threads for each, bounded queues between them.
//!
//! A queue holds *places*: a worker that takes values reserves the place of their results in the next queue
//! before it starts, so results leave a pool in the order their inputs came, unless [`Order`] says otherwise (then it only makes
//! sure that there will be a place, and [`InOrder`] brings results into order at the end). A queue's capacity bounds how
//! many values are in flight, however slow one is; stages whose values are large share a thread instead ([`Then`]). A full
//! queue holds back everything before it, down to the source.
//!
//! What is cheap travels in chunks, or waking threads would cost more than the work: a source that is held back adds its
//! values to the last place, and a worker takes as many at once as it is done with in a fraction of a millisecond
//! (`PORTION`). Where nothing is held back each value goes on at once.
//!
//! The first fatal error, a panic included, ends all stages. [`Cancel`] only ends the source: what is on its way is
//! finished. Failures of one item are values like any other ([`PerItem`] makes them from panics).

mod branches;
mod counters;
mod in_order;
mod link;
mod per_item;
#[cfg(test)]
mod tests;
mod then;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use branches::{Branches, Fan, Join, Tag};
use counters::{Counters, Meter};
pub use counters::{Report, StageReport};
pub use in_order::{AsDone, InOrder, Window};
pub use link::Order;
use link::{CHUNK, Intake, Outlet, Portion, Room, Taken, queue};
use ocellus_sys::nvtx::Domain;
pub use per_item::PerItem;
pub use then::Then;
use tracing::{debug, warn};

use crate::error::{JobError, panic_message};
use crate::observe::Recorder;
use crate::stage::{Cancel, Onward, Stage};

/// Stages put together so far, already at work; `T` is what the last one gives.
///
/// ```
/// # use ocellus::{runner::Pipeline, stage::{Cancel, Stage}, error::JobError};
/// struct Square;
/// impl Stage for Square {
///     type In = u64;
///     type Out = u64;
///     fn process(&mut self, x: u64, emit: &mut dyn FnMut(u64)) -> Result<(), JobError> {
///         emit(x * x);
///         Ok(())
///     }
/// }
/// let mut squares = Vec::new();
/// let outcome = Pipeline::new(0..5_u64, Cancel::default())?
///     .pool("square", [Square, Square])?
///     .run(|x| Ok(squares.push(x)));
/// outcome.end?;
/// assert_eq!(squares, [0, 1, 4, 9, 16]);
/// # Ok::<(), JobError>(())
/// ```
///
/// Dropping it stops its threads and waits for them.
pub struct Pipeline<T> {
    // Dropped before `job`, which joins: a thread that waits for room must see its reader gone.
    intake: Intake<T>,
    job: Job,
    order: Order,
    room: usize,
}

/// How a job went.
#[derive(Debug)]
pub struct Outcome {
    /// What every stage did.
    pub report: Report,
    /// What ended the job, [`JobError::Interrupted`] where a [`Cancel`] cut the source short.
    pub end: Result<(), JobError>,
}

impl Outcome {
    /// The same, but a failure where the sink did not get `each` results for every value of the source.
    #[must_use]
    pub fn accounted(self, each: usize) -> Self {
        let Self { report, end } = self;
        let results = report.stages.last().map_or(0, |sink| sink.taken);
        let end = match end {
            Ok(()) | Err(JobError::Interrupted) => report.account(results, each).and(end),
            failed => failed,
        };
        Self { report, end }
    }
}

/// The threads and what they share.
struct Job {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    monitor: Monitor,
    recorder: Recorder,
    profiler: Option<Domain>,
}

/// Sees what the stages of a job have done so far. Clones see the same job.
#[derive(Clone)]
pub struct Monitor {
    started: Instant,
    stages: Arc<Mutex<Vec<Arc<Counters>>>>,
}

impl Monitor {
    /// What was done until now.
    pub fn report(&self) -> Report {
        let stages = self.stages.lock().unwrap_or_else(PoisonError::into_inner);
        Report::new(self.started.elapsed(), stages.iter().map(AsRef::as_ref))
    }

    /// Values that the source has given, where nothing is under way behind it: no thread but the one that asks is at work, and
    /// every stage has taken what the one before has given.
    fn inputs_at_rest(&self) -> Option<u64> {
        let stages = self.stages.lock().unwrap_or_else(PoisonError::into_inner);
        let at_work: usize = stages.iter().skip(1).map(|stage| stage.at_work()).sum();
        let rest = at_work <= 1 && stages.windows(2).all(|pair| pair[0].given() == pair[1].taken());
        stages.first().filter(|_| rest).map(|source| source.given())
    }
}

struct Shared {
    cancel: Cancel,
    aborted: AtomicBool,
    cut_short: AtomicBool,
    failure: Mutex<Option<JobError>>,
}

impl Shared {
    fn aborted(&self) -> bool {
        self.aborted.load(Ordering::SeqCst)
    }

    /// Records the first failure and stops everything.
    fn fail(&self, error: JobError) {
        debug!(%error, "the job ends");
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.aborted.store(true, Ordering::SeqCst);
        self.cancel.set();
    }

    /// Runs a thread's work; an error or a panic becomes the job's failure.
    fn guard(&self, stage: &'static str, work: impl FnOnce() -> Result<(), JobError>) {
        let ended = catch_unwind(AssertUnwindSafe(work))
            .unwrap_or_else(|panic| Err(JobError::Panic { stage, message: panic_message(panic.as_ref()) }));
        if let Err(error) = ended {
            self.fail(error);
        }
    }
}

impl Job {
    fn spawn(&mut self, counters: Arc<Counters>, work: impl FnOnce(Meter) + Send + 'static) -> Result<(), JobError> {
        let name = format!("{}-{}", counters.stage, self.threads.len());
        let meter = self.meter(counters, &name);
        let thread = std::thread::Builder::new().name(name).spawn(move || work(meter));
        self.threads.push(thread.map_err(|e| JobError::io("cannot start a thread", e))?);
        Ok(())
    }

    fn counters(&mut self, stage: &'static str, workers: usize, queue_capacity: usize) -> Arc<Counters> {
        let counters = Arc::new(Counters::new(stage, workers, queue_capacity));
        self.monitor.stages.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&counters));
        counters
    }

    /// For one thread of a stage.
    fn meter(&self, counters: Arc<Counters>, thread: &str) -> Meter {
        let label = self.profiler.map(|domain| domain.label(counters.stage));
        Meter { counters, track: self.recorder.track(thread), label }
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // The threads catch their own panics.
            let _ = thread.join();
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.shared.aborted.store(true, Ordering::SeqCst);
            self.shared.cancel.set();
            self.join();
        }
    }
}

/// What a worker takes at once is about so much work; what takes longer is handed on in parts.
const PORTION: Duration = Duration::from_micros(200);

/// Places in the queue behind a stage: every worker at work on one and a finished one waiting for each.
fn queue_len(workers: usize) -> usize {
    2 * workers.max(1)
}

impl<T: Send + 'static> Pipeline<T> {
    /// Starts with a source on a thread of its own. A source that may wait long in `next` watches `cancel` itself.
    ///
    /// # Errors
    /// Where a thread cannot be started.
    pub fn new(
        source: impl IntoIterator<Item = T, IntoIter: Send + 'static>,
        cancel: Cancel,
    ) -> Result<Self, JobError> {
        Self::recorded(source, cancel, Recorder::default())
    }

    /// The same, and every thread becomes a track of `recorder` with a span for each value.
    ///
    /// # Errors
    /// As [`Pipeline::new`].
    pub fn recorded(
        source: impl IntoIterator<Item = T, IntoIter: Send + 'static>,
        cancel: Cancel,
        recorder: Recorder,
    ) -> Result<Self, JobError> {
        let shared = Arc::new(Shared {
            cancel,
            aborted: AtomicBool::new(false),
            cut_short: AtomicBool::new(false),
            failure: Mutex::new(None),
        });
        let monitor = Monitor { started: Instant::now(), stages: Arc::default() };
        // A profiler that finds no NVTX shows the job without its stages.
        let profiler = Domain::new("ocellus").unwrap_or_else(|error| {
            warn!("no ranges of stages for the profiler: {error}");
            None
        });
        let mut job = Job { shared: Arc::clone(&shared), threads: Vec::new(), monitor, recorder, profiler };
        let counters = job.counters("source", 1, 0);
        let (outlet, intake) = queue(queue_len(1));
        let mut source = source.into_iter();
        job.spawn(counters, move |counters| {
            shared.guard("source", || {
                while !shared.cancel.is_set() {
                    let work = counters.begin(1);
                    let Some(value) = source.next() else { break };
                    counters.finished(work, 1, 1);
                    if !outlet.push(value, &counters) {
                        break;
                    }
                }
                if shared.cancel.is_set() {
                    shared.cut_short.store(true, Ordering::SeqCst);
                }
                Ok(())
            });
        })?;
        Ok(Self { intake, job, order: Order::Input, room: 0 })
    }

    /// What order values leave the pools in that are added from here on.
    #[must_use]
    pub fn order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// Gives the queue behind the stage that is added next so many places at least.
    #[must_use]
    pub fn room(self, places: usize) -> Self {
        Self { room: places, ..self }
    }

    /// Adds a stage on one thread.
    ///
    /// # Errors
    /// Where the thread cannot be started.
    pub fn stage<S>(self, name: &'static str, stage: S) -> Result<Pipeline<S::Out>, JobError>
    where
        S: Stage<In = T, Out: 'static> + 'static,
    {
        self.pool(name, [stage])
    }

    /// Adds a pool: one thread for each of `stages`, which must be alike. Values leave in the order they came, unless
    /// [`Pipeline::order`] says otherwise; what [`Stage::finish`] gives comes last.
    ///
    /// # Errors
    /// Where a thread cannot be started, or there is no stage.
    pub fn pool<S>(
        mut self,
        name: &'static str,
        stages: impl IntoIterator<Item = S>,
    ) -> Result<Pipeline<S::Out>, JobError>
    where
        S: Stage<In = T, Out: 'static> + 'static,
    {
        let stages: Vec<S> = stages.into_iter().collect();
        let workers = stages.len();
        if workers == 0 {
            return Err(JobError::Usage(format!("the stage \"{name}\" has no threads")));
        }
        let counters = self.job.counters(name, workers, self.intake.capacity());
        let (outlet, intake) = queue(queue_len(workers).max(self.room));
        let link = Arc::new(Link { intake: self.intake, outlet, order: self.order });
        for stage in stages {
            let (link, shared) = (Arc::clone(&link), Arc::clone(&self.job.shared));
            self.job.spawn(Arc::clone(&counters), move |counters| {
                shared.guard(name, || work(stage, &link, &shared, &counters));
                counters.rests();
            })?;
        }
        Ok(Pipeline { intake, job: self.job, order: self.order, room: 0 })
    }

    /// Sees what the stages do, while they run and afterwards.
    pub fn monitor(&self) -> Monitor {
        self.job.monitor.clone()
    }

    /// Hands every result to `sink` on the calling thread, and returns when all threads have ended.
    pub fn run(self, mut sink: impl FnMut(T) -> Result<(), JobError>) -> Outcome {
        let Self { intake, mut job, .. } = self;
        let counters = job.counters("sink", 1, intake.capacity());
        let counters = job.meter(counters, "sink");
        let shared = Arc::clone(&job.shared);
        let portion = Portion { most: CHUNK, due: None };
        let mut values = Vec::new();
        shared.guard("sink", || {
            while !shared.aborted() {
                match intake.take(&portion, &counters, &mut values, (), |()| ()) {
                    Taken::Values(()) => {
                        let count = values.len();
                        let work = counters.begin(count);
                        values.drain(..).try_for_each(&mut sink)?;
                        counters.finished(work, count, 0);
                        intake.done_with(count);
                    }
                    Taken::Idle(()) => {}
                    Taken::End(()) => break,
                }
            }
            Ok(())
        });
        drop(intake);
        job.join();
        let report = job.monitor.report();
        for StageReport { stage, taken, given, busy_s, .. } in &report.stages {
            debug!(stage, taken, given, busy_s, "the stage ended");
        }
        let failure = shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        let end = match failure {
            Some(error) => Err(error),
            None if shared.cut_short.load(Ordering::SeqCst) => Err(JobError::Interrupted),
            None => Ok(()),
        };
        Outcome { report, end }
    }
}

/// What the workers of a pool share.
struct Link<I, O> {
    intake: Intake<I>,
    outlet: Outlet<O>,
    order: Order,
}

/// How long a worker's values take.
struct Pace(Duration);

impl Pace {
    /// As many values as are a portion.
    fn portion(&self) -> usize {
        let values = PORTION.as_nanos() / self.0.as_nanos().max(1);
        usize::try_from(values).unwrap_or(CHUNK).clamp(1, CHUNK)
    }

    /// So many took so long. What is slow counts at once, or others would wait behind it.
    fn took(&mut self, values: usize, time: Duration) {
        let mean = time / u32::try_from(values).unwrap_or(u32::MAX).max(1);
        self.0 = mean.max((3 * self.0 + mean) / 4);
    }
}

/// How often a worker that rests looks whether the job ends.
const POLL: Duration = Duration::from_millis(50);

/// Whether a worker takes more values; leaves them to others for a while where it wants to, or until there will be none any more.
fn goes_on<S: Stage>(stage: &mut S, link: &Link<S::In, S::Out>, shared: &Shared, counters: &Meter) -> bool {
    loop {
        let time = match stage.onward() {
            Onward::Take => return true,
            Onward::Leave => return false,
            Onward::Rest(time) => time,
        };
        counters.rests();
        let started = Instant::now();
        while started.elapsed() < time && !shared.aborted() && !link.intake.is_at_end() {
            std::thread::sleep(POLL.min(time));
        }
        counters.goes_on();
    }
}

/// A worker's life.
fn work<S: Stage>(mut stage: S, link: &Link<S::In, S::Out>, shared: &Shared, counters: &Meter) -> Result<(), JobError> {
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    let mut pace = Pace(PORTION);
    while !shared.aborted() {
        let Some(room) = link.outlet.room(counters) else { break };
        let (most, reserve): (_, fn(_) -> _) = match link.order {
            Order::Input => (pace.portion(), Room::reserve),
            Order::Completion => (1, Room::reserve_none),
            Order::Portions => (pace.portion(), Room::reserve_none),
        };
        let portion = Portion { most, due: stage.due() };
        match link.intake.take(&portion, counters, &mut inputs, room, reserve) {
            Taken::Values(mut place) => {
                let (mut work, mut busy) = (counters.begin(inputs.len()), Duration::ZERO);
                let (taken, mut handled, mut done) = (inputs.len(), 0, 0);
                let mut portion = inputs.drain(..);
                while let Some(input) = portion.next() {
                    stage.process(input, &mut |output| outputs.push(output))?;
                    handled += 1;
                    done += 1;
                    let (left, heavy) = (portion.len(), stage.is_heavy());
                    if left == 0 || !(heavy || work.elapsed() > PORTION) {
                        continue;
                    }
                    if link.order != Order::Input {
                        // Others may have the rest, each with room for what it gives.
                        link.intake.put_back(portion, counters);
                        break;
                    }
                    // What is done waits no longer for the rest.
                    busy += counters.finished(work, std::mem::take(&mut done), outputs.len());
                    place.add(&mut outputs);
                    if heavy {
                        place.wait_until_taken(counters);
                    }
                    work = counters.begin(left);
                }
                busy += counters.finished(work, done, outputs.len());
                pace.took(handled, busy);
                place.close(&mut outputs);
                link.intake.done_with(taken);
                if !goes_on(&mut stage, link, shared, counters) {
                    break;
                }
            }
            Taken::Idle(room) => {
                stage.idle(&mut |output| outputs.push(output))?;
                counters.gave(outputs.len());
                room.append(&mut outputs);
            }
            Taken::End(room) => {
                stage.finish(&mut |output| outputs.push(output))?;
                counters.gave(outputs.len());
                room.append(&mut outputs);
                break;
            }
        }
    }
    Ok(())
}
