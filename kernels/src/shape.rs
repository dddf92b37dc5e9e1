//! Which operand shapes fit an operator: the last defence against a plan that would read or write out of bounds.

use crate::error::KernelError;
use crate::op::{Conv, ConvTranspose, Epilogue, Gemm, MatMul, Op, PadMode, Pool, Resize};

/// Largest number of dimensions of a tensor.
pub(crate) const MAX_RANK: usize = 8;

/// Largest number of elements of a tensor or an arena: 2^34, 64 GiB in single precision.
pub(crate) const MAX_ELEMENTS: usize = 1 << 34;

/// Largest size, stride, dilation or padding of a window.
const MAX_WINDOW: usize = 1 << 24;

/// Most matrix products that a transposed convolution is made of: one for each group and each remainder of the output
/// rows and columns by the strides.
const MAX_PHASES: usize = 1 << 16;

/// A reason without the operator's name, which [`check`] adds.
type Check = Result<(), String>;

/// Checks that an operator can run on operands of these shapes and gives that output: operand count, dimensions, every
/// index that its parameters lead to.
///
/// # Errors
/// Says what does not fit.
pub(crate) fn check(op: &Op, inputs: &[&[usize]], output: &[usize]) -> Result<(), KernelError> {
    shapes(op, inputs, output).map_err(|why| KernelError::invalid(op.name(), why))
}

/// Elements of a tensor, none where it has no elements, too many, or too many dimensions.
pub(crate) fn checked_elements(dims: &[usize]) -> Option<usize> {
    if dims.len() > MAX_RANK {
        return None;
    }
    let count = dims.iter().try_fold(1usize, |count, &dim| count.checked_mul(dim))?;
    (1..=MAX_ELEMENTS).contains(&count).then_some(count)
}

fn shapes(op: &Op, inputs: &[&[usize]], output: &[usize]) -> Check {
    for dims in inputs.iter().chain([&output]) {
        require(checked_elements(dims).is_some(), || format!("tensor of shape {dims:?}"))?;
    }
    match op {
        Op::Conv(desc) => conv(desc, inputs, output),
        Op::ConvTranspose(desc) => {
            require(!desc.0.epilogue.residual, || "a residual operand".into())?;
            conv(&desc.0, inputs, output)?;
            phases(desc)
        }
        Op::Gemm(desc) => gemm(desc, inputs, output),
        Op::MatMul(desc) => matmul(desc, inputs, output),
        Op::Pool(desc) => pool(desc, inputs, output),
        Op::Resize(desc) => resize(desc, inputs, output),
        Op::Reduce { axes, .. } => {
            let [x] = operands(inputs)?;
            require(axes.is_sorted_by(|a, b| a < b) && axes.last().is_none_or(|&axis| axis < x.len()), || {
                format!("axes {axes:?} of {x:?}")
            })?;
            let want: Vec<usize> = (0..x.len()).map(|i| if axes.contains(&i) { 1 } else { x[i] }).collect();
            same("output", output, &want)
        }
        Op::Unary(_) | Op::Cast { integer_range: None } => {
            let [x] = operands(inputs)?;
            same("output", output, x)
        }
        Op::Cast { integer_range: Some((low, high)) } => {
            let [x] = operands(inputs)?;
            require(low <= high, || format!("range {low} to {high}"))?;
            same("output", output, x)
        }
        Op::Binary { .. } => {
            let [a, b] = operands(inputs)?;
            same("output", output, &broadcast(a, b)?)
        }
        Op::ScaleShift { axis } => {
            let [x, scale, shift] = operands(inputs)?;
            let channels = length(x, *axis)?;
            count("scale", scale, channels)?;
            count("shift", shift, channels)?;
            same("output", output, x)
        }
        Op::Softmax { axis, .. } => {
            let [x] = operands(inputs)?;
            length(x, *axis)?;
            same("output", output, x)
        }
        Op::LayerNorm { axis, epsilon } => {
            let [x, scale, bias] = operands(inputs)?;
            length(x, *axis)?;
            require(*epsilon >= 0.0, || format!("epsilon {epsilon}"))?;
            let normalised = x[*axis..].iter().product();
            count("scale", scale, normalised)?;
            count("bias", bias, normalised)?;
            same("output", output, x)
        }
        Op::Concat { axis } => concat(*axis, inputs, output),
        Op::Slice { start, step } => slice(start, step, inputs, output),
        Op::Pad { before, mode } => pad(before, *mode, inputs, output),
        Op::Transpose { perm } => {
            let [x] = operands(inputs)?;
            let mut sorted = perm.clone();
            sorted.sort_unstable();
            require(sorted.iter().copied().eq(0..x.len()), || format!("permutation {perm:?} of {x:?}"))?;
            same("output", output, &perm.iter().map(|&axis| x[axis]).collect::<Vec<_>>())
        }
        Op::Reshape => {
            let [x] = operands(inputs)?;
            count("output", output, x.iter().product())
        }
        Op::ArgMax { axis, .. } => {
            let [x] = operands(inputs)?;
            length(x, *axis)?;
            let want: Vec<usize> = (0..x.len()).map(|i| if i == *axis { 1 } else { x[i] }).collect();
            same("output", output, &want)
        }
        Op::Quantize { axis, low, high } => {
            require(low <= high, || format!("range {low} to {high}"))?;
            quantised(*axis, inputs, output)
        }
        Op::Dequantize { axis } => quantised(*axis, inputs, output),
    }
}

