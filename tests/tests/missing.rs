//! What the program says where a model or a GPU is not there.

use std::fs;

use tests::program::{photo, text};
use tests::{ocellus, workspace_root};

#[test]
fn what_is_not_there_is_told_with_where_it_was_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let card = folder.path().join("mine.toml");
    let good = fs::read_to_string(workspace_root().join("configs/models/squeezenet1.1.toml")).unwrap();
    fs::write(&card, good).unwrap();
    let absolute = workspace_root().join("no-such.onnx");
    let beside = format!("which {} names", card.display());
    for command in ["classify", "parity"] {
        for (model, parts) in [
            ("no-such.onnx", [absolute.to_str().unwrap(), "efficientnet-lite0"]),
            ("no-such.toml", ["no model card at ", "configs/models"]),
            (card.to_str().unwrap(), ["no network at ", &beside]),
        ] {
            let output = ocellus().args([command, "x.jpg", "--model", model]).output().unwrap();
            let said = text(&output.stderr);
            assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        }
    }
}

#[test]
fn without_a_gpu_the_error_says_what_works_there() {
    let good = photo("panda.jpg");
    let good = good.to_str().unwrap();
    let commands: [&[&str]; 4] = [
        &["classify", good, "--model", "squeezenet1.1", "--device", "cuda"],
        &["parity", good, "--model", "squeezenet1.1", "--device", "cuda"],
        &["bench"],
        &["bench", "latency"],
    ];
    for arguments in commands {
        // No library is found in an empty folder.
        let folder = tempfile::tempdir().unwrap();
        let mut command = ocellus();
        command.args(arguments).env("OCELLUS_CUDA_LIBS", folder.path()).env_remove("LD_LIBRARY_PATH");
        let output = command.output().unwrap();
        let said = text(&output.stderr);
        if output.status.success() {
            // This machine's driver is where the system looks.
            return;
        }
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("--device cpu") && said.contains("ocellus doctor"), "{arguments:?}: {said}");
    }
}
