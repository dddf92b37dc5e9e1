//! What a network consists of: `ocellus inspect MODEL`.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use ocellus_kernels::op::{Conv, ConvTranspose, Gemm, MatMul, Op, Unary};
use ocellus_kernels::plan::{Operand, Plan, Step};
use ocellus_kernels::tensor::elements;

use super::ModelError;
use super::graph::Graph;
use super::load::Model;
use super::plan::plan;

/// Bytes of an element in the CPU engine.
const ELEMENT_BYTES: usize = size_of::<f32>();

/// Characters of a node's name in the table.
const MAX_NAME: usize = 24;

/// One step of the plan.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Layer {
    /// The model's name of the node.
    pub name: String,
    /// Operator.
    pub op: String,
    /// Shapes of the operands that the network computes, in the engine's order (N, H, W, C).
    pub inputs: Vec<Vec<usize>>,
    /// Shape of the result.
    pub output: Vec<usize>,
    /// Floating-point operations of matrix products, a multiplication and an addition counting 2. Element-wise work is
    /// left out.
    pub flop: u64,
    /// Bytes of the constants it reads.
    pub weight_bytes: usize,
    /// Bytes of its result.
    pub activation_bytes: usize,
    /// What passes merged into it, oldest first, as `pass: node`.
    pub fused: Vec<String>,
}

/// A network for one batch size.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Report {
    /// Name of the model.
    pub model: String,
    /// Images a run takes.
    pub batch: usize,
    /// Names and shapes of the inputs.
    pub inputs: Vec<(String, Vec<usize>)>,
    /// Names and shapes of the outputs.
    pub outputs: Vec<(String, Vec<usize>)>,
    /// Steps in order.
    pub layers: Vec<Layer>,
    /// Elements of all constants, those read by several steps counted once.
    pub parameters: usize,
    /// Sum over the layers.
    pub flop: u64,
    /// Bytes of the arena that all activations share.
    pub arena_bytes: usize,
    /// Bytes of all constants.
    pub weight_bytes: usize,
}

/// Describes a model for a batch size.
///
/// # Errors
/// Where the network does not take the batch size.
pub fn report(model: &Model, batch: usize) -> Result<Report, ModelError> {
    let graph = model.graph(batch)?;
    Ok(of(&model.name, &graph, &plan(&graph)?))
}

fn of(model: &str, graph: &Graph, plan: &Plan) -> Report {
    // Steps keep the order of the nodes; views have none.
    let mut nodes = graph.nodes.iter();
    let layers: Vec<_> = plan
        .steps
        .iter()
        .map(|step| {
            let node = nodes.by_ref().find(|n| n.name == step.name && n.op == step.op);
            layer(step, node.map(|n| n.fused.clone()).unwrap_or_default())
        })
        .collect();
    let mut seen = std::collections::HashSet::new();
    let constants = plan.steps.iter().flat_map(|step| &step.inputs).filter_map(|input| match input {
        Operand::Constant(constant) => Some(constant),
        Operand::Buffer(_) => None,
    });
    let parameters = constants.filter(|c| seen.insert(std::sync::Arc::as_ptr(c))).map(|c| c.data.len()).sum();
    let port = |port: &ocellus_kernels::plan::Port| (port.name.clone(), port.buffer.dims.clone());
    Report {
        model: model.to_owned(),
        batch: plan.batch,
        inputs: plan.inputs.iter().map(port).collect(),
        outputs: plan.outputs.iter().map(port).collect(),
        flop: layers.iter().map(|l| l.flop).sum(),
        layers,
        parameters,
        arena_bytes: plan.arena_len * ELEMENT_BYTES,
        weight_bytes: parameters * ELEMENT_BYTES,
    }
}

fn layer(step: &Step, fused: Vec<String>) -> Layer {
    let (mut inputs, mut weights) = (Vec::new(), 0);
    for input in &step.inputs {
        match input {
            Operand::Buffer(buffer) => inputs.push(buffer.dims.clone()),
            Operand::Constant(constant) => weights += constant.data.len(),
        }
    }
    Layer {
        name: step.name.clone(),
        op: describe(&step.op),
        inputs,
        output: step.output.dims.clone(),
        flop: 2 * multiplications(&step.op),
        weight_bytes: weights * ELEMENT_BYTES,
        activation_bytes: elements(&step.output.dims) * ELEMENT_BYTES,
        fused,
    }
}