fn require(holds: bool, why: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(why()) }
}

fn operands<'a, const N: usize>(inputs: &[&'a [usize]]) -> Result<[&'a [usize]; N], String> {
    inputs.try_into().map_err(|_| format!("{} operands instead of {N}", inputs.len()))
}

fn same(what: &str, dims: &[usize], want: &[usize]) -> Check {
    require(dims == want, || format!("{what} has shape {dims:?} instead of {want:?}"))
}

fn count(what: &str, dims: &[usize], want: usize) -> Check {
    require(dims.iter().product::<usize>() == want, || format!("{what} has shape {dims:?} instead of {want} elements"))
}

fn length(dims: &[usize], axis: usize) -> Result<usize, String> {
    dims.get(axis).copied().ok_or_else(|| format!("axis {axis} of {dims:?}"))
}

/// Windows must be small enough that no position overflows, and have a tap and a step.
fn window(name: &str, positive: &[usize], other: &[usize]) -> Check {
    let sound = positive.iter().all(|v| (1..=MAX_WINDOW).contains(v)) && other.iter().all(|&v| v <= MAX_WINDOW);
    require(sound, || format!("{name} {positive:?}, padding {other:?}"))
}

/// The epilogue's operands behind the first `own` ones.
fn epilogue(desc: &Epilogue, own: usize, inputs: &[&[usize]], channels: usize, output: &[usize]) -> Check {
    let want = own + usize::from(desc.bias) + usize::from(desc.residual);
    require(inputs.len() == want, || format!("{} operands instead of {want}", inputs.len()))?;
    if desc.bias {
        count("bias", inputs[own], channels)?;
    }
    if desc.residual {
        same("residual", inputs[want - 1], output)?;
    }
    Ok(())
}

fn phases(ConvTranspose(desc): &ConvTranspose) -> Check {
    let [rows, columns] = [desc.stride[0].min(desc.p), desc.stride[1].min(desc.q)];
    let products = rows.checked_mul(columns).and_then(|n| n.checked_mul(desc.groups));
    require(products.is_some_and(|n| n <= MAX_PHASES), || {
        format!("strides {:?} in {} groups, {MAX_PHASES} products at most", desc.stride, desc.groups)
    })
}

fn conv(d: &Conv, inputs: &[&[usize]], output: &[usize]) -> Check {
    epilogue(&d.epilogue, 2, inputs, d.k, output)?;
    window("kernel, stride, dilation", &[d.r, d.s, d.stride[0], d.stride[1], d.dilation[0], d.dilation[1]], &d.pad)?;
    require(d.groups > 0 && d.c.is_multiple_of(d.groups) && d.k.is_multiple_of(d.groups), || {
        format!("{} groups of {} and {} channels", d.groups, d.c, d.k)
    })?;
    same("input", inputs[0], &[d.n, d.h, d.w, d.c])?;
    same("weight", inputs[1], &[d.k, d.r, d.s, d.c / d.groups])?;
    same("output", output, &[d.n, d.p, d.q, d.k])
}

