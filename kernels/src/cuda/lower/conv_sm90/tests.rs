//! What the lowered data make the kernel read and write, followed on the CPU: copies as the TMA's documentation defines
//! them, tiles and steps as `conv_sm90.cu` takes them.

use super::*;
use crate::cuda::lower::Precision;
use crate::op::{Epilogue, Op, Unary};

const HOPPER: Target = Target {
    arch: Arch { major: 9, minor: 0 },
    multiprocessors: 132,
    shared_bytes: 227 << 10,
    precision: Precision::Fp16,
    portable: false,
};

/// A convolution whose picture ends with the last pixel read, or `crop` pixels later.
fn conv(n: usize, [p, q]: [usize; 2], [c, k]: [usize; 2], [r, s]: [usize; 2]) -> Conv {
    let epilogue = Epilogue { bias: false, residual: false, activation: None };
    let (pad, stride) = ([r / 2, s / 2], [1, 1]);
    let (h, w) = (p + r - 1 - 2 * pad[0], q + s - 1 - 2 * pad[1]);
    Conv { n, h, w, c, k, r, s, p, q, stride, pad, dilation: [1, 1], groups: 1, epilogue }
}

/// Small whole numbers, whose sums every order gives alike.
fn values(count: usize, seed: usize) -> Vec<f32> {
    let mut state = seed as u64 * 2 + 1;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 60) as f32 - 7.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// The step of a convolution, run by `f`.
