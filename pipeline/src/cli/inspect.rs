//! `ocellus inspect`.

use std::io::{self, Write};

use super::args::InspectArgs;
use super::job::find;
use super::{Exit, say};
use crate::error::JobError;
use crate::model::inspect::report;
use crate::model::load::Model;

/// Prints what a network consists of.
pub(super) fn run(args: &InspectArgs) -> Result<Exit, JobError> {
    let spec = find(&args.model)?;
    let model = Model::read(&spec)?;
    model.warnings.iter().for_each(|warning| say(format_args!("warning: {warning}")));
    let report = report(&model, args.batch as usize)?;
    let mut stdout = io::stdout().lock();
    let written = if args.json {
        let json = serde_json::to_string_pretty(&report).map_err(io::Error::other);
        json.and_then(|json| writeln!(stdout, "{json}"))
    } else {
        writeln!(stdout, "{report}")
    };
    written.map_err(|e| JobError::output("writing to the standard output", e))?;
    Ok(Exit::Done)
}
