//! Glob patterns, expanded here so that a quoted pattern works on every shell.

use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

use crate::error::JobError;

/// A pattern: a folder to begin in and what must match below it.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// Leading part without wildcards; empty for the current folder.
    pub(super) base: PathBuf,
    matcher: GlobMatcher,
    /// Names below `base` that a match has at most.
    max_depth: Option<usize>,
    /// The pattern itself names something hidden.
    pub(super) wants_hidden: bool,
}

/// True for text with a wildcard.
pub(super) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', '{'])
}

impl Pattern {
    /// # Errors
    /// Where brackets or braces do not close.
    pub(super) fn new(text: &str) -> Result<Self, JobError> {
        let parts: Vec<&str> = text.split('/').collect();
        let fixed = parts.iter().take_while(|part| !is_pattern(part)).count();
        let mut base: PathBuf = parts[..fixed].iter().collect();
        if text.starts_with('/') {
            base = Path::new("/").join(base);
        }
        let rest = parts[fixed..].join("/");
        let matcher = GlobBuilder::new(&rest)
            .literal_separator(true)
            .build()
            .map_err(|e| {
                JobError::Usage(format!("{text}: not a pattern ({}); quote \\[ or \\{{ with a backslash", e.kind()))
            })?
            .compile_matcher();
        let deep = rest.contains("**") || rest.contains('{');
        Ok(Self {
            base,
            matcher,
            max_depth: (!deep).then(|| rest.split('/').count()),
            wants_hidden: rest.starts_with('.') || rest.contains("/."),
        })
    }

    /// True where the path, which begins with the base, matches.
    pub(super) fn matches(&self, path: &Path) -> bool {
        path.strip_prefix(&self.base).is_ok_and(|below| self.matcher.is_match(below))
    }

    /// True where something below this folder may match.
    pub(super) fn may_match_below(&self, folder: &Path) -> bool {
        let depth = folder.strip_prefix(&self.base).map_or(0, |below| below.components().count());
        self.max_depth.is_none_or(|max| depth < max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names_and_folders() {
        let cases: [(&str, &[&str], &[&str]); 6] = [
            ("*.jpg", &["a.jpg"], &["b/a.jpg", "a.png"]),
            ("p/*/x?.jpg", &["p/q/x1.jpg"], &["p/x1.jpg", "p/q/r/x1.jpg"]),
            ("p/**/*.jpg", &["p/a.jpg", "p/q/r/a.jpg"], &["q/a.jpg", "p/a.png"]),
            ("/p/[a-c].{jpg,png}", &["/p/a.jpg", "/p/c.png"], &["/p/d.jpg", "/p/a.gif"]),
            ("./é*/a.jpg", &["./été/a.jpg"], &["./e/a.jpg"]),
            ("../p*", &["../p1"], &["../q"]),
        ];
        for (text, yes, no) in cases {
            let pattern = Pattern::new(text).unwrap();
            for path in yes {
                assert!(pattern.matches(Path::new(path)), "{text} {path}");
            }
            for path in no {
                assert!(!pattern.matches(Path::new(path)), "{text} {path}");
            }
        }
    }

    #[test]
    fn a_broken_pattern_is_a_usage_error() {
        for text in ["a[", "{a,b", "x/[z-a].jpg"] {
            let error = Pattern::new(text).unwrap_err();
            assert!(matches!(error, JobError::Usage(_)) && error.to_string().contains(text), "{error}");
        }
    }
}
