//! Preprocessing on the GPU against the CPU's, bit for bit, from the same planes.

use half::{bf16, f16};
use ocellus_kernels::cpu::planes::{Plane, to_rgb};
use ocellus_kernels::cpu::preprocess::Preprocessor;
use ocellus_kernels::cuda::gpu::Gpu;
use ocellus_kernels::cuda::memory::DeviceMemory;
use ocellus_kernels::cuda::planes::PlaneArena;
use ocellus_kernels::cuda::preprocess::{DevicePicture, DevicePlane, GpuPreprocess, OutputFormat};
use ocellus_kernels::cuda::stream::{Priority, Stream};
use ocellus_kernels::cuda::upload::Uploader;
use ocellus_kernels::picture::{ChromaSampling, Orientation, PictureDesc, PixelFormat};
use ocellus_kernels::preprocess::{ColourOrder, Filter, LetterboxPlace, Match, PreprocessDesc, ResizeRule, Transform};
use ocellus_kernels::tensor::{DType, Layout};
use tests::Random;
use tests::gpu::{gpu, is_emulated, tool};

const FORMATS: [PixelFormat; 9] = [
    PixelFormat::Rgb,
    PixelFormat::Gray,
    PixelFormat::Ycc(ChromaSampling::Y444),
    PixelFormat::Ycc(ChromaSampling::Y422),
    PixelFormat::Ycc(ChromaSampling::Y420),
    PixelFormat::Ycc(ChromaSampling::Y440),
    PixelFormat::Ycc(ChromaSampling::Y411),
    PixelFormat::Ycc(ChromaSampling::Y410),
    PixelFormat::Nv12,
];
const DTYPES: [DType; 4] = [DType::F32, DType::F16, DType::Bf16, DType::I8];
const FILTERS: [Filter; 4] = [Filter::Nearest, Filter::Bilinear, Filter::Bicubic, Filter::Lanczos3];

/// Most pictures in a batch: one of each format and orientation.
const BATCH: usize = FORMATS.len() * Orientation::ALL.len();

/// Bytes before and behind what the kernel may write.
const GUARD: usize = 512;

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len())]
}

fn desc(width_px: usize, height_px: usize, resize: ResizeRule, filter: Filter) -> PreprocessDesc {
    PreprocessDesc {
        width_px,
        height_px,
        resize,
        filter,
        antialias: true,
        matching: Match::Pillow,
        colour: ColourOrder::Rgb,
        mean: [123.675, 116.28, 103.53],
        std: [58.395, 57.12, 57.375],
        layout: Layout::Nhwc,
    }
}

fn picture(width_px: usize, height_px: usize, format: PixelFormat) -> PictureDesc {
    PictureDesc { width_px, height_px, format, orientation: Orientation::Upright }
}

/// A picture with its samples, as a decoder leaves them on either side.
struct Sample {
    desc: PictureDesc,
    /// Distance of rows, and samples, a plane each.
    planes: Vec<(usize, Vec<u8>)>,
}

impl Sample {
    /// Noise, or gradients with a little noise. Rows are at multiples of 16 bytes, and of `padding` times 16 more.
    fn new(desc: PictureDesc, padding: usize, random: &mut Random) -> Self {
        let smooth = random.below(2) == 1;
        let planes = (0..desc.planes()).map(|i| {
            let [row_bytes, rows] = desc.plane_size(i);
            let pitch = row_bytes.next_multiple_of(16) + 16 * padding;
            let mut data = random.bytes(rows * pitch);
            if smooth {
                let value = |at: usize, noise: u8| (at % pitch * 5 / 4 + at / pitch + usize::from(noise) % 16) as u8;
                data.iter_mut().enumerate().for_each(|(at, v)| *v = value(at, *v));
            }
            (pitch, data)
        });
        let planes = planes.collect();
        Self { desc, planes }
    }

    fn rgb(&self) -> Vec<u8> {
        let planes: Vec<_> =
            self.planes.iter().map(|(pitch_bytes, data)| Plane { data, pitch_bytes: *pitch_bytes }).collect();
        to_rgb(&self.desc, &planes).unwrap()
    }

    /// What the CPU makes of it: values in N, H, W, C.
    fn expected(&self, desc: &PreprocessDesc) -> (Vec<f32>, Transform) {
        let desc = PreprocessDesc { layout: Layout::Nhwc, ..desc.clone() };
        let mut out = vec![f32::NAN; desc.width_px * desc.height_px * 3];
        let [width, height] = self.desc.upright_size();
        let mut preprocessor = Preprocessor::new(desc).unwrap();
        let transform = preprocessor.run_f32(&self.rgb(), width, height, &mut out).unwrap();
        (out, transform)
    }
}

