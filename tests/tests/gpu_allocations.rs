//! What the stages of the GPU path allocate on the host when they have warmed up. (What they take of the GPU's memory:
//! `gpu_classify/steady.rs`. The way to them: `allocations.rs`.)

use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use ocellus::decode::{Decode, DecodeOptions, Split};
use ocellus::error::{ErrorKind, ItemError, JobError, StageName};
use ocellus::frame::{Branch, Encoded, Item, Origin, Picture, PooledVec, Tensor, Work};
use ocellus::gpu::{
    self, Alive, Collect, Gpu, InferParts, Lane, LaneInput, LaneLoad, LaneModel, Lanes, Load, LoadOutcome, LoadParts,
    Precision, Priority, WorkBatcher,
};
use ocellus::model::load::Model;
use ocellus::model::spec::ModelSpec;
use ocellus::observe::trace::Recorder;
use ocellus::postprocess::{ClassifyDesc, ClassifyRanked};
use ocellus::preprocess::Preprocess;
use ocellus::runner::{Branches, Fan, Order, PerItem, Pipeline, Tag, Then};
use ocellus::source::{Found, ReadAhead, ReadLarge};
use ocellus::stage::{Cancel, Stage};
use ocellus_kernels::cuda::memory::PinnedMemory;
use ocellus_kernels::preprocess::PreprocessDesc;
use tests::allocations::{Calls, Counting, Row, wait_until_full};
use tests::network::NetworkBuilder;
use tests::workspace_root;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A stage whose calls are counted. What it gives is handed on between them: the queues behind it are not its own.
struct Counted<S: Stage> {
    stage: S,
    given: Vec<S::Out>,
    calls: Arc<Calls>,
}

fn counted<S: Stage>(stage: S, calls: &Arc<Calls>) -> Counted<S> {
    Counted { stage, given: Vec::new(), calls: Arc::clone(calls) }
}

impl<S: Stage> Stage for Counted<S> {
    type In = S::In;
    type Out = S::Out;

    fn process(&mut self, input: S::In, emit: &mut dyn FnMut(S::Out)) -> Result<(), JobError> {
        let Self { stage, given, calls } = self;
        calls.count(|| stage.process(input, &mut |value| given.push(value)))?;
        given.drain(..).for_each(emit);
        Ok(())
    }

    fn is_heavy(&mut self) -> bool {
        self.stage.is_heavy()
    }

