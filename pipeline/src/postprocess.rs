//! From the network's outputs to results: probabilities and the best classes.

use std::sync::Arc;

use crate::error::{ErrorKind, ItemError, JobError, StageName};
use crate::frame::{Item, Outputs, PictureInfo, PooledVec, Ranked, Ranking, Results, Scored, VecPool};
use crate::model::card;
use crate::stage::Stage;

/// What a classifier's output means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scores {
    /// Logits: a softmax makes them probabilities.
    Logits,
    /// Probabilities already.
    Probabilities,
}

/// How a classifier's output becomes a row.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassifyDesc {
    /// What the output means.
    pub scores: Scores,
    /// The output's first value stands for none of the classes: it takes part in the softmax and is never reported, and
    /// class 0 is the value after it.
    pub background: bool,
    /// Names of the classes; a class without one is called by its number.
    pub labels: Vec<Arc<str>>,
    /// Most classes reported.
    pub top: usize,
    /// Lowest score reported.
    pub threshold: f32,
}

impl ClassifyDesc {
    /// What a model's card says.
    pub fn of(labels: Vec<Arc<str>>, output: &card::Output) -> Self {
        let scores = match output.decoder {
            card::Decoder::Softmax => Scores::Logits,
            card::Decoder::Probabilities => Scores::Probabilities,
        };
        Self { scores, background: output.background, labels, top: output.top, threshold: output.threshold }
    }

    /// A class as a row names it. Numbers become labels when they are named first, so that they are not written again.
    fn scored(&mut self, class: usize, score: f32) -> Scored {
        let unnamed = self.labels.len()..=class;
        self.labels.extend(unnamed.map(|class| Arc::from(class.to_string())));
        Scored { class: class as u32, label: Arc::clone(&self.labels[class]), score }
    }
}

fn not_finite() -> ItemError {
    let message = "the network gave values that are not finite numbers; the model may be damaged";
    ItemError::new(StageName::Postprocess, ErrorKind::Internal, message)
}

fn no_probability(value: f32) -> ItemError {
    let message = format!("the network gave {value}, which is no probability; write decoder = \"softmax\" in the card");
    ItemError::new(StageName::Postprocess, ErrorKind::Unsupported, message)
}

/// The stage: classifies the images of a batch by the network's first output, `[images, classes]`.
#[derive(Clone, Debug)]
pub struct Classify {
    desc: ClassifyDesc,
}

impl Classify {
    /// A stage that follows the description.
    pub fn new(desc: ClassifyDesc) -> Self {
        Self { desc }
    }

    /// The best classes for one image's values: highest score first, ties by lower class.
    fn top(&mut self, values: &[f32]) -> Result<PooledVec<Scored>, ItemError> {
        let desc = &mut self.desc;
        let probabilities = scores(desc, values)?;
        let classes = &probabilities[usize::from(desc.background).min(probabilities.len())..];
        let mut order: Vec<usize> = (0..classes.len()).collect();
        let best_first = |a: &usize, b: &usize| classes[*b].total_cmp(&classes[*a]).then(a.cmp(b));
        if desc.top < order.len() {
            order.select_nth_unstable_by(desc.top, best_first);
            order.truncate(desc.top);
        }
        order.sort_unstable_by(best_first);
        let threshold = desc.threshold;
        let above = order.into_iter().take_while(|class| classes[*class] >= threshold);
        Ok(above.map(|class| desc.scored(class, classes[class])).collect())
    }
}

/// The values, where they lie between 0 and 1 but for rounding.
fn probabilities(values: &[f32]) -> Result<Vec<f32>, ItemError> {
    const ROUNDING: f32 = 1e-3;
    if let Some(value) = values.iter().find(|v| !(-ROUNDING..=1.0 + ROUNDING).contains(*v)) {
        return Err(no_probability(*value));
    }
    Ok(values.iter().map(|v| v.clamp(0.0, 1.0)).collect())
}

/// Probabilities of all values of an output, those of classes that are never reported among them.
///
/// # Errors
/// Where a value is not finite, or is no probability where it should be one.
pub fn scores(desc: &ClassifyDesc, values: &[f32]) -> Result<Vec<f32>, ItemError> {
    let scores = match desc.scores {
        Scores::Logits => softmax(values),
        Scores::Probabilities if values.iter().all(|v| v.is_finite()) => Some(probabilities(values)?),
        Scores::Probabilities => None,
    };
    scores.ok_or_else(not_finite)
}

