//! `ocellus parity` on the CPU: a sound pipeline differs in nothing, and every wrong step is seen where it happens.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::thread;

use ocellus::decode::DecodeOptions;
use ocellus::error::{ItemError, JobError};
use ocellus::frame::{Encoded, Item, Origin};
use ocellus::gpu::Precision;
use ocellus::model::load::Model;
use ocellus::model::spec::ModelSpec;
use ocellus::parity::{Compare, Comparison, CpuSteps, Difference, Drift, Stepped, Steps};
use ocellus::stage::Stage;
use ocellus_kernels::preprocess::{ColourOrder, Filter, LetterboxPlace, PreprocessDesc, ResizeRule};
use serde_json::Value;
use tests::job::{make_pipe, signal, until_at_rest, wait, with_default_signals};
use tests::program::{rows, text};
use tests::{ocellus, workspace_root};

const NONE: Difference = Difference { max: 0.0, mean: 0.0 };

fn model() -> Model {
    Model::open(&ModelSpec::resolve("squeezenet1.1").unwrap()).unwrap()
}

fn photos() -> Vec<PathBuf> {
    let folder = fs::read_dir(workspace_root().join("samples/photos")).unwrap();
    let mut photos: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    photos.sort();
    photos
}

/// What comparing a file gives.
fn compare<S: Steps>(compare: &mut Compare<S>, path: &Path) -> Result<Comparison, ItemError> {
    let encoded = Encoded { bytes: fs::read(path).unwrap().into(), share: None };
    let item = Item::new(0, Origin::File(path.into()), Ok(encoded));
    let mut compared = None;
    compare.process(item, &mut |item| compared = Some(item.payload)).unwrap();
    compared.unwrap()
}

/// The CPU's steps beside a reference that is described.
fn beside(model: &Model, reference: &PreprocessDesc) -> Compare<CpuSteps> {
    let steps = CpuSteps::new(model, DecodeOptions::default()).unwrap();
    Compare::new(steps, model, reference, DecodeOptions::default(), 1).unwrap()
}

#[test]
fn the_cpu_path_is_the_reference() {
    let model = model();
    let mut sound = beside(&model, &model.preprocess());
    for photo in photos() {
        let compared = compare(&mut sound, &photo).unwrap();
        let differences = [compared.decode, compared.resize, compared.resized, compared.input];
        assert_eq!(differences, [NONE; 4], "{}", photo.display());
        assert_eq!(compared.answer, Drift { same_top1: true, score: 0.0 });
        assert!(compared.precisions.is_empty());
    }
}

/// Which of the steps differ: resize, and input.
fn differs(model: &Model, reference: &PreprocessDesc) -> [bool; 2] {
    let mut compare_with = beside(model, reference);
    // Not a square one.
    let compared = compare(&mut compare_with, &photos()[1]).unwrap();
    assert_eq!(compared.decode, NONE);
    assert_eq!(compared.resize, compared.resized, "from the same pixels");
    [compared.resize, compared.input].map(|difference| difference.max > 0.0 && difference.mean > 0.0)
}

#[test]
fn a_wrong_description_is_seen_in_its_step() {
    let model = model();
    let right = model.preprocess();
    assert_eq!(differs(&model, &right), [false, false]);
    let filter = if right.filter == Filter::Bilinear { Filter::Bicubic } else { Filter::Bilinear };
    let colour = if right.colour == ColourOrder::Rgb { ColourOrder::Bgr } else { ColourOrder::Rgb };
    for wrong_resize in [
        PreprocessDesc { filter, ..right.clone() },
        PreprocessDesc { filter: Filter::Nearest, ..right.clone() },
        PreprocessDesc { antialias: false, ..right.clone() },
        PreprocessDesc { resize: ResizeRule::Shortest { short_px: right.height_px + 1 }, ..right.clone() },
        PreprocessDesc {
            resize: ResizeRule::Letterbox { fill: [0; 3], place: LetterboxPlace::Centre },
            ..right.clone()
        },
        PreprocessDesc { colour, ..right.clone() },
    ] {
        assert_eq!(differs(&model, &wrong_resize), [true, true], "{wrong_resize:?}");
    }
    for wrong_numbers in [
        PreprocessDesc { mean: right.mean.map(|mean| mean + 1.0), ..right.clone() },
        PreprocessDesc { std: right.std.map(|std| std * 1.01), ..right.clone() },
    ] {
        assert_eq!(differs(&model, &wrong_numbers), [false, true], "{wrong_numbers:?}");
    }
}

/// Steps with a fault in one of them.
struct Faulty(CpuSteps, fn(&mut Stepped));

