//! Durations, counted by length.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Longest that is told apart; what takes longer counts as this.
const LONGEST_NS: u64 = 24 * 3600 * 1_000_000_000;
/// Digits of a duration that are kept.
const DIGITS: u8 = 2;

/// How often which duration was seen, each within 1 %. Takes the same memory (40 KB) however many there are.
#[derive(Clone, Debug)]
pub struct Durations {
    // There is always one: the bounds are constants that the crate takes, as a test shows.
    by_ns: Option<Histogram<u64>>,
    sum: Duration,
    longest: Duration,
}

/// Percentiles of durations, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Spread {
    /// Of all, the mean.
    pub mean: f64,
    /// Half of them took no longer.
    pub p50: f64,
    /// Nine of ten took no longer.
    pub p90: f64,
    /// 99 of a hundred took no longer.
    pub p99: f64,
    /// The longest one.
    pub max: f64,
}

impl Default for Durations {
    fn default() -> Self {
        let by_ns = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).ok();
        Self { by_ns, sum: Duration::ZERO, longest: Duration::ZERO }
    }
}

impl Durations {
    /// Counts one.
    pub fn record(&mut self, duration: Duration) {
        self.record_many(duration, 1);
    }

    /// Counts a duration so many times.
    pub fn record_many(&mut self, duration: Duration, times: usize) {
        if let Some(by_ns) = &mut self.by_ns {
            by_ns.saturating_record_n(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), times as u64);
        }
        self.sum += duration * u32::try_from(times).unwrap_or(u32::MAX);
        self.longest = self.longest.max(duration);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.by_ns.as_ref().map_or(0, Histogram::len)
    }

    /// All of them together.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// How many were no longer than this, within 1 % of it.
    pub fn count_up_to(&self, duration: Duration) -> u64 {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.by_ns.as_ref().map_or(0, |by_ns| by_ns.count_between(0, ns.min(LONGEST_NS)))
    }

    /// Their percentiles; `None` where there were none.
    pub fn spread(&self) -> Option<Spread> {
        let by_ns = self.by_ns.as_ref().filter(|by_ns| !by_ns.is_empty())?;
        let ms = |duration: Duration| 1e3 * duration.as_secs_f64();
        // The crate gives the upper end of what it cannot tell apart.
        let at = |quantile| ms(Duration::from_nanos(by_ns.value_at_quantile(quantile)).min(self.longest));
        let mean = ms(self.sum) / by_ns.len() as f64;
        Some(Spread { mean, p50: at(0.5), p90: at(0.9), p99: at(0.99), max: ms(self.longest) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn none_have_no_percentiles() {
        let none = Durations::default();
        assert!(none.by_ns.is_some());
        assert_eq!((none.count(), none.sum(), none.spread()), (0, Duration::ZERO, None));
    }

    #[test]
    fn what_is_too_long_counts_as_the_longest() {
        let mut durations = Durations::default();
        durations.record(Duration::from_secs(40 * 3600));
        durations.record(Duration::ZERO);
        let spread = durations.spread().unwrap();
        assert_eq!((spread.p50, spread.max), (0.0, 40.0 * 3600.0 * 1e3));
        assert_eq!(durations.count_up_to(Duration::MAX), 2);
        assert_eq!(durations.count_up_to(Duration::from_nanos(1)), 1);
    }

    proptest! {
        #[test]
        fn percentiles_are_those_of_the_sorted_list(
            mut nanos in prop::collection::vec(prop_oneof![0..10_000_u64, 0..3_600_000_000_000_u64], 1..500),
            bound in 0..3_600_000_000_000_u64,
        ) {
            let mut durations = Durations::default();
            for ns in &nanos {
                durations.record(Duration::from_nanos(*ns));
            }
            nanos.sort_unstable();
            let spread = durations.spread().unwrap();
            for (quantile, found) in [(0.5, spread.p50), (0.9, spread.p90), (0.99, spread.p99), (1.0, spread.max)] {
                let rank = ((quantile * nanos.len() as f64).ceil() as usize).max(1);
                let exact = nanos[rank - 1] as f64 / 1e6;
                prop_assert!((found - exact).abs() <= 0.01 * exact + 1e-6, "{quantile}: {found} for {exact}");
            }
            let near = |share: f64| nanos.iter().filter(|ns| **ns as f64 <= share * bound as f64).count() as u64;
            let counted = durations.count_up_to(Duration::from_nanos(bound));
            prop_assert!((near(0.99)..=near(1.01)).contains(&counted), "{counted} up to {bound}");
            prop_assert_eq!(durations.count(), nanos.len() as u64);
            prop_assert_eq!(durations.sum().as_nanos(), nanos.iter().map(|ns| u128::from(*ns)).sum::<u128>());
        }
    }
}
