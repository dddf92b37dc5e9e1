//! Turning a picture upright.

pub use ocellus_kernels::picture::Orientation;

/// Turns an RGB8 picture of `width` x `height` pixels; gives the pixels and their new width and height.
///
/// Flips and half turns work in place; the four orientations that swap the axes need a second buffer of the same size.
pub(super) fn apply(mut rgb: Vec<u8>, width: u32, height: u32, orientation: Orientation) -> (Vec<u8>, u32, u32) {
    let (columns, rows) = (width as usize, height as usize);
    let (pixels, _) = rgb.as_chunks_mut::<3>();
    match orientation {
        Orientation::Upright => {}
        Orientation::FlipHorizontal => pixels.chunks_exact_mut(columns).for_each(<[_]>::reverse),
        Orientation::Rotate180 => pixels.reverse(),
        Orientation::FlipVertical => {
            let (top, bottom) = pixels.split_at_mut(rows / 2 * columns);
            for (a, b) in top.chunks_exact_mut(columns).zip(bottom.rchunks_exact_mut(columns)) {
                a.swap_with_slice(b);
            }
        }
        Orientation::Transpose => return (transpose(pixels, columns, rows), height, width),
        Orientation::Transverse => {
            pixels.reverse();
            return (transpose(pixels, columns, rows), height, width);
        }
        Orientation::Rotate90 => {
            // A clockwise quarter turn is a vertical flip, then a transposition.
            let (flipped, ..) = apply(rgb, width, height, Orientation::FlipVertical);
            return apply(flipped, width, height, Orientation::Transpose);
        }
        Orientation::Rotate270 => {
            let (flipped, ..) = apply(rgb, width, height, Orientation::FlipHorizontal);
            return apply(flipped, width, height, Orientation::Transpose);
        }
    }
    (rgb, width, height)
}

/// Rows become columns.
fn transpose(pixels: &[[u8; 3]], columns: usize, rows: usize) -> Vec<u8> {
    /// Square tiles of this side keep both the read and the written lines in the first-level cache.
    const TILE: usize = 32;
    let mut out = vec![0; 3 * columns * rows];
    let (out_pixels, _) = out.as_chunks_mut::<3>();
    for y0 in (0..rows).step_by(TILE) {
        for x0 in (0..columns).step_by(TILE) {
            for x in x0..columns.min(x0 + TILE) {
                for y in y0..rows.min(y0 + TILE) {
                    out_pixels[x * rows + y] = pixels[y * columns + x];
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_orientation_at_many_sizes() {
        for (w, h) in [(1, 1), (1, 5), (5, 1), (2, 3), (3, 2), (4, 4), (31, 33), (32, 64), (65, 40)] {
            let pixel = |x: u32, y: u32| [x as u8, y as u8, (7 * x + 13 * y) as u8];
            let rgb: Vec<u8> = (0..h).flat_map(|y| (0..w).flat_map(move |x| pixel(x, y))).collect();
            for value in 1..=8 {
                let orientation = Orientation::from_exif(value).unwrap();
                let (out, out_w, out_h) = apply(rgb.clone(), w, h, orientation);
                let swapped = (5..=8).contains(&value);
                assert_eq!((out_w, out_h), if swapped { (h, w) } else { (w, h) });
                // EXIF 2.32, 4.6.4: where row 0 and column 0 of the stored picture are seen.
                for y in 0..out_h {
                    for x in 0..out_w {
                        let (sx, sy) = match value {
                            1 => (x, y),
                            2 => (w - 1 - x, y),
                            3 => (w - 1 - x, h - 1 - y),
                            4 => (x, h - 1 - y),
                            5 => (y, x),
                            6 => (y, h - 1 - x),
                            7 => (w - 1 - y, h - 1 - x),
                            _ => (w - 1 - y, x),
                        };
                        let at = 3 * (y * out_w + x) as usize;
                        assert_eq!(out[at..at + 3], pixel(sx, sy), "orientation {value}, {w}x{h} at {x},{y}");
                    }
                }
            }
        }
    }
}
