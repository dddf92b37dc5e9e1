//! What is accepted and what is refused; results are compared with ONNX Runtime in the package `tests`.

use std::path::Path;

use ocellus_kernels::op::Op;
use proptest::prelude::*;
use prost::Message;

use super::testing::{classifier, int, ints, list, model, node, port, weights, word};
use super::{ImportOptions, import, parse};
use crate::model::ModelError;
use crate::model::graph::Graph;
use crate::model::onnx::proto::tensor_proto::DataLocation;
use crate::model::onnx::proto::{GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto};
use crate::model::onnx::{self, proto};

fn run(model: &ModelProto) -> Result<Graph, ModelError> {
    import(model, &ImportOptions { batch: 2, ..ImportOptions::default() })
}

/// The message with which a model is refused.
fn refusal(model: &ModelProto) -> String {
    match run(model) {
        Ok(graph) => panic!("accepted: {:?}", graph.nodes),
        Err(error) => error.to_string(),
    }
}

fn dims_of(graph: &Graph, name: &str) -> Vec<usize> {
    graph.values.iter().find(|v| v.name == name).unwrap_or_else(|| panic!("no value {name}")).dims.clone()
}

#[test]
fn a_classifier_gets_static_shapes_for_the_batch() {
    let graph = run(&classifier()).unwrap();
    assert!(graph.dynamic_batch);
    assert_eq!(graph.batch, 2);
    for (name, dims) in [("c", &[2, 4, 4, 4][..]), ("s1", &[2, 2, 4, 4]), ("flat", &[2, 2]), ("y", &[2, 5])] {
        assert_eq!(dims_of(&graph, name), dims, "{name}");
    }
    // Shape, Gather and Concat of the shape are gone; Split is two slices.
    let names: Vec<_> = graph.nodes.iter().map(|n| n.op.name()).collect();
    assert_eq!(
        names,
        ["Conv", "ScaleShift", "Unary", "Slice", "Slice", "Binary", "Reduce", "Reshape", "Gemm", "Softmax"]
    );
}

#[test]
fn nodes_in_any_order_give_the_same_graph() {
    let wanted = run(&classifier()).unwrap();
    let mut shuffled = classifier();
    shuffled.graph.as_mut().unwrap().node.reverse();
    let graph = run(&shuffled).unwrap();
    let steps = |graph: &Graph| {
        let mut steps: Vec<_> = graph.nodes.iter().map(|n| format!("{} {:?}", n.name, n.op)).collect();
        steps.sort();
        steps
    };
    assert_eq!(steps(&graph), steps(&wanted));
    let made: Vec<_> = graph.nodes.iter().map(|n| n.output).collect();
    for (i, node) in graph.nodes.iter().enumerate() {
        assert!(node.inputs.iter().all(|input| !made[i..].contains(input)), "{} comes too early", node.name);
    }
}

#[test]
fn open_sizes_need_the_options() {
    let relu = || vec![node("Relu", &["x"], &["y"], vec![])];
    let at = |dims: &[i64], size| {
        import(&model(dims, relu(), vec![]), &ImportOptions { batch: 2, input_size: size, folder: None })
            .map(|graph| dims_of(&graph, "y"))
            .map_err(|error| error.to_string())
    };
    assert_eq!(at(&[-1, 3, 4, 5], None).unwrap(), [2, 3, 4, 5]);
    assert_eq!(at(&[0, 3, 4, 5], None).unwrap(), [2, 3, 4, 5]);
    assert_eq!(at(&[1, 3, 4, 5], None).unwrap(), [1, 3, 4, 5]);
    assert_eq!(at(&[-1, 3, -1, -1], Some([6, 7])).unwrap(), [2, 3, 6, 7]);
    assert_eq!(at(&[-1, -1, -1, 3], Some([6, 7])).unwrap(), [2, 6, 7, 3]);
    assert_eq!(at(&[-1, 3, 6, 7], Some([6, 7])).unwrap(), [2, 3, 6, 7]);
    assert!(at(&[-1, 3, 6, 7], Some([6, 8])).unwrap_err().contains("the card asks for 8"));
    assert!(at(&[-1, 3, -1, -1], None).unwrap_err().contains("model card"));
    assert!(at(&[-1, -1, 6, 7], None).unwrap_err().contains("open"));
    assert!(at(&[-1, -1], None).unwrap_err().contains("open"));
}

