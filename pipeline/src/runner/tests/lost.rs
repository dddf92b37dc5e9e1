//! Stages that keep what they were given, or give more than that.

use std::sync::mpsc;

use super::*;

const VALUES: u64 = 300;

/// Gives the item of one number so many times, the others once.
#[derive(Clone, Copy)]
struct Gives {
    number: u64,
    times: usize,
}

impl Stage for Gives {
    type In = Item<()>;
    type Out = Item<()>;

    fn process(&mut self, item: Self::In, emit: &mut dyn FnMut(Self::Out)) -> Result<(), JobError> {
        let times = if item.id == self.number { self.times } else { 1 };
        (0..times).for_each(|_| emit(item.clone()));
        Ok(())
    }
}

fn item(id: u64) -> Item<()> {
    Item::new(id, Origin::File("x".into()), Ok(()))
}

/// A job whose stage of this place, and no other, is at fault; its results in the order of the inputs, or as they are done.
fn job(source: impl Iterator<Item = u64> + Send + 'static, faulty: usize, gives: Gives, in_order: bool) -> Outcome {
    let stage = |place| Gives { times: if place == faulty { gives.times } else { 1 }, ..gives };
    let (window, cancel) = (Window::default(), Cancel::default());
    let order = if in_order { Order::Portions } else { Order::Completion };
    let pipeline = Pipeline::new(window.admit(source.map(item), cancel.clone()), cancel).unwrap().order(order);
    let pipeline = pipeline.pool("lost-first", [stage(0); 3]).unwrap().stage("lost-second", stage(1)).unwrap();
    let monitor = pipeline.monitor();
    let pipeline =
        if in_order { pipeline.stage("lost-order", InOrder::new(window, None, 1, monitor)).unwrap() } else { pipeline };
    pipeline.run(|_| Ok(())).accounted(1)
}

#[test]
fn what_a_stage_loses_or_doubles_fails_the_job() {
    for (faulty, in_order) in [(0, false), (0, true), (1, false), (1, true)] {
        for (number, times) in [(0, 0), (150, 0), (VALUES - 1, 0), (0, 2), (150, 3), (VALUES - 1, 2), (0, 1)] {
            let end = job(0..VALUES, faulty, Gives { number, times }, in_order).end;
            if times == 1 {
                end.unwrap();
                continue;
            }
            let Err(error @ JobError::Lost { results, expected, inputs, .. }) = &end else { panic!("{end:?}") };
            assert_eq!((*expected, *inputs), (VALUES, VALUES));
            let gave = VALUES - 1 + times as u64;
            assert!(*results == gave || (in_order && times == 0 && *results == number), "{error}");
            let stage = ["lost-first", "lost-second"][faulty];
            assert!(error.to_string().contains(&format!("{stage} {VALUES}/{gave}")), "{error}");
        }
    }
    // Nothing came of nothing.
    job(0..0, 0, Gives { number: 0, times: 0 }, true).end.unwrap();
}

#[test]
fn results_that_come_in_pairs_are_counted_as_pairs() {
    let run = |each| Pipeline::new(0..VALUES, Cancel::default()).unwrap().run(|_| Ok(())).accounted(each).end;
    run(1).unwrap();
    assert!(matches!(run(2), Err(JobError::Lost { results: VALUES, expected: 600, inputs: VALUES, .. })));
}

#[test]
fn how_a_job_failed_says_more_than_what_has_no_result() {
    for request in [None, Some(JobError::Usage("fault".into()))] {
        let (cancel, mut request) = (Cancel::default(), request);
        let fails = request.is_some();
        let stop = cancel.clone();
        let lossy = Gives { number: 3, times: 0 };
        let pipeline = Pipeline::new((0..).map(item), cancel).unwrap().stage("lost-some", lossy).unwrap();
        let outcome = pipeline.run(|item| {
            if item.id == 50 {
                stop.set();
                return request.take().map_or(Ok(()), Err);
            }
            Ok(())
        });
        let end = outcome.accounted(1).end;
        assert!(
            matches!(&end, Err(JobError::Usage(_)) if fails) || matches!(&end, Err(JobError::Lost { .. }) if !fails),
            "{end:?}"
        );
    }
}

/// More inputs than the window takes: the source waits for one that never comes, and nobody else has anything to do.
#[test]
fn a_job_that_waits_for_what_is_lost_ends() {
    for (faulty, number) in [(0, 0), (1, 5000)] {
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || done.send(job(0.., faulty, Gives { number, times: 0 }, true).end));
        // It hangs where nobody notices.
        let end = is_done.recv_timeout(Duration::from_secs(120)).expect("the job ends");
        assert!(matches!(end, Err(JobError::Lost { .. })), "{end:?}");
    }
}

/// Keeps the first item until the source, which counts, has not moved for long.
struct Slow(Arc<AtomicUsize>);
impl Stage for Slow {
    type In = Item<()>;
    type Out = Item<()>;
    fn process(&mut self, item: Item<()>, emit: &mut dyn FnMut(Item<()>)) -> Result<(), JobError> {
        if item.id == 0 {
            let mut before = usize::MAX;
            while self.0.load(Ordering::SeqCst) != before {
                before = self.0.load(Ordering::SeqCst);
                sleep(Duration::from_secs(3));
            }
        }
        emit(item);
        Ok(())
    }
}

/// What is slow is not lost: here the source waits for it for longer than it takes to find a job at rest.
#[test]
fn a_job_waits_for_what_is_slow() {
    let (window, cancel) = (Window::default(), Cancel::default());
    let (asked, stop) = (Arc::new(AtomicUsize::new(0)), cancel.clone());
    let source = {
        let asked = Arc::clone(&asked);
        (0..).map(item).inspect(move |_| {
            asked.fetch_add(1, Ordering::SeqCst);
        })
    };
    let pipeline = Pipeline::new(window.admit(source, cancel.clone()), cancel).unwrap().order(Order::Completion);
    let pipeline = pipeline.pool("lost-slow", [Slow(Arc::clone(&asked)), Slow(Arc::clone(&asked))]).unwrap();
    let monitor = pipeline.monitor();
    let mut rows = 0_u64;
    let outcome = pipeline.stage("order", InOrder::new(window, None, 1, monitor)).unwrap().run(|item| {
        assert_eq!(item.id, rows);
        rows += 1;
        if rows == 100_000 {
            stop.set();
        }
        Ok(())
    });
    let end = outcome.accounted(1).end;
    assert!(matches!(end, Err(JobError::Interrupted)), "{end:?}");
    assert!(rows >= 100_000);
}
