//! Every operator on the GPU against the gold loops, in fp32, fp16 and bf16.

use std::sync::Arc;

use half::{bf16, f16};
use ocellus_kernels::cuda::lower::Precision;
use ocellus_kernels::engine::Engine;
use ocellus_kernels::op::{BinaryKind, Op};
use ocellus_kernels::plan::{Buffer, Constant, Operand, Plan, Port, Step};
use ocellus_kernels::tensor::DType;
use tests::cases::{self, Case, Trial};
use tests::gpu::{engine, gpu};

/// Cases of a family, about: each costs the compiler one or two kernels.
const CASES: usize = 24;

/// Largest errors, relative to an element's and its tensor's magnitude: rounding of the result and of short sums.
fn tolerance(precision: Precision) -> fn(f64) -> f64 {
    // What only moves elements is exact in any type.
    match precision {
        Precision::Fp32 => |cpu| if cpu == 0.0 { 0.0 } else { 1e-5 },
        Precision::Tf32 => |cpu| if cpu == 0.0 { 0.0 } else { 1e-3 },
        Precision::Fp16 => |cpu| if cpu == 0.0 { 0.0 } else { 1e-3 },
        Precision::Bf16 => |cpu| if cpu == 0.0 { 0.0 } else { 8e-3 },
    }
}

fn rounded(precision: Precision) -> fn(f32) -> f32 {
    match precision {
        Precision::Fp32 | Precision::Tf32 => |v| v,
        Precision::Fp16 => |v| f16::from_f32(v).to_f32(),
        Precision::Bf16 => |v| bf16::from_f32(v).to_f32(),
    }
}

/// Runs a part of the cases in each precision. The cases of a table differ in several parameters that come again and
/// again; a prime step meets every value of each.
fn check(cases: &[Case]) {
    let Some(gpu) = gpu() else { return };
    let prime = |n: &usize| (2..*n).all(|i| !n.is_multiple_of(i));
    let step = (1..=cases.len()).filter(prime).find(|step| cases.len() / step <= CASES).unwrap_or(1);
    for (first, precision) in [Precision::Fp32, Precision::Fp16, Precision::Bf16].into_iter().enumerate() {
        let engines = |plan: &Plan| {
            let plan = plan.clone();
            let engine = engine(gpu, precision, true, &[1], move |_| plan.clone());
            vec![(format!("{precision:?}"), Box::new(engine) as Box<dyn Engine>)]
        };
        let some: Vec<Case> = cases.iter().skip(first).step_by(step).cloned().collect();
        // Halfway from the largest binary16 number to the next there would be; the other types reach further than any case.
        let too_large = if precision == Precision::Fp16 { 65520.0 } else { f64::INFINITY };
        let (rounded, tolerance) = (rounded(precision), tolerance(precision));
        Trial { engines: &engines, rounded, too_large, tolerance }.check(&some);
    }
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

/// Indices are wider than the activations: what only moves them keeps every digit, and arithmetic takes both.
#[test]
fn whole_numbers_stay_exact() {
    const LEN: usize = 5000;
    const AT: usize = 4777;
    let Some(gpu) = gpu() else { return };
    let buffer = |offset: usize, dims: &[usize]| Buffer { offset, dims: dims.to_vec() };
    let [x, index, pair, small] =
        [buffer(0, &[1, LEN]), buffer(5008, &[1, 1]), buffer(5024, &[1, 2]), buffer(5040, &[1, 2])];
    let step = |op: Op, inputs: Vec<Operand>, output: &Buffer| Step {
        name: "step".into(),
        op,
        inputs,
        output: output.clone(),
    };
    let port = |buffer: &Buffer| Port { name: "port".into(), dtype: DType::F32, layout: None, buffer: buffer.clone() };
    let read = |buffer: &Buffer| Operand::Buffer(buffer.clone());
    let most = Operand::Constant(Arc::new(Constant { dims: vec![1], data: vec![4776.0].into() }));
    let less = Op::Binary { kind: BinaryKind::Sub, activation: None };
    let plan = Plan {
        batch: 1,
        divisible: true,
        inputs: vec![port(&x)],
        outputs: vec![port(&pair), port(&small)],
        steps: vec![
            step(Op::ArgMax { axis: 1, select_last: false }, vec![read(&x)], &index),
            step(Op::Concat { axis: 1 }, vec![read(&index), read(&index)], &pair),
            step(less, vec![read(&pair), most], &small),
        ],
        arena_len: 5056,
    };
    let mut values = vec![0.0; LEN];
    values[AT] = 1.0;
    for precision in [Precision::Fp32, Precision::Fp16, Precision::Bf16] {
        let plan = plan.clone();
        let mut engine = engine(gpu, precision, true, &[1], move |_| plan.clone());
        let mut outputs = vec![Vec::new(); 2];
        engine.run(1, &[&values], &mut outputs).unwrap();
        assert_eq!(outputs, [[AT as f32; 2], [1.0; 2]], "{precision:?}");
    }
}

/// A network that computes nonsense must be noticed at its end, so no function may make a number of what is none.
#[test]
fn what_is_no_number_stays_none() {
    let Some(gpu) = gpu() else { return };
    for case in cases::unary_functions().iter().filter(|case| case.output[1] == 7) {
        for precision in [Precision::Fp32, Precision::Fp16] {
            let plan = case.plan(&vec![None; case.inputs.len()]);
            let none: Vec<Vec<f32>> = plan.inputs.iter().map(|port| vec![f32::NAN; port.buffer.len()]).collect();
            let inputs: Vec<&[f32]> = none.iter().map(Vec::as_slice).collect();
            let mut y = vec![Vec::new()];
            let mut engine = engine(gpu, precision, true, &[1], move |_| plan.clone());
            engine.run(1, &inputs, &mut y).unwrap();
            assert!(y[0].iter().all(|v| v.is_nan()), "{:?} in {precision:?}: {:?}", case.op, &y[0][..4]);
        }
    }
}
