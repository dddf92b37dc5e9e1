//! Small proofs that a GPU does what it is asked to.

use super::gpu::Gpu;
use super::memory::DeviceMemory;
use super::module::{Function, Shape, Value};
use super::stream::{Priority, Stream};
use crate::error::KernelError;
use crate::jit::KernelSpec;

/// Values that the kernel writes: whole blocks and a part of one.
const VALUES: usize = 1000;
/// What it multiplies by.
const FACTOR: u32 = 3;
/// Threads a block.
const BLOCK: u32 = 128;

/// Compiles a kernel, runs it and looks at what it wrote.
///
/// # Errors
/// Where something fails or a value is wrong.
pub fn run_a_kernel(gpu: &Gpu) -> Result<(), KernelError> {
    let spec = KernelSpec::new("self_test.cu", "self_test", [("FACTOR", FACTOR.to_string())]);
    let cubins = gpu.jit.compile(std::slice::from_ref(&spec))?;
    let cubin = cubins.first().ok_or_else(|| KernelError::gpu("no kernel was compiled"))?;
    let function = Function::load(&gpu.device, cubin, spec.entry, 0)?;
    let stream = Stream::new(&gpu.device, Priority::Low)?;
    let memory = DeviceMemory::new(&stream, 4 * VALUES)?;
    memory.fill(0xff)?;
    let shape = Shape { grid: [(VALUES as u32).div_ceil(BLOCK), 1, 1], block: BLOCK, shared_bytes: 0 };
    let args = [Value::Address(memory.address()), Value::I32(VALUES as i32)];
    // SAFETY: the kernel takes an address and a number, and writes so many values there.
    unsafe { function.launch(&stream, shape, &args, false) }?;
    let mut bytes = vec![0; 4 * VALUES];
    memory.read(&mut bytes)?;
    let written = bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    match written.zip(0..).find(|&(value, i)| value != FACTOR * i + 1) {
        None => Ok(()),
        Some((value, i)) => Err(KernelError::gpu(format!("a kernel wrote {value} for value {i}"))),
    }
}
