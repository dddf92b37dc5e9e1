//! Every operator on every engine against the gold loops.

mod random;

use ocellus_kernels::cpu::CpuEngine;
use ocellus_kernels::engine::Engine;
use ocellus_kernels::op::Op;
use ocellus_kernels::plan::Plan;
use tests::cases::{self, Case, Trial, difference, x};

/// The engines under test. The bits of all must be equal.
fn engines(plan: &Plan) -> Vec<(String, Box<dyn Engine>)> {
    [1, 2, 5]
        .into_iter()
        .map(|threads| {
            let engine = CpuEngine::new(plan.clone(), threads)
                .unwrap_or_else(|e| panic!("{:?}: {e}", plan.steps.last().map(|step| &step.op)));
            (format!("cpu, {threads} threads"), Box::new(engine) as Box<dyn Engine>)
        })
        .collect()
}

/// The CPU engine with several numbers of threads.
fn trial() -> Trial<'static> {
    Trial { engines: &engines, rounded: |v| v, too_large: f64::INFINITY, tolerance: |tolerance| tolerance }
}

fn check(cases: &[Case]) {
    trial().check(cases);
}

macro_rules! test_each {
    ($($family:ident)*) => {
        $(#[test]
        fn $family() {
            check(&cases::$family());
        })*
    };
}
tests::with_families!(test_each);

/// The comparison itself must see what it is there for.
#[test]
fn differences_are_seen() {
    assert_eq!(difference(&[1.0, 2.0], &[1.0, 2.0], 0.0), None);
    assert_eq!(difference(&[f32::NAN], &[f64::NAN], 0.0), None);
    for (y, want) in
        [(&[1.0f32][..], &[1.1f64][..]), (&[f32::NAN], &[1.0]), (&[1.0], &[f64::NAN]), (&[1.0], &[1.0, 1.0])]
    {
        assert!(difference(y, want, 1e-3).is_some(), "{y:?} {want:?}");
    }
    assert!(difference(&[f32::INFINITY, 1.0], &[1.0, 1.0], 1e-3).is_some());
    let case = Case::new(Op::Reshape, &[x(&[2, 3])], &[2, 3], 0.0);
    assert_eq!(case.faults(0, &trial()), Vec::<String>::new());
}