/// `values` as the output holds them.
fn stored(values: &[f32], desc: &PreprocessDesc, format: OutputFormat) -> Vec<u8> {
    let pixels = desc.width_px * desc.height_px;
    let mut elements = vec![0.0; pixels * format.pitch];
    for (i, &value) in values.iter().enumerate() {
        let (pixel, c) = (i / 3, i % 3);
        let at = if format.layout == Layout::Nchw { c * pixels + pixel } else { pixel * format.pitch + c };
        elements[at] = value;
    }
    let bytes = |v: f32| match format.dtype {
        DType::F16 => f16::from_f32(v).to_le_bytes().to_vec(),
        DType::Bf16 => bf16::from_f32(v).to_le_bytes().to_vec(),
        DType::I8 => ((v / format.step).round_ties_even().clamp(-128.0, 127.0) as i8).to_le_bytes().to_vec(),
        _ => v.to_le_bytes().to_vec(),
    };
    elements.into_iter().flat_map(bytes).collect()
}

/// Those of the bytes `wrong` of an i8 output that are not the nearest either: the kernel folds the step into its constants, so
/// that values in the middle between two whole numbers may go either way.
fn not_nearest(
    sample: &Sample,
    desc: &PreprocessDesc,
    format: OutputFormat,
    got: &[u8],
    wrong: &[usize],
) -> Vec<usize> {
    let (values, _) = sample.expected(desc);
    let exact = stored(&values, desc, OutputFormat { dtype: DType::F32, ..format });
    let exact = exact.as_chunks::<4>().0;
    let far = |i: &usize| {
        let steps = f64::from(f32::from_le_bytes(exact[*i])) / f64::from(format.step);
        (steps - f64::from(got[*i] as i8)).abs() > 0.5 + 1e-4
    };
    wrong.iter().copied().filter(far).collect()
}

/// Runs batches of `samples` on the GPU; gives the output of each, whole with its guards.
struct Run {
    stream: Stream,
    preprocess: GpuPreprocess,
    image_bytes: usize,
}

impl Run {
    fn new(gpu: &Gpu, desc: &PreprocessDesc, format: OutputFormat) -> Self {
        let stream = Stream::new(&gpu.device, Priority::High).unwrap();
        let preprocess = GpuPreprocess::new(&stream, &gpu.jit, desc.clone(), format, BATCH).unwrap();
        Self { stream, preprocess, image_bytes: format.image_bytes(desc) }
    }

    fn run(&mut self, samples: &[&Sample]) -> (Vec<u8>, Vec<Transform>) {
        let mut arena = PlaneArena::new(&self.stream).unwrap();
        let mut uploader = Uploader::new(&self.stream).unwrap();
        let pictures: Vec<_> = samples
            .iter()
            .map(|sample| {
                let mut planes = [DevicePlane::default(); 3];
                for (n, (plane, (pitch, data))) in planes.iter_mut().zip(&sample.planes).enumerate() {
                    // One row for the arena, so that its pitch does not matter.
                    let place = arena.plane(pitch * sample.desc.plane_size(n)[1], 1).unwrap();
                    uploader.upload(data, data.len(), &arena, &place).unwrap();
                    *plane = DevicePlane { address: place.address, pitch_bytes: *pitch as u32 };
                }
                DevicePicture { desc: sample.desc, planes }
            })
            .collect();
        let len = samples.len() * self.image_bytes;
        let output = DeviceMemory::new(&self.stream, len + 2 * GUARD).unwrap();
        // All ones are NaN in each type.
        output.fill(0xff).unwrap();
        let transforms = self.preprocess.enqueue(&pictures, &arena, (&output, GUARD)).unwrap().to_vec();
        let mut bytes = vec![0; len + 2 * GUARD];
        output.read(&mut bytes).unwrap();
        assert!(bytes[..GUARD].iter().chain(&bytes[GUARD + len..]).all(|v| *v == 0xff), "written outside");
        (bytes[GUARD..GUARD + len].to_vec(), transforms)
    }
}

