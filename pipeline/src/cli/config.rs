//! A whole job as a TOML file, for `ocellus run`. `configs/pipelines/two-models.toml` has every key with a comment.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, de};

use super::args::{
    AutoPrecision, Colour, ShowArgs, parse_milliseconds, parse_order, parse_precision_or_auto, parse_score,
};
use super::device::Device;
use super::job::{JobDesc, ModelDesc, RowOrder, find};
use crate::decode::DecodeOptions;
use crate::error::JobError;
use crate::gpu::Priority;
use crate::model::spec::ModelSpec;
use crate::model::text;
use crate::sink::{Existing, Format};

/// Most copies of a network.
const MOST_COPIES: u32 = 16;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    device: Option<Word<Device>>,
    batch: Option<UpTo<4096>>,
    threads: Option<UpTo<1024>>,
    order: Option<Word<RowOrder>>,
    max_latency_ms: Option<Milliseconds>,
    fail_fast: Option<bool>,
    #[serde(default)]
    input: InputFile,
    #[serde(default)]
    decode: DecodeFile,
    #[serde(default)]
    output: OutputFile,
    #[serde(default)]
    model: Vec<ModelFile>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct InputFile {
    #[serde(default)]
    paths: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DecodeFile {
    strict: Option<bool>,
    max_pixels: Option<u64>,
    max_bytes: Option<u64>,
    background: Option<Word<Colour>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputFile {
    file: Option<SomePath>,
    format: Option<Word<Format>>,
    stats: Option<SomePath>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelFile {
    card: Option<String>,
    onnx: Option<String>,
    name: Option<String>,
    precision: Option<Word<AutoPrecision>>,
    priority: Option<Word<Priority>>,
    instances: Option<UpTo<MOST_COPIES>>,
    top: Option<UpTo<1000>>,
    threshold: Option<Score>,
}

/// A path that names something.
#[derive(Debug)]
struct SomePath(PathBuf);

impl<'de> Deserialize<'de> for SomePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let path = PathBuf::deserialize(deserializer)?;
        if path.as_os_str().is_empty() { Err(D::Error::custom("empty; write a path")) } else { Ok(Self(path)) }
    }
}

/// A word that means something.
trait Meaning: Sized {
    fn of(word: &str) -> Result<Self, String>;
}

impl Meaning for Device {
    fn of(word: &str) -> Result<Self, String> {
        word.parse()
    }
}

impl Meaning for RowOrder {
    fn of(word: &str) -> Result<Self, String> {
        parse_order(word)
    }
}

impl Meaning for Colour {
    fn of(word: &str) -> Result<Self, String> {
        word.parse()
    }
}

impl Meaning for Format {
    fn of(word: &str) -> Result<Self, String> {
        word.parse().map_err(|error: JobError| error.to_string())
    }
}

impl Meaning for AutoPrecision {
    fn of(word: &str) -> Result<Self, String> {
        parse_precision_or_auto(word).map_err(|names| format!("no precision \"{word}\"; there are {names}"))
    }
}

impl Meaning for Priority {
    fn of(word: &str) -> Result<Self, String> {
        match word {
            "high" => Ok(Self::High),
            "low" => Ok(Self::Low),
            _ => Err(format!("no priority \"{word}\"; write \"high\" or \"low\"")),
        }
    }
}

#[derive(Debug)]
struct Word<T>(T);

impl<'de, T: Meaning> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::of(&String::deserialize(deserializer)?).map(Self).map_err(D::Error::custom)
    }
}

/// A number from 1.
#[derive(Debug)]
struct UpTo<const MOST: u32>(usize);

impl<'de, const MOST: u32> Deserialize<'de> for UpTo<MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(deserializer)?;
        let count = usize::try_from(number).ok().filter(|n| (1..=MOST as usize).contains(n));
        count.map(Self).ok_or_else(|| D::Error::custom(format!("{number} is out of range; write 1 to {MOST}")))
    }
}

#[derive(Debug)]
struct Milliseconds(Duration);

impl<'de> Deserialize<'de> for Milliseconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        parse_milliseconds(&number.to_string()).map(Self).map_err(D::Error::custom)
    }
}

#[derive(Debug)]
struct Score(f32);

impl<'de> Deserialize<'de> for Score {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        parse_score(&number.to_string()).map(Self).map_err(de::Error::custom)
    }
}

/// Reads a job. It writes to a new file, and says what it does.
///
/// # Errors
/// One line that names the file and, where something in it is wrong, the line or the key.
pub(super) fn read(path: &Path) -> Result<JobDesc, JobError> {
    let wrong = |what: String| JobError::Usage(format!("{}: {what}", path.display()));
    let text = text::read(path).map_err(|error| match error.kind() {
        ErrorKind::InvalidData | ErrorKind::IsADirectory => {
            wrong(format!("{error}; run takes a file that describes a job, classify takes pictures"))
        }
        ErrorKind::NotFound => {
            wrong("no such file; run takes one that describes a job, as configs/pipelines/two-models.toml".into())
        }
        _ => JobError::io(path.display().to_string(), error),
    })?;
    parse(&text, path.parent().unwrap_or(Path::new(""))).map_err(|error| match error {
        JobError::Usage(what) => wrong(what),
        error => error,
    })
}