/// e^(x - max) / sum of e^(x - max), summed in double precision; `None` where a value is NaN or no value is finite.
fn softmax(logits: &[f32]) -> Option<Vec<f32>> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if !max.is_finite() || logits.iter().any(|v| v.is_nan()) {
        return None;
    }
    let exps: Vec<f64> = logits.iter().map(|v| (f64::from(*v) - f64::from(max)).exp()).collect();
    let sum: f64 = exps.iter().sum();
    Some(exps.into_iter().map(|e| (e / sum) as f32).collect())
}

impl Stage for Classify {
    type In = Outputs;
    type Out = Item<Results>;

    fn process(&mut self, outputs: Outputs, emit: &mut dyn FnMut(Item<Results>)) -> Result<(), JobError> {
        let images = outputs.items.iter().filter(|item| item.payload.is_ok()).count();
        let values = outputs.data.first().map_or(&[][..], Vec::as_slice);
        let mut rows = values.chunks_exact((values.len() / images.max(1)).max(1));
        for item in outputs.items {
            emit(item.and_then(|info: PictureInfo| {
                let top = self.top(rows.next().unwrap_or_default())?;
                Ok(Results { info, top })
            }));
        }
        Ok(())
    }
}

/// The stage: makes rows of what the GPU has ranked, as [`Classify`] does of the network's outputs.
#[derive(Clone, Debug)]
pub struct ClassifyRanked {
    desc: ClassifyDesc,
    /// Rows that have been written come back to it.
    pool: VecPool<Scored>,
}

impl ClassifyRanked {
    /// A stage that follows the description.
    pub fn new(desc: ClassifyDesc) -> Self {
        Self { desc, pool: VecPool::default() }
    }

    /// Values that have to be ranked for as many classes as are reported.
    pub fn ranks(desc: &ClassifyDesc) -> usize {
        desc.top + usize::from(desc.background)
    }

    fn top(&mut self, ranked: &Ranked) -> Result<PooledVec<Scored>, ItemError> {
        let best = match ranked {
            Ranked::Best(best) => best,
            Ranked::NotFinite => return Err(not_finite()),
            Ranked::NoProbability(value) => return Err(no_probability(*value)),
        };
        let desc = &mut self.desc;
        let (first, most, threshold) = (u32::from(desc.background), desc.top, desc.threshold);
        let classes = best.iter().filter_map(|&(value, score)| Some((value.checked_sub(first)?, score)));
        let above = classes.take(most).take_while(|(_, score)| *score >= threshold);
        let mut top = self.pool.take();
        top.extend(above.map(|(class, score)| desc.scored(class as usize, score)));
        Ok(top)
    }
}

impl Stage for ClassifyRanked {
    type In = Ranking;
    type Out = Item<Results>;

