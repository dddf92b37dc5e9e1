//! What tests of the program give it, and how they read what it says.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use crate::{ocellus, workspace_root};

/// `ocellus` as on a machine without a GPU: it does not find the libraries that `OCELLUS_CUDA_LIBS` names, those of the emulator
/// among them.
pub fn without_gpu() -> Command {
    let mut command = ocellus();
    let Some(libraries) = env::var_os("OCELLUS_CUDA_LIBS") else { return command };
    let libraries: Vec<PathBuf> = env::split_paths(&libraries).collect();
    command.env_remove("OCELLUS_CUDA_LIBS");
    if let Some(folders) = env::var_os("LD_LIBRARY_PATH") {
        let others = env::split_paths(&folders).filter(|folder| !libraries.contains(folder));
        command.env("LD_LIBRARY_PATH", env::join_paths(others).unwrap_or_default());
    }
    command
}

/// `ocellus classify` without a GPU, with the faster of the sample models.
pub fn classify(arguments: &[&str]) -> Command {
    let mut command = without_gpu();
    command.args(["classify", "--model", "squeezenet1.1"]).args(arguments);
    command
}

/// A photo of `samples/photos`.
pub fn photo(name: &str) -> PathBuf {
    workspace_root().join("samples/photos").join(name)
}

/// A folder with a photo (`img2.jpg`), a broken picture (`img10.jpg`) and a text (`notes.txt`).
///
/// # Panics
/// Where it cannot be written.
pub fn mixed_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(photo("panda.jpg"), folder.path().join("img2.jpg")).unwrap();
    fs::write(folder.path().join("img10.jpg"), "no picture").unwrap();
    fs::write(folder.path().join("notes.txt"), "no picture").unwrap();
    folder
}

/// What was printed.
///
/// # Panics
/// Where it is not UTF-8.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The JSON lines of a job that ran to its end.
///
/// # Panics
/// Where it did not, or a line is no JSON.
pub fn rows(output: &Output) -> Vec<Value> {
    assert!(matches!(output.status.code(), Some(0 | 3)), "{:?}: {}", output.status, text(&output.stderr));
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