impl Steps for Faulty {
    fn run(&mut self, item: &Item<()>, encoded: &Encoded) -> Result<Result<Stepped, ItemError>, JobError> {
        Ok(self.0.run(item, encoded)?.map(|mut stepped| {
            (self.1)(&mut stepped);
            stepped
        }))
    }
}

fn faulty(model: &Model, fault: fn(&mut Stepped)) -> Result<Comparison, ItemError> {
    let options = DecodeOptions::default();
    let steps = Faulty(CpuSteps::new(model, options).unwrap(), fault);
    compare(&mut Compare::new(steps, model, &model.preprocess(), options, 1).unwrap(), &photos()[1])
}

#[test]
fn a_fault_of_a_step_is_measured() {
    let model = model();
    let decode = faulty(&model, |stepped| stepped.picture.rgb[10] ^= 4).unwrap();
    assert_eq!(decode.decode.max, 4.0);
    assert!(decode.decode.mean > 0.0 && decode.decode.mean < 1e-4);
    // Pixels that were changed behind the resize's back look like a fault of the resize only.
    assert_eq!((decode.resized, decode.input), (NONE, NONE));
    let resize = faulty(&model, |stepped| stepped.resized[10] += 1.0).unwrap();
    assert_eq!((resize.resize.max, resize.resized.max, resize.input), (1.0, 1.0, NONE));
    let input = faulty(&model, |stepped| stepped.input.fill(0.0)).unwrap();
    assert!(input.input.max > 0.0 && input.answer.score > 0.0 && !input.answer.same_top1, "{input:?}");
    let input = faulty(&model, |stepped| stepped.input[0] = f32::NAN);
    assert!(input.is_err() || input.is_ok_and(|compared| compared.input.max == f64::INFINITY));
    let answers = faulty(&model, |stepped| {
        let one = |class: usize| (0..1000).map(|n| if n == class { 50.0 } else { 0.0 }).collect();
        stepped.outputs = vec![(Precision::Fp16, one(3)), (Precision::Bf16, one(7))];
    });
    for (_, drift) in answers.unwrap().precisions {
        assert!(!drift.same_top1 && drift.score > 0.5, "{drift:?}");
    }
    // Another size is no difference but an error.
    let size = faulty(&model, |stepped| stepped.picture.width_px /= 2);
    assert!(size.is_err(), "{size:?}");
}

fn parity(arguments: &[&str]) -> Command {
    let mut command = ocellus();
    command.args(["parity", "--model", "squeezenet1.1", "--device", "cpu"]).args(arguments);
    command
}

#[test]
fn damaged_files_are_rows_and_come_first() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(&photos()[0], folder.path().join("a.jpg")).unwrap();
    fs::copy(&photos()[1], folder.path().join("z.jpg")).unwrap();
    fs::write(folder.path().join("m.jpg"), "no picture").unwrap();
    fs::write(folder.path().join("n.jpg"), &fs::read(&photos()[0]).unwrap()[..400]).unwrap();
    let inputs = folder.path().to_str().unwrap();
    let output = parity(&[inputs]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    let all = rows(&output);
    let names: Vec<_> = all.iter().map(|row| Path::new(row["path"].as_str().unwrap()).file_name().unwrap()).collect();
    assert_eq!(names, ["m.jpg", "n.jpg", "a.jpg", "z.jpg"]);
    assert_eq!(all[0]["error"]["stage"], "decode");
    assert_eq!(all[2]["decode"]["max"], 0.0);
    assert_eq!(all[2]["answer"]["same_top1"], true);
    for part in ["2 files compared, 2 failed", "reference: ", "compared: the CPU path"] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    // Fewer rows, the same summary and exit code.
    let output = parity(&[inputs, "--limit", "1"]).output().unwrap();
    assert_eq!((rows(&output).len(), output.status.code()), (1, Some(3)));
    assert!(text(&output.stderr).contains("2 files compared, 2 failed"));
    let output = parity(&[inputs, "--format", "table", "--quiet"]).output().unwrap();
    assert!(text(&output.stdout).contains("error: ") && output.stderr.is_empty());
}

#[test]
fn a_file_is_whole_and_not_replaced_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.csv");
    let photo = photos().remove(2);
    let run = |options: &[&str]| {
        let mut command = parity(options);
        command.arg(&photo).arg("-o").arg(&file).output().unwrap()
    };
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(column(&file, "decode_mean"), ["0"]);
    let again = run(&[]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("--overwrite"), "{}", text(&again.stderr));
    assert_eq!(run(&["--overwrite"]).status.code(), Some(0));
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["rows.csv"], "nothing else is left");
}

/// A column of a CSV file.
fn column(file: &Path, name: &str) -> Vec<String> {
    let mut reader = csv::Reader::from_path(file).unwrap();
    let at = reader.headers().unwrap().iter().position(|header| header == name).unwrap();
    reader.records().map(|record| record.unwrap()[at].to_owned()).collect()
}