/// Compares a batch with the CPU.
fn check(gpu: &Gpu, desc: &PreprocessDesc, format: OutputFormat, samples: &[Sample]) {
    let mut run = Run::new(gpu, desc, format);
    let image_bytes = run.image_bytes;
    let (got, transforms) = run.run(&samples.iter().collect::<Vec<_>>());
    for ((sample, got), transform) in samples.iter().zip(got.chunks(image_bytes)).zip(transforms) {
        let (values, expected_transform) = sample.expected(desc);
        let want = stored(&values, desc, format);
        assert_eq!(transform, expected_transform);
        let wrong: Vec<_> = (0..want.len()).filter(|&i| got[i] != want[i]).collect();
        let wrong = if format.dtype == DType::I8 { not_nearest(sample, desc, format, got, &wrong) } else { wrong };
        if let Some(&first) = wrong.first() {
            panic!(
                "{:?}\n{desc:?}\n{format:?}\n{} of {} bytes differ, the first at {}, the last at {}\n{:?}\n{:?}",
                sample.desc,
                wrong.len(),
                want.len(),
                first,
                wrong[wrong.len() - 1],
                &got[first / 16 * 16..][..16.min(got.len() - first / 16 * 16)],
                &want[first / 16 * 16..][..16.min(got.len() - first / 16 * 16)],
            );
        }
    }
}

const PLAIN: OutputFormat = OutputFormat { dtype: DType::F32, layout: Layout::Nhwc, pitch: 3, step: 1.0 };

#[test]
fn every_format_and_orientation() {
    let Some(gpu) = gpu() else { return };
    let mut random = Random::new(1);
    for (width, height) in [(1, 1), (2, 3), (5, 4), (37, 29), (64, 48), (77, 20)] {
        let samples: Vec<_> = FORMATS
            .iter()
            .flat_map(|&format| {
                Orientation::ALL.map(|o| PictureDesc { orientation: o, ..picture(width, height, format) })
            })
            .enumerate()
            .map(|(i, desc)| Sample::new(desc, i % 3, &mut random))
            .collect();
        let rule = ResizeRule::Letterbox { fill: [114, 7, 255], place: LetterboxPlace::Centre };
        check(gpu, &desc(33, 21, rule, Filter::Bilinear), PLAIN, &samples);
        // Squeezed: the vertical pass comes first where the picture is high.
        check(gpu, &desc(30, 9, ResizeRule::Stretch, Filter::Bicubic), PLAIN, &samples);
    }
}

#[test]
fn every_output_format() {
    let Some(gpu) = gpu() else { return };
    let mut random = Random::new(2);
    let sizes = [(41, 30), (30, 41), (100, 7)];
    let samples =
        sizes.map(|(w, h)| Sample::new(picture(w, h, PixelFormat::Ycc(ChromaSampling::Y420)), 0, &mut random));
    for dtype in DTYPES {
        for (layout, pitch) in
            [(Layout::Nchw, 3), (Layout::Nhwc, 3), (Layout::Nhwc, 4), (Layout::Nhwc, 5), (Layout::Nhwc, 8)]
        {
            // Odd and even columns before the picture.
            // Of images with an odd number of pixels every second one begins at an odd one.
            for (width, height) in [(23, 24), (24, 24), (25, 24), (25, 23)] {
                let rule = ResizeRule::Letterbox { fill: [1, 2, 3], place: LetterboxPlace::Centre };
                let desc = PreprocessDesc { colour: ColourOrder::Bgr, ..desc(width, height, rule, Filter::Bilinear) };
                check(gpu, &desc, OutputFormat { dtype, layout, pitch, step: 0.02 }, &samples);
            }
        }
    }
}

/// Mixed sizes, formats, orientations in a batch; everything else at random.
#[test]
fn random_batches() {
    let Some(gpu) = gpu() else { return };
    let mut random = Random::new(3);
    for _ in 0..40 {
        let side = |random: &mut Random, most: usize| match random.below(4) {
            0 => 1 + random.below(6),
            1 => 1 + random.below(most),
            _ => 1 + random.below(most.min(150)),
        };
        let [width, height] = [0; 2].map(|_| side(&mut random, 150));
        let rule = match random.below(4) {
            0 => ResizeRule::Stretch,
            1 => ResizeRule::Shortest { short_px: side(&mut random, 100) },
            place => ResizeRule::Letterbox {
                fill: [0; 3].map(|_| random.next_u64() as u8),
                place: if place == 2 { LetterboxPlace::Centre } else { LetterboxPlace::TopLeft },
            },
        };
        let desc = PreprocessDesc {
            antialias: random.below(4) > 0,
            matching: pick(&mut random, &[Match::Pillow, Match::Pillow12]),
            colour: pick(&mut random, &[ColourOrder::Rgb, ColourOrder::Bgr]),
            ..desc(width, height, rule, pick(&mut random, &FILTERS))
        };
        let samples: Vec<_> = (0..=random.below(5))
            .map(|_| {
                let orientation = pick(&mut random, &Orientation::ALL);
                let [w, h] = [700, 500].map(|most| side(&mut random, most));
                let desc = PictureDesc { orientation, ..picture(w, h, pick(&mut random, &FORMATS)) };
                let padding = pick(&mut random, &[0, 0, 1, 2]);
                Sample::new(desc, padding, &mut random)
            })
            .filter(|sample| {
                // A thin picture whose shorter side grows becomes longer than the resize of the CPU takes.
                let [w, h] = [sample.desc.width_px, sample.desc.height_px];
                !matches!(rule, ResizeRule::Shortest { .. }) || w.max(h) / w.min(h) < 60
            })
            .collect();
        let format = OutputFormat {
            dtype: pick(&mut random, &DTYPES),
            layout: Layout::Nhwc,
            pitch: pick(&mut random, &[3, 4, 8]),
            step: 0.017,
        };
        check(gpu, &desc, format, &samples);
    }
}

