mod batches;

use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::model::import::parse;
use crate::model::import::testing::{classifier, int, model, node, weights};
use crate::model::onnx::proto::tensor_proto::DataType;
use crate::model::onnx::proto::type_proto;

/// The smaller sample's card with words replaced, written to a folder of its own.
fn card(folder: &Path, changes: &[(&str, &str)]) -> ModelSpec {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let mut text = std::fs::read_to_string(root.join("configs/models/squeezenet1.1.toml")).unwrap();
    text = text.replace("../../samples", root.join("samples").to_str().unwrap());
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let path = folder.join("squeezenet.toml");
    std::fs::write(&path, text).unwrap();
    ModelSpec::Card(path)
}

#[test]
fn a_card_with_its_network_and_labels() {
    let folder = tempfile::tempdir().unwrap();
    let model = Model::open(&card(folder.path(), &[])).unwrap();
    assert_eq!((model.name.as_str(), model.labels.len(), model.classes()), ("squeezenet", 1000, 1000));
    assert_eq!(&*model.labels[388], "giant panda");
    assert!(model.warnings.is_empty(), "{:?}", model.warnings);
    assert_eq!(model.preprocess().layout, Layout::Nhwc);
    let plan = model.plan(3).unwrap();
    assert_eq!(plan.inputs[0].buffer.dims, [3, 227, 227, 3]);
    assert_eq!(plan.outputs[0].buffer.dims, [3, 1000]);
    assert!(plan.divisible);
}

#[test]
fn contradictions_are_one_line_that_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let labels = folder.path().join("labels.txt");
    std::fs::write(&labels, "cat\n".repeat(999)).unwrap();
    let labels = labels.to_str().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let own_labels = root.join("samples/labels/imagenet1k.txt");
    let own_labels = own_labels.to_str().unwrap();
    for (from, to, expected) in [
        ("width_px = 227", "width_px = 224", "the card asks for 224"),
        ("[input]", "[input]\nname = \"images\"", "the card's input.name \"images\""),
        (own_labels, labels, "999 labels for 1000 classes of the network; where the network's class 0"),
        ("[output]", "[output]\nbackground = true", "1000 labels for 999 classes"),
        (own_labels, "no-such-labels.txt", "no-such-labels.txt, which "),
        ("squeezenet1.1.onnx", "no-such.onnx", "no-such.onnx, which "),
        ("samples/models/squeezenet1.1.onnx", "samples/README.md", "README.md: not a usable ONNX model: "),
    ] {
        let message = Model::open(&card(folder.path(), &[(from, to)])).expect_err(to).to_string();
        assert!(message.contains(expected) && !message.contains('\n'), "{to}: {message}");
    }
}

#[test]
fn a_bare_network_says_what_was_assumed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples/models/squeezenet1.1.onnx");
    let model = Model::open(&ModelSpec::Onnx(path)).unwrap();
    assert_eq!((model.card.input.width_px, model.card.input.height_px), (227, 227));
    assert!(model.labels.is_empty());
    assert!(model.warnings.iter().any(|w| w.contains("no model card")), "{:?}", model.warnings);
}

/// A network of our own as a file without a card, opened as a classifier.
fn bare(folder: &Path, model: &ModelProto) -> Result<Model, String> {
    let path = folder.join("bare.onnx");
    std::fs::write(&path, model.encode_to_vec()).unwrap();
    Model::open(&ModelSpec::Onnx(path)).map_err(|e| e.to_string())
}

#[test]
fn a_bare_network_is_refused_for_its_own_fault() {
    let folder = tempfile::tempdir().unwrap();
    let relu = || vec![node("Relu", &["x"], &["y"], vec![])];
    for size in [8, 224, 299] {
        for open in [false, true] {
            let sides = if open { -1 } else { size };
            let mut broken = model(&[-1, 3, sides, sides], relu(), vec![]);
            broken.graph.as_mut().unwrap().output[0].name = Some("never".into());
            let message = bare(folder.path(), &broken).unwrap_err();
            assert!(!message.contains("Some(") && !message.contains("the card asks"), "{message}");
            assert!(message.contains(if open { "leaves dimensions" } else { "nothing makes it" }), "{message}");
        }
    }
}

#[test]
fn what_is_no_classifier_of_colour_pictures_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let head = |channels: i64, classes: i64, kind: DataType| {
        let nodes = vec![
            node("Cast", &["x"], &["f"], vec![int("to", 1)]),
            node("GlobalAveragePool", &["f"], &["p"], vec![]),
            node("Flatten", &["p"], &["flat"], vec![]),
            node("MatMul", &["flat", "w"], &["y"], vec![]),
        ];
        let mut model = model(&[-1, channels, 8, 8], nodes, vec![weights("w", &[channels, classes])]);
        let input = &mut model.graph.as_mut().unwrap().input[0];
        if let Some(type_proto::Value::TensorType(tensor)) = input.r#type.as_mut().and_then(|t| t.value.as_mut()) {
            tensor.elem_type = Some(kind as i32);
        }
        bare(folder.path(), &model)
    };
    assert_eq!(head(3, 2, DataType::Float).unwrap().classes(), 2);
    for (channels, classes, kind, expected) in [
        (3, 1, DataType::Float, "two classes or more"),
        (1, 10, DataType::Float, "with 3 channels"),
        (4, 10, DataType::Float, "with 3 channels"),
        (3, 10, DataType::Uint8, "element type U8"),
        (3, 10, DataType::Int64, "element type I64"),
    ] {
        let message = head(channels, classes, kind).expect_err(expected);
        assert!(message.contains(expected) && !message.contains('\n'), "{message}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Damaged files end in a plan or an error, whatever became of them: no panic in any layer.
    #[test]
    fn damaged_files_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        dropped in prop::option::of(any::<prop::sample::Index>()),
        batch in 1_usize..4,
    ) {
        let mut damaged = classifier();
        if let (Some(dropped), Some(graph)) = (dropped, damaged.graph.as_mut()) {
            graph.node.remove(dropped.index(graph.node.len()));
        }
        let mut bytes = damaged.encode_to_vec();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(graph) = parse(bytes.into(), None, batch) {
            let _ = plan(&optimise(graph, usize::MAX));
        }
    }
}
