//! Stages that wait for company, slow values and heavy ones.

use std::sync::{Mutex, mpsc};

use super::*;

/// Keeps values back until they are due.
struct Patient {
    kept: Vec<u64>,
    due: Option<Instant>,
}

impl Stage for Patient {
    type In = u64;
    type Out = Vec<u64>;

    fn process(&mut self, x: u64, _: &mut dyn FnMut(Vec<u64>)) -> Result<(), JobError> {
        self.kept.push(x);
        self.due.get_or_insert(Instant::now() + Duration::from_millis(1));
        Ok(())
    }

    fn due(&self) -> Option<Instant> {
        self.due
    }

    fn idle(&mut self, emit: &mut dyn FnMut(Vec<u64>)) -> Result<(), JobError> {
        self.due = None;
        self.finish(emit)
    }

    fn finish(&mut self, emit: &mut dyn FnMut(Vec<u64>)) -> Result<(), JobError> {
        emit(std::mem::take(&mut self.kept));
        Ok(())
    }
}

/// Hands on what comes; the slow value only when the channel says so.
fn waits_for(slow: u64, go: mpsc::Receiver<()>, workers: usize) -> Vec<impl Stage<In = u64, Out = u64>> {
    let go = Arc::new(Mutex::new(go));
    let make = |_| {
        let go = Arc::clone(&go);
        Map(move |x| {
            if x == slow {
                let waited = go.lock().unwrap().recv_timeout(Duration::from_secs(20));
                assert!(waited.is_ok(), "held up by a value behind it");
            }
            Ok(x)
        })
    };
    (0..workers).map(make).collect()
}

#[test]
fn what_is_due_goes_on_although_another_value_is_under_way() {
    // In a pool that keeps order, what was before the slow value goes on before it; in one that does not, everything else.
    for (ordered, slow, before) in [(true, 1, vec![0]), (false, 3, vec![0, 1, 2, 4, 5, 6, 7])] {
        let (done, go) = mpsc::channel();
        let source = Pipeline::new(0..8_u64, Cancel::default()).unwrap();
        let pool = waits_for(slow, go, 3);
        let pool = source.order(if ordered { Order::Input } else { Order::Completion }).pool("slow", pool);
        let (mut seen, mut late) = (Vec::new(), Vec::new());
        let outcome =
            pool.and_then(|p| p.stage("patient", Patient { kept: vec![], due: None })).unwrap().run(|values| {
                let to = if seen.len() < before.len() { &mut seen } else { &mut late };
                to.extend(values);
                if seen.len() == before.len() {
                    // Gone where the value has come.
                    let _ = done.send(());
                }
                Ok(())
            });
        outcome.end.unwrap();
        seen.sort_unstable();
        late.sort_unstable();
        assert_eq!(seen, before);
        assert_eq!(late, if ordered { (1..8).collect() } else { vec![3] });
    }
}

#[test]
fn what_is_due_takes_along_what_is_there() {
    // The stage is overdue long before the sink lets go of the first batch; by then others wait in the queue.
    struct Overdue(Vec<u64>);
    impl Stage for Overdue {
        type In = u64;
        type Out = Vec<u64>;
        fn process(&mut self, x: u64, emit: &mut dyn FnMut(Vec<u64>)) -> Result<(), JobError> {
            self.0.push(x);
            if self.0.len() == 8 { self.finish(emit) } else { Ok(()) }
        }
        fn due(&self) -> Option<Instant> {
            (!self.0.is_empty()).then(Instant::now)
        }
        fn idle(&mut self, emit: &mut dyn FnMut(Vec<u64>)) -> Result<(), JobError> {
            self.finish(emit)
        }
        fn finish(&mut self, emit: &mut dyn FnMut(Vec<u64>)) -> Result<(), JobError> {
            emit(std::mem::take(&mut self.0));
            Ok(())
        }
    }
    let mut lens = Vec::new();
    let pipeline = Pipeline::new(0..2000_u64, Cancel::default()).and_then(|p| p.stage("batch", Overdue(vec![])));
    let outcome = pipeline.unwrap().run(|batch| {
        sleep(Duration::from_millis(1));
        lens.push(batch.len());
        Ok(())
    });
    outcome.end.unwrap();
    let full = lens.iter().filter(|len| **len == 8).count();
    assert!(full > lens.len() * 3 / 4, "{full} of {} batches are full", lens.len());
}

#[test]
fn what_is_heavy_is_not_piled_up() {
    /// Values before it are light, and quick: workers take many at once.
    const FIRST: u64 = 2000;
    struct Heavy(Arc<Gauge>, bool);
    impl Stage for Heavy {
        type In = u64;
        type Out = u64;
        fn process(&mut self, x: u64, emit: &mut dyn FnMut(u64)) -> Result<(), JobError> {
            self.1 = x >= FIRST;
            if self.1 {
                self.0.up();
            }
            emit(x);
            Ok(())
        }
        fn is_heavy(&mut self) -> bool {
            self.1
        }
    }
    for order in [Order::Input, Order::Completion, Order::Portions] {
        let gauge = Arc::new(Gauge::default());
        let pool: Vec<_> = (0..2).map(|_| Then(Map(Ok), Heavy(Arc::clone(&gauge), false))).collect();
        let mut seen = Vec::new();
        let pipeline = Pipeline::new(0..FIRST + 500, Cancel::default()).unwrap().order(order);
        let outcome = pipeline.pool("heavy", pool).unwrap().run(|x| {
            if x >= FIRST {
                sleep(Duration::from_micros(300));
                gauge.down();
            }
            seen.push(x);
            Ok(())
        });
        outcome.end.unwrap();
        let taken = outcome.report.stages.iter().map(|stage| stage.taken).collect::<Vec<_>>();
        assert_eq!(taken[1..], [FIRST + 500; 2], "{order:?}");
        assert!(order != Order::Input || seen.is_sorted(), "{seen:?}");
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..FIRST + 500));
        let peak = gauge.peak.load(Ordering::SeqCst);
        assert!(peak <= queue_len(2) + 1, "{order:?}: {peak} heavy values at a time");
    }
}

#[test]
fn a_worker_that_fails_in_front_of_a_pool_ends_the_job() {
    // The first value fails when the other worker has filled the queue, and all readers sleep.
    let worker = || {
        Map(|x: u64| {
            if x == 0 {
                sleep(Duration::from_millis(300));
                return Err(JobError::Usage("made up".into()));
            }
            Ok(x)
        })
    };
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        let pool = Pipeline::new(0..100_u64, Cancel::default()).and_then(|p| p.pool("fails", [worker(), worker()]));
        let behind = pool.and_then(|p| p.pool("behind", [Map(Ok), Map(Ok), Map(Ok)])).unwrap();
        let _ = ended.send(behind.run(|_| Ok(())).end.is_err());
    });
    assert_eq!(end.recv_timeout(Duration::from_secs(20)), Ok(true), "a reader sleeps for ever");
}
