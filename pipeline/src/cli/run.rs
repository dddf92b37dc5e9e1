//! `ocellus run`: a job from a file, and what the command line changes about it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, StyledStr, TypedValueParser};
use clap::error::{ContextKind, ContextValue};

use super::args::{ShowArgs, existing};
use super::config;
use super::device::Device;
use super::job::JobDesc;
use crate::error::JobError;
use crate::sink::Format;

const RUN_HELP: &str = "\
Examples:
  ocellus run configs/pipelines/two-models.toml           what the file says
  ocellus run configs/pipelines/two-models.toml photos    over other inputs
  ocellus run two-models.toml -o labels.parquet --resume  into a file, going on

configs/pipelines/two-models.toml has every key of such a file with a comment. What is given here goes before what the file \
says. Exit codes are those of ocellus classify.";

#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub(super) struct RunArgs {
    /// File that describes the job
    #[arg(value_name = "CONFIG")]
    config: PathBuf,

    /// Files, folders, patterns, or - for a list of paths on standard input, instead of those of the file
    #[arg(value_name = "INPUT")]
    inputs: Vec<OsString>,

    /// Where the networks run: cpu, cuda, cuda:N, several GPUs as cuda:0,cuda:1 or cuda:all, or auto
    #[arg(long, value_name = "DEVICE")]
    device: Option<Device>,

    /// Write rows to this file. They go to FILE.partial, which gets this name when the job is complete
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Format of the rows [default: by the name of the file; else a table on a terminal, JSON lines in a pipe]
    #[arg(long, value_parser = PossibleValuesParser::new(Format::NAMES).try_map(|name| name.parse::<Format>()))]
    format: Option<Format>,

    /// Replace the file of the rows if it exists
    #[arg(long, conflicts_with = "resume")]
    overwrite: bool,

    /// Keep the rows of the inputs that have all of theirs, errors included, and add only what is missing
    #[arg(long)]
    resume: bool,

    #[command(flatten)]
    pub(super) show: ShowArgs,
}

/// Options of `ocellus classify` that `run` does not have, and what says the same in the file.
const KEYS: [(&str, &str); 13] = [
    ("--model", "card = \"NAME\" below [[model]]"),
    ("--precision", "precision = \"fp16\" below [[model]]"),
    ("--top", "top = 3 below [[model]]"),
    ("--threshold", "threshold = 0.5 below [[model]]"),
    ("--batch", "batch = 64"),
    ("--threads", "threads = 8"),
    ("--order", "order = \"completion\""),
    ("--max-latency", "max_latency_ms = 5"),
    ("--fail-fast", "fail_fast = true"),
    ("--strict", "strict = true below [decode]"),
    ("--background", "background = \"ffffff\" below [decode]"),
    ("--max-pixels", "max_pixels = 50_000_000 below [decode]"),
    ("--max-bytes", "max_bytes = 10_000_000 below [decode]"),
];

/// The error of a command line. Where it has an option that the file of `run` has as a key, this is said instead of how to make
/// an input of it.
pub(super) fn with_key(mut error: clap::Error) -> clap::Error {
    let of_run = matches!(error.get(ContextKind::Usage), Some(ContextValue::StyledStr(usage)) if usage.to_string().contains(" run "));
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg).filter(|_| of_run) else {
        return error;
    };
    if let Some((option, key)) = KEYS.iter().find(|(name, _)| name == option) {
        let tip = StyledStr::from(format!("{option} is a key of CONFIG: write it there, as in {key}"));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
        // What is spelt alike means something else.
        error.remove(ContextKind::SuggestedArg);
    }
    error
}

impl RunArgs {
    /// What is to be done.
    pub(super) fn job(self) -> Result<JobDesc, JobError> {
        let file = config::read(&self.config)?;
        let usage = |what: &str| Err(JobError::Usage(format!("{}: {what}", self.config.display())));
        let inputs = if self.inputs.is_empty() { file.inputs } else { self.inputs };
        if inputs.is_empty() {
            return usage("no inputs; name them behind the file, or in it as [input] paths");
        }
        // Another file is named for another format.
        let format = self.format.or(if self.output.is_some() { None } else { file.format });
        let output = self.output.or(file.output);
        if output.is_none() && (self.overwrite || self.resume) {
            return usage("--resume and --overwrite need a file of rows: give -o FILE");
        }
        Ok(JobDesc {
            inputs,
            device: self.device.unwrap_or(file.device),
            output,
            format,
            existing: existing(self.overwrite, self.resume),
            show: ShowArgs { stats: self.show.stats.or(file.show.stats), ..self.show },
            ..file
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::cli::args::Cli;

    #[test]
    fn options_that_run_lacks_are_keys_of_its_file() {
        let cli = Cli::command();
        let options = |command: &str| -> BTreeSet<String> {
            let arguments = cli.find_subcommand(command).unwrap().get_arguments();
            arguments.filter_map(|argument| argument.get_long()).map(|long| format!("--{long}")).collect()
        };
        let lacking: Vec<String> = options("classify").difference(&options("run")).cloned().collect();
        let mut known: Vec<&str> = KEYS.iter().map(|(option, _)| *option).collect();
        known.sort_unstable();
        assert_eq!(lacking, known);
        for (option, key) in KEYS {
            let error = with_key(Cli::try_parse_from(["ocellus", "run", "job.toml", option, "1"]).unwrap_err());
            let message = error.to_string();
            assert!(message.contains(key) && !message.contains("as a value"), "{option}: {message}");
            let (line, section) = key.split_once(" below ").unwrap_or((key, ""));
            let model = if option == "--model" { "" } else { "card = \"efficientnet-lite0\"\n" };
            let text = match section {
                "" => format!("{line}\n[[model]]\n{model}"),
                "[[model]]" => format!("[[model]]\n{model}{}", line.replace("NAME", "efficientnet-lite0")),
                section => format!("[[model]]\n{model}{section}\n{line}"),
            };
            crate::cli::check_job_file(&text).unwrap_or_else(|error| panic!("{option}: {error}"));
        }
        // Others are what they were.
        for arguments in [["ocellus", "run", "job.toml", "--no-such"], ["ocellus", "classify", "a.jpg", "--tpo"]] {
            let error = Cli::try_parse_from(arguments).unwrap_err();
            let said = error.to_string();
            assert_eq!(with_key(error).to_string(), said);
        }
    }
}
