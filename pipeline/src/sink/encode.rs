//! Rows as bytes.

use std::io;

use super::table::Table;
use super::{Columns, Format, Row};
use crate::error::JobError;

/// Columns of CSV before those of the results; that of the model only where there are several.
const CSV_COLUMNS: [&str; 10] = [
    "path",
    "path_bytes",
    MODEL,
    "width",
    "height",
    "decoder",
    "partial",
    "error_stage",
    "error_kind",
    "error_message",
];
const MODEL: &str = "model";

/// The columns of CSV before those of the results.
pub(super) fn csv_columns(several_models: bool) -> impl Iterator<Item = &'static str> {
    CSV_COLUMNS.into_iter().filter(move |column| several_models || *column != MODEL)
}

/// Turns rows into bytes. Parquet is written from JSON lines, so its rows are encoded like those.
pub(super) enum Encoder {
    Table(Table),
    Jsonl,
    Csv {
        /// Results in a row: `class1, label1, score1, class2, ...` follow the other columns, empty where there are fewer.
        top: usize,
        several_models: bool,
    },
}

impl Encoder {
    pub(super) fn new(format: Format, columns: &Columns, width: Option<usize>) -> Self {
        match format {
            Format::Table => Self::Table(Table::new(width)),
            Format::Jsonl | Format::Parquet => Self::Jsonl,
            Format::Csv => Self::Csv { top: columns.top, several_models: !columns.models.is_empty() },
        }
    }

    /// What comes before the first row.
    pub(super) fn header(&self) -> Vec<u8> {
        let Self::Csv { top, several_models } = self else { return Vec::new() };
        let ranks = (1..=*top).flat_map(|i| [format!("class{i}"), format!("label{i}"), format!("score{i}")]);
        let mut line = csv_columns(*several_models).map(str::to_owned).chain(ranks).collect::<Vec<_>>().join(",");
        line.push('\n');
        line.into_bytes()
    }

    /// A row with its line end.
    pub(super) fn encode(&self, row: &Row) -> Result<Vec<u8>, JobError> {
        match self {
            Self::Table(table) => Ok(table.line(row).into_bytes()),
            Self::Jsonl => {
                let mut bytes =
                    serde_json::to_vec(row).map_err(|e| JobError::io("encoding a row", io::Error::other(e)))?;
                bytes.push(b'\n');
                Ok(bytes)
            }
            Self::Csv { top, several_models } => {
                csv_line(row, *top, *several_models).map_err(|e| JobError::io("encoding a row", io::Error::other(e)))
            }
        }
    }
}

fn csv_line(row: &Row, top: usize, several_models: bool) -> Result<Vec<u8>, csv::Error> {
    let number = |n: Option<u32>| n.map_or_else(String::new, |n| n.to_string());
    let error = |field: fn(&crate::error::ItemError) -> String| row.error.as_ref().map_or_else(String::new, field);
    let mut fields = vec![row.path.clone().unwrap_or_default(), row.path_bytes.clone().unwrap_or_default()];
    if several_models {
        fields.push(row.model.as_deref().unwrap_or_default().to_owned());
    }
    fields.extend([
        number(row.width),
        number(row.height),
        row.decoder.map_or_else(String::new, |d| d.to_string()),
        row.partial.to_string(),
        error(|e| e.stage.to_string()),
        error(|e| e.kind.to_string()),
        error(|e| e.message.clone()),
    ]);
    let results = row.top.iter().flatten().take(top);
    fields.extend(results.flat_map(|r| [r.class.to_string(), r.label.to_string(), r.score.to_string()]));
    fields.resize(csv_columns(several_models).count() + 3 * top, String::new());
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&fields)?;
    writer.into_inner().map_err(|e| e.into_error().into())
}
