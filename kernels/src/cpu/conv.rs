//! 2-D convolution.
//!
//! Every convolution but the depthwise ones is a product of a matrix with one row an output pixel, read in place: a row
//! is the input pixels under the kernel's taps, one after another, and packed weights.

use super::depthwise::PackedDepthwise;
use super::matrix::{DenseRows, Finish, PackedMatrix, Rows};
use super::par::Par;
use super::tile_simd::{MAX_ROWS, PADDING, Tile};
use super::vector_simd::Isa;
use crate::op::Conv;
use crate::plan::Constant;

/// A convolution with its weights packed.
pub(super) struct PackedConv {
    desc: Conv,
    kind: Kind,
}

enum Kind {
    /// The right matrix of each group.
    Product(Vec<PackedMatrix>),
    Depthwise(PackedDepthwise),
}

impl PackedConv {
    pub(super) fn new(desc: &Conv, weights: &Constant, isa: Isa) -> Self {
        let Conv { c, k, r, s, groups, .. } = *desc;
        let kind = if groups == c && k == c && groups > 1 {
            Kind::Depthwise(PackedDepthwise::new(desc, weights, isa))
        } else {
            let (group_k, depth) = (k / groups, r * s * (c / groups));
            let longest = if groups == 1 { s * c } else { c / groups };
            let matrix = |g: usize| {
                let weights = &weights.data[g * group_k * depth..];
                PackedMatrix::new(isa, depth, group_k, longest, |row, col| weights[col * depth + row])
            };
            Kind::Product((0..groups).map(matrix).collect())
        };
        Self { desc: *desc, kind }
    }

    pub(super) fn run(&self, x: &[f32], bias: Option<&[f32]>, residual: Option<&[f32]>, y: &mut [f32], par: Par) {
        let Conv { c, k, groups, epilogue, .. } = self.desc;
        let finish = Finish { bias, residual, activation: epilogue.activation };
        let matrices = match &self.kind {
            Kind::Depthwise(packed) => return packed.run(x, &finish, y, par),
            Kind::Product(matrices) => matrices,
        };
        let len = c / groups;
        for (g, matrix) in matrices.iter().enumerate() {
            let first_col = g * matrix.cols();
            if is_pointwise(&self.desc) {
                let rows = DenseRows { x, stride: c, start: g * len, len };
                matrix.multiply(&rows, &finish, y, k, first_col, par);
            } else {
                let rows = ConvRows { desc: &self.desc, x, start: g * len, len };
                matrix.multiply(&rows, &finish, y, k, first_col, par);
            }
        }
    }
}

/// True where output pixels are products of single input pixels at the same place.
fn is_pointwise(d: &Conv) -> bool {
    (d.r, d.s, d.stride, d.pad) == (1, 1, [1, 1], [0, 0]) && (d.p, d.q) == (d.h, d.w)
}

/// The input pixels under the taps of each output pixel.
struct ConvRows<'a> {
    desc: &'a Conv,
    x: &'a [f32],
    /// First channel of the group.
    start: usize,
    /// Channels of the group.
    len: usize,
}

/// Where the first tap of an output pixel lies.
#[derive(Clone, Copy, Default)]
struct Corner {
    /// Offset of the image.
    image: usize,
    /// Input row and column; negative in the padding.
    row: isize,
    col: isize,
}

