//! Arguments of `ocellus parity` and their help.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::output::Style;
use crate::cli::device::Device;
use crate::decode::DecodeOptions;

const PARITY_HELP: &str = "\
Examples:
  ocellus parity photos                     the worst 20 files of a folder, and a summary
  ocellus parity photos --limit 5           the worst five
  ocellus parity photos -o parity.csv       all of them, into a file
  ocellus parity photos --model my.toml     with the preprocessing of your own model
  ocellus parity photos --device cpu        the CPU path

What is compared, step by step, with a reference on the CPU: decoded pixels; the resized picture, from the same pixels \
(always 0) and from each side's own; the network's input; and the answer. same says whether the first class is the same, drift \
is the largest difference of a class's score: of fp32 on the CPU with the pipeline's input instead of the reference's, and of each \
arithmetic of a GPU against fp32 on the CPU with the same input.

Exit codes: as of classify; 3 where some files could not be compared (their rows say why). How large the differences are makes no \
difference.";

/// Compares results for your own files, step by step, with a reference.
#[derive(Debug, Args)]
#[command(after_help = PARITY_HELP)]
pub(in crate::cli) struct ParityArgs {
    /// Files, folders (with everything below them), patterns, or - for a list of paths on standard input
    #[arg(required = true, value_name = "INPUT")]
    pub(super) inputs: Vec<OsString>,

    /// Model: a card (.toml), a network (.onnx), or the name of a card
    #[arg(long, value_name = "MODEL", default_value = crate::model::spec::DEFAULT_MODEL)]
    pub(super) model: String,

    /// What is compared: cpu, cuda, cuda:N, or auto, which is a GPU where there is one that can
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub(super) device: Device,

    /// Rows that are written, the worst first, and kept in memory [default: 20 in a table, else all]
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<NonZeroUsize>,

    /// Format of the rows [default: by the name of -o; else a table on a terminal, JSON lines in a pipe]
    #[arg(long, value_parser = PossibleValuesParser::new(Style::NAMES).map(|name| Style::named(&name)))]
    pub(super) format: Option<Style>,

    /// Write rows to this file
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,

    /// Replace FILE if it exists
    #[arg(long, requires = "output")]
    pub(super) overwrite: bool,

    /// Most pixels of a picture; larger ones are errors
    #[arg(long, value_name = "N", default_value_t = DecodeOptions::default().max_pixels)]
    pub(super) max_pixels: u64,

    /// No progress and no summary
    #[arg(short, long)]
    pub(super) quiet: bool,
}
