//! NVTX, by which a program tells a profiler what its threads are about: the part of it that names ranges of time. Since
//! CUDA 13 the toolkit has it as `libnvtx3interop`, for programs that are not written in C.

use std::env;
use std::ffi::{CString, c_char, c_int, c_void};
use std::fmt;
use std::marker::PhantomData;

use crate::{Library, LoadError, load};

/// With this variable a profiler names what NVTX hands its calls to. Where it is not set nobody listens.
const PROFILER: &str = "NVTX_INJECTION64_PATH";

/// `NVTX_VERSION`.
const VERSION: u16 = 3;
/// `NVTX_PAYLOAD_TYPE_UNSIGNED_INT64`.
const PAYLOAD_U64: i32 = 1;
/// `NVTX_MESSAGE_TYPE_REGISTERED`.
const MESSAGE_REGISTERED: i32 = 3;

/// `nvtxDomainHandle_t` or `nvtxStringHandle_t`; opaque, and good until the process ends.
type Handle = *mut c_void;

/// `nvtxEventAttributes_t`.
#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    colour_type: i32,
    colour: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: Handle,
}

#[derive(Clone, Copy)]
struct Functions {
    register: unsafe extern "C" fn(Handle, *const c_char) -> Handle,
    push: unsafe extern "C" fn(Handle, *const Attributes) -> c_int,
    pop: unsafe extern "C" fn(Handle) -> c_int,
}

/// A program's own names in a profiler's view.
#[derive(Clone, Copy)]
pub struct Domain {
    handle: Handle,
    functions: Functions,
}

// SAFETY: NVTX's functions may be called from any thread, by several at a time; its handles are only handed back to it.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Domain").field(&self.handle).finish()
    }
}

impl Domain {
    /// A domain of this name; `None` where no profiler listens, or `name` has a zero in it.
    ///
    /// # Errors
    /// Where a profiler listens and there is no NVTX.
    pub fn new(name: &str) -> Result<Option<Self>, LoadError> {
        let Some(name) = CString::new(name).ok().filter(|_| env::var_os(PROFILER).is_some()) else { return Ok(None) };
        let nvtx = load(Library::Nvtx)?;
        // SAFETY: the types are those of nvToolsExt.h, and `Found` says that a library stays loaded until the process ends.
        let (create, functions) = unsafe {
            let create: unsafe extern "C" fn(*const c_char) -> Handle = nvtx.function("nvtxDomainCreateA")?;
            let functions = Functions {
                register: nvtx.function("nvtxDomainRegisterStringA")?,
                push: nvtx.function("nvtxDomainRangePushEx")?,
                pop: nvtx.function("nvtxDomainRangePop")?,
            };
            (create, functions)
        };
        // SAFETY: reads a string that ends with 0.
        let handle = unsafe { create(name.as_ptr()) };
        Ok(Some(Self { handle, functions }))
    }

    /// A name for ranges. What follows a zero in it is left out.
    pub fn label(&self, name: &str) -> Label {
        let name = CString::new(name.split('\0').next().unwrap_or_default()).unwrap_or_default();
        // SAFETY: reads a string that ends with 0; the handle is NVTX's own.
        let message = unsafe { (self.functions.register)(self.handle, name.as_ptr()) };
        Label { domain: *self, message }
    }
}

/// What ranges are called.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    domain: Domain,
    message: Handle,
}

// SAFETY: as of `Domain`.
unsafe impl Send for Label {}
// SAFETY: as of `Domain`.
unsafe impl Sync for Label {}

impl Label {
    /// Begins a range of the calling thread, which ends when the result is dropped. `count` is shown with it: of how much.
    #[must_use]
    pub fn range(&self, count: u64) -> Range {
        let attributes = Attributes {
            version: VERSION,
            size: size_of::<Attributes>() as u16,
            category: 0,
            colour_type: 0,
            colour: 0,
            payload_type: PAYLOAD_U64,
            reserved: 0,
            payload: count,
            message_type: MESSAGE_REGISTERED,
            message: self.message,
        };
        // SAFETY: reads a value of this size and version; the handles are NVTX's own.
        unsafe { (self.domain.functions.push)(self.domain.handle, &raw const attributes) };
        Range { domain: self.domain, _of_one_thread: PhantomData }
    }
}

/// A range under way. It ends on the thread that it began on.
#[derive(Debug)]
pub struct Range {
    domain: Domain,
    _of_one_thread: PhantomData<*const ()>,
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: the handle is NVTX's own, and this thread began the range.
        unsafe { (self.domain.functions.pop)(self.domain.handle) };
    }
}
