//! Turns at something that does best with little of it at a time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Lets in, in the order in which they come, as many as have together at most so much work, and one in any case.
#[derive(Debug)]
pub(super) struct Turns {
    most_work: u64,
    line: Mutex<Line>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Line {
    /// Numbers that have been drawn, and that have been let in.
    drawn: u64,
    entered: u64,
    inside: usize,
    work: u64,
}

/// Being inside, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    work: u64,
}

impl Turns {
    pub(super) fn new(most_work: u64) -> Self {
        Self { most_work, line: Mutex::default(), moved: Condvar::new() }
    }

    /// Waits in line with so much work.
    pub(super) fn wait(&self, work: u64) -> Turn<'_> {
        let mut line = self.line();
        let number = line.drawn;
        line.drawn += 1;
        let must_wait = |line: &mut Line| {
            let fits = line.inside == 0 || line.work.saturating_add(work) <= self.most_work;
            line.entered != number || !fits
        };
        line = self.moved.wait_while(line, must_wait).unwrap_or_else(PoisonError::into_inner);
        line.entered += 1;
        line.inside += 1;
        line.work = line.work.saturating_add(work);
        // The next in line may fit as well.
        self.moved.notify_all();
        Turn { turns: self, work }
    }

    /// Each change is a few additions: a thread that panicked left it whole.
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut line = self.turns.line();
        line.inside -= 1;
        line.work = line.work.saturating_sub(self.work);
        self.turns.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn what_is_inside_never_exceeds_the_bound_unless_it_is_alone() {
        const MOST: u64 = 10;
        let turns = Turns::new(MOST);
        let (inside, work) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for thread in 0..8 {
                let (turns, inside, work) = (&turns, &inside, &work);
                scope.spawn(move || {
                    for n in 0..200 {
                        // Among them none at all and more than the bound.
                        let mine = (thread * 5 + n * 7) % 14;
                        let turn = turns.wait(mine);
                        let (others, sum) = (inside.fetch_add(1, SeqCst), work.fetch_add(mine, SeqCst) + mine);
                        assert!(others == 0 || sum <= MOST, "{sum} beside {others} others");
                        thread::yield_now();
                        work.fetch_sub(mine, SeqCst);
                        inside.fetch_sub(1, SeqCst);
                        drop(turn);
                    }
                });
            }
        });
        // Two that fit are inside at once.
        let both = (turns.wait(4), turns.wait(6));
        assert_eq!(turns.line().inside, 2);
        drop(both);
        let line = turns.line();
        assert_eq!((line.inside, line.work, line.drawn, line.entered), (0, 0, 1602, 1602));
    }

    #[test]
    fn much_work_is_not_overtaken_by_little() {
        let turns = Turns::new(10);
        let first = turns.wait(6);
        let (entered, order) = channel();
        thread::scope(|scope| {
            // The small one would fit beside the first.
            for (work, drawn) in [(10, 2), (1, 3)] {
                let (turns, entered) = (&turns, entered.clone());
                scope.spawn(move || {
                    let turn = turns.wait(work);
                    entered.send(work).unwrap();
                    drop(turn);
                });
                while turns.line().drawn < drawn {
                    thread::yield_now();
                }
            }
            assert!(order.recv_timeout(Duration::from_millis(50)).is_err(), "nobody is let in yet");
            drop(first);
            assert_eq!([order.recv().unwrap(), order.recv().unwrap()], [10, 1]);
        });
    }

    #[test]
    fn a_panic_inside_ends_its_turn() {
        let turns = Turns::new(1);
        let panicked = thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let _turn = turns.wait(5);
                panic!("made up");
            });
            inside.join().is_err()
        });
        assert!(panicked);
        drop(turns.wait(5));
    }
}
