use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::*;
use crate::error::{ErrorKind, ItemError, StageName};
use crate::frame::{Item, Origin};

mod leaving;
mod lost;
mod order;
mod waiting;

/// A stage out of a closure.
struct Map<F>(F);

impl<F: FnMut(u64) -> Result<u64, JobError> + Send> Stage for Map<F> {
    type In = u64;
    type Out = u64;

    fn process(&mut self, x: u64, emit: &mut dyn FnMut(u64)) -> Result<(), JobError> {
        (self.0)(x).map(emit)
    }
}

/// Values in flight: raised by the source, lowered by the sink.
#[derive(Default)]
struct Gauge {
    current: AtomicUsize,
    peak: AtomicUsize,
}

impl Gauge {
    fn up(&self) {
        let now = self.current.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak.fetch_max(now, Ordering::SeqCst);
    }

    fn down(&self) {
        self.current.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Names of the process's threads that begin with `prefix` (the kernel keeps 15 bytes).
fn threads_named(prefix: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with(prefix)).count()
}

/// True when no such thread is left. One that was joined may still be listed: the kernel wakes who joins before it takes
/// the thread off its list.
fn none_stays(prefix: &str) -> bool {
    let patience = Instant::now() + Duration::from_secs(10);
    while threads_named(prefix) > 0 {
        if Instant::now() > patience {
            return false;
        }
        sleep(Duration::from_millis(1));
    }
    true
}

/// A pseudo-random duration from a value.
fn jitter(x: u64) -> Duration {
    Duration::from_micros(x.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56)
}

fn jittered_pool(workers: usize) -> Vec<impl Stage<In = u64, Out = u64>> {
    let make = |_| {
        Map(|x| {
            sleep(jitter(x));
            Ok(x + 1)
        })
    };
    (0..workers).map(make).collect()
}

#[test]
fn pools_keep_order_and_lose_nothing() {
    for workers in [1, 2, 7] {
        let mut seen = Vec::new();
        let outcome = Pipeline::new(0..3000_u64, Cancel::default())
            .and_then(|p| p.pool("a", jittered_pool(workers)))
            .and_then(|p| p.pool("b", jittered_pool(3)))
            .unwrap()
            .run(|x| {
                seen.push(x);
                Ok(())
            });
        outcome.end.unwrap();
        assert!(seen.iter().copied().eq(2..3002), "{workers} workers");
        let counts: Vec<_> = outcome.report.stages.iter().map(|s| (s.stage, s.taken, s.given)).collect();
        assert_eq!(counts, [("source", 0, 3000), ("a", 3000, 3000), ("b", 3000, 3000), ("sink", 3000, 0)]);
    }
}

/// Peak of values in flight with `workers` in a pool, a stage and a sink that take these times.
fn peak_in_flight(workers: usize, stage: fn(u64) -> Duration, sink: Duration) -> usize {
    let gauge = Arc::new(Gauge::default());
    let source = {
        let gauge = Arc::clone(&gauge);
        (0..400_u64).inspect(move |_| gauge.up())
    };
    let pool = (0..workers).map(|_| {
        Map(move |x| {
            sleep(stage(x));
            Ok(x)
        })
    });
    let outcome = Pipeline::new(source, Cancel::default()).and_then(|p| p.pool("work", pool)).unwrap().run(|_| {
        sleep(sink);
        gauge.down();
        Ok(())
    });
    outcome.end.unwrap();
    gauge.peak.load(Ordering::SeqCst)
}

#[test]
fn values_in_flight_are_bounded() {
    for workers in [1, 4] {
        // Two queues, what the sink took at once, one in the source's hand.
        let bound = |a_place: usize| CHUNK * queue_len(1) + a_place * (queue_len(workers) + 1) + 1;
        let slow_sink = peak_in_flight(workers, |_| Duration::ZERO, Duration::from_micros(500));
        assert!(slow_sink <= bound(CHUNK), "slow sink: {slow_sink} > {}", bound(CHUNK));
        assert!(slow_sink > workers, "the gauge must see something: {slow_sink}");
        let straggler = |x| if x == 3 { Duration::from_millis(200) } else { Duration::ZERO };
        let slow_file = peak_in_flight(workers, straggler, Duration::ZERO);
        assert!(slow_file <= bound(CHUNK), "one slow value: {slow_file} > {}", bound(CHUNK));
        // A value that costs more than a portion travels alone.
        let costly = peak_in_flight(workers, |_| 2 * PORTION, 4 * PORTION);
        assert!(costly <= bound(1), "costly values: {costly} > {}", bound(1));
    }
}

#[test]
fn a_worker_takes_less_at_once_when_values_take_longer() {
    let micros = Duration::from_micros;
    let mut pace = Pace(PORTION);
    assert_eq!(pace.portion(), 1);
    (0..40).for_each(|_| pace.took(pace.portion(), micros(1) * pace.portion() as u32));
    assert_eq!(pace.portion(), CHUNK);
    pace.took(CHUNK, micros(50) * CHUNK as u32);
    assert_eq!(pace.portion(), 4);
    pace.took(4, Duration::from_secs(9));
    assert_eq!(pace.portion(), 1, "at once");
    pace.took(1, Duration::ZERO);
    pace.took(0, Duration::ZERO);
    assert_eq!(pace.portion(), 1, "slowly back");
}

#[test]
fn a_slow_source_starves_and_a_slow_sink_blocks() {
    // Long beside what a busy machine takes to run a thread.
    let slow = (0..20_u64).inspect(|_| sleep(Duration::from_millis(15)));
    let run = |p: Pipeline<u64>, pause_ms| {
        let outcome = p.pool("work", [Map(Ok)]).unwrap().run(|_| {
            sleep(Duration::from_millis(pause_ms));
            Ok(())
        });
        outcome.end.unwrap();
        outcome.report.stages[1].clone()
    };
    let starved = run(Pipeline::new(slow, Cancel::default()).unwrap(), 0);
    assert!(starved.starved_s > starved.blocked_s, "{starved:?}");
    let blocked = run(Pipeline::new(0..600_u64, Cancel::default()).unwrap(), 1);
    assert!(blocked.blocked_s > blocked.starved_s && blocked.queue_max == blocked.queue_capacity, "{blocked:?}");
}

#[test]
fn the_first_fatal_error_ends_the_job_with_a_clean_prefix() {
    for workers in [1, 4] {
        let mut seen = Vec::new();
        let pool = (0..workers).map(|_| {
            Map(|x| {
                sleep(jitter(x));
                if x == 50 { Err(JobError::Usage("fifty".into())) } else { Ok(x) }
            })
        });
        let outcome = Pipeline::new(0_u64.., Cancel::default())
            .and_then(|p| p.pool("work", pool))
            .and_then(|p| p.stage("after", Map(Ok)))
            .unwrap()
            .run(|x| {
                seen.push(x);
                Ok(())
            });
        assert!(matches!(outcome.end, Err(JobError::Usage(_))), "{:?}", outcome.end);
        assert!(seen.len() <= 50 && seen.iter().copied().eq(0..seen.len() as u64), "{seen:?}");
    }
}

#[test]
fn an_error_of_the_sink_ends_an_endless_source() {
    let outcome = Pipeline::new(0_u64.., Cancel::default())
        .and_then(|p| p.pool("work", jittered_pool(4)))
        .unwrap()
        .run(|x| if x == 100 { Err(JobError::Usage("enough".into())) } else { Ok(()) });
    assert!(matches!(outcome.end, Err(JobError::Usage(_))));
}

#[test]
fn a_panic_anywhere_becomes_an_error_with_the_stage_name() {
    let source = (0_u64..).inspect(|x| assert!(*x < 30, "source broke"));
    let outcome = Pipeline::new(source, Cancel::default()).unwrap().run(|_| Ok(()));
    let Err(JobError::Panic { stage: "source", message }) = outcome.end else { panic!("{:?}", outcome.end) };
    assert_eq!(message, "source broke");

    let pool = (0..3).map(|_| Map(|x| if x == 30 { panic!("stage broke at {x}") } else { Ok(x) }));
    let outcome = Pipeline::new(0_u64.., Cancel::default()).and_then(|p| p.pool("work", pool)).unwrap().run(|_| Ok(()));
    let Err(JobError::Panic { stage: "work", message }) = outcome.end else { panic!("{:?}", outcome.end) };
    assert_eq!(message, "stage broke at 30");

    let outcome =
        Pipeline::new(0_u64.., Cancel::default()).unwrap().run(|x| if x == 5 { panic!("sink") } else { Ok(()) });
    assert!(matches!(outcome.end, Err(JobError::Panic { stage: "sink", .. })), "{:?}", outcome.end);
}

#[test]
fn cancel_drains_what_is_in_flight_even_when_every_queue_is_full() {
    let cancel = Cancel::default();
    let taken = Arc::new(AtomicUsize::new(0));
    let source = {
        let taken = Arc::clone(&taken);
        (0_u64..).inspect(move |_| {
            taken.fetch_add(1, Ordering::SeqCst);
        })
    };
    let mut seen = 0;
    let outcome =
        Pipeline::new(source, cancel.clone()).and_then(|p| p.pool("work", jittered_pool(2))).unwrap().run(|x| {
            if x == 5 {
                sleep(Duration::from_millis(50));
                assert!(cancel.set(), "the first request");
            }
            seen += 1;
            Ok(())
        });
    assert!(matches!(outcome.end, Err(JobError::Interrupted)), "{:?}", outcome.end);
    assert!(seen > 5);
    assert_eq!(seen, taken.load(Ordering::SeqCst), "every value that was taken must come out");
}

#[test]
fn a_cancel_after_the_last_value_changes_nothing() {
    let cancel = Cancel::default();
    let outcome = Pipeline::new(0..3_u64, cancel.clone()).unwrap().run(|x| {
        if x == 2 {
            sleep(Duration::from_millis(30));
            cancel.set();
        }
        Ok(())
    });
    outcome.end.unwrap();
}

#[test]
fn dropped_unread_or_ended_early_no_thread_stays() {
    let full = Pipeline::new(0_u64.., Cancel::default()).and_then(|p| p.pool("leakcheck", jittered_pool(5))).unwrap();
    let patience = Instant::now() + Duration::from_secs(10);
    while threads_named("leakcheck") < 5 && Instant::now() < patience {
        sleep(Duration::from_millis(1));
    }
    assert_eq!(threads_named("leakcheck"), 5);
    drop(full);
    assert!(none_stays("leakcheck"));
    let failing = Pipeline::new(0_u64.., Cancel::default()).and_then(|p| p.pool("leakcheck", jittered_pool(5)));
    let outcome = failing.unwrap().run(|_| Err(JobError::Interrupted));
    assert!(outcome.end.is_err());
    assert!(none_stays("leakcheck"));
}

/// Hands on pairs; what is left over at the end, or when nothing comes.
#[derive(Default)]
struct Pairs(Vec<u64>);

impl Stage for Pairs {
    type In = u64;
    type Out = Vec<u64>;

