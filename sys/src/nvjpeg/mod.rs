//! nvJPEG: JPEG decoding on the GPU's JPEG engines ([`BatchDecoder`]) and by CPU and GPU together ([`HybridDecoder`]),
//! into planes of luma and chroma in the picture's own subsampling. Device memory is the caller's.
//!
//! # Context
//! nvJPEG works in the CUDA context that is current on the calling thread. The one that was current when a [`Handle`] was
//! made must be current wherever the handle, and what was made of it, is used and dropped.
//!
//! # Who waits
//! [`Nvjpeg::handle`], the constructors, [`BatchDecoder::pre_allocate`] and dropping may wait for the whole device: they
//! belong to the start and the end, or to the moment when the first file needs them. The driver makes one at a time.
//! [`Inspector::inspect`] and [`HybridDecoder::host`] are work of the CPU and touch no stream. [`BatchDecoder::decode`] reads
//! and copies the files and enqueues the rest on the stream; [`HostDecoded::enqueue`] only enqueues. Both may allocate, and
//! so wait, where a picture is larger than all before it: padding makes that rare.
//!
//! # Order
//! One handle serves any number of threads; everything else belongs to one thread at a time. A decoder must not be used
//! again, nor dropped, before what it enqueued has finished. **The engines do not wait for the stream they are given**:
//! they may write to the planes while work that was enqueued before still reads them. So whoever reuses planes must wait
//! on the host until they are free.

mod batch;
#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    unreachable_pub
)]
#[rustfmt::skip]
mod bindings {
    #[cfg(not(feature = "bindgen"))]
    include!("bindings.rs");
    #[cfg(feature = "bindgen")]
    include!(concat!(env!("OUT_DIR"), "/nvjpeg.rs"));
}
mod error;
mod hybrid;
mod inspect;
#[cfg(test)]
mod tests;

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, OnceLock};

use crate::{Found, Library, LoadError, load};
use bindings::{Functions, libraryPropertyType_t, nvjpegBackend_t, nvjpegHandle, nvjpegImage_t, nvjpegStatus_t};

pub use batch::{BatchDecoder, Output};
pub use error::{NvjpegError, Status};
pub use hybrid::{HostDecoded, HybridDecoder};
pub use inspect::{Inspected, Inspector, PlaneSize};

/// A CUDA stream (`CUstream`); null is the default stream.
pub type Stream = *mut c_void;

/// The loaded library.
pub struct Nvjpeg {
    library: &'static Found,
    functions: Functions,
}

