//! Where the rows of `ocellus parity` go. They are in order when all are there, so nothing is written before.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use comfy_table::{Cell, CellAlignment, Table, presets};
use tempfile::NamedTempFile;

use super::row::ParityRow;
use super::{ParityArgs, style_of};
use crate::cli::say;
use crate::error::{JobError, printable};
use crate::sink::{is_stream, open_stream};
use crate::stage::Cancel;

/// Rows of a table where the user does not say.
const TABLE_ROWS: usize = 20;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Table,
    Jsonl,
    Csv,
}

impl Style {
    pub(super) const NAMES: [&str; 3] = ["table", "jsonl", "csv"];

    /// One of the names.
    pub(super) fn named(name: &str) -> Self {
        match name {
            "jsonl" => Self::Jsonl,
            "csv" => Self::Csv,
            _ => Self::Table,
        }
    }

    /// The format that a file's name stands for.
    pub(super) fn of_file(path: &Path) -> Result<Self, JobError> {
        match path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("jsonl" | "ndjson" | "json") => Ok(Self::Jsonl),
            Some("csv") => Ok(Self::Csv),
            Some("txt") => Ok(Self::Table),
            _ if is_stream(path) => Ok(Self::Jsonl),
            _ => Err(JobError::Usage(format!(
                "{}: cannot tell the format from the name; end it in .jsonl, .csv or .txt, or give --format",
                path.display()
            ))),
        }
    }
}

/// The target, looked at before the work.
pub(super) struct Output {
    style: Style,
    limit: usize,
    target: Target,
    overwrite: bool,
    quiet: bool,
}

/// Where the rows of a job go that was interrupted. (FILE.partial is that of a job of `classify`.)
fn interrupted_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".interrupted");
    name.into()
}

enum Target {
    Stdout,
    Stream(PathBuf, File),
    File(PathBuf),
}

impl Output {
    /// # Errors
    /// Where the format is unknown, the file exists, or none can be written.
    pub(super) fn open(args: &ParityArgs, cancel: &Cancel) -> Result<Self, JobError> {
        let style = style_of(args)?;
        let usual = if style == Style::Table { TABLE_ROWS } else { usize::MAX };
        let limit = args.limit.map_or(usual, NonZeroUsize::get);
        let exists = |file: &Path| Err(JobError::Usage(format!("{} exists: --overwrite replaces it", file.display())));
        let target = match &args.output {
            None => Target::Stdout,
            Some(file) if is_stream(file) => Target::Stream(file.clone(), open_stream(file, cancel)?),
            Some(file) if !args.overwrite && file.exists() => return exists(file),
            Some(file) if !args.overwrite && interrupted_of(file).exists() => return exists(&interrupted_of(file)),
            Some(file) => {
                // Tried only: a second signal ends the process, and nothing would remove it.
                partial_beside(file).map_err(failed(file))?;
                Target::File(file.clone())
            }
        };
        Ok(Self { style, limit, target, overwrite: args.overwrite, quiet: args.quiet })
    }

    /// Most rows that are written.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Writes rows, and says the notes. A job that was `interrupted` leaves no file that looks complete but FILE.interrupted.
    pub(super) fn write(&self, rows: &[ParityRow], notes: &[String], interrupted: bool) -> Result<(), JobError> {
        let shown = &rows[..self.limit.min(rows.len())];
        let text = match self.style {
            Style::Table => table(shown),
            Style::Jsonl => jsonl(shown),
            Style::Csv => csv_text(shown),
        };
        let text = text.map_err(|e| JobError::io("encoding rows", e))?;
        match &self.target {
            Target::Stdout => io::stdout()
                .write_all(text.as_bytes())
                .map_err(|e| JobError::output("writing to the standard output", e))?,
            Target::Stream(path, stream) => (&*stream)
                .write_all(text.as_bytes())
                .map_err(|e| JobError::output(format!("cannot write {}", path.display()), e))?,
            Target::File(_) if interrupted && rows.is_empty() => {}
            Target::File(file) if interrupted => {
                let kept = interrupted_of(file);
                self.write_file(&kept, &text).map_err(failed(&kept))?;
                if !self.quiet {
                    say(format_args!("{} has what was compared", kept.display()));
                }
            }
            Target::File(file) => {
                self.write_file(file, &text).map_err(failed(file))?;
                if self.overwrite {
                    // What it kept of an earlier job is replaced as well.
                    let _ = fs::remove_file(interrupted_of(file));
                }
            }
        }
        if !self.quiet {
            notes.iter().for_each(say);
            if shown.len() < rows.len() {
                say(format_args!("the worst {} are shown; --limit N shows more", shown.len()));
            }
        }
        Ok(())
    }

    /// The file gets its name when it is whole. One that appeared meanwhile is not replaced unasked either.
    fn write_file(&self, file: &Path, text: &str) -> io::Result<()> {
        let mut partial = partial_beside(file)?;
        partial.write_all(text.as_bytes())?;
        let named = if self.overwrite { partial.persist(file) } else { partial.persist_noclobber(file) };
        named.map(drop).map_err(|e| e.error)
    }
}

/// A file in the same folder, which vanishes unless it gets the name.
fn partial_beside(file: &Path) -> io::Result<NamedTempFile> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // With the permissions of any new file, of which the system takes what it does not want; a temporary one's are its
    // owner's alone.
    let permissions = fs::Permissions::from_mode(0o666);
    tempfile::Builder::new().prefix(".ocellus-parity-").permissions(permissions).tempfile_in(folder)
}

fn failed(file: &Path) -> impl FnOnce(io::Error) -> JobError + '_ {
    move |e| JobError::unwritable(file, e)
}

