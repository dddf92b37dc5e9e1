//! What an earlier output holds.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::encode::csv_columns;
use super::{Format, Row};
use crate::error::JobError;

/// The inputs whose rows exist already. A path that was given twice has two rows and counts twice.
///
/// Paths are kept as 128-bit hashes with a secret key: about 40 bytes a row, however long the path.
#[derive(Debug, Default)]
pub struct Earlier {
    rows: u64,
    failed: u64,
    keys: [RandomState; 2],
    left: HashMap<[u64; 2], u32>,
}

impl Earlier {
    /// Inputs that have all their rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Those among them of which a row is an error.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// True where a row of this path exists that was not asked for before.
    pub fn take(&mut self, path: &Path) -> bool {
        let key = self.key(path);
        match self.left.get_mut(&key) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }

    fn add(&mut self, path: &Path, failed: bool) {
        self.rows += 1;
        self.failed += u64::from(failed);
        *self.left.entry(self.key(path)).or_default() += 1;
    }

    fn key(&self, path: &Path) -> [u64; 2] {
        let bytes = path.as_os_str().as_bytes();
        [self.keys[0].hash_one(bytes), self.keys[1].hash_one(bytes)]
    }
}

/// Longest torn row that is cut off. What is longer is a file with a fault in the middle, such as a lost quote.
const MAX_TORN_BYTES: usize = 1 << 18;

/// Reads an output up to its last whole row: its length in bytes, and what it holds. Behind that row a killed job leaves a
/// torn one, and a power cut may leave garbage; anything else is refused.
///
/// With several models the rows of an input stand together, one for each of `models` in their order; those of an input
/// that has not all of them are left out as well: what was written last when the job ended.
pub(super) fn scan(
    mut file: &File,
    path: &Path,
    (format, models): (Format, &[Arc<str>]),
    header: &[u8],
) -> Result<(u64, Earlier), JobError> {
    let io = |e: io::Error| JobError::io(format!("cannot read {}", path.display()), e);
    let refuse = |place: &str, why: &str| {
        let message =
            format!("{}, {place}: {why}; --resume cannot continue it, --overwrite replaces it", path.display());
        Err(JobError::Usage(message))
    };
    let row = |line: u64| format!("row {}", line + u64::from(header.is_empty()));
    file.rewind().map_err(io)?;
    let mut reader = BufReader::new(file);
    let mut earlier = Earlier::default();
    let mut good_bytes = 0;
    let mut input = Input::default();
    if format == Format::Table {
        return if reader.fill_buf().map_err(io)?.is_empty() {
            Ok((0, earlier))
        } else {
            refuse("row 1", "a table cannot be read back")
        };
    }
    let columns = header.split(|byte| *byte == b',').count();
    let mut record = Vec::new();
    for line in 0.. {
        record.clear();
        let whole = read_record(&mut reader, format, &mut record).map_err(io)?;
        if record.is_empty() {
            break;
        }
        if line == 0 && !header.is_empty() {
            if record != header {
                return refuse(
                    "its header",
                    "other columns than this job writes (another --format or --top, or other models?)",
                );
            }
        } else {
            match parse(&record, format, columns, !models.is_empty()).filter(|_| whole) {
                Some((path, model, failed)) => {
                    if !input.takes(&path, model.as_deref(), models) {
                        return refuse(&row(line), "other models than this job's; give it another file");
                    }
                    input.bytes += record.len() as u64;
                    input.failed |= failed;
                    input.rows += 1;
                    if input.rows >= models.len() {
                        earlier.add(&path, input.failed);
                        good_bytes += input.bytes;
                        input = Input::default();
                    } else {
                        input.path = path;
                    }
                    continue;
                }
                None if !reader.fill_buf().map_err(io)?.is_empty() => {
                    return refuse(&row(line), "not a row of this program");
                }
                None if record.len() > MAX_TORN_BYTES => {
                    return refuse(&row(line), "longer than a row of this program");
                }
                // Without any row before it, it must look like one.
                None if good_bytes == 0 && input.rows == 0 && !begins_a_row(&record) => {
                    return refuse(&row(line), "not a row of this program");
                }
                None => break,
            }
        }
        good_bytes += record.len() as u64;
    }
    Ok((good_bytes, earlier))
}

/// The input whose rows are read.
#[derive(Default)]
struct Input {
    path: PathBuf,
    rows: usize,
    bytes: u64,
    failed: bool,
}

impl Input {
    /// True where such a row comes next.
    fn takes(&self, path: &Path, model: Option<&str>, models: &[Arc<str>]) -> bool {
        model == models.get(self.rows).map(|name| &**name) && (self.rows == 0 || self.path == path)
    }
}

/// Whether JSON lines may begin so: as a row that was torn, or with zeros that a power cut left.
fn begins_a_row(record: &[u8]) -> bool {
    let starts = [&b"{\"path\":"[..], b"{\"stream\":"];
    starts.iter().any(|start| record.starts_with(start) || start.starts_with(record))
        || record.iter().all(|byte| *byte == 0)
}

/// Reads a whole record with its line end; false at the end and for a torn record. In CSV a quoted field may hold line
/// ends.
fn read_record(reader: &mut impl BufRead, format: Format, record: &mut Vec<u8>) -> io::Result<bool> {
    let mut quoted = false;
    loop {
        let start = record.len();
        if reader.read_until(b'\n', record)? == 0 || record.last() != Some(&b'\n') {
            return Ok(false);
        }
        // Within quotes a quote is written twice, which changes nothing here.
        quoted = record[start..].iter().fold(quoted, |quoted, byte| quoted ^ (*byte == b'"'));
        if format != Format::Csv || !quoted {
            return Ok(true);
        }
    }
}

/// A record's path, its model, and whether it is an error. A CSV record has so many columns.
fn parse(
    record: &[u8],
    format: Format,
    columns: usize,
    several_models: bool,
) -> Option<(PathBuf, Option<Arc<str>>, bool)> {
    if format == Format::Csv {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(record);
        let fields = reader.records().next()?.ok().filter(|fields| fields.len() == columns)?;
        let field = |name: &str| {
            let column = csv_columns(several_models).position(|column| column == name)?;
            fields.get(column).filter(|field| !field.is_empty()).map(str::to_owned)
        };
        let row = Row { path: field("path"), path_bytes: field("path_bytes"), ..Row::default() };
        return Some((row.file_path()?, field("model").map(Arc::from), field("error_kind").is_some()));
    }
    let row: Row = serde_json::from_slice(record).ok()?;
    Some((row.file_path()?, row.model.clone(), row.error.is_some()))
}
