//! JPEG files in, labels out: decoding, preprocessing, a CNN, post-processing, as stages joined by bounded channels.
//!
//! ```text
//! source -> decode -> preprocess -> infer -> postprocess -> sink
//!      Encoded   Picture       Batch     Outputs       Results
//! ```
//!
//! Stage modules do not import one another; they share the types of [`frame`] and the trait of [`stage`]. [`runner`]
//! knows only [`stage::Stage`]. [`cli`] puts stages together.

pub mod bench;
pub mod cli;
pub mod decode;
pub mod error;
pub mod frame;
pub mod gpu;
pub mod infer;
pub mod model;
pub mod observe;
pub mod parity;
pub mod postprocess;
pub mod preprocess;
pub mod runner;
pub mod single;
pub mod sink;
pub mod source;
pub mod stage;
