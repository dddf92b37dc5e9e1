//! What the way of a file to the GPU allocates when it has warmed up: nothing large, and a few small things.

use std::path::PathBuf;

use ocellus::decode::{DecodeOptions, Split};
use ocellus::error::StageName;
use ocellus::frame::Work;
use ocellus::gpu::WorkBatcher;
use ocellus::runner::{PerItem, Pipeline, Then};
use ocellus::source::{Found, ReadAhead};
use ocellus::stage::Cancel;
use tests::allocations::{Counting, Counts, of_all};
use tests::workspace_root;

/// Images in a batch.
const BATCH: u64 = 64;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The photos again and again, read, looked at and collected as for a GPU.
#[test]
fn a_file_on_its_way_to_the_gpu_allocates_little() {
    const WARM_UP: u64 = 200 * BATCH;
    const MEASURED: u64 = 200 * BATCH;
    let photos: Vec<PathBuf> = ["panda.jpg", "flower.jpg", "astronaut.jpg", "rocket.jpg"]
        .map(|name| workspace_root().join("samples/photos").join(name))
        .to_vec();
    let items = photos.into_iter().cycle().take((WARM_UP + MEASURED) as usize);
    let items = (0..).zip(items).map(|(id, path)| Found { path, error: None }.into_item(id));
    let (ahead, split) = (ReadAhead::new(u64::MAX), Split::new(DecodeOptions::default(), true));
    let reader = || {
        let split = split.clone();
        Then(ahead.clone(), PerItem::new(StageName::Decode, move || Ok(split.clone())).unwrap())
    };
    let mut images = 0;
    let mut warm = Counts::default();
    let pipeline = Pipeline::new(items, Cancel::default())
        .and_then(|p| p.pool("read+split", (0..4).map(|_| reader()).collect::<Vec<_>>()))
        .and_then(|p| p.stage("batch", WorkBatcher::new(BATCH as usize, usize::MAX)));
    let outcome = pipeline.unwrap().run(|batch| {
        assert!(batch.iter().all(|item| matches!(item.payload, Ok(Work::Jpeg { .. }))));
        images += batch.len() as u64;
        if images <= WARM_UP {
            warm = of_all();
        }
        Ok(())
    });
    let Counts { large, small } = of_all() - warm;
    outcome.end.unwrap();
    assert_eq!(images, WARM_UP + MEASURED);
    println!("{large} large and {small} small allocations for {MEASURED} images");
    // A batch's list of items, and what the peak of buffers under way may still grow by.
    let batches = MEASURED / BATCH;
    assert!(large <= batches + 40, "{large} large allocations in {batches} batches");
    assert!(small <= 8 * MEASURED, "{small} small allocations for {MEASURED} images");
}