#[test]
fn a_batch_fixed_inside_is_refused() {
    let fixed = model(&[-1, 4], vec![node("Reshape", &["x", "s"], &["y"], vec![])], vec![ints("s", &[1, -1])]);
    assert!(refusal(&fixed).contains("use batch 1"), "{}", refusal(&fixed));
    assert!(import(&fixed, &ImportOptions::default()).is_ok());
}

/// Every way in which a node or its attributes can be wrong names the node, the operator and the opset.
#[test]
fn nodes_are_refused_by_name() {
    let crop = || word("coordinate_transformation_mode", "tf_crop_and_resize");
    let cases: Vec<(NodeProto, &str)> = vec![
        (node("Frobnicate", &["x"], &["y"], vec![]), "operator is not supported"),
        (node("If", &["x"], &["y"], vec![]), "operator is not supported"),
        (node("", &["x"], &["y"], vec![]), "operator is not supported"),
        (NodeProto { domain: Some("com.acme".into()), ..node("Relu", &["x"], &["y"], vec![]) }, "domain"),
        (node("HardSwish", &["x"], &["y"], vec![]), "does not exist in this opset"),
        (node("Upsample", &["x", "w"], &["y"], vec![]), "does not exist in this opset"),
        (node("Relu", &["x"], &["y"], vec![int("alpha", 1)]), "\"alpha\" is not supported"),
        (node("Relu", &[], &["y"], vec![]), "operands"),
        (node("Relu", &["x", "x"], &["y"], vec![]), "operands"),
        (node("Relu", &["nowhere"], &["y"], vec![]), "nothing makes"),
        (node("Relu", &["y"], &["y"], vec![]), "its own result"),
        (node("Softmax", &["x"], &["y"], vec![int("axis", 4)]), "axis 4"),
        (node("Softmax", &["x"], &["y"], vec![int("axis", i64::MIN)]), "axis"),
        (node("Softmax", &["x"], &["y"], vec![list("axis", &[1])]), "must be INT"),
        (node("Softmax", &["x"], &["y"], vec![int("axis", 1), int("axis", 1)]), "twice"),
        (node("Conv", &["x", "x"], &["y"], vec![]), "must be constant"),
        (node("Conv", &["x", "f"], &["y"], vec![]), "four dimensions"),
        (node("Conv", &["x", "w"], &["y"], vec![int("group", 2)]), "groups"),
        (node("Conv", &["x", "w"], &["y"], vec![int("group", 0)]), "groups"),
        (node("Conv", &["x", "w"], &["y"], vec![list("strides", &[0, 1])]), "strides"),
        (node("Conv", &["x", "w"], &["y"], vec![list("strides", &[1])]), "strides"),
        (node("Conv", &["x", "w"], &["y"], vec![list("pads", &[-1, 0, 0, 0])]), "negative"),
        (node("Conv", &["x", "w"], &["y"], vec![list("dilations", &[i64::MAX, 1])]), "limit"),
        (node("Conv", &["x", "w"], &["y"], vec![list("dilations", &[9, 1])]), "does not fit"),
        (node("Conv", &["x", "w"], &["y"], vec![list("kernel_shape", &[5, 5])]), "kernel_shape"),
        (node("Conv", &["x", "w"], &["y"], vec![word("auto_pad", "SAME")]), "SAME_UPPER"),
        (node("Conv", &["x", "w", "f"], &["y"], vec![]), "bias"),
        (node("MaxPool", &["x"], &["y"], vec![]), "kernel_shape"),
        (node("MaxPool", &["x"], &["y", "x2"], vec![list("kernel_shape", &[2, 2])]), "output 1"),
        (node("Resize", &["x", "", "f"], &["y"], vec![word("mode", "cubic")]), "\"cubic\""),
        (node("Resize", &["x", "", "f"], &["y"], vec![]), "scales"),
        (node("Resize", &["x"], &["y"], vec![]), "exactly one"),
        (node("Resize", &["x", "", "", "i"], &["y"], vec![crop()]), "needs the region"),
        (node("Resize", &["x", "f", "f"], &["y"], vec![crop()]), "with scales"),
        (node("Resize", &["x", "f", "", "i"], &["y"], vec![crop()]), "5 starts for 4 axes"),
        (node("Resize", &["x", "w8", "", "i"], &["y"], vec![crop()]), "cuts batch or channels"),
        (node("Resize", &["x", "x", "", "i"], &["y"], vec![crop()]), "must be constant"),
        (node("Pad", &["x", "i"], &["y"], vec![word("mode", "wrap")]), "\"wrap\""),
        (node("Pad", &["x", "i"], &["y"], vec![]), "pads for"),
        (node("Reshape", &["x", "i"], &["y"], vec![]), "cannot become"),
        (node("Reshape", &["x", "f"], &["y"], vec![]), "list"),
        (node("Reshape", &["x", "x"], &["y"], vec![]), "must be constant"),
        (node("Transpose", &["x"], &["y"], vec![list("perm", &[0, 1])]), "perm"),
        (node("Transpose", &["x"], &["y"], vec![list("perm", &[0, 1, 1, 2])]), "twice"),
        (node("Concat", &["x", "w"], &["y"], vec![int("axis", 0)]), "joined"),
        (node("Add", &["x", "w"], &["y"], vec![]), "broadcast"),
        (node("Add", &["x", "i"], &["y"], vec![]), "types"),
        (node("MatMul", &["x", "w"], &["y"], vec![]), "fit"),
        (node("Slice", &["x", "i", "i", "i", "zeros"], &["y"], vec![]), "step of 0"),
        (node("Gather", &["x", "i"], &["y"], vec![int("axis", 1)]), "index"),
        (node("ConstantOfShape", &["huge"], &["y"], vec![]), "limit"),
        (node("Expand", &["f", "huge"], &["y"], vec![]), "broadcast"),
        (node("Cast", &["x"], &["y"], vec![int("to", 8)]), "STRING"),
        (node("Cast", &["x"], &["y"], vec![int("to", i64::MAX)]), "unknown"),
        (node("Constant", &[], &["y"], vec![]), "exactly one value"),
        (node("Split", &["x"], &["y", "x2", "x3"], vec![int("axis", 2)]), "equal parts"),
    ];
    for (bad, wanted) in cases {
        let op = bad.op_type().to_owned();
        let constants = vec![
            weights("w", &[4, 3, 3, 3]),
            weights("f", &[5, 2]),
            weights("w8", &[8]),
            ints("i", &[3, 5]),
            ints("zeros", &[0, 0]),
            ints("huge", &[1 << 40, 1 << 40]),
        ];
        // The second output is read, so that it matters.
        let mut bad = model(&[1, 3, 8, 8], vec![bad], constants);
        bad.graph.as_mut().unwrap().output.push(port("x2", &[1]));
        if bad.graph.as_ref().unwrap().node[0].output.len() == 1 {
            bad.graph.as_mut().unwrap().output.truncate(1);
        }
        let message = refusal(&bad);
        assert!(message.contains(wanted), "{op}: {message}");
        assert!(message.contains("node \"y\"") && message.contains("opset 13"), "{op}: {message}");
    }
}

