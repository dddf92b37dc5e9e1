//! Where items come from: files, folders, glob patterns and a list on standard input.
//!
//! [`Walk`] finds them, in a fixed order and with memory that does not grow with their number; the stages
//! [`ReadAhead`] and [`ReadLarge`] read them. Nothing is passed over in silence: what a folder holds and is no image is counted in [`Skipped`], everything
//! else becomes an item, if need be a failed one.

mod glob;
mod lines;
mod listing;
mod natural;
mod read;
#[cfg(test)]
mod tests;
mod walk;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use glob::Pattern;
pub use read::{ReadAhead, ReadLarge};
pub use walk::Walk;

use crate::error::{ItemError, JobError};
use crate::frame::{Item, Origin};

/// One input as the user named it.
#[derive(Clone, Debug)]
pub enum Input {
    /// A file, or a folder with everything below it.
    Path(PathBuf),
    /// A glob pattern: `*` and `?` within a name, `**` over folders, `[a-z]`, `{a,b}`.
    Glob(Pattern),
    /// A list of paths on standard input, one a line.
    Stdin,
}

impl Input {
    /// Reads a command line argument. What exists is a path, whatever its name looks like.
    ///
    /// # Errors
    /// A pattern that is none.
    pub fn parse(argument: &OsStr) -> Result<Self, JobError> {
        let path = Path::new(argument);
        match argument.to_str() {
            Some("-") => Ok(Self::Stdin),
            Some(text) if glob::is_pattern(text) && path.symlink_metadata().is_err() => {
                Pattern::new(text).map(Self::Glob)
            }
            _ => Ok(Self::Path(path.to_owned())),
        }
    }
}

/// True where these inputs may hold as many files as that. Folders are looked into until so many entries were seen, which takes
/// no longer however many there are; they need not be images, and patterns need not match them.
pub fn may_hold<'a>(inputs: impl IntoIterator<Item = &'a Input>, files: usize) -> bool {
    let mut left = files;
    let mut folders = Vec::new();
    for input in inputs {
        match input {
            Input::Path(path) => folders.push(path.clone()),
            Input::Glob(pattern) => folders.push(walk::readable(&pattern.base).to_owned()),
            Input::Stdin => return true,
        }
        left = left.saturating_sub(1);
    }
    // Links as well: what a circle of them leads to is seen until there are enough.
    while let Some(folder) = folders.pop() {
        // A file, or what cannot be listed.
        let Ok(entries) = fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            left = left.saturating_sub(1);
            if left == 0 {
                return true;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir() || kind.is_symlink()) {
                folders.push(entry.path());
            }
        }
    }
    left == 0
}

/// What the walk found: an image file to read, or something that failed before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// As the user named it, or the folder's name with the file's.
    pub path: PathBuf,
    /// Why it cannot be read.
    pub error: Option<ItemError>,
}

impl Found {
    /// The item number `id` of the job.
    pub fn into_item(self, id: u64) -> Item<()> {
        Item::new(id, Origin::File(self.path), self.error.map_or(Ok(()), Err))
    }
}

/// What a walk passed over, counted while it runs. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Skipped(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    hidden: AtomicU64,
    not_images: AtomicU64,
    special: AtomicU64,
    folder_links: AtomicU64,
    empty_inputs: AtomicU64,
}

impl Skipped {
    /// The counts at this moment.
    pub fn snapshot(&self) -> SkippedCounts {
        let counts = &self.0;
        SkippedCounts {
            hidden: counts.hidden.load(Relaxed),
            not_images: counts.not_images.load(Relaxed),
            special: counts.special.load(Relaxed),
            folder_links: counts.folder_links.load(Relaxed),
            empty_inputs: counts.empty_inputs.load(Relaxed),
        }
    }
}

/// What a walk passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SkippedCounts {
    /// Files and folders in a folder whose name begins with a dot.
    pub hidden: u64,
    /// Files in a folder without an image's extension.
    pub not_images: u64,
    /// Pipes, sockets and devices in a folder.
    pub special: u64,
    /// Links to a folder that contains them, or that was entered by another link before.
    pub folder_links: u64,
    /// Folders and patterns named by the user in which there was no image.
    pub empty_inputs: u64,
}

impl SkippedCounts {
    /// Files and folders passed over.
    pub fn total(&self) -> u64 {
        self.hidden + self.not_images + self.special + self.folder_links
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// Extensions by which a folder's files are taken for images, in lower case.
const IMAGE_EXTENSIONS: [&str; 11] = ["jpg", "jpeg", "jpe", "jfif", "png", "webp", "bmp", "dib", "gif", "tif", "tiff"];

/// True for a name with an image's extension.
fn has_image_extension(name: &OsStr) -> bool {
    let extension = Path::new(name).extension().and_then(OsStr::to_str);
    extension.is_some_and(|e| IMAGE_EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(e)))
}