fn with_step<R>(desc: &Conv, pitch: usize, dtype: DType, f: impl FnOnce(&TypedStep<'_>) -> R) -> R {
    let dims = vec![desc.k, desc.r, desc.s, desc.c];
    let weights = Arc::new(Constant { data: values(dims.iter().product(), 1).into(), dims });
    let bias = Arc::new(Constant { dims: vec![desc.k], data: values(desc.k, 2).into() });
    let x = Tensor { dims: vec![desc.n, desc.h, desc.w, desc.c], dtype, pitch };
    let output = Tensor { dims: vec![desc.n, desc.p, desc.q, desc.k], dtype, pitch: desc.k };
    let mut inputs = vec![Source::Activation(x), Source::Constant(&weights)];
    if desc.epilogue.bias {
        inputs.push(Source::Constant(&bias));
    }
    if desc.epilogue.residual {
        inputs.push(Source::Activation(output.clone()));
    }
    f(&TypedStep { name: "conv", op: &Op::Conv(*desc), inputs, output })
}

fn lowered(desc: &Conv, target: &Target) -> Option<Lowered> {
    with_step(desc, desc.c, target.precision.dtype(), |step| lower(step, desc, target))
}

/// Offset of an element, or none where a copy finds nothing and reads zero.
fn offset(map: &TensorMap, at: &[i64]) -> Option<usize> {
    let inside = map.dims.iter().zip(at).all(|(&size, &i)| (0..size as i64).contains(&i));
    let strides = std::iter::once(2).chain(map.strides_bytes.iter().copied());
    inside.then(|| at.iter().zip(strides).map(|(&i, stride)| i as usize * stride as usize).sum::<usize>() / 2)
}

/// Where the base pixels of an im2col copy lie from (w, h, n) on.
fn pixels(map: &TensorMap, mut at: [i64; 3]) -> Vec<[i64; 3]> {
    let MapKind::Im2col { lower, upper, pixels, .. } = &map.kind else { panic!("no columns") };
    let end = [0, 1].map(|i| map.dims[i + 1] as i64 + i64::from(upper[i]));
    let mut walk = Vec::new();
    for _ in 0..*pixels {
        walk.push(at);
        at[0] += i64::from(map.element_strides[1]);
        if at[0] >= end[0] {
            at = [i64::from(lower[0]), at[1] + i64::from(map.element_strides[2]), at[2]];
        }
        if at[1] >= end[1] {
            at = [at[0], i64::from(lower[1]), at[2] + 1];
        }
    }
    walk
}

/// Runs a launch without bias, residual and activation.
fn run(launch: &Launch, x: &[f32], weights: &[f32], y: &mut [f64]) {
    let define = |name: &str| -> i64 {
        let value = launch.kernel.defines.iter().find(|(key, _)| *key == name);
        value.unwrap_or_else(|| panic!("no {name}")).1.parse().unwrap()
    };
    let [Arg::Map(x_map), Arg::Map(w_map), Arg::Map(y_map), Arg::Map(_), Arg::Null, Arg::I32(tiles)] = &launch.args[..]
    else {
        panic!("{:?}", launch.args)
    };
    let [tile_m, tile_n, kernel_h, kernel_w] = ["TILE_M", "TILE_N", "KERNEL_H", "KERNEL_W"].map(define);
    let tiles_n = (define("K_OUT") + tile_n - 1) / tile_n;
    let steps_c = (define("C_IN") + 63) / 64;
    let value = |data: &[f32], map: &TensorMap, at: &[i64]| offset(map, at).map_or(0.0, |i| f64::from(data[i]));
    for tile in 0..i64::from(*tiles) {
        let (channel, pixel) = (tile % tiles_n * tile_n, tile / tiles_n * tile_m);
        let mut sums = vec![0.0; (tile_m * tile_n) as usize];
        for step in 0..kernel_h * kernel_w * steps_c {
            let (c, tap) = (step % steps_c * 64, step / steps_c);
            let rows: Vec<Vec<i64>> = if define("IM2COL") == 1 {
                let [p, q] = ["OUT_H", "OUT_W"].map(define);
                let w = pixel % q * define("STRIDE_W") - define("PAD_W");
                let h = pixel / q % p * define("STRIDE_H") - define("PAD_H");
                let right = tap % kernel_w * define("DILATION_W");
                let down = tap / kernel_w * define("DILATION_H");
                let walk = pixels(x_map, [w, h, pixel / (p * q)]);
                walk.into_iter().map(|[w, h, n]| vec![w + right, h + down, n]).collect()
            } else {
                (pixel..pixel + tile_m).map(|row| vec![row]).collect()
            };
            for k in 0..64 {
                let column: Vec<f64> = (0..tile_n).map(|n| value(weights, w_map, &[c + k, tap, channel + n])).collect();
                for (row, sums) in rows.iter().zip(sums.chunks_mut(tile_n as usize)) {
                    let x = value(x, x_map, &[&[c + k], &row[..]].concat());
                    sums.iter_mut().zip(&column).for_each(|(sum, w)| *sum += x * w);
                }
            }
        }
        for (row, sums) in sums.chunks(tile_n as usize).enumerate() {
            for (column, &sum) in sums.iter().enumerate() {
                if let Some(i) = offset(y_map, &[channel + column as i64, pixel + row as i64]) {
                    assert!(y[i].is_nan(), "written twice");
                    y[i] = sum;
                }
            }
        }
    }
}

fn gold(d: &Conv, pitch: usize, x: &[f32], weights: &[f32]) -> Vec<f64> {
    let mut y = Vec::new();
    for pixel in 0..d.n * d.p * d.q {
        let (n, p, q) = (pixel / (d.p * d.q), pixel / d.q % d.p, pixel % d.q);
        for k in 0..d.k {
            let mut sum = 0.0;
            for (r, s) in (0..d.r).flat_map(|r| (0..d.s).map(move |s| (r, s))) {
                let h = (p * d.stride[0] + r * d.dilation[0]).wrapping_sub(d.pad[0]);
                let w = (q * d.stride[1] + s * d.dilation[1]).wrapping_sub(d.pad[1]);
                if h < d.h && w < d.w {
                    let x = &x[((n * d.h + h) * d.w + w) * pitch..][..d.c];
                    let weights = &weights[((k * d.r + r) * d.s + s) * d.c..][..d.c];
                    sum += x.iter().zip(weights).map(|(x, w)| f64::from(x * w)).sum::<f64>();
                }
            }
            y.push(sum);
        }
    }
    y
}

/// Every element once, with the right sum.
fn check(desc: &Conv, pitch: usize) {
    let lowered = with_step(desc, pitch, DType::F16, |step| lower(step, desc, &HOPPER)).expect("fits");
    let x = values(desc.n * desc.h * desc.w * pitch, 3);
    let weights = &lowered.constants[0].constant.data;
    let mut y = vec![f64::NAN; desc.n * desc.p * desc.q * desc.k];
    run(&lowered.launches[0], &x, weights, &mut y);
    assert!(y == gold(desc, pitch, &x, weights), "{desc:?}");
}

#[test]
fn matrices_with_tails() {
    for (n, c, k) in [(1, 8, 8), (3, 64, 64), (2, 72, 136), (1, 200, 24)] {
        check(&conv(n, [5, 7], [c, k], [1, 1]), c);
        check(&conv(n, [5, 7], [c, k], [1, 1]), c + 16);
    }
}

#[test]
fn windows_with_strides_pads_dilations() {
    let base = |p, q, r, s| conv(2, [p, q], [64, 16], [r, s]);
    check(&base(5, 7, 3, 3), 64);
    check(&conv(3, [4, 5], [40, 72], [3, 3]), 48);
    // Rows below and to the right that nothing reads, and padding on one side alone.
    check(&Conv { h: 9, w: 12, ..base(5, 7, 3, 3) }, 64);
    check(&Conv { h: 5, w: 9, pad: [2, 0], ..base(5, 7, 3, 3) }, 64);
    check(&Conv { h: 7, w: 7, pad: [0, 2], ..base(5, 7, 3, 3) }, 64);
    for stride in [[2, 2], [1, 3], [8, 1]] {
        let [h, w] = [4 * stride[0] + 1, 6 * stride[1] + 1];
        check(&Conv { h, w, stride, ..base(5, 7, 3, 3) }, 64);
        check(&Conv { h: h + 1, w, stride, ..base(5, 7, 1, 1) }, 64);
    }
    for dilation in [[2, 2], [3, 1], [1, 6]] {
        check(&Conv { pad: dilation, dilation, ..base(5, 7, 3, 3) }, 64);
    }
    check(&Conv { h: 3, w: 5, pad: [1, 1], ..base(5, 7, 1, 1) }, 64);
    check(&base(1, 1, 7, 7), 64);
    check(&base(3, 9, 1, 5), 64);
    check(&base(9, 3, 4, 2), 64);
}

#[test]
fn what_does_not_fit_is_left_to_others() {
    let desc = conv(1, [6, 6], [64, 64], [3, 3]);
    assert!(
        lowered(&desc, &HOPPER).is_some() && lowered(&desc, &Target { precision: Precision::Bf16, ..HOPPER }).is_some()
    );
    let targets = [
        Target { portable: true, ..HOPPER },
        Target { precision: Precision::Fp32, ..HOPPER },
        Target { precision: Precision::Tf32, ..HOPPER },
        Target { arch: Arch { major: 8, minor: 9 }, ..HOPPER },
        Target { arch: Arch { major: 10, minor: 0 }, ..HOPPER },
    ];
    for target in targets {
        assert!(lowered(&desc, &target).is_none(), "{target:?}");
    }
    let convs = [
        Conv { groups: 2, ..desc },
        Conv { c: 36, ..desc },
        Conv { k: 36, ..desc },
        // More than half of the products would be with zeros.
        Conv { c: 24, ..desc },
        // Beyond what a map can say.
        Conv { stride: [9, 1], h: 46, ..desc },
        Conv { pad: [129, 1], ..desc },
        Conv { dilation: [1, 128], w: 260, ..desc },
        Conv { w: 400, ..desc },
    ];
    for desc in convs {
        assert!(lowered(&desc, &HOPPER).is_none(), "{desc:?}");
    }
    let of = |pitch, dtype| with_step(&desc, pitch, dtype, |step| lower(step, &desc, &HOPPER));
    assert!(of(68, DType::F16).is_none(), "rows at odd addresses");
    assert!(of(64, DType::F32).is_none(), "another type");
}

#[test]
fn operands_are_found_behind_one_another() {
    let epilogue = |bias, residual| Epilogue { bias, residual, activation: Some(Unary::Relu) };
    for (bias, residual, at) in [(true, true, 3), (false, true, 2), (true, false, 0), (false, false, 0)] {
        let desc = Conv { epilogue: epilogue(bias, residual), ..conv(2, [6, 6], [64, 64], [3, 3]) };
        let lowered = lowered(&desc, &HOPPER).expect("fits");
        assert_eq!(lowered.constants.len(), 1 + usize::from(bias));
        let args = &lowered.launches[0].args;
        let Arg::Map(map) = &args[3] else { panic!("{args:?}") };
        assert_eq!(*map.base, if residual { Arg::Input(at) } else { Arg::Output });
        assert_eq!(args[4], if bias { Arg::Packed(1) } else { Arg::Null });
    }
}

/// Over shapes and batches: what is asked of a block, and that a layer's kernel is the same where its tile is.
#[test]
fn blocks_fit_and_kernels_are_shared() {
    let mut kernels: Vec<KernelSpec> = Vec::new();
    for (size, c, k, taps) in [(56, 64, 64, 3), (56, 64, 256, 1), (28, 512, 128, 1), (14, 256, 256, 3), (7, 2048, 8, 1)]
    {
        let before = kernels.len();
        for n in [1, 2, 16, 64, 256] {
            let epilogue = Epilogue { bias: true, residual: n % 2 == 0, activation: None };
            let desc = Conv { epilogue, ..conv(n, [size, size], [c, k], [taps, taps]) };
            let launch = lowered(&desc, &HOPPER).expect("fits").launches.remove(0);
            assert!(launch.shared_bytes <= HOPPER.shared_bytes && launch.block == 384 && launch.overlaps);
            let Arg::I32(tiles) = launch.args[5] else { panic!("{:?}", launch.args) };
            assert_eq!(launch.grid, [tiles.unsigned_abs().min(132), 1, 1]);
            assert!(launch.kernel.defines.is_sorted());
            if !kernels.contains(&launch.kernel) {
                kernels.push(launch.kernel);
            }
        }
        assert!(kernels.len() - before < 5, "a kernel for every batch");
    }
    assert!(lowered(&conv(1, [7, 7], [64, 64], [1, 1]), &Target { shared_bytes: 48 << 10, ..HOPPER }).is_none());
}
