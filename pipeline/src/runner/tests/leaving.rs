//! Workers that leave their pool before the end, or for a while.

use std::sync::atomic::AtomicBool;

use super::*;

/// Takes so many values, and a portion's rest; none when it has said that it is done.
struct Few {
    left: u64,
    said: bool,
}

impl Few {
    fn new(left: u64) -> Self {
        Self { left, said: false }
    }
}

impl Stage for Few {
    type In = u64;
    type Out = u64;

    fn process(&mut self, x: u64, emit: &mut dyn FnMut(u64)) -> Result<(), JobError> {
        if self.said {
            return Err(JobError::Usage("given a value when it was done".into()));
        }
        self.left = self.left.saturating_sub(1);
        emit(x);
        Ok(())
    }

    fn onward(&mut self) -> Onward {
        self.said = self.left == 0;
        if self.said { Onward::Leave } else { Onward::Take }
    }
}

#[test]
fn workers_that_are_done_leave_the_rest_to_others() {
    for order in [Order::Input, Order::Completion, Order::Portions] {
        let pipeline = Pipeline::new(0..2000, Cancel::default()).unwrap().order(order);
        let pipeline = pipeline.pool("few", [1, 2, u64::MAX, 30].map(Few::new)).unwrap();
        let mut seen = Vec::new();
        let outcome = pipeline.run(|x| {
            seen.push(x);
            Ok(())
        });
        outcome.end.unwrap();
        assert!(order != Order::Input || seen.is_sorted(), "{seen:?}");
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..2000), "{seen:?}");
    }
}

/// Two of a pool at its last values: one keeps its first of them until the other is at work, which is slow and then done.
struct Last {
    leaves: bool,
    at_work: Arc<AtomicBool>,
    seen: bool,
}

impl Stage for Last {
    type In = u64;
    type Out = u64;

    fn process(&mut self, x: u64, emit: &mut dyn FnMut(u64)) -> Result<(), JobError> {
        if x >= LAST && !std::mem::replace(&mut self.seen, true) {
            if self.leaves {
                self.at_work.store(true, Ordering::SeqCst);
                sleep(Duration::from_millis(300));
            }
            // Not for ever, where this one has all of them.
            let mut rounds = 0;
            while !self.at_work.load(Ordering::SeqCst) && rounds < 1000 {
                sleep(Duration::from_millis(1));
                rounds += 1;
            }
        }
        emit(x);
        Ok(())
    }

    fn onward(&mut self) -> Onward {
        if self.leaves && self.seen { Onward::Leave } else { Onward::Take }
    }
}

/// From here on values are the last ones.
const LAST: u64 = 3900;

/// What a worker puts back may be its own: the others may have ended before.
#[test]
fn what_a_worker_puts_back_before_it_leaves_is_not_lost() {
    for order in [Order::Completion, Order::Portions] {
        let at_work = Arc::default();
        let last = |leaves| Last { leaves, at_work: Arc::clone(&at_work), seen: false };
        let pipeline = Pipeline::new(0..4000, Cancel::default()).unwrap().order(order);
        let mut seen = Vec::new();
        let outcome = pipeline.pool("last", [last(true), last(false)]).unwrap().run(|x| {
            seen.push(x);
            Ok(())
        });
        outcome.accounted(1).end.unwrap();
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..4000), "{} of 4000", seen.len());
    }
}

/// Says all this when it is asked, and then that it takes more.
struct Tired {
    says: std::vec::IntoIter<Onward>,
    taken: Arc<AtomicUsize>,
}

impl Tired {
    fn new(says: Vec<Onward>, taken: &Arc<AtomicUsize>) -> Self {
        Self { says: says.into_iter(), taken: Arc::clone(taken) }
    }
}

impl Stage for Tired {
    type In = u64;
    type Out = u64;

    fn process(&mut self, x: u64, emit: &mut dyn FnMut(u64)) -> Result<(), JobError> {
        self.taken.fetch_add(1, Ordering::SeqCst);
        emit(x);
        Ok(())
    }

