//! A network for several batch sizes: what they share must not show.

use std::collections::HashSet;

use ocellus_kernels::plan::{Constant, Operand};

use super::*;
use crate::model::import::import;
use crate::model::import::testing::{ints, list};
use crate::model::onnx::proto::attribute_proto::AttributeType;
use crate::model::onnx::proto::{AttributeProto, NodeProto, TensorProto};

/// Rows and columns of the networks.
const SIDE: i64 = 6;

/// A random network in the making: what its last node gives is `x`, `[n, channels, SIDE, SIDE]`.
struct Random {
    state: u64,
    nodes: Vec<NodeProto>,
    constants: Vec<TensorProto>,
    x: String,
    channels: i64,
}

impl Random {
    fn below(&mut self, n: u64) -> i64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((self.state >> 33) % n) as i64
    }

    fn name(&self) -> String {
        format!("v{}", self.nodes.len() + self.constants.len())
    }

    /// Numbers in an initialiser or, now and then, in a node.
    fn floats(&mut self, dims: &[i64]) -> String {
        let count = dims.iter().product::<i64>();
        let data: Vec<u8> = (0..count).flat_map(|_| (self.below(2001) as f32 / 997.0 - 1.0).to_le_bytes()).collect();
        let name = self.name();
        let tensor = TensorProto { raw_data: Some(data.into()), ..weights(&name, dims) };
        if self.below(5) == 0 {
            let kind = Some(AttributeType::Tensor as i32);
            let value =
                AttributeProto { name: Some("value".into()), r#type: kind, t: Some(tensor), ..Default::default() };
            self.nodes.push(node("Constant", &[], &[&name], vec![value]));
        } else {
            self.constants.push(tensor);
        }
        name
    }

    fn ints(&mut self, values: &[i64]) -> String {
        let name = self.name();
        self.constants.push(ints(&name, values));
        name
    }

    fn node(&mut self, op: &str, inputs: &[&str], attributes: Vec<AttributeProto>) -> String {
        let name = self.name();
        self.nodes.push(node(op, inputs, &[&name], attributes));
        name
    }

    /// Weights as they are, quantised, or in another order of their axes.
    fn weights(&mut self, dims: &[i64]) -> String {
        match self.below(4) {
            0 => {
                let name = self.name();
                let data: Vec<u8> = (0..dims.iter().product::<i64>()).map(|_| self.below(256) as u8).collect();
                let kind = Some(DataType::Int8 as i32);
                self.constants.push(TensorProto {
                    data_type: kind,
                    raw_data: Some(data.into()),
                    ..weights(&name, dims)
                });
                let scale = self.floats(&[dims[0]]);
                self.node("DequantizeLinear", &[&name, &scale], vec![int("axis", 0)])
            }
            1 => {
                let turned: Vec<i64> = dims.iter().rev().copied().collect();
                let turned = self.floats(&turned);
                self.node("Transpose", &[&turned], vec![])
            }
            _ => self.floats(dims),
        }
    }

    fn layer(&mut self) {
        let x = self.x.clone();
        let c = self.channels;
        self.x = match self.below(9) {
            0 | 1 => {
                let (k, side) = (1 + self.below(6), 1 + 2 * self.below(2));
                let w = self.weights(&[k, c, side, side]);
                self.channels = k;
                self.node("Conv", &[&x, &w], vec![list("pads", &[side / 2; 4])])
            }
            2 => {
                let (w, b) = (self.weights(&[c, 1, 3, 3]), self.floats(&[c]));
                self.node("Conv", &[&x, &w, &b], vec![list("pads", &[1; 4]), int("group", c)])
            }
            3 => {
                let k = 1 + self.below(4);
                let w = self.weights(&[c, k, 1, 1]);
                self.channels = k;
                self.node("ConvTranspose", &[&x, &w], vec![])
            }
            4 => {
                let [scale, bias, mean] = [(); 3].map(|()| self.floats(&[c]));
                let variance = self.name();
                self.constants.push(weights(&variance, &[c]));
                self.node("BatchNormalization", &[&x, &scale, &bias, &mean, &variance], vec![])
            }
            5 => {
                let factor = self.floats(&[c, 1, 1]);
                let op = ["Mul", "Add"][self.below(2) as usize];
                self.node(op, &[&x, &factor], vec![])
            }
            6 => self.node("Relu", &[&x], vec![]),
            7 => {
                let w = self.floats(&[c, c, 1, 1]);
                let y = self.node("Conv", &[&x, &w], vec![]);
                self.node("Add", &[&y, &x], vec![])
            }
            _ => self.turned(&x),
        };
    }

    /// Rows and channels exchanged and back, with the batch kept, computed, left open, or fixed, which others cannot take.
    fn turned(&mut self, x: &str) -> String {
        let c = self.channels;
        let target = match self.below(8) {
            0 => self.ints(&[1, SIDE, c, SIDE]),
            1 => self.ints(&[2, SIDE, c, SIDE]),
            2 | 3 => self.ints(&[0, SIDE, c, SIDE]),
            4 | 5 => {
                let shape = self.node("Shape", &[x], vec![]);
                let (first, rest) = (self.ints(&[0]), self.ints(&[SIDE, c, SIDE]));
                let n = self.node("Gather", &[&shape, &first], vec![]);
                self.node("Concat", &[&n, &rest], vec![int("axis", 0)])
            }
            _ => self.ints(&[-1, SIDE, c, SIDE]),
        };
        let x = self.node("Reshape", &[x, &target], vec![int("allowzero", 0)]);
        self.node("Transpose", &[&x], vec![list("perm", &[0, 2, 1, 3])])
    }

    fn network(seed: u64) -> ModelProto {
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let (nodes, constants) = (Vec::new(), Vec::new());
        let mut random = Self { state, nodes, constants, x: "x".into(), channels: 3 };
        for _ in 0..2 + random.below(8) {
            random.layer();
        }
        let (x, c) = (random.x.clone(), random.channels);
        let x = random.node("GlobalAveragePool", &[&x], vec![]);
        let x = random.node("Flatten", &[&x], vec![]);
        let last = match random.below(3) {
            0 => {
                let w = random.weights(&[5, c]);
                random.node("Gemm", &[&x, &w], vec![int("transB", 1)])
            }
            1 => {
                let (w, b) = (random.weights(&[c, 5]), random.floats(&[5]));
                random.node("Gemm", &[&x, &w, &b], vec![])
            }
            _ => {
                let w = random.weights(&[c, 5]);
                random.node("MatMul", &[&x, &w], vec![])
            }
        };
        random.nodes.push(node("Softmax", &[&last], &["y"], vec![]));
        let batch = if random.below(6) == 0 { 3 } else { -1 };
        let mut model = model(&[batch, 3, SIDE, SIDE], random.nodes, random.constants);
        model.opset_import[0].version = Some(14);
        model
    }
}

