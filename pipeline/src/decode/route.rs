//! Which decoder a file goes to where there is a GPU, told from its header before any decoder is asked.
//!
//! The GPU gets what its decoders are known to take, as planes in the picture's own subsampling; the CPU gets everything
//! else, among it all files that an error or a remark must be written about. nvJPEG has the last word: what it refuses or
//! fails at goes on to the next decoder, hardware to hybrid to CPU.

use super::jpeg::{self, Colour};
use super::jpeg_header::{self, Component, End, Frame, JpegHeader, Process, code};
use super::orient::Orientation;
use super::{DecodeOptions, exif};

/// Smallest width and height of a picture that goes to the GPU. The CPU is done with a smaller one before a copy to the
/// GPU has begun, and decoders are tested least with them.
const SMALLEST_PX: u16 = 16;

/// Largest width and height of a picture that goes to the GPU: how large the engines can is not documented, and larger
/// pictures are rare.
const LARGEST_PX: u16 = 16_384;

/// Whose work a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The GPU's JPEG engines: one scan of baseline or extended Huffman coding, not 4:1:1 or 4:1:0.
    Hardware(Planar),
    /// CPU and GPU together: progressive, several scans, 4:1:1, 4:1:0.
    Hybrid(Planar),
    /// The CPU.
    Cpu(CpuReason),
}

/// Why the GPU does not get a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CpuReason {
    /// Another format, or no picture at all.
    NotJpeg,
    /// No decoder here takes it, or a limit forbids it: the CPU's says why.
    Refused,
    /// It ends too early, or damage shows in its markers: the CPU's decoder says how much of it is there.
    Damaged,
    /// It leaves out the tables that everybody is expected to know.
    NoTables,
    /// CMYK, YCCK, or stored as R, G, B.
    Colour,
    /// Sampling factors that are none of [`Sampling`], or one of these written in an unusual way.
    Sampling,
    /// A width or height that the GPU is not given.
    Size,
}

/// How the planes of a picture are subsampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sampling {
    /// Luma alone.
    Gray,
    /// 4:4:4, chroma as large as luma.
    Y444,
    /// 4:2:2, chroma of half the width.
    Y422,
    /// 4:2:0, chroma of half the width and half the height.
    Y420,
    /// 4:4:0, chroma of half the height.
    Y440,
    /// 4:1:1, chroma of a quarter of the width.
    Y411,
    /// 4:1:0, chroma of a quarter of the width and half the height.
    Y410,
}

/// A picture that a GPU decodes into planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planar {
    /// Columns as stored.
    pub width_px: u32,
    /// Rows as stored.
    pub height_px: u32,
    /// How its planes are subsampled.
    pub sampling: Sampling,
    /// How it must be turned to stand upright.
    pub orientation: Orientation,
    /// Length of the file up to its end-of-image marker. What follows (thumbnails, videos) need not be copied.
    pub length_bytes: usize,
}

impl Sampling {
    /// Columns and rows of luma for each of chroma; `None` without chroma.
    pub fn ratio(self) -> Option<(u32, u32)> {
        match self {
            Self::Gray => None,
            Self::Y444 => Some((1, 1)),
            Self::Y422 => Some((2, 1)),
            Self::Y420 => Some((2, 2)),
            Self::Y440 => Some((1, 2)),
            Self::Y411 => Some((4, 1)),
            Self::Y410 => Some((4, 2)),
        }
    }

    /// Of these components. Only the usual factors: decoders disagree about what others mean (the order of blocks in a
    /// scan, whether those of a single component count).
    fn of(components: &[Component]) -> Option<Self> {
        let (luma, chroma) = components.split_first()?;
        if !matches!(chroma.len(), 0 | 2) || chroma.iter().any(|c| (c.h, c.v) != (1, 1)) {
            return None;
        }
        match (luma.h, luma.v) {
            (1, 1) if chroma.is_empty() => Some(Self::Gray),
            _ if chroma.is_empty() => None,
            (1, 1) => Some(Self::Y444),
            (2, 1) => Some(Self::Y422),
            (2, 2) => Some(Self::Y420),
            (1, 2) => Some(Self::Y440),
            (4, 1) => Some(Self::Y411),
            (4, 2) => Some(Self::Y410),
            _ => None,
        }
    }
}

impl Planar {
    /// Width and height of Y, Cb, Cr in pixels: `ceil(size / ratio)` (T.81, A.1.1), zeros where there is no plane.
    pub fn plane_sizes_px(&self) -> [(u32, u32); 3] {
        let luma = (self.width_px, self.height_px);
        let chroma = match self.sampling.ratio() {
            Some((h, v)) => (luma.0.div_ceil(h), luma.1.div_ceil(v)),
            None => (0, 0),
        };
        [luma, chroma, chroma]
    }
}

