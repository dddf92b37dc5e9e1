//! Windows, reductions and sampling.

use ocellus_kernels::op::{Coordinates, NearestRounding, Pool, PoolKind, ReduceKind, Resize, ResizeMode};

use super::{Tensor, indices};

pub(super) fn pool(d: &Pool, x: &Tensor) -> Tensor {
    let (height, width) = (d.h as isize, d.w as isize);
    let pad = d.pad.map(|v| v as isize);
    Tensor::from_fn(&[d.n, d.p, d.q, d.c], |index| {
        let [n, p, q, c] = *index else { panic!("rank 4") };
        let (mut inside, mut padded) = (Vec::new(), 0);
        for r in 0..d.r {
            for s in 0..d.s {
                let row = (p * d.stride[0] + r * d.dilation[0]) as isize - pad[0];
                let column = (q * d.stride[1] + s * d.dilation[1]) as isize - pad[1];
                if (0..height).contains(&row) && (0..width).contains(&column) {
                    inside.push(x.at(&[n, row as usize, column as usize, c]));
                }
                if (-pad[0]..height + pad[2]).contains(&row) && (-pad[1]..width + pad[3]).contains(&column) {
                    padded += 1;
                }
            }
        }
        match d.kind {
            PoolKind::Max => inside.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            PoolKind::Average => inside.iter().sum::<f64>() / inside.len() as f64,
            PoolKind::AveragePadded => inside.iter().sum::<f64>() / f64::from(padded),
        }
    })
}

pub(super) fn reduce(kind: ReduceKind, axes: &[usize], x: &Tensor) -> Tensor {
    let dims: Vec<usize> = (0..x.dims.len()).map(|i| if axes.contains(&i) { 1 } else { x.dims[i] }).collect();
    let within: Vec<usize> = (0..x.dims.len()).map(|i| if axes.contains(&i) { x.dims[i] } else { 1 }).collect();
    Tensor::from_fn(&dims, |index| {
        let values: Vec<f64> = indices(&within)
            .map(|offset| x.at(&index.iter().zip(&offset).map(|(i, o)| i + o).collect::<Vec<_>>()))
            .collect();
        match kind {
            ReduceKind::Mean => values.iter().sum::<f64>() / values.len() as f64,
            ReduceKind::Sum => values.iter().sum(),
            ReduceKind::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            ReduceKind::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
        }
    })
}

pub(super) fn arg_max(axis: usize, select_last: bool, x: &Tensor) -> Tensor {
    let mut dims = x.dims.clone();
    dims[axis] = 1;
    Tensor::from_fn(&dims, |index| {
        let at = |i: usize| {
            let mut other = index.to_vec();
            other[axis] = i;
            x.at(&other)
        };
        let top = (0..x.dims[axis]).map(at).fold(f64::NEG_INFINITY, f64::max);
        let mut winners = (0..x.dims[axis]).filter(|&i| at(i) == top);
        let winner = if select_last { winners.next_back() } else { winners.next() };
        winner.map_or(f64::NAN, |i| i as f64)
    })
}

/// Source coordinate of an output sample, in single precision as ONNX Runtime computes it: where it falls between two
/// samples, the last bit decides.
fn coordinate(d: &Resize, axis: usize, i: usize) -> f32 {
    let (input, output) = ([d.h, d.w][axis] as f32, [d.p, d.q][axis] as f32);
    let (i, scale) = (i as f32, d.scale[axis]);
    match d.coordinates {
        Coordinates::HalfPixel => (i + 0.5) / scale - 0.5,
        Coordinates::HalfPixelSymmetric => {
            let adjustment = output / (scale * input);
            let centre = input / 2.0;
            centre * (1.0 - adjustment) + (i + 0.5) / scale - 0.5
        }
        Coordinates::PytorchHalfPixel => {
            if output > 1.0 {
                (i + 0.5) / scale - 0.5
            } else {
                0.0
            }
        }
        Coordinates::AlignCorners => {
            if output > 1.0 {
                i * (input - 1.0) / (output - 1.0)
            } else {
                0.0
            }
        }
        Coordinates::Asymmetric => i / scale,
        Coordinates::TfHalfPixelForNn => (i + 0.5) / scale,
        Coordinates::TfCropAndResize(crop) => {
            let (start, end) = (crop.start[axis], crop.end[axis]);
            if output > 1.0 {
                start * (input - 1.0) + i * (end - start) * (input - 1.0) / (output - 1.0)
            } else {
                0.5 * (start + end) * (input - 1.0)
            }
        }
    }
}

pub(super) fn resize(d: &Resize, x: &Tensor) -> Tensor {
    let inside = |i: f64, axis: usize| i.clamp(0.0, ([d.h, d.w][axis] - 1) as f64) as usize;
    Tensor::from_fn(&[d.n, d.p, d.q, d.c], |index| {
        let [n, p, q, c] = *index else { panic!("rank 4") };
        let at = [f64::from(coordinate(d, 0, p)), f64::from(coordinate(d, 1, q))];
        if let Coordinates::TfCropAndResize(crop) = d.coordinates
            && (at[0] < 0.0 || at[0] > (d.h - 1) as f64 || at[1] < 0.0 || at[1] > (d.w - 1) as f64)
        {
            return crop.outside.into();
        }
        match d.mode {
            ResizeMode::Nearest(rounding) => {
                let [row, column] = at.map(|at| match rounding {
                    NearestRounding::RoundPreferFloor => (at - 0.5).ceil(),
                    NearestRounding::RoundPreferCeil => (at + 0.5).floor(),
                    NearestRounding::Floor => at.floor(),
                    NearestRounding::Ceil => at.ceil(),
                });
                x.at(&[n, inside(row, 0), inside(column, 1), c])
            }
            ResizeMode::Linear => {
                // Samples outside repeat the edge.
                let [row, column] = at.map(f64::floor);
                let [down, right] = [at[0] - row, at[1] - column];
                let sample = |i: f64, j: f64| x.at(&[n, inside(row + i, 0), inside(column + j, 1), c]);
                (sample(0.0, 0.0) * (1.0 - right) + sample(0.0, 1.0) * right) * (1.0 - down)
                    + (sample(1.0, 0.0) * (1.0 - right) + sample(1.0, 1.0) * right) * down
            }
        }
    })
}
