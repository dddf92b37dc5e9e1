//! Small networks with seeded random weights, as ONNX files.

use ocellus::model::onnx::proto::attribute_proto::AttributeType;
use ocellus::model::onnx::proto::tensor_proto::DataType;
use ocellus::model::onnx::proto::tensor_shape_proto::{Dimension, dimension};
use ocellus::model::onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto, TypeProto,
    ValueInfoProto, type_proto,
};
use prost::Message;

use crate::random::Random;

/// A classifier of colour pictures in the making.
pub struct NetworkBuilder {
    nodes: Vec<NodeProto>,
    weights: Vec<TensorProto>,
    random: Random,
    /// -1 leaves it open.
    batch: i64,
}

impl NetworkBuilder {
    /// The name of the network's input.
    pub const INPUT: &str = "input";

    /// An empty network; its weights follow from the seed.
    pub fn new(seed: u64) -> Self {
        Self { nodes: Vec::new(), weights: Vec::new(), random: Random::new(seed), batch: -1 }
    }

    /// The same for batches of this size only.
    pub fn of_batch(self, images: usize) -> Self {
        Self { batch: images as i64, ..self }
    }

    /// The file: pictures of `side_px` x `side_px` pixels in, scores of classes out of value `output`.
    pub fn finish(self, name: &str, side_px: i64, output: &str, classes: usize) -> Vec<u8> {
        let graph = GraphProto {
            name: Some(name.into()),
            node: self.nodes,
            initializer: self.weights,
            input: vec![port(Self::INPUT, &[self.batch, 3, side_px, side_px])],
            output: vec![port(output, &[self.batch, classes as i64])],
            ..GraphProto::default()
        };
        let opset = OperatorSetIdProto { domain: None, version: Some(13) };
        let model =
            ModelProto { ir_version: Some(8), opset_import: vec![opset], graph: Some(graph), ..ModelProto::default() };
        model.encode_to_vec()
    }

    /// The mean over all pixels and a layer from all channels to all classes.
    pub fn classes(&mut self, x: &str, channels: usize, classes: usize, gain: f32) -> String {
        let x = self.node("GlobalAveragePool", &[x], vec![]);
        let x = self.node("Flatten", &[&x], vec![]);
        let (weights, bias) = (self.random_weights(&[classes, channels], channels, gain), self.zeros(classes));
        self.node("Gemm", &[&x, &weights, &bias], vec![int("transB", 1)])
    }

    /// A square convolution that keeps the size but for its stride.
    pub fn conv(&mut self, x: &str, c: usize, k: usize, side: usize, stride: i64, gain: f32) -> String {
        let weights = self.random_weights(&[k, c, side, side], c * side * side, gain);
        let bias = self.zeros(k);
        let pad = side as i64 / 2;
        self.node("Conv", &[x, &weights, &bias], vec![list("strides", &[stride; 2]), list("pads", &[pad; 4])])
    }

    /// A node with one output, which is returned.
    pub fn node(&mut self, op: &str, inputs: &[&str], attribute: Vec<AttributeProto>) -> String {
        let output = format!("{op}_{}", self.nodes.len());
        self.nodes.push(NodeProto {
            name: Some(output.clone()),
            op_type: Some(op.into()),
            input: inputs.iter().map(|&name| name.into()).collect(),
            output: vec![output.clone()],
            attribute,
            ..NodeProto::default()
        });
        output
    }

    /// Uniform, with the variance that keeps a signal's size through a rectifier (He et al.), times the gain.
    fn random_weights(&mut self, dims: &[usize], fan_in: usize, gain: f32) -> String {
        let bound = gain * (6.0 / fan_in as f32).sqrt();
        let values = (0..dims.iter().product::<usize>()).map(|_| self.random.uniform(-bound, bound));
        let data = values.flat_map(f32::to_le_bytes).collect();
        self.tensor(dims, data)
    }

    fn zeros(&mut self, len: usize) -> String {
        self.tensor(&[len], vec![0; 4 * len])
    }

    fn tensor(&mut self, dims: &[usize], data: Vec<u8>) -> String {
        let name = format!("w{}", self.weights.len());
        self.weights.push(TensorProto {
            name: Some(name.clone()),
            dims: dims.iter().map(|&d| d as i64).collect(),
            data_type: Some(DataType::Float as i32),
            raw_data: Some(data.into()),
            ..TensorProto::default()
        });
        name
    }
}

/// An attribute of several whole numbers.
pub fn list(name: &str, values: &[i64]) -> AttributeProto {
    let kind = Some(AttributeType::Ints as i32);
    AttributeProto { name: Some(name.into()), r#type: kind, ints: values.to_vec(), ..AttributeProto::default() }
}

/// An attribute of one whole number.
pub fn int(name: &str, value: i64) -> AttributeProto {
    let kind = Some(AttributeType::Int as i32);
    AttributeProto { name: Some(name.into()), r#type: kind, i: Some(value), ..AttributeProto::default() }
}

/// A float input or output; -1 leaves a dimension open.
fn port(name: &str, dims: &[i64]) -> ValueInfoProto {
    let dimension = |&d: &i64| Dimension {
        value: Some(if d < 0 { dimension::Value::DimParam("n".into()) } else { dimension::Value::DimValue(d) }),
        ..Dimension::default()
    };
    let shape = TensorShapeProto { dim: dims.iter().map(dimension).collect() };
    let tensor = type_proto::Tensor { elem_type: Some(DataType::Float as i32), shape: Some(shape) };
    let kind = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: Some(name.into()), r#type: Some(kind), ..ValueInfoProto::default() }
}