    fn process(&mut self, x: u64, emit: &mut dyn FnMut(Vec<u64>)) -> Result<(), JobError> {
        self.0.push(x);
        if self.0.len() == 2 { self.finish(emit) } else { Ok(()) }
    }

    fn idle(&mut self, emit: &mut dyn FnMut(Vec<u64>)) -> Result<(), JobError> {
        self.finish(emit)
    }

    fn finish(&mut self, emit: &mut dyn FnMut(Vec<u64>)) -> Result<(), JobError> {
        if !self.0.is_empty() {
            emit(std::mem::take(&mut self.0));
        }
        Ok(())
    }
}

#[test]
fn what_a_stage_keeps_back_comes_when_idle_and_at_the_end() {
    let source = (0..5_u64).inspect(|x| sleep(Duration::from_millis(if *x == 3 { 300 } else { 0 })));
    let mut seen = Vec::new();
    let pairs = Pipeline::new(source, Cancel::default()).and_then(|p| p.stage("pairs", Pairs::default())).unwrap();
    let outcome = pairs.run(|pair| {
        seen.push(pair);
        Ok(())
    });
    outcome.end.unwrap();
    assert_eq!(seen, [vec![0, 1], vec![2], vec![3, 4]]);
}

/// Panics on odd items and counts how many it has seen since it was made.
struct Touchy(u64);

impl Stage for Touchy {
    type In = Item<u64>;
    type Out = Item<u64>;

