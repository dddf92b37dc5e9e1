//! Decoded pictures as decoders leave them: which planes there are, how large they are, how they must be turned.

/// How many luma samples share a chroma sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChromaSampling {
    /// 1 x 1.
    Y444,
    /// 2 columns.
    Y422,
    /// 2 columns, 2 rows.
    Y420,
    /// 2 rows.
    Y440,
    /// 4 columns.
    Y411,
    /// 4 columns, 2 rows.
    Y410,
}

impl ChromaSampling {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Y444, Self::Y422, Self::Y420, Self::Y440, Self::Y411, Self::Y410];

    /// Luma columns and rows of a chroma sample.
    pub fn factors(self) -> [usize; 2] {
        match self {
            Self::Y444 => [1, 1],
            Self::Y422 => [2, 1],
            Self::Y420 => [2, 2],
            Self::Y440 => [1, 2],
            Self::Y411 => [4, 1],
            Self::Y410 => [4, 2],
        }
    }
}

/// What the planes of a picture hold, 8 bits a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PixelFormat {
    /// One plane of red, green, blue, interleaved.
    Rgb,
    /// One plane of luma.
    Gray,
    /// Three planes: Y, Cb, Cr.
    Ycc(ChromaSampling),
    /// Two planes: Y, and Cb and Cr interleaved, 4:2:0. Colours are those of JPEG: BT.601, full range, chroma in the
    /// middle of its four luma samples.
    Nv12,
}

/// How a stored picture must be turned to stand upright, numbered as EXIF does. Rotations are clockwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Orientation {
    /// 1: as it is.
    Upright,
    /// 2: left and right swapped.
    FlipHorizontal,
    /// 3.
    Rotate180,
    /// 4: top and bottom swapped.
    FlipVertical,
    /// 5: rows and columns swapped.
    Transpose,
    /// 6.
    Rotate90,
    /// 7: mirrored at the other diagonal.
    Transverse,
    /// 8.
    Rotate270,
}

impl Orientation {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Upright,
        Self::FlipHorizontal,
        Self::Rotate180,
        Self::FlipVertical,
        Self::Transpose,
        Self::Rotate90,
        Self::Transverse,
        Self::Rotate270,
    ];

    /// The orientation with an EXIF number, `None` if it is not 1 to 8.
    pub fn from_exif(value: u32) -> Option<Self> {
        Self::ALL.get((value as usize).checked_sub(1)?).copied()
    }

    /// True where the upright picture's columns are the stored one's rows.
    pub fn swaps_axes(self) -> bool {
        matches!(self, Self::Transpose | Self::Rotate90 | Self::Transverse | Self::Rotate270)
    }

    /// Whether stored columns and stored rows count from the far end: stored column `x` is `width - 1 - x` then, of the
    /// upright picture's column or, with swapped axes, row.
    pub fn flips(self) -> [bool; 2] {
        let columns = matches!(self, Self::FlipHorizontal | Self::Rotate180 | Self::Transverse | Self::Rotate270);
        let rows = matches!(self, Self::Rotate180 | Self::FlipVertical | Self::Rotate90 | Self::Transverse);
        [columns, rows]
    }
}

/// A picture, without its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PictureDesc {
    /// Columns as stored.
    pub width_px: usize,
    /// Rows as stored.
    pub height_px: usize,
    /// Planes.
    pub format: PixelFormat,
    /// What makes it upright.
    pub orientation: Orientation,
}

impl PictureDesc {
    /// Number of planes.
    pub fn planes(&self) -> usize {
        match self.format {
            PixelFormat::Rgb | PixelFormat::Gray => 1,
            PixelFormat::Nv12 => 2,
            PixelFormat::Ycc(_) => 3,
        }
    }

    /// Luma columns and rows of a chroma sample; `None` where there is no chroma plane.
    pub fn chroma_factors(&self) -> Option<[usize; 2]> {
        match self.format {
            PixelFormat::Rgb | PixelFormat::Gray => None,
            PixelFormat::Nv12 => Some(ChromaSampling::Y420.factors()),
            PixelFormat::Ycc(sampling) => Some(sampling.factors()),
        }
    }

    /// Columns and rows of the chroma samples, 0 where there is no chroma plane.
    pub fn chroma_size(&self) -> [usize; 2] {
        let size = [self.width_px, self.height_px];
        self.chroma_factors().map_or([0; 2], |factors| [0, 1].map(|axis| size[axis].div_ceil(factors[axis])))
    }

    /// Bytes of a row, and rows, of plane `plane`.
    pub fn plane_size(&self, plane: usize) -> [usize; 2] {
        let [columns, rows] = self.chroma_size();
        match (self.format, plane) {
            (PixelFormat::Rgb, _) => [self.width_px * 3, self.height_px],
            (PixelFormat::Nv12, 1) => [columns * 2, rows],
            (_, 0) => [self.width_px, self.height_px],
            _ => [columns, rows],
        }
    }

    /// Columns and rows of the upright picture.
    pub fn upright_size(&self) -> [usize; 2] {
        let [width, height] = [self.width_px, self.height_px];
        if self.orientation.swaps_axes() { [height, width] } else { [width, height] }
    }
}