/// Faults of the file as a whole.
#[test]
fn broken_files_are_refused() {
    let graph = |change: fn(&mut GraphProto)| {
        let mut model = classifier();
        change(model.graph.as_mut().unwrap());
        model
    };
    let file = |change: fn(&mut ModelProto)| {
        let mut model = classifier();
        change(&mut model);
        model
    };
    let cases = vec![
        (file(|m| m.graph = None), "no graph"),
        (file(|m| m.opset_import.clear()), "names no opset"),
        (file(|m| m.opset_import[0].version = Some(8)), "opset 8 is not supported"),
        (file(|m| m.opset_import[0].version = Some(22)), "opset 22 is not supported"),
        (file(|m| m.opset_import[0].version = Some(i64::MIN)), "is not supported"),
        (file(|m| m.opset_import.push(m.opset_import[0].clone())), "two opsets"),
        (file(|m| m.functions.push(proto::FunctionProto::default())), "functions"),
        (graph(|g| g.sparse_initializer.push(proto::SparseTensorProto::default())), "sparse"),
        (graph(|g| g.node.clear()), "nothing makes it"),
        (graph(|g| g.input.clear()), "no input"),
        (graph(|g| g.output.clear()), "no output"),
        (graph(|g| g.output[0].name = Some("never".into())), "nothing makes it"),
        (graph(|g| g.input.push(g.input[0].clone())), "twice"),
        (graph(|g| g.input[0].r#type = None), "no tensor"),
        (graph(|g| g.input[0] = port("x", &[])), "spatial dimensions"),
        (graph(|g| g.input[0] = port("x", &[1, 3, 1 << 40, 1 << 40])), "limit"),
        (graph(|g| g.input[0] = port("x", &[1, 3, i64::MAX, i64::MAX])), "limit"),
        (graph(|g| g.initializer.truncate(2)), "nothing makes"),
        (graph(|g| g.initializer.push(g.initializer[0].clone())), "occurs twice"),
        (graph(|g| g.initializer[0].dims = vec![4, 3, 3, -3]), "negative"),
        (graph(|g| g.initializer[0].dims = vec![4, 3, 3, 4]), "bytes"),
        (graph(|g| g.initializer[0].dims = vec![i64::MAX; 4]), "limit"),
        (graph(|g| g.initializer[0].dims = vec![0, i64::MAX, i64::MAX]), "limit"),
        (graph(|g| g.initializer[0].dims = vec![4, 0, 3, 3]), "bytes"),
        (graph(|g| g.initializer[0].data_type = Some(8)), "STRING"),
        (graph(|g| g.initializer[0].data_type = Some(99)), "unknown"),
        (graph(|g| g.initializer[0].raw_data = None), "elements"),
        (graph(|g| g.initializer[0].segment = Some(proto::tensor_proto::Segment::default())), "segments"),
        (graph(|g| g.initializer[0].data_location = Some(7)), "location 7"),
        (graph(|g| g.initializer[0].data_location = Some(1)), "on disk"),
        (graph(|g| g.node.push(g.node[0].clone())), "made twice"),
        (graph(|g| g.node.push(node("Relu", &["x"], &["b"], vec![]))), "made twice"),
        (graph(|g| g.node[0].input[0] = "m".into()), "its own result"),
    ];
    for (i, (model, wanted)) in cases.iter().enumerate() {
        let message = refusal(model);
        assert!(message.contains(wanted), "case {i}, {wanted}: {message}");
        assert!(!message.contains('\n'), "case {i}: {message}");
    }
}

/// Small files that ask for much: each is refused, or costs no more than it says.
#[test]
fn swarms_of_nodes_are_refused() {
    let message = |nodes, constants| refusal(&model(&[1, 3, 8, 8], nodes, constants));
    let zeros = |count| vec![ints("count", &[count])];
    let indices = || node("ConstantOfShape", &["count"], &["i"], vec![]);
    // The default fill is a float, so the indices are cast.
    let cast = || node("Cast", &["i"], &["j"], vec![int("to", 7)]);
    let of_x = vec![indices(), cast(), node("Gather", &["x", "j"], &["y"], vec![int("axis", 1)])];
    assert!(message(of_x, zeros(1 << 26)).contains("limit"));
    let chain = |links: usize| {
        let name = |i: usize| if i == links { "y".to_owned() } else { format!("v{i}") };
        let input = |i: usize| if i == 0 { "x".to_owned() } else { name(i) };
        (0..links).map(|i| node("Relu", &[&input(i)], &[&name(i + 1)], vec![])).collect::<Vec<_>>()
    };
    assert!(message(chain(1 << 16), vec![]).contains("more than"));
    assert!(run(&model(&[1, 3, 8, 8], chain(1 << 10), vec![])).is_ok());
    let mut ports = model(&[1, 3, 8, 8], chain(1), vec![]);
    ports.graph.as_mut().unwrap().input.extend((0..1 << 16).map(|i| port(&format!("in{i}"), &[1])));
    assert!(refusal(&ports).contains("more than"));
}

#[test]
fn constants_are_gathered_without_nodes() {
    let many = vec![1; 70_000];
    for axis in [0, 1, -1] {
        for indices in [&[][..], &[0], &[2, 0, 1], &many, &[-1, -3, 0]] {
            let nodes = vec![
                node("Gather", &["w", "i"], &["g"], vec![int("axis", axis)]),
                node("ReduceSum", &["g"], &["s"], vec![int("keepdims", 0)]),
                node("Add", &["x", "s"], &["y"], vec![]),
            ];
            let gathered = model(&[1, 1], nodes, vec![weights("w", &[3, 3, 3]), ints("i", indices)]);
            match run(&gathered) {
                Ok(graph) => assert!(graph.nodes.iter().all(|n| n.op.name() != "Slice" && n.op.name() != "Concat")),
                Err(error) => assert!(indices.is_empty(), "{error}"),
            }
        }
    }
}

/// First element and length as Slice-13 defines them, for every start, end and step around an axis.
#[test]
fn slices_follow_the_specification() {
    let length = 3i64;
    let extremes = [i64::MIN, i64::MIN + 1, -1 << 31, (1 << 31) - 1, i64::MAX];
    let bounds = || (-5..=5).chain(extremes);
    for (start, end) in bounds().flat_map(|start| bounds().map(move |end| (start, end))) {
        for step in [1, 2, 3, i64::MAX, -1, -2, -3, i64::MIN] {
            let wrap = |v: i64| if v < 0 { v.saturating_add(length) } else { v };
            let (first, past) = if step > 0 {
                (wrap(start).clamp(0, length), wrap(end).clamp(0, length))
            } else {
                (wrap(start).clamp(0, length - 1), wrap(end).clamp(-1, length - 1))
            };
            let mut wanted = Vec::new();
            let mut at = first;
            while if step > 0 { at < past } else { at > past } {
                wanted.push(at as f32);
                at = at.saturating_add(step);
            }
            let constants = vec![
                weights("w", &[length]),
                ints("s", &[start]),
                ints("e", &[end]),
                ints("a", &[0]),
                ints("d", &[step]),
            ];
            let nodes = vec![
                node("Slice", &["w", "s", "e", "a", "d"], &["part"], vec![]),
                node("Mul", &["x", "part"], &["y"], vec![]),
            ];
            let case = format!("{start}..{end} by {step}");
            match run(&model(&[1, 1], nodes, constants)) {
                Ok(graph) => {
                    let part = graph.nodes[0].inputs[1];
                    assert_eq!(*graph.constant(part).unwrap().data, *wanted, "{case}");
                }
                Err(error) => assert!(wanted.is_empty(), "{case}: {error}"),
            }
        }
    }
}

#[test]
fn images_of_other_ranks_are_refused() {
    for x in [&[1, 3, 8][..], &[1, 3, 8, 8, 8]] {
        for op in ["Conv", "ConvTranspose", "MaxPool", "Resize"] {
            let inputs: &[&str] = match op {
                "MaxPool" => &["x"],
                "Resize" => &["x", "", "w"],
                _ => &["x", "w"],
            };
            let message = refusal(&model(x, vec![node(op, inputs, &["y"], vec![])], vec![weights("w", &[1, 3, 1])]));
            assert!(message.contains("spatial dimensions"), "{op}: {message}");
        }
    }
}

#[test]
fn unread_optional_outputs_do_not_matter() {
    let dropout = model(&[1, 3], vec![node("Dropout", &["x"], &["y", "mask"], vec![])], vec![]);
    assert_eq!(run(&dropout).unwrap().nodes[0].op, Op::Reshape);
}

fn external(location: &str, offset: &str, length: &str) -> TensorProto {
    let entry =
        |(key, value): (&str, &str)| StringStringEntryProto { key: Some(key.into()), value: Some(value.into()) };
    TensorProto {
        raw_data: None,
        data_location: Some(DataLocation::External as i32),
        external_data: [("location", location), ("offset", offset), ("length", length)].map(entry).to_vec(),
        ..weights("w", &[4])
    }
}

#[test]
fn external_data_stays_in_the_folder() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("model");
    std::fs::create_dir_all(folder.join("inner")).unwrap();
    let data: Vec<u8> = (0..8).flat_map(|i| (i as f32).to_le_bytes()).collect();
    for path in ["model/data.bin", "model/inner/data.bin", "secret.bin"] {
        std::fs::write(root.path().join(path), &data).unwrap();
    }
    let load = |tensor: TensorProto| {
        let model = model(&[1, 4], vec![node("Add", &["x", "w"], &["y"], vec![])], vec![tensor]);
        parse(model.encode_to_vec().into(), Some(folder.as_path()), 1).map_err(|e| e.to_string())
    };
    for (location, offset) in [("data.bin", "0"), ("data.bin", "16"), ("inner/data.bin", "4"), ("./data.bin", "0")] {
        let graph = load(external(location, offset, "16")).unwrap();
        let constant = graph.values.iter().find_map(|v| v.constant.clone()).unwrap();
        assert_eq!(constant.data[0], offset.parse::<f32>().unwrap() / 4.0);
    }
    let absolute = root.path().join("secret.bin");
    for (location, offset, length, wanted) in [
        ("../secret.bin", "0", "16", "inside the model's folder"),
        ("inner/../../secret.bin", "0", "16", "inside the model's folder"),
        (absolute.to_str().unwrap(), "0", "16", "inside the model's folder"),
        ("", "0", "16", "inside the model's folder"),
        (".", "0", "16", "regular file"),
        ("inner", "0", "16", "regular file"),
        ("absent.bin", "0", "16", "No such file"),
        ("data.bin", "20", "16", "not there"),
        ("data.bin", "18446744073709551615", "16", "not there"),
        ("data.bin", "0", "12", "needs 16 bytes"),
        ("data.bin", "-1", "16", "no size"),
    ] {
        let message = load(external(location, offset, length)).unwrap_err();
        assert!(message.contains(wanted), "{location} {offset} {length}: {message}");
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&absolute, folder.join("link.bin")).unwrap();
        assert!(load(external("link.bin", "0", "16")).unwrap_err().contains("outside"));
        std::os::unix::fs::symlink(root.path(), folder.join("up")).unwrap();
        assert!(load(external("up/secret.bin", "0", "16")).unwrap_err().contains("outside"));
    }
}

