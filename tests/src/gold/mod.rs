//! Gold: every operator as plain loops in f64, written from the operators' definitions and independent of the engines.

mod elementwise;
mod matrix;
mod movement;
pub mod resample;
mod spatial;

use ocellus_kernels::op::Op;

/// A tensor in f64, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Dimensions, outermost first.
    pub dims: Vec<usize>,
    /// Elements.
    pub data: Vec<f64>,
}

impl Tensor {
    /// The tensor whose element at each index is `f(index)`.
    pub fn from_fn(dims: &[usize], mut f: impl FnMut(&[usize]) -> f64) -> Self {
        let data = indices(dims).map(|index| f(&index)).collect();
        Self { dims: dims.to_vec(), data }
    }

    /// From single precision.
    pub fn new(dims: &[usize], data: &[f32]) -> Self {
        assert_eq!(dims.iter().product::<usize>(), data.len());
        Self { dims: dims.to_vec(), data: data.iter().map(|&v| f64::from(v)).collect() }
    }

    /// The element at an index.
    pub fn at(&self, index: &[usize]) -> f64 {
        assert_eq!(index.len(), self.dims.len());
        let place = index.iter().zip(&self.dims).fold(0, |place, (&i, &dim)| {
            assert!(i < dim);
            place * dim + i
        });
        self.data[place]
    }

    /// The element at an index of signed numbers, 0 where it lies outside.
    fn at_or_zero(&self, index: &[isize]) -> f64 {
        let inside = index.iter().zip(&self.dims).all(|(&i, &dim)| (0..dim as isize).contains(&i));
        if inside { self.at(&index.iter().map(|&i| i as usize).collect::<Vec<_>>()) } else { 0.0 }
    }
}

/// All indices of a tensor, the last axis fastest.
fn indices(dims: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let dims = dims.to_vec();
    (0..dims.iter().product()).map(move |mut place: usize| {
        let mut index = vec![0; dims.len()];
        for (i, &dim) in index.iter_mut().zip(&dims).rev() {
            *i = place % dim;
            place /= dim;
        }
        index
    })
}

/// The result of an operator; `dims` are the output's.
pub fn run(op: &Op, inputs: &[Tensor], dims: &[usize]) -> Tensor {
    let y = match op {
        Op::Conv(d) => matrix::conv(d, inputs),
        Op::ConvTranspose(d) => matrix::conv_transpose(&d.0, inputs),
        Op::Gemm(d) => matrix::gemm(d, inputs, dims),
        Op::MatMul(d) => matrix::matmul(d, inputs, dims),
        Op::Pool(d) => spatial::pool(d, &inputs[0]),
        Op::Resize(d) => spatial::resize(d, &inputs[0]),
        Op::Reduce { kind, axes } => spatial::reduce(*kind, axes, &inputs[0]),
        Op::ArgMax { axis, select_last } => spatial::arg_max(*axis, *select_last, &inputs[0]),
        Op::Unary(f) => elementwise::map(&inputs[0], |x| elementwise::unary(*f, x)),
        Op::Binary { kind, activation } => elementwise::binary(*kind, *activation, inputs, dims),
        Op::ScaleShift { axis } => elementwise::scale_shift(*axis, inputs),
        Op::Softmax { axis, log } => elementwise::softmax(*axis, *log, &inputs[0]),
        Op::LayerNorm { axis, epsilon } => elementwise::layer_norm(*axis, f64::from(*epsilon), inputs),
        Op::Quantize { axis, low, high } => elementwise::quantize(*axis, *low, *high, inputs),
        Op::Dequantize { axis } => elementwise::dequantize(*axis, inputs),
        Op::Cast { integer_range } => elementwise::map(&inputs[0], |x| elementwise::cast(*integer_range, x)),
        Op::Concat { axis } => movement::concat(*axis, inputs, dims),
        Op::Slice { start, step } => movement::slice(start, step, &inputs[0], dims),
        Op::Pad { before, mode } => movement::pad(before, *mode, &inputs[0], dims),
        Op::Transpose { perm } => movement::transpose(perm, &inputs[0]),
        Op::Reshape => Tensor { dims: dims.to_vec(), data: inputs[0].data.clone() },
    };
    assert_eq!(y.dims, dims, "{op:?}");
    y
}
