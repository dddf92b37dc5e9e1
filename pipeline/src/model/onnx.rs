//! ONNX files as protobuf messages.
//!
//! Reading checks the size and the wire format only; [`super::import`] checks what the messages say.

use std::io::Read;
use std::path::Path;

use bytes::Bytes;
use prost::Message;

use super::ModelError;

mod limit;
#[allow(clippy::all, clippy::pedantic, missing_docs)]
#[rustfmt::skip]
pub mod proto;

/// Largest file that is read: protobuf's own limit of 2 GiB. Larger models keep their weights in external files.
const MAX_FILE_BYTES: u64 = 1 << 31;

/// Reads a model file. Its weights stay slices of one buffer.
///
/// # Errors
/// When the file cannot be read, is larger than 2 GiB, is no protobuf message of the ONNX schema or is made of more than
/// a million messages.
pub fn read(path: &Path) -> Result<proto::ModelProto, ModelError> {
    let io = |source| ModelError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(io)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
    decode_named(bytes.into(), path)
}

/// Decodes a model from memory.
///
/// # Errors
/// As [`read`].
pub fn decode(bytes: Bytes) -> Result<proto::ModelProto, ModelError> {
    decode_named(bytes, Path::new("model in memory"))
}

fn decode_named(bytes: Bytes, path: &Path) -> Result<proto::ModelProto, ModelError> {
    let fault = |message: String| ModelError::Parse { path: path.to_owned(), message };
    if bytes.is_empty() {
        return Err(fault("the file is empty".into()));
    }
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(fault("larger than 2 GiB; save the weights as external data".into()));
    }
    limit::check(&bytes).map_err(fault)?;
    proto::ModelProto::decode(bytes).map_err(|error| fault(error.to_string()))
}