/// As [`read`], for a text; paths of models count from `folder`.
pub(super) fn parse(text: &str, folder: &Path) -> Result<JobDesc, JobError> {
    let file: ConfigFile = text::toml(text).map_err(|message| {
        let hint = if message.contains("map, expected a sequence") { "; write [[model]], in two brackets" } else { "" };
        JobError::Usage(format!("{message}{hint}"))
    })?;
    if file.model.is_empty() {
        return Err(JobError::Usage("no model; write [[model]] and below it card = \"NAME\"".into()));
    }
    let models = file.model.into_iter().enumerate().map(|(n, model)| desc(model, n + 1, folder));
    let defaults = DecodeOptions::default();
    Ok(JobDesc {
        inputs: file.input.paths.into_iter().map(OsString::from).collect(),
        models: models.collect::<Result<_, _>>()?,
        device: file.device.map_or(Device::Auto, |device| device.0),
        batch: file.batch.map(|n| n.0),
        threads: file.threads.map(|n| n.0),
        order: file.order.map_or(RowOrder::Input, |order| order.0),
        max_latency: file.max_latency_ms.map(|time| time.0),
        decode: DecodeOptions {
            max_pixels: file.decode.max_pixels.unwrap_or(defaults.max_pixels),
            max_bytes: file.decode.max_bytes.unwrap_or(defaults.max_bytes),
            strict: file.decode.strict.unwrap_or(defaults.strict),
            background: file.decode.background.map_or(defaults.background, |colour| colour.0.0),
        },
        output: file.output.file.map(|path| path.0),
        format: file.output.format.map(|format| format.0),
        existing: Existing::Refuse,
        fail_fast: file.fail_fast.unwrap_or(false),
        show: ShowArgs { stats: file.output.stats.map(|path| path.0), ..ShowArgs::default() },
    })
}

