//! Compiled kernels, and their launch.

use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::result;
use cudarc::driver::sys::{self, CUfunction_attribute as Attribute};

use super::device::{Device, check};
use super::stream::Stream;
use crate::error::KernelError;

/// The first major compute capability whose launches may overlap; the driver refuses to ask others for it.
const OVERLAP_SINCE: u32 = 9;
/// Most arguments of a kernel; ours have a dozen.
const MOST_ARGS: usize = 32;

/// A kernel ready to be launched. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Function {
    module: Arc<Module>,
    raw: sys::CUfunction,
}

#[derive(Debug)]
struct Module {
    device: Device,
    raw: sys::CUmodule,
    /// Where its kernels were launched, or recorded to be.
    streams: Mutex<Vec<Stream>>,
}

impl Module {
    fn is_used_by(&self, stream: &Stream) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if !streams.contains(stream) {
            streams.push(stream.clone());
        }
    }
}

// SAFETY: the driver's modules and functions may be used from any thread, by several at a time.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}
// SAFETY: as above.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Drop for Module {
    fn drop(&mut self) {
        // The driver does not say that it waits for kernels under way before it takes their code away.
        for stream in self.streams.get_mut().unwrap_or_else(PoisonError::into_inner) {
            let _ = stream.synchronize();
        }
        if self.device.bind().is_ok() {
            // SAFETY: the last owner, and no launch is under way. Graphs of its kernels are dropped before by those who
            // hold both.
            let _ = unsafe { result::module::unload(self.raw) };
        }
    }
}

/// Blocks, threads and shared memory of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads a block.
    pub block: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
}

/// A kernel's argument, as its bytes: 8 hold any scalar or address, 128 a tensor map.
#[derive(Clone, Debug)]
pub enum Value {
    /// An address.
    Address(u64),
    /// `int`.
    I32(i32),
    /// `float`.
    F32(f32),
    /// A tensor map.
    Map(Box<sys::CUtensorMap>),
}

impl Function {
    /// Loads a kernel from a cubin. `shared_bytes` is the dynamic shared memory that it may be launched with.
    ///
    /// # Errors
    /// Where the driver does not take the cubin, or it has no such kernel.
    pub fn load(device: &Device, cubin: &[u8], entry: &str, shared_bytes: u32) -> Result<Self, KernelError> {
        device.bind()?;
        let name = CString::new(entry).map_err(|e| KernelError::gpu(format!("kernel {entry}: {e}")))?;
        // SAFETY: a cubin says its own length; it comes from the compiler or from a checked entry of the cache.
        let raw = check("cuModuleLoadData", unsafe { result::module::load_data(cubin.as_ptr().cast()) })?;
        let module = Arc::new(Module { device: device.clone(), raw, streams: Mutex::default() });
        // SAFETY: the module is alive.
        let raw = check("cuModuleGetFunction", unsafe { result::module::get_function(raw, name) })?;
        if shared_bytes > 0 {
            let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is alive.
            let set = unsafe { result::function::set_function_attribute(raw, attribute, shared_bytes as i32) };
            check("cuFuncSetAttribute", set)?;
        }
        Ok(Self { module, raw })
    }

    /// Enqueues a launch. With `overlaps` it may start before the launch ahead of it ends, on devices that can do this.
    ///
    /// # Errors
    /// Where the driver refuses it, or there are more than 32 arguments. What goes wrong while it runs shows where the stream is
    /// waited for.
    ///
    /// # Safety
    /// The arguments must be those of the kernel, and every address must hold what the kernel reads and writes there,
    /// until the work is done. The kernel itself may be dropped before.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        shape: Shape,
        args: &[Value],
        overlaps: bool,
    ) -> Result<(), KernelError> {
        self.module.device.bind()?;
        self.module.is_used_by(stream);
        let pointer = |value: &Value| -> *mut c_void {
            match value {
                Value::Address(x) => std::ptr::from_ref(x).cast_mut().cast(),
                Value::I32(x) => std::ptr::from_ref(x).cast_mut().cast(),
                Value::F32(x) => std::ptr::from_ref(x).cast_mut().cast(),
                Value::Map(x) => std::ptr::from_ref(x.as_ref()).cast_mut().cast(),
            }
        };
        let mut pointers = [std::ptr::null_mut(); MOST_ARGS];
        let places = pointers.get_mut(..args.len());
        let places = places.ok_or_else(|| KernelError::invalid("launch", format!("{} arguments", args.len())))?;
        places.iter_mut().zip(args).for_each(|(place, value)| *place = pointer(value));
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let [x, y, z] = shape.grid;
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: shape.block,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shape.shared_bytes,
            hStream: stream.handle(),
            attrs: &raw mut attribute,
            numAttrs: u32::from(overlaps && self.module.device.facts().arch.major >= OVERLAP_SINCE),
        };
        // SAFETY: the driver copies the arguments before it returns; what they mean is the caller's promise.
        let launched =
            unsafe { sys::cuLaunchKernelEx(&raw const config, self.raw, pointers.as_mut_ptr(), std::ptr::null_mut()) };
        check("cuLaunchKernelEx", launched.result())
    }
}
