//! What the stages of the GPU path allocate on the host when they have warmed up. (What they take of the GPU's memory:
//! `gpu_classify/steady.rs`. The way to them: `allocations.rs`.)

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use ocellus::decode::{Decode, DecodeOptions, Split};
use ocellus::error::{JobError, StageName};
use ocellus::frame::{Branch, Encoded, Item, Picture, Tensor};
use ocellus::gpu::{
    self, Alive, Collect, Gpu, InferParts, Lane, LaneLoad, LaneModel, Lanes, LoadParts, Precision, Priority,
    WorkBatcher,
};
use ocellus::model::load::Model;
use ocellus::model::spec::ModelSpec;
use ocellus::observe::trace::Recorder;
use ocellus::postprocess::{ClassifyDesc, ClassifyRanked};
use ocellus::preprocess::Preprocess;
use ocellus::runner::{Branches, Fan, PerItem, Pipeline, Tag, Then};
use ocellus::source::{Found, ReadAhead, ReadLarge};
use ocellus::stage::{Cancel, Stage};
use ocellus_kernels::preprocess::PreprocessDesc;
use tests::allocations::{Counting, Counts, of_this_thread};
use tests::network::NetworkBuilder;
use tests::workspace_root;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Images in a batch.
const BATCH: usize = 16;
/// Batches.
const BATCHES: usize = 160;
/// Batches after which a stage has warmed up.
const WARM_UP: usize = 5;

/// A stage whose allocations are counted.
struct Counted<S> {
    stage: S,
    batches: usize,
    /// What it has allocated since it was warm, and for how many batches.
    warm: Arc<Mutex<(Counts, usize)>>,
}

impl<S: Stage> Stage for Counted<S> {
    type In = S::In;
    type Out = S::Out;

    fn process(&mut self, input: S::In, emit: &mut dyn FnMut(S::Out)) -> Result<(), JobError> {
        let before = of_this_thread();
        self.stage.process(input, emit)?;
        let counts = of_this_thread() - before;
        self.batches += 1;
        if self.batches > WARM_UP {
            let mut warm = self.warm.lock().unwrap();
            warm.0 += counts;
            warm.1 += 1;
        }
        Ok(())
    }
}

fn decoder() -> impl Stage<In = Item<Option<Encoded>>, Out = Item<Picture>> {
    let (options, decode) = (DecodeOptions::default(), Decode::new(DecodeOptions::default()));
    Then(ReadLarge::new(options.max_bytes), PerItem::new(StageName::Decode, move || Ok(decode.clone())).unwrap())
}

fn resizer(desc: PreprocessDesc) -> impl Stage<In = Item<Option<Encoded>>, Out = Branch<Item<Tensor>>> {
    let make = move || Ok(Preprocess::new(desc.clone())?);
    Then(decoder(), Fan(vec![PerItem::new(StageName::Preprocess, make).unwrap()]))
}

#[test]
fn a_picture_on_the_gpu_costs_the_host_few_allocations() {
    let Some(gpu) = tests::gpu::gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut builder = NetworkBuilder::new(7);
    let x = builder.conv(NetworkBuilder::INPUT, 3, 8, 3, 2, 1.0);
    let scores = builder.classes(&x, 8, 12, 2.0);
    let file = folder.path().join("net.onnx");
    fs::write(&file, builder.finish("net", 32, &scores, 12)).unwrap();
    let model = Model::open(&ModelSpec::resolve(file.to_str().unwrap()).unwrap()).unwrap();
    // A class without a label is a number, which is written for each row.
    let labels = (0..12).map(|class| Arc::from(format!("label {class}"))).collect();
    let classify = ClassifyDesc::of(labels, &model.card.output);
    let lane_model = LaneModel {
        model: &model,
        precision: Precision::Fp32,
        ranks: ClassifyRanked::ranks(&classify),
        priority: Priority::Low,
        copies: std::num::NonZeroUsize::MIN,
    };
    let gpu = Gpu { device: gpu.device.clone(), jit: Arc::clone(&gpu.jit) };
    let lane = Lane::new(gpu, &[lane_model], BATCH.try_into().unwrap(), 1).unwrap();
    let stages = lane.stages(|| Ok(decoder()), &Recorder::default()).unwrap();

    // By the engines and by CPU and GPU; every batch is alike.
    let names = ["jpeg-420-16x17.jpg", "jpeg-420-progressive.jpg", "jpeg-420-17x16.jpg", "jpeg-420-16x16.jpg"];
    let files: Vec<PathBuf> = names.map(|name| workspace_root().join("tests/golden/decode").join(name)).to_vec();
    assert!(files.iter().all(|file| file.exists()));
    let items = files.into_iter().cycle().take(BATCH * BATCHES);
    let items = (0..).zip(items).map(|(id, path)| Found { path, error: None }.into_item(id));
    let (ahead, split) = (ReadAhead::new(u64::MAX), Split::new(DecodeOptions::default(), true));
    let reader = || {
        let split = split.clone();
        Then(ahead.clone(), PerItem::new(StageName::Decode, move || Ok(split.clone())).unwrap())
    };

    let warm = [(); 3].map(|()| Arc::new(Mutex::new((Counts::default(), 0))));
    let [of_load, of_infer, of_collect] = warm.each_ref().map(Arc::clone);
    let alive = Alive::new([stages.name], |line| panic!("{line}"));
    let load = |load| Counted { stage: LaneLoad::new(0, load, alive.clone()), batches: 0, warm: Arc::clone(&of_load) };
    let parts = LoadParts::new(stages.parts, resizer(model.preprocess()), Arc::new(AtomicU64::new(0)));
    let infer = InferParts::new(stages.networks, resizer(model.preprocess()), stages.images, Arc::default());
    let lanes = Lanes::new(vec![Then(parts, infer)], reader(), alive.clone());
    let infer = Counted { stage: lanes.clone(), batches: 0, warm: of_infer };
    let collect = Then(Collect::new(lanes), Branches(vec![Tag { branch: 0, stage: ClassifyRanked::new(classify) }]));
    let pipeline = Pipeline::new(items, Cancel::default())
        .and_then(|p| p.stage("read+split", reader()))
        .and_then(|p| p.stage("batch", WorkBatcher::new(BATCH, usize::MAX)))
        .and_then(|p| p.pool("load", stages.loaders.into_iter().map(load).collect::<Vec<_>>()))
        .and_then(|p| p.room(gpu::room(1)).stage("infer", infer))
        .and_then(|p| p.stage("postprocess", Counted { stage: collect, batches: 0, warm: of_collect }));
    let mut images = 0;
    let outcome = pipeline.unwrap().run(|row| {
        assert!(row.value.payload.is_ok(), "{:?}", row.value.payload);
        images += 1;
        Ok(())
    });
    outcome.end.unwrap();
    assert_eq!(images, BATCH * BATCHES);
    // What travels to the sink is an image's own; all else is a batch's, however many images it has.
    for (stage, warm, an_image, a_batch) in
        [("load", &warm[0], 0, 20), ("infer", &warm[1], 0, 32), ("postprocess", &warm[2], 2, 8)]
    {
        let (counts, batches) = *warm.lock().unwrap();
        assert!(batches > 0, "{stage} has never warmed up");
        let [large, small] = [counts.large, counts.small].map(|n| n as f64 / batches as f64);
        println!("{stage}: {large:.2} large and {small:.2} small allocations a batch of {BATCH}");
        assert!(large <= 2.0 && small <= (an_image * BATCH + a_batch) as f64, "{stage}: {large} and {small}");
    }
}
