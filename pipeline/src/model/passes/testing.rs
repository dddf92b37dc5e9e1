//! For the passes' tests: a builder of small graphs and plain loops in f64 that run them in either axis order.

use std::sync::Arc;

use ocellus_kernels::op::{BinaryKind, Conv, Epilogue, Gemm, Op, PadMode, Pool, PoolKind, ReduceKind, Unary};
use ocellus_kernels::plan::Constant;
use ocellus_kernels::tensor::{DType, elements};

use crate::model::graph::{Graph, Node, Value, ValueId};

/// Seeded pseudo-random numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0..n.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// -1..1.
    pub(crate) fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub(crate) fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }
}

/// Builds a graph in the file's order.
pub(crate) struct Builder {
    pub(crate) graph: Graph,
    pub(crate) random: Random,
}

impl Builder {
    pub(crate) fn new(seed: u64) -> Self {
        let graph = Graph {
            values: Vec::new(),
            nodes: Vec::new(),
            inputs: Vec::new(),
            input_layouts: Vec::new(),
            outputs: Vec::new(),
            batch: 2,
            dynamic_batch: true,
        };
        Self { graph, random: Random(seed) }
    }

    pub(crate) fn value(&mut self, name: &str, dims: &[usize], constant: Option<Vec<f32>>) -> ValueId {
        let constant = constant.map(|data| Arc::new(Constant { dims: dims.to_vec(), data: data.into() }));
        self.graph.add(Value { name: name.into(), dims: dims.to_vec(), dtype: DType::F32, constant })
    }

    pub(crate) fn input(&mut self, dims: &[usize]) -> ValueId {
        let id = self.value(&format!("input{}", self.graph.inputs.len()), dims, None);
        self.graph.inputs.push(id);
        self.graph.input_layouts.push(None);
        id
    }

    /// A constant of random elements.
    pub(crate) fn weights(&mut self, dims: &[usize]) -> ValueId {
        let data = self.random.floats(elements(dims));
        self.value("weights", dims, Some(data))
    }

    pub(crate) fn scalar(&mut self, x: f32) -> ValueId {
        self.value("scalar", &[1], Some(vec![x]))
    }

    pub(crate) fn node(&mut self, op: Op, inputs: &[ValueId], dims: &[usize]) -> ValueId {
        let name = format!("{}{}", op.name(), self.graph.nodes.len());
        let output = self.value(&format!("{name}.out"), dims, None);
        self.graph.nodes.push(Node { name, op, inputs: inputs.to_vec(), output, fused: Vec::new() });
        output
    }

    pub(crate) fn unary(&mut self, function: Unary, x: ValueId) -> ValueId {
        let dims = self.graph.dims(x).to_vec();
        self.node(Op::Unary(function), &[x], &dims)
    }

    pub(crate) fn binary(&mut self, kind: BinaryKind, a: ValueId, b: ValueId) -> ValueId {
        let dims = broadcast(self.graph.dims(a), self.graph.dims(b));
        self.node(Op::Binary { kind, activation: None }, &[a, b], &dims)
    }

    pub(crate) fn transpose(&mut self, x: ValueId, perm: &[usize]) -> ValueId {
        let dims: Vec<_> = perm.iter().map(|&axis| self.graph.dims(x)[axis]).collect();
        self.node(Op::Transpose { perm: perm.to_vec() }, &[x], &dims)
    }

    pub(crate) fn reshape(&mut self, x: ValueId, dims: &[usize]) -> ValueId {
        self.node(Op::Reshape, &[x], dims)
    }

    /// Convolution with a square kernel and random weights; "same" padding for odd kernels where `padded`.
    pub(crate) fn conv(&mut self, x: ValueId, k: usize, kernel: usize, groups: usize, padded: bool) -> ValueId {
        let &[n, c, h, w] = self.graph.dims(x) else { panic!("four axes") };
        let pad = if padded { kernel / 2 } else { 0 };
        let (p, q) = (h + 2 * pad + 1 - kernel, w + 2 * pad + 1 - kernel);
        let weights = self.weights(&[k, c / groups, kernel, kernel]);
        let desc = Conv {
            n,
            h,
            w,
            c,
            k,
            r: kernel,
            s: kernel,
            p,
            q,
            stride: [1; 2],
            pad: [pad; 2],
            dilation: [1; 2],
            groups,
            epilogue: Epilogue::default(),
        };
        self.node(Op::Conv(desc), &[x, weights], &[n, k, p, q])
    }

