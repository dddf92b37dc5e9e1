//! Where results go: rows in a format, to a stream or into a file.

mod encode;
mod output;
#[cfg(feature = "parquet")]
mod parquet;
mod resume;
mod row;
mod stream;
mod table;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use encode::Encoder;
use output::OutputFile;
pub use resume::Earlier;
pub use row::{Row, path_fields};
pub use stream::{is_stream, open_stream};

use crate::error::JobError;
use crate::stage::Cancel;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Aligned columns for reading, one line an image.
    Table,
    /// One JSON object a line.
    Jsonl,
    /// Comma-separated values with a header.
    Csv,
    /// Apache Parquet (only into a file).
    Parquet,
}

impl std::str::FromStr for Format {
    type Err = JobError;

    fn from_str(name: &str) -> Result<Self, JobError> {
        match name {
            "table" => Ok(Self::Table),
            "jsonl" => Ok(Self::Jsonl),
            "csv" => Ok(Self::Csv),
            "parquet" => Ok(Self::Parquet),
            _ => Err(JobError::Usage(format!("no format \"{name}\"; there are {}", Self::NAMES.join(", ")))),
        }
    }
}

impl Format {
    /// What [`std::str::FromStr`] takes.
    pub const NAMES: [&str; 4] = ["table", "jsonl", "csv", "parquet"];

    /// The format a file's extension stands for.
    ///
    /// # Errors
    /// Where it stands for none.
    pub fn of_file(path: &Path) -> Result<Self, JobError> {
        let extension = path.extension().map(OsStr::to_ascii_lowercase);
        match extension.as_ref().and_then(|e| e.to_str()) {
            Some("jsonl" | "ndjson" | "json") => Ok(Self::Jsonl),
            Some("csv") => Ok(Self::Csv),
            Some("parquet") => Ok(Self::Parquet),
            Some("txt") => Ok(Self::Table),
            _ => Err(JobError::Usage(format!(
                "{}: cannot tell the format from the name; end it in .jsonl, .csv, .parquet or .txt, or give --format",
                path.display()
            ))),
        }
    }
}

/// What the rows of a job hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Most results of a row.
    pub top: usize,
    /// Names of the models where there are several. Each input has a row for every one, in this order.
    pub models: Vec<Arc<str>>,
}

impl Columns {
    /// Rows of an input.
    pub(in crate::sink) fn rows(&self) -> usize {
        self.models.len().max(1)
    }
}

/// What to do about rows that an earlier job wrote to the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Refuse to start.
    Refuse,
    /// Replace them.
    Overwrite,
    /// Keep them and add what is missing.
    Resume,
}

/// Where an output's rows are until it is complete: `FILE.partial`.
pub fn partial_of(output: &Path) -> PathBuf {
    output::with_suffix(output, ".partial")
}

/// Writes rows, each handed to the system whole as soon as it is there.
pub struct Writer {
    encoder: Encoder,
    target: Target,
    /// Rows in the output, those of earlier jobs included.
    rows: u64,
}

enum Target {
    /// With what it is called.
    Stream(Box<dyn Write + Send>, String),
    File(OutputFile),
}

impl Writer {
    /// Writes to a stream of this name. A table fits into `width` columns, where it is a terminal's.
    ///
    /// # Errors
    /// Parquet needs a file.
    pub fn to_stream(
        (mut stream, name): (Box<dyn Write + Send>, &str),
        format: Format,
        columns: &Columns,
        width: Option<usize>,
    ) -> Result<Self, JobError> {
        if format == Format::Parquet {
            return Err(JobError::Usage("parquet needs a file: give -o FILE.parquet".into()));
        }
        let encoder = Encoder::new(format, columns, width);
        stream.write_all(&encoder.header()).map_err(|e| JobError::output(format!("cannot write {name}"), e))?;
        Ok(Self { encoder, target: Target::Stream(stream, name.to_owned()), rows: 0 })
    }

    /// Writes to `path.partial`, which becomes `path` in [`Writer::finish`]; also says what is there already. A `path`
    /// that [`is_stream`] is written to as it is; `cancel` ends the wait for its reader.
    ///
    /// # Errors
    /// Where the file cannot be written, another job writes it, it may not be replaced, or its rows cannot be continued.
    pub fn to_file(
        path: &Path,
        format: Format,
        existing: Existing,
        columns: &Columns,
        cancel: &Cancel,
    ) -> Result<(Self, Earlier), JobError> {
        if path.as_os_str() == "-" {
            return Err(JobError::Usage("-o -: rows go to the standard output where -o is left out".into()));
        }
        if path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(JobError::Usage(format!("{}: a folder; give the name of a file in it", path.display())));
        }
        if format == Format::Parquet && !cfg!(feature = "parquet") {
            return Err(JobError::Usage("this build has no parquet (feature `parquet`); use .jsonl or .csv".into()));
        }
        if is_stream(path) {
            if existing == Existing::Resume {
                return Err(JobError::Usage(format!("{}: --resume needs a plain file", path.display())));
            }
            let stream = open_stream(path, cancel)?;
            let named = (Box::new(stream) as Box<_>, &*path.display().to_string());
            let writer = Self::to_stream(named, format, columns, None)?;
            return Ok((writer, Earlier::default()));
        }
        let encoder = Encoder::new(format, columns, None);
        // What a link names is written, not the link.
        let resolved = if path.is_symlink() { path.canonicalize() } else { Ok(path.to_owned()) };
        let resolved =
            resolved.map_err(|e| JobError::io(format!("{}: a link that leads nowhere", path.display()), e))?;
        let (file, earlier) = OutputFile::open(&resolved, (format, columns), existing, &encoder.header())?;
        let rows = earlier.rows() * columns.rows() as u64;
        Ok((Self { encoder, target: Target::File(file), rows }, earlier))
    }

    /// Writes a row.
    ///
    /// # Errors
    /// Where the system refuses. The rows before are kept.
    pub fn write(&mut self, row: &Row) -> Result<(), JobError> {
        let bytes = self.encoder.encode(row)?;
        match &mut self.target {
            Target::Stream(stream, name) => stream
                .write_all(&bytes)
                .and_then(|()| stream.flush())
                .map_err(|e| JobError::output(format!("cannot write {name} after {} rows", self.rows), e))?,
            Target::File(file) => file.append(&bytes, self.rows)?,
        }
        self.rows += 1;
        Ok(())
    }

    /// The job is complete: the file gets its name.
    ///
    /// # Errors
    /// Where the system refuses. The partial file is kept.
    pub fn finish(self) -> Result<(), JobError> {
        match self.target {
            Target::Stream(mut stream, name) => {
                stream.flush().map_err(|e| JobError::output(format!("cannot write {name}"), e))
            }
            Target::File(file) => file.finish(),
        }
    }

    /// The job ended early: gives the partial file's name where it holds rows to continue from.
    pub fn abandon(self) -> Option<PathBuf> {
        match self.target {
            Target::Stream(..) => None,
            Target::File(file) => file.abandon(),
        }
    }
}
