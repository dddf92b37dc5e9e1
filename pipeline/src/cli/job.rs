//! What a job is to do, whoever asked for it: a command line or a file.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::args::ShowArgs;
use super::device::Device;
use super::stages::{Classifier, classify_desc};
use crate::decode::DecodeOptions;
use crate::error::{ErrorKind, JobError};
use crate::frame::{Item, Origin};
use crate::gpu::{Precision, Priority};
use crate::model::load::Model;
use crate::model::spec::ModelSpec;
use crate::sink::{Existing, Format};
use crate::source::Skipped;

/// A model of a job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ModelDesc {
    /// Where it is.
    pub(super) model: ModelSpec,
    /// What rows call it; `None` is the name of its file.
    pub(super) name: Option<String>,
    /// Arithmetic; `None` is what fits the device.
    pub(super) precision: Option<Precision>,
    /// Most classes reported, and the lowest score; `None` is what the model's card says.
    pub(super) top: Option<usize>,
    pub(super) threshold: Option<f32>,
    /// On a GPU: whose work goes first, and how many networks take batches in turn.
    pub(super) priority: Priority,
    pub(super) copies: NonZeroUsize,
}

/// In what order a user wants the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowOrder {
    /// That of the inputs.
    Input,
    /// As they are done: none waits for a slower one.
    Completion,
}

/// A whole job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JobDesc {
    pub(super) inputs: Vec<OsString>,
    /// One at least.
    pub(super) models: Vec<ModelDesc>,
    pub(super) device: Device,
    /// Most images in one run of a network.
    pub(super) batch: Option<usize>,
    pub(super) threads: Option<usize>,
    pub(super) order: RowOrder,
    /// From an item's arrival to its row, as far as waiting for others goes.
    pub(super) max_latency: Option<Duration>,
    pub(super) decode: DecodeOptions,
    pub(super) output: Option<PathBuf>,
    pub(super) format: Option<Format>,
    pub(super) existing: Existing,
    pub(super) fail_fast: bool,
    pub(super) show: ShowArgs,
}

impl ModelDesc {
    /// A model with the settings of its card.
    pub(super) fn new(model: ModelSpec, precision: Option<Precision>) -> Self {
        Self {
            model,
            name: None,
            precision,
            top: None,
            threshold: None,
            priority: Priority::Low,
            copies: NonZeroUsize::MIN,
        }
    }

    /// Opens the model.
    pub(super) fn open(&self) -> Result<Classifier, JobError> {
        let model = Model::open(&self.model)?;
        let top = self.top.unwrap_or(model.card.output.top);
        let name = self.name.as_deref().unwrap_or(&model.name);
        Ok(Classifier {
            name: Arc::from(name),
            classify: classify_desc(&model, top, self.threshold),
            precision: self.precision,
            priority: self.priority,
            copies: self.copies,
            model,
        })
    }
}

/// Finds a model as `--model` names it.
pub(super) fn find(model: &str) -> Result<ModelSpec, JobError> {
    ModelSpec::resolve(model).map_err(|e| JobError::Usage(e.to_string()))
}

/// The error of a job whose inputs gave nothing.
pub(super) fn nothing_found(inputs: &[OsString], skipped: &Skipped) -> JobError {
    let names: Vec<_> = inputs.iter().map(|input| input.to_string_lossy()).collect();
    let skipped = skipped.snapshot().total();
    let why = match names.as_slice() {
        [name] if name == "-" => "no paths on standard input".into(),
        _ if skipped > 0 => format!("{skipped} entries skipped; name a file itself to read it anyway"),
        _ => "name files, folders that hold some, or a pattern in quotes that matches some".into(),
    };
    JobError::Nothing { inputs: names.join(" "), why }
}

/// The end of the job where an item failed for what is not its own fault.
pub(super) fn blame_the_job<T>(item: &Item<T>) -> Result<(), JobError> {
    match (&item.payload, &*item.origin) {
        (Err(error), Origin::File(path)) if error.kind == ErrorKind::TooManyOpenFiles => {
            Err(JobError::NoDescriptors { path: path.display().to_string(), error: error.clone() })
        }
        _ => Ok(()),
    }
}

impl JobDesc {
    /// Opens the models.
    pub(super) fn open_models(&self) -> Result<Vec<Classifier>, JobError> {
        let models = self.models.iter().map(ModelDesc::open).collect::<Result<Vec<_>, _>>()?;
        let mut names = BTreeSet::new();
        for model in &models {
            if !names.insert(&model.name) {
                let message =
                    format!("two models are called \"{}\"; give one another name: name = \"...\"", model.name);
                return Err(JobError::Usage(message));
            }
        }
        Ok(models)
    }
}
