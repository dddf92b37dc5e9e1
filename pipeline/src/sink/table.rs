//! Rows for reading: one aligned line an image, as wide as the terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::Row;
use crate::error::printable;

/// Width of a table that goes into a file.
pub(super) const PLAIN_WIDTH: usize = 120;
/// Narrower terminals wrap.
const MIN_WIDTH: usize = 40;
/// Columns of a label in a list of several.
const LABEL_WIDTH: usize = 22;

/// Widths of the columns.
pub(super) struct Table {
    path_width: usize,
    rest_width: usize,
}

impl Table {
    pub(super) fn new(width: usize) -> Self {
        let width = width.max(MIN_WIDTH);
        let path_width = width * 2 / 5;
        Self { path_width, rest_width: width - path_width - 2 }
    }

    /// `path  0.91 tabby  0.05 Egyptian cat`, as many results as fit, or the error; `path (model)` where there are several.
    pub(super) fn line(&self, row: &Row) -> String {
        let name = row.path.as_deref().or(row.stream.as_deref()).unwrap_or_default();
        let name = row.model.as_ref().map_or_else(|| name.to_owned(), |model| format!("{name} ({model})"));
        let path = pad(&keep_end(&printable(&name), self.path_width), self.path_width);
        let rest = match (&row.error, &row.top) {
            (Some(error), _) => keep_start(&printable(&format!("error: {error}")), self.rest_width),
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
            let left = self.rest_width.saturating_sub(line.width());
            let entry = format!("{:.2} {}", scored.score, printable(&scored.label));
            let entry = keep_start(&entry, if i == 0 { left } else { left.min(LABEL_WIDTH + 5) });
            if i > 0 && left < LABEL_WIDTH + 5 {
                break;
            }
            line.push_str(&pad(&entry, LABEL_WIDTH + 5));
            line.push_str("  ");
        }
        keep_start(line.trim_end(), self.rest_width)
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
            let table = Table::new(width);
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
        let line = Table::new(80).line(&rows[0]);
        assert!(line.starts_with("a.jpg ") && line.contains("0.50 tabby"), "{line}");
        assert!(Table::new(200).line(&rows[0]).contains("cat"), "a wide terminal shows more");
    }
}