    fn process(&mut self, mut ranking: Ranking, emit: &mut dyn FnMut(Item<Results>)) -> Result<(), JobError> {
        let mut ranked = ranking.ranked.iter();
        for item in ranking.items.drain(..) {
            emit(item.and_then(|info| {
                let top = self.top(ranked.next().unwrap_or(&Ranked::NotFinite))?;
                Ok(Results { info, top })
            }));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Decoder, Origin};
    use ocellus_kernels::preprocess::Transform;
    use proptest::prelude::*;

    fn stage(scores: Scores, background: bool, top: usize, threshold: f32) -> Classify {
        let labels = ["a", "b", "c"].map(Arc::from).to_vec();
        Classify::new(ClassifyDesc { scores, background, labels, top, threshold })
    }

    fn names(top: &[Scored]) -> Vec<(u32, &str)> {
        top.iter().map(|s| (s.class, &*s.label)).collect()
    }

    #[test]
    fn best_first_and_ties_by_lower_class() {
        let values = [0.1, 0.3, 0.1, 0.3, 0.2];
        let all = stage(Scores::Probabilities, false, 9, 0.0).top(&values).unwrap();
        assert_eq!(names(&all), [(1, "b"), (3, "3"), (4, "4"), (0, "a"), (2, "c")]);
        for top in 0..5 {
            assert_eq!(*stage(Scores::Probabilities, false, top, 0.0).top(&values).unwrap(), all[..top]);
        }
        assert_eq!(*stage(Scores::Probabilities, false, 9, 0.2).top(&values).unwrap(), all[..3]);
    }

    #[test]
    fn the_background_takes_part_but_is_not_reported() {
        let top = stage(Scores::Logits, true, 2, 0.0).top(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!(names(&top), [(1, "b"), (0, "a")]);
        let sum: f64 = [3.0_f64, 1.0, 2.0].iter().map(|v| v.exp()).sum();
        assert!((f64::from(top[0].score) - 2.0_f64.exp() / sum).abs() < 1e-7);
    }

    #[test]
    fn values_that_are_no_numbers_are_errors() {
        for bad in [[f32::NAN, 1.0], [1.0, f32::NAN], [f32::INFINITY, 1.0], [f32::NEG_INFINITY; 2]] {
            for scores in [Scores::Logits, Scores::Probabilities] {
                let error = stage(scores, false, 1, 0.0).top(&bad).unwrap_err();
                assert_eq!(error.stage, StageName::Postprocess);
            }
        }
        for bad in [-0.1, 1.1, 34.9] {
            let error = stage(Scores::Probabilities, false, 1, 0.0).top(&[0.5, bad]).unwrap_err();
            assert!(error.kind == ErrorKind::Unsupported && error.message.contains("softmax"), "{error}");
            stage(Scores::Logits, false, 1, 0.0).top(&[0.5, bad]).unwrap();
        }
        let rounded = stage(Scores::Probabilities, false, 2, 0.0).top(&[-1e-6, 1.0 + 1e-6]).unwrap();
        assert_eq!((rounded[0].score, rounded[1].score), (1.0, 0.0));
        let top = stage(Scores::Logits, false, 2, 0.0).top(&[f32::NEG_INFINITY, 0.0]).unwrap();
        assert_eq!((top[0].score, top[1].score), (1.0, 0.0), "one impossible class is no fault");
    }

    #[test]
    fn each_image_gets_its_own_values_and_failed_items_pass() {
        let transform = Transform { scale: [1.0; 2], offset_px: [0.0; 2] };
        let info = PictureInfo { width_px: 1, height_px: 1, decoder: Decoder::Image, partial: false, transform };
        let broken = ItemError::new(StageName::Decode, ErrorKind::Corrupt, "x");
        let item = |id, payload| Item::new(id, Origin::File("x".into()), payload);
        let items = vec![item(0, Ok(info)), item(1, Err(broken.clone())), item(2, Ok(info)), item(3, Ok(info))];
        let data = vec![vec![0.0, 1.0, f32::NAN, 0.0, 1.0, 0.0]];
        let mut rows = Vec::new();
        let mut classify = stage(Scores::Logits, false, 1, 0.0);
        classify.process(Outputs { items, data }, &mut |row| rows.push(row)).unwrap();
        let classes: Vec<_> = rows.iter().map(|r| r.payload.as_ref().map(|p| p.top[0].class).ok()).collect();
        assert_eq!(classes, [Some(1), None, None, Some(0)]);
        assert_eq!(rows[1].payload.as_ref().unwrap_err(), &broken);
        let only_failed = Outputs { items: vec![item(0, Err(broken))], data: vec![vec![]] };
        classify.process(only_failed, &mut |row| rows.push(row)).unwrap();
        assert_eq!(rows.len(), 5);
    }

    #[test]
    fn what_the_gpu_ranked_becomes_the_same_rows() {
        let values = [0.1, 0.3, 0.1, 0.3, 0.2];
        let best = [(1, 0.3), (3, 0.3), (4, 0.2), (0, 0.1), (2, 0.1)];
        for background in [false, true] {
            for top in 1..5 {
                for threshold in [0.0, 0.2, 0.25, 0.5] {
                    let mut cpu = stage(Scores::Probabilities, background, top, threshold);
                    let mut gpu = ClassifyRanked::new(cpu.desc.clone());
                    let best = best[..ClassifyRanked::ranks(&cpu.desc).min(best.len())].to_vec();
                    assert_eq!(gpu.top(&Ranked::Best(best.into())), cpu.top(&values), "{background} {top} {threshold}");
                }
            }
        }
        let mut gpu = ClassifyRanked::new(stage(Scores::Probabilities, false, 1, 0.0).desc);
        let mut cpu = stage(Scores::Probabilities, false, 1, 0.0);
        assert_eq!(gpu.top(&Ranked::NotFinite), cpu.top(&[f32::NAN, 0.0]));
        assert_eq!(gpu.top(&Ranked::NoProbability(34.9)), cpu.top(&[0.5, 34.9]));
    }

    proptest! {
        #[test]
        fn softmax_agrees_with_its_definition(logits in prop::collection::vec(-80.0_f32..80.0, 1..50)) {
            let sum: f64 = logits.iter().map(|v| f64::from(*v).exp()).sum();
            for (p, v) in softmax(&logits).unwrap().iter().zip(&logits) {
                prop_assert!((f64::from(*p) - f64::from(*v).exp() / sum).abs() < 1e-6);
            }
        }
    }
}
