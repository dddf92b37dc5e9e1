//! The order in which values leave pools, and what becomes of those that are left when a job fails.

use super::*;

/// Waits for something that comes back when its value is dropped, as memory that is lent to it does.
struct Lends(std::sync::mpsc::Receiver<()>, std::sync::mpsc::Sender<()>);

/// See [`Lends`].
struct Lent(Option<std::sync::mpsc::Sender<()>>);

impl Drop for Lent {
    fn drop(&mut self) {
        let _ = self.0.take().map(|home| home.send(()));
    }
}

impl Stage for Lends {
    type In = u64;
    type Out = (u64, Lent);

    fn process(&mut self, x: u64, emit: &mut dyn FnMut(Self::Out)) -> Result<(), JobError> {
        self.0.recv().map_err(|_| JobError::Usage("lost".into()))?;
        emit((x, Lent(Some(self.1.clone()))));
        Ok(())
    }
}

struct FailsAt(u64);

impl Stage for FailsAt {
    type In = (u64, Lent);
    type Out = u64;

    fn process(&mut self, (x, _lent): Self::In, emit: &mut dyn FnMut(u64)) -> Result<(), JobError> {
        sleep(Duration::from_millis(20));
        if x == self.0 {
            return Err(JobError::Usage("fault".into()));
        }
        emit(x);
        Ok(())
    }
}

#[test]
fn what_travels_when_a_job_fails_comes_back_to_who_waits_for_it() {
    for order in [Order::Input, Order::Completion, Order::Portions] {
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let lenders = (0..3).map(|_| {
                let (home, back) = std::sync::mpsc::channel();
                // Fewer than there are places in the queue.
                (0..2).for_each(|_| home.send(()).unwrap());
                Lends(back, home)
            });
            let pipeline = Pipeline::new(0..1000, Cancel::default()).unwrap().order(order);
            let pipeline = pipeline.pool("some-lend", lenders).unwrap().stage("some-fail", FailsAt(3)).unwrap();
            done.send(pipeline.run(|_| Ok(())).end).unwrap();
        });
        let end = is_done.recv_timeout(Duration::from_secs(20)).expect("the job ends");
        assert!(matches!(end, Err(JobError::Usage(why)) if why == "fault"));
    }
}

/// The first value is done last; every other one need not wait for it.
#[test]
fn in_order_of_completion_none_waits_for_a_slower_one() {
    let (slow, behind) = crossbeam_channel::bounded::<()>(1);
    let stages = (0..3).map(|_| {
        let behind = behind.clone();
        Map(move |x| {
            if x == 0 {
                behind.recv().unwrap();
            }
            sleep(jitter(x));
            Ok(x)
        })
    });
    let mut seen = Vec::new();
    let pipeline = Pipeline::new(0..200, Cancel::default()).unwrap().order(Order::Completion);
    let pipeline = pipeline.pool("some-done", stages).unwrap().pool("some-more", jittered_pool(3)).unwrap();
    let outcome = pipeline.run(|x| {
        seen.push(x - 1);
        // Far more than fit into all the queues.
        if seen.len() == 199 {
            slow.send(()).unwrap();
        }
        Ok(())
    });
    outcome.end.unwrap();
    assert_eq!(seen.last(), Some(&0));
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..200));
}

/// A value that is slow by surprise: those that its worker took with it wait, and no others.
#[test]
fn in_portions_few_wait_for_a_slower_one() {
    let (slow, behind) = crossbeam_channel::bounded::<()>(1);
    let stages = (0..3).map(|_| {
        let behind = behind.clone();
        Map(move |x| {
            if x == 100 {
                // It hangs where others wait for it.
                assert!(behind.recv_timeout(Duration::from_secs(20)).is_ok());
            }
            Ok(x)
        })
    });
    let mut seen = Vec::new();
    let pipeline = Pipeline::new(0..200, Cancel::default()).unwrap().order(Order::Portions);
    let outcome = pipeline.pool("some-portions", stages).unwrap().run(|x| {
        seen.push(x);
        // All but its portion, at most.
        if seen.len() == 200 - CHUNK {
            slow.send(()).unwrap();
        }
        Ok(())
    });
    outcome.end.unwrap();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..200));
}

#[test]
fn in_order_of_completion_a_job_fails_and_stops_all_the_same() {
    for (fault, order) in
        [(17, Order::Completion), (150, Order::Completion), (17, Order::Portions), (150, Order::Portions)]
    {
        let stages = (0..3).map(|_| Map(move |x| if x == fault { Err(JobError::Usage("x".into())) } else { Ok(x) }));
        let pipeline = Pipeline::new(0..1000, Cancel::default()).unwrap().order(order);
        let outcome = pipeline.pool("some-fail", stages).unwrap().run(|_| Ok(()));
        assert!(matches!(outcome.end, Err(JobError::Usage(_))));
    }
    assert!(none_stays("some-fail"));
}

#[test]
fn a_queue_has_the_room_that_is_asked_for() {
    let started = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&started);
    let stage = Map(move |x| {
        counter.fetch_add(1, Ordering::SeqCst);
        // So slow that each has a place of its own.
        sleep(Duration::from_millis(1));
        Ok(x)
    });
    let pipeline = Pipeline::new(0..100, Cancel::default()).unwrap().room(20).stage("roomy", stage).unwrap();
    let patience = Instant::now() + Duration::from_secs(10);
    while started.load(Ordering::SeqCst) < 20 && Instant::now() < patience {
        sleep(Duration::from_millis(1));
    }
    sleep(Duration::from_millis(20));
    assert_eq!(started.load(Ordering::SeqCst), 20, "the queue is full, and no value without a place is begun");
    pipeline.run(|_| Ok(())).end.unwrap();
}
