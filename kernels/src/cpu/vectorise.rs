//! Plain loops compiled for the CPU at hand, and the folds that let them be.
//!
//! The crate is built for the baseline of its target. [`vectorised`] compiles its closure for AVX2 with FMA and for
//! AVX-512 as well and picks one when called. Rust never reorders or contracts floating-point operations, so every
//! version gives the same bits.

/// Runs `f`, compiled for the widest vectors that this CPU has. Everything `f` calls must be inlined into it.
#[inline(always)]
pub(super) fn vectorised<R>(f: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(f)
}

/// Independent accumulators of a fold; a fixed number keeps the bits the same on every CPU.
pub(super) const LANES: usize = 32;

/// Elements that are added up in single precision before their sum goes into the total: bounds the rounding error.
const SUM_BLOCK: usize = 64 * LANES;

/// `f(v)` over `values`, combined by an associative `op` in an order that depends on nothing but their number.
#[inline(always)]
pub(super) fn fold(values: &[f32], identity: f32, f: impl Fn(f32) -> f32, op: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [identity; LANES];
    let (blocks, tail) = values.as_chunks::<LANES>();
    for block in blocks {
        for (lane, &v) in lanes.iter_mut().zip(block) {
            *lane = op(*lane, f(v));
        }
    }
    for (lane, &v) in lanes.iter_mut().zip(tail) {
        *lane = op(*lane, f(v));
    }
    lanes.into_iter().fold(identity, op)
}

/// Sum of `f(v)` over `values`.
#[inline(always)]
pub(super) fn sum_of(values: &[f32], f: impl Fn(f32) -> f32) -> f64 {
    values.chunks(SUM_BLOCK).map(|block| f64::from(fold(block, 0.0, &f, |a, b| a + b))).sum()
}

/// Takes a row into the accumulators: acc[i] = op(acc[i], row[i]).
#[inline(always)]
pub(super) fn fold_row(acc: &mut [f32], row: &[f32], op: impl Fn(f32, f32) -> f32) {
    for (acc, &v) in acc.iter_mut().zip(row) {
        *acc = op(*acc, v);
    }
}

/// The larger of both; NaN if either is.
#[inline(always)]
pub(super) fn max(a: f32, b: f32) -> f32 {
    // Two selections, no short-circuit: a maximum and a blend in vector code. Only `b` is asked for NaN, so that a chain of
    // calls whose `a` is the result so far does not wait for the question.
    let larger = if b > a { b } else { a };
    if b.is_nan() { b } else { larger }
}

/// The smaller of both; NaN if either is.
#[inline(always)]
pub(super) fn min(a: f32, b: f32) -> f32 {
    let smaller = if b < a { b } else { a };
    if b.is_nan() { b } else { smaller }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_cover_every_length() {
        for len in 0..200usize {
            let values: Vec<f32> = (0..len).map(|i| ((i * 37) % 101) as f32 - 50.0).collect();
            let want = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(fold(&values, f32::NEG_INFINITY, |v| v, max), want, "max of {len}");
            let want: f32 = values.iter().sum();
            assert_eq!(sum_of(&values, |v| v), f64::from(want), "sum of {len}");
            let want: f32 = values.iter().map(|v| (v + 3.0) * v).sum();
            assert_eq!(sum_of(&values, |v| (v + 3.0) * v), f64::from(want), "mapped sum of {len}");
        }
    }

    #[test]
    fn long_sums_stay_accurate() {
        let values = vec![0.1f32; 1 << 22];
        let want = f64::from(0.1f32) * values.len() as f64;
        assert!((sum_of(&values, |v| v) / want - 1.0).abs() < 1e-6);
    }

    #[test]
    fn extremes_keep_nan() {
        for f in [min, max] {
            assert!(f(f32::NAN, 1.0).is_nan());
            assert!(f(1.0, f32::NAN).is_nan());
            assert_eq!(f(2.0, 2.0), 2.0);
        }
        assert_eq!((min(1.0, 2.0), max(1.0, 2.0)), (1.0, 2.0));
    }
}