/// The weights of matrix products.
fn products(plan: &Plan) -> Vec<&Arc<Constant>> {
    let products = plan.steps.iter().filter(|s| matches!(s.op, Op::Conv(_) | Op::ConvTranspose(_) | Op::Gemm(_)));
    let weights = products.filter_map(|step| match step.inputs.get(1) {
        Some(Operand::Constant(constant)) => Some(constant),
        _ => None,
    });
    weights.collect()
}

/// The plans of a model are those of its file read anew for each batch size, to the last bit, and errors are as well; no
/// weights are in memory twice.
#[test]
fn every_batch_size_is_as_if_it_were_the_only_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("random.onnx");
    let (mut planned, mut refused, mut shared) = (0, 0, 0);
    for seed in 0..200 {
        let network = Random::network(seed);
        std::fs::write(&path, network.encode_to_vec()).unwrap();
        let model = match Model::read(&ModelSpec::Onnx(path.clone())) {
            Ok(model) => model,
            // It cannot take one image.
            Err(error) => {
                let alone = import(&network, &ImportOptions::default()).unwrap_err();
                assert_eq!(format!("{}: {alone}", path.display()), error.to_string());
                continue;
            }
        };
        let one = model.plan(1).unwrap();
        let known: HashSet<_> = products(&one).into_iter().map(Arc::as_ptr).collect();
        for batch in [1, 2, 3, 5, 64] {
            let fresh = import(&network, &ImportOptions { batch, ..ImportOptions::default() });
            let fresh = fresh.and_then(|graph| plan(&optimise(graph, usize::MAX)));
            match (model.plan(batch), fresh) {
                (Ok(own), Ok(fresh)) => {
                    assert_eq!(format!("{own:?}"), format!("{fresh:?}"), "seed {seed}, batch {batch}");
                    own.check().unwrap();
                    for weights in products(&own) {
                        assert!(known.contains(&Arc::as_ptr(weights)), "seed {seed}, batch {batch}: a copy");
                        shared += 1;
                    }
                    planned += 1;
                }
                (Err(own), Err(fresh)) => {
                    assert_eq!(own.to_string(), fresh.to_string(), "seed {seed}, batch {batch}");
                    refused += 1;
                }
                (own, fresh) => panic!("seed {seed}, batch {batch}: {:?}, {:?}", own.err(), fresh.err()),
            }
        }
    }
    // The kinds of networks that this is about were among them.
    assert!(planned > 400 && refused > 20 && shared > 1000, "{planned} {refused} {shared}");
}
