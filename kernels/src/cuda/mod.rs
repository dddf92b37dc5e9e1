#![allow(unsafe_code)]
//! The GPU implementation: device, memory and order of work ([`device`], [`stream`], [`memory`], [`module`], [`graph`]),
//! the kernels of a step as data ([`lower`]) and the engine that runs a plan ([`engine`]).
//!
//! Order of work is ours, not cudarc's: everything on one [`stream::Stream`] runs in the order it was enqueued; work on
//! another stream that depends on it waits for a [`stream::Event`]; memory is given back on the stream it was taken on,
//! after the events of other streams that used it. Nothing waits for the whole device.

pub mod clock;
pub mod device;
pub mod engine;
pub mod gpu;
pub mod graph;
pub mod jpeg;
pub mod lower;
pub mod memory;
pub mod module;
pub mod network;
pub mod planes;
pub mod preprocess;
pub mod schedule;
pub mod self_test;
pub mod stream;
mod tensor_map;
pub mod top_k;
pub mod upload;
