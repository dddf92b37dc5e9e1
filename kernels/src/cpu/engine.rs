//! TODO
#[allow(missing_docs)]
pub struct CpuEngine;
