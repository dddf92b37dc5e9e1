//! Topological order of a file's nodes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::model::onnx::proto::NodeProto;

/// Positions of the nodes such that each comes after those whose results it reads; nodes in a correct order keep it.
/// Names that no node makes do not matter here.
///
/// # Errors
/// The position of a node whose result two nodes make or that is part of a cycle, and what is wrong with it.
pub(super) fn order(nodes: &[NodeProto]) -> Result<Vec<usize>, (usize, String)> {
    let mut producers = HashMap::new();
    for (i, node) in nodes.iter().enumerate() {
        for output in node.output.iter().filter(|name| !name.is_empty()) {
            if producers.insert(output.as_str(), i).is_some() {
                return Err((i, format!("\"{output}\" is made twice")));
            }
        }
    }
    let mut waits = vec![0usize; nodes.len()];
    let mut readers = vec![Vec::new(); nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        for &producer in node.input.iter().filter_map(|name| producers.get(name.as_str())) {
            waits[i] += 1;
            readers[producer].push(i);
        }
    }
    let mut ready: BinaryHeap<_> = (0..nodes.len()).filter(|&i| waits[i] == 0).map(Reverse).collect();
    let mut sorted = Vec::with_capacity(nodes.len());
    while let Some(Reverse(i)) = ready.pop() {
        sorted.push(i);
        for &reader in &readers[i] {
            waits[reader] -= 1;
            if waits[reader] == 0 {
                ready.push(Reverse(reader));
            }
        }
    }
    match waits.iter().position(|&count| count > 0) {
        None => Ok(sorted),
        Some(i) => Err((i, "it reads its own result, directly or through other nodes".into())),
    }
}
