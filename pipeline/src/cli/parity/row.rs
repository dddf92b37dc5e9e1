//! A row of `ocellus parity`.

use std::cmp::Ordering;
use std::fmt;

use crate::bench::infer::name_of;
use crate::error::ItemError;
use crate::frame::{Decoder, Item, Origin};
use crate::parity::{Comparison, Difference, Drift};
use crate::sink::path_fields;

/// One file's comparison, or why there is none.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct ParityRow {
    /// Path, with what cannot be read of it replaced, and then its bytes in hexadecimal.
    pub(super) path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) path_bytes: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(super) comparison: Option<Compared>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<ItemError>,
}

/// As rows write it.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Compared {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) decoder: Decoder,
    pub(super) reference: Decoder,
    /// 0..255.
    pub(super) decode: Difference,
    pub(super) resize: Difference,
    pub(super) resized: Difference,
    /// The network's unit.
    pub(super) input: Difference,
    pub(super) answer: Drift,
    pub(super) precisions: Vec<PrecisionDrift>,
    #[serde(skip)]
    badness: [f64; 4],
}

#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct PrecisionDrift {
    pub(super) precision: &'static str,
    #[serde(flatten)]
    pub(super) drift: Drift,
}

impl ParityRow {
    pub(super) fn new(item: Item<Comparison>) -> Self {
        let (path, path_bytes) = match &*item.origin {
            Origin::File(path) => path_fields(path),
            Origin::Frame { stream, frame, .. } => (format!("{stream} {frame}"), None),
        };
        match item.payload {
            Ok(comparison) => Self { path, path_bytes, comparison: Some(Compared::new(comparison)), error: None },
            Err(error) => Self { path, path_bytes, comparison: None, error: Some(error) },
        }
    }

    /// Failed ones before all others; equal ones in the order of their names.
    pub(super) fn worst_first(&self, other: &Self) -> Ordering {
        let badness = |row: &Self| row.comparison.as_ref().map_or([f64::INFINITY; 4], |compared| compared.badness);
        let pairs = badness(other).into_iter().zip(badness(self));
        let by_badness = pairs.map(|(other, own)| other.total_cmp(&own)).find(|order| order.is_ne());
        by_badness.unwrap_or_else(|| self.path.cmp(&other.path))
    }
}

impl Compared {
    fn new(comparison: Comparison) -> Self {
        let badness = comparison.badness();
        let Comparison { width_px, height_px, decoder, reference, decode, resize, resized, input, answer, precisions } =
            comparison;
        let precisions =
            precisions.into_iter().map(|(precision, drift)| PrecisionDrift { precision: name_of(precision), drift });
        let precisions = precisions.collect();
        Self {
            width: width_px,
            height: height_px,
            decoder,
            reference,
            decode,
            resize,
            resized,
            input,
            answer,
            precisions,
            badness,
        }
    }
}

/// What all rows together say.
#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    files: u64,
    pub(super) failed: u64,
    decode: Difference,
    resize_max: f64,
    resized_max: f64,
    input: Difference,
    /// Files with the same first class, and the largest drift, by what was compared.
    answers: Vec<(&'static str, u64, f64)>,
}

impl Summary {
    pub(super) fn add(&mut self, row: &ParityRow) {
        self.files += 1;
        let Some(compared) = &row.comparison else {
            self.failed += 1;
            return;
        };
        let add = |sum: &mut Difference, one: &Difference| {
            *sum = Difference { max: sum.max.max(one.max), mean: sum.mean + one.mean };
        };
        add(&mut self.decode, &compared.decode);
        add(&mut self.input, &compared.input);
        self.resize_max = self.resize_max.max(compared.resize.max);
        self.resized_max = self.resized_max.max(compared.resized.max);
        let precisions = compared.precisions.iter().map(|p| (p.precision, p.drift));
        for (what, drift) in [("input", compared.answer)].into_iter().chain(precisions) {
            if !self.answers.iter().any(|(known, ..)| *known == what) {
                self.answers.push((what, 0, 0.0));
            }
            for (_, same, score) in self.answers.iter_mut().filter(|(known, ..)| *known == what) {
                *same += u64::from(drift.same_top1);
                *score = score.max(drift.score);
            }
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let compared = self.files - self.failed;
        let files = |n: u64| if n == 1 { "1 file".to_owned() } else { format!("{n} files") };
        write!(f, "{} compared", files(compared))?;
        if self.failed > 0 {
            write!(f, ", {} failed", self.failed)?;
        }
        if compared == 0 {
            return Ok(());
        }
        let mean = |sum: f64| sum / compared as f64;
        write!(f, "; decode max {:.0} mean {:.3}", self.decode.max, mean(self.decode.mean))?;
        write!(f, "; resize max {:.0}, with decoding {:.0}", self.resize_max, self.resized_max)?;
        write!(f, "; input max {:.4} mean {:.5}", self.input.max, mean(self.input.mean))?;
        for (what, same, score) in &self.answers {
            write!(f, "; {what} same {same} of {compared}, drift {score:.4}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::error::{ErrorKind, StageName};
    use crate::gpu::Precision;
    use std::sync::Arc;

    pub(in super::super) fn row(path: &str, same: bool, score: f64) -> ParityRow {
        let one = Difference { max: 2.0, mean: 0.5 };
        let comparison = Comparison {
            width_px: 4,
            height_px: 3,
            decoder: Decoder::NvjpegHw,
            reference: Decoder::Image,
            decode: one,
            resize: Difference::default(),
            resized: one,
            input: one,
            answer: Drift { same_top1: true, score: 0.0 },
            precisions: vec![(Precision::Fp16, Drift { same_top1: same, score })],
        };
        let origin = Arc::new(Origin::File(path.into()));
        ParityRow::new(Item::new(0, origin, Ok(comparison)))
    }

    pub(in super::super) fn failed(path: &str) -> ParityRow {
        let error = ItemError::new(StageName::Decode, ErrorKind::Truncated, "cut, \"short\"");
        ParityRow { path: path.into(), path_bytes: None, comparison: None, error: Some(error) }
    }

    #[test]
    fn the_worst_come_first() {
        let mut rows =
            [row("c", true, 0.1), row("b", true, 0.1), row("d", false, 0.0), failed("e"), row("a", true, 0.0)];
        rows.sort_by(ParityRow::worst_first);
        assert_eq!(rows.each_ref().map(|row| row.path.as_str()), ["e", "d", "b", "c", "a"]);
    }

    #[test]
    fn the_summary_adds_up() {
        let mut summary = Summary::default();
        assert_eq!(summary.to_string(), "0 files compared");
        for row in [row("a", true, 0.25), row("b", false, 0.125), failed("c")] {
            summary.add(&row);
        }
        assert_eq!(
            summary.to_string(),
            "2 files compared, 1 failed; decode max 2 mean 0.500; resize max 0, with decoding 2; \
             input max 2.0000 mean 0.50000; input same 2 of 2, drift 0.0000; fp16 same 1 of 2, drift 0.2500"
        );
    }
}
