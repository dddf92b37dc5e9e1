//! Operators of Ocellus: what they are ([`op`]), how a whole network is laid out ([`plan`]), who runs it
//! ([`engine::Engine`]), and their implementation on the CPU ([`cpu`]).
//!
//! Imports inside the crate go one way: `error <- tensor <- op <- shape <- plan <- engine <- cpu`. Callers hold a
//! `Box<dyn Engine>`; only constructors name an implementation.

pub mod cpu;
pub mod engine;
pub mod error;
pub mod op;
pub mod plan;
pub mod preprocess;
mod shape;
pub mod tensor;

pub use error::KernelError;
