//! `ocellus run`: a job from a file, with one or several models, on the CPU.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tests::network::NetworkBuilder;
use tests::ocellus;
use tests::program::{photo, rows, text};

const CLASSES: usize = 5;

/// A network that is quick to run.
fn network(path: &Path, seed: u64, side_px: i64) {
    let mut builder = NetworkBuilder::new(seed);
    let x = builder.conv(NetworkBuilder::INPUT, 3, 8, 3, 2, 1.0);
    let x = builder.node("Relu", &[&x], vec![]);
    let scores = builder.classes(&x, 8, CLASSES, 2.0);
    fs::write(path, builder.finish("net", side_px, &scores, CLASSES)).unwrap();
}

struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    /// Three networks, a job with two of them, and files, one of which is no picture.
    fn new() -> Self {
        let fixture = Self { folder: tempfile::tempdir().unwrap() };
        for (seed, name) in [(1, "a.onnx"), (2, "b.onnx"), (3, "c.onnx")] {
            network(&fixture.path(name), seed, 24 + 8 * seed as i64);
        }
        fixture.write("job.toml", &config(&["a", "b"]));
        fixture.write("text.jpg", "no picture");
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
    }

    fn files(&self) -> [PathBuf; 4] {
        [photo("panda.jpg"), self.path("text.jpg"), photo("flower.jpg"), photo("rocket.jpg")]
    }

    fn job(&self, files: &[PathBuf], options: &[&str]) -> Command {
        let mut command = ocellus();
        command.arg("run").arg(self.path("job.toml")).args(files).args(["--device", "cpu"]).args(options);
        command
    }
}

fn config(models: &[&str]) -> String {
    let model = |name: &&str| format!("[[model]]\nonnx = \"{name}.onnx\"\ntop = 3\n");
    format!("batch = 2\n{}", models.iter().map(model).collect::<String>())
}

fn output(command: &mut Command, code: i32) -> Output {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{}", message(&output));
    output
}

fn message(output: &Output) -> String {
    text(&output.stderr)
}

/// The rows of a model alone.
fn alone(model: &Path, files: &[PathBuf], top: &str) -> Vec<Value> {
    let mut command = ocellus();
    command.arg("classify").args(files).arg("--model").arg(model).args(["--device", "cpu", "--top", top]);
    rows(&output(command.args(["--format", "jsonl"]), 3))
}

fn with_model(row: &Value, model: &str) -> Value {
    let mut row = row.clone();
    row["model"] = model.into();
    row
}

#[test]
fn the_example_runs() {
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("x.jpg");
    fs::write(&bad, "no picture").unwrap();
    let files = [photo("panda.jpg"), bad];
    let example = "configs/pipelines/two-models.toml";
    let found = rows(&output(ocellus().args(["run", example, "--device", "cpu"]).args(&files), 3));
    let large = alone(Path::new("efficientnet-lite0"), &files, "5");
    let small = alone(Path::new("squeezenet1.1"), &files, "1");
    let pairs = large.iter().zip(&small);
    let expected: Vec<_> =
        pairs.flat_map(|(a, b)| [with_model(a, "efficientnet-lite0"), with_model(b, "squeezenet")]).collect();
    assert_eq!(found, expected);
    assert_eq!(found.len(), 4);
}

#[test]
fn a_picture_is_decoded_once_for_all_models() {
    let fixture = Fixture::new();
    let stats = fixture.path("stats.json");
    for order in ["input", "completion"] {
        fixture.write("job.toml", &format!("order = \"{order}\"\n{}", config(&["a", "b", "c"])));
        let mut job = fixture.job(&fixture.files(), &["--format", "jsonl", "--stats", stats.to_str().unwrap()]);
        let mut found = rows(&output(&mut job, 3));
        let of = |name: &str| alone(&fixture.path(&format!("{name}.onnx")), &fixture.files(), "3");
        let all = [("a", of("a")), ("b", of("b")), ("c", of("c"))];
        let mut expected: Vec<_> =
            (0..4).flat_map(|n| all.iter().map(move |(name, rows)| with_model(&rows[n], name))).collect();
        // Rows of one input stand together, whichever comes first.
        assert!(found.chunks(3).all(|rows| rows.iter().all(|row| row["path"] == rows[0]["path"])));
        if order == "completion" {
            found.sort_by_key(ToString::to_string);
            expected.sort_by_key(ToString::to_string);
        }
        assert_eq!(found, expected);
        let stats: Value = serde_json::from_slice(&fs::read(&stats).unwrap()).unwrap();
        assert_eq!((&stats["images"], &stats["failed"], &stats["model"]), (&4.into(), &1.into(), &"a,b,c".into()));
        let decode = stats["pipeline"]["stages"].as_array().unwrap().iter().find(|s| s["stage"] == "decode+resize");
        let decode = decode.unwrap();
        assert_eq!((&decode["in"], &decode["out"]), (&4.into(), &12.into()));
    }
}

#[test]
fn one_model_gives_the_rows_of_classify() {
    let fixture = Fixture::new();
    fixture.write("job.toml", &config(&["a"]));
    let found = rows(&output(&mut fixture.job(&fixture.files(), &["--format", "jsonl"]), 3));
    assert_eq!(found, alone(&fixture.path("a.onnx"), &fixture.files(), "3"));
}