    pub(crate) fn gemm(&mut self, x: ValueId, n: usize) -> ValueId {
        let dims = self.graph.dims(x).to_vec();
        let k = dims[dims.len() - 1];
        let rows = &dims[..dims.len() - 1];
        let weights = self.weights(&[n, k]);
        let desc = Gemm { m: elements(rows), n, k, epilogue: Epilogue::default() };
        self.node(Op::Gemm(desc), &[x, weights], &[rows, &[n]].concat())
    }

    pub(crate) fn pool(&mut self, kind: PoolKind, x: ValueId, window: usize, pad: usize) -> ValueId {
        let &[n, c, h, w] = self.graph.dims(x) else { panic!("four axes") };
        let (p, q) = (h + 2 * pad + 1 - window, w + 2 * pad + 1 - window);
        let (stride, dilation) = ([1; 2], [1; 2]);
        let desc = Pool { kind, n, h, w, c, r: window, s: window, p, q, stride, pad: [pad; 4], dilation };
        self.node(Op::Pool(desc), &[x], &[n, c, p, q])
    }

    pub(crate) fn pad(&mut self, x: ValueId, before: &[usize], after: &[usize], fill: f32) -> ValueId {
        let dims: Vec<_> = self.graph.dims(x).iter().zip(before).zip(after).map(|((d, b), a)| d + b + a).collect();
        self.node(Op::Pad { before: before.to_vec(), mode: PadMode::Constant(fill) }, &[x], &dims)
    }

    pub(crate) fn build(mut self, outputs: &[ValueId]) -> Graph {
        self.graph.outputs = outputs.to_vec();
        self.graph
    }
}

fn broadcast(a: &[usize], b: &[usize]) -> Vec<usize> {
    let rank = a.len().max(b.len());
    let dim = |dims: &[usize], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |at| dims[at]);
    (0..rank).map(|i| dim(a, i).max(dim(b, i))).collect()
}

/// A tensor of the loops below.
struct Dense {
    dims: Vec<usize>,
    data: Vec<f64>,
}

impl Dense {
    /// The element at an index, which is broadcast: axes are aligned at the end, an axis of length 1 repeats.
    fn at(&self, index: &[usize]) -> f64 {
        let ahead = index.len() - self.dims.len();
        let flat =
            self.dims.iter().zip(&index[ahead..]).fold(0, |flat, (&d, &i)| flat * d + if d == 1 { 0 } else { i });
        self.data[flat]
    }
}

/// Every index of a shape in row-major order.
fn indices(dims: &[usize]) -> impl Iterator<Item = Vec<usize>> + '_ {
    (0..elements(dims)).map(move |mut flat| {
        let mut index = vec![0; dims.len()];
        for axis in (0..dims.len()).rev() {
            index[axis] = flat % dims[axis];
            flat /= dims[axis];
        }
        index
    })
}

/// Runs a graph; `channels_last` says in which order its image operators work. The outputs' elements.
pub(crate) fn interpret(graph: &Graph, inputs: &[Vec<f32>], channels_last: bool) -> Vec<Vec<f64>> {
    let wide = |data: &[f32]| data.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    let mut values: Vec<Option<Dense>> = graph
        .values
        .iter()
        .map(|v| v.constant.as_ref().map(|c| Dense { dims: v.dims.clone(), data: wide(&c.data) }))
        .collect();
    for (id, data) in graph.inputs.iter().zip(inputs) {
        assert_eq!(data.len(), elements(graph.dims(*id)));
        values[id.0] = Some(Dense { dims: graph.dims(*id).to_vec(), data: wide(data) });
    }
    for node in &graph.nodes {
        let operands: Vec<&Dense> =
            node.inputs.iter().map(|id| values[id.0].as_ref().expect("topological order")).collect();
        let dims = graph.dims(node.output);
        let data = run(&node.op, &operands, dims, channels_last);
        assert_eq!(data.len(), elements(dims), "{}", node.name);
        values[node.output.0] = Some(Dense { dims: dims.to_vec(), data });
    }
    graph.outputs.iter().map(|id| values[id.0].as_ref().expect("computed").data.clone()).collect()
}

