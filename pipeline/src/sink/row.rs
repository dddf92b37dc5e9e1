//! A row of the output: the public format.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::ItemError;
use crate::frame::{Decoder, Item, Origin, PooledVec, Results, Scored};

/// What a model says of one input, or why it says nothing. The fields' names and order are those of the JSON output; a field that does
/// not apply is left out there.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Row {
    /// Path of a file; where it is not UTF-8, what can be read of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Bytes of a path that is not UTF-8, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    /// Address of a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Number of the frame in the stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<u64>,
    /// Presentation time of the frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pts_ns: Option<u64>,
    /// The model, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    /// Columns of the picture, upright.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Rows of the picture, upright.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    /// Who decoded it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoder: Option<Decoder>,
    /// The file ends too early or is damaged; what could be decoded was.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// Best classes, best first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top: Option<PooledVec<Scored>>,
    /// Why there is no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ItemError>,
}

impl Row {
    /// The row of a finished item.
    pub fn new(item: Item<Results>) -> Self {
        let mut row = match &*item.origin {
            Origin::File(path) => Self::of_path(path),
            Origin::Frame { stream, frame, pts_ns } => {
                Self { stream: Some(stream.clone()), frame: Some(*frame), pts_ns: Some(*pts_ns), ..Self::default() }
            }
        };
        match item.payload {
            Ok(Results { info, top }) => {
                row.width = Some(info.width_px);
                row.height = Some(info.height_px);
                row.decoder = Some(info.decoder);
                row.partial = info.partial;
                row.top = Some(top);
            }
            Err(error) => row.error = Some(error),
        }
        row
    }

    fn of_path(path: &Path) -> Self {
        let (path, path_bytes) = path_fields(path);
        Self { path: Some(path), path_bytes, ..Self::default() }
    }

    /// The file's path with all its bytes.
    pub fn file_path(&self) -> Option<PathBuf> {
        match &self.path_bytes {
            Some(bytes) => Some(OsString::from_vec(unhex(bytes)?).into()),
            None => self.path.as_ref().map(PathBuf::from),
        }
    }
}

/// What rows of any kind say of a path: what can be read of it, and where that is not all, its bytes in hexadecimal.
pub fn path_fields(path: &Path) -> (String, Option<String>) {
    let path_bytes = path.to_str().is_none().then(|| hex(path.as_os_str().as_bytes()));
    (path.to_string_lossy().into_owned(), path_bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let nibble = |c: u8| char::from(c).to_digit(16).map(|d| d as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(nibble(pair[0])? << 4 | nibble(*pair.get(1)?)?)).collect()
}