#[test]
fn a_path_that_is_not_utf_8_is_written_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let photo = fs::read(&photos()[0]).unwrap();
    let files: [(&[u8], &[u8]); 4] = [
        (b"plain.jpg", &photo),
        (b"\xff\xfe.jpg", &photo),
        (b"cut \xe2\x82.jpg", b"x"),
        ("gr\u{fc}n.jpg".as_bytes(), b"x"),
    ];
    let mut expected = BTreeSet::new();
    for (name, content) in files {
        let path = folder.path().join(OsStr::from_bytes(name));
        fs::write(&path, content).unwrap();
        let bytes = path.as_os_str().as_bytes();
        let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
        let exact = path.to_str().is_none().then_some(hex);
        expected.insert((path.to_string_lossy().into_owned(), exact.unwrap_or_default()));
    }
    let output = parity(&[folder.path().to_str().unwrap()]).output().unwrap();
    let field = |row: &Value, name: &str| row.get(name).map_or("", |value| value.as_str().unwrap()).to_owned();
    let found = rows(&output).iter().map(|row| (field(row, "path"), field(row, "path_bytes"))).collect();
    assert_eq!(expected, found);
    let file = folder.path().join("rows.csv");
    let output = parity(&[folder.path().to_str().unwrap()]).arg("-o").arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert_eq!(expected, column(&file, "path").into_iter().zip(column(&file, "path_bytes")).collect());
}

/// What was compared until somebody stopped it is there, wherever rows go, and in no file that looks complete.
#[test]
fn a_job_that_is_stopped_keeps_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    // Runs until all that it was given is compared and it waits for more.
    let stopped = |file: &Path, options: &[&str]| {
        let mut command = with_default_signals(parity(&["-", "-o"]).arg(file).args(options));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut list = child.stdin.take().unwrap();
        photos()[..2].iter().for_each(|photo| writeln!(list, "{}", photo.display()).unwrap());
        until_at_rest(&mut child, &AtomicU64::new(0));
        signal(&child, "-INT");
        let said = child.wait_with_output().unwrap();
        assert_eq!(said.status.code(), Some(130), "{}", text(&said.stderr));
        assert!(!file.exists());
        text(&said.stderr)
    };
    for name in ["rows.jsonl", "rows.csv", "rows.txt"] {
        let (file, left) = (folder.path().join(name), folder.path().join(format!("{name}.interrupted")));
        let said = stopped(&file, &[]);
        assert!(said.contains(&format!("{name}.interrupted has what was compared")), "{said}");
        let kept = fs::read_to_string(&left).unwrap();
        assert!(photos()[..2].iter().all(|photo| kept.contains(photo.to_str().unwrap())), "{kept}");
        // The next job does not lose it unasked.
        let again = parity(&["-", "-o"]).arg(&file).stdin(Stdio::null()).output().unwrap();
        assert_eq!(again.status.code(), Some(2));
        assert!(text(&again.stderr).contains(".interrupted exists: --overwrite"), "{}", text(&again.stderr));
        assert_eq!(fs::read_to_string(&left).unwrap(), kept);
    }
    let (file, left) = (folder.path().join("rows.csv"), folder.path().join("rows.csv.interrupted"));
    fs::write(&left, "x").unwrap();
    stopped(&file, &["--overwrite"]);
    assert!(fs::read_to_string(&left).unwrap().starts_with("path,"));
    // And none stays beside the rows of a whole job.
    let whole = parity(&[photos()[0].to_str().unwrap(), "--overwrite", "-o"]).arg(&file).output().unwrap();
    assert!(whole.status.success() && file.exists() && !left.exists(), "{}", text(&whole.stderr));
    // A pipe has them as standard output has.
    let pipe = folder.path().join("pipe.jsonl");
    make_pipe(&pipe);
    let reader = {
        let pipe = pipe.clone();
        thread::spawn(move || fs::read_to_string(pipe).unwrap())
    };
    let mut command = with_default_signals(parity(&["-", "-o"]).arg(&pipe));
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut list = child.stdin.take().unwrap();
    writeln!(list, "{}", photos()[0].display()).unwrap();
    until_at_rest(&mut child, &AtomicU64::new(0));
    signal(&child, "-INT");
    assert_eq!(wait(&mut child).code(), Some(130));
    assert_eq!(reader.join().unwrap().lines().count(), 1);
}

#[test]
fn nothing_to_compare_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let output = parity(&[folder.path().to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let output = parity(&["-"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no paths on standard input"), "{}", text(&output.stderr));
    let output = ocellus().args(["parity", "x.jpg", "-o", "x.parquet"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--format"), "{}", text(&output.stderr));
}