/// Operators with a window or a matrix product. None for the others.
fn run_window(op: &Op, operands: &[&Dense], dims: &[usize], channels_last: bool) -> Option<Vec<f64>> {
    let x = operands[0];
    // From an index of the output to the image's n, channel, row, column, and back.
    let split = |i: &[usize]| if channels_last { (i[0], i[3], i[1], i[2]) } else { (i[0], i[1], i[2], i[3]) };
    let join = |n, c, h, w| if channels_last { [n, h, w, c] } else { [n, c, h, w] };
    let each = |f: &mut dyn FnMut(&[usize]) -> f64| indices(dims).map(|i| f(&i)).collect::<Vec<_>>();
    let with = |epilogue: &Epilogue, index: &[usize], channel: usize, mut sum: f64| {
        if epilogue.bias {
            sum += operands[2].data[channel];
        }
        if epilogue.residual {
            sum += operands[2 + usize::from(epilogue.bias)].at(index);
        }
        epilogue.activation.map_or(sum, |f| unary(f, sum))
    };
    Some(match op {
        Op::Conv(d) => each(&mut |i| {
            let (n, k, p, q) = split(i);
            let mut sum = 0.0;
            for (r, s, c) in indices(&[d.r, d.s, d.c / d.groups]).map(|i| (i[0], i[1], i[2])) {
                let (h, w) = (p * d.stride[0] + r * d.dilation[0], q * d.stride[1] + s * d.dilation[1]);
                let (Some(h), Some(w)) = (h.checked_sub(d.pad[0]), w.checked_sub(d.pad[1])) else { continue };
                if h < d.h && w < d.w {
                    let channel = k / (d.k / d.groups) * (d.c / d.groups) + c;
                    sum += x.at(&join(n, channel, h, w)) * operands[1].at(&join(k, c, r, s));
                }
            }
            with(&d.epilogue, i, k, sum)
        }),
        Op::Gemm(d) => each(&mut |i| {
            let (rows, n) = i.split_at(i.len() - 1);
            let term = |k| x.at(&[rows, &[k]].concat()) * operands[1].at(&[n[0], k]);
            with(&d.epilogue, i, n[0], (0..d.k).map(term).sum())
        }),
        Op::Pool(d) => each(&mut |i| {
            let (n, c, p, q) = split(i);
            let (mut sum, mut largest, mut inside, mut whole) = (0.0, f64::NEG_INFINITY, 0.0, 0.0);
            for (r, s) in indices(&[d.r, d.s]).map(|i| (i[0], i[1])) {
                let (h, w) = (p * d.stride[0] + r * d.dilation[0], q * d.stride[1] + s * d.dilation[1]);
                if h < d.h + d.pad[0] + d.pad[2] && w < d.w + d.pad[1] + d.pad[3] {
                    whole += 1.0;
                }
                let (Some(h), Some(w)) = (h.checked_sub(d.pad[0]), w.checked_sub(d.pad[1])) else { continue };
                if h < d.h && w < d.w {
                    let v = x.at(&join(n, c, h, w));
                    (sum, largest, inside) = (sum + v, f64::max(largest, v), inside + 1.0);
                }
            }
            match d.kind {
                PoolKind::Max => largest,
                PoolKind::Average => sum / inside,
                PoolKind::AveragePadded => sum / whole,
            }
        }),
        _ => return None,
    })
}

