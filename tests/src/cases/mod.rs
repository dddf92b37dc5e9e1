//! Cases of every operator: descriptions and random operands, for all engines alike.

mod table;

use std::sync::Arc;

use ocellus_kernels::engine::Engine;
use ocellus_kernels::op::Op;
use ocellus_kernels::plan::{Buffer, Constant, Operand, Plan, Port, Step};
use ocellus_kernels::tensor::DType;

use crate::Random;
use crate::gold::{self, Tensor};
pub use table::*;

/// Calls a macro with the names of all families of operators, each a function of [`cases`](crate::cases) that gives its cases.
#[macro_export]
macro_rules! with_families {
    ($macro:ident) => {
        $macro! {
            convolutions transposed_convolutions matrix_products pools reductions unary_functions binary_functions normalisations
            resizes movements conversions
        }
    };
}

macro_rules! table {
    ($($family:ident)*) => {
        /// All families of operators.
        pub const FAMILIES: &[fn() -> Vec<Case>] = &[$($family),*];
    };
}
with_families!(table);

/// Images that a case is run with.
pub const IMAGES: usize = 3;

/// Elements that every tensor's place is a multiple of, as in an imported network.
const ALIGNMENT: usize = 16;

/// An operand of a case: numbers drawn from `low..high`, cut to whole numbers or not.
#[derive(Clone, Debug)]
pub struct Input {
    /// Dimensions for one image.
    pub dims: Vec<usize>,
    /// Smallest number.
    pub low: f32,
    /// Largest number.
    pub high: f32,
    /// Whole numbers only.
    pub whole: bool,
    /// A weight, the same for all images.
    pub constant: bool,
}

/// An activation in -1..1.
pub fn x(dims: &[usize]) -> Input {
    Input { dims: dims.to_vec(), low: -1.0, high: 1.0, whole: false, constant: false }
}

/// A weight in -1..1.
pub fn w(dims: &[usize]) -> Input {
    Input { constant: true, ..x(dims) }
}

impl Input {
    /// Other bounds.
    pub fn from(self, low: f32, high: f32) -> Self {
        Self { low, high, ..self }
    }

    /// Whole numbers.
    pub fn whole(self) -> Self {
        Self { whole: true, ..self }
    }

    /// Random numbers for several images.
    pub fn draw(&self, random: &mut Random, images: usize) -> Vec<f32> {
        let n = self.dims.iter().product::<usize>() * images;
        let number = |v: f32| if self.whole { v.round() } else { v };
        (0..n).map(|_| number(random.uniform(self.low, self.high))).collect()
    }
}

/// One operator with operands for one image.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it does.
    pub op: Op,
    /// Operands.
    pub inputs: Vec<Input>,
    /// Dimensions of the result for one image.
    pub output: Vec<usize>,
    /// Largest error, relative to the element's and the tensor's magnitude.
    pub tolerance: f64,
    /// The first dimension of output and activations is N, and may be larger.
    pub batched: bool,
}

impl Case {
    /// A case whose first dimension is N.
    pub fn new(op: Op, inputs: &[Input], output: &[usize], tolerance: f64) -> Self {
        Self { op, inputs: inputs.to_vec(), output: output.to_vec(), tolerance, batched: true }
    }

    /// A case whose first dimension is not N.
    pub fn fixed(self) -> Self {
        Self { batched: false, ..self }
    }

