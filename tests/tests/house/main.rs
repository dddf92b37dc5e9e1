//! The house rules that no compiler checks: who may import whom, where `unsafe` lives, what code outside tests must not
//! do, and how long a file may be. CONTRIBUTING.md explains them.

mod figures;
mod rules;
mod syntax;

use std::fs;
use std::path::Path;

use rules::File;
use tests::workspace_root;

/// Every Rust file below `folder`, as paths relative to the workspace root.
fn rust_files(folder: &Path, files: &mut Vec<File>) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() && !path.ends_with("target") {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let relative = path.strip_prefix(workspace_root()).unwrap().to_str().unwrap().to_owned();
            files.push(File { path: relative, text: fs::read_to_string(&path).unwrap() });
        }
    }
}

fn report(broken: &[String]) {
    assert!(broken.is_empty(), "{} broken house rules:\n  {}", broken.len(), broken.join("\n  "));
}

#[test]
fn sources_keep_the_house_rules() {
    let mut files = Vec::new();
    for member in ["sys", "kernels", "pipeline", "tests"] {
        rust_files(&workspace_root().join(member), &mut files);
    }
    assert!(files.len() > 40, "only {} files found", files.len());
    report(&rules::broken_in_sources(&files));
}

#[test]
fn crates_depend_one_way() {
    let manifests = rules::MAY_DEPEND
        .iter()
        .map(|(folder, _)| fs::read_to_string(workspace_root().join(folder).join("Cargo.toml")).unwrap());
    report(
        &rules::MAY_DEPEND
            .iter()
            .zip(manifests)
            .flat_map(|((folder, _), text)| rules::broken_in_manifest(folder, &text))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn readme_has_the_figures_of_the_last_run_on_a_gpu() {
    let read = |path: &str| fs::read_to_string(workspace_root().join(path)).unwrap();
    let run = serde_json::from_str(&read("tests/gpu/report.json")).unwrap();
    report(&figures::broken(&read("README.md"), &run));
}
