//! The exact resize for each instruction set, one thread, coefficients and allocation included.
//!
//! `PILLOW=python3 cargo bench -p ocellus-kernels --bench resample` measures Pillow (of that Python) in the same run,
//! next to each of ours.

use std::process::Command;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use ocellus_kernels::cpu::Isa;
use ocellus_kernels::cpu::preprocess::resize_rgb;
use ocellus_kernels::preprocess::{Filter, Match};

/// Source and target columns and rows.
const SIZES: [([usize; 2], [usize; 2]); 3] =
    [([500, 375], [341, 256]), ([1920, 1080], [640, 360]), ([1920, 1080], [455, 256])];

const FILTERS: [(Filter, &str); 3] =
    [(Filter::Bilinear, "BILINEAR"), (Filter::Bicubic, "BICUBIC"), (Filter::Lanczos3, "LANCZOS")];

/// Time that Pillow needs for `runs` resizes.
fn pillow(python: &str, [sw, sh]: [usize; 2], [dw, dh]: [usize; 2], filter: &str, runs: u64) -> Duration {
    let script = format!(
        "import os, time; from PIL import Image\n\
         im = Image.frombytes('RGB', ({sw}, {sh}), os.urandom({sw} * {sh} * 3))\n\
         go = lambda: im.resize(({dw}, {dh}), Image.Resampling.{filter})\n\
         go(); start = time.perf_counter()\n\
         for _ in range({runs}): go()\n\
         print(time.perf_counter() - start)"
    );
    let output = Command::new(python).args(["-c", &script]).output();
    let seconds = output.ok().and_then(|o| String::from_utf8(o.stdout).ok()).and_then(|s| s.trim().parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or_else(|| panic!("{python} has no Pillow")))
}

fn resample(criterion: &mut Criterion) {
    let python = std::env::var("PILLOW").ok();
    for (source, target) in SIZES {
        let rgb: Vec<u8> =
            (0..source[0] * source[1] * 3).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for (filter, name) in FILTERS {
            let title = format!("{}x{}-{}x{}/{name}", source[0], source[1], target[0], target[1]);
            let mut group = criterion.benchmark_group(title);
            group.sample_size(10).warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_millis(800));
            for isa in Isa::available() {
                group.bench_function(format!("{isa:?}"), |b| {
                    b.iter(|| resize_rgb(isa, &rgb, source, target, filter, true, Match::Pillow));
                });
            }
            if let Some(python) = &python {
                group.bench_function("Pillow", |b| b.iter_custom(|runs| pillow(python, source, target, name, runs)));
            }
        }
    }
}

criterion_group!(benches, resample);
criterion_main!(benches);