    fn onward(&mut self) -> Onward {
        self.says.next().unwrap_or(Onward::Take)
    }
}

/// Longer than a test may take, which only catches hangs.
const LONG: Duration = Duration::from_secs(120);
const PATIENCE: Duration = Duration::from_secs(60);

/// Two workers that rest as soon as they have had a value, one for so long, and one that does not. Gives how many values each took
/// of as many as come until the sink has had enough.
fn beside_who_rests(order: Order, rest: Duration, mut enough: impl FnMut(&[usize]) -> bool) -> Vec<usize> {
    let taken = [(); 3].map(|()| Arc::<AtomicUsize>::default());
    let says = [vec![Onward::Rest(LONG)], vec![Onward::Rest(rest)], vec![]];
    let workers = says.into_iter().zip(&taken).map(|(says, taken)| Tired::new(says, taken));
    let cancel = Cancel::default();
    let pipeline = Pipeline::new(0.., cancel.clone()).unwrap().order(order);
    let counts = || taken.iter().map(|taken| taken.load(Ordering::SeqCst)).collect::<Vec<_>>();
    let mut seen = Vec::new();
    let outcome = pipeline.pool("tired", workers).unwrap().run(|x| {
        seen.push(x);
        if enough(&counts()) {
            cancel.set();
        }
        Ok(())
    });
    assert!(matches!(outcome.end, Err(JobError::Interrupted)), "{:?}", outcome.end);
    seen.sort_unstable();
    assert!(seen.iter().copied().eq(0..seen.len() as u64), "{order:?}");
    counts()
}

#[test]
fn who_rests_leaves_the_values_to_others_and_comes_back() {
    for order in [Order::Input, Order::Completion, Order::Portions] {
        let started = Instant::now();
        let all = |counts: &[usize]| counts.iter().all(|&count| count > 0);
        let counts = beside_who_rests(order, Duration::from_millis(30), |counts| {
            all(counts) && counts[1] > CHUNK || started.elapsed() > PATIENCE
        });
        assert!(counts[0] <= CHUNK && counts[1] > CHUNK && counts[2] > 0, "{order:?}: {counts:?}");
        // Whoever rests for long does not keep the job from ending.
        assert!(started.elapsed() < LONG, "{order:?}");
    }
}

#[test]
fn who_rests_is_asked_again_before_it_takes_more() {
    for order in [Order::Input, Order::Completion] {
        let counts = [(); 2].map(|()| Arc::<AtomicUsize>::default());
        let says = [vec![Onward::Rest(Duration::from_millis(1)), Onward::Leave], vec![]];
        let workers = says.into_iter().zip(&counts).map(|(says, taken)| Tired::new(says, taken));
        let pipeline = Pipeline::new(0..1000, Cancel::default()).unwrap().order(order);
        let mut seen = 0;
        let outcome = pipeline.pool("tired", workers).unwrap().run(|_| {
            seen += 1;
            // So that there are values left when it has rested.
            sleep(Duration::from_micros(100));
            Ok(())
        });
        outcome.end.unwrap();
        assert_eq!(seen, 1000, "{order:?}");
        // Nobody takes more than one value before it is known how long they take.
        assert!(counts[0].load(Ordering::SeqCst) <= 1, "{order:?}");
    }
}

#[test]
fn a_failure_wakes_who_rests() {
    let (taken, started) = (Arc::<AtomicUsize>::default(), Instant::now());
    let pipeline = Pipeline::new(0.., Cancel::default()).unwrap().order(Order::Completion);
    let workers = [vec![Onward::Rest(LONG)], vec![]].map(|says| Tired::new(says, &taken));
    let mut seen = 0;
    let outcome = pipeline.pool("tired", workers).unwrap().run(|_| {
        seen += 1;
        if seen < 1000 { Ok(()) } else { Err(JobError::Usage("made up".into())) }
    });
    assert_eq!(outcome.end.unwrap_err().to_string(), "made up");
    assert!(started.elapsed() < LONG);
}
