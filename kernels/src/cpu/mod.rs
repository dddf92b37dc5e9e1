//! The CPU engine and its operators.

mod aligned;
mod block_simd;
mod conv;
mod conv_transpose;
mod copy;
mod depthwise;
mod depthwise_simd;
mod engine;
mod gemm;
mod math;
mod matrix;
mod norm;
mod par;
pub mod planes;
mod pointwise;
mod pool;
pub mod preprocess;
mod quantize;
mod reduce;
mod resample;
mod resample_simd;
mod resize;
#[cfg(test)]
mod testing;
mod tile_simd;
mod vector_simd;
mod vectorise;

pub use engine::CpuEngine;
pub use vector_simd::Isa;