impl Rows for ConvRows<'_> {
    fn x(&self) -> &[f32] {
        self.x
    }

    fn tile(&self, first: usize, count: usize, offsets: &mut Vec<usize>) -> Tile {
        let Conv { h, w, c, r, s, p, q, stride, pad, dilation, groups, .. } = *self.desc;
        let mut corners = [Corner::default(); MAX_ROWS];
        let (mut n, mut out_row, mut out_col) = (first / (p * q), first / q % p, first % q);
        for corner in &mut corners[..count] {
            *corner = Corner {
                image: n * h * w * c + self.start,
                row: (out_row * stride[0]) as isize - pad[0] as isize,
                col: (out_col * stride[1]) as isize - pad[1] as isize,
            };
            out_col += 1;
            if out_col == q {
                (out_col, out_row) = (0, out_row + 1);
                if out_row == p {
                    (out_row, n) = (0, n + 1);
                }
            }
        }
        let corners = &corners[..count];
        // The taps of one kernel row are one piece of memory where no pixel of the tile is at a border. The products and
        // their order are the same either way.
        let inside = |corner: &Corner| corner.col >= 0 && corner.col as usize + s <= w;
        let (taps, len) =
            if groups == 1 && dilation[1] == 1 && corners.iter().all(inside) { (1, s * c) } else { (s, self.len) };
        for tap_row in 0..r {
            for tap_col in 0..taps {
                let (down, right) = ((tap_row * dilation[0]) as isize, (tap_col * dilation[1]) as isize);
                offsets.extend(corners.iter().map(|corner| {
                    // Negative values become large ones, so that one comparison finds both borders.
                    let (row, col) = ((corner.row + down) as usize, (corner.col + right) as usize);
                    if row < h && col < w { corner.image + (row * w + col) * c } else { PADDING }
                }));
            }
        }
        Tile { rows: count, segments: r * taps, len }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, Random, activate, assert_close, assert_same_bits};
    use super::*;
    use crate::op::{Epilogue, Unary};

    struct Case {
        desc: Conv,
        x: Vec<f32>,
        weights: Constant,
        bias: Option<Vec<f32>>,
        residual: Option<Vec<f32>>,
    }

    impl Case {
        fn new(desc: Conv, random: &mut Random) -> Self {
            let Conv { n, h, w, c, k, r, s, p, q, groups, epilogue, .. } = desc;
            let dims = vec![k, r, s, c / groups];
            let data = random.values(k * r * s * (c / groups)).into();
            Self {
                desc,
                x: random.values(n * h * w * c),
                weights: Constant { dims, data },
                bias: epilogue.bias.then(|| random.values(k)),
                residual: epilogue.residual.then(|| random.values(n * p * q * k)),
            }
        }

        fn gold(&self) -> Vec<(f64, f64)> {
            let Conv { n, h, w, c, k, r, s, p, q, stride, pad, dilation, groups, epilogue } = self.desc;
            let (group_c, group_k) = (c / groups, k / groups);
            let mut out = Vec::new();
            for index in 0..n * p * q * k {
                let (image, row, col, channel) = (index / (p * q * k), index / (q * k) % p, index / k % q, index % k);
                let mut terms = Vec::new();
                for (tap_row, tap_col) in (0..r).flat_map(|i| (0..s).map(move |j| (i, j))) {
                    let in_row = (row * stride[0] + tap_row * dilation[0]).checked_sub(pad[0]).filter(|&i| i < h);
                    let in_col = (col * stride[1] + tap_col * dilation[1]).checked_sub(pad[1]).filter(|&i| i < w);
                    let (Some(in_row), Some(in_col)) = (in_row, in_col) else { continue };
                    for i in 0..group_c {
                        let x = self.x[((image * h + in_row) * w + in_col) * c + channel / group_k * group_c + i];
                        let weight = self.weights.data[((channel * r + tap_row) * s + tap_col) * group_c + i];
                        terms.push(f64::from(x) * f64::from(weight));
                    }
                }
                terms.extend(self.bias.iter().map(|bias| f64::from(bias[channel])));
                terms.extend(self.residual.iter().map(|residual| f64::from(residual[index])));
                let scale = terms.iter().map(|t| t.abs()).sum();
                out.push((activate(epilogue.activation, terms.iter().sum()), scale));
            }
            out
        }

        fn run(&self, isa: Isa) -> Vec<f32> {
            let Conv { n, k, p, q, .. } = self.desc;
            let packed = PackedConv::new(&self.desc, &self.weights, isa);
            testing::run(n * p * q * k, |y, par| {
                packed.run(&self.x, self.bias.as_deref(), self.residual.as_deref(), y, par);
            })
        }

        /// The same with one image only.
        fn image(&self, index: usize) -> Self {
            let Conv { h, w, c, k, p, q, .. } = self.desc;
            Self {
                desc: Conv { n: 1, ..self.desc },
                x: self.x[index * h * w * c..][..h * w * c].to_vec(),
                weights: self.weights.clone(),
                bias: self.bias.clone(),
                residual: self.residual.as_ref().map(|r| r[index * p * q * k..][..p * q * k].to_vec()),
            }
        }

        fn check(&self) {
            let gold = self.gold();
            let mut fused: Option<Vec<f32>> = None;
            for isa in Isa::available() {
                let what = format!("{isa:?} {:?}", self.desc);
                let y = self.run(isa);
                assert_close(&y, &gold, &what);
                for i in 0..self.desc.n {
                    let len = y.len() / self.desc.n;
                    assert_same_bits(&self.image(i).run(isa), &y[i * len..][..len], &format!("{what} image {i}"));
                }
                // All sets with a fused multiply-add round alike.
                if isa != Isa::Plain {
                    assert_same_bits(fused.get_or_insert_with(|| y.clone()), &y, &what);
                }
            }
        }
    }

    /// A description whose output covers all of the input and up to `pad` more below and to the right.
    fn random_desc(random: &mut Random, groups: usize, group_c: usize, group_k: usize) -> Conv {
        loop {
            let stride = [random.size(1, 3), random.size(1, 3)];
            let pad = [random.size(0, 3), random.size(0, 3)];
            let end_pad = [random.size(0, 3), random.size(0, 3)];
            let dilation = [random.pick(&[1, 1, 2, 3]), random.pick(&[1, 1, 2, 3])];
            let (r, s) = (random.size(1, 5), random.size(1, 5));
            let (h, w) = (random.size(1, 14), random.size(1, 30));
            let out = |axis: usize, len: usize, taps: usize| {
                (len + pad[axis] + end_pad[axis])
                    .checked_sub((taps - 1) * dilation[axis] + 1)
                    .map(|l| l / stride[axis] + 1)
            };
            let (Some(p), Some(q)) = (out(0, h, r), out(1, w, s)) else { continue };
            let (c, k) = (groups * group_c, groups * group_k);
            let (n, epilogue) = (random.size(1, 3), testing::random_epilogue(random, true));
            return Conv { n, h, w, c, k, r, s, p, q, stride, pad, dilation, groups, epilogue };
        }
    }

    #[test]
    fn dense_convolutions_agree_with_gold() {
        let mut random = Random::new(1);
        for _ in 0..60 {
            let (c, k) = (random.size(1, 20), random.pick(&[1, 3, 7, 8, 16, 17, 31, 40, 48, 64, 65, 100]));
            Case::new(random_desc(&mut random, 1, c, k), &mut random).check();
        }
    }

    #[test]
    fn grouped_convolutions_agree_with_gold() {
        let mut random = Random::new(2);
        for _ in 0..40 {
            let (groups, c, k) = (random.size(2, 5), random.size(1, 9), random.size(1, 20));
            Case::new(random_desc(&mut random, groups, c, k), &mut random).check();
        }
    }

    #[test]
    fn depthwise_convolutions_agree_with_gold() {
        let mut random = Random::new(3);
        for i in 0..80 {
            let channels = random.pick(&[2, 3, 5, 8, 15, 16, 17, 24, 33, 40, 70]);
            let multiplier = if i % 8 == 0 { 2 } else { 1 };
            Case::new(random_desc(&mut random, channels, 1, multiplier), &mut random).check();
        }
    }

    #[test]
    fn pointwise_convolutions_agree_with_gold() {
        let mut random = Random::new(4);
        for rows in 1..40 {
            let (c, k) = (random.size(1, 70), random.size(1, 130));
            let epilogue = testing::random_epilogue(&mut random, true);
            let (h, w) = if rows % 3 == 0 { (rows / 3, 3) } else { (1, rows) };
            let desc = Conv { h, w, p: h, q: w, ..unit(c, k, epilogue) };
            Case::new(desc, &mut random).check();
        }
    }

    #[test]
    fn large_products_are_cut_into_blocks() {
        let mut random = Random::new(5);
        for (h, c, k) in [(7, 320, 200), (40, 64, 64)] {
            let desc = Conv { n: 2, h, w: h, p: h, q: h, ..unit(c, k, Epilogue::default()) };
            Case::new(desc, &mut random).check();
        }
        let desc = Conv {
            h: 40,
            w: 40,
            p: 40,
            q: 40,
            r: 3,
            s: 3,
            pad: [1, 1],
            groups: 70,
            ..unit(70, 70, Epilogue::default())
        };
        Case::new(desc, &mut random).check();
    }

    #[test]
    fn not_a_number_passes_through() {
        for activation in [None, Some(Unary::Relu), Some(Unary::Clip { min: 0.0, max: 6.0 }), Some(Unary::HardSwish)] {
            for (groups, c) in [(1, 3), (20, 20)] {
                let epilogue = Epilogue { activation, ..Epilogue::default() };
                let mut case = Case::new(Conv { groups, ..unit(c, 20, epilogue) }, &mut Random::new(6));
                case.x.fill(f32::NAN);
                for isa in Isa::available() {
                    assert!(case.run(isa).iter().all(|y| y.is_nan()), "{isa:?} {activation:?}");
                }
            }
        }
    }

    /// One pixel, one tap.
    fn unit(c: usize, k: usize, epilogue: Epilogue) -> Conv {
        let (stride, pad, dilation) = ([1, 1], [0, 0], [1, 1]);
        Conv { n: 1, h: 1, w: 1, c, k, r: 1, s: 1, p: 1, q: 1, stride, pad, dilation, groups: 1, epilogue }
    }
}
