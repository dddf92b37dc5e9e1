//! NVML, which says how a GPU is: the part of it that a job's metrics show. It comes with the driver.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;

use crate::{Found, Library, LoadError, load};

/// `NVML_SUCCESS`.
const SUCCESS: c_int = 0;
/// `NVML_TEMPERATURE_GPU`.
const TEMPERATURE_GPU: c_uint = 0;

type DeviceHandle = *mut c_void;
type Read<T> = unsafe extern "C" fn(DeviceHandle, *mut T) -> c_int;

/// `nvmlUtilization_t`: per cent of the last sample period.
#[repr(C)]
#[derive(Clone, Copy)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// `nvmlMemory_t`: bytes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// A GPU that can be asked how it is.
#[derive(Debug)]
pub struct Monitor {
    device: DeviceHandle,
    functions: Functions,
}

// SAFETY: NVML's functions may be called from any thread, by several at a time; a handle is good until the shutdown, which
// nobody here asks for.
unsafe impl Send for Monitor {}
// SAFETY: as above.
unsafe impl Sync for Monitor {}

/// What a driver has. One that is too old for a function, or a GPU that cannot say, leaves its figure out.
#[derive(Debug)]
struct Functions {
    utilization: Option<Read<Utilization>>,
    memory: Option<Read<Memory>>,
    temperature: Option<unsafe extern "C" fn(DeviceHandle, c_uint, *mut c_uint) -> c_int>,
    power: Option<Read<c_uint>>,
    jpeg: Option<unsafe extern "C" fn(DeviceHandle, *mut c_uint, *mut c_uint) -> c_int>,
}

/// How a GPU is now; `None` where it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Share of the last sample period (a sixth of a second to a second) in which a kernel ran, 0..1.
    pub utilization: Option<f64>,
    /// Share of the last sample period in which the JPEG engines were at work, 0..1.
    pub jpeg_utilization: Option<f64>,
    /// Memory taken, by all processes.
    pub memory_used_bytes: Option<u64>,
    /// Memory in all.
    pub memory_total_bytes: Option<u64>,
    /// Of the chip.
    pub temperature_celsius: Option<f64>,
    /// Of the whole board.
    pub power_watts: Option<f64>,
}

impl Monitor {
    /// For the GPU in this place of the PCI bus, such as `00000000:65:00.0`. `None` where NVML does not start or does not know
    /// the GPU.
    ///
    /// # Errors
    /// Where there is no NVML.
    pub fn new(pci_bus_id: &str) -> Result<Option<Self>, LoadError> {
        Self::in_library(load(Library::Nvml)?, pci_bus_id)
    }

    fn in_library(nvml: &Found, pci_bus_id: &str) -> Result<Option<Self>, LoadError> {
        // SAFETY: the types are those of nvml.h, and `Found` says that a library stays loaded until the process ends.
        let (init, device_at, functions) = unsafe {
            let init: unsafe extern "C" fn() -> c_int = nvml.function("nvmlInit_v2")?;
            let device_at: unsafe extern "C" fn(*const c_char, *mut DeviceHandle) -> c_int =
                nvml.function("nvmlDeviceGetHandleByPciBusId_v2")?;
            let functions = Functions {
                utilization: nvml.function("nvmlDeviceGetUtilizationRates").ok(),
                memory: nvml.function("nvmlDeviceGetMemoryInfo").ok(),
                temperature: nvml.function("nvmlDeviceGetTemperature").ok(),
                power: nvml.function("nvmlDeviceGetPowerUsage").ok(),
                jpeg: nvml.function("nvmlDeviceGetJpgUtilization").ok(),
            };
            (init, device_at, functions)
        };
        let Ok(pci_bus_id) = CString::new(pci_bus_id) else { return Ok(None) };
        let mut device = std::ptr::null_mut();
        // SAFETY: takes nothing; may be called more than once.
        if unsafe { init() } != SUCCESS {
            return Ok(None);
        }
        // SAFETY: reads a string that ends with 0, writes a handle.
        if unsafe { device_at(pci_bus_id.as_ptr(), &raw mut device) } != SUCCESS || device.is_null() {
            return Ok(None);
        }
        Ok(Some(Self { device, functions }))
    }

    /// Asks. Takes less than a millisecond, as a rule.
    pub fn figures(&self) -> Figures {
        let Functions { utilization, memory, temperature, power, jpeg } = &self.functions;
        let utilization = utilization.and_then(|read| self.read(read));
        let memory = memory.and_then(|read| self.read(read));
        let share = |percent: c_uint| f64::from(percent) / 100.0;
        let temperature = temperature.and_then(|read| {
            let mut celsius = 0;
            // SAFETY: the handle is NVML's own; writes one integer.
            (unsafe { read(self.device, TEMPERATURE_GPU, &raw mut celsius) } == SUCCESS).then(|| f64::from(celsius))
        });
        let jpeg_utilization = jpeg.and_then(|read| {
            let (mut percent, mut period_us) = (0, 0);
            // SAFETY: the handle is NVML's own; writes two integers.
            (unsafe { read(self.device, &raw mut percent, &raw mut period_us) } == SUCCESS).then(|| share(percent))
        });
        Figures {
            utilization: utilization.map(|u| share(u.gpu)),
            jpeg_utilization,
            memory_used_bytes: memory.map(|m| m.used),
            memory_total_bytes: memory.map(|m| m.total),
            temperature_celsius: temperature,
            power_watts: power.and_then(|read| self.read(read)).map(|milliwatts| f64::from(milliwatts) / 1e3),
        }
    }

    fn read<T>(&self, function: Read<T>) -> Option<T> {
        let mut value = MaybeUninit::uninit();
        // SAFETY: the handle is NVML's own; the function writes a value of this type where it succeeds.
        unsafe { (function(self.device, value.as_mut_ptr()) == SUCCESS).then(|| value.assume_init()) }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_no_nvml_is_an_error_and_none_is_one_too() {
        // Found where a driver is installed; never a panic.
        match Monitor::new("no such place") {
            Ok(monitor) => assert!(monitor.is_none()),
            Err(error) => assert!(error.to_string().contains("install the NVIDIA driver"), "{error}"),
        }
    }
}