    /// The same operator for several images.
    pub fn batch(&self, images: usize) -> Self {
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

    /// A plan of this one step behind another, which copies the last input to where the output will be: NaN, so that what
    /// the operator does not write shows.
    pub fn plan(&self, constants: &[Option<Vec<f32>>]) -> Plan {
        let mut arena_len = 0;
        let mut place = |dims: &[usize]| {
            let buffer = Buffer { offset: arena_len, dims: dims.to_vec() };
            arena_len = (arena_len + buffer.len() + 5).next_multiple_of(ALIGNMENT);
            buffer
        };
        let port =
            |buffer: &Buffer| Port { name: "port".into(), dtype: DType::F32, layout: None, buffer: buffer.clone() };
        // The output between the operands: the engine has to look on both sides.
        let mut output = None;
        let mut inputs = Vec::new();
        for (i, (input, constant)) in self.inputs.iter().zip(constants).enumerate() {
            inputs.push(match constant {
                Some(data) => {
                    Operand::Constant(Arc::new(Constant { dims: input.dims.clone(), data: data.clone().into() }))
                }
                None => Operand::Buffer(place(&input.dims)),
            });
            if i == 0 {
                output = Some(place(&self.output));
            }
        }
        let (output, poison) = (output.unwrap(), place(&self.output));
        let mut ports: Vec<Port> = inputs
            .iter()
            .filter_map(|input| if let Operand::Buffer(buffer) = input { Some(port(buffer)) } else { None })
            .collect();
        ports.push(port(&poison));
        // A conversion, whose result is as wide as any.
        let spoil = Op::Cast { integer_range: None };
        let step = |op: &Op, inputs| Step { name: "step".into(), op: op.clone(), inputs, output: output.clone() };
        Plan {
            batch: 1,
            divisible: true,
            inputs: ports,
            outputs: vec![port(&output)],
            steps: vec![step(&spoil, vec![Operand::Buffer(poison)]), step(&self.op, inputs)],
            arena_len,
        }
    }

    /// What is wrong with any engine, a line each: results too far from gold, elements not written, bits that differ
    /// between engines or hang on the batch.
    pub fn faults(&self, seed: u64, trial: &Trial<'_>) -> Vec<String> {
        let mut random = Random::new(seed);
        let mut draw = |input: &Input| {
            let data = input.draw(&mut random, if input.constant { 1 } else { IMAGES });
            data.into_iter().map(trial.rounded).collect()
        };
        let data: Vec<Vec<f32>> = self.inputs.iter().map(&mut draw).collect();
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
        let within = |v: f64| if v.abs() < trial.too_large { v } else { v * f64::INFINITY };
        let want: Vec<f64> = want.into_iter().flat_map(|y| y.data).map(within).collect();
        let mut bits: Option<Vec<u32>> = None;
        let mut check = |name: String, y: &[f32], faults: &mut Vec<String>| {
            let now: Vec<u32> = y.iter().map(|v| v.to_bits()).collect();
            let first = bits.get_or_insert_with(|| now.clone());
            if *first != now {
                faults.push(format!("{name}: other bits"));
            }
            let tolerance = (trial.tolerance)(self.tolerance);
            faults.extend(difference(y, &want, tolerance).map(|fault| format!("{name}: {fault}")));
        };
        let run = |case: &Self, runs: usize, check: &mut dyn FnMut(String, &[f32])| {
            let constants: Vec<_> =
                case.inputs.iter().zip(&data).map(|(input, data)| input.constant.then(|| data.clone())).collect();
            let poison = vec![f32::NAN; want.len()];
            let variables = case.inputs.iter().zip(&data).filter(|(input, _)| !input.constant);
            let inputs: Vec<&[f32]> = variables.map(|(_, data)| &data[..]).chain([&poison[..]]).collect();
            for (name, mut engine) in (trial.engines)(&case.plan(&constants)) {
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

/// Makes the engines under test for a plan, with their names.
pub type Engines<'a> = dyn Fn(&Plan) -> Vec<(String, Box<dyn Engine>)> + 'a;

/// What cases are run with.
pub struct Trial<'a> {
    /// The engines under test. The bits of all must be equal.
    pub engines: &'a Engines<'a>,
    /// Applied to every operand, for the gold loops as well: rounding to what an engine computes with.
    pub rounded: fn(f32) -> f32,
    /// The smallest number that rounds to infinity in the engines' type.
    pub too_large: f64,
    /// From a case's tolerance to the one that holds; 0 for operators that are exact.
    pub tolerance: fn(f64) -> f64,
}

impl Trial<'_> {
    /// Fails with every fault of every case.
    pub fn check(&self, cases: &[Case]) {
        let mut report = Vec::new();
        let mut bad = 0;
        for (i, case) in cases.iter().enumerate() {
            let faults = case.faults(i as u64, self);
            if !faults.is_empty() {
                bad += 1;
                let dims: Vec<_> = case.inputs.iter().map(|input| &input.dims).collect();
                report.push(format!("{:?}, {dims:?} to {:?}:\n    {}", case.op, case.output, faults.join("\n    ")));
            }
        }
        assert!(report.is_empty(), "{bad} of {} cases:\n{}", cases.len(), report.join("\n"));
    }
}

/// The worst element of `y`, where that is too far from `want`: further than `tolerance` times the sum of its own and the
/// tensor's magnitude.
pub fn difference(y: &[f32], want: &[f64], tolerance: f64) -> Option<String> {
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
