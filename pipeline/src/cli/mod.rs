//! The command line: puts the stages together.

mod args;
mod bench;
mod cache;
mod classify;
mod config;
mod device;
mod doctor;
mod figures;
mod inspect;
mod job;
mod log;
mod metrics;
mod parity;
mod progress;
mod queues;
mod run;
mod signals;
mod stages;
mod stats;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use self::log::Log;
use crate::error::{JobError, printable};
use crate::model::ModelError;

/// Exit codes of the program; part of its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    /// Every item has its result.
    Done = 0,
    /// The job could not run, or not to its end.
    Failed = 1,
    /// Wrong usage: what the arguments, a model card or a job file say.
    Usage = 2,
    /// The job ran to its end, but items failed.
    ItemsFailed = 3,
    /// Ctrl-C or SIGTERM.
    Interrupted = 130,
}

/// Runs the program with the process's arguments.
pub fn main() -> ExitCode {
    let cli = args::Cli::try_parse().unwrap_or_else(|error| run::with_key(error).exit());
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        // A panic becomes a row or a one-line error.
        std::panic::set_hook(Box::new(|_| {}));
    }
    let exit = run(cli.command).unwrap_or_else(|error| match &error {
        JobError::ReaderLeft => Exit::Done,
        JobError::Interrupted => Exit::Interrupted,
        error => {
            say(format_args!("error: {error}"));
            if is_usage(error) { Exit::Usage } else { Exit::Failed }
        }
    });
    ExitCode::from(exit as u8)
}

/// Whether the arguments are to blame, a card or a job file, or what these name.
fn is_usage(error: &JobError) -> bool {
    use ModelError::{Card, Mismatch, Missing, Unknown};
    matches!(
        error,
        JobError::Usage(_) | JobError::Model(Card { .. } | Mismatch { .. } | Missing { .. } | Unknown { .. })
    )
}

/// Whether a text describes a job, as the files of `ocellus run` do.
///
/// # Errors
/// One line that says what is wrong, with the line of the text or the key.
pub fn check_job_file(text: &str) -> Result<(), JobError> {
    config::parse(text, Path::new("")).map(drop)
}

fn run(command: args::Command) -> Result<Exit, JobError> {
    let log = match &command {
        args::Command::Classify(args) => Log::start(args.show.verbose)?,
        args::Command::Run(args) => Log::start(args.show.verbose)?,
        // Its stderr belongs to the process that started it.
        args::Command::JitWorker => Log::default(),
        _ => Log::start(0)?,
    };
    match command {
        args::Command::Classify(args) => classify::run(args.job()?, &log),
        args::Command::Run(args) => classify::run(args.job()?, &log),
        args::Command::Parity(args) => parity::run(&args),
        args::Command::Inspect(args) => inspect::run(&args),
        args::Command::Cache(args) => cache::run(&args),
        args::Command::Bench(args) => bench::run(&args),
        args::Command::Doctor(args) => Ok(doctor::run(&args)),
        args::Command::JitWorker => cache::work(),
    }
}

/// Prints a line for the user. A closed stderr is no reason to stop.
fn say(line: impl Display) {
    let _ = writeln!(io::stderr(), "{}", printable(&line.to_string()));
}