fn gemm(d: &Gemm, inputs: &[&[usize]], output: &[usize]) -> Check {
    epilogue(&d.epilogue, 2, inputs, d.n, output)?;
    matrices("input", inputs[0], 1, &[d.m, d.k])?;
    same("weight", inputs[1], &[d.n, d.k])?;
    matrices("output", output, 1, &[d.m, d.n])
}

/// Dims are those of `batch` matrices; a single row axis may be split into leading dimensions.
fn matrices(what: &str, dims: &[usize], batch: usize, [rows, columns]: &[usize; 2]) -> Check {
    let want = batch.checked_mul(*rows).and_then(|n| n.checked_mul(*columns));
    require(dims.last() == Some(columns) && Some(dims.iter().product()) == want, || {
        format!("{what} has shape {dims:?} instead of {batch} x {rows} x {columns}")
    })
}

fn matmul(d: &MatMul, inputs: &[&[usize]], output: &[usize]) -> Check {
    let [a, b] = operands(inputs)?;
    let batch = d.batch_a.max(d.batch_b);
    require([d.batch_a, d.batch_b].iter().all(|&n| n == 1 || n == batch), || {
        format!("batches of {} and {}", d.batch_a, d.batch_b)
    })?;
    matrices("first operand", a, d.batch_a, &[d.m, d.k])?;
    matrices("second operand", b, d.batch_b, &[d.k, d.n])?;
    matrices("output", output, batch, &[d.m, d.n])
}

fn pool(d: &Pool, inputs: &[&[usize]], output: &[usize]) -> Check {
    let [x] = operands(inputs)?;
    window("window, stride, dilation", &[d.r, d.s, d.stride[0], d.stride[1], d.dilation[0], d.dilation[1]], &d.pad)?;
    same("input", x, &[d.n, d.h, d.w, d.c])?;
    same("output", output, &[d.n, d.p, d.q, d.c])
}

fn resize(d: &Resize, inputs: &[&[usize]], output: &[usize]) -> Check {
    let [x] = operands(inputs)?;
    require(d.scale.iter().all(|s| s.is_finite() && *s > 0.0), || format!("scale {:?}", d.scale))?;
    same("input", x, &[d.n, d.h, d.w, d.c])?;
    same("output", output, &[d.n, d.p, d.q, d.c])
}

/// Shape that two operands are broadcast to.
fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>, String> {
    let rank = a.len().max(b.len());
    let dim = |dims: &[usize], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |axis| dims[axis]);
    (0..rank)
        .map(|i| match (dim(a, i), dim(b, i)) {
            (a, b) if a == b || b == 1 => Ok(a),
            (1, b) => Ok(b),
            _ => Err(format!("{a:?} and {b:?} do not broadcast")),
        })
        .collect()
}

fn concat(axis: usize, inputs: &[&[usize]], output: &[usize]) -> Check {
    length(output, axis)?;
    let mut total = 0usize;
    for x in inputs {
        let fits = x.len() == output.len() && (0..x.len()).all(|i| i == axis || x[i] == output[i]);
        require(fits, || format!("operand of shape {x:?} in an output of {output:?}"))?;
        total = total.saturating_add(x[axis]);
    }
    require(total == output[axis], || format!("operands add up to {total} instead of {}", output[axis]))
}

fn slice(start: &[usize], step: &[isize], inputs: &[&[usize]], output: &[usize]) -> Check {
    let [x] = operands(inputs)?;
    require([start.len(), step.len(), output.len()] == [x.len(); 3], || format!("{} axes of {x:?}", start.len()))?;
    for axis in 0..x.len() {
        let last = start[axis] as i128 + (output[axis] as i128 - 1) * step[axis] as i128;
        let inside = start[axis] < x[axis] && (0..x[axis] as i128).contains(&last) && step[axis] != 0;
        require(inside, || format!("axis {axis} from {} to {last} by {} of {x:?}", start[axis], step[axis]))?;
    }
    Ok(())
}