/// The `number`-th model of a file in `folder`.
fn desc(file: ModelFile, number: usize, folder: &Path) -> Result<ModelDesc, JobError> {
    let of_model = |what: &str| JobError::Usage(format!("[[model]] {number}: {what}"));
    let model = match (&file.card, &file.onnx) {
        (Some(card), None) if Path::new(card).extension().is_some_and(|e| e.eq_ignore_ascii_case("toml")) => {
            ModelSpec::Card(folder.join(card))
        }
        (Some(card), None) if Path::new(card).extension().is_some_and(|e| e.eq_ignore_ascii_case("onnx")) => {
            return Err(of_model("card: this is a network; write onnx = \"FILE\""));
        }
        (Some(card), None) => find(card).map_err(|error| of_model(&error.to_string()))?,
        (None, Some(onnx)) => ModelSpec::Onnx(folder.join(onnx)),
        (None, None) => return Err(of_model("write card = \"NAME\" or onnx = \"FILE\"")),
        (Some(_), Some(_)) => return Err(of_model("card and onnx at once; the card names its network")),
    };
    if file.name.as_ref().is_some_and(|name| name.is_empty() || name.chars().any(char::is_control)) {
        return Err(of_model("name: empty, or with characters that cannot be printed"));
    }
    Ok(ModelDesc {
        name: file.name,
        top: file.top.map(|n| n.0),
        threshold: file.threshold.map(|score| score.0),
        priority: file.priority.map_or(Priority::Low, |priority| priority.0),
        copies: file.instances.and_then(|n| NonZeroUsize::new(n.0)).unwrap_or(NonZeroUsize::MIN),
        ..ModelDesc::new(model, file.precision.and_then(|precision| precision.0.0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Precision;

    fn parsed(text: &str) -> Result<JobDesc, String> {
        parse(text, Path::new("folder")).map_err(|error| error.to_string())
    }

    const ALL: &str = r#"
device = "cuda:0,cuda:1"
batch = 32
threads = 3
order = "completion"
max_latency_ms = 2.5
fail_fast = true
[input]
paths = ["a", "b*"]
[decode]
strict = true
max_pixels = 5
max_bytes = 6
background = "010203"
[output]
file = "x.csv"
format = "jsonl"
stats = "s.json"
[[model]]
card = "cards/a.toml"
name = "one"
precision = "bf16"
priority = "high"
instances = 2
top = 3
threshold = 0.5
[[model]]
onnx = "b.onnx"
"#;

    #[test]
    fn every_key_has_its_place() {
        let job = parsed(ALL).unwrap();
        assert_eq!((job.device, job.batch, job.threads), ("cuda:0,cuda:1".parse().unwrap(), Some(32), Some(3)));
        assert_eq!(job.max_latency, Some(Duration::from_micros(2500)));
        assert_eq!((job.order, job.fail_fast, job.existing), (RowOrder::Completion, true, Existing::Refuse));
        assert_eq!(job.inputs, ["a", "b*"]);
        assert_eq!(job.decode, DecodeOptions { max_pixels: 5, max_bytes: 6, strict: true, background: [1, 2, 3] });
        assert_eq!((job.output, job.format), (Some("x.csv".into()), Some(Format::Jsonl)));
        assert_eq!(job.show.stats, Some("s.json".into()));
        let one = ModelDesc {
            name: Some("one".into()),
            top: Some(3),
            threshold: Some(0.5),
            priority: Priority::High,
            copies: NonZeroUsize::new(2).unwrap(),
            ..ModelDesc::new(ModelSpec::Card("folder/cards/a.toml".into()), Some(Precision::Bf16))
        };
        assert_eq!(job.models, [one, ModelDesc::new(ModelSpec::Onnx("folder/b.onnx".into()), None)]);
    }

    /// What the example shows behind `#` can be written so, and is the default where it says so.
    #[test]
    fn the_example_has_every_key_and_the_defaults() {
        let text = include_str!("../../../configs/pipelines/two-models.toml");
        let key = |line: &str| {
            Some(line.strip_prefix("# ")?.split_once(" = ")?.0.bytes().all(|c| matches!(c, b'a'..=b'z' | b'_')))
        };
        let uncommented = |line: &str| line[if key(line) == Some(true) { 2 } else { 0 }..].to_owned();
        let all: Vec<_> = text.lines().map(uncommented).collect();
        let (short, long) = (parsed(text).unwrap(), parsed(&all.join("\n")).unwrap());
        assert_eq!((&long.device, long.order, long.fail_fast), (&short.device, short.order, short.fail_fast));
        assert_eq!((long.decode, &long.inputs), (short.decode, &short.inputs));
        let [first, _] = &long.models[..] else { panic!("{long:?}") };
        assert_eq!((first.precision, first.copies), (None, NonZeroUsize::MIN));
        for (key, _) in ALL.lines().filter_map(|line| line.split_once(" = ")) {
            assert!(all.iter().any(|line| line.starts_with(&format!("{key} = "))) || key == "onnx", "{key}");
        }
    }

    /// Any key misspelt is an error that names it and its line.
    #[test]
    fn a_key_that_is_not_known_is_named_with_its_line() {
        let lines: Vec<&str> = ALL.lines().collect();
        for (n, line) in lines.iter().enumerate() {
            let Some((key, rest)) = line.split_once(" = ") else { continue };
            let mut changed = lines.clone();
            let misspelt = format!("{key}x = {rest}");
            changed[n] = &misspelt;
            let error = parsed(&changed.join("\n")).unwrap_err();
            assert!(error.contains(&format!("line {}: unknown field `{key}x`", n + 1)), "{error}");
        }
        let error = parsed("[modell]\ncard = \"x\"").unwrap_err();
        assert!(error.contains("line 1") && error.contains("`modell`"), "{error}");
    }

    #[test]
    fn values_that_mean_nothing_say_what_would() {
        for (right, wrong, hint) in [
            ("\"cuda:0,cuda:1\"", "\"tpu\"", "auto, cpu, cuda"),
            ("\"cuda:0,cuda:1\"", "\"cuda:1,cuda:1\"", "twice"),
            ("batch = 32", "batch = 0", "1 to 4096"),
            ("batch = 32", "batch = \"many\"", "line 3"),
            ("threads = 3", "threads = -1", "1 to 1024"),
            ("max_latency_ms = 2.5", "max_latency_ms = -1", "milliseconds"),
            ("\"completion\"", "\"random\"", "completion"),
            ("\"010203\"", "\"red\"", "hexadecimal"),
            ("\"jsonl\"", "\"xml\"", "parquet"),
            ("\"bf16\"", "\"int4\"", "fp16"),
            ("\"high\"", "\"higher\"", "\"high\" or \"low\""),
            ("instances = 2", "instances = 17", "1 to 16"),
            ("top = 3", "top = 1001", "1 to 1000"),
            ("threshold = 0.5", "threshold = 1.5", "0 to 1"),
            ("onnx = \"b.onnx\"", "", "[[model]] 2: write card"),
            ("onnx = \"b.onnx\"", "onnx = \"b.onnx\"\ncard = \"c.toml\"", "[[model]] 2: card and onnx"),
            ("onnx = \"b.onnx\"", "card = \"nope\"", "[[model]] 2: "),
            ("onnx = \"b.onnx\"", "card = \"b.onnx\"", "[[model]] 2: card: this is a network; write onnx"),
            ("\"x.csv\"", "\"\"", "line 16: empty; write a path"),
            ("\"s.json\"", "\"\"", "line 18: empty; write a path"),
            ("onnx = \"b.onnx\"", "card = \"no\\np\\u202ee\"", "[[model]] 2: "),
            ("\"one\"", "\"\"", "[[model]] 1: name"),
        ] {
            assert!(ALL.contains(right), "{right}");
            let error = parsed(&ALL.replace(right, wrong)).unwrap_err();
            assert!(error.contains(hint) && !error.contains('\n'), "{wrong}: {error}");
        }
        assert!(parsed("device = \"cpu\"").unwrap_err().contains("[[model]]"));
        assert!(parsed("[model]\ncard = \"x\"").unwrap_err().contains("write [[model]]"));
    }
}
