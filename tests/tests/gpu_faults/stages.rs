//! A stage that fails or panics, not on one item but as a whole, or that loses what it was given.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::sleep;
use std::time::Duration;

use ocellus::error::{ErrorKind, ItemError, JobError, StageName};
use ocellus::frame::{Item, Origin, Results};
use ocellus::runner::{InOrder, Order, Pipeline, Window};
use ocellus::sink::{Columns, Existing, Format, Row, Writer};
use ocellus::stage::{Cancel, Stage};

const ROWS: u64 = 300;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Panic,
    Loss,
}

/// Gives a row for each number but for what goes wrong at one of them, in its work or when it is to end.
struct Fragile {
    name: &'static str,
    at: Option<(Fault, u64)>,
}

impl Fragile {
    fn reach(&self, id: u64) {
        assert!(self.at != Some((Fault::Panic, id)), "{} broke\nat {id}", self.name);
    }
}

impl Stage for Fragile {
    type In = Item<Results>;
    type Out = Item<Results>;

    fn process(&mut self, item: Self::In, emit: &mut dyn FnMut(Self::Out)) -> Result<(), JobError> {
        self.reach(item.id);
        if self.at != Some((Fault::Loss, item.id)) {
            emit(item);
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut dyn FnMut(Self::Out)) -> Result<(), JobError> {
        self.reach(ROWS);
        Ok(())
    }
}

/// As `classify` does it, with stages of which the one of this name fails at `at`.
fn job(output: &std::path::Path, broken: &str, at: Option<(Fault, u64)>) -> Result<(), JobError> {
    let format = Format::of_file(output)?;
    let columns = Columns { top: 3, models: Vec::new() };
    let (mut writer, mut earlier) = Writer::to_file(output, format, Existing::Resume, &columns, &Cancel::default())?;
    let fragile = |name| Fragile { name, at: at.filter(|_| name == broken) };
    let source = fragile("source");
    let paths = (0..=ROWS).inspect(move |&id| source.reach(id)).take(ROWS as usize);
    let paths = paths.map(|id| PathBuf::from(format!("{id}.jpg"))).filter(move |path| !earlier.take(path));
    let error = ItemError::new(StageName::Decode, ErrorKind::Corrupt, "made up");
    let items = (0..).zip(paths).map(move |(id, path)| Item::new(id, Origin::File(path), Err(error.clone())));
    let (sink, window, cancel) = (fragile("sink"), Window::default(), Cancel::default());
    let pipeline = Pipeline::new(window.admit(items, cancel.clone()), cancel)?
        .order(Order::Portions)
        .pool("first", [fragile("first"), fragile("first"), fragile("first")])?
        .stage("second", fragile("second"))?;
    let monitor = pipeline.monitor();
    let outcome = pipeline.stage("order", InOrder::new(window, None, 1, monitor))?.run(|item| {
        sink.reach(item.id);
        writer.write(&Row::new(item))
    });
    match outcome.accounted(1).end {
        Ok(()) => writer.finish(),
        Err(error) => {
            writer.abandon();
            Err(error)
        }
    }
}

/// Jobs of every format in which a stage is at fault at an item: `check` sees how each ends. None leaves a file that looks whole, and
/// the next one writes what an undisturbed one does.
fn ends_and_goes_on(fault: Fault, places: &[(&str, u64)], check: impl Fn(&JobError, &str, u64)) {
    for extension in ["jsonl", "csv", "parquet"] {
        let folder = tempfile::tempdir().unwrap();
        let whole = folder.path().join(format!("whole.{extension}"));
        job(&whole, "", None).unwrap();
        for &(stage, at) in places {
            let output = folder.path().join(format!("{stage}{at}.{extension}"));
            check(&job(&output, stage, Some((fault, at))).unwrap_err(), stage, at);
            assert!(!output.exists());
            job(&output, "", None).unwrap();
            assert!(fs::read(&output).unwrap() == fs::read(&whole).unwrap(), "{extension}, {stage} at {at}");
        }
    }
}

#[test]
fn a_stage_that_panics_ends_the_job_and_costs_no_row() {
    let places = [("source", 7), ("first", 0), ("first", 150), ("second", 299), ("second", ROWS), ("sink", 40)];
    ends_and_goes_on(Fault::Panic, &places, |error, stage, _| {
        assert!(matches!(error, JobError::Panic { stage: named, .. } if *named == stage), "{error:?}");
        let line = error.to_string();
        assert!(line.contains("broke at") && line.lines().count() == 1, "{line:?}");
    });
}

#[test]
fn a_stage_that_loses_a_row_fails_the_job_and_the_next_one_has_all() {
    let places = [("first", 0), ("first", 150), ("second", 0), ("second", 77), ("second", ROWS - 1)];
    ends_and_goes_on(Fault::Loss, &places, |error, stage, at| {
        let JobError::Lost { results, expected, inputs, .. } = error else { panic!("{error:?}") };
        assert_eq!((*results, *expected, *inputs), (at, ROWS, ROWS), "{stage} at {at}");
        assert!(error.to_string().contains(&format!("{stage} {ROWS}/{}", ROWS - 1)), "{error}");
    });
}

/// A value that its maker learns of when it is gone.
struct Loan {
    _gone: Sender<()>,
}

/// Lends two values at a time, as those who load batches lend two memories.
#[derive(Default)]
struct Lender(VecDeque<Receiver<()>>);

impl Stage for Lender {
    type In = u64;
    type Out = Loan;

    fn process(&mut self, _: u64, emit: &mut dyn FnMut(Loan)) -> Result<(), JobError> {
        if self.0.len() == 2 {
            // Nothing is ever sent: this waits for the value's end.
            let _ = self.0.pop_front().map(|gone| gone.recv());
        }
        let (lent, gone) = channel();
        self.0.push_back(gone);
        emit(Loan { _gone: lent });
        Ok(())
    }
}

/// Lets values go until it fails.
struct Borrower(u64);

impl Stage for Borrower {
    type In = Loan;
    type Out = ();

    fn process(&mut self, _: Loan, _: &mut dyn FnMut(())) -> Result<(), JobError> {
        // So that more of them wait in the queue.
        sleep(Duration::from_millis(2));
        self.0 = self.0.checked_sub(1).ok_or(JobError::Interrupted)?;
        Ok(())
    }
}

/// What waits in the queue before a stage that fails goes with it: somebody may be waiting for that.
#[test]
fn a_stage_that_fails_lets_go_of_what_it_has_not_taken() {
    for lenders in 1..4 {
        for left in 0..8 {
            let pool = (0..lenders).map(|_| Lender::default());
            let pipeline = Pipeline::new(0.., Cancel::default()).unwrap().pool("lend", pool).unwrap();
            let (ended, end) = channel();
            std::thread::spawn(move || {
                let outcome = pipeline.stage("borrow", Borrower(left)).unwrap().run(|()| Ok(()));
                ended.send(outcome.end)
            });
            let end = end.recv_timeout(tests::job::PATIENCE).expect("it hangs");
            assert!(matches!(end, Err(JobError::Interrupted)), "{end:?}");
        }
    }
}
