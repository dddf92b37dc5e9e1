//! Pictures to measure with: made up, the same for the same seed on every machine, and about as hard to decode as
//! photographs.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use ocellus_kernels::picture::{ChromaSampling, Orientation, PictureDesc, PixelFormat};

use crate::error::JobError;
use crate::gpu::on_threads;
use crate::stage::Cancel;

/// How the colours of made pictures are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Chroma as large as luma.
    Y444,
    /// Of half the width.
    Y422,
    /// Of half the width and height.
    Y420,
    /// None.
    Gray,
}

impl Sampling {
    /// As names write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Y444 => "444",
            Self::Y422 => "422",
            Self::Y420 => "420",
            Self::Gray => "gray",
        }
    }
}

/// What is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CorpusDesc {
    /// Columns.
    pub width_px: u16,
    /// Rows.
    pub height_px: u16,
    /// Number of pictures, all different.
    pub pictures: usize,
    /// 1 to 100.
    pub quality: u8,
    /// Chroma subsampling.
    pub sampling: Sampling,
    /// Whether files are progressive.
    pub progressive: bool,
    /// Other pictures for each.
    pub seed: u64,
}

impl CorpusDesc {
    /// Photographs of this size as cameras write them: quality 90, 4:2:0, baseline.
    pub fn photos(width_px: u16, height_px: u16, pictures: usize) -> Self {
        let (quality, sampling) = (Self::QUALITY, Sampling::Y420);
        Self { width_px, height_px, pictures, quality, sampling, progressive: false, seed: 0 }
    }

    /// Quality of [`CorpusDesc::photos`].
    pub const QUALITY: u8 = 90;

    /// As names of measurements write it: the size, and what is not as in [`CorpusDesc::photos`]. The seed makes no
    /// difference to what is measured.
    pub fn name(&self) -> String {
        let mut parts = vec![format!("{}x{}", self.width_px, self.height_px)];
        if self.quality != Self::QUALITY {
            parts.push(format!("q{}", self.quality));
        }
        if self.sampling != Sampling::Y420 {
            parts.push(self.sampling.name().to_owned());
        }
        parts.join(".")
    }

    /// A picture, decoded.
    pub fn picture(&self) -> PictureDesc {
        let format = match self.sampling {
            Sampling::Y444 => PixelFormat::Ycc(ChromaSampling::Y444),
            Sampling::Y422 => PixelFormat::Ycc(ChromaSampling::Y422),
            Sampling::Y420 => PixelFormat::Ycc(ChromaSampling::Y420),
            Sampling::Gray => PixelFormat::Gray,
        };
        let (width_px, height_px) = (self.width_px.into(), self.height_px.into());
        PictureDesc { width_px, height_px, format, orientation: Orientation::Upright }
    }
}

/// Most pixels of all pictures: about four gigabytes of files.
const MOST_PIXELS: usize = 1 << 34;
/// Octaves of the noise: shapes of a quarter of the picture down to four pixels.
const OCTAVES: u32 = 6;
/// Largest cells of the noise, a picture's height over this.
const CELLS: f32 = 4.0;
/// Each octave's height over the one's before.
const PERSISTENCE: f32 = 0.55;
/// Noise of a sensor, in 0..255 units either way.
const GRAIN: f32 = 7.0;
/// How much brighter one colour may be than another, in 0..255 units.
const TINT: f32 = 90.0;
/// Size of patches of one colour.
const TINT_PX: f32 = 97.0;

/// The files, in order; made on all cores.
///
/// # Errors
/// Where they are too many, the encoder refuses the size, or `cancel` was set.
pub fn make(desc: &CorpusDesc, cancel: &Cancel) -> Result<Vec<Vec<u8>>, JobError> {
    each(desc, cancel, |_, file| Ok(file))
}

/// Makes the files in a folder, with names in their order; gives their paths.
///
/// # Errors
/// As [`make`], and where a file cannot be written.
pub fn write(desc: &CorpusDesc, folder: &Path, cancel: &Cancel) -> Result<Vec<PathBuf>, JobError> {
    each(desc, cancel, |number, file| {
        let path = folder.join(format!("{number:06}.jpg"));
        fs::write(&path, file).map_err(|e| JobError::io(format!("cannot write {}", path.display()), e))?;
        Ok(path)
    })
}

