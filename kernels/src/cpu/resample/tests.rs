//! The passes against one another: instruction sets, windows, supports.

use super::*;
use crate::preprocess::Match;
use proptest::prelude::*;

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn job() -> impl Strategy<Value = Job> {
    let side = || prop_oneof![8 => 1..90usize, 8 => 1..6usize, 1 => 1000..1300usize];
    let filters = prop::sample::select(vec![Filter::Bilinear, Filter::Bicubic, Filter::Lanczos3]);
    ([side(), side()], [side(), side()], filters, any::<bool>(), any::<[prop::sample::Index; 4]>()).prop_map(
        |(source, target, filter, antialias, cuts)| {
            let window = [0, 1].map(|axis| {
                let [a, b] = [cuts[axis], cuts[axis + 2]].map(|cut| cut.index(target[axis]));
                a.min(b)..a.max(b) + 1
            });
            Job { source, target, window, filter, antialias, matching: Match::Pillow }
        },
    )
}

fn run(isa: Isa, rgb: &[u8], job: &Job) -> Vec<u8> {
    let mut out = Vec::new();
    Resampler::new(isa).run(rgb, job, &mut out).unwrap();
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn same_bits_on_every_instruction_set(job in job(), seed: u64) {
        let rgb = bytes(job.source[0] * job.source[1] * 3, seed);
        let want = run(Isa::Plain, &rgb, &job);
        for isa in Isa::available() {
            prop_assert!(run(isa, &rgb, &job) == want, "{isa:?}");
        }
    }

    #[test]
    fn window_is_cut_from_the_whole(job in job(), seed: u64) {
        let rgb = bytes(job.source[0] * job.source[1] * 3, seed);
        let whole = run(Isa::best(), &rgb, &Job { window: job.target.map(|side| 0..side), ..job.clone() });
        let [columns, rows] = job.window.clone();
        let want: Vec<u8> = rows
            .flat_map(|y| whole[(y * job.target[0] + columns.start) * 3..][..columns.len() * 3].iter().copied())
            .collect();
        prop_assert!(run(Isa::best(), &rgb, &job) == want);
    }
}

/// Both sides of [`MANY_TAPS`] and of [`SPAN_PX`] give what whole sums give.
#[test]
fn long_supports_and_wide_pictures() {
    for (width, target) in [(1023 * 2, 3), (1200, 2), (6000, 2000), (5000, 1), (2049, 2048)] {
        let rgb = bytes(width * 17 * 3, 7);
        let job = Job {
            source: [width, 17],
            target: [target, 17],
            window: [0..target, 0..17],
            filter: Filter::Bicubic,
            antialias: true,
            matching: Match::Pillow,
        };
        let table = Table::new(&TableKey {
            input: width,
            output: target,
            window: 0..target,
            filter: job.filter,
            antialias: true,
        });
        let patch = Patch { data: &rgb, width, left: 0, top: 0 };
        let mut want = vec![0; target * 17 * 3];
        for (y, out) in want.chunks_exact_mut(target * 3).enumerate() {
            horizontal_row(&patch, y, &table, out);
        }
        for isa in Isa::available() {
            assert!(run(isa, &rgb, &job) == want, "{width} to {target} with {isa:?}");
        }
    }
}

#[test]
fn too_large_between_the_passes() {
    let job = Job {
        source: [1, 3_000_000],
        target: [224, 224],
        window: [0..224, 0..224],
        filter: Filter::Bilinear,
        antialias: true,
        matching: Match::Pillow12,
    };
    let rgb = bytes(9_000_000, 1);
    let mut out = Vec::new();
    assert!(Resampler::new(Isa::best()).run(&rgb, &job, &mut out).is_err());
    assert!(Resampler::new(Isa::best()).run(&rgb, &Job { matching: Match::Pillow, ..job }, &mut out).is_ok());
}

#[test]
fn few_tables_are_kept() {
    let mut resampler = Resampler::new(Isa::best());
    let mut out = Vec::new();
    for width in 10..40 {
        let job = Job {
            source: [width, 5],
            target: [7, 5],
            window: [0..7, 0..5],
            filter: Filter::Bilinear,
            antialias: true,
            matching: Match::Pillow,
        };
        resampler.run(&bytes(width * 15, 1), &job, &mut out).unwrap();
        assert!(resampler.tables.len() <= CACHED_TABLES);
    }
}
