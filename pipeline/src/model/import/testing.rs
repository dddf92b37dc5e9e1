//! Tiny models for tests.

use bytes::Bytes;

use crate::model::onnx::proto::attribute_proto::AttributeType;
use crate::model::onnx::proto::tensor_proto::DataType;
use crate::model::onnx::proto::tensor_shape_proto::{Dimension, dimension};
use crate::model::onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto, TypeProto,
    ValueInfoProto, type_proto,
};

/// A float input or output; -1 leaves a dimension open.
pub(crate) fn port(name: &str, dims: &[i64]) -> ValueInfoProto {
    let dimension = |&d: &i64| Dimension {
        value: Some(if d < 0 { dimension::Value::DimParam("open".into()) } else { dimension::Value::DimValue(d) }),
        ..Dimension::default()
    };
    let shape = TensorShapeProto { dim: dims.iter().map(dimension).collect() };
    let tensor = type_proto::Tensor { elem_type: Some(DataType::Float as i32), shape: Some(shape) };
    let kind = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: Some(name.into()), r#type: Some(kind), ..ValueInfoProto::default() }
}

/// A float initialiser of whole numbers 0, 1, 2, ...
pub(crate) fn weights(name: &str, dims: &[i64]) -> TensorProto {
    let count = dims.iter().product::<i64>().max(0);
    let data: Vec<u8> = (0..count).flat_map(|i| (i as f32).to_le_bytes()).collect();
    TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(DataType::Float as i32),
        raw_data: Some(data.into()),
        ..TensorProto::default()
    }
}

/// A list of 64-bit integers as initialiser.
pub(crate) fn ints(name: &str, values: &[i64]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: vec![values.len() as i64],
        data_type: Some(DataType::Int64 as i32),
        int64_data: values.to_vec(),
        ..TensorProto::default()
    }
}

/// A node named as its first output.
pub(crate) fn node(op: &str, inputs: &[&str], outputs: &[&str], attributes: Vec<AttributeProto>) -> NodeProto {
    let owned = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect();
    NodeProto {
        op_type: Some(op.into()),
        input: owned(inputs),
        output: owned(outputs),
        attribute: attributes,
        ..NodeProto::default()
    }
}

fn attribute(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto { name: Some(name.into()), r#type: Some(kind as i32), ..AttributeProto::default() }
}

/// An attribute that is a number.
pub(crate) fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { i: Some(value), ..attribute(name, AttributeType::Int) }
}

/// An attribute that is a list of numbers.
pub(crate) fn list(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto { ints: values.to_vec(), ..attribute(name, AttributeType::Ints) }
}

/// An attribute that is a word.
pub(crate) fn word(name: &str, value: &'static str) -> AttributeProto {
    AttributeProto { s: Some(Bytes::from_static(value.as_bytes())), ..attribute(name, AttributeType::String) }
}

/// A model of opset 13 that reads "x" and makes "y".
pub(crate) fn model(x: &[i64], nodes: Vec<NodeProto>, initializer: Vec<TensorProto>) -> ModelProto {
    let graph = GraphProto {
        name: Some("test".into()),
        node: nodes,
        initializer,
        input: vec![port("x", x)],
        output: vec![port("y", &[-1])],
        ..GraphProto::default()
    };
    let opset = OperatorSetIdProto { domain: None, version: Some(13) };
    ModelProto { ir_version: Some(8), opset_import: vec![opset], graph: Some(graph), ..ModelProto::default() }
}

/// Convolution, batch normalisation, pooling, shape arithmetic and a matrix product: a classifier in small.
pub(crate) fn classifier() -> ModelProto {
    let nodes = vec![
        node("Conv", &["x", "w", "b"], &["c"], vec![list("pads", &[1, 1, 1, 1]), list("strides", &[2, 2])]),
        node("BatchNormalization", &["c", "b", "b", "b", "v"], &["n"], vec![]),
        node("Clip", &["n", "", "six"], &["a"], vec![]),
        node("Split", &["a"], &["s0", "s1"], vec![int("axis", 1)]),
        node("Mul", &["s0", "s1"], &["m"], vec![]),
        node("GlobalAveragePool", &["m"], &["p"], vec![]),
        node("Shape", &["p"], &["shape"], vec![]),
        node("Gather", &["shape", "first"], &["n0"], vec![]),
        node("Concat", &["n0", "rest"], &["target"], vec![int("axis", 0)]),
        node("Reshape", &["p", "target"], &["flat"], vec![]),
        node("Gemm", &["flat", "f"], &["logits"], vec![int("transB", 1)]),
        node("Softmax", &["logits"], &["y"], vec![]),
    ];
    let constants = vec![
        weights("w", &[4, 3, 3, 3]),
        weights("b", &[4]),
        weights("v", &[4]),
        TensorProto { dims: vec![], ..weights("six", &[1]) },
        ints("first", &[0]),
        ints("rest", &[-1]),
        weights("f", &[5, 2]),
    ];
    model(&[-1, 3, 8, 8], nodes, constants)
}