impl Nvjpeg {
    /// The library, loaded at the first call as by [`load`].
    ///
    /// # Errors
    /// No library loads, or it lacks a function.
    pub fn load() -> Result<&'static Self, LoadError> {
        static NVJPEG: OnceLock<Result<Nvjpeg, LoadError>> = OnceLock::new();
        NVJPEG.get_or_init(|| Self::bind(load(Library::Nvjpeg)?)).as_ref().map_err(Clone::clone)
    }

    fn bind(library: &'static Found) -> Result<Self, LoadError> {
        let again = crate::open(library.path()).map_err(|attempt| LoadError::MissingSymbol {
            library: library.library(),
            path: attempt.path,
            reason: attempt.reason.unwrap_or_default(),
        })?;
        // SAFETY: the declarations were made from the library's own header.
        let functions = unsafe { Functions::from_library(again) }.map_err(|error| library.lacks(&error))?;
        Ok(Self { library, functions })
    }

    /// The library that it is.
    pub fn library(&self) -> &'static Found {
        self.library
    }

    /// Its version: major, minor, patch.
    ///
    /// # Errors
    /// What nvJPEG reports.
    pub fn version(&self) -> Result<(i32, i32, i32), NvjpegError> {
        let property = |kind| {
            let mut value = 0;
            // SAFETY: the pointer is valid for writes.
            let status = unsafe { self.functions.nvjpegGetProperty(kind, &raw mut value) };
            check("nvjpegGetProperty", status).map(|()| value)
        };
        Ok((
            property(libraryPropertyType_t::MAJOR_VERSION)?,
            property(libraryPropertyType_t::MINOR_VERSION)?,
            property(libraryPropertyType_t::PATCH_LEVEL)?,
        ))
    }

    /// A decoding instance in the current CUDA context.
    ///
    /// # Errors
    /// What nvJPEG reports: [`Status::ArchMismatch`] or [`Status::ImplementationNotSupported`] where the GPU has no JPEG
    /// engines, [`Status::ExecutionFailed`] where there is no GPU.
    pub fn handle(&'static self, options: &HandleOptions) -> Result<Handle, NvjpegError> {
        let f = &self.functions;
        let flags = if options.memory_pools { bindings::NVJPEG_FLAGS_ENABLE_MEMORY_POOLS } else { 0 };
        let backend = options.backend.code();
        let object = Owned::create("nvjpegCreateEx", f.nvjpegDestroy, |handle| {
            // SAFETY: null allocators mean CUDA's own; the pointer is valid for writes.
            unsafe { f.nvjpegCreateEx(backend, ptr::null_mut(), ptr::null_mut(), flags, handle) }
        })?;
        let handle = Handle(Arc::new(Instance { nvjpeg: self, backend: options.backend, object }));
        // SAFETY: the handle is a valid one.
        let status = unsafe { f.nvjpegSetDeviceMemoryPadding(options.device_padding_bytes, handle.raw()) };
        check("nvjpegSetDeviceMemoryPadding", status)?;
        // SAFETY: as above.
        let status = unsafe { f.nvjpegSetPinnedMemoryPadding(options.pinned_padding_bytes, handle.raw()) };
        check("nvjpegSetPinnedMemoryPadding", status)?;
        Ok(handle)
    }
}

/// Who decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// The JPEG engines: baseline pictures in one scan, no 4:1:1 and no 4:1:0. For [`BatchDecoder`].
    Hardware,
    /// The GPU alone, Huffman codes included. As [`BatchDecoder`] baseline pictures in one scan, in batches of more than
    /// 50 (in smaller ones the CPU reads the codes); as [`HybridDecoder`] a picture at a time.
    GpuHybrid,
    /// The CPU reads the Huffman codes, the GPU does the rest. For [`HybridDecoder`].
    Hybrid,
}

impl Backend {
    fn code(self) -> nvjpegBackend_t {
        match self {
            Self::Hardware => nvjpegBackend_t::NVJPEG_BACKEND_HARDWARE,
            Self::GpuHybrid => nvjpegBackend_t::NVJPEG_BACKEND_GPU_HYBRID,
            Self::Hybrid => nvjpegBackend_t::NVJPEG_BACKEND_HYBRID,
        }
    }
}

/// Settings of a [`Handle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleOptions {
    /// Who decodes.
    pub backend: Backend,
    /// Allocations of device memory inside nvJPEG are rounded up to a multiple of this. Buffers grow to the largest
    /// picture and never shrink; rounding keeps them from growing for each picture that is a little larger.
    pub device_padding_bytes: usize,
    /// The same for pinned host memory.
    pub pinned_padding_bytes: usize,
    /// nvJPEG allocates from memory pools, in the order of a stream: growing does not wait for the whole device.
    pub memory_pools: bool,
}

impl HandleOptions {
    /// For this backend: pools, and padding of 1 MiB of device and of pinned memory.
    pub fn new(backend: Backend) -> Self {
        Self { backend, device_padding_bytes: 1 << 20, pinned_padding_bytes: 1 << 20, memory_pools: true }
    }
}

/// The JPEG engines of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardwareInfo {
    /// Number of engines.
    pub engines: u32,
    /// Decoders in each: a batch of engines times cores keeps all busy.
    pub cores_per_engine: u32,
}

impl HardwareInfo {
    /// All decoders.
    pub fn decoders(&self) -> u32 {
        (self.engines * self.cores_per_engine).max(1)
    }

