//! Elementary functions in plain f32 operations without branches, so that loops over them vectorise.
//!
//! Range reductions are the textbook ones; the polynomials interpolate at Chebyshev nodes, relative errors below
//! 2e-7. Accurate to about 1e-6 relative over the whole range unless stated otherwise, infinities, NaN and subnormal
//! numbers included.

/// Adding and subtracting it rounds an f32 of magnitude below 2^22 to a whole number (1.5 x 2^23).
const ROUND: f32 = 12_582_912.0;

/// ln 2 in two parts: multiples of the first by whole numbers up to 2^8 are exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;

/// c0 + c1 x + c2 x^2 + ...
#[inline(always)]
fn poly<const N: usize>(x: f32, c: [f32; N]) -> f32 {
    c.into_iter().rev().fold(0.0, |sum, c| sum * x + c)
}

/// e^r - 1 for |r| <= ln 2 / 2.
#[inline(always)]
fn exp_m1_reduced(r: f32) -> f32 {
    r + r * r * poly(r, [0.5, 0.166_665_77, 0.041_666_556, 0.008_363_178, 0.001_392_618_2])
}

/// 2^n for -126 <= n <= 127.
#[inline(always)]
fn pow2(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// e^x.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    // e^x rounds to 0 below and to infinity above. Written so that NaN passes.
    let x = if x < -104.0 { -104.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = (rounded.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let whole = rounded - ROUND;
    let r = (x - whole * LN2_HIGH) - whole * LN2_LOW;
    // In two factors, since n reaches -150 (subnormal results) and 128.
    let half = n >> 1;
    (1.0 + exp_m1_reduced(r)) * pow2(half) * pow2(n.wrapping_sub(half))
}

/// e^x - 1.
#[inline(always)]
pub(super) fn exp_m1(x: f32) -> f32 {
    if x.abs() < 0.34 { exp_m1_reduced(x) } else { exp(x) - 1.0 }
}

/// Natural logarithm.
#[inline(always)]
pub(super) fn ln(x: f32) -> f32 {
    let subnormal = x < f32::MIN_POSITIVE;
    let scaled = if subnormal { x * 8_388_608.0 } else { x };
    // Exponent and mantissa such that the mantissa lies in [sqrt 1/2, sqrt 2).
    let bits = (scaled.to_bits() as i32).wrapping_sub(std::f32::consts::FRAC_1_SQRT_2.to_bits() as i32);
    let exponent = (bits >> 23) as f32 - if subnormal { 23.0 } else { 0.0 };
    let mantissa = f32::from_bits((bits & 0x007f_ffff).wrapping_add(0x3f35_04f3) as u32);
    let f = mantissa - 1.0;
    let tail = poly(
        f,
        [
            0.333_333_3,
            -0.249_999_97,
            0.200_007_16,
            -0.166_678_02,
            0.142_490_58,
            -0.124_256_87,
            0.116_854_2,
            -0.114_797_34,
            0.069_716_11,
        ],
    );
    let y = exponent * LN2_HIGH + (f + (f * f * (f * tail - 0.5) + exponent * LN2_LOW));
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x >= 0.0 { y } else { f32::NAN }
}

/// ln(1 + x) for 0 <= x <= 1.
#[inline(always)]
fn ln_1p(x: f32) -> f32 {
    // The rounding error of 1 + x cancels in the quotient.
    let u = 1.0 + x;
    if u == 1.0 { x } else { ln(u) * (x / (u - 1.0)) }
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    let e = exp(-x.abs());
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

/// Hyperbolic tangent.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let x2 = x * x;
    let small = x + x * x2 * poly(x2, [-0.333_333_3, 0.133_327_7, -0.053_850_91, 0.020_997_18, -0.006_096_714]);
    let large = (1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0)).copysign(x);
    if x.abs() < 0.625 { small } else { large }
}

/// Error function.
#[inline(always)]
pub(super) fn erf(x: f32) -> f32 {
    let x2 = x * x;
    let small = x * poly(
        x2,
        [
            std::f32::consts::FRAC_2_SQRT_PI,
            -0.376_126_26,
            0.112_835_95,
            -0.026_854_212,
            0.005_189_087_4,
            -8.016_864_4e-4,
            7.875_875e-5,
        ],
    );
    // 1 - e^-q(|x|); erf(4) rounds to 1.
    let a = x.abs();
    let a = if a > 4.0 { 4.0 } else { a };
    let q = poly(
        a,
        [
            -3.201_380_5e-4,
            1.130_233_4,
            0.631_826_05,
            0.110_080_086,
            -0.026_421_136,
            0.004_759_596,
            -5.968_056e-4,
            4.605_804e-5,
            -1.637_151_4e-6,
        ],
    );
    let large = (1.0 - exp(-q)).copysign(x);
    if x.abs() < 1.0 { small } else { large }
}

/// ln(1 + e^x).
#[inline(always)]
pub(super) fn softplus(x: f32) -> f32 {
    let y = (if x > 0.0 { x } else { 0.0 }) + ln_1p(exp(-x.abs()));
    if x.is_nan() { x } else { y }
}

/// x tanh(ln(1 + e^x)) = x n / (n + 2), n = e^x (e^x + 2).
#[inline(always)]
pub(super) fn mish(x: f32) -> f32 {
    // The quotient is 1 from 20 on.
    let e = exp(if x > 20.0 { 20.0 } else { x });
    let n = e * (e + 2.0);
    x * (n / (n + 2.0))
}

/// x (1 + erf(x / sqrt 2)) / 2. Below 0 the error is 1e-7 |x|: 1 + erf cancels.
#[inline(always)]
pub(super) fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

/// x (1 + tanh u) / 2 = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3).
#[inline(always)]
pub(super) fn gelu_tanh(x: f32) -> f32 {
    const TWICE_SQRT_2_OVER_PI: f32 = 1.595_769;
    x * sigmoid(TWICE_SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every 2^10th bit pattern of f32: all exponents, both signs, subnormal numbers, infinities and NaN.
    fn sweep() -> impl Iterator<Item = f32> {
        (0..1u32 << 22).map(|i| f32::from_bits((i << 10) | (i % 1021))).chain([
            f32::INFINITY,
            f32::NEG_INFINITY,
            0.0,
            -0.0,
        ])
    }

    /// Largest error of `f` against `want`: `limit` relative, or `steps` times the smallest subnormal number.
    fn check(name: &str, limit: f64, steps: f64, f: fn(f32) -> f32, want: fn(f64) -> f64) {
        let mut worst = (0.0, 0.0);
        for x in sweep() {
            let (got, want) = (f(x), want(f64::from(x)));
            assert_eq!(got.is_nan(), want.is_nan(), "{name}({x:e}) = {got}, not {want}");
            if want.is_nan() || f64::from(got) == want || got == want as f32 {
                continue;
            }
            let error = (f64::from(got) - want).abs() / want.abs().max(f64::from(f32::from_bits(1)) * steps / limit);
            if error.total_cmp(&worst.0).is_gt() {
                worst = (error, x);
            }
        }
        assert!(worst.0 <= limit, "{name}: relative error {:e} at {:e}", worst.0, worst.1);
    }

    #[test]
    fn exponential() {
        check("exp", 3e-7, 1.01, exp, f64::exp);
        check("exp_m1", 5e-7, 1.01, exp_m1, f64::exp_m1);
    }

    #[test]
    fn logarithm() {
        check("ln", 3e-7, 1.01, ln, f64::ln);
    }

    #[test]
    fn saturating() {
        check("sigmoid", 5e-7, 1.01, sigmoid, |x| 1.0 / (1.0 + (-x).exp()));
        check("tanh", 5e-7, 1.01, tanh, f64::tanh);
        check("softplus", 1e-6, 1.01, softplus, |x| {
            x.max(0.0) + (-x.abs()).exp().ln_1p() + if x.is_nan() { x } else { 0.0 }
        });
    }

    #[test]
    fn products() {
        let silu: fn(f64) -> f64 = |x| if x == f64::NEG_INFINITY { f64::NAN } else { x / (1.0 + (-x).exp()) };
        check("silu", 1e-6, 64.0, |x| x * sigmoid(x), silu);
        let mish_f64: fn(f64) -> f64 = |x| x * if x > 300.0 { 1.0 } else { x.exp().ln_1p().tanh() };
        check("mish", 1e-6, 64.0, mish, mish_f64);
    }

    /// erf by its Maclaurin series, or the continued fraction of erfc.
    fn erf_f64(x: f64) -> f64 {
        let a = x.abs();
        let y = if a < 2.5 {
            let (mut term, mut sum) = (a, a);
            for n in 1..60 {
                term *= -a * a / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            sum * std::f64::consts::FRAC_2_SQRT_PI
        } else if a.is_finite() {
            let fraction = (1..60).rev().fold(a, |tail, n| a + f64::from(n) / 2.0 / tail);
            1.0 - (-a * a).exp() / fraction / std::f64::consts::PI.sqrt()
        } else {
            a / a.max(1.0) * if a.is_infinite() { return 1f64.copysign(x) } else { 1.0 }
        };
        y.copysign(x)
    }

    #[test]
    fn error_function() {
        check("erf", 5e-7, 1.01, erf, |x| if x.is_nan() { x } else { erf_f64(x) });
    }

    #[test]
    fn gaussian_units() {
        let mut worst = 0.0f64;
        for x in sweep().filter(|x| x.abs() < 1e4) {
            let d = f64::from(x);
            let want = 0.5 * d * (1.0 + erf_f64(d * std::f64::consts::FRAC_1_SQRT_2));
            worst = worst.max((f64::from(gelu(x)) - want).abs() / (d.abs() + 1e-30));
        }
        assert!(worst < 4e-7, "gelu: {worst:e} of |x|");
        let u = |x: f64| (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
        for x in sweep().filter(|x| x.abs() < 6.0) {
            let d = f64::from(x);
            let want = d / (1.0 + (-2.0 * u(d)).exp());
            let error = (f64::from(gelu_tanh(x)) - want).abs();
            // The exponent's own rounding error grows with it.
            assert!(error <= 8e-6 * want.abs() + 1e-44, "gelu_tanh({x:e}): {error:e} of {want:e}");
        }
    }
}
