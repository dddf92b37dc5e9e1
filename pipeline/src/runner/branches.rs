//! Stages side by side on one thread, and the values for each of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::error::JobError;
use crate::frame::{Branch, Item};
use crate::stage::Stage;

/// Gives each value to the stage of its branch.
pub struct Branches<S>(pub Vec<S>);

impl<S: Stage> Stage for Branches<S> {
    type In = Branch<S::In>;
    type Out = S::Out;

    fn process(&mut self, input: Self::In, emit: &mut dyn FnMut(S::Out)) -> Result<(), JobError> {
        let Branch { branch, value } = input;
        let stages = self.0.len();
        let stage = self.0.get_mut(branch);
        let none = || JobError::Usage(format!("a value for stage {branch} of {stages}"));
        stage.ok_or_else(none)?.process(value, emit)
    }

    fn due(&self) -> Option<Instant> {
        self.0.iter().filter_map(S::due).min()
    }

    fn is_heavy(&mut self) -> bool {
        self.0.iter_mut().fold(false, |heavy, stage| heavy | stage.is_heavy())
    }

    fn idle(&mut self, emit: &mut dyn FnMut(S::Out)) -> Result<(), JobError> {
        self.0.iter_mut().try_for_each(|stage| stage.idle(emit))
    }

    fn finish(&mut self, emit: &mut dyn FnMut(S::Out)) -> Result<(), JobError> {
        self.0.iter_mut().try_for_each(|stage| stage.finish(emit))
    }
}

/// Marks what a stage gives with its branch.
pub struct Tag<S> {
    /// The stage's branch.
    pub branch: usize,
    /// The stage.
    pub stage: S,
}

impl<S: Stage> Tag<S> {
    /// Numbers stages from 0.
    pub fn each(stages: impl IntoIterator<Item = S>) -> Vec<Self> {
        stages.into_iter().enumerate().map(|(branch, stage)| Self { branch, stage }).collect()
    }
}

impl<S: Stage> Stage for Tag<S> {
    type In = S::In;
    type Out = Branch<S::Out>;

    fn process(&mut self, input: S::In, emit: &mut dyn FnMut(Self::Out)) -> Result<(), JobError> {
        let branch = self.branch;
        self.stage.process(input, &mut |value| emit(Branch { branch, value }))
    }

    fn due(&self) -> Option<Instant> {
        self.stage.due()
    }

    fn is_heavy(&mut self) -> bool {
        self.stage.is_heavy()
    }

    fn idle(&mut self, emit: &mut dyn FnMut(Self::Out)) -> Result<(), JobError> {
        let branch = self.branch;
        self.stage.idle(&mut |value| emit(Branch { branch, value }))
    }

    fn finish(&mut self, emit: &mut dyn FnMut(Self::Out)) -> Result<(), JobError> {
        let branch = self.branch;
        self.stage.finish(&mut |value| emit(Branch { branch, value }))
    }
}

/// Gives each item to all stages, in their order; what an item holds is shared by them.
pub struct Fan<S>(pub Vec<S>);

impl<T: Send + Sync, S: Stage<In = Item<Arc<T>>>> Stage for Fan<S> {
    type In = Item<T>;
    type Out = Branch<S::Out>;

    fn process(&mut self, input: Item<T>, emit: &mut dyn FnMut(Self::Out)) -> Result<(), JobError> {
        let shared = input.and_then(|payload| Ok(Arc::new(payload)));
        for (branch, stage) in self.0.iter_mut().enumerate() {
            stage.process(shared.clone(), &mut |value| emit(Branch { branch, value }))?;
        }
        Ok(())
    }

    fn is_heavy(&mut self) -> bool {
        self.0.iter_mut().fold(false, |heavy, stage| heavy | stage.is_heavy())
    }
}

/// Brings together what the branches say of each item: gives that of all branches, in their order, when the last of it is
/// there. Branches may be apart, and their items in any order.
pub struct Join<T> {
    branches: usize,
    waiting: BTreeMap<u64, Vec<Branch<Item<T>>>>,
}

impl<T> Join<T> {
    /// A stage for so many branches.
    pub fn new(branches: usize) -> Self {
        Self { branches, waiting: BTreeMap::new() }
    }
}

impl<T: Send> Stage for Join<T> {
    type In = Branch<Item<T>>;
    type Out = Branch<Item<T>>;

    fn process(&mut self, input: Self::In, emit: &mut dyn FnMut(Self::Out)) -> Result<(), JobError> {
        if self.branches == 1 {
            emit(input);
            return Ok(());
        }
        let id = input.value.id;
        let there = self.waiting.entry(id).or_insert_with(|| Vec::with_capacity(self.branches));
        there.push(input);
        if there.len() == self.branches {
            let mut complete = self.waiting.remove(&id).unwrap_or_default();
            complete.sort_by_key(|branch| branch.branch);
            complete.into_iter().for_each(emit);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ErrorKind, ItemError, StageName};
    use crate::frame::Origin;

    fn item<T>(id: u64, payload: Result<T, ItemError>) -> Item<T> {
        Item::new(id, Origin::File("x".into()), payload)
    }

    /// Adds to numbers, and keeps back every second value until the end.
    struct Add(u64, Vec<u64>);

    impl Stage for Add {
        type In = Item<Arc<u64>>;
        type Out = u64;

        fn process(&mut self, item: Self::In, emit: &mut dyn FnMut(u64)) -> Result<(), JobError> {
            let sum = item.payload.map_or(0, |n| *n + self.0);
            if item.id % 2 == 0 {
                emit(sum);
            } else {
                self.1.push(sum);
            }
            Ok(())
        }

        fn finish(&mut self, emit: &mut dyn FnMut(u64)) -> Result<(), JobError> {
            self.1.drain(..).for_each(emit);
            Ok(())
        }
    }

    #[test]
    fn each_branch_has_all_items_and_its_own_values() {
        let mut fan = Fan(vec![Add(10, vec![]), Add(20, vec![])]);
        let mut given = Vec::new();
        let failed = ItemError::new(StageName::Decode, ErrorKind::Corrupt, "x");
        for item in [item(0, Ok(1)), item(2, Err(failed))] {
            fan.process(item, &mut |branch| given.push((branch.branch, branch.value))).unwrap();
        }
        assert_eq!(given, [(0, 11), (1, 21), (0, 0), (1, 0)]);

        let mut branches = Branches(Tag::each([Add(10, vec![]), Add(20, vec![])]));
        let mut given = Vec::new();
        let mut emit = |branch: Branch<u64>| given.push((branch.branch, branch.value));
        for (id, branch) in [(0, 1), (1, 0), (2, 0), (3, 1)] {
            branches.process(Branch { branch, value: item(id, Ok(Arc::new(id))) }, &mut emit).unwrap();
        }
        assert!(branches.process(Branch { branch: 2, value: item(0, Ok(Arc::new(0))) }, &mut emit).is_err());
        branches.finish(&mut emit).unwrap();
        assert_eq!(given, [(1, 20), (0, 12), (0, 11), (1, 23)]);
    }

    #[test]
    fn items_leave_when_all_branches_have_spoken() {
        let mut join = Join::new(2);
        let mut given = Vec::new();
        for (id, branch) in [(3, 1), (7, 0), (3, 0), (5, 0), (5, 1), (7, 1)] {
            let value = item(id, Ok(()));
            join.process(Branch { branch, value }, &mut |b| given.push((b.value.id, b.branch))).unwrap();
        }
        assert_eq!(given, [(3, 0), (3, 1), (5, 0), (5, 1), (7, 0), (7, 1)]);
        assert!(join.waiting.is_empty());
    }
}
