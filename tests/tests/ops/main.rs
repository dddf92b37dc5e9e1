//! Every operator on every engine against the gold loops.

mod cases;
mod random;

use std::sync::Arc;

use ocellus_kernels::cpu::CpuEngine;
use ocellus_kernels::engine::Engine;
use ocellus_kernels::op::Op;
use ocellus_kernels::plan::{Buffer, Constant, Operand, Plan, Port, Step};
use ocellus_kernels::tensor::DType;
use tests::Random;
use tests::gold::{self, Tensor};

/// The engines under test. The bits of all must be equal.
fn engines(plan: &Plan) -> Vec<(String, Box<dyn Engine>)> {
    [1, 2, 5]
        .into_iter()
        .map(|threads| {
            let engine =
                CpuEngine::new(plan.clone(), threads).unwrap_or_else(|e| panic!("{:?}: {e}", plan.steps[0].op));
            (format!("cpu, {threads} threads"), Box::new(engine) as Box<dyn Engine>)
        })
        .collect()
}

/// Images that a case is run with.
const IMAGES: usize = 3;

/// An operand of a case: numbers drawn from `low..high`, cut to whole numbers or not.
#[derive(Clone, Debug)]
struct Input {
    dims: Vec<usize>,
    low: f32,
    high: f32,
    whole: bool,
    constant: bool,
}

/// An activation in -1..1.
fn x(dims: &[usize]) -> Input {
    Input { dims: dims.to_vec(), low: -1.0, high: 1.0, whole: false, constant: false }
}

/// A weight in -1..1.
fn w(dims: &[usize]) -> Input {
    Input { constant: true, ..x(dims) }
}

impl Input {
    fn from(self, low: f32, high: f32) -> Self {
        Self { low, high, ..self }
    }

    fn whole(self) -> Self {
        Self { whole: true, ..self }
    }

    fn draw(&self, random: &mut Random, images: usize) -> Vec<f32> {
        let n = self.dims.iter().product::<usize>() * images;
        let number = |v: f32| if self.whole { v.round() } else { v };
        (0..n).map(|_| number(random.uniform(self.low, self.high))).collect()
    }
}

/// One operator with operands for one image.
#[derive(Clone, Debug)]
struct Case {
    op: Op,
    inputs: Vec<Input>,
    output: Vec<usize>,
    /// Largest error, relative to the element's and the tensor's magnitude.
    tolerance: f64,
    /// The first dimension of output and activations is N, and may be larger.
    batched: bool,
}

impl Case {
    fn new(op: Op, inputs: &[Input], output: &[usize], tolerance: f64) -> Self {
        Self { op, inputs: inputs.to_vec(), output: output.to_vec(), tolerance, batched: true }
    }

    /// A case whose first dimension is not N.
    fn fixed(self) -> Self {
        Self { batched: false, ..self }
    }

    /// The same operator for several images.
    fn batch(&self, images: usize) -> Self {
        let mut case = self.clone();
        match &mut case.op {
            Op::Conv(d) => d.n *= images,
            Op::ConvTranspose(d) => d.0.n *= images,
            Op::Gemm(d) => d.m *= images,
            Op::MatMul(d) => {
                let [a, b] = [0, 1].map(|i| !self.inputs[i].constant);
                let batch = d.batch_a.max(d.batch_b) * images;
                d.batch_a = if a { batch } else { d.batch_a };
                d.batch_b = if b { batch } else { d.batch_b };
            }
            Op::Pool(d) => d.n *= images,
            Op::Resize(d) => d.n *= images,
            _ => {}
        }
        case.output[0] *= images;
        case.inputs.iter_mut().filter(|input| !input.constant).for_each(|input| input.dims[0] *= images);
        case
    }

    /// A plan of this one step. Its last input, meant to be NaN, lies where the output will: what the operator does not
    /// write stays NaN.
    fn plan(&self, constants: &[Option<Vec<f32>>]) -> Plan {
        let mut arena_len = 3;
        let mut place = |dims: &[usize]| {
            let buffer = Buffer { offset: arena_len, dims: dims.to_vec() };
            arena_len += buffer.len() + 5;
            buffer
        };
        let port =
            |buffer: &Buffer| Port { name: "port".into(), dtype: DType::F32, layout: None, buffer: buffer.clone() };
        // The output between the operands: the engine has to look on both sides.
        let mut output = None;
        let mut inputs = Vec::new();
        for (i, (input, constant)) in self.inputs.iter().zip(constants).enumerate() {
            inputs.push(match constant {
                Some(data) => Operand::Constant(Arc::new(Constant { dims: input.dims.clone(), data: data.clone() })),
                None => Operand::Buffer(place(&input.dims)),
            });
            if i == 0 {
                output = Some(place(&self.output));
            }
        }
        let output = output.unwrap();
        let mut ports: Vec<Port> = inputs
            .iter()
            .filter_map(|input| if let Operand::Buffer(buffer) = input { Some(port(buffer)) } else { None })
            .collect();
        ports.push(port(&output));
        Plan {
            batch: 1,
            divisible: true,
            inputs: ports,
            outputs: vec![port(&output)],
            steps: vec![Step { name: "step".into(), op: self.op.clone(), inputs, output }],
            arena_len,
        }
    }

