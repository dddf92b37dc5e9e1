//! Operators of Ocellus: what they are ([`op`]), how a whole network is laid out ([`plan`]), who runs it
//! ([`engine::Engine`]), and their implementation on the CPU ([`cpu`]).
//!
//! Imports inside the crate go one way: `error <- tensor <- op <- shape <- plan <- engine <- cpu`, with `values` ahead
//! of `plan`. Callers hold a `Box<dyn Engine>`; only constructors name an implementation. The text of the GPU kernels
//! ([`cu`]) and their run-time compiler ([`jit`]) import nothing of all that.

pub mod cpu;
pub mod cu;
pub mod cuda;
pub mod engine;
pub mod error;
pub mod jit;
pub mod op;
pub mod picture;
pub mod plan;
pub mod preprocess;
mod sampling;
mod shape;
pub mod tensor;
pub mod values;
mod walk;

pub use error::KernelError;
