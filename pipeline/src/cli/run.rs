//! `ocellus run`: a job from a file, and what the command line changes about it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

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
