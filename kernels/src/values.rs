//! Elements of constants: given, or made of others once somebody looks.
//!
//! A network is imported anew for each batch size, with the same weights. What becomes of a weight on the way (its axes in
//! another order, a factor for each channel) is noted and computed where it is read. So an import does not cost by the size
//! of its weights, and what is made in the same way of the same elements is known to be equal without a look at either.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// Ways that one set of elements may be away from those that were given: they are followed by recursion.
const MAX_STEPS: usize = 8;

/// Elements of a constant, row-major. Clones share them.
#[derive(Clone)]
pub struct Values(Arc<Made>);

struct Made {
    recipe: Recipe,
    len: usize,
    steps: usize,
    /// What the recipe makes, once somebody looked.
    computed: OnceLock<Vec<f32>>,
}

enum Recipe {
    Given(Vec<f32>),
    /// Element (i, j, ...) is `of[start + i stride + j stride ...]`.
    View {
        of: Values,
        start: isize,
        axes: Vec<Axis>,
    },
    /// Element (i, j, ...) is the next one of `of` times `factors[i stride + j stride ...]`.
    Scaled {
        of: Values,
        factors: Vec<f64>,
        axes: Vec<Axis>,
    },
}

/// An axis that is walked along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis {
    len: usize,
    stride: isize,
}

impl Values {
    fn new(recipe: Recipe, len: usize) -> Self {
        let steps = match &recipe {
            Recipe::Given(_) => 0,
            Recipe::View { of, .. } | Recipe::Scaled { of, .. } => of.0.steps + 1,
        };
        if steps > MAX_STEPS {
            return recipe.compute().into_owned().into();
        }
        Self(Arc::new(Made { recipe, len, steps, computed: OnceLock::new() }))
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A strided view as a dense tensor of these dimensions: element (i, j, ...) is `start + i strides[0] + j strides[1] + ...`.
    /// The caller names no element that there is not.
    #[must_use]
    pub fn view(&self, start: isize, strides: &[isize], dims: &[usize]) -> Self {
        let axes = merged(dims, strides);
        let len = dims.iter().product();
        if start == 0 && len == self.len() && matches!(axes[..], [] | [Axis { stride: 1, .. }]) {
            return self.clone();
        }
        Self::new(Recipe::View { of: self.clone(), start, axes }, len)
    }

    /// Element (i, j, ...) of these dimensions, as many as there are elements, times `factors[i strides[0] + j strides[1] + ...]`,
    /// rounded once from f64.
    #[must_use]
    pub fn scaled(&self, factors: Vec<f64>, strides: &[isize], dims: &[usize]) -> Self {
        Self::new(Recipe::Scaled { of: self.clone(), factors, axes: merged(dims, strides) }, self.len())
    }

    /// True where both hold the same bits. What was made of elements in different ways may count as different.
    pub fn same_as(&self, other: &Self) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        if self.len() != other.len() {
            return false;
        }
        match (&self.0.recipe, &other.0.recipe) {
            (Recipe::View { of, start, axes }, Recipe::View { of: other, start: other_start, axes: other_axes }) => {
                start == other_start && axes == other_axes && of.same_as(other)
            }
            (Recipe::Scaled { of, factors, axes }, Recipe::Scaled { of: other, factors: others, axes: other_axes }) => {
                let same = factors.iter().map(|x| x.to_bits()).eq(others.iter().map(|x| x.to_bits()));
                same && axes == other_axes && of.same_as(other)
            }
            // By bits: what is not a number equals itself here, and the zeros differ.
            (Recipe::Given(a), Recipe::Given(b)) => a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits()),
            _ => false,
        }
    }

    /// The elements, without keeping what is computed for it.
    fn look(&self) -> Cow<'_, [f32]> {
        match self.0.computed.get() {
            Some(computed) => Cow::Borrowed(computed),
            None => self.0.recipe.compute(),
        }
    }
}