/// Supports of hundreds of samples: many strips along both axes, and rows that do not fit shared memory.
#[test]
fn large_scales() {
    let Some(gpu) = gpu() else { return };
    let mut random = Random::new(4);
    for (width, height, target, filter) in [
        (4000, 40, [3, 8], Filter::Bilinear),
        (40, 4000, [8, 3], Filter::Lanczos3),
        (2500, 2100, [5, 4], Filter::Bicubic),
        (3000, 70, [20, 70], Filter::Bilinear),
        (5000, 3, [1, 1], Filter::Lanczos3),
        (1101, 1000, [35, 33], Filter::Nearest),
    ] {
        // Racecheck needs minutes for one of them.
        let orientations = [Orientation::Rotate90, Orientation::Upright, Orientation::Rotate180];
        for &orientation in &orientations[..if tool().is_some() { 1 } else { 3 }] {
            let format = PixelFormat::Ycc(ChromaSampling::Y420);
            let sample = Sample::new(PictureDesc { orientation, ..picture(width, height, format) }, 0, &mut random);
            check(gpu, &desc(target[0], target[1], ResizeRule::Stretch, filter), PLAIN, &[sample]);
        }
    }
}

/// Blocks whose inputs end a few columns before, at or behind the end of a chunk: their first step begins behind its start.
#[test]
fn ends_of_chunks() {
    let Some(gpu) = gpu() else { return };
    let mut random = Random::new(6);
    for widths in [4209..4260, 4530..4585] {
        let of = |width| Sample::new(picture(width, 2, PixelFormat::Gray), 0, &mut random);
        let samples: Vec<_> = widths.map(of).collect();
        check(gpu, &desc(20, 2, ResizeRule::Stretch, Filter::Bilinear), PLAIN, &samples);
    }
}

/// Every triple of Y, Cb, Cr that a GPU does in a moment; on the CPU a part of them.
#[test]
fn every_colour() {
    let Some(gpu) = gpu() else { return };
    // A row is one luma and all Cb; a picture has all Cr from top to bottom.
    let (width, height) = (256, 256);
    let lumas = if is_emulated(gpu) { vec![0, 1, 77, 128, 254, 255] } else { (0..=255).collect::<Vec<u8>>() };
    let desc = desc(width, height, ResizeRule::Stretch, Filter::Nearest);
    for lumas in lumas.chunks(16) {
        let samples: Vec<_> = lumas
            .iter()
            .map(|&luma| {
                let column = |at: usize| (at % width) as u8;
                let row = |at: usize| (at / width) as u8;
                let plane = |value: &dyn Fn(usize) -> u8| (width, (0..width * height).map(value).collect());
                let planes = vec![plane(&|_| luma), plane(&column), plane(&row)];
                Sample { desc: picture(width, height, PixelFormat::Ycc(ChromaSampling::Y444)), planes }
            })
            .collect();
        check(gpu, &desc, PLAIN, &samples);
    }
}

/// As many pictures and outputs that work is cut coarsely, on the emulator at least, with a few columns more than two items
/// of the finer cut have, and than one of the coarser has.
#[test]
fn work_for_every_multiprocessor() {
    let Some(gpu) = gpu() else { return };
    let mut random = Random::new(7);
    let formats = [PixelFormat::Ycc(ChromaSampling::Y420), PixelFormat::Nv12, PixelFormat::Ycc(ChromaSampling::Y422)];
    let samples: Vec<_> =
        (0..BATCH).map(|i| Sample::new(picture(90 + i, 50 + i, formats[i % 3]), i % 3, &mut random)).collect();
    for width in [248, 280] {
        check(gpu, &desc(width, 200, ResizeRule::Stretch, Filter::Bilinear), PLAIN, &samples);
    }
}

