//! Rows as bytes.

use std::io;

use super::table::Table;
use super::{Format, Row};
use crate::error::JobError;

/// Columns of CSV before those of the results.
pub(super) const CSV_COLUMNS: [&str; 9] =
    ["path", "path_bytes", "width", "height", "decoder", "partial", "error_stage", "error_kind", "error_message"];

/// Turns rows into bytes. Parquet is written from JSON lines, so its rows are encoded like those.
pub(super) enum Encoder {
    Table(Table),
    Jsonl,
    Csv {
        /// Results in a row: `class1, label1, score1, class2, ...` follow the other columns, empty where there are fewer.
        top: usize,
    },
}

impl Encoder {
    pub(super) fn new(format: Format, top: usize, width: usize) -> Self {
        match format {
            Format::Table => Self::Table(Table::new(width)),
            Format::Jsonl | Format::Parquet => Self::Jsonl,
            Format::Csv => Self::Csv { top },
        }
    }

    /// What comes before the first row.
    pub(super) fn header(&self) -> Vec<u8> {
        let Self::Csv { top } = self else { return Vec::new() };
        let ranks = (1..=*top).flat_map(|i| [format!("class{i}"), format!("label{i}"), format!("score{i}")]);
        let mut line = CSV_COLUMNS.map(str::to_owned).into_iter().chain(ranks).collect::<Vec<_>>().join(",");
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
            Self::Csv { top } => csv_line(row, *top).map_err(|e| JobError::io("encoding a row", io::Error::other(e))),
        }
    }
}

fn csv_line(row: &Row, top: usize) -> Result<Vec<u8>, csv::Error> {
    let number = |n: Option<u32>| n.map_or_else(String::new, |n| n.to_string());
    let error = |field: fn(&crate::error::ItemError) -> String| row.error.as_ref().map_or_else(String::new, field);
    let mut fields = vec![
        row.path.clone().unwrap_or_default(),
        row.path_bytes.clone().unwrap_or_default(),
        number(row.width),
        number(row.height),
        row.decoder.map_or_else(String::new, |d| d.to_string()),
        row.partial.to_string(),
        error(|e| e.stage.to_string()),
        error(|e| e.kind.to_string()),
        error(|e| e.message.clone()),
    ];
    let results = row.top.iter().flatten().take(top);
    fields.extend(results.flat_map(|r| [r.class.to_string(), r.label.to_string(), r.score.to_string()]));
    fields.resize(CSV_COLUMNS.len() + 3 * top, String::new());
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&fields)?;
    writer.into_inner().map_err(|e| e.into_error().into())
}
