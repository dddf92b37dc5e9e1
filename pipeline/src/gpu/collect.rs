//! From batches whose results the GPU is about to write to the results.

use super::infer::{Pending, Ranks, Results};
use super::lanes::{Lanes, without_payload};
use super::load::LaneInput;
use crate::error::JobError;
use crate::frame::{Branch, Item, Ranking, Work};
use crate::stage::Stage;

/// The stage behind it: waits for each batch's results and reads them. Where its GPU is lost others do it again. The branch is
/// the model.
pub struct Collect<S, R> {
    lanes: Lanes<S, R>,
    ranks: Ranks,
}

impl<S, R> Collect<S, R> {
    /// A stage behind these lanes.
    pub fn new(lanes: Lanes<S, R>) -> Self {
        Self { lanes, ranks: Ranks::default() }
    }
}

impl<S, R> Stage for Collect<S, R>
where
    S: Stage<In = LaneInput, Out = Pending>,
    R: Stage<In = Item<()>, Out = Item<Work>>,
{
    type In = Pending;
    type Out = Branch<Ranking>;

    fn process(&mut self, pending: Pending, emit: &mut dyn FnMut(Self::Out)) -> Result<(), JobError> {
        let Pending { gpu, model: branch, items, results } = pending;
        let ranked = match results {
            Results::Read(ranked) => ranked,
            Results::UnderWay(results) => {
                let images = items.iter().filter(|item| item.payload.is_ok()).count();
                match self.ranks.read(&results, images) {
                    Ok(ranked) => {
                        results.give_back();
                        ranked
                    }
                    Err(error) => {
                        drop(results);
                        let items: Vec<_> = items.iter().map(without_payload).collect();
                        let parts = self.lanes.again(&gpu, error.into(), &items)?;
                        return parts.into_iter().try_for_each(|part| match part.model {
                            model if model == branch => self.process(part, emit),
                            // The others have theirs from elsewhere.
                            _ => {
                                part.discard();
                                Ok(())
                            }
                        });
                    }
                }
            }
        };
        emit(Branch { branch, value: Ranking { items, ranked } });
        Ok(())
    }
}