fn pad(before: &[usize], mode: PadMode, inputs: &[&[usize]], output: &[usize]) -> Check {
    let [x] = operands(inputs)?;
    require([before.len(), output.len()] == [x.len(); 2], || format!("{} axes of {x:?}", before.len()))?;
    for axis in 0..x.len() {
        let after = before[axis].checked_add(x[axis]).and_then(|end| output[axis].checked_sub(end));
        let Some(after) = after else {
            return Err(format!("axis {axis} of {x:?} and {} do not fit {output:?}", before[axis]));
        };
        require(mode != PadMode::Reflect || before[axis].max(after) < x[axis], || {
            format!("axis {axis} of {x:?} reflected by {} and {after}", before[axis])
        })?;
    }
    Ok(())
}

fn quantised(axis: usize, inputs: &[&[usize]], output: &[usize]) -> Check {
    let [x, scale, zero] = operands(inputs)?;
    let scales = scale.iter().product();
    require(scales == 1 || length(x, axis)? == scales, || format!("{scales} scales for axis {axis} of {x:?}"))?;
    count("zero point", zero, scales)?;
    same("output", output, x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{BinaryKind, Coordinates, PoolKind, ReduceKind, ResizeMode};
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn size() -> impl Strategy<Value = usize> {
        prop_oneof![8 => 0usize..5, 1 => Just(usize::MAX), 1 => Just(1usize << 40), 1 => any::<usize>()]
    }

    fn dims() -> impl Strategy<Value = Vec<usize>> {
        vec(size(), 0..10)
    }

    /// Operators with arbitrary parameters.
    fn op() -> impl Strategy<Value = Op> {
        let sizes = (vec(size(), 24), vec(any::<isize>(), 0..6), dims());
        (0..18usize, sizes, any::<bool>(), any::<f32>()).prop_map(|(kind, (s, steps, list), flag, value)| {
            let [n, h, w, c, k, r, s_, p, q] = [s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8]];
            let [stride, dilation] = [[s[9], s[10]], [s[11], s[12]]];
            let epilogue = Epilogue { bias: flag, residual: s[13] % 2 == 0, activation: None };
            let pad = [s[14], s[15]];
            let conv = Conv { n, h, w, c, k, r, s: s_, p, q, stride, pad, dilation, groups: s[16], epilogue };
            let axis = s[17];
            match kind {
                0 => Op::Conv(conv),
                1 => Op::ConvTranspose(crate::op::ConvTranspose(conv)),
                2 => Op::Gemm(Gemm { m: n, n: h, k: w, epilogue }),
                3 => Op::MatMul(MatMul { batch_a: n, batch_b: h, m: w, n: c, k }),
                4 => {
                    let pad = [s[14], s[15], s[18], s[19]];
                    Op::Pool(Pool { kind: PoolKind::Max, n, h, w, c, r, s: s_, p, q, stride, pad, dilation })
                }
                5 => Op::Reduce { kind: ReduceKind::Sum, axes: list },
                6 => Op::Binary { kind: BinaryKind::Add, activation: None },
                7 => Op::ScaleShift { axis },
                8 => Op::Softmax { axis, log: flag },
                9 => Op::LayerNorm { axis, epsilon: value },
                10 => {
                    let (mode, coordinates) = (ResizeMode::Linear, Coordinates::HalfPixel);
                    Op::Resize(Resize { n, h, w, c, p, q, scale: [value, value], mode, coordinates })
                }
                11 => Op::Concat { axis },
                12 => Op::Slice { start: list, step: steps },
                13 => Op::Pad { before: list, mode: if flag { PadMode::Reflect } else { PadMode::Edge } },
                14 => Op::Transpose { perm: list },
                15 => Op::Reshape,
                16 => Op::ArgMax { axis, select_last: flag },
                _ => Op::Quantize { axis, low: value, high: -value },
            }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn never_panics(op in op(), inputs in vec(dims(), 0..4), output in dims()) {
            let inputs: Vec<&[usize]> = inputs.iter().map(Vec::as_slice).collect();
            let _ = check(&op, &inputs, &output);
        }
    }

    /// What is made for every phase would otherwise take gigabytes for a model of a few hundred bytes.
    #[test]
    fn transposed_convolutions_of_too_many_phases_are_refused() {
        let run = |stride: [usize; 2], groups: usize, p: usize, q: usize| {
            let epilogue = Epilogue::default();
            let (pad, dilation) = ([0; 2], [1; 2]);
            let (c, k) = (groups, groups);
            let conv = Conv { n: 1, h: 1, w: 1, c, k, r: 1, s: 1, p, q, stride, pad, dilation, groups, epilogue };
            check(&Op::ConvTranspose(ConvTranspose(conv)), &[&[1, 1, 1, c], &[k, 1, 1, 1]], &[1, p, q, k])
        };
        assert!(run([64, 64], 1, 64, 64).is_ok() && run([32, 32], 21, 64, 64).is_ok());
        // No more phases than rows and columns.
        assert!(run([MAX_WINDOW, MAX_WINDOW], 1, 3, 3).is_ok());
        for (stride, groups, p, q) in [
            ([1 << 14, 1 << 14], 1, 1 << 14, 1 << 14),
            ([1, 1 << 17], 1, 1, 1 << 17),
            ([1 << 17, 1], 1, 1 << 17, 1),
            ([64, 64], 17, 64, 64),
        ] {
            let error = run(stride, groups, p, q).unwrap_err().to_string();
            assert!(error.contains("products at most"), "{error}");
        }
    }

    #[test]
    fn wrong_shapes_are_refused() {
        let conv = |groups, stride| Conv {
            n: 1,
            h: 5,
            w: 5,
            c: 4,
            k: 4,
            r: 3,
            s: 3,
            p: 3,
            q: 3,
            stride: [stride, 1],
            pad: [0, 0],
            dilation: [1, 1],
            groups,
            epilogue: Epilogue { bias: true, ..Epilogue::default() },
        };
        let run = |conv: Conv, inputs: &[&[usize]]| check(&Op::Conv(conv), inputs, &[1, 3, 3, 4]).is_ok();
        let (x, w, w2, bias): (&[usize], &[usize], &[usize], &[usize]) =
            (&[1, 5, 5, 4], &[4, 3, 3, 4], &[4, 3, 3, 2], &[4]);
        assert!(run(conv(1, 1), &[x, w, bias]) && run(conv(2, 1), &[x, w2, bias]));
        assert!(!run(conv(1, 1), &[x, w]) && !run(conv(1, 1), &[x, w, x]) && !run(conv(1, 1), &[x, w2, bias]));
        assert!(!run(conv(3, 1), &[x, w, bias]) && !run(conv(0, 1), &[x, w, bias]) && !run(conv(1, 0), &[x, w, bias]));

        let slice =
            |start, step, out| check(&Op::Slice { start: vec![start], step: vec![step] }, &[&[5]], &[out]).is_ok();
        assert!(slice(4, -1, 5) && slice(0, 2, 3) && slice(4, -4, 2));
        assert!(!slice(4, -1, 6) && !slice(0, 2, 4) && !slice(5, 1, 1) && !slice(0, 0, 2) && !slice(1, isize::MIN, 3));

        let pad = |before, mode, out| check(&Op::Pad { before: vec![before], mode }, &[&[3]], &[out]).is_ok();
        assert!(pad(2, PadMode::Reflect, 7) && pad(9, PadMode::Edge, 12));
        assert!(!pad(3, PadMode::Reflect, 6) && !pad(0, PadMode::Reflect, 6) && !pad(2, PadMode::Edge, 4));

        let binary = |a: &[usize], b: &[usize], out: &[usize]| {
            check(&Op::Binary { kind: BinaryKind::Add, activation: None }, &[a, b], out).is_ok()
        };
        assert!(binary(&[2, 1, 3], &[4, 1], &[2, 4, 3]) && binary(&[], &[2], &[2]));
        assert!(!binary(&[2, 3], &[2], &[2, 3]) && !binary(&[2], &[2], &[1, 2]));
        assert!(check(&Op::Transpose { perm: vec![0, 0] }, &[&[2, 2]], &[2, 2]).is_err());
        assert!(check(&Op::Reshape, &[&[1 << 40, 1 << 40]], &[0]).is_err());
        assert!(check(&Op::Unary(crate::op::Unary::Relu), &[&[1; 9]], &[1; 9]).is_err());
    }
}