    /// What is wrong with any engine, a line each.
    fn faults(&self, seed: u64) -> Vec<String> {
        let mut random = Random::new(seed);
        let data: Vec<Vec<f32>> =
            self.inputs.iter().map(|input| input.draw(&mut random, if input.constant { 1 } else { IMAGES })).collect();
        let mut faults = Vec::new();
        let want: Vec<Tensor> = (0..IMAGES)
            .map(|image| {
                let own = |(input, data): (&Input, &Vec<f32>)| {
                    let len = input.dims.iter().product::<usize>();
                    Tensor::new(&input.dims, &data[if input.constant { 0 } else { image * len }..][..len])
                };
                gold::run(&self.op, &self.inputs.iter().zip(&data).map(own).collect::<Vec<_>>(), &self.output)
            })
            .collect();
        let want: Vec<f64> = want.into_iter().flat_map(|y| y.data).collect();
        let mut bits: Option<Vec<u32>> = None;
        let mut check = |name: String, y: &[f32], faults: &mut Vec<String>| {
            let now: Vec<u32> = y.iter().map(|v| v.to_bits()).collect();
            let first = bits.get_or_insert_with(|| now.clone());
            if *first != now {
                faults.push(format!("{name}: other bits"));
            }
            faults.extend(difference(y, &want, self.tolerance).map(|fault| format!("{name}: {fault}")));
        };
        let run = |case: &Self, runs: usize, check: &mut dyn FnMut(String, &[f32])| {
            let constants: Vec<_> =
                case.inputs.iter().zip(&data).map(|(input, data)| input.constant.then(|| data.clone())).collect();
            let poison = vec![f32::NAN; want.len()];
            let variables = case.inputs.iter().zip(&data).filter(|(input, _)| !input.constant);
            let inputs: Vec<&[f32]> = variables.map(|(_, data)| &data[..]).chain([&poison[..]]).collect();
            for (name, mut engine) in engines(&case.plan(&constants)) {
                let mut outputs = vec![vec![f32::NAN; 7]];
                match engine.run(runs, &inputs, &mut outputs) {
                    Ok(()) => check(format!("{name}, {runs} runs"), &outputs[0]),
                    Err(e) => check(format!("{name}: {e}"), &[]),
                }
            }
        };
        run(self, IMAGES, &mut |name, y| check(name, y, &mut faults));
        if self.batched {
            run(&self.batch(IMAGES), 1, &mut |name, y| check(name, y, &mut faults));
        }
        faults
    }
}

/// The worst element of `y`, where that is too far from `want`.
fn difference(y: &[f32], want: &[f64], tolerance: f64) -> Option<String> {
    if y.len() != want.len() {
        return Some(format!("{} elements instead of {}", y.len(), want.len()));
    }
    let finite = want.iter().filter(|v| v.is_finite());
    let rms = (finite.map(|v| v * v).sum::<f64>() / want.len() as f64).sqrt();
    let error = |(&y, &want): (&f32, &f64)| {
        if f64::from(y) == want || (y.is_nan() && want.is_nan()) {
            0.0
        } else {
            let error = (f64::from(y) - want).abs() / (want.abs() + rms);
            if error.is_nan() { f64::INFINITY } else { error }
        }
    };
    let (at, worst) = y.iter().zip(want).map(error).enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (worst > tolerance).then(|| format!("element {at} is {} instead of {}, error {worst:.1e}", y[at], want[at]))
}

/// Fails with every fault of every case.
fn check(cases: &[Case]) {
    let mut report = Vec::new();
    let mut bad = 0;
    for (i, case) in cases.iter().enumerate() {
        let faults = case.faults(i as u64);
        if !faults.is_empty() {
            bad += 1;
            let dims: Vec<_> = case.inputs.iter().map(|input| &input.dims).collect();
            report.push(format!("{:?}, {dims:?} to {:?}:\n    {}", case.op, case.output, faults.join("\n    ")));
        }
    }
    assert!(report.is_empty(), "{bad} of {} cases:\n{}", cases.len(), report.join("\n"));
}

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
    assert_eq!(case.faults(0), Vec::<String>::new());
}