/// Chooses the decoder of a file. Takes any bytes without panic.
pub fn route(bytes: &[u8], options: &DecodeOptions) -> Route {
    route_parsed(bytes, jpeg_header::parse(bytes).as_ref(), options)
}

/// Chooses the decoder of a file with this header, if it is a JPEG file.
pub(super) fn route_parsed(bytes: &[u8], header: Option<&JpegHeader>, options: &DecodeOptions) -> Route {
    if bytes.len() as u64 > options.max_bytes {
        return Route::Cpu(CpuReason::Refused);
    }
    match header {
        Some(header) => judge(bytes, header, options).unwrap_or_else(Route::Cpu),
        None => Route::Cpu(CpuReason::NotJpeg),
    }
}

fn judge(bytes: &[u8], header: &JpegHeader, options: &DecodeOptions) -> Result<Route, CpuReason> {
    let frame = jpeg::check(header, options).map_err(|_| CpuReason::Refused)?;
    let plain = header.end == End::Eoi && header.frames == 1 && !header.junk;
    // Restart markers that were not announced are data of something else, of which decoders make different things.
    let restarts = header.restart_interval == 0 && header.scans.iter().any(|scan| scan.restarts > 0);
    if !plain || restarts || jpeg::damage_shows(bytes, header, frame) {
        return Err(CpuReason::Damaged);
    }
    let has_table = |marker| header.tables.iter().any(|range| bytes[range.start + 1] == marker);
    if !has_table(code::DQT) || !has_table(code::DHT) {
        return Err(CpuReason::NoTables);
    }
    if !matches!(Colour::of(header, frame), Colour::Grey | Colour::YCbCr) {
        return Err(CpuReason::Colour);
    }
    let sampling = Sampling::of(&frame.components).ok_or(CpuReason::Sampling)?;
    let sides = SMALLEST_PX..=LARGEST_PX;
    if !sides.contains(&frame.width_px) || !sides.contains(&frame.height_px) {
        return Err(CpuReason::Size);
    }
    let orientation = header.exif.clone().and_then(|range| exif::orientation(&bytes[range]));
    let planar = Planar {
        width_px: u32::from(frame.width_px),
        height_px: u32::from(frame.height_px),
        sampling,
        orientation: orientation.unwrap_or(Orientation::Upright),
        length_bytes: header.length_bytes,
    };
    let quartered = matches!(sampling, Sampling::Y411 | Sampling::Y410);
    let engines = frame.process != Process::Progressive && one_scan(header, frame) && !quartered;
    Ok(if engines { Route::Hardware(planar) } else { Route::Hybrid(planar) })
}