    fn finish(&mut self, emit: &mut dyn FnMut(S::Out)) -> Result<(), JobError> {
        self.stage.finish(emit)
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
fn a_picture_on_the_gpu_costs_the_host_no_allocations() {
    let Some(gpu) = tests::gpu::gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut builder = NetworkBuilder::new(7);
    let x = builder.conv(NetworkBuilder::INPUT, 3, 8, 3, 2, 1.0);
    let scores = builder.classes(&x, 8, 12, 2.0);
    let file = folder.path().join("net.onnx");
    fs::write(&file, builder.finish("net", 32, &scores, 12)).unwrap();
    let model = Model::open(&ModelSpec::resolve(file.to_str().unwrap()).unwrap()).unwrap();
    // Some classes have no label and are called by their number.
    let labels = (0..5).map(|class| Arc::from(format!("label {class}"))).collect();
    let classify = ClassifyDesc::of(labels, &model.card.output);
    for (lanes, images) in [(1, 24), (2, 4)] {
        let gpu = || Gpu { device: gpu.device.clone(), jit: Arc::clone(&gpu.jit) };
        steady(gpu, lanes, images, &model, &classify);
    }
}

/// A batch of a file that was not found, which is loaded in no time.
fn missing_file(id: u64) -> PooledVec<Item<Work>> {
    let error = ItemError::new(StageName::Source, ErrorKind::NotFound, "not there");
    PooledVec::from(vec![Item::new(id, Origin::File("a.jpg".into()), Err(error))])
}

/// Batches that are loaded in no time, and more of them than a worker has memory for at once: it would wait for ever for what it
/// has loaded itself and not handed on.
#[test]
fn quick_batches_are_handed_on_one_by_one() {
    let Some(gpu) = tests::gpu::gpu() else { return };
    let load = Load::new(&gpu.device, None, decoder()).unwrap();
    let pipeline = Pipeline::new((0..2000).map(missing_file), Cancel::default()).unwrap();
    let pipeline = pipeline.order(Order::Portions).pool("load", vec![load]).unwrap();
    let mut ids = Vec::new();
    let outcome = pipeline.run(|outcome| {
        let LoadOutcome::Loaded(batch) = outcome else { panic!("nothing is too large here") };
        ids.extend(batch.decoders().into_iter().map(|item| item.id));
        Ok(())
    });
    outcome.end.unwrap();
    assert_eq!(ids, (0..2000).collect::<Vec<_>>());
}

/// What fails behind it drops the batches that it has, and with them a worker's memory, before anybody knows of the failure: the
/// worker must not be the first to end the job, or its GPU's lane, by a reason that says nothing.
#[test]
fn a_worker_whose_memory_is_lost_leaves_the_reason_to_who_lost_it() {
    let Some(gpu) = tests::gpu::gpu() else { return };
    for lanes in 1..3 {
        let names = (0..lanes).map(|lane| Arc::from(format!("lane {lane}")));
        let alive = Alive::new(names, |line| panic!("a lane was given up: {line}"));
        let load = Load::new(&gpu.device, None, decoder()).unwrap();
        let pipeline = Pipeline::new((0..2000).map(missing_file), Cancel::default()).unwrap();
        let pipeline = pipeline.pool("load", vec![LaneLoad::new(0, load, alive)]).unwrap();
        let mut batches = 0;
        let outcome = pipeline.run(|batch| match batch.value {
            LaneInput::Outcome(_) => {
                batches += 1;
                Ok(())
            }
            LaneInput::Again(works) => {
                assert_eq!(works.len(), 1);
                Err(JobError::Usage("the reason".into()))
            }
        });
        assert_eq!(outcome.end.unwrap_err().to_string(), "the reason", "{lanes} lanes");
        assert_eq!(batches, 2, "{lanes} lanes");
    }
    let load = Load::new(&gpu.device, None, decoder()).unwrap();
    let pipeline = Pipeline::new((0..2000).map(missing_file), Cancel::default()).unwrap();
    let mut batches = 0;
    let outcome = pipeline.pool("load", vec![load]).unwrap().run(|_| {
        batches += 1;
        if batches == 2 {
            // Time for it to find out.
            thread::sleep(Duration::from_millis(300));
            return Err(JobError::Usage("the reason".into()));
        }
        Ok(())
    });
    assert_eq!(outcome.end.unwrap_err().to_string(), "the reason");
}

#[test]
fn locked_memory_is_cut_into_parts_that_do_not_overlap() {
    let Some(gpu) = tests::gpu::gpu() else { return };
    for (all, each) in [(1, 1), (10, 3), (4096, 4096), (8192, 4096), (100, 101), (5, 0)] {
        let memory = PinnedMemory::new(&gpu.device, all).unwrap();
        let mut parts: Vec<_> = memory.into_parts(each).collect();
        assert_eq!(parts.len(), all / each.max(1), "{all} bytes, {each} each");
        for (n, part) in parts.iter_mut().enumerate() {
            assert_eq!(part.as_mut().len(), each.max(1));
            part.as_mut().fill(n as u8);
        }
        assert!(parts.iter().enumerate().all(|(n, part)| part.as_ref().iter().all(|&byte| byte == n as u8)));
        // The last one keeps what is left.
        let last = parts.pop();
        drop(parts);
        assert!(last.is_none_or(|part| part.as_ref().iter().all(|&byte| usize::from(byte) + 1 == all / each.max(1))));
    }
}

/// So many lanes, all on one GPU, and batches of so many images.
fn steady(gpu: impl Fn() -> Gpu, lanes: usize, batch: usize, model: &Model, classify: &ClassifyDesc) {
    let most = batch * lanes * 150;
    let lane_model = LaneModel {
        model,
        precision: Precision::Fp32,
        ranks: ClassifyRanked::ranks(classify),
        priority: Priority::Low,
        copies: NonZeroUsize::MIN,
    };
    // By the engines and by CPU and GPU; every batch is alike.
    let names = ["jpeg-420-16x17.jpg", "jpeg-420-progressive.jpg", "jpeg-420-17x16.jpg", "jpeg-420-16x16.jpg"];
    let files: Vec<PathBuf> = names.map(|name| workspace_root().join("tests/golden/decode").join(name)).to_vec();
    assert!(files.iter().all(|file| file.exists()));
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let items = (0..most).map(move |n| {
        count.fetch_add(1, Relaxed);
        Found { path: files[n % files.len()].clone(), error: None }.into_item(n as u64)
    });
    let (ahead, split) =
        (ReadAhead::new(u64::MAX, gpu::file_memory(&gpu().device)), Split::new(DecodeOptions::default(), true));
    let reader = || {
        let split = split.clone();
        Then(ahead.clone(), PerItem::new(StageName::Decode, move || Ok(split.clone())).unwrap())
    };

    let calls = [(); 5].map(|()| Arc::<Calls>::default());
    let [of_reader, of_batcher, of_load, of_infer, of_collect] = &calls;
    let names: Vec<Arc<str>> = (0..lanes).map(|lane| Arc::from(format!("lane {lane}"))).collect();
    let alive = Alive::new(names, |line| panic!("{line}"));
    let (mut loaders, mut networks) = (Vec::new(), Vec::new());
    for number in 0..lanes {
        let lane = Lane::new(gpu(), &[lane_model], batch.try_into().unwrap(), lanes).unwrap();
        let stages = lane.stages(|| Ok(decoder()), &Recorder::default()).unwrap();
        let load = |load| counted(LaneLoad::new(number, load, alive.clone()), of_load);
        loaders.extend(stages.loaders.into_iter().map(load));
        let parts = LoadParts::new(stages.parts, resizer(model.preprocess()), Arc::default());
        let infer = InferParts::new(stages.networks, resizer(model.preprocess()), stages.images, Arc::default());
        networks.push(Then(parts, infer));
    }
    let stages = Lanes::new(networks, reader(), alive);
    let collector = |_| {
        let classify = Tag { branch: 0, stage: ClassifyRanked::new(classify.clone()) };
        counted(Then(Collect::new(stages.clone()), Branches(vec![classify])), of_collect)
    };
    let pipeline = Pipeline::new(items, Cancel::default())
        .and_then(|p| p.pool("read+split", (0..4).map(|_| counted(reader(), of_reader))))
        .and_then(|p| p.stage("batch", counted(WorkBatcher::new(batch, usize::MAX), of_batcher)))
        .and_then(|p| p.pool("load", loaders))
        .and_then(|p| p.room(gpu::room(lanes)).stage("infer", counted(stages.clone(), of_infer)))
        .and_then(|p| p.pool("postprocess", (0..lanes).map(collector)));
    let mut images = 0;
    let outcome = pipeline.unwrap().run(|row| {
        assert!(row.value.payload.is_ok(), "{:?}", row.value.payload);
        if images == 0 {
            // Then there are about as many buffers as ever are needed.
            wait_until_full(&taken);
        }
        images += 1;
        Ok(())
    });
    outcome.end.unwrap();
    assert_eq!(images, most);
    for (stage, calls) in ["read+split", "batch", "load", "infer", "postprocess"].into_iter().zip(&calls) {
        let Row { calls, without, .. } = calls.row();
        println!("{lanes} lanes, {stage}: of {calls} calls {without} in a row allocated nothing");
        assert!(without >= 50, "{stage}: of {calls} calls {without} in a row allocated nothing");
    }
}
