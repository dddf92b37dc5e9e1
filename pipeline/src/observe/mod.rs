//! What a job shows of itself: how long things take, on what, and when. It knows no stage by name; [`crate::runner`], the
//! stages of a GPU and [`crate::cli`] tell it.

mod durations;
pub mod exposition;
pub mod http;
mod process;
pub mod trace;

pub use durations::{Durations, Spread};
pub use process::{cpu_time, memory_bytes, peak_memory_bytes};
pub use trace::{Recorder, Track};
