//! Rows for reading: one line an image, aligned and as wide as the terminal; elsewhere with all that there is.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::Row;
use crate::error::printable;

/// Columns of a path where there is no terminal; a longer one takes more.
const PATH_WIDTH: usize = 48;
/// Narrower terminals wrap.
const MIN_WIDTH: usize = 40;
/// Columns of a label in a list of several.
const LABEL_WIDTH: usize = 22;

/// Widths of the columns.
pub(super) struct Table {
    path_width: usize,
    /// Of what follows the path; `None` cuts off nothing.
    rest_width: Option<usize>,
}

impl Table {
    /// For a terminal of so many columns, or for what is none.
    pub(super) fn new(width: Option<usize>) -> Self {
        let Some(width) = width.map(|width| width.max(MIN_WIDTH)) else {
            return Self { path_width: PATH_WIDTH, rest_width: None };
        };
        let path_width = width * 2 / 5;
        Self { path_width, rest_width: Some(width - path_width - 2) }
    }

    /// `path  0.91 tabby  0.05 Egyptian cat`, as many results as fit, or the error; `path (model)` where there are several.
    pub(super) fn line(&self, row: &Row) -> String {
        let name = row.path.as_deref().or(row.stream.as_deref()).unwrap_or_default();
        let name = row.model.as_ref().map_or_else(|| name.to_owned(), |model| format!("{name} ({model})"));
        let name = printable(&name);
        let path = if self.rest_width.is_some() { keep_end(&name, self.path_width) } else { name };
        let path = pad(&path, self.path_width);
        let rest = match (&row.error, &row.top) {
            (Some(error), _) => {
                keep_start(&printable(&format!("error: {error}")), self.rest_width.unwrap_or(usize::MAX))
            }
            (None, top) => self.results(row.partial, top.as_deref().map_or(&[][..], Vec::as_slice)),
        };
        format!("{path}  {}\n", rest.trim_end())
    }

    fn results(&self, partial: bool, top: &[crate::frame::Scored]) -> String {
        let mut line = String::from(if partial { "(partial) " } else { "" });
        if top.is_empty() {
            line.push_str("(nothing above the threshold)");
        }
        for (i, scored) in top.iter().enumerate() {
            let mut entry = format!("{:.2} {}", scored.score, printable(&scored.label));
            if let Some(width) = self.rest_width {
                let left = width.saturating_sub(line.width());
                if i > 0 && left < LABEL_WIDTH + 5 {
                    break;
                }
                entry = keep_start(&entry, if i == 0 { left } else { LABEL_WIDTH + 5 });
            }
            line.push_str(&pad(&entry, LABEL_WIDTH + 5));
            line.push_str("  ");
        }
        keep_start(line.trim_end(), self.rest_width.unwrap_or(usize::MAX))
    }
}

/// The text in at most `width` columns, its end cut off.
fn keep_start(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = fitting(text.chars(), width.saturating_sub(1));
    kept.push('…');
    kept
}

/// The text in at most `width` columns, its start cut off: a path's end says more.
fn keep_end(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let kept = fitting(text.chars().rev(), width.saturating_sub(1));
    std::iter::once('…').chain(kept.chars().rev()).collect()
}

fn fitting(chars: impl Iterator<Item = char>, width: usize) -> String {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= width
        })
        .collect()
}

fn pad(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(text.width());
    format!("{text}{}", " ".repeat(missing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ErrorKind, ItemError, StageName};
    use crate::frame::Scored;

    fn row(path: &str, labels: &[&str]) -> Row {
        let scored = |(i, label): (usize, &&str)| Scored { class: i as u32, label: (*label).into(), score: 0.5 };
        let top = Some(labels.iter().enumerate().map(scored).collect());
        Row { path: Some(path.into()), top, ..Row::default() }
    }

    #[test]
    fn lines_fit_the_width_and_align() {
        let long = "word ".repeat(40);
        let wide = "猫".repeat(80);
        let error = ItemError::new(StageName::Decode, ErrorKind::Corrupt, long.clone());
        let rows = [
            row("a.jpg", &["tabby", "lynx", "fox", "cat", "dog", "cow"]),
            row(&wide, &[&wide, &long]),
            row(&long, &[]),
            Row { error: Some(error), ..row("b\n\x1b[2J\u{202e}.jpg", &[]) },
            Row { partial: true, ..row("c.jpg", &[&long]) },
        ];
        for width in [0, 40, 79, 80, 120, 300] {
            let table = Table::new(Some(width));
            for row in &rows {
                let line = table.line(row);
                let text = line.strip_suffix('\n').unwrap();
                assert!(text.width() <= width.max(MIN_WIDTH), "{width}: {text}");
                assert!(!text.chars().any(|c| c.is_control() || c == '\u{202e}'), "{text:?}");
                // The second column begins at one place in every row.
                let first: String = fitting(text.chars(), table.path_width + 2);
                assert!(first.ends_with("  "), "{width}: {first:?}");
            }
        }
        let line = Table::new(Some(80)).line(&rows[0]);
        assert!(line.starts_with("a.jpg ") && line.contains("0.50 tabby"), "{line}");
        assert!(Table::new(Some(200)).line(&rows[0]).contains("cat"), "a wide terminal shows more");
    }

    #[test]
    fn where_there_is_no_terminal_nothing_is_cut_off() {
        let long = "word ".repeat(40) + "end";
        let labels: Vec<String> = (0..1000).map(|class| format!("{class}: {long}")).collect();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let error = ItemError::new(StageName::Decode, ErrorKind::Corrupt, long.clone());
        let table = Table::new(None);
        for path in ["a.jpg", &long] {
            let line = table.line(&row(path, &labels));
            assert!(line.starts_with(path) && labels.iter().all(|label| line.contains(label)), "{path}");
            let line = table.line(&Row { error: Some(error.clone()), ..row(path, &[]) });
            assert!(line.starts_with(path) && line.contains(&long), "{path}");
        }
        let short = ["a", "b"].map(|label| table.line(&row("a.jpg", &[label, "fox"])).find("fox"));
        assert!(short[0].is_some() && short[0] == short[1], "{short:?}");
    }
}
