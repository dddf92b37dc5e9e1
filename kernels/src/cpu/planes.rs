//! From planes to upright RGB pixels, with the arithmetic of libjpeg (`jdsample.c`, `jdcolor.c`).
//!
//! Chroma of half the width or height is interpolated with weights 3 : 1 towards the nearer neighbour, edge samples
//! repeated; the sums 3 near + far of both rows and then of both columns are rounded once, up or down by turns:
//!
//! | | even column or row | odd |
//! | --- | --- | --- |
//! | 4:2:2, along rows | `(sum + 1) >> 2` | `(sum + 2) >> 2` |
//! | 4:4:0, along columns | `(sum + 1) >> 2` | `(sum + 2) >> 2` |
//! | 4:2:0 | `(sum + 8) >> 4` | `(sum + 7) >> 4`, by columns |
//!
//! 4:1:1, 4:1:0, and 4:2:2 and 4:2:0 of two chroma columns or fewer, repeat each sample. Colours are BT.601, full range, in
//! fixed point with 16 fractional bits.

use crate::error::KernelError;
use crate::picture::{PictureDesc, PixelFormat};

/// One plane's samples.
#[derive(Clone, Copy, Debug)]
pub struct Plane<'a> {
    /// Rows, `pitch_bytes` from one to the next.
    pub data: &'a [u8],
    /// Distance of rows.
    pub pitch_bytes: usize,
}

impl<'a> Plane<'a> {
    fn row(&self, y: usize) -> &'a [u8] {
        &self.data[y * self.pitch_bytes..]
    }
}

/// The picture as upright RGB pixels, row by row.
///
/// # Errors
/// Where the picture is empty or a plane is missing or too small.
pub fn to_rgb(desc: &PictureDesc, planes: &[Plane<'_>]) -> Result<Vec<u8>, KernelError> {
    check(desc, planes)?;
    let [width, height] = desc.upright_size();
    let [flip_x, flip_y] = desc.orientation.flips();
    let mut stored = vec![[0; 3]; desc.width_px];
    let mut rgb = vec![0; width * height * 3];
    let pixels = rgb.as_chunks_mut::<3>().0;
    for y in 0..desc.height_px {
        read_row(desc, planes, y, &mut stored);
        if flip_x {
            stored.reverse();
        }
        let line = if flip_y { desc.height_px - 1 - y } else { y };
        if desc.orientation.swaps_axes() {
            pixels[line..].iter_mut().step_by(width).zip(&stored).for_each(|(to, from)| *to = *from);
        } else {
            pixels[line * width..][..width].copy_from_slice(&stored);
        }
    }
    Ok(rgb)
}

fn check(desc: &PictureDesc, planes: &[Plane<'_>]) -> Result<(), KernelError> {
    let fail = |why: String| Err(KernelError::invalid("picture", why));
    if desc.width_px == 0 || desc.height_px == 0 {
        return fail(format!("it has {} x {} pixels", desc.width_px, desc.height_px));
    }
    if planes.len() < desc.planes() {
        return fail(format!("{} planes instead of {}", planes.len(), desc.planes()));
    }
    for (i, plane) in planes[..desc.planes()].iter().enumerate() {
        let [row_bytes, rows] = desc.plane_size(i);
        let needed = (rows - 1).checked_mul(plane.pitch_bytes).and_then(|n| n.checked_add(row_bytes));
        if plane.pitch_bytes < row_bytes || needed.is_none_or(|needed| plane.data.len() < needed) {
            let have = format!("{} bytes, {} a row", plane.data.len(), plane.pitch_bytes);
            return fail(format!("plane {i} has {have}, too few for {rows} rows of {row_bytes}"));
        }
    }
    Ok(())
}

/// Stored row `y` as RGB pixels.
fn read_row(desc: &PictureDesc, planes: &[Plane<'_>], y: usize, out: &mut [[u8; 3]]) {
    let luma = planes[0].row(y);
    match desc.format {
        PixelFormat::Rgb => out.copy_from_slice(&luma.as_chunks::<3>().0[..out.len()]),
        PixelFormat::Gray => out.iter_mut().zip(luma).for_each(|(out, &v)| *out = [v; 3]),
        PixelFormat::Ycc(_) => {
            let [cb, cr] = [1, 2].map(|i| Chroma::new(desc, y, |row| planes[i].row(row), 1));
            write_row(luma, &cb, &cr, out);
        }
        PixelFormat::Nv12 => {
            let [cb, cr] = [0, 1].map(|i| Chroma::new(desc, y, |row| &planes[1].row(row)[i..], 2));
            write_row(luma, &cb, &cr, out);
        }
    }
}

fn write_row(luma: &[u8], cb: &Chroma<'_>, cr: &Chroma<'_>, out: &mut [[u8; 3]]) {
    for (x, (out, &luma)) in out.iter_mut().zip(luma).enumerate() {
        *out = colour(luma, cb.at(x), cr.at(x));
    }
}

/// One component's interpolated samples of a luma row.
struct Chroma<'a> {
    near: &'a [u8],
    /// The row next near, or the same where there is none or rows are not interpolated.
    far: &'a [u8],
    /// Bytes from sample to sample.
    step: usize,
    columns: usize,
    /// Luma columns a sample.
    across: usize,
    /// Interpolated along rows and along columns.
    smooth: [bool; 2],
    odd_row: bool,
}

impl<'a> Chroma<'a> {
    fn new(desc: &PictureDesc, y: usize, row: impl Fn(usize) -> &'a [u8], step: usize) -> Self {
        let [columns, rows] = desc.chroma_size();
        let [across, down] = desc.chroma_factors().unwrap_or([1; 2]);
        let interpolated = across == 1 || across == 2 && columns > 2;
        let smooth = [across == 2, down == 2].map(|halved| halved && interpolated);
        let near = y / down;
        let odd_row = down == 2 && y % 2 == 1;
        let far = match (smooth[1], odd_row) {
            (false, _) => near,
            (true, true) => (near + 1).min(rows - 1),
            (true, false) => near.saturating_sub(1),
        };
        Self { near: row(near), far: row(far), step, columns, across, smooth, odd_row }
    }

    /// Chroma at luma column `x`.
    fn at(&self, x: usize) -> u8 {
        let column = x / self.across;
        // Four times the interpolation of both rows at a column.
        let sum = |i: usize| 3 * u32::from(self.near[i * self.step]) + u32::from(self.far[i * self.step]);
        let odd = x % 2 == 1;
        let beside = if odd { (column + 1).min(self.columns - 1) } else { column.saturating_sub(1) };
        let value = match self.smooth {
            [false, false] => sum(column) >> 2,
            [false, true] => (sum(column) + if self.odd_row { 2 } else { 1 }) >> 2,
            [true, false] => ((3 * sum(column) + sum(beside)) / 4 + if odd { 2 } else { 1 }) >> 2,
            [true, true] => (3 * sum(column) + sum(beside) + if odd { 7 } else { 8 }) >> 4,
        };
        value as u8
    }
}

/// `round(x * 2^16)` as libjpeg writes its constants.
const fn fix(x: f64) -> i32 {
    (x * 65536.0 + 0.5) as i32
}

fn colour(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    const HALF: i32 = 1 << 15;
    let [y, cb, cr] = [i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128];
    let red = y + ((fix(1.402) * cr + HALF) >> 16);
    let green = y + ((-fix(0.34414) * cb - fix(0.71414) * cr + HALF) >> 16);
    let blue = y + ((fix(1.772) * cb + HALF) >> 16);
    [red, green, blue].map(|v| v.clamp(0, 255) as u8)
}
