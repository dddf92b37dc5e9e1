//! The embedded engine: the operators on the CPU.

mod conv;
mod conv_transpose;
mod copy;
mod depthwise;
mod engine;
mod gemm;
mod norm;
mod par;
mod pointwise;
mod pool;
pub mod preprocess;
mod quantize;
mod reduce;
mod resample;
mod resize;

pub use engine::CpuEngine;
