//! The GPU for tests: the machine's, or the emulator that `OCELLUS_CUDA_LIBS` points at.

use std::sync::OnceLock;

use ocellus_kernels::KernelError;
use ocellus_kernels::cuda::engine::{CudaEngine, EngineOptions};
use ocellus_kernels::cuda::gpu::Gpu;
use ocellus_kernels::cuda::lower::Precision;
use ocellus_kernels::jit::{Arch, CacheDir, Jit, JitError, JitOptions, Stop};
use ocellus_kernels::plan::Plan;

/// The first GPU of this machine. Where there is none the calling test says so and passes, unless `REQUIRE_GPU=1`.
///
/// # Panics
/// Where `REQUIRE_GPU` is set and there is no GPU.
pub fn gpu() -> Option<&'static Gpu> {
    static GPU: OnceLock<Result<Gpu, String>> = OnceLock::new();
    match GPU.get_or_init(|| open().map_err(|e| e.to_string())) {
        Ok(gpu) => Some(gpu),
        Err(why) => {
            crate::skip("REQUIRE_GPU", why);
            None
        }
    }
}

/// True where the GPU is the emulator, which takes thousands of times as long.
pub fn is_emulated(gpu: &Gpu) -> bool {
    gpu.device.facts().name == "Ocellus emulator"
}

fn open() -> Result<Gpu, KernelError> {
    // Where the program lies beside the tests it compiles for them, on all cores.
    let worker = std::env::var_os("OCELLUS_TEST_PROGRAM").map(Into::into);
    Gpu::open(0, JitOptions { cache: CacheDir::Default, workers: 0, worker, stop: Stop::default() })
}

/// The tool of compute-sanitizer that the test runs under, as `tests/gpu/sanitizer.py` says.
pub fn tool() -> Option<String> {
    std::env::var("OCELLUS_TEST_TOOL").ok()
}

/// An engine for plans that `planner` makes, with graphs for these batch sizes. Always a portable one under initcheck, which
/// does not see what the tensor memory accelerator stores.
///
/// # Panics
/// Where the engine refuses the plan.
pub fn engine(
    gpu: &Gpu,
    precision: Precision,
    portable: bool,
    batches: &[usize],
    planner: impl FnMut(usize) -> Plan + Send + 'static,
) -> CudaEngine {
    let mut planner = planner;
    let portable = portable || tool().is_some_and(|tool| tool == "initcheck");
    let options = EngineOptions { precision, portable, batches: batches.to_vec() };
    CudaEngine::new(&gpu.device, &gpu.jit, Box::new(move |batch| Ok(planner(batch))), &options).expect("an engine")
}

/// A compiler with NVRTC, in workers of the program; `None`, with the reason printed, where it is not
/// installed.
///
/// # Panics
/// Where it does not start, or `REQUIRE_NVRTC` is set and it is not installed.
pub fn compiler(arch: Arch, cache: CacheDir) -> Option<Jit> {
    let program = crate::ocellus().get_program().into();
    match Jit::new(arch, JitOptions { cache, workers: 0, worker: Some(program), stop: Stop::default() }) {
        Err(JitError::NoCompiler(why)) => {
            crate::skip("REQUIRE_NVRTC", &why);
            None
        }
        jit => Some(jit.expect("a compiler")),
    }
}