/// All components in the only scan.
fn one_scan(header: &JpegHeader, frame: &Frame) -> bool {
    matches!(&header.scans[..], [scan] if usize::from(scan.components) == frame.components.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a file is made of. Its entropy-coded data is no picture: nobody looks at it here.
    #[derive(Clone)]
    struct Parts {
        sof: u8,
        precision: u8,
        size_px: (u16, u16),
        /// Sampling factors as hexadecimal digits.
        factors: &'static [u8],
        ids: &'static [u8],
        adobe: Option<u8>,
        tables: &'static [u8],
        /// Components of each scan.
        scans: &'static [&'static [u8]],
        end: &'static [u8],
    }

    const ORDINARY: Parts = Parts {
        sof: 0xC0,
        precision: 8,
        size_px: (500, 375),
        factors: &[0x22, 0x11, 0x11],
        ids: &[1, 2, 3],
        adobe: None,
        tables: &[0xDB, 0xC4],
        scans: &[&[1, 2, 3]],
        end: &[0xFF, 0xD9],
    };

    impl Parts {
        fn file(&self) -> Vec<u8> {
            let segment = |marker: u8, body: &[u8]| {
                let length = u16::try_from(body.len() + 2).unwrap().to_be_bytes();
                [&[0xFF, marker], &length[..], body].concat()
            };
            let mut bytes = vec![0xFF, 0xD8];
            if let Some(transform) = self.adobe {
                bytes.extend(segment(0xEE, &[&b"Adobe\0\x64\0\0\0\0"[..], &[transform]].concat()));
            }
            for &table in self.tables {
                bytes.extend(segment(table, &[0; 20]));
            }
            let (width, height) = self.size_px;
            let mut sof = vec![self.precision];
            sof.extend([height.to_be_bytes(), width.to_be_bytes()].concat());
            sof.push(self.factors.len() as u8);
            sof.extend(self.ids.iter().zip(self.factors).flat_map(|(&id, &factors)| [id, factors, 0]));
            bytes.extend(segment(self.sof, &sof));
            for &scan in self.scans {
                let mut sos = vec![scan.len() as u8];
                sos.extend(scan.iter().flat_map(|&id| [id, 0]));
                sos.extend([0, 63, 0]);
                bytes.extend([segment(0xDA, &sos), vec![7; 20]].concat());
            }
            bytes.extend(self.end);
            bytes
        }

        fn route(&self) -> Route {
            route(&self.file(), &DecodeOptions::default())
        }
    }

    #[test]
    fn ordinary_files_go_to_the_engines() {
        let kinds: [(&[u8], Sampling); 7] = [
            (&[0x11], Sampling::Gray),
            (&[0x11, 0x11, 0x11], Sampling::Y444),
            (&[0x21, 0x11, 0x11], Sampling::Y422),
            (&[0x22, 0x11, 0x11], Sampling::Y420),
            (&[0x12, 0x11, 0x11], Sampling::Y440),
            (&[0x41, 0x11, 0x11], Sampling::Y411),
            (&[0x42, 0x11, 0x11], Sampling::Y410),
        ];
        for (factors, sampling) in kinds {
            let scans: &[&[u8]] = if factors.len() == 1 { &[&[1]] } else { &[&[1, 2, 3]] };
            let parts = Parts { factors, scans, ..ORDINARY };
            let planar = Planar {
                width_px: 500,
                height_px: 375,
                sampling,
                orientation: Orientation::Upright,
                length_bytes: parts.file().len(),
            };
            let refused = [Sampling::Y411, Sampling::Y410].contains(&sampling);
            let engines = if refused { Route::Hybrid(planar) } else { Route::Hardware(planar) };
            assert_eq!(parts.route(), engines);
            assert_eq!(Parts { sof: 0xC1, ..parts.clone() }.route(), engines);
            assert_eq!(Parts { sof: 0xC2, ..parts.clone() }.route(), Route::Hybrid(planar));
            // What follows the picture is left out.
            let garbage = [parts.file(), vec![1, 2, 3]].concat();
            assert_eq!(route(&garbage, &DecodeOptions::default()), engines);
        }
    }

    #[test]
    fn separate_scans_go_to_the_hybrid_decoder() {
        let scans: [&[&[u8]]; 3] = [&[&[1], &[2], &[3]], &[&[1, 2], &[3]], &[&[1], &[2, 3]]];
        for scans in scans {
            let parts = Parts { scans, ..ORDINARY };
            assert!(matches!(parts.route(), Route::Hybrid(_)), "{scans:?}");
        }
    }

    #[test]
    fn everything_else_goes_to_the_cpu() {
        let four = Parts { factors: &[0x11; 4], ids: &[1, 2, 3, 4], scans: &[&[1, 2, 3, 4]], ..ORDINARY };
        let rgb = Parts { ids: b"RGB", scans: &[b"RGB"], ..ORDINARY };
        let gray = Parts { factors: &[0x22], scans: &[&[1]], ..ORDINARY };
        let cases = [
            (four.clone(), CpuReason::Colour),
            (Parts { adobe: Some(2), ..four }, CpuReason::Colour),
            (Parts { adobe: Some(0), ..ORDINARY }, CpuReason::Colour),
            (rgb, CpuReason::Colour),
            (Parts { precision: 12, ..ORDINARY }, CpuReason::Refused),
            (Parts { sof: 0xC3, ..ORDINARY }, CpuReason::Refused),
            (Parts { sof: 0xC5, ..ORDINARY }, CpuReason::Refused),
            (Parts { sof: 0xC9, ..ORDINARY }, CpuReason::Refused),
            (Parts { sof: 0xCA, ..ORDINARY }, CpuReason::Refused),
            (Parts { sof: 0xFE, ..ORDINARY }, CpuReason::Refused),
            (Parts { size_px: (500, 0), ..ORDINARY }, CpuReason::Refused),
            (Parts { size_px: (0, 375), ..ORDINARY }, CpuReason::Refused),
            (Parts { size_px: (65_500, 65_500), ..ORDINARY }, CpuReason::Refused),
            (Parts { factors: &[0x11; 2], ..ORDINARY }, CpuReason::Refused),
            (Parts { scans: &[], ..ORDINARY }, CpuReason::Refused),
            (Parts { size_px: (15, 375), ..ORDINARY }, CpuReason::Size),
            (Parts { size_px: (500, 15), ..ORDINARY }, CpuReason::Size),
            (Parts { size_px: (16_385, 16), ..ORDINARY }, CpuReason::Size),
            (Parts { size_px: (16, 16_385), ..ORDINARY }, CpuReason::Size),
            (gray, CpuReason::Sampling),
            (Parts { factors: &[0x24, 0x11, 0x11], ..ORDINARY }, CpuReason::Sampling),
            (Parts { factors: &[0x44, 0x11, 0x11], ..ORDINARY }, CpuReason::Sampling),
            (Parts { factors: &[0x22, 0x22, 0x22], ..ORDINARY }, CpuReason::Sampling),
            (Parts { factors: &[0x22, 0x21, 0x11], ..ORDINARY }, CpuReason::Sampling),
            (Parts { factors: &[0x11, 0x22, 0x22], ..ORDINARY }, CpuReason::Sampling),
            (Parts { tables: &[0xDB], ..ORDINARY }, CpuReason::NoTables),
            (Parts { tables: &[0xC4], ..ORDINARY }, CpuReason::NoTables),
            (Parts { end: &[], ..ORDINARY }, CpuReason::Damaged),
            (Parts { end: &[0xFF, 0xFE, 0, 2, 7, 0xFF, 0xD9], ..ORDINARY }, CpuReason::Damaged),
            (Parts { scans: &[&[1, 2, 3], &[1]], ..ORDINARY }, CpuReason::Damaged),
            (Parts { scans: &[&[1], &[2]], ..ORDINARY }, CpuReason::Damaged),
            (Parts { scans: &[&[1], &[1], &[2], &[3]], ..ORDINARY }, CpuReason::Damaged),
            (Parts { scans: &[&[1, 2], &[2, 3]], ..ORDINARY }, CpuReason::Damaged),
            (Parts { end: &[0xFF, 0xD0, 7, 0xFF, 0xD9], ..ORDINARY }, CpuReason::Damaged),
            (Parts { end: &[0xFF, 0xD1, 7, 0xFF, 0xD9], ..ORDINARY }, CpuReason::Damaged),
            // Another height behind the scan, or the same one.
            (Parts { end: &[0xFF, 0xDC, 0, 4, 0, 9, 0xFF, 0xD9], ..ORDINARY }, CpuReason::Damaged),
            (Parts { sof: 0xC2, end: &[0xFF, 0xDC, 0, 4, 1, 119, 0xFF, 0xD9], ..ORDINARY }, CpuReason::Damaged),
            // A second frame header, of another size.
            (
                Parts { end: &[0xFF, 0xC0, 0, 11, 8, 0, 9, 0, 9, 1, 1, 0x11, 0, 0xFF, 0xD9], ..ORDINARY },
                CpuReason::Damaged,
            ),
        ];
        for (n, (parts, reason)) in cases.into_iter().enumerate() {
            assert_eq!(parts.route(), Route::Cpu(reason), "case {n}");
        }
        for bytes in [&b""[..], b"\xFF", b"\x89PNG\r\n\x1A\n", b"GIF89a"] {
            assert_eq!(route(bytes, &DecodeOptions::default()), Route::Cpu(CpuReason::NotJpeg), "{bytes:?}");
        }
        let little = DecodeOptions { max_bytes: 100, ..DecodeOptions::default() };
        assert_eq!(route(&ORDINARY.file(), &little), Route::Cpu(CpuReason::Refused));
        let little = DecodeOptions { max_pixels: 500 * 375 - 1, ..DecodeOptions::default() };
        assert_eq!(route(&ORDINARY.file(), &little), Route::Cpu(CpuReason::Refused));
    }

    #[test]
    fn limits_are_inclusive() {
        for size_px in [(16, 16), (16_384, 16), (16, 16_384)] {
            let parts = Parts { size_px, ..ORDINARY };
            assert!(matches!(parts.route(), Route::Hardware(_)), "{size_px:?}");
        }
    }

    #[test]
    fn planes_round_up() {
        let sizes = |sampling, width_px, height_px| {
            let planar = Planar { width_px, height_px, sampling, orientation: Orientation::Upright, length_bytes: 0 };
            planar.plane_sizes_px()
        };
        assert_eq!(sizes(Sampling::Gray, 33, 31), [(33, 31), (0, 0), (0, 0)]);
        assert_eq!(sizes(Sampling::Y444, 33, 31), [(33, 31), (33, 31), (33, 31)]);
        assert_eq!(sizes(Sampling::Y422, 33, 31), [(33, 31), (17, 31), (17, 31)]);
        assert_eq!(sizes(Sampling::Y420, 33, 31), [(33, 31), (17, 16), (17, 16)]);
        assert_eq!(sizes(Sampling::Y440, 33, 31), [(33, 31), (33, 16), (33, 16)]);
        assert_eq!(sizes(Sampling::Y411, 33, 31), [(33, 31), (9, 31), (9, 31)]);
        assert_eq!(sizes(Sampling::Y410, 33, 31), [(33, 31), (9, 16), (9, 16)]);
    }
}
