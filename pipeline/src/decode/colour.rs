//! Colour conversions to RGB8, written out where the decoders do none or another one than Pillow.

/// One pixel of Y Cb Cr as R G B, with libjpeg's integer arithmetic (ITU-R BT.601, full range; 16 fraction bits).
pub(super) fn ycc_to_rgb([y, cb, cr]: [u8; 3]) -> [u8; 3] {
    // 1.402, 0.344136, 0.714136, 1.772 in units of 2^-16, as jdcolor.c has them.
    const HALF: i32 = 1 << 15;
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let r = y + ((91_881 * cr + HALF) >> 16);
    let g = y + ((-22_554 * cb - 46_802 * cr + HALF) >> 16);
    let b = y + ((116_130 * cb + HALF) >> 16);
    [r, g, b].map(|v| v.clamp(0, 255) as u8)
}

/// The four-component kinds of JPEG. All amounts of ink are stored inverted (0 is full): Adobe began it, and Pillow and
/// djpeg take every file so, with an Adobe segment or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FourColour {
    /// C, M, Y, K.
    Cmyk,
    /// C, M, Y as Y, Cb, Cr, taken from `255 - C` and so on as from R, G, B; K.
    Ycck,
}

/// Four components a pixel to R G B, as Pillow's `convert("RGB")` does after libjpeg: `R = W - C * W / 255` with the
/// amount of ink C and `W = 255 - K`, the quotient rounded.
pub(super) fn four_to_rgb(pixels: &[[u8; 4]], kind: FourColour) -> Vec<u8> {
    let mut rgb = vec![0; 3 * pixels.len()];
    for (out, &[a, b, c, white]) in rgb.as_chunks_mut::<3>().0.iter_mut().zip(pixels) {
        let ink = match kind {
            FourColour::Cmyk => [a, b, c].map(|v| 255 - v),
            FourColour::Ycck => ycc_to_rgb([a, b, c]),
        };
        *out = ink.map(|v| white - mul_div_255(v, white));
    }
    rgb
}

/// `a * b / 255`, rounded.
fn mul_div_255(a: u8, b: u8) -> u8 {
    let t = u32::from(a) * u32::from(b) + 128;
    (((t >> 8) + t) >> 8) as u8
}

/// A value with alpha (255: opaque) over a background.
pub(super) fn over(value: u8, alpha: u8, background: u8) -> u8 {
    let t = u32::from(value) * u32::from(alpha) + u32::from(background) * (255 - u32::from(alpha)) + 128;
    (((t >> 8) + t) >> 8) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_rounded_quotients() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let exact = (f64::from(a) * f64::from(b) / 255.0).round() as u8;
                assert_eq!(mul_div_255(a, b), exact, "{a} * {b}");
                for background in [0, 1, 128, 254, 255] {
                    let alpha = f64::from(b) / 255.0;
                    let exact = f64::from(a) * alpha + f64::from(background) * (1.0 - alpha);
                    // A half may round either way in binary fractions.
                    let distance = (f64::from(over(a, b, background)) - exact).abs();
                    assert!(distance <= 0.5 + 1e-9, "{a} over {background} with {b}");
                }
            }
        }
    }

    #[test]
    fn ycc_is_the_standard_matrix() {
        for y in (0..=255).step_by(5) {
            for cb in (0..=255).step_by(5) {
                for cr in (0..=255).step_by(5) {
                    let (b, r) = (f64::from(cb) - 128.0, f64::from(cr) - 128.0);
                    let luma = f64::from(y);
                    let exact = [luma + 1.402 * r, luma - 0.344_136 * b - 0.714_136 * r, luma + 1.772 * b];
                    let got = ycc_to_rgb([y as u8, cb as u8, cr as u8]);
                    for (got, exact) in got.iter().zip(exact) {
                        assert!((f64::from(*got) - exact.clamp(0.0, 255.0)).abs() <= 0.51, "{y} {cb} {cr}");
                    }
                }
            }
        }
    }

    #[test]
    fn four_colours_meet_at_the_corners() {
        let one = |pixel, kind| four_to_rgb(&[pixel], kind);
        assert_eq!(one([255, 255, 255, 255], FourColour::Cmyk), [255, 255, 255]);
        assert_eq!(one([0, 255, 255, 255], FourColour::Cmyk), [0, 255, 255]);
        assert_eq!(one([9, 9, 9, 0], FourColour::Cmyk), [0, 0, 0]);
        // Luma 255 is the stored value 0 of all three inks, that is full ink.
        assert_eq!(one([255, 128, 128, 255], FourColour::Ycck), [0, 0, 0]);
        assert_eq!(one([0, 128, 128, 255], FourColour::Ycck), [255, 255, 255]);
    }
}
