//! Writes a ResNet-50 (He et al., 2015; the stride in the 3x3 convolutions, batch normalisation folded) with seeded
//! random weights as an ONNX file: `resnet50 FILE`. It knows nothing, but costs what the real one costs.

use std::process::ExitCode;

use tests::network::{NetworkBuilder, list};

/// Bottleneck blocks and their inner channels, a pair a stage.
const STAGES: [(usize, usize); 4] = [(3, 64), (4, 128), (6, 256), (3, 512)];
/// Channels that a block gives, in units of its inner channels.
const EXPANSION: usize = 4;
const CLASSES: usize = 1000;
const SIDE_PX: i64 = 224;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: resnet50 FILE");
        return ExitCode::from(2);
    };
    match std::fs::write(&path, network()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}

fn network() -> Vec<u8> {
    let mut builder = NetworkBuilder::new(50);
    let mut x = builder.conv(NetworkBuilder::INPUT, 3, 64, 7, 2, 1.0);
    x = builder.node("Relu", &[&x], vec![]);
    x = builder.node(
        "MaxPool",
        &[&x],
        vec![list("kernel_shape", &[3; 2]), list("strides", &[2; 2]), list("pads", &[1; 4])],
    );
    let mut channels = 64;
    for (stage, (blocks, inner)) in STAGES.into_iter().enumerate() {
        for block in 0..blocks {
            let stride = if block == 0 && stage > 0 { 2 } else { 1 };
            x = bottleneck(&mut builder, &x, channels, inner, stride);
            channels = inner * EXPANSION;
        }
    }
    let scores = builder.classes(&x, channels, CLASSES, 1.0);
    builder.finish("resnet50", SIDE_PX, &scores, CLASSES)
}

/// 1x1, 3x3, 1x1 and the way around them.
fn bottleneck(builder: &mut NetworkBuilder, x: &str, channels: usize, inner: usize, stride: i64) -> String {
    let outer = inner * EXPANSION;
    let mut y = builder.conv(x, channels, inner, 1, 1, 1.0);
    y = builder.node("Relu", &[&y], vec![]);
    y = builder.conv(&y, inner, inner, 3, stride, 1.0);
    y = builder.node("Relu", &[&y], vec![]);
    // The sum over blocks must not grow beyond what half precision holds.
    y = builder.conv(&y, inner, outer, 1, 1, 0.25);
    let around = if channels == outer { x.to_owned() } else { builder.conv(x, channels, outer, 1, stride, 1.0) };
    y = builder.node("Add", &[&y, &around], vec![]);
    builder.node("Relu", &[&y], vec![])
}