fn jsonl(rows: &[ParityRow]) -> io::Result<String> {
    let mut text = String::new();
    for row in rows {
        text += &serde_json::to_string(row)?;
        text.push('\n');
    }
    Ok(text)
}

/// Precisions that some row has.
fn precisions(rows: &[ParityRow]) -> Vec<&'static str> {
    let first = rows.iter().find_map(|row| row.comparison.as_ref());
    first.map_or_else(Vec::new, |compared| compared.precisions.iter().map(|p| p.precision).collect())
}

fn csv_text(rows: &[ParityRow]) -> io::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let precisions = precisions(rows);
    let columns = "path,path_bytes,width,height,decoder,reference,decode_max,decode_mean,resize_max,resized_max,resized_mean,\
                   input_max,input_mean,answer_same_top1,answer_score";
    let mut header: Vec<String> = columns.split(',').map(str::to_owned).collect();
    header.extend(precisions.iter().flat_map(|name| [format!("{name}_same_top1"), format!("{name}_score")]));
    header.extend(["error_stage", "error_kind", "error_message"].map(str::to_owned));
    writer.write_record(&header)?;
    for row in rows {
        let mut fields = vec![row.path.clone(), row.path_bytes.clone().unwrap_or_default()];
        if let Some(c) = &row.comparison {
            fields.extend([c.width.to_string(), c.height.to_string(), c.decoder.to_string(), c.reference.to_string()]);
            let numbers =
                [c.decode.max, c.decode.mean, c.resize.max, c.resized.max, c.resized.mean, c.input.max, c.input.mean];
            fields.extend(numbers.map(|number| number.to_string()));
            for drift in [c.answer].into_iter().chain(c.precisions.iter().map(|p| p.drift)) {
                fields.extend([drift.same_top1.to_string(), drift.score.to_string()]);
            }
        }
        fields.resize(header.len() - 3, String::new());
        match &row.error {
            Some(e) => fields.extend([e.stage.to_string(), e.kind.to_string(), e.message.clone()]),
            None => fields.resize(header.len(), String::new()),
        }
        writer.write_record(&fields)?;
    }
    let bytes = writer.into_inner().map_err(csv::IntoInnerError::into_error)?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

#[expect(clippy::unnecessary_wraps, reason = "as the other formats")]
fn table(rows: &[ParityRow]) -> io::Result<String> {
    let mut table = Table::new();
    let mut header: Vec<String> =
        ["file", "decoder", "decode max", "mean", "resize", "resized", "input max", "mean", "answer"]
            .map(str::to_owned)
            .into();
    header.extend(precisions(rows).into_iter().map(str::to_owned));
    table.load_style(presets::NOTHING).set_header(&header);
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    for row in rows {
        let mut cells = vec![Cell::new(printable(&row.path))];
        match (&row.comparison, &row.error) {
            (Some(c), _) => {
                cells.push(Cell::new(c.decoder));
                cells.push(right(format!("{:.0}", c.decode.max)));
                cells.push(right(format!("{:.3}", c.decode.mean)));
                cells.push(right(format!("{:.0}", c.resize.max)));
                cells.push(right(format!("{:.0}", c.resized.max)));
                cells.push(right(format!("{:.4}", c.input.max)));
                cells.push(right(format!("{:.5}", c.input.mean)));
                for drift in [c.answer].into_iter().chain(c.precisions.iter().map(|p| p.drift)) {
                    let other = if drift.same_top1 { "" } else { "other " };
                    cells.push(right(format!("{other}{:.4}", drift.score)));
                }
            }
            (None, Some(error)) => cells.push(Cell::new(printable(&format!("error: {error}")))),
            (None, None) => {}
        }
        table.add_row(cells);
    }
    Ok(format!("{table}\n"))
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::{failed, row};
    use super::*;

    #[test]
    fn every_format_has_every_row() {
        let rows = [failed("e.jpg"), row("d.jpg", false, 0.25), row("a.jpg", true, 0.0)];
        let lines = jsonl(&rows).unwrap();
        let parsed: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(parsed[0]["error"]["kind"], "truncated");
        assert!(parsed[0].get("decode").is_none());
        assert_eq!(parsed[1]["precisions"][0]["precision"], "fp16");
        assert_eq!(parsed[1]["precisions"][0]["same_top1"], false);
        assert_eq!(parsed[2]["decode"]["max"], 2.0);
        let text = csv_text(&rows).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let header = reader.headers().unwrap().clone();
        let records: Vec<_> = reader.records().map(Result::unwrap).collect();
        let at = |n: usize, column: &str| records[n][header.iter().position(|h| h == column).unwrap()].to_owned();
        assert_eq!((at(0, "error_kind").as_str(), at(0, "decode_max").as_str()), ("truncated", ""));
        assert_eq!((at(1, "fp16_same_top1").as_str(), at(1, "fp16_score").as_str()), ("false", "0.25"));
        assert_eq!(at(2, "path"), "a.jpg");
        let text = table(&rows).unwrap();
        for part in ["error: truncated", "other 0.2500", "nvjpeg-hw", "fp16"] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
    }

    #[test]
    fn formats_follow_names() {
        let of = |name: &str| Style::of_file(Path::new(name)).ok();
        assert_eq!([of("a.CSV"), of("a.jsonl"), of("a.txt")], [Style::Csv, Style::Jsonl, Style::Table].map(Some));
        assert_eq!(of("a.parquet"), None);
        assert_eq!(Style::NAMES.map(Style::named), [Style::Table, Style::Jsonl, Style::Csv]);
    }
}
