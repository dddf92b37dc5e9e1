//! Random shapes and parameters.

use ocellus_kernels::op::*;
use proptest::prelude::*;
use tests::cases::{Case, conv, conv_transpose, epilogues, x};

use super::trial;

fn sound(case: &Case, seed: u64) -> Result<(), TestCaseError> {
    let faults = case.faults(seed, &trial());
    prop_assert!(faults.is_empty(), "{:?}:\n{}", case.op, faults.join("\n"));
    Ok(())
}

/// Sizes whose axes have been cut to `rank`.
fn dims(rank: std::ops::Range<usize>) -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1..6usize, rank)
}

fn pair(range: std::ops::Range<usize>) -> impl Strategy<Value = [usize; 2]> {
    [range.clone(), range]
}

fn convolution() -> impl Strategy<Value = Conv> {
    let channels = (1..4usize, prop_oneof![1..9usize, 15..20usize], prop_oneof![1..9usize, 15..20usize], any::<bool>());
    let sizes = (pair(1..12), pair(1..5), pair(1..4), pair(0..5), pair(1..4), pair(1..9));
    (channels, sizes, prop::sample::select(epilogues())).prop_map(
        |((groups, c, k, depthwise), ([h, w], [r, s], stride, pad, dilation, [p, q]), epilogue)| {
            let (groups, c, k) = if depthwise { (c, c, c) } else { (groups, c * groups, k * groups) };
            Conv { n: 1, h, w, c, k, r, s, p, q, stride, pad, dilation, groups, epilogue }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn convolutions(d in convolution(), seed: u64) {
        sound(&conv(d), seed)?;
    }

    #[test]
    fn transposed_convolutions(d in convolution(), seed: u64) {
        let epilogue = Epilogue { residual: false, ..d.epilogue };
        sound(&conv_transpose(Conv { epilogue, ..d }), seed)?;
    }

    #[test]
    fn products(batch in 1..4usize, m in 1..40usize, n in 1..70usize, k in 1..90usize, seed: u64) {
        let desc = MatMul { batch_a: batch, batch_b: batch, m, n, k };
        sound(&Case::new(Op::MatMul(desc), &[x(&[batch, m, k]), x(&[batch, k, n])], &[batch, m, n], 1e-5), seed)?;
    }

    #[test]
    fn pools(
        kind in prop::sample::select(vec![PoolKind::Max, PoolKind::Average, PoolKind::AveragePadded]),
        [h, w] in pair(1..10),
        c in 1..70usize,
        [r, s] in pair(1..4),
        stride in pair(1..4),
        pad in [0..3usize, 0..3usize, 0..3usize, 0..3usize],
        dilation in pair(1..3),
        seed: u64,
    ) {
        // Every window meets the picture: padding below the window, the last window starts inside.
        let pad = [pad[0].min(r - 1), pad[1].min(s - 1), pad[2], pad[3]];
        prop_assume!(dilation == [1, 1] || pad[..2] == [0, 0]);
        let [p, q] = [(h, pad[0], stride[0]), (w, pad[1], stride[1])].map(|(size, pad, stride)| (size + pad - 1) / stride + 1);
        let desc = Pool { kind, n: 1, h, w, c, r, s, p, q, stride, pad, dilation };
        sound(&Case::new(Op::Pool(desc), &[x(&[1, h, w, c])], &[1, p, q, c], 5e-6), seed)?;
    }

    #[test]
    fn linear_resizes([h, w] in pair(1..12), [p, q] in pair(1..25), c in 1..40usize, seed: u64) {
        let scale = [p as f32 / h as f32, q as f32 / w as f32];
        for coordinates in [Coordinates::HalfPixel, Coordinates::AlignCorners, Coordinates::Asymmetric] {
            let desc = Resize { n: 1, h, w, c, p, q, scale, mode: ResizeMode::Linear, coordinates };
            sound(&Case::new(Op::Resize(desc), &[x(&[1, h, w, c])], &[1, p, q, c], 4e-6), seed)?;
        }
    }

    #[test]
    fn broadcasts(output in dims(1..7), masks in any::<[u8; 2]>(), cut in 0..6usize, seed: u64) {
        // Each operand repeats along the axes that its mask names, one of them has lost leading axes.
        let operand = |mask: u8| -> Vec<usize> {
            output.iter().enumerate().map(|(i, &dim)| if mask >> i & 1 == 1 { 1 } else { dim }).collect()
        };
        let (a, b) = (operand(masks[0] & !masks[1]), operand(masks[1] & !masks[0]));
        let b = b[cut.min(b.len() - 1)..].to_vec();
        let full: Vec<usize> = (0..output.len())
            .map(|i| a[i].max((i + b.len()).checked_sub(output.len()).map_or(1, |i| b[i])))
            .collect();
        let op = Op::Binary { kind: BinaryKind::Sub, activation: None };
        sound(&Case::new(op, &[x(&a), x(&b)], &full, 2e-6).fixed(), seed)?;
    }

    #[test]
    fn transposes(
        (dims, perm) in dims(1..9).prop_filter("small", |d| d.iter().product::<usize>() < 5000)
            .prop_flat_map(|d| { let axes: Vec<usize> = (0..d.len()).collect(); (Just(d), Just(axes).prop_shuffle()) }),
        seed: u64,
    ) {
        let output: Vec<usize> = perm.iter().map(|&axis| dims[axis]).collect();
        sound(&Case::new(Op::Transpose { perm }, &[x(&dims)], &output, 0.0).fixed(), seed)?;
    }

    #[test]
    fn slices(
        axes in prop::collection::vec((1..9usize, any::<prop::sample::Index>(), 1..4isize, any::<bool>()), 1..5),
        seed: u64,
    ) {
        let (mut dims, mut start, mut step, mut output) = (vec![], vec![], vec![], vec![]);
        for (dim, first, stride, back) in axes {
            let first = first.index(dim);
            let room = if back { first } else { dim - 1 - first };
            dims.push(dim);
            start.push(first);
            step.push(if back { -stride } else { stride });
            output.push(room / stride as usize + 1);
        }
        sound(&Case::new(Op::Slice { start, step }, &[x(&dims)], &output, 0.0).fixed(), seed)?;
    }

    #[test]
    fn pads(
        axes in prop::collection::vec((1..6usize, 0..5usize, 0..5usize), 1..5),
        mode in prop::sample::select(vec![PadMode::Constant(1.5), PadMode::Reflect, PadMode::Edge]),
        seed: u64,
    ) {
        let (mut dims, mut start, mut output) = (vec![], vec![], vec![]);
        for (dim, before, after) in axes {
            let most = if mode == PadMode::Reflect { dim - 1 } else { 4 };
            dims.push(dim);
            start.push(before.min(most));
            output.push(before.min(most) + dim + after.min(most));
        }
        sound(&Case::new(Op::Pad { before: start, mode }, &[x(&dims)], &output, 0.0).fixed(), seed)?;
    }

    #[test]
    fn reductions(dims in dims(1..7), mask: u8, seed: u64) {
        let axes: Vec<usize> = (0..dims.len()).filter(|i| mask >> i & 1 == 1).collect();
        let output: Vec<usize> = (0..dims.len()).map(|i| if axes.contains(&i) { 1 } else { dims[i] }).collect();
        for kind in [ReduceKind::Mean, ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min] {
            let op = Op::Reduce { kind, axes: axes.clone() };
            sound(&Case::new(op, &[x(&dims)], &output, 5e-6).fixed(), seed)?;
        }
    }

    #[test]
    fn softmaxes(dims in dims(1..6), axis: prop::sample::Index, log: bool, seed: u64) {
        let axis = axis.index(dims.len());
        sound(&Case::new(Op::Softmax { axis, log }, &[x(&dims).from(-9.0, 9.0)], &dims, 5e-6).fixed(), seed)?;
    }
}
