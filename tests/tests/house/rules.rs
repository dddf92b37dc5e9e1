//! The rules as tables, and the functions that find what breaks them.

use std::collections::BTreeSet;

use crate::syntax::{paths, tokens, without_tests};

/// A source file.
pub(crate) struct File {
    /// Relative to the workspace root, with `/`.
    pub(crate) path: String,
    /// Content.
    pub(crate) text: String,
}

/// Crates of this workspace that a crate's manifest may name.
pub(crate) const MAY_DEPEND: [(&str, &[&str]); 5] = [
    ("sys", &[]),
    ("kernels", &["ocellus-sys"]),
    ("pipeline", &["ocellus-kernels", "ocellus-sys"]),
    ("pipeline/gst", &["ocellus"]),
    ("tests", &["ocellus", "ocellus-kernels", "ocellus-sys"]),
];

/// A module at the top of a crate, and what it may import from its own crate: paths and everything below them.
type Layer = (&'static str, &'static [&'static str]);

/// A module that is not listed breaks the rules, so that a new one gets its place here.
const LAYERS: [(&str, &[Layer]); 2] = [
    (
        "kernels/src",
        &[
            ("error", &[]),
            ("tensor", &["error"]),
            ("op", &["error", "tensor"]),
            ("shape", &["error", "tensor", "op"]),
            ("values", &[]),
            ("plan", &["error", "tensor", "op", "shape", "values"]),
            ("preprocess", &["error", "tensor"]),
            ("picture", &[]),
            ("engine", &["error", "tensor", "op", "shape", "plan"]),
            ("sampling", &["op"]),
            ("walk", &["shape"]),
            ("cpu", &["error", "tensor", "op", "shape", "plan", "preprocess", "picture", "engine", "sampling", "walk"]),
            ("cu", &[]),
            ("jit", &["error", "cu"]),
            (
                "cuda",
                &[
                    "error",
                    "tensor",
                    "op",
                    "shape",
                    "plan",
                    "preprocess",
                    "picture",
                    "engine",
                    "sampling",
                    "walk",
                    "cu",
                    "jit",
                ],
            ),
        ],
    ),
    (
        "pipeline/src",
        &[
            ("error", &["model::ModelError"]),
            ("frame", &["error"]),
            ("stage", &["error"]),
            ("observe", &["error"]),
            ("runner", &["error", "frame", "stage", "observe"]),
            ("model", &["error"]),
            ("source", &["error", "frame", "stage"]),
            ("decode", &["error", "frame", "stage"]),
            ("preprocess", &["error", "frame", "stage", "model::card"]),
            ("infer", &["error", "frame", "stage", "model"]),
            ("gpu", &["error", "frame", "stage", "model", "observe"]),
            ("postprocess", &["error", "frame", "stage", "model::card"]),
            ("sink", &["error", "frame", "stage"]),
            // `observe`: what a stage costs is time of the cores.
            ("bench", &["error", "stage", "frame", "decode", "gpu", "infer", "model", "observe"]),
            // A job of one file: the library's callers get it put together.
            ("single", &["error", "frame", "stage", "decode", "gpu", "postprocess", "model"]),
            // Compares what whole chains of stages make of a file.
            ("parity", &["error", "frame", "stage", "decode", "gpu", "infer", "postprocess", "model"]),
            // Puts stages together.
            ("cli", &[""]),
            ("main", &["cli"]),
        ],
    ),
];

/// Paths that only some modules may name; with a module everything in it.
const ONLY_IN: [(&str, &[&str]); 13] = [
    ("image", &["pipeline/src/decode"]),
    ("zune_jpeg", &["pipeline/src/decode"]),
    ("mozjpeg", &["pipeline/src/decode"]),
    ("clap", &["pipeline/src/cli", "pipeline/src/main"]),
    ("prost", &["pipeline/src/model/onnx"]),
    ("libloading", &["sys/src"]),
    ("hdrhistogram", &["pipeline/src/observe"]),
    ("tracing_subscriber", &["pipeline/src/cli"]),
    ("rustix", &["pipeline/src/error", "pipeline/src/observe", "pipeline/src/source", "pipeline/src/sink"]),
    ("crossbeam_channel", &["pipeline/src/gpu"]),
    ("gstreamer", &["pipeline/gst/src"]),
    // Callers hold the trait `Engine`; these pick an implementation: the stages' constructors, and constant folding,
    // which evaluates one operator at a time.
    (
        "ocellus_kernels::cpu",
        &[
            "pipeline/src/cli",
            "pipeline/src/infer",
            "pipeline/src/preprocess",
            "pipeline/src/model/passes/fold",
            // Measured alone, and the reference that other paths are compared with.
            "pipeline/src/bench/cpu",
            "pipeline/src/parity",
        ],
    ),
    ("ocellus_kernels::cuda", &["pipeline/src/cli", "pipeline/src/gpu", "pipeline/src/bench"]),
];

/// Folders with code of the product: `unsafe`, panics and imports are checked there, not in tests.
const PRODUCT: [&str; 4] = ["sys/src", "kernels/src", "pipeline/src", "pipeline/gst/src"];

/// Folders where `unsafe` may stand, beside files named `*_simd.rs` below `kernels/src/cpu`.
const UNSAFE: [&str; 4] = ["sys/src", "kernels/src/jit", "kernels/src/cuda", "pipeline/gst/src"];

/// Longest file, in lines.
const MAX_LINES: usize = 500;

/// Files that a program wrote, of any length.
const GENERATED: [&str; 2] = ["pipeline/src/model/onnx/proto.rs", "sys/src/nvjpeg/bindings.rs"];

/// True for `path` itself and everything below it.
fn is_in(path: &str, place: &str) -> bool {
    path == place || path.strip_prefix(place).is_some_and(|rest| rest.starts_with('/') || place.is_empty())
}

/// True where the segments of `path` begin with those of `prefix`.
fn begins(path: &[String], prefix: &str) -> bool {
    prefix.is_empty() || {
        let prefix: Vec<_> = prefix.split("::").collect();
        path.len() >= prefix.len() && path.iter().zip(prefix).all(|(a, b)| a == b)
    }
}

/// The module that a file is, below its crate's `src`: `model/passes/mod.rs` is `[model, passes]`.
fn module_of(path_in_src: &str) -> Vec<&str> {
    let mut module: Vec<_> = path_in_src.trim_end_matches(".rs").split('/').collect();
    if module.last() == Some(&"mod") || module == ["lib"] {
        module.pop();
    }
    module
}

/// What breaks a rule in the sources, one line each.
pub(crate) fn broken_in_sources(files: &[File]) -> Vec<String> {
    let mut broken = Vec::new();
    let mut test_files = BTreeSet::new();
    let mut product = Vec::new();
    for file in files {
        let lines = file.text.lines().count();
        if lines > MAX_LINES && !GENERATED.contains(&file.path.as_str()) {
            broken.push(format!("{}: {lines} lines, split it ({MAX_LINES} at most)", file.path));
        }
        if let Some(src) = PRODUCT.into_iter().find(|src| is_in(&file.path, src)) {
            let (code, test_modules) = without_tests(&tokens(&file.text));
            let folder = file.path.trim_end_matches("/mod.rs").trim_end_matches("/lib.rs").trim_end_matches(".rs");
            test_files.extend(test_modules.into_iter().map(|name| format!("{folder}/{name}")));
            product.push((src, file, code));
        }
    }
    for (src, file, code) in product {
        if test_files.iter().any(|test| is_in(file.path.trim_end_matches(".rs"), test)) {
            continue;
        }
        broken.extend(broken_words(&file.path, &code));
        let module = module_of(file.path.strip_prefix(src).unwrap_or_default().trim_start_matches('/'));
        broken.extend(broken_imports(src, &file.path, &module, &paths(&code, &module)));
    }
    broken
}

/// `unsafe` outside its places, and calls that end the process.
fn broken_words(path: &str, code: &[String]) -> Vec<String> {
    let simd = path.ends_with("_simd.rs") && is_in(path, "kernels/src/cpu");
    let unsafe_allowed = simd || UNSAFE.iter().any(|place| is_in(path, place));
    let mut broken = BTreeSet::new();
    for (i, word) in code.iter().enumerate() {
        let before = i.checked_sub(1).map_or("", |i| code[i].as_str());
        let after = code.get(i + 1).map_or("", String::as_str);
        match word.as_str() {
            "unsafe" | "unsafe_code" if !unsafe_allowed => {
                broken.insert(format!("{path}: `{word}` has no place here"));
            }
            "unwrap" | "expect" if before == "." && after == "(" => {
                broken.insert(format!("{path}: `.{word}()` outside tests, return an error"));
            }
            "panic" | "todo" | "unimplemented" | "unreachable" if after == "!" => {
                broken.insert(format!("{path}: `{word}!` outside tests, return an error"));
            }
            _ => {}
        }
    }
    broken.into_iter().collect()
}

/// Imports against the layers of the crate and against [`ONLY_IN`].
fn broken_imports(src: &str, path: &str, module: &[&str], imports: &[Vec<String>]) -> Vec<String> {
    let mut broken = BTreeSet::new();
    for (name, places) in ONLY_IN {
        if !places.iter().any(|place| is_in(path.trim_end_matches(".rs"), place))
            && imports.iter().any(|import| begins(import, name))
        {
            broken.insert(format!("{path}: imports {name}, which only {} may", places.join(" and ")));
        }
    }
    let layers = LAYERS.into_iter().find(|(folder, _)| *folder == src);
    // The root of a crate only declares modules and re-exports.
    if let (Some((_, layers)), Some(top)) = (layers, module.first()) {
        let Some((_, allowed)) = layers.iter().find(|(name, _)| name == top) else {
            return vec![format!("{path}: module `{top}` has no place in LAYERS of {}", file!())];
        };
        for import in imports.iter().filter(|import| import[0] == "crate" && import.len() > 1) {
            let target = &import[1..];
            if target[0] != *top && !allowed.iter().any(|place| begins(target, place)) {
                broken.insert(format!("{path}: imports crate::{}", target.join("::")));
            }
        }
    }
    broken.into_iter().collect()
}

/// Dependencies on crates of the workspace against [`MAY_DEPEND`].
pub(crate) fn broken_in_manifest(folder: &str, manifest: &str) -> Vec<String> {
    let members = ["ocellus", "ocellus-kernels", "ocellus-sys", "gst-plugin-ocellus", "tests"];
    let allowed = MAY_DEPEND.into_iter().find(|(name, _)| *name == folder).map_or(&[][..], |(_, allowed)| allowed);
    let mut section = "";
    let mut broken = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
        }
        // `name = ...` or `name.workspace = ...` in a table of dependencies, or a table `[dependencies.name]`.
        let name = if line.starts_with('[') {
            section.rsplit_once("dependencies.").map(|(_, name)| name)
        } else {
            section.ends_with("dependencies").then(|| line.split(['.', '=', ' ']).next().unwrap_or_default())
        };
        if let Some(name) = name
            && members.contains(&name)
            && !allowed.contains(&name)
        {
            broken.push(format!("{folder}/Cargo.toml: depends on {name}"));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(path: &str, text: &str) -> Vec<String> {
        broken_in_sources(&[File { path: path.into(), text: text.into() }])
    }

    #[test]
    fn each_rule_fails_when_it_is_broken() {
        for (path, text) in [
            ("pipeline/src/decode/mod.rs", "use crate::sink::Row;"),
            ("pipeline/src/decode/exif.rs", "fn f() { super::super::sink::g() }"),
            ("pipeline/src/source/mod.rs", "use crate::{frame::Item, decode};"),
            ("pipeline/src/runner.rs", "use crate::sink::Sink;"),
            ("pipeline/src/preprocess.rs", "use crate::model::graph::Graph;"),
            ("pipeline/src/model/plan.rs", "use crate::infer::Infer;"),
            ("pipeline/src/main.rs", "fn main() { ocellus::x(); crate::runner::f() }"),
            ("pipeline/src/novel.rs", ""),
            ("pipeline/src/sink/mod.rs", "use image::ImageFormat;"),
            ("pipeline/src/sink/mod.rs", "fn f(x: image::Rgb<u8>) {}"),
            ("pipeline/src/source/mod.rs", "use clap::Parser;"),
            ("pipeline/src/decode/mod.rs", "use prost as wire;"),
            ("pipeline/src/postprocess.rs", "use ocellus_kernels::{cpu::CpuEngine, op};"),
            ("pipeline/src/model/passes/layout.rs", "use ocellus_kernels::cpu;"),
            ("kernels/src/op.rs", "use crate::plan::Plan;"),
            ("kernels/src/tensor.rs", "use super::engine::Engine;"),
            ("kernels/src/engine.rs", "use crate::cpu;"),
            ("kernels/src/cpu/conv.rs", "fn f() { unsafe { g() } }"),
            ("pipeline/src/decode/fast_simd.rs", "#![allow(unsafe_code)]"),
            ("pipeline/src/frame.rs", "fn f() { x.unwrap(); }"),
            ("kernels/src/plan.rs", "fn f() { x.expect(\"y\"); }"),
            ("sys/src/lib.rs", "fn f() { panic!(\"x\") }"),
            ("kernels/src/plan.rs", "fn f() { todo!() }"),
            ("kernels/src/plan.rs", "fn f() { unreachable!() }"),
        ] {
            assert_eq!(broken(path, text).len(), 1, "{path}: {text}: {:?}", broken(path, text));
        }
        assert_eq!(broken("tests/tests/long.rs", &"\n".repeat(501)).len(), 1);
    }

    #[test]
    fn what_is_allowed_passes() {
        for (path, text) in [
            ("pipeline/src/decode/mod.rs", "use image::ImageReader; use crate::frame::Picture; use self::exif::x;"),
            (
                "pipeline/src/decode/exif.rs",
                "use super::orient::Orientation; // use crate::sink\n const S: &str = \"unsafe\";",
            ),
            ("pipeline/src/preprocess.rs", "use crate::model::card::Card; fn f() { frame::image::x(); }"),
            ("pipeline/src/infer/mod.rs", "use crate::model::plan; use ocellus_kernels::engine::Engine;"),
            (
                "pipeline/src/cli/mod.rs",
                "use crate::{decode, runner}; use clap::Parser; use ocellus_kernels::cpu::CpuEngine;",
            ),
            ("pipeline/src/model/passes/fold.rs", "use ocellus_kernels::cpu::CpuEngine;"),
            ("pipeline/src/lib.rs", "pub mod cli; pub use crate::frame::Item;"),
            (
                "pipeline/src/frame.rs",
                "fn f() { x.unwrap_or(1); expect(2); } #[cfg(test)] mod t { fn f() { x.unwrap() } }",
            ),
            ("kernels/src/cpu/tile_simd.rs", "#![allow(unsafe_code)] fn f() { unsafe { g() } }"),
            ("kernels/src/cpu/conv.rs", "#![deny(missing_docs)] use crate::op::Conv; use super::par::Par;"),
            ("tests/tests/x.rs", "fn f() { x.unwrap(); panic!() }"),
            ("pipeline/src/model/onnx/proto.rs", &"\n".repeat(501)),
            ("sys/src/nvjpeg/bindings.rs", &"\n".repeat(501)),
        ] {
            assert_eq!(broken(path, text), Vec::<String>::new(), "{path}: {text}");
        }
    }

    #[test]
    fn a_file_declared_for_tests_only_is_a_test() {
        let parent = File { path: "pipeline/src/model/mod.rs".into(), text: "#[cfg(test)] mod testing;".into() };
        let child = |path: &str| File { path: path.into(), text: "fn f() { panic!() }".into() };
        assert!(broken_in_sources(&[child("pipeline/src/model/testing.rs"), parent]).is_empty());
        let parent = File { path: "pipeline/src/model/mod.rs".into(), text: "mod testing;".into() };
        assert_eq!(broken_in_sources(&[child("pipeline/src/model/testing.rs"), parent]).len(), 1);
    }

    #[test]
    fn manifests_that_point_the_wrong_way() {
        let upward = "[package]\nname = \"ocellus-sys\"\n[dependencies]\nocellus-kernels.workspace = true\n";
        assert_eq!(broken_in_manifest("sys", upward).len(), 1);
        assert_eq!(broken_in_manifest("kernels", "[dev-dependencies]\nocellus = { path = \"..\" }").len(), 1);
        assert_eq!(broken_in_manifest("kernels", "[target.'cfg(unix)'.dependencies.tests]\npath = \"..\"").len(), 1);
        assert!(broken_in_manifest("pipeline", upward).is_empty());
        assert!(broken_in_manifest("kernels", "[features]\nocellus = []\n").is_empty());
    }
}
