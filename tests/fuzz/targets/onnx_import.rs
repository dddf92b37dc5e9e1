//! ONNX files, from the bytes to the engine.
#![no_main]

use bytes::Bytes;
use ocellus::model::{import, passes, plan};
use ocellus_kernels::cpu::CpuEngine;

/// Largest arena of a plan that an engine is made for: the memory limit is for what is packed.
const MAX_ARENA_ELEMENTS: usize = 1 << 24;

libfuzzer_sys::fuzz_target!(|file: &[u8]| {
    // Without a folder no external data is read.
    let Ok(graph) = import::parse(Bytes::copy_from_slice(file), None, 2) else { return };
    let Ok(plan) = plan::plan(&passes::optimise(graph, usize::MAX)) else { return };
    if plan.arena_len <= MAX_ARENA_ELEMENTS {
        let _ = CpuEngine::new(plan, 1);
    }
});