/// What becomes of each file, which is made and handed to `then` on one of the cores.
fn each<T: Send>(
    desc: &CorpusDesc,
    cancel: &Cancel,
    then: impl Fn(usize, Vec<u8>) -> Result<T, JobError> + Sync,
) -> Result<Vec<T>, JobError> {
    let most = MOST_PIXELS / (usize::from(desc.width_px) * usize::from(desc.height_px)).max(1);
    if desc.pictures > most {
        let (width, height) = (desc.width_px, desc.height_px);
        return Err(JobError::Usage(format!("--pictures: at most {most} of {width}x{height}, not {}", desc.pictures)));
    }
    let cores = available_parallelism().map_or(1, usize::from);
    let share = desc.pictures.div_ceil(cores).max(1);
    let one = |n: usize| {
        if cancel.is_set() {
            return Err(JobError::Interrupted);
        }
        then(n, encode(desc, &paint(desc, n as u64))?)
    };
    let part = |first: usize| {
        let numbers = first..desc.pictures.min(first + share);
        numbers.map(one).collect::<Result<Vec<T>, JobError>>()
    };
    let parts = on_threads((0..desc.pictures).step_by(share), part).into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(parts.into_iter().flatten().collect())
}

fn encode(desc: &CorpusDesc, rgb: &[u8]) -> Result<Vec<u8>, JobError> {
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, desc.quality);
    encoder.set_progressive(desc.progressive);
    encoder.set_sampling_factor(match desc.sampling {
        Sampling::Y444 | Sampling::Gray => SamplingFactor::F_1_1,
        Sampling::Y422 => SamplingFactor::F_2_1,
        Sampling::Y420 => SamplingFactor::F_2_2,
    });
    let encoded = match desc.sampling {
        Sampling::Gray => {
            let green: Vec<u8> = rgb.as_chunks::<3>().0.iter().map(|pixel| pixel[1]).collect();
            encoder.encode(&green, desc.width_px, desc.height_px, ColorType::Luma)
        }
        _ => encoder.encode(rgb, desc.width_px, desc.height_px, ColorType::Rgb),
    };
    encoded.map_err(|e| JobError::Usage(format!("cannot make pictures of this kind: {e}")))?;
    Ok(file)
}

/// A picture: smooth noise of several sizes in three colours that mostly go together, with grain.
fn paint(desc: &CorpusDesc, number: u64) -> Vec<u8> {
    let (width, height) = (usize::from(desc.width_px), usize::from(desc.height_px));
    // Far from the numbers of any other seed's pictures, and from those of the octaves.
    let seed = number.wrapping_mul(4).wrapping_add(desc.seed.wrapping_mul(0xd1b5_4a32_d192_ed03));
    let light: Vec<Noise> = (0..OCTAVES)
        .map(|octave| {
            let scale = CELLS / height as f32 * (1 << octave) as f32;
            Noise::new(width, scale, PERSISTENCE.powi(octave as i32), seed.wrapping_add(u64::from(octave) << 32))
        })
        .collect();
    let total: f32 = light.iter().map(|octave| octave.height).sum();
    let tints = [0, 1, 2].map(|channel| Noise::new(width, 1.0 / TINT_PX, TINT, seed.wrapping_add(channel)));
    let mut rgb = Vec::with_capacity(3 * width * height);
    let (mut shade, mut shift) = (vec![0.0; width], [(); 3].map(|()| vec![0.0; width]));
    for y in 0..height {
        shade.fill(0.0);
        for octave in &light {
            octave.add_row(y, &mut shade);
        }
        for (tint, shift) in tints.iter().zip(&mut shift) {
            shift.fill(-TINT / 2.0);
            tint.add_row(y, shift);
        }
        for (x, shade) in shade.iter().enumerate() {
            let grain = (hash(x as u32, y as u32, seed.wrapping_add(3)) - 0.5) * 2.0 * GRAIN;
            let grey = 255.0 * shade / total + grain;
            rgb.extend(shift.each_ref().map(|shift| (grey + shift[x]).clamp(0.0, 255.0) as u8));
        }
    }
    rgb
}

/// Random values at the corners of square cells, smooth between them.
struct Noise {
    /// For each column its cell, and how far the corner to the right weighs.
    columns: Vec<(usize, f32)>,
    /// Cells a pixel.
    scale: f32,
    /// Values go from 0 to this.
    height: f32,
    seed: u64,
}

impl Noise {
    fn new(width: usize, scale: f32, height: f32, seed: u64) -> Self {
        Self { columns: (0..width).map(|x| cell(x, scale)).collect(), scale, height, seed }
    }