/// Same bits wherever a picture is in whatever batch, and from one call to the next.
#[test]
fn place_in_the_batch_does_not_matter() {
    let Some(gpu) = gpu() else { return };
    let mut random = Random::new(5);
    let desc = desc(56, 48, ResizeRule::Shortest { short_px: 60 }, Filter::Bilinear);
    let format = OutputFormat { dtype: DType::F16, pitch: 4, ..PLAIN };
    let mut run = Run::new(gpu, &desc, format);
    let samples: Vec<_> = (0..7)
        .map(|i| {
            let desc = picture(60 + 40 * i, 300 - 30 * i, FORMATS[i % FORMATS.len()]);
            Sample::new(desc, i, &mut random)
        })
        .collect();
    let alone: Vec<_> = samples.iter().map(|sample| run.run(&[sample]).0).collect();
    for turn in 0..samples.len() {
        let order: Vec<_> = (0..samples.len()).map(|i| (i + turn) % samples.len()).collect();
        let (together, _) = run.run(&order.iter().map(|&i| &samples[i]).collect::<Vec<_>>());
        for (&i, got) in order.iter().zip(together.chunks(run.image_bytes)) {
            assert!(got == alone[i], "picture {i} after {turn} others");
        }
    }
}

#[test]
fn what_is_not_possible_is_refused() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu.device, Priority::High).unwrap();
    let desc = desc(8, 8, ResizeRule::Stretch, Filter::Bilinear);
    let new = |desc: &PreprocessDesc, format| GpuPreprocess::new(&stream, &gpu.jit, desc.clone(), format, 2);
    for format in [
        OutputFormat { pitch: 2, ..PLAIN },
        OutputFormat { layout: Layout::Nchw, pitch: 4, ..PLAIN },
        OutputFormat { dtype: DType::U8, ..PLAIN },
        OutputFormat { dtype: DType::I8, step: 0.0, ..PLAIN },
        OutputFormat { dtype: DType::I8, step: f32::NAN, ..PLAIN },
    ] {
        assert!(new(&desc, format).is_err(), "{format:?}");
    }
    assert!(new(&PreprocessDesc { width_px: 0, ..desc.clone() }, PLAIN).is_err());
    assert!(new(&PreprocessDesc { std: [0.0; 3], ..desc.clone() }, PLAIN).is_err());
    let mut preprocess = new(&desc, PLAIN).unwrap();
    let memory = DeviceMemory::new(&stream, 4096).unwrap();
    let mut arena = PlaneArena::new(&stream).unwrap();
    let row = arena.plane(256, 1).unwrap();
    let mut uploader = Uploader::new(&stream).unwrap();
    uploader.upload(&[7; 256], 256, &arena, &row).unwrap();
    let plane = DevicePlane { address: row.address, pitch_bytes: 16 };
    let good = DevicePicture { desc: picture(8, 8, PixelFormat::Gray), planes: [plane; 3] };
    let empty = DevicePicture { desc: picture(0, 8, PixelFormat::Gray), ..good };
    assert!(preprocess.enqueue(&[good; 3], &arena, (&memory, 0)).is_err());
    assert!(preprocess.enqueue(&[good], &arena, (&memory, 4)).is_err());
    assert!(preprocess.enqueue(&[empty], &arena, (&memory, 0)).is_err());
    assert!(preprocess.enqueue(&[], &arena, (&memory, 0)).unwrap().is_empty());
    // Outside the arena, the output or their stream, or not at multiples of 16.
    let outside = [
        DevicePlane { address: memory.address(), ..plane },
        DevicePlane { address: plane.address + 256, ..plane },
        DevicePlane { address: plane.address - 16, ..plane },
        DevicePlane { address: plane.address + 8, ..plane },
        DevicePlane { pitch_bytes: 24, ..plane },
        DevicePlane { pitch_bytes: 0, ..plane },
        DevicePlane { pitch_bytes: u32::MAX - 15, ..plane },
    ];
    for plane in outside {
        assert!(preprocess.enqueue(&[DevicePicture { planes: [plane; 3], ..good }], &arena, (&memory, 0)).is_err());
    }
    for at in [4096, usize::MAX - 15] {
        assert!(preprocess.enqueue(&[good], &arena, (&memory, at)).is_err());
    }
    let other = Stream::new(&gpu.device, Priority::High).unwrap();
    assert!(preprocess.enqueue(&[good], &arena, (&DeviceMemory::new(&other, 4096).unwrap(), 0)).is_err());
    assert!(preprocess.enqueue(&[good], &arena, (&memory, 0)).is_ok());
}
