//! The card as it stands in the file, and the checks that make a [`Card`] of it.

use std::path::Path;

use ocellus_kernels::preprocess::{ColourOrder, Filter, LetterboxPlace, Match, ResizeRule};
use serde::Deserialize;

use crate::model::text;

use super::{Card, DEFAULT_PLACE, DEFAULT_TOP, Decoder, Input, MAX_SIDE_PX, Normalise, Output, Resize, Task};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CardFile {
    task: String,
    onnx: String,
    labels: Option<String>,
    input: InputFile,
    resize: ResizeFile,
    normalise: NormaliseFile,
    output: OutputFile,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InputFile {
    name: Option<String>,
    width_px: i64,
    height_px: i64,
    colour: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResizeFile {
    rule: String,
    short_px: Option<i64>,
    filter: String,
    antialias: Option<bool>,
    r#match: Option<String>,
    fill: Option<Fill>,
    place: Option<String>,
}

#[derive(Deserialize)]
struct Fill(#[serde(deserialize_with = "text::three")] [i64; 3]);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NormaliseFile {
    #[serde(deserialize_with = "text::three")]
    mean: [f32; 3],
    #[serde(deserialize_with = "text::three")]
    std: [f32; 3],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputFile {
    decoder: String,
    background: Option<bool>,
    top: Option<i64>,
    threshold: Option<f32>,
}

/// Reads a card whose paths count from `folder`. The error is one line.
pub(super) fn parse(text: &str, folder: &Path) -> Result<Card, String> {
    let file: CardFile = text::toml(text)?;
    let task = choice("task", &file.task, &[("classify", Task::Classify)], &["detect", "segment"])?;
    if file.onnx.is_empty() {
        return Err("onnx: empty; write the path of the ONNX file, counted from the card's folder".into());
    }
    let input = input(file.input)?;
    let resize = resize(&file.resize, &input)?;
    Ok(Card {
        task,
        onnx: folder.join(file.onnx),
        labels: file.labels.map(|labels| folder.join(labels)),
        input,
        resize,
        normalise: normalise(&file.normalise)?,
        output: output(&file.output)?,
    })
}

fn input(file: InputFile) -> Result<Input, String> {
    Ok(Input {
        name: file.name,
        width_px: whole("input.width_px", file.width_px, 1, MAX_SIDE_PX)?,
        height_px: whole("input.height_px", file.height_px, 1, MAX_SIDE_PX)?,
        colour: choice("input.colour", &file.colour, &[("rgb", ColourOrder::Rgb), ("bgr", ColourOrder::Bgr)], &[])?,
    })
}

fn resize(file: &ResizeFile, input: &Input) -> Result<Resize, String> {
    let rules = [("shortest", Rule::Shortest), ("stretch", Rule::Stretch), ("letterbox", Rule::Letterbox)];
    let rule = choice("resize.rule", &file.rule, &rules, &[])?;
    let misplaced = [
        ("short_px", file.short_px.is_some(), Rule::Shortest, "shortest"),
        ("fill", file.fill.is_some(), Rule::Letterbox, "letterbox"),
        ("place", file.place.is_some(), Rule::Letterbox, "letterbox"),
    ];
    if let Some((key, .., needs)) = misplaced.iter().find(|(_, given, needs, _)| *given && *needs != rule) {
        return Err(format!("resize.{key}: belongs to rule = \"{needs}\", not \"{}\"; leave it out", file.rule));
    }
    let rule = match rule {
        Rule::Shortest => {
            let side = input.width_px.max(input.height_px);
            let short_px = file.short_px.ok_or_else(|| {
                format!("resize.short_px: missing; write the shorter side before the centre crop, {side} or more")
            })?;
            ResizeRule::Shortest { short_px: whole("resize.short_px", short_px, side, MAX_SIDE_PX)? }
        }
        Rule::Stretch => ResizeRule::Stretch,
        Rule::Letterbox => {
            let mut fill = [0; 3];
            for (to, from) in fill.iter_mut().zip(file.fill.as_ref().map_or([0; 3], |fill| fill.0)) {
                *to = whole("resize.fill", from, 0, 255)? as u8;
            }
            let places = [("centre", LetterboxPlace::Centre), ("top-left", LetterboxPlace::TopLeft)];
            let place = file.place.as_deref().map(|place| choice("resize.place", place, &places, &[]));
            ResizeRule::Letterbox { fill, place: place.transpose()?.unwrap_or(DEFAULT_PLACE) }
        }
    };
    let filters = [
        ("nearest", Filter::Nearest),
        ("bilinear", Filter::Bilinear),
        ("bicubic", Filter::Bicubic),
        ("lanczos3", Filter::Lanczos3),
    ];
    let matches = [("pillow", Match::Pillow), ("pillow12", Match::Pillow12)];
    let matching = file.r#match.as_deref().unwrap_or("pillow");
    Ok(Resize {
        rule,
        filter: choice("resize.filter", &file.filter, &filters, &[])?,
        antialias: file.antialias.unwrap_or(true),
        matching: choice("resize.match", matching, &matches, &["torchvision", "opencv"])?,
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Rule {
    Shortest,
    Stretch,
    Letterbox,
}

fn normalise(file: &NormaliseFile) -> Result<Normalise, String> {
    if file.mean.iter().any(|x| !x.is_finite()) {
        return Err("normalise.mean: write three finite numbers in 0..255 units".into());
    }
    if file.std.iter().any(|x| !x.is_finite() || *x <= 0.0) {
        return Err("normalise.std: write three numbers above 0 in 0..255 units".into());
    }
    if file
        .mean
        .iter()
        .zip(&file.std)
        .any(|(mean, std)| !((255.0 - mean) / std).is_finite() || !(mean / std).is_finite())
    {
        return Err(
            "normalise: (x - mean) / std overflows for x in 0..255; write a larger std or a smaller mean".into()
        );
    }
    Ok(Normalise { mean: file.mean, std: file.std })
}

fn output(file: &OutputFile) -> Result<Output, String> {
    let decoders = [("softmax", Decoder::Softmax), ("probabilities", Decoder::Probabilities)];
    let later = ["yolox", "yolov8", "gfl", "ssd", "centernet", "argmax", "sigmoid-mask"];
    let threshold = file.threshold.unwrap_or(0.0);
    if !(0.0..=1.0).contains(&threshold) {
        return Err(format!("output.threshold: {threshold} is no probability; write 0.0 to 1.0"));
    }
    Ok(Output {
        decoder: choice("output.decoder", &file.decoder, &decoders, &later)?,
        background: file.background.unwrap_or(false),
        top: whole("output.top", file.top.unwrap_or(DEFAULT_TOP as i64), 1, 1000)?,
        threshold,
    })
}

/// The meaning of a word among those known; `later` are words with a meaning that is not implemented.
fn choice<T: Copy>(key: &str, word: &str, known: &[(&str, T)], later: &[&str]) -> Result<T, String> {
    if let Some((_, meaning)) = known.iter().find(|(name, _)| *name == word) {
        return Ok(*meaning);
    }
    let words = known.iter().map(|(name, _)| format!("\"{name}\"")).collect::<Vec<_>>().join(" or ");
    let why = if later.contains(&word) { "is not supported yet" } else { "is unknown" };
    // A word of the user's may hold anything, line breaks for instance.
    Err(format!("{key}: {word:?} {why}; write {words}"))
}

fn whole(key: &str, value: i64, min: usize, max: usize) -> Result<usize, String> {
    match usize::try_from(value) {
        Ok(value) if (min..=max).contains(&value) => Ok(value),
        _ => Err(format!("{key}: {value} is out of range; write {min} to {max}")),
    }
}