/// The operator with its kernel, stride and epilogue where it has them.
fn describe(op: &Op) -> String {
    let window = |r, s, stride: [usize; 2]| {
        let stride = if stride == [1, 1] { String::new() } else { format!("/{}", stride[0].max(stride[1])) };
        format!("{} {r}x{s}{stride}", op.name())
    };
    let (text, residual, activation) = match op {
        Op::Conv(c) | Op::ConvTranspose(ConvTranspose(c)) => {
            (window(c.r, c.s, c.stride), c.epilogue.residual, c.epilogue.activation)
        }
        Op::Gemm(g) => (op.name().to_owned(), g.epilogue.residual, g.epilogue.activation),
        Op::Pool(p) => (window(p.r, p.s, p.stride), false, None),
        Op::Unary(function) => (function_name(*function), false, None),
        Op::Binary { kind, activation } => (format!("{kind:?}"), false, *activation),
        Op::Reduce { kind, .. } => (format!("Reduce{kind:?}"), false, None),
        _ => (op.name().to_owned(), false, None),
    };
    let residual = if residual { " + Add" } else { "" };
    let activation = activation.map(|f| format!(" + {}", function_name(f))).unwrap_or_default();
    format!("{text}{residual}{activation}")
}

/// The function's name without its parameters.
fn function_name(function: Unary) -> String {
    let text = format!("{function:?}");
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// Multiplications of a matrix product, padding counted as data.
fn multiplications(op: &Op) -> u64 {
    let product = |factors: &[usize]| factors.iter().map(|&f| f as u64).product();
    match op {
        Op::Conv(Conv { n, c, k, r, s, p, q, groups, .. }) => product(&[*n, *p, *q, *k, *r, *s, c / groups]),
        Op::ConvTranspose(t) => product(&[t.0.n, t.0.h, t.0.w, t.0.k, t.0.r, t.0.s, t.0.c / t.0.groups]),
        Op::Gemm(Gemm { m, n, k, .. }) => product(&[*m, *n, *k]),
        Op::MatMul(MatMul { batch_a, batch_b, m, n, k }) => product(&[*batch_a.max(batch_b), *m, *n, *k]),
        _ => 0,
    }
}

impl Report {
    /// The layers as a table, with a line for each node that a pass merged into a layer. Long names lose their front, and
    /// a terminal breaks what it is too narrow for.
    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(["#", "name", "operator", "input", "output", "GFLOP", "weights\nMB", "output\nMB", "fused"]);
        for (i, layer) in self.layers.iter().enumerate() {
            let gflop = if layer.flop == 0 { String::new() } else { format!("{:.4}", layer.flop as f64 / 1e9) };
            table.add_row([
                i.to_string(),
                end_of(&layer.name, MAX_NAME),
                layer.op.clone(),
                shapes(&layer.inputs),
                shape(&layer.output),
                gflop,
                megabytes(layer.weight_bytes),
                megabytes(layer.activation_bytes),
                layer.fused.iter().map(|fused| fused_line(fused)).collect::<Vec<_>>().join("\n"),
            ]);
        }
        for column in [0, 5, 6, 7] {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ports = |ports: &[(String, Vec<usize>)]| {
            ports.iter().map(|(name, dims)| format!("{name} {}", shape(dims))).collect::<Vec<_>>().join(", ")
        };
        writeln!(f, "{}", self.table())?;
        writeln!(f, "model {}, batch {}", self.model, self.batch)?;
        writeln!(f, "inputs  {}", ports(&self.inputs))?;
        writeln!(f, "outputs {}", ports(&self.outputs))?;
        write!(
            f,
            "{} steps, {} parameters, {:.3} GFLOP, weights {} MB, arena {} MB",
            self.layers.len(),
            self.parameters,
            self.flop as f64 / 1e9,
            megabytes(self.weight_bytes),
            megabytes(self.arena_bytes)
        )
    }
}

/// The last `most` characters, which tell the nodes of a network apart.
fn end_of(name: &str, most: usize) -> String {
    let excess = name.chars().count().saturating_sub(most);
    if excess == 0 { name.to_owned() } else { format!("…{}", name.chars().skip(excess + 1).collect::<String>()) }
}

/// `pass: node` with a long node's name cut.
fn fused_line(fused: &str) -> String {
    fused
        .split_once(": ")
        .map_or_else(|| fused.to_owned(), |(pass, node)| format!("{pass}: {}", end_of(node, MAX_NAME)))
}

/// A line for each shape; equal ones in a row are counted.
fn shapes(all: &[Vec<usize>]) -> String {
    let line = |equal: &[Vec<usize>]| match equal.len() {
        1 => shape(&equal[0]),
        n => format!("{n} of {}", shape(&equal[0])),
    };
    all.chunk_by(|a, b| a == b).map(line).collect::<Vec<_>>().join("\n")
}

fn shape(dims: &[usize]) -> String {
    dims.iter().map(ToString::to_string).collect::<Vec<_>>().join("x")
}

/// MB of 10^6 bytes; empty for nothing.
fn megabytes(bytes: usize) -> String {
    if bytes == 0 { String::new() } else { format!("{:.3}", bytes as f64 / 1e6) }
}

#[cfg(test)]
mod tests {
    use ocellus_kernels::op::BinaryKind;

    use super::super::passes::{optimise, testing::Builder};
    use super::*;

    #[test]
    fn figures_of_a_small_network() {
        let mut b = Builder::new(1);
        let x = b.input(&[2, 4, 5, 6]);
        let y = b.conv(x, 8, 3, 2, true);
        let y = b.unary(Unary::Relu, y);
        let y = b.reshape(y, &[2, 240]);
        let y = b.gemm(y, 10);
        let graph = optimise(b.build(&[y]), usize::MAX);
        let report = of("small", &graph, &plan(&graph).expect("small"));
        let ops: Vec<_> = report.layers.iter().map(|l| l.op.as_str()).collect();
        assert_eq!(ops, ["Conv 3x3 + Relu", "Transpose", "Gemm"]);
        let conv = &report.layers[0];
        assert_eq!(conv.flop, 2 * 2 * 5 * 6 * 8 * 3 * 3 * 2);
        assert_eq!((conv.weight_bytes, conv.activation_bytes), (4 * 8 * 2 * 9, 4 * 2 * 5 * 6 * 8));
        assert_eq!((conv.inputs.clone(), conv.output.clone()), (vec![vec![2, 5, 6, 4]], vec![2, 5, 6, 8]));
        assert_eq!(conv.fused, ["activation: Unary1"]);
        assert_eq!(report.layers[2].flop, 2 * 2 * 240 * 10);
        assert_eq!(report.parameters, 8 * 2 * 9 + 2400);
        assert_eq!(report.flop, report.layers.iter().map(|l| l.flop).sum::<u64>());
        let text = report.to_string();
        for word in ["2x5x6x4", "activation: Unary1", "2544 parameters", "model small, batch 2"] {
            assert!(text.contains(word), "{word} is not in\n{text}");
        }
        assert!(text.lines().all(|line| line.trim_end().chars().count() <= 160), "too wide:\n{text}");
        assert_eq!(serde_json::to_value(&report).expect("plain data")["layers"][0]["op"], "Conv 3x3 + Relu");
    }

    #[test]
    fn long_names_and_many_operands_keep_the_table_narrow() {
        let mut b = Builder::new(2);
        let x = b.input(&[1, 4, 100, 100]);
        let product = b.conv(x, 4, 3, 1, true);
        let y = b.binary(BinaryKind::Add, product, x);
        let y = b.unary(Unary::Clip { min: 0.0, max: 6.0 }, y);
        let y = b.node(Op::Concat { axis: 1 }, &[y, y, y, x], &[1, 16, 100, 100]);
        let mut graph = b.build(&[y]);
        for node in &mut graph.nodes {
            node.name = format!("model/{}/ä/{}", "block/".repeat(50), node.name);
        }
        let graph = optimise(graph, usize::MAX);
        let report = of("long", &graph, &plan(&graph).expect("small"));
        assert_eq!(report.layers[0].op, "Conv 3x3 + Add + Clip");
        let text = report.table().to_string();
        assert!(text.lines().all(|line| line.trim_end().chars().count() <= 160), "too wide:\n{text}");
        for word in ["residual: …", "/ä/Binary1", "activation: …", "4 of 1x100x100x4", "/ä/Conv0"] {
            assert!(text.contains(word), "{word} is not in\n{text}");
        }
        // The data keep the names whole.
        assert!(report.layers[0].fused[0].starts_with("residual: model/block/"));
    }
}