    fn process(&mut self, item: Item<u64>, emit: &mut dyn FnMut(Item<u64>)) -> Result<(), JobError> {
        self.0 += 1;
        let seen = self.0;
        emit(item.and_then(|x| if x % 2 == 1 { panic!("odd {x}") } else { Ok(seen) }));
        Ok(())
    }
}

#[test]
fn a_panic_on_one_item_is_that_items_error() {
    let earlier = ItemError::new(StageName::Source, ErrorKind::Empty, "0 bytes");
    let source = (0..100_u64).map(move |id| {
        let origin = Origin::File(PathBuf::from(format!("{id}")));
        Item::new(id, origin, if id == 8 { Err(earlier.clone()) } else { Ok(id) })
    });
    let pool = (0..3).map(|_| PerItem::new(StageName::Decode, || Ok(Touchy(0))).unwrap());
    let mut ids = HashSet::new();
    let outcome = Pipeline::new(source, Cancel::default()).and_then(|p| p.pool("touchy", pool)).unwrap().run(|item| {
        assert!(ids.insert(item.id));
        match item.payload {
            Ok(seen) => assert!(item.id % 2 == 0 && seen <= 51, "a fresh stage starts to count anew"),
            Err(e) if item.id == 8 => assert_eq!(e.kind, ErrorKind::Empty),
            Err(e) => {
                assert_eq!((e.stage, e.kind, item.id % 2), (StageName::Decode, ErrorKind::Internal, 1));
                assert!(e.message.contains(&format!("odd {}", item.id)));
            }
        }
        Ok(())
    });
    outcome.end.unwrap();
    assert_eq!(ids.len(), 100);
}

#[test]
fn two_stages_on_one_thread_keep_nothing_back() {
    struct Twice;
    impl Stage for Twice {
        type In = u64;
        type Out = u64;
        fn process(&mut self, x: u64, emit: &mut dyn FnMut(u64)) -> Result<(), JobError> {
            emit(x);
            emit(x);
            Ok(())
        }
    }
    struct Fails;
    impl Stage for Fails {
        type In = Vec<u64>;
        type Out = u64;
        fn process(&mut self, _: Vec<u64>, _: &mut dyn FnMut(u64)) -> Result<(), JobError> {
            Err(JobError::Interrupted)
        }
    }
    for at_end in [Stage::idle, Stage::finish] as [fn(&mut _, &mut dyn FnMut(Vec<u64>)) -> Result<(), JobError>; 2] {
        let (mut seen, mut stage) = (Vec::new(), Then(Pairs::default(), Then(Lists, Pairs::default())));
        for x in 1..=4 {
            stage.process(x, &mut |pair| seen.push(pair)).unwrap();
        }
        stage.process(9, &mut |pair| seen.push(pair)).unwrap();
        at_end(&mut stage, &mut |pair| seen.push(pair)).unwrap();
        assert_eq!(seen, [vec![1, 2], vec![3, 4], vec![9]]);
    }
    let mut failing = Then(Then(Twice, Pairs::default()), Fails);
    assert!(failing.process(1, &mut |_| ()).is_err(), "an error of the second is one of both");
}

/// Gives the values of a list one by one.
struct Lists;

impl Stage for Lists {
    type In = Vec<u64>;
    type Out = u64;

    fn process(&mut self, list: Vec<u64>, emit: &mut dyn FnMut(u64)) -> Result<(), JobError> {
        list.into_iter().for_each(emit);
        Ok(())
    }
}

#[test]
fn a_pool_of_nobody_is_refused() {
    let pool = Pipeline::new(0..5_u64, Cancel::default()).and_then(|p| p.pool("empty", Vec::<Pairs>::new()));
    assert!(matches!(pool.err().unwrap(), JobError::Usage(message) if message.contains("empty")));
}