    /// Adds row `y` to `sums`.
    fn add_row(&self, y: usize, sums: &mut [f32]) {
        let (row, v) = cell(y, self.scale);
        let corner = |column: usize, row: usize| hash(column as u32, row as u32, self.seed);
        let last = self.columns.last().map_or(0, |(column, _)| column + 1);
        let between = |column| corner(column, row) + (corner(column, row + 1) - corner(column, row)) * v;
        let line: Vec<f32> = (0..=last).map(between).collect();
        for (sum, &(column, u)) in sums.iter_mut().zip(&self.columns) {
            *sum += self.height * (line[column] + (line[column + 1] - line[column]) * u);
        }
    }
}

/// The cell that a pixel lies in, and the weight of its far corner: smooth at both ends.
fn cell(pixel: usize, scale: f32) -> (usize, f32) {
    let at = pixel as f32 * scale;
    let t = at.fract();
    (at as usize, t * t * (3.0 - 2.0 * t))
}

/// A random number in 0..1 for a place: `SplitMix64`'s finaliser.
pub(super) fn hash(x: u32, y: u32, seed: u64) -> f32 {
    let mut z = (u64::from(x) << 32 | u64::from(y)).wrapping_add(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 40) as f32 / (1_u32 << 24) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{DecodeOptions, decode};

    #[test]
    fn pictures_decode_differ_and_are_as_large_as_photographs() {
        let desc = CorpusDesc::photos(500, 375, 3);
        let make = |desc: &CorpusDesc| make(desc, &Cancel::default()).unwrap();
        let files = make(&desc);
        assert_eq!(files, make(&desc), "the same for the same seed");
        for seed in [1, u64::MAX] {
            let others = make(&CorpusDesc { seed, ..desc });
            assert!(others.iter().all(|other| !files.contains(other)), "other pictures for seed {seed}");
        }
        for (i, file) in files.iter().enumerate() {
            let picture = decode(file, &DecodeOptions::default()).unwrap();
            assert_eq!((picture.width_px, picture.height_px), (500, 375));
            // Photographs at quality 90: 1.5 to 3 bits a pixel.
            let bits = file.len() as f64 * 8.0 / (500.0 * 375.0);
            assert!((1.5..3.0).contains(&bits), "{bits} bits a pixel");
            assert!(files[..i].iter().all(|other| other != file), "all different");
        }
    }

    #[test]
    fn pictures_are_bounded_by_their_size() {
        let error = make(&CorpusDesc::photos(4000, 3000, 2000), &Cancel::default()).unwrap_err().to_string();
        assert!(error.contains("at most 1431 of 4000x3000"), "{error}");
    }

    #[test]
    fn a_folder_holds_the_files_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let desc = CorpusDesc::photos(33, 17, 5);
        let cancel = Cancel::default();
        let paths = write(&desc, folder.path(), &cancel).unwrap();
        let read: Vec<_> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
        assert_eq!(read, make(&desc, &cancel).unwrap());
        assert!(paths.is_sorted());
        let missing = write(&desc, &folder.path().join("missing"), &cancel).unwrap_err();
        assert!(missing.to_string().contains("000000.jpg"));
        cancel.set();
        assert!(matches!(make(&desc, &cancel), Err(JobError::Interrupted)));
    }

    #[test]
    fn every_kind_can_be_made() {
        use crate::decode::route::{self, Route, route};
        for (sampling, expected) in [
            (Sampling::Y444, route::Sampling::Y444),
            (Sampling::Y422, route::Sampling::Y422),
            (Sampling::Y420, route::Sampling::Y420),
            (Sampling::Gray, route::Sampling::Gray),
        ] {
            for progressive in [false, true] {
                let desc = CorpusDesc { sampling, progressive, quality: 75, ..CorpusDesc::photos(33, 17, 1) };
                let file = &make(&desc, &Cancel::default()).unwrap()[0];
                assert_eq!(decode(file, &DecodeOptions::default()).unwrap().width_px, 33, "{desc:?}");
                let (Route::Hardware(planar) | Route::Hybrid(planar)) = route(file, &DecodeOptions::default()) else {
                    panic!("{desc:?} is for the CPU");
                };
                assert_eq!(planar.sampling, expected, "{desc:?}");
            }
        }
    }

    #[test]
    fn only_what_is_usual_has_the_usual_name() {
        let photos = CorpusDesc::photos(500, 375, 1);
        assert_eq!(photos.name(), "500x375");
        assert_eq!(CorpusDesc { seed: 7, ..photos }.name(), "500x375");
        assert_eq!(CorpusDesc { quality: 75, ..photos }.name(), "500x375.q75");
        assert_eq!(CorpusDesc { sampling: Sampling::Gray, ..photos }.name(), "500x375.gray");
        assert_eq!(CorpusDesc { sampling: Sampling::Y444, quality: 50, ..photos }.name(), "500x375.q50.444");
    }
}
