//! What the way of a file to the GPU allocates when it has warmed up, on all threads: nothing but what names the file.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use ocellus::decode::{DecodeOptions, Split};
use ocellus::error::StageName;
use ocellus::frame::{BufferPool, Work};
use ocellus::gpu::WorkBatcher;
use ocellus::runner::{PerItem, Pipeline, Then};
use ocellus::source::{Found, ReadAhead};
use ocellus::stage::Cancel;
use tests::allocations::{Counting, Counts, of_all, wait_until_full};
use tests::workspace_root;

/// Images in a batch.
const BATCH: u64 = 64;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The photos again and again, read, looked at and collected as for a GPU.
#[test]
fn a_file_on_its_way_to_the_gpu_allocates_its_name() {
    const WARM_UP: u64 = 200 * BATCH;
    const MEASURED: u64 = 200 * BATCH;
    let photos: Vec<PathBuf> = ["panda.jpg", "flower.jpg", "astronaut.jpg", "rocket.jpg"]
        .map(|name| workspace_root().join("samples/photos").join(name))
        .to_vec();
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let items = (0..WARM_UP + MEASURED).map(move |n| {
        count.fetch_add(1, Relaxed);
        Found { path: photos[n as usize % photos.len()].clone(), error: None }.into_item(n)
    });
    let (ahead, split) = (ReadAhead::new(u64::MAX, BufferPool::default()), Split::new(DecodeOptions::default(), true));
    let reader = || {
        let split = split.clone();
        Then(ahead.clone(), PerItem::new(StageName::Decode, move || Ok(split.clone())).unwrap())
    };
    let mut images = 0;
    let (mut warm, mut last) = (Counts::default(), Counts::default());
    let pipeline = Pipeline::new(items, Cancel::default())
        .and_then(|p| p.pool("read+split", (0..4).map(|_| reader()).collect::<Vec<_>>()))
        .and_then(|p| p.stage("batch", WorkBatcher::new(BATCH as usize, usize::MAX)));
    let outcome = pipeline.unwrap().run(|batch| {
        assert!(batch.iter().all(|item| matches!(item.payload, Ok(Work::Jpeg { .. }))));
        if images == 0 {
            // Then there are about as many buffers as ever are needed.
            wait_until_full(&taken);
        }
        images += batch.len() as u64;
        last = of_all();
        if images <= WARM_UP {
            warm = last;
        }
        Ok(())
    });
    let Counts { large, small } = last - warm;
    outcome.end.unwrap();
    assert_eq!(images, WARM_UP + MEASURED);
    println!("{large} large and {small} small allocations for {MEASURED} images");
    // A path and what shares it: they go with the file to its row. Lists of the queues may still grow to the largest portion.
    assert!(small <= 2 * MEASURED + 50, "{small} small allocations for {MEASURED} images");
    assert!(large <= 10, "{large} large allocations for {MEASURED} images");
}
