//! Operators that only move elements.

use ocellus_kernels::op::PadMode;

use super::Tensor;

pub(super) fn concat(axis: usize, inputs: &[Tensor], dims: &[usize]) -> Tensor {
    Tensor::from_fn(dims, |index| {
        let mut index = index.to_vec();
        for x in inputs {
            if index[axis] < x.dims[axis] {
                return x.at(&index);
            }
            index[axis] -= x.dims[axis];
        }
        f64::NAN
    })
}

pub(super) fn slice(start: &[usize], step: &[isize], x: &Tensor, dims: &[usize]) -> Tensor {
    Tensor::from_fn(dims, |index| {
        let from = |axis: usize| start[axis] as isize + index[axis] as isize * step[axis];
        x.at(&(0..dims.len()).map(|axis| from(axis) as usize).collect::<Vec<_>>())
    })
}

pub(super) fn pad(before: &[usize], mode: PadMode, x: &Tensor, dims: &[usize]) -> Tensor {
    Tensor::from_fn(dims, |index| {
        let from: Option<Vec<usize>> = (0..dims.len())
            .map(|axis| {
                let (i, len) = (index[axis] as isize - before[axis] as isize, x.dims[axis] as isize);
                let inside = (0..len).contains(&i);
                match mode {
                    _ if inside => Some(i as usize),
                    PadMode::Constant(_) => None,
                    PadMode::Edge => Some(if i < 0 { 0 } else { len as usize - 1 }),
                    PadMode::Reflect => Some(if i < 0 { -i } else { 2 * (len - 1) - i } as usize),
                }
            })
            .collect();
        match (from, mode) {
            (Some(from), _) => x.at(&from),
            (None, PadMode::Constant(value)) => f64::from(value),
            (None, _) => f64::NAN,
        }
    })
}

pub(super) fn transpose(perm: &[usize], x: &Tensor) -> Tensor {
    let dims: Vec<usize> = perm.iter().map(|&axis| x.dims[axis]).collect();
    Tensor::from_fn(&dims, |index| {
        let mut from = vec![0; dims.len()];
        for (&axis, &i) in perm.iter().zip(index) {
            from[axis] = i;
        }
        x.at(&from)
    })
}
