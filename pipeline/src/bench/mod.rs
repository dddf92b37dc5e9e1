//! Measurements, with names that stay the same from version to version.

pub mod corpus;
pub mod cpu;
pub mod decode;
pub mod infer;
pub mod latency;
pub mod preprocess;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::error::JobError;
use crate::frame::Decoder;
use crate::stage::Cancel;

/// Something measured.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Measurement {
    /// What, as `infer.NET.PRECISION.bN`.
    pub name: String,
    /// Median of all runs.
    pub value: f64,
    /// Unit of the value.
    pub unit: &'static str,
    /// Distance between the 10th and the 90th percentile, in the value's unit.
    pub spread: f64,
    /// Share of what the hardware would allow; which bound, `bound` says.
    pub bound_percent: Option<f64>,
    /// The bound in words.
    pub bound: Option<&'static str>,
    /// Share of the pictures that each decoder had, where a file may go to any.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub decoders_percent: BTreeMap<Decoder, f64>,
}

impl Measurement {
    /// The median and the spread of some values. NaN for none.
    pub fn of(name: String, unit: &'static str, mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |share: f64| values.get(((values.len().max(1) - 1) as f64 * share).round() as usize).copied();
        let value = at(0.5).unwrap_or(f64::NAN);
        let spread = at(0.9).zip(at(0.1)).map_or(f64::NAN, |(high, low)| high - low);
        Self { name, value, unit, spread, bound_percent: None, bound: None, decoders_percent: BTreeMap::new() }
    }

    /// The same beside a bound in the value's unit.
    #[must_use]
    pub fn beside(self, bound: f64, what: &'static str) -> Self {
        Self { bound_percent: Some(self.value / bound * 100.0), bound: Some(what), ..self }
    }

    /// The same with how many pictures each decoder had.
    #[must_use]
    pub fn decoded_by(self, pictures: &BTreeMap<Decoder, u64>) -> Self {
        let all = pictures.values().sum::<u64>() as f64;
        let share = |(&decoder, &count): (&Decoder, &u64)| (decoder, 100.0 * count as f64 / all);
        Self { decoders_percent: pictures.iter().map(share).collect(), ..self }
    }
}

/// Longest that is run before the first run that counts, and longest that is measured, where one run does not take longer.
const WARM_UP_TIME: Duration = Duration::from_secs(1);
const RUN_TIME: Duration = Duration::from_secs(5);

/// The values of so many runs after `warm_up` runs that do not count, of fewer where they take long.
fn repeat(
    cancel: &Cancel,
    warm_up: usize,
    runs: usize,
    mut run: impl FnMut() -> Result<f64, JobError>,
) -> Result<Vec<f64>, JobError> {
    let mut timed = |most_runs, most_time| {
        let started = Instant::now();
        let mut values = Vec::with_capacity(most_runs);
        while values.len() < most_runs && (values.is_empty() || started.elapsed() < most_time) {
            if cancel.is_set() {
                return Err(JobError::Interrupted);
            }
            values.push(run()?);
        }
        Ok(values)
    };
    timed(warm_up, WARM_UP_TIME)?;
    timed(runs, RUN_TIME)
}

/// Events a second once they come steadily: a rate for each second, those of the start left out.
#[derive(Debug, Default)]
pub struct SteadyRate {
    first: Option<Instant>,
    /// Where the second that is measured began, and the events before it.
    since: Option<(Instant, u64)>,
    events: u64,
    rates: Vec<f64>,
}

impl SteadyRate {
    /// Left out at the start: a job's workers make their decoders one after another, for 1.5 s on an H200, and rows that keep
    /// their order come in a burst behind the last.
    const START: Duration = Duration::from_secs(3);
    /// Measured at a time.
    const WINDOW: Duration = Duration::from_secs(1);

    /// Counts an event. Events that come many at once are counted right: a second begins and ends with one.
    pub fn count(&mut self, now: Instant) {
        let first = *self.first.get_or_insert(now);
        match self.since {
            None if now - first >= Self::START => self.since = Some((now, self.events)),
            Some((since, before)) if now - since >= Self::WINDOW => {
                self.rates.push((self.events - before) as f64 / (now - since).as_secs_f64());
                self.since = Some((now, self.events));
            }
            _ => {}
        }
        self.events += 1;
    }

    /// True once a second is measured.
    pub fn is_steady(&self) -> bool {
        self.since.is_some()
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The rates so far.
    pub fn rates(&self) -> &[f64] {
        &self.rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        let m = Measurement::of("x".into(), "s", (0..=10).rev().map(f64::from).collect());
        assert_eq!((m.value, m.spread), (5.0, 8.0));
        assert_eq!(Measurement::of("x".into(), "s", vec![2.0]).value, 2.0);
        assert!(Measurement::of("x".into(), "s", vec![]).value.is_nan());
        assert_eq!(m.clone().beside(20.0, "bound").bound_percent, Some(25.0));
        let split = m.decoded_by(&BTreeMap::from([(Decoder::NvjpegHw, 3), (Decoder::Image, 1)]));
        assert_eq!(split.decoders_percent, BTreeMap::from([(Decoder::NvjpegHw, 75.0), (Decoder::Image, 25.0)]));
    }

    #[test]
    fn runs_that_warm_up_do_not_count() {
        let mut n = 0.0;
        let mut run = || {
            n += 1.0;
            if n < 10.0 { Ok(n) } else { Err(JobError::Usage("ten".into())) }
        };
        let cancel = Cancel::default();
        assert_eq!(repeat(&cancel, 2, 3, &mut run).unwrap(), [3.0, 4.0, 5.0]);
        assert_eq!(repeat(&cancel, 0, 1, &mut run).unwrap(), [6.0]);
        assert!(matches!(repeat(&cancel, 1, 5, &mut run), Err(JobError::Usage(_))));
        cancel.set();
        assert!(matches!(repeat(&cancel, 0, 1, || Ok(1.0)), Err(JobError::Interrupted)));
    }

    #[test]
    fn rates_are_those_of_whole_seconds_after_the_start() {
        let start = Instant::now();
        let mut rate = SteadyRate::default();
        // Slow at first, then sixty at once every quarter of a second.
        for ms in [0, 2900].into_iter().chain((3000..=6000).step_by(250)) {
            let at_once = if ms < 3000 { 1 } else { 60 };
            (0..at_once).for_each(|_| rate.count(start + Duration::from_millis(ms)));
        }
        assert_eq!(rate.rates(), [240.0, 240.0, 240.0]);
        assert_eq!(rate.events(), 2 + 13 * 60);
        assert!(rate.is_steady());
        assert!(SteadyRate::default().rates().is_empty() && !SteadyRate::default().is_steady());
    }
}
