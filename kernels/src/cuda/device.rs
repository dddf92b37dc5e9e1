//! A GPU and what it can do.

use std::cell::Cell;
use std::sync::Arc;

use cudarc::driver::sys::CUdevice_attribute as Attribute;
use cudarc::driver::{CudaContext, result, sys};
use ocellus_sys::Library;
use tracing::info;

use crate::error::KernelError;
use crate::jit::Arch;

/// Oldest driver (CUDA version) whose functions are all there: 12.8.
const OLDEST_DRIVER: (u32, u32) = (12, 8);

thread_local! {
    /// The GPU that the thread has bound last: every call of the driver is about this one.
    static BOUND: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A GPU, opened. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Device(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    context: Arc<CudaContext>,
    facts: Facts,
}

/// What a GPU and its driver are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Number among the GPUs of this machine.
    pub ordinal: usize,
    /// Its product name.
    pub name: String,
    /// Architecture.
    pub arch: Arch,
    /// CUDA version of the driver.
    pub driver: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Shared memory that one block can have.
    pub shared_bytes: u32,
    /// Memory in all.
    pub memory_bytes: usize,
}

impl Device {
    /// GPUs of this machine.
    ///
    /// # Errors
    /// Where there is no driver, or one that does not start or is too old.
    pub fn count() -> Result<usize, KernelError> {
        load_driver()?;
        Ok(check("cuDeviceGetCount", result::device::get_count())? as usize)
    }

    /// Opens the GPU with this number.
    ///
    /// # Errors
    /// As [`Device::arch_of`], and where it is too old.
    pub fn open(ordinal: usize) -> Result<Self, KernelError> {
        let arch = Self::arch_of(ordinal)?;
        let context = check("cuDevicePrimaryCtxRetain", CudaContext::new(ordinal))?;
        // Order of work is ours: see the module's documentation.
        // SAFETY: no slice of cudarc's is ever used, whose events this switch would otherwise keep.
        unsafe { context.disable_event_tracking() };
        let attribute =
            |attribute| check("cuDeviceGetAttribute", context.attribute(attribute)).map(|value| value as u32);
        let name = check("cuDeviceGetName", context.name())?;
        if arch < Arch::OLDEST {
            let Arch { major, minor } = Arch::OLDEST;
            let message =
                format!("{name} has compute capability {}.{}, {major}.{minor} is needed", arch.major, arch.minor);
            return Err(KernelError::gpu(message));
        }
        let facts = Facts {
            ordinal,
            name,
            arch,
            driver: driver_version()?,
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            shared_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            memory_bytes: check("cuDeviceTotalMem", context.total_mem())?,
        };
        let device = Self(Arc::new(Inner { context, facts }));
        device.keep_freed_memory()?;
        let Facts { name, arch, memory_bytes, .. } = device.facts();
        info!(ordinal, name, %arch, memory_bytes, "a GPU is opened");
        Ok(device)
    }

    /// The architecture of the GPU with this number, without starting it.
    ///
    /// # Errors
    /// As [`Device::count`], and where there is no such GPU.
    pub fn arch_of(ordinal: usize) -> Result<Arch, KernelError> {
        let count = Self::count()?;
        if ordinal >= count {
            let there = match count {
                0 => "it has none".into(),
                1 => "it has only cuda:0".into(),
                _ => format!("it has cuda:0 to cuda:{}", count - 1),
            };
            return Err(KernelError::gpu(format!("there is no GPU cuda:{ordinal} on this machine; {there}")));
        }
        BOUND.set(Some(ordinal));
        let device = check("cuDeviceGet", result::device::get(ordinal as i32))?;
        // SAFETY: the device is one of those counted.
        let attribute =
            |attribute| check("cuDeviceGetAttribute", unsafe { result::device::get_attribute(device, attribute) });
        Ok(Arch {
            major: attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? as u32,
            minor: attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)? as u32,
        })
    }

    /// What it is.
    pub fn facts(&self) -> &Facts {
        &self.0.facts
    }

    /// Free memory and all of it, bytes.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn memory_bytes(&self) -> Result<(usize, usize), KernelError> {
        check("cuMemGetInfo", self.0.context.mem_get_info())
    }

    /// Its place on the PCI bus, as NVML takes it.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn pci_bus_id(&self) -> Result<String, KernelError> {
        let part = |attribute| check("cuDeviceGetAttribute", self.0.context.attribute(attribute));
        let domain = part(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?;
        let bus = part(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?;
        let device = part(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?;
        Ok(format!("{domain:08X}:{bus:02X}:{device:02X}.0"))
    }

    /// Makes this GPU the calling thread's. Everything here that calls the driver does so first.
    pub(super) fn bind(&self) -> Result<(), KernelError> {
        BOUND.set(Some(self.0.facts.ordinal));
        check("cuCtxSetCurrent", self.0.context.bind_to_thread())
    }

    /// Memory given back stays with the process, so that taking it again costs no call of the system.
    fn keep_freed_memory(&self) -> Result<(), KernelError> {
        let device = self.0.context.cu_device();
        let mut threshold = u64::MAX;
        // SAFETY: the device is open, and the attribute's value is a u64 that outlives the call.
        unsafe {
            let pool = check("cuDeviceGetDefaultMemPool", result::device::get_default_mem_pool(device))?;
            let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            check(
                "cuMemPoolSetAttribute",
                result::mem_pool::set_attribute(pool, attribute, (&raw mut threshold).cast()),
            )
        }
    }
}

/// Loads libcuda once for the process and starts it.
fn load_driver() -> Result<(), KernelError> {
    // cudarc asks the system for the library by name, and gets the one that this keeps loaded.
    ocellus_sys::load(Library::Cuda).map_err(|e| KernelError::gpu(e.to_string()))?;
    // SAFETY: asks the system's loader for a library that is already in the process.
    if !unsafe { sys::is_culib_present() } {
        return Err(KernelError::gpu("libcuda was loaded under a name that is not its own"));
    }
    check("cuInit", result::init())?;
    let (found, oldest) = (driver_version()?, OLDEST_DRIVER);
    if found < oldest {
        let (major, minor) = found;
        let message = format!("the driver is for CUDA {major}.{minor}, {}.{} is needed: update it", oldest.0, oldest.1);
        return Err(KernelError::gpu(message));
    }
    Ok(())
}

fn driver_version() -> Result<(u32, u32), KernelError> {
    let mut version = 0;
    // SAFETY: writes one integer.
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&raw mut version) }.result())?;
    Ok((version as u32 / 1000, version as u32 % 1000 / 10))
}

/// Gives a driver's failure the name of the call, the GPU and a kind.
pub(super) fn check<T>(call: &'static str, result: Result<T, result::DriverError>) -> Result<T, KernelError> {
    result.map_err(|error| {
        if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return KernelError::OutOfMemory { call };
        }
        let name = error.error_string().map_or_else(|_| format!("{:?}", error.0), |text| text.to_string_lossy().into());
        let gpu = BOUND.get().map_or_else(String::new, |ordinal| format!(" on cuda:{ordinal}"));
        KernelError::gpu(format!("{call}{gpu}: {name}"))
    })
}