#[test]
fn deep_nesting_and_swarms_of_messages_are_refused() {
    // A node with an attribute with a graph with a node ...
    let mut nested = Vec::new();
    for field in [6u8, 5, 1].iter().cycle().take(20_001) {
        let mut outer = vec![(field << 3) | 2];
        prost::encoding::encode_varint(nested.len() as u64, &mut outer);
        outer.append(&mut nested);
        nested = outer;
    }
    let mut file = vec![(7 << 3) | 2];
    prost::encoding::encode_varint(nested.len() as u64, &mut file);
    file.append(&mut nested);
    let message = onnx::decode(file.into()).unwrap_err().to_string();
    assert!(message.contains("deep"), "{message}");

    // Two million empty nodes in four megabytes.
    let nodes = [(1 << 3) | 2, 0].repeat(2 << 20);
    let mut file = vec![(7 << 3) | 2];
    prost::encoding::encode_varint(nodes.len() as u64, &mut file);
    file.extend(nodes);
    assert!(onnx::decode(file.into()).unwrap_err().to_string().contains("more than"));
    assert!(onnx::decode(bytes::Bytes::new()).unwrap_err().to_string().contains("empty"));
    assert!(onnx::read(Path::new("no such file.onnx")).is_err());
}

#[test]
fn every_truncation_is_refused_or_complete() {
    let bytes = classifier().encode_to_vec();
    for length in 0..bytes.len() {
        // Cut between two fields, a file may still be a model without them; it must not panic.
        let _ = parse(bytes[..length].to_vec().into(), None, 1);
    }
    assert!(parse(bytes.into(), None, 1).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Damaged files never panic, whatever became of them.
    #[test]
    fn damaged_files_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = classifier().encode_to_vec();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = parse(bytes.into(), None, 1);
    }

    /// Nor do attributes and shapes of any value.
    #[test]
    fn any_numbers_never_panic(
        values in prop::collection::vec(prop_oneof![-3i64..20, any::<i64>()], 0..9),
        axis in prop_oneof![-5i64..5, any::<i64>()],
        op in prop::sample::select(vec!["Reshape", "Slice", "Pad", "Split", "Gather", "Resize", "Expand", "Unsqueeze",
            "ConstantOfShape", "Tile", "ReduceSum", "Conv", "ConvTranspose", "MaxPool", "AveragePool", "Transpose"]),
    ) {
        let inputs: &[&str] = match op {
            "Slice" => &["x", "i", "i", "i"],
            "Resize" => &["x", "", "", "i"],
            "ConstantOfShape" => &["i"],
            "Conv" | "ConvTranspose" => &["x", "w"],
            "MaxPool" | "AveragePool" | "Transpose" => &["x"],
            _ => &["x", "i"],
        };
        let attributes = match op {
            "Split" | "Gather" => vec![int("axis", axis)],
            "Conv" | "ConvTranspose" => vec![list("pads", &values), int("group", axis)],
            "MaxPool" | "AveragePool" => vec![list("kernel_shape", &[2, 2]), list("pads", &values), int("ceil_mode", 1)],
            "Transpose" => vec![list("perm", &values)],
            _ => vec![],
        };
        let constants = vec![ints("i", &values), weights("w", &[3, 3, 3, 3])];
        let _ = run(&model(&[-1, 3, 8, 8], vec![node(op, inputs, &["y"], attributes)], constants));
    }
}
