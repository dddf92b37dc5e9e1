//! From what the user calls a model to a file.

use std::env;
use std::path::{Path, PathBuf};

use super::ModelError;

/// The model that is used where none is named.
pub const DEFAULT_MODEL: &str = "efficientnet-lite0";

/// Folders with model cards, before all others; several are separated as in `PATH`.
const FOLDERS_VARIABLE: &str = "OCELLUS_MODELS";

/// Where a model is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSpec {
    /// A model card.
    Card(PathBuf),
    /// An ONNX file without a card.
    Onnx(PathBuf),
}

impl ModelSpec {
    /// Finds a model by the path of a card (`.toml`) or network (`.onnx`), or by the name of a card in these
    /// folders, first match first: those of the environment variable `OCELLUS_MODELS`, `configs/models` here,
    /// `share/ocellus/models` beside the folder of the executable, and the source checkout that it was built from.
    ///
    /// # Errors
    /// Where a name is in none of them: says which names are known and where they were looked for.
    pub fn resolve(model: &str) -> Result<Self, ModelError> {
        Self::resolve_in(model, &model_folders())
    }

    fn resolve_in(model: &str, folders: &[PathBuf]) -> Result<Self, ModelError> {
        let path = Path::new(model);
        let is = |extension| path.extension().is_some_and(|e| e.eq_ignore_ascii_case(extension));
        if is("toml") {
            return Ok(Self::Card(path.to_owned()));
        }
        if is("onnx") {
            return Ok(Self::Onnx(path.to_owned()));
        }
        let is_name = !model.is_empty() && path.file_name() == Some(path.as_os_str());
        let cards = folders.iter().map(|folder| folder.join(format!("{model}.toml")));
        if let Some(card) = cards.into_iter().find(|card| is_name && card.is_file()) {
            return Ok(Self::Card(card));
        }
        Err(ModelError::Unknown {
            model: model.to_owned(),
            known: known(folders),
            folders: folders.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join(", "),
        })
    }
}

/// What else could have been given, for who gave the path of no file.
pub(super) fn alternatives() -> String {
    let folders = model_folders();
    let known = known(&folders);
    let folders = folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ");
    format!("; cards that are known by name are {known} (looked in {folders})")
}

/// The folders in which [`ModelSpec::resolve`] looks up a name.
fn model_folders() -> Vec<PathBuf> {
    let listed = env::var_os(FOLDERS_VARIABLE).unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&listed).filter(|f| !f.as_os_str().is_empty()).collect();
    folders.push(Path::new("configs").join("models"));
    let executable = env::current_exe().ok();
    let prefix = executable.as_deref().and_then(Path::parent).and_then(Path::parent);
    folders.extend(prefix.map(|prefix| prefix.join("share").join("ocellus").join("models")));
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    folders.extend(checkout.map(|root| root.join("configs").join("models")));
    folders
}

/// Names of the cards in these folders, in alphabetical order, or that there are none.
fn known(folders: &[PathBuf]) -> String {
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let cards = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "toml"));
    let mut names: Vec<_> = cards.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
    if names.is_empty() {
        return "none".into();
    }
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_names_and_strangers() {
        let (near, far) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (folder, name) in [(&near, "a.toml"), (&far, "a.toml"), (&far, "b.toml"), (&far, "c.txt")] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let folders = [near.path().to_owned(), PathBuf::from("no/such/folder"), far.path().to_owned()];
        let resolve = |model: &str| ModelSpec::resolve_in(model, &folders);
        assert_eq!(resolve("x/y.toml").unwrap(), ModelSpec::Card("x/y.toml".into()));
        assert_eq!(resolve("x/y.ONNX").unwrap(), ModelSpec::Onnx("x/y.ONNX".into()));
        assert_eq!(resolve("a").unwrap(), ModelSpec::Card(near.path().join("a.toml")));
        assert_eq!(resolve("b").unwrap(), ModelSpec::Card(far.path().join("b.toml")));
        for stranger in ["c", "", "../a", "no-such-model", "."] {
            let message = resolve(stranger).expect_err(stranger).to_string();
            assert!(message.contains("known are a, b;") && message.contains("no/such/folder"), "{message}");
        }
        let message = ModelSpec::resolve_in("a", &folders[1..2]).unwrap_err().to_string();
        assert!(message.contains("known are none;") && message.contains("OCELLUS_MODELS"), "{message}");
    }

    #[test]
    fn the_default_model_is_found_from_anywhere() {
        // The checkout's folder is looked in whatever the working directory is.
        assert!(matches!(ModelSpec::resolve(DEFAULT_MODEL).unwrap(), ModelSpec::Card(path) if path.is_file()));
    }
}