fn run(op: &Op, operands: &[&Dense], dims: &[usize], channels_last: bool) -> Vec<f64> {
    if let Some(data) = run_window(op, operands, dims, channels_last) {
        return data;
    }
    let x = operands[0];
    let each = |f: &mut dyn FnMut(&[usize]) -> f64| indices(dims).map(|i| f(&i)).collect::<Vec<_>>();
    match op {
        Op::Unary(f) => x.data.iter().map(|&v| unary(*f, v)).collect(),
        Op::Binary { kind, activation } => each(&mut |i| {
            let y = binary(*kind, operands[0].at(i), operands[1].at(i));
            activation.map_or(y, |f| unary(f, y))
        }),
        Op::ScaleShift { axis } => each(&mut |i| x.at(i) * operands[1].data[i[*axis]] + operands[2].data[i[*axis]]),
        Op::Reduce { kind: ReduceKind::Mean, axes } => {
            let inner: Vec<usize> = axes.iter().map(|&a| x.dims[a]).collect();
            each(&mut |i| {
                let mut at = i.to_vec();
                let sum: f64 = indices(&inner)
                    .map(|j| {
                        axes.iter().zip(&j).for_each(|(&axis, &j)| at[axis] = j);
                        x.at(&at)
                    })
                    .sum();
                sum / elements(&inner) as f64
            })
        }
        Op::Softmax { axis, log: false } => each(&mut |i| {
            let mut at = i.to_vec();
            let all: Vec<f64> = (0..x.dims[*axis])
                .map(|j| {
                    at[*axis] = j;
                    x.at(&at).exp()
                })
                .collect();
            all[i[*axis]] / all.iter().sum::<f64>()
        }),
        Op::Concat { axis } => each(&mut |i| {
            let mut at = i.to_vec();
            for operand in operands {
                if at[*axis] < operand.dims[*axis] {
                    return operand.at(&at);
                }
                at[*axis] -= operand.dims[*axis];
            }
            unreachable!("operands cover the output")
        }),
        Op::Slice { start, step } => each(&mut |i| {
            let at: Vec<usize> =
                i.iter().zip(start).zip(step).map(|((&i, &s), &d)| (s as isize + i as isize * d) as usize).collect();
            x.at(&at)
        }),
        Op::Pad { before, mode: PadMode::Constant(fill) } => each(&mut |i| {
            let at: Option<Vec<usize>> = i.iter().zip(before).map(|(i, b)| i.checked_sub(*b)).collect();
            match at {
                Some(at) if at.iter().zip(&x.dims).all(|(i, d)| i < d) => x.at(&at),
                _ => f64::from(*fill),
            }
        }),
        Op::Transpose { perm } => each(&mut |i| {
            let mut at = vec![0; perm.len()];
            perm.iter().zip(i).for_each(|(&axis, &i)| at[axis] = i);
            x.at(&at)
        }),
        Op::Reshape => x.data.clone(),
        other => panic!("the tests' loops have no {}", other.name()),
    }
}

fn binary(kind: BinaryKind, a: f64, b: f64) -> f64 {
    match kind {
        BinaryKind::Add => a + b,
        BinaryKind::Sub => a - b,
        BinaryKind::Div => a / b,
        BinaryKind::Min => a.min(b),
        BinaryKind::Max => a.max(b),
        BinaryKind::Pow => a.powf(b),
        BinaryKind::PRelu if a >= 0.0 => a,
        BinaryKind::Mul | BinaryKind::PRelu => a * b,
    }
}

fn unary(function: Unary, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match function {
        Unary::Relu => x.max(0.0),
        Unary::Clip { min, max } => x.max(min.into()).min(max.into()),
        Unary::LeakyRelu { alpha } => {
            if x >= 0.0 {
                x
            } else {
                x * f64::from(alpha)
            }
        }
        Unary::Sigmoid => sigmoid(x),
        Unary::HardSigmoid { alpha, beta } => (f64::from(alpha) * x + f64::from(beta)).clamp(0.0, 1.0),
        Unary::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        Unary::Silu => x * sigmoid(x),
        Unary::Tanh => x.tanh(),
        Unary::Gelu { tanh: false } => 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        Unary::Gelu { tanh: true } => {
            0.5 * x * (1.0 + (std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
        }
        Unary::Mish => x * x.exp().ln_1p().tanh(),
        Unary::Softplus => x.exp().ln_1p(),
        Unary::Erf => erf(x),
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        other => panic!("the tests' loops have no {other:?}"),
    }
}

/// Error function by its Taylor series, good for the |x| < 3 of these tests.
fn erf(x: f64) -> f64 {
    let (mut sum, mut term) = (x, x);
    for n in 1..60 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}
