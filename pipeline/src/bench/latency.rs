//! How long one file takes, from its bytes in memory to its labels, with nothing else under way.

use std::time::{Duration, Instant};

use super::Measurement;
use crate::error::JobError;
use crate::stage::Cancel;

/// Files before the first that counts, and the time that they take at least: clocks rise meanwhile.
const WARM_UP: usize = 100;
const WARM_UP_TIME: Duration = Duration::from_secs(1);
/// Parts that the files are measured in: between them the spread is.
const PARTS: usize = 10;

/// Percentiles that are reported, by the end of their names.
const PERCENTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];

/// Milliseconds that `classify` takes for a file, as percentiles `NAME.p50`, `NAME.p90`, `NAME.p99` and `NAME.max` over `runs`
/// calls or a few more. Files are taken in turn. Making the copy that a call owns is not counted.
///
/// # Errors
/// Those of `classify`, and where `cancel` was set.
pub fn measure(
    name: &str,
    files: &[Vec<u8>],
    runs: usize,
    cancel: &Cancel,
    mut classify: impl FnMut(Vec<u8>) -> Result<(), JobError>,
) -> Result<Vec<Measurement>, JobError> {
    let mut next = files.iter().cycle();
    let mut run = || {
        if cancel.is_set() {
            return Err(JobError::Interrupted);
        }
        let file = next.next().cloned().unwrap_or_default();
        let started = Instant::now();
        classify(file)?;
        Ok(started.elapsed().as_secs_f64() * 1e3)
    };
    let started = Instant::now();
    let mut warm = 0;
    while warm < WARM_UP || started.elapsed() < WARM_UP_TIME {
        run()?;
        warm += 1;
    }
    let part = runs.div_ceil(PARTS).max(1);
    let mut parts = Vec::with_capacity(PARTS);
    for _ in 0..PARTS {
        parts.push((0..part).map(|_| run()).collect::<Result<Vec<f64>, JobError>>()?);
    }
    Ok(percentiles(name, parts))
}

/// Percentiles of all values, and of the parts for the spread.
fn percentiles(name: &str, mut parts: Vec<Vec<f64>>) -> Vec<Measurement> {
    let mut all = parts.concat();
    all.sort_by(f64::total_cmp);
    for part in &mut parts {
        part.sort_by(f64::total_cmp);
    }
    let measurement = |(end, share): (&str, f64)| {
        let of_parts =
            Measurement::of(format!("{name}.{end}"), "ms", parts.iter().map(|part| at(part, share)).collect());
        Measurement { value: at(&all, share), ..of_parts }
    };
    PERCENTILES.map(measurement).into()
}

/// The smallest of the sorted values that at least this share of them is not above.
fn at(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(PERCENTILES.map(|(_, share)| at(&values, share)), [50.0, 90.0, 99.0, 100.0]);
        assert_eq!(at(&[7.0], 0.5), 7.0);
        assert!(at(&[], 0.5).is_nan());
        let parts = vec![vec![4.0, 1.0, 2.0], vec![9.0, 3.0, 5.0]];
        let measured = percentiles("x", parts);
        let named: Vec<_> = measured.iter().map(|m| (m.name.as_str(), m.value)).collect();
        assert_eq!(named, [("x.p50", 3.0), ("x.p90", 9.0), ("x.p99", 9.0), ("x.max", 9.0)]);
        assert_eq!((measured[0].spread, measured[3].spread), (3.0, 5.0));
    }

    #[test]
    fn every_file_is_taken_in_turn_and_failures_end_it() {
        let files = [vec![0_u8], vec![1]];
        let mut taken = Vec::new();
        let measured = measure("x", &files, 25, &Cancel::default(), |file| {
            taken.push(file[0]);
            Ok(())
        });
        assert_eq!(measured.unwrap().len(), 4);
        assert!(taken.len() >= WARM_UP + 25 && taken.iter().enumerate().all(|(i, &file)| usize::from(file) == i % 2));
        let failed = measure("x", &files, 1, &Cancel::default(), |_| Err(JobError::Usage("made up".into())));
        assert!(failed.is_err());
        let cancel = Cancel::default();
        cancel.set();
        assert!(matches!(measure("x", &files, 1, &cancel, |_| Ok(())), Err(JobError::Interrupted)));
    }
}