impl Recipe {
    fn compute(&self) -> Cow<'_, [f32]> {
        match self {
            Self::Given(values) => Cow::Borrowed(values),
            Self::View { of, start, axes } => {
                let from = of.look();
                let mut values = Vec::with_capacity(axes.iter().map(|axis| axis.len).product());
                pieces(*start, axes, |at, Axis { len, stride }| match stride {
                    1 => values.extend_from_slice(&from[at as usize..at as usize + len]),
                    _ => values.extend((0..len as isize).map(|i| from[(at + i * stride) as usize])),
                });
                Cow::Owned(values)
            }
            Self::Scaled { of, factors, axes } => {
                let from = of.look();
                let mut values = Vec::with_capacity(from.len());
                pieces(0, axes, |at, Axis { len, stride }| {
                    let from = from[values.len()..][..len].iter().zip(0..);
                    values.extend(from.map(|(&x, i)| (f64::from(x) * factors[(at + i * stride) as usize]) as f32));
                });
                Cow::Owned(values)
            }
        }
    }
}

/// Neighbouring axes that are walked with one stride become one; those of length 1 go.
fn merged(dims: &[usize], strides: &[isize]) -> Vec<Axis> {
    let mut axes: Vec<Axis> = Vec::new();
    for (&len, &stride) in dims.iter().zip(strides).filter(|(len, _)| **len != 1) {
        match axes.last_mut() {
            Some(outer) if outer.stride == stride * len as isize => *outer = Axis { len: outer.len * len, stride },
            _ => axes.push(Axis { len, stride }),
        }
    }
    axes
}

/// Visits the elements in order, a piece along the innermost axis at a time: where it starts, and the axis.
fn pieces(start: isize, axes: &[Axis], mut visit: impl FnMut(isize, Axis)) {
    let (inner, outer) = axes.split_last().map_or((Axis { len: 1, stride: 1 }, axes), |(inner, outer)| (*inner, outer));
    if axes.iter().any(|axis| axis.len == 0) {
        return;
    }
    let mut index = vec![0; outer.len()];
    let mut at = start;
    loop {
        visit(at, inner);
        let mut axis = outer.len();
        loop {
            let Some(next) = axis.checked_sub(1) else { return };
            axis = next;
            index[axis] += 1;
            at += outer[axis].stride;
            if index[axis] < outer[axis].len {
                break;
            }
            at -= outer[axis].stride * outer[axis].len as isize;
            index[axis] = 0;
        }
    }
}

impl Deref for Values {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &self.0.recipe {
            Recipe::Given(values) => values,
            recipe => self.0.computed.get_or_init(|| recipe.compute().into_owned()),
        }
    }
}

impl From<Vec<f32>> for Values {
    fn from(values: Vec<f32>) -> Self {
        let len = values.len();
        Self::new(Recipe::Given(values), len)
    }
}

impl FromIterator<f32> for Values {
    fn from_iter<I: IntoIterator<Item = f32>>(values: I) -> Self {
        Vec::from_iter(values).into()
    }
}

impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeded random numbers (xorshift64).
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 33) as usize % n
        }

        fn values(&mut self, len: usize) -> Vec<f32> {
            (0..len).map(|_| self.below(2001) as f32 / 7.0 - 140.0).collect()
        }
    }

    /// Every element where the sentence that describes a view says it is.
    fn gold(from: &[f32], start: isize, strides: &[isize], dims: &[usize]) -> Vec<f32> {
        let count = dims.iter().product::<usize>();
        let place = |mut element: usize| {
            let mut at = start;
            for (&dim, &stride) in dims.iter().zip(strides).rev() {
                at += (element % dim) as isize * stride;
                element /= dim;
            }
            at as usize
        };
        (0..count).map(|element| from[place(element)]).collect()
    }

    /// Axes in a random order, some reversed, some of length 1, some repeated, some not walked to their end.
    fn random_view(random: &mut Random, dims: &[usize]) -> (isize, Vec<isize>, Vec<usize>) {
        let mut axes: Vec<(usize, isize)> = Vec::new();
        let mut stride = 1;
        for &dim in dims.iter().rev() {
            axes.insert(random.below(axes.len() + 1), (dim, stride));
            stride *= dim as isize;
        }
        let mut start = 0;
        for (dim, stride) in &mut axes {
            match random.below(6) {
                0 => {
                    start += (*dim as isize - 1) * *stride;
                    *stride = -*stride;
                }
                1 => *dim = 1 + random.below(*dim),
                2 => *stride = 0,
                _ => {}
            }
        }
        (start, axes.iter().map(|axis| axis.1).collect(), axes.iter().map(|axis| axis.0).collect())
    }

    #[test]
    fn chains_of_views_and_factors_are_what_they_say() {
        let mut random = Random(7);
        for case in 0..300 {
            let mut dims: Vec<usize> = (0..random.below(5)).map(|_| 1 + random.below(5)).collect();
            let given = random.values(dims.iter().product());
            let mut want = given.clone();
            let mut values = Values::from(given);
            for _ in 0..random.below(2 * MAX_STEPS) {
                if random.below(3) == 0 {
                    let axis = random.below(dims.len() + 1);
                    let len = dims.get(axis).copied().unwrap_or(1);
                    let factors: Vec<f64> = random.values(len).into_iter().map(|x| f64::from(x) / 3.0).collect();
                    let strides: Vec<isize> = (0..dims.len()).map(|i| isize::from(i == axis)).collect();
                    let behind: usize = dims.iter().skip(axis + 1).product();
                    for (i, x) in want.iter_mut().enumerate() {
                        *x = (f64::from(*x) * factors[i / behind % len]) as f32;
                    }
                    values = values.scaled(factors, &strides, &dims);
                } else {
                    let (start, strides, to) = random_view(&mut random, &dims);
                    want = gold(&want, start, &strides, &to);
                    values = values.view(start, &strides, &to);
                    dims = to;
                }
                if random.below(4) == 0 {
                    assert_eq!(*values, *want, "case {case}");
                }
                assert_eq!(values.len(), want.len());
            }
            assert_eq!(*values, *want, "case {case}");
        }
    }

    #[test]
    fn a_view_of_all_is_the_same() {
        let values = Values::from(vec![1.0; 24]);
        assert!(Arc::ptr_eq(&values.view(0, &[12, 7, 4, 1], &[2, 1, 3, 4]).0, &values.0));
        for (start, strides, dims) in
            [(0, [4, 1], [2, 3]), (4, [4, 1], [5, 4]), (0, [1, 6], [6, 4]), (23, [-4, -1], [6, 4])]
        {
            assert!(!Arc::ptr_eq(&values.view(start, &strides, &dims).0, &values.0));
        }
    }

    /// Nothing is computed for it; where it says so the bits are the same, and what differs in one bit is not.
    #[test]
    fn the_same_way_from_the_same_is_the_same() {
        let given = |last: f32| Values::from([vec![f32::NAN, 1.0, -3.0, 0.5, 2.0], vec![last]].concat());
        let turned = |values: &Values| values.view(0, &[1, 3], &[3, 2]);
        let scaled = |values: &Values, factor: f64| values.scaled(vec![0.5, factor, 3.0], &[1, 0], &[3, 2]);
        let (a, b, other) = (given(0.0), given(0.0), given(-0.0));
        for (values, alike, different) in [
            (a.clone(), b.clone(), other.clone()),
            (turned(&a), turned(&b), turned(&other)),
            (scaled(&turned(&a), 2.0), scaled(&turned(&b), 2.0), scaled(&turned(&b), -2.0)),
            (turned(&a), turned(&b), b.view(0, &[2, 1], &[2, 2])),
            (turned(&a), turned(&b), b.clone()),
        ] {
            assert!(values.same_as(&alike) && alike.same_as(&values));
            assert!(!values.same_as(&different) && !different.same_as(&values));
            assert!(values.0.computed.get().is_none());
        }
    }

    /// A chain as long as a file may make it ends neither in a full stack nor in a view of thousands.
    #[test]
    fn chains_are_bounded() {
        let mut values = Values::from(vec![1.0, 2.0, 3.0, 4.0]);
        for _ in 0..100_000 {
            values = values.view(0, &[1, 2], &[2, 2]);
            assert!(values.0.steps <= MAX_STEPS);
        }
        assert_eq!(*values, [1.0, 2.0, 3.0, 4.0]);
    }
}
