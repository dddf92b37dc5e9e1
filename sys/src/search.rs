//! Where NVIDIA's libraries may lie.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::Library;

/// Environment variable with folders that come before all others.
pub(crate) const OVERRIDE: &str = "OCELLUS_CUDA_LIBS";

/// Library folders below the root of a CUDA toolkit.
const TOOLKIT: [&str; 4] = ["lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"];

/// Library folders of NVIDIA's wheels below `site-packages/nvidia`: one tree since CUDA 13, one a package before it.
const WHEELS: [&str; 3] = ["cu13/lib", "cuda_nvrtc/lib", "nvjpeg/lib"];

/// Where distributions, NVIDIA's installers, WSL and containers put toolkit and driver.
const USUAL: [&str; 6] = [
    "/usr/local/cuda/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
];

/// Absolute folders to look in, most specific first. `env` reads an environment variable.
pub(crate) fn folders(env: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(list) = env(OVERRIDE) {
        folders.extend(std::env::split_paths(&list));
    }
    for root in ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env) {
        folders.extend(TOOLKIT.map(|sub| Path::new(&root).join(sub)));
    }
    if let Some(venv) = env("VIRTUAL_ENV") {
        for packages in site_packages(Path::new(&venv)) {
            folders.extend(WHEELS.map(|sub| packages.join("nvidia").join(sub)));
        }
    }
    folders.extend(USUAL.map(PathBuf::from));
    // A relative folder would mean another one after every change of directory; an empty variable gives one too.
    folders.retain(|folder| folder.is_absolute());
    folders
}

/// Files that a library needs and the system's loader may not find by itself: the built-in functions of NVRTC beside it,
/// of the same major version. `path` is the library's.
pub(crate) fn companions(library: Library, path: &Path) -> Vec<PathBuf> {
    let parts = (path.parent(), path.extension().and_then(OsStr::to_str));
    let (Library::Nvrtc, (Some(folder), Some(major))) = (library, parts) else { return Vec::new() };
    let prefix = format!("libnvrtc-builtins.so.{major}.");
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let is_one =
        |path: &PathBuf| path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with(&prefix));
    let mut found: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_one).collect();
    found.sort();
    found
}

/// `lib/python3.*/site-packages` of a virtual environment, in the order of their names.
fn site_packages(venv: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(venv.join("lib")) else { return Vec::new() };
    let mut found: Vec<_> =
        entries.flatten().map(|entry| entry.path().join("site-packages")).filter(|path| path.is_dir()).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders_with(vars: &[(&str, &str)]) -> Vec<PathBuf> {
        folders(&|name| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value)))
    }

    #[test]
    fn usual_folders_only_without_variables() {
        assert_eq!(folders_with(&[]), USUAL.map(PathBuf::from));
        assert_eq!(folders_with(&[(OVERRIDE, ""), ("CUDA_HOME", "here")]), USUAL.map(PathBuf::from));
    }

    #[test]
    fn the_users_folders_come_first_and_in_order() {
        let venv = tempfile::tempdir().unwrap();
        let packages = venv.path().join("lib/python3.11/site-packages");
        std::fs::create_dir_all(&packages).unwrap();
        let root = venv.path().to_str().unwrap();
        let found =
            folders_with(&[(OVERRIDE, "/a:/b"), ("CUDA_PATH", "/path"), ("CUDA_HOME", "/home"), ("VIRTUAL_ENV", root)]);
        let mut expected = vec![PathBuf::from("/a"), PathBuf::from("/b")];
        for root in ["/home", "/path"] {
            expected.extend(TOOLKIT.map(|sub| Path::new(root).join(sub)));
        }
        expected.extend(WHEELS.map(|sub| packages.join("nvidia").join(sub)));
        expected.extend(USUAL.map(PathBuf::from));
        assert_eq!(found, expected);
    }
}
