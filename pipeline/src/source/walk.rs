//! Finds the files that the inputs name.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::glob::Pattern;
use super::lines::Lines;
use super::listing::{Entry, Kind, Listing};
use super::read::io_error;
use super::{Found, Input, Skipped, count, has_image_extension};
use crate::stage::Cancel;

/// Device and inode: the same for every way to reach a folder.
type FolderId = (u64, u64);

/// Everything the inputs name, in their order; within a folder in natural order, a folder's content in its place.
///
/// A folder gives its files with an image's extension, links followed; hidden files, others and special ones are
/// counted. A folder that contains itself through a link is not entered again, and one that several links lead to is
/// entered by the first. What cannot be listed comes as a failed item.
pub struct Walk {
    inputs: std::vec::IntoIter<Input>,
    input: Option<InProgress>,
    lines: Option<Lines>,
    folders: Vec<Folder>,
    linked: HashSet<FolderId>,
    skipped: Skipped,
    cancel: Cancel,
}

/// The folder or pattern being walked.
struct InProgress {
    pattern: Option<Pattern>,
    found_any: bool,
}

/// A folder being walked.
struct Folder {
    path: PathBuf,
    id: FolderId,
    entries: Listing,
    /// A pattern matched this folder or one above: everything below is taken.
    all: bool,
}

impl Walk {
    /// A walk over the inputs. A set `cancel` ends it, the wait for standard input included.
    pub fn new(inputs: Vec<Input>, skipped: Skipped, cancel: Cancel) -> Self {
        Self {
            inputs: inputs.into_iter(),
            input: None,
            lines: None,
            folders: Vec::new(),
            linked: HashSet::new(),
            skipped,
            cancel,
        }
    }

    /// Begins with what the user named; gives it back where it is a file.
    fn begin_path(&mut self, path: PathBuf) -> Option<Found> {
        if !path.is_dir() {
            return Some(Found { path, error: None });
        }
        self.input = Some(InProgress { pattern: None, found_any: false });
        self.enter(path, true, false)
    }

    fn begin_input(&mut self, input: Input) -> Option<Found> {
        match input {
            Input::Path(path) => self.begin_path(path),
            Input::Glob(pattern) => {
                let base = pattern.base.clone();
                self.input = Some(InProgress { pattern: Some(pattern), found_any: false });
                // A pattern below a folder that does not exist matches nothing, like any other.
                if readable(&base).is_dir() { self.enter(base, false, false) } else { None }
            }
            Input::Stdin => match Lines::new(|| io::stdin().lock(), self.cancel.clone()) {
                Ok(lines) => {
                    self.lines = Some(lines);
                    None
                }
                Err(e) => Some(failed(PathBuf::from("-"), &e)),
            },
        }
    }

    /// Opens a folder unless it was entered before; gives a failed item where that does not work.
    fn enter(&mut self, path: PathBuf, all: bool, by_link: bool) -> Option<Found> {
        let open = || {
            let metadata = fs::metadata(readable(&path))?;
            Ok(((metadata.dev(), metadata.ino()), Listing::read(readable(&path))?))
        };
        let (id, entries) = match open() {
            Ok(opened) => opened,
            Err(e) => return Some(failed(path, &e)),
        };
        if self.folders.iter().any(|folder| folder.id == id) || (by_link && !self.linked.insert(id)) {
            count(&self.skipped.0.folder_links);
            return None;
        }
        self.folders.push(Folder { path, id, entries, all });
        None
    }

    /// Looks at an entry of the innermost folder.
    fn visit(&mut self, entry: Entry, folder: &Path, all: bool) -> Option<Found> {
        let Entry { name, kind } = entry;
        let pattern = self.input.as_ref().and_then(|input| input.pattern.as_ref());
        let path = folder.join(&name);
        let taken = all || pattern.is_none_or(|p| p.matches(&path));
        let descend = taken || pattern.is_some_and(|p| p.may_match_below(&path));
        let hidden = name.as_bytes().starts_with(b".") && !pattern.is_some_and(|p| p.wants_hidden);
        let (kind, by_link) = match kind {
            // A link that leads nowhere counts as a file: reading it says what is wrong.
            Kind::Link => (fs::metadata(&path).map_or(Kind::File, |m| kind_behind_link(&m)), true),
            kind => (kind, false),
        };
        let skipped = &self.skipped.0;
        match kind {
            _ if hidden => {
                if descend {
                    count(&skipped.hidden);
                }
                None
            }
            Kind::Folder if descend => self.enter(path, taken, by_link),
            _ if !taken || kind == Kind::Folder => None,
            Kind::Special => {
                count(&skipped.special);
                None
            }
            _ if has_image_extension(&name) => Some(Found { path, error: None }),
            _ => {
                count(&skipped.not_images);
                None
            }
        }
    }

    /// The next step of the walk; `Err` when it is over.
    fn step(&mut self) -> Result<Option<Found>, ()> {
        if let Some(folder) = self.folders.last_mut() {
            let all = folder.all;
            return Ok(match folder.entries.next() {
                Some(Ok(entry)) => {
                    let path = folder.path.clone();
                    self.visit(entry, &path, all)
                }
                Some(Err(e)) => self.folders.pop().map(|folder| failed(folder.path, &e)),
                None => {
                    self.folders.pop();
                    None
                }
            });
        }
        if let Some(ended) = self.input.take()
            && !ended.found_any
        {
            count(&self.skipped.0.empty_inputs);
        }
        if let Some(lines) = &mut self.lines {
            return Ok(match lines.next() {
                Some(Ok(path)) => self.begin_path(path),
                Some(Err(e)) => Some(failed(PathBuf::from("-"), &e)),
                None => {
                    self.lines = None;
                    None
                }
            });
        }
        let input = self.inputs.next().ok_or(())?;
        Ok(self.begin_input(input))
    }
}

impl Iterator for Walk {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        while let Ok(found) = self.step() {
            if let (Some(_), Some(input)) = (&found, &mut self.input) {
                input.found_any = true;
            }
            if found.is_some() {
                return found;
            }
            if self.cancel.is_set() {
                return None;
            }
        }
        None
    }
}

/// The path to open for a folder's path, which is empty for the current folder.
pub(super) fn readable(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

fn kind_behind_link(metadata: &fs::Metadata) -> Kind {
    match metadata {
        m if m.is_dir() => Kind::Folder,
        m if m.is_file() => Kind::File,
        _ => Kind::Special,
    }
}

fn failed(path: PathBuf, error: &io::Error) -> Found {
    Found { path, error: Some(io_error(error)) }
}