    /// The largest batch of at most so many pictures that gives each decoder as many: one more picture would keep a single
    /// decoder at work while the others wait.
    pub fn even_batch(&self, most: usize) -> usize {
        let decoders = self.decoders() as usize;
        if most < decoders { most } else { most - most % decoders }
    }
}

/// A decoding instance. Clones are the same instance, which lives as long as anything made of it.
#[derive(Clone)]
pub struct Handle(Arc<Instance>);

struct Instance {
    nvjpeg: &'static Nvjpeg,
    backend: Backend,
    object: Owned<nvjpegHandle>,
}

impl Handle {
    /// The JPEG engines; `None` where the GPU has none or the driver keeps them from this process.
    pub fn hardware_info(&self) -> Option<HardwareInfo> {
        let (mut engines, mut cores_per_engine) = (0, 0);
        // SAFETY: the handle is a valid one, both pointers are valid for writes.
        let status = unsafe {
            self.functions().nvjpegGetHardwareDecoderInfo(self.raw(), &raw mut engines, &raw mut cores_per_engine)
        };
        (status == nvjpegStatus_t::NVJPEG_STATUS_SUCCESS && engines > 0)
            .then_some(HardwareInfo { engines, cores_per_engine })
    }

    /// Who decodes.
    pub fn backend(&self) -> Backend {
        self.0.backend
    }

    fn functions(&self) -> &'static Functions {
        &self.0.nvjpeg.functions
    }

    fn raw(&self) -> bindings::nvjpegHandle_t {
        self.0.object.pointer
    }
}

/// Where a picture's planes go: Y, Cb, Cr in device memory, chroma being zeros where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planes {
    /// Device addresses.
    pub pointers: [u64; 3],
    /// Distance of rows.
    pub pitches_bytes: [u32; 3],
    /// Number of rows that there is room for.
    pub rows: [u32; 3],
}

impl Planes {
    /// Whether the picture's planes have room.
    fn hold(&self, picture: &Inspected<'_>, output: Output) -> bool {
        let wanted = if output == Output::Luma { 1 } else { 3 };
        picture.planes().iter().take(wanted).enumerate().all(|(n, size)| {
            self.pointers[n] != 0 && self.pitches_bytes[n] >= size.width_px && self.rows[n] >= size.height_px
        })
    }

    fn image(&self) -> nvjpegImage_t {
        let mut image = nvjpegImage_t { channel: [ptr::null_mut(); 4], pitch: [0; 4] };
        for n in 0..3 {
            image.channel[n] = ptr::without_provenance_mut(self.pointers[n] as usize);
            image.pitch[n] = self.pitches_bytes[n] as usize;
        }
        image
    }
}

/// An object of nvJPEG, destroyed at the end.
struct Owned<T> {
    pointer: *mut T,
    destroy: unsafe extern "C" fn(*mut T) -> nvjpegStatus_t,
}

impl<T> Owned<T> {
    fn create(
        call: &'static str,
        destroy: unsafe extern "C" fn(*mut T) -> nvjpegStatus_t,
        create: impl FnOnce(*mut *mut T) -> nvjpegStatus_t,
    ) -> Result<Self, NvjpegError> {
        let mut pointer = ptr::null_mut();
        check(call, create(&raw mut pointer))?;
        Ok(Self { pointer, destroy })
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the object was created, nobody else destroys it, and what it was made of outlives it: owners keep the
        // handle in a field after it. Nothing can be done about a failure.
        unsafe { (self.destroy)(self.pointer) };
    }
}

// SAFETY: nvJPEG binds nothing to a thread; its rule is one thread at a time, which `&mut` keeps.
unsafe impl<T> Send for Owned<T> {}
// SAFETY: instances are made to be shared between threads. Of the other objects nothing can be called through `&`.
unsafe impl<T> Sync for Owned<T> {}

fn check(call: &'static str, status: nvjpegStatus_t) -> Result<(), NvjpegError> {
    match status {
        nvjpegStatus_t::NVJPEG_STATUS_SUCCESS => Ok(()),
        status => Err(NvjpegError::Call { call, status: status.into() }),
    }
}