/// What a job asks for and the CPU does not have is said in one line, and -q keeps it: it changes no row.
#[test]
fn keys_that_change_nothing_on_the_cpu_are_named() {
    let fixture = Fixture::new();
    let files = fixture.files();
    let settings: [(&str, &str, Option<&str>); 5] = [
        ("", "", None),
        ("instances = 1", "priority = \"low\"", None),
        ("instances = 2", "", Some("instances:")),
        ("", "priority = \"high\"", Some("priority:")),
        ("priority = \"high\"\ninstances = 2", "instances = 3", Some("instances, priority:")),
    ];
    let mut first = None;
    for (a, b, named) in settings {
        let config = format!("[[model]]\nonnx = \"a.onnx\"\n{a}\n[[model]]\nonnx = \"b.onnx\"\n{b}\n");
        fixture.write("job.toml", &config);
        for quiet in [false, true] {
            let options = ["--format", "jsonl", "--quiet"];
            let output = output(&mut fixture.job(&files, &options[..if quiet { 3 } else { 2 }]), 3);
            let said = message(&output);
            let lines: Vec<_> = said.lines().filter(|line| line.contains("no effect on the CPU")).collect();
            let expected: Vec<_> = named.filter(|_| !quiet).into_iter().collect();
            assert_eq!(lines.len(), expected.len(), "{config}: {said}");
            let begins = |(line, keys): (&&str, &&str)| line.starts_with(&format!("warning: {keys} of no effect"));
            assert!(lines.iter().zip(&expected).all(begins), "{config}: {said}");
            assert_eq!(*first.get_or_insert(rows(&output)), rows(&output), "{config}");
        }
    }
}

/// A job that is cut off after any number of rows, and goes on: each input once, with all its rows, in every format.
#[test]
fn an_input_is_done_when_all_its_rows_are_there() {
    let fixture = Fixture::new();
    let files = fixture.files();
    for extension in ["jsonl", "csv", "parquet"] {
        let out = fixture.path(&format!("rows.{extension}"));
        let out_text = out.to_str().unwrap();
        output(&mut fixture.job(&files, &["-o", out_text]), 3);
        let complete = fs::read(&out).unwrap();
        output(&mut fixture.job(&files[..2], &["-o", out_text, "--overwrite"]), 3);
        let resumed = output(&mut fixture.job(&files, &["-o", out_text, "--resume"]), 3);
        assert_eq!(fs::read(&out).unwrap(), complete, "{extension}");
        assert!(message(&resumed).contains("2 done before (1 failed)"), "{}", message(&resumed));
        if extension == "parquet" {
            continue;
        }
        let lines = String::from_utf8(complete.clone()).unwrap();
        let ends: Vec<usize> = lines.match_indices('\n').map(|(at, _)| at + 1).collect();
        for end in ends {
            fs::remove_file(&out).unwrap();
            fs::write(format!("{out_text}.partial"), &lines[..end]).unwrap();
            output(&mut fixture.job(&files, &["-o", out_text, "--resume"]), 3);
            assert_eq!(fs::read(&out).unwrap(), complete, "{extension} cut at {end}");
        }
        fixture.write("job.toml", &config(&["a", "c"]));
        let other = output(&mut fixture.job(&files, &["-o", out_text, "--resume"]), 2);
        assert!(message(&other).contains("other models"), "{}", message(&other));
        fixture.write("job.toml", &config(&["a", "b"]));
    }
}

#[test]
fn what_is_wrong_with_a_job_is_one_line() {
    let fixture = Fixture::new();
    let files = fixture.files();
    let cases: [(&str, &[PathBuf], &[&str], &str); 8] = [
        ("batch = 2\nbatches = 3\n", &files, &[], "line 2: unknown field `batches`"),
        ("[[model]]\nonnx = \"a.onnx\"\n[[model]]\nonnx = \"a.onnx\"\n", &files, &[], "two models are called \"a\""),
        ("[[model]]\nonnx = \"a.onnx\"\n", &[], &[], "no inputs"),
        ("[[model]]\nonnx = \"a.onnx\"\n", &files, &["--resume"], "give -o FILE"),
        ("[[model]]\ncard = \"no-such\"\n", &files, &[], "known are"),
        ("[[model]]\nonnx = \"a.onnx\"\nprecision = \"fp16\"\n", &files, &[], "--device cuda"),
        ("= 3\n", &files, &[], "line 1"),
        ("", &files, &[], "[[model]]"),
    ];
    for (text, files, options, hint) in cases {
        fixture.write("job.toml", text);
        let output = output(&mut fixture.job(files, options), 2);
        let message = message(&output);
        let errors: Vec<_> = message.lines().filter(|line| line.starts_with("error: ")).collect();
        assert!(errors.len() == 1 && errors[0].contains(hint), "{text}: {message}");
    }
    let missing = ocellus().args(["run", "no-such.toml"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(message(&missing).contains("no-such.toml"));
    fixture.write("job.toml", "[[model]]\nonnx = \"no-such.onnx\"\n");
    assert!(message(&output(&mut fixture.job(&files, &[]), 2)).contains("no-such.onnx"));
}
