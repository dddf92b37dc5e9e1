// Made by sys/build.rs (feature bindgen) from nvjpeg.h; do not edit.
use super::Stream as cudaStream_t;

pub const NVJPEG_FLAGS_ENABLE_MEMORY_POOLS: u32 = 2;
impl libraryPropertyType_t {
    pub const MAJOR_VERSION: libraryPropertyType_t = libraryPropertyType_t(0);
    pub const MINOR_VERSION: libraryPropertyType_t = libraryPropertyType_t(1);
    pub const PATCH_LEVEL: libraryPropertyType_t = libraryPropertyType_t(2);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct libraryPropertyType_t(pub ::std::os::raw::c_uint);
pub use self::libraryPropertyType_t as libraryPropertyType;
impl nvjpegStatus_t {
    pub const NVJPEG_STATUS_SUCCESS: nvjpegStatus_t = nvjpegStatus_t(0);
    pub const NVJPEG_STATUS_NOT_INITIALIZED: nvjpegStatus_t = nvjpegStatus_t(1);
    pub const NVJPEG_STATUS_INVALID_PARAMETER: nvjpegStatus_t = nvjpegStatus_t(2);
    pub const NVJPEG_STATUS_BAD_JPEG: nvjpegStatus_t = nvjpegStatus_t(3);
    pub const NVJPEG_STATUS_JPEG_NOT_SUPPORTED: nvjpegStatus_t = nvjpegStatus_t(4);
    pub const NVJPEG_STATUS_ALLOCATOR_FAILURE: nvjpegStatus_t = nvjpegStatus_t(5);
    pub const NVJPEG_STATUS_EXECUTION_FAILED: nvjpegStatus_t = nvjpegStatus_t(6);
    pub const NVJPEG_STATUS_ARCH_MISMATCH: nvjpegStatus_t = nvjpegStatus_t(7);
    pub const NVJPEG_STATUS_INTERNAL_ERROR: nvjpegStatus_t = nvjpegStatus_t(8);
    pub const NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED: nvjpegStatus_t = nvjpegStatus_t(
        9,
    );
    pub const NVJPEG_STATUS_INCOMPLETE_BITSTREAM: nvjpegStatus_t = nvjpegStatus_t(10);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct nvjpegStatus_t(pub ::std::os::raw::c_uint);
impl nvjpegChromaSubsampling_t {
    pub const NVJPEG_CSS_444: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(0);
    pub const NVJPEG_CSS_422: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(1);
    pub const NVJPEG_CSS_420: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(2);
    pub const NVJPEG_CSS_440: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(3);
    pub const NVJPEG_CSS_411: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(4);
    pub const NVJPEG_CSS_410: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(5);
    pub const NVJPEG_CSS_GRAY: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(6);
    pub const NVJPEG_CSS_410V: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(7);
    pub const NVJPEG_CSS_UNKNOWN: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(
        -1,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct nvjpegChromaSubsampling_t(pub ::std::os::raw::c_int);
impl nvjpegOutputFormat_t {
    pub const NVJPEG_OUTPUT_UNCHANGED: nvjpegOutputFormat_t = nvjpegOutputFormat_t(0);
    pub const NVJPEG_OUTPUT_YUV: nvjpegOutputFormat_t = nvjpegOutputFormat_t(1);
    pub const NVJPEG_OUTPUT_Y: nvjpegOutputFormat_t = nvjpegOutputFormat_t(2);
    pub const NVJPEG_OUTPUT_RGB: nvjpegOutputFormat_t = nvjpegOutputFormat_t(3);
    pub const NVJPEG_OUTPUT_BGR: nvjpegOutputFormat_t = nvjpegOutputFormat_t(4);
    pub const NVJPEG_OUTPUT_RGBI: nvjpegOutputFormat_t = nvjpegOutputFormat_t(5);
    pub const NVJPEG_OUTPUT_BGRI: nvjpegOutputFormat_t = nvjpegOutputFormat_t(6);
    pub const NVJPEG_OUTPUT_UNCHANGEDI_U16: nvjpegOutputFormat_t = nvjpegOutputFormat_t(
        7,
    );
    pub const NVJPEG_OUTPUT_NV12: nvjpegOutputFormat_t = nvjpegOutputFormat_t(8);
    pub const NVJPEG_OUTPUT_YUY2: nvjpegOutputFormat_t = nvjpegOutputFormat_t(9);
    pub const NVJPEG_OUTPUT_FORMAT_MAX: nvjpegOutputFormat_t = nvjpegOutputFormat_t(9);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct nvjpegOutputFormat_t(pub ::std::os::raw::c_uint);
impl nvjpegBackend_t {
    pub const NVJPEG_BACKEND_DEFAULT: nvjpegBackend_t = nvjpegBackend_t(0);
    pub const NVJPEG_BACKEND_HYBRID: nvjpegBackend_t = nvjpegBackend_t(1);
    pub const NVJPEG_BACKEND_GPU_HYBRID: nvjpegBackend_t = nvjpegBackend_t(2);
    pub const NVJPEG_BACKEND_HARDWARE: nvjpegBackend_t = nvjpegBackend_t(3);
    pub const NVJPEG_BACKEND_GPU_HYBRID_DEVICE: nvjpegBackend_t = nvjpegBackend_t(4);
    pub const NVJPEG_BACKEND_HARDWARE_DEVICE: nvjpegBackend_t = nvjpegBackend_t(5);
    pub const NVJPEG_BACKEND_LOSSLESS_JPEG: nvjpegBackend_t = nvjpegBackend_t(6);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct nvjpegBackend_t(pub ::std::os::raw::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvjpegImage_t {
    pub channel: [*mut ::std::os::raw::c_uchar; 4usize],
    pub pitch: [usize; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of nvjpegImage_t"][::std::mem::size_of::<nvjpegImage_t>() - 64usize];
    ["Alignment of nvjpegImage_t"][::std::mem::align_of::<nvjpegImage_t>() - 8usize];
    [
        "Offset of field: nvjpegImage_t::channel",
    ][::std::mem::offset_of!(nvjpegImage_t, channel) - 0usize];
    [
        "Offset of field: nvjpegImage_t::pitch",
    ][::std::mem::offset_of!(nvjpegImage_t, pitch) - 32usize];
};
pub type tDevMalloc = ::std::option::Option<
    unsafe extern "C" fn(
        arg1: *mut *mut ::std::os::raw::c_void,
        arg2: usize,
    ) -> ::std::os::raw::c_int,
>;
pub type tDevFree = ::std::option::Option<
    unsafe extern "C" fn(arg1: *mut ::std::os::raw::c_void) -> ::std::os::raw::c_int,
>;
pub type tPinnedMalloc = ::std::option::Option<
    unsafe extern "C" fn(
        arg1: *mut *mut ::std::os::raw::c_void,
        arg2: usize,
        flags: ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int,
>;
pub type tPinnedFree = ::std::option::Option<
    unsafe extern "C" fn(arg1: *mut ::std::os::raw::c_void) -> ::std::os::raw::c_int,
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvjpegDevAllocator_t {
    pub dev_malloc: tDevMalloc,
    pub dev_free: tDevFree,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of nvjpegDevAllocator_t",
    ][::std::mem::size_of::<nvjpegDevAllocator_t>() - 16usize];
    [
        "Alignment of nvjpegDevAllocator_t",
    ][::std::mem::align_of::<nvjpegDevAllocator_t>() - 8usize];
    [
        "Offset of field: nvjpegDevAllocator_t::dev_malloc",
    ][::std::mem::offset_of!(nvjpegDevAllocator_t, dev_malloc) - 0usize];
    [
        "Offset of field: nvjpegDevAllocator_t::dev_free",
    ][::std::mem::offset_of!(nvjpegDevAllocator_t, dev_free) - 8usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvjpegPinnedAllocator_t {
    pub pinned_malloc: tPinnedMalloc,
    pub pinned_free: tPinnedFree,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of nvjpegPinnedAllocator_t",
    ][::std::mem::size_of::<nvjpegPinnedAllocator_t>() - 16usize];
    [
        "Alignment of nvjpegPinnedAllocator_t",
    ][::std::mem::align_of::<nvjpegPinnedAllocator_t>() - 8usize];
    [
        "Offset of field: nvjpegPinnedAllocator_t::pinned_malloc",
    ][::std::mem::offset_of!(nvjpegPinnedAllocator_t, pinned_malloc) - 0usize];
    [
        "Offset of field: nvjpegPinnedAllocator_t::pinned_free",
    ][::std::mem::offset_of!(nvjpegPinnedAllocator_t, pinned_free) - 8usize];
};
#[repr(C)]
#[derive(Debug)]
pub struct nvjpegHandle {
    _unused: [u8; 0],
}
pub type nvjpegHandle_t = *mut nvjpegHandle;
#[repr(C)]
#[derive(Debug)]
pub struct nvjpegJpegState {
    _unused: [u8; 0],
}
pub type nvjpegJpegState_t = *mut nvjpegJpegState;
#[repr(C)]
#[derive(Debug)]
pub struct nvjpegBufferPinned {
    _unused: [u8; 0],
}
pub type nvjpegBufferPinned_t = *mut nvjpegBufferPinned;
#[repr(C)]
#[derive(Debug)]
pub struct nvjpegBufferDevice {
    _unused: [u8; 0],
}
pub type nvjpegBufferDevice_t = *mut nvjpegBufferDevice;
#[repr(C)]
#[derive(Debug)]
pub struct nvjpegJpegStream {
    _unused: [u8; 0],
}
pub type nvjpegJpegStream_t = *mut nvjpegJpegStream;
#[repr(C)]
#[derive(Debug)]
pub struct nvjpegDecodeParams {
    _unused: [u8; 0],
}
pub type nvjpegDecodeParams_t = *mut nvjpegDecodeParams;
#[repr(C)]
#[derive(Debug)]
pub struct nvjpegJpegDecoder {
    _unused: [u8; 0],
}
pub type nvjpegJpegDecoder_t = *mut nvjpegJpegDecoder;
pub struct Functions {
    __library: ::libloading::Library,
    pub nvjpegGetProperty: unsafe extern "C" fn(
        type_: libraryPropertyType,
        value: *mut ::std::os::raw::c_int,
    ) -> nvjpegStatus_t,
    pub nvjpegCreateEx: unsafe extern "C" fn(
        backend: nvjpegBackend_t,
        dev_allocator: *mut nvjpegDevAllocator_t,
        pinned_allocator: *mut nvjpegPinnedAllocator_t,
        flags: ::std::os::raw::c_uint,
        handle: *mut nvjpegHandle_t,
    ) -> nvjpegStatus_t,
    pub nvjpegDestroy: unsafe extern "C" fn(handle: nvjpegHandle_t) -> nvjpegStatus_t,
    pub nvjpegSetDeviceMemoryPadding: unsafe extern "C" fn(
        padding: usize,
        handle: nvjpegHandle_t,
    ) -> nvjpegStatus_t,
    pub nvjpegSetPinnedMemoryPadding: unsafe extern "C" fn(
        padding: usize,
        handle: nvjpegHandle_t,
    ) -> nvjpegStatus_t,
    pub nvjpegGetHardwareDecoderInfo: unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        num_engines: *mut ::std::os::raw::c_uint,
        num_cores_per_engine: *mut ::std::os::raw::c_uint,
    ) -> nvjpegStatus_t,
    pub nvjpegJpegStateCreate: unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        jpeg_handle: *mut nvjpegJpegState_t,
    ) -> nvjpegStatus_t,
    pub nvjpegJpegStateDestroy: unsafe extern "C" fn(
        jpeg_handle: nvjpegJpegState_t,
    ) -> nvjpegStatus_t,
    pub nvjpegDecodeBatchedInitialize: unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        jpeg_handle: nvjpegJpegState_t,
        batch_size: ::std::os::raw::c_int,
        max_cpu_threads: ::std::os::raw::c_int,
        output_format: nvjpegOutputFormat_t,
    ) -> nvjpegStatus_t,
    pub nvjpegDecodeBatched: unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        jpeg_handle: nvjpegJpegState_t,
        data: *const *const ::std::os::raw::c_uchar,
        lengths: *const usize,
        destinations: *mut nvjpegImage_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t,
    pub nvjpegDecodeBatchedPreAllocate: unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        jpeg_handle: nvjpegJpegState_t,
        batch_size: ::std::os::raw::c_int,
        width: ::std::os::raw::c_int,
        height: ::std::os::raw::c_int,
        chroma_subsampling: nvjpegChromaSubsampling_t,
        output_format: nvjpegOutputFormat_t,
    ) -> nvjpegStatus_t,
    pub nvjpegBufferPinnedCreate: unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        pinned_allocator: *mut nvjpegPinnedAllocator_t,
        buffer: *mut nvjpegBufferPinned_t,
    ) -> nvjpegStatus_t,
    pub nvjpegBufferPinnedDestroy: unsafe extern "C" fn(
        buffer: nvjpegBufferPinned_t,
    ) -> nvjpegStatus_t,
    pub nvjpegBufferDeviceCreate: unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        device_allocator: *mut nvjpegDevAllocator_t,
        buffer: *mut nvjpegBufferDevice_t,
    ) -> nvjpegStatus_t,
    pub nvjpegBufferDeviceDestroy: unsafe extern "C" fn(
        buffer: nvjpegBufferDevice_t,
    ) -> nvjpegStatus_t,
    pub nvjpegStateAttachPinnedBuffer: unsafe extern "C" fn(
        decoder_state: nvjpegJpegState_t,
        pinned_buffer: nvjpegBufferPinned_t,
    ) -> nvjpegStatus_t,
    pub nvjpegStateAttachDeviceBuffer: unsafe extern "C" fn(
        decoder_state: nvjpegJpegState_t,
        device_buffer: nvjpegBufferDevice_t,
    ) -> nvjpegStatus_t,
    pub nvjpegJpegStreamCreate: unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        jpeg_stream: *mut nvjpegJpegStream_t,
    ) -> nvjpegStatus_t,
    pub nvjpegJpegStreamDestroy: unsafe extern "C" fn(
        jpeg_stream: nvjpegJpegStream_t,
    ) -> nvjpegStatus_t,
    pub nvjpegJpegStreamParse: unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        data: *const ::std::os::raw::c_uchar,
        length: usize,
        save_metadata: ::std::os::raw::c_int,
        save_stream: ::std::os::raw::c_int,
        jpeg_stream: nvjpegJpegStream_t,
    ) -> nvjpegStatus_t,
    pub nvjpegJpegStreamParseHeader: unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        data: *const ::std::os::raw::c_uchar,
        length: usize,
        jpeg_stream: nvjpegJpegStream_t,
    ) -> nvjpegStatus_t,
    pub nvjpegJpegStreamGetComponentsNum: unsafe extern "C" fn(
        jpeg_stream: nvjpegJpegStream_t,
        components_num: *mut ::std::os::raw::c_uint,
    ) -> nvjpegStatus_t,
    pub nvjpegJpegStreamGetComponentDimensions: unsafe extern "C" fn(
        jpeg_stream: nvjpegJpegStream_t,
        component: ::std::os::raw::c_uint,
        width: *mut ::std::os::raw::c_uint,
        height: *mut ::std::os::raw::c_uint,
    ) -> nvjpegStatus_t,
    pub nvjpegDecodeParamsCreate: unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        decode_params: *mut nvjpegDecodeParams_t,
    ) -> nvjpegStatus_t,
    pub nvjpegDecodeParamsDestroy: unsafe extern "C" fn(
        decode_params: nvjpegDecodeParams_t,
    ) -> nvjpegStatus_t,
    pub nvjpegDecodeParamsSetOutputFormat: unsafe extern "C" fn(
        decode_params: nvjpegDecodeParams_t,
        output_format: nvjpegOutputFormat_t,
    ) -> nvjpegStatus_t,
    pub nvjpegDecoderCreate: unsafe extern "C" fn(
        nvjpeg_handle: nvjpegHandle_t,
        implementation: nvjpegBackend_t,
        decoder_handle: *mut nvjpegJpegDecoder_t,
    ) -> nvjpegStatus_t,
    pub nvjpegDecoderDestroy: unsafe extern "C" fn(
        decoder_handle: nvjpegJpegDecoder_t,
    ) -> nvjpegStatus_t,
    pub nvjpegDecoderJpegSupported: unsafe extern "C" fn(
        decoder_handle: nvjpegJpegDecoder_t,
        jpeg_stream: nvjpegJpegStream_t,
        decode_params: nvjpegDecodeParams_t,
        is_supported: *mut ::std::os::raw::c_int,
    ) -> nvjpegStatus_t,
    pub nvjpegDecodeBatchedSupportedEx: unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        jpeg_stream: nvjpegJpegStream_t,
        decode_params: nvjpegDecodeParams_t,
        is_supported: *mut ::std::os::raw::c_int,
    ) -> nvjpegStatus_t,
    pub nvjpegDecoderStateCreate: unsafe extern "C" fn(
        nvjpeg_handle: nvjpegHandle_t,
        decoder_handle: nvjpegJpegDecoder_t,
        decoder_state: *mut nvjpegJpegState_t,
    ) -> nvjpegStatus_t,
    pub nvjpegDecodeJpegHost: unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        decoder: nvjpegJpegDecoder_t,
        decoder_state: nvjpegJpegState_t,
        decode_params: nvjpegDecodeParams_t,
        jpeg_stream: nvjpegJpegStream_t,
    ) -> nvjpegStatus_t,
    pub nvjpegDecodeJpegTransferToDevice: unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        decoder: nvjpegJpegDecoder_t,
        decoder_state: nvjpegJpegState_t,
        jpeg_stream: nvjpegJpegStream_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t,
    pub nvjpegDecodeJpegDevice: unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        decoder: nvjpegJpegDecoder_t,
        decoder_state: nvjpegJpegState_t,
        destination: *mut nvjpegImage_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t,
}
impl Functions {
    pub unsafe fn new<P>(path: P) -> Result<Self, ::libloading::Error>
    where
        P: AsRef<::std::ffi::OsStr>,
    {
        let path = path.as_ref();
        let library = unsafe { ::libloading::Library::new(path) }?;
        unsafe { Self::from_library(library) }
    }
    pub unsafe fn from_library<L>(library: L) -> Result<Self, ::libloading::Error>
    where
        L: Into<::libloading::Library>,
    {
        let __library = library.into();
        let nvjpegGetProperty = unsafe { __library.get(b"nvjpegGetProperty\0") }
            .map(|sym| *sym)?;
        let nvjpegCreateEx = unsafe { __library.get(b"nvjpegCreateEx\0") }
            .map(|sym| *sym)?;
        let nvjpegDestroy = unsafe { __library.get(b"nvjpegDestroy\0") }
            .map(|sym| *sym)?;
        let nvjpegSetDeviceMemoryPadding = unsafe {
            __library.get(b"nvjpegSetDeviceMemoryPadding\0")
        }
            .map(|sym| *sym)?;
        let nvjpegSetPinnedMemoryPadding = unsafe {
            __library.get(b"nvjpegSetPinnedMemoryPadding\0")
        }
            .map(|sym| *sym)?;
        let nvjpegGetHardwareDecoderInfo = unsafe {
            __library.get(b"nvjpegGetHardwareDecoderInfo\0")
        }
            .map(|sym| *sym)?;
        let nvjpegJpegStateCreate = unsafe { __library.get(b"nvjpegJpegStateCreate\0") }
            .map(|sym| *sym)?;
        let nvjpegJpegStateDestroy = unsafe {
            __library.get(b"nvjpegJpegStateDestroy\0")
        }
            .map(|sym| *sym)?;
        let nvjpegDecodeBatchedInitialize = unsafe {
            __library.get(b"nvjpegDecodeBatchedInitialize\0")
        }
            .map(|sym| *sym)?;
        let nvjpegDecodeBatched = unsafe { __library.get(b"nvjpegDecodeBatched\0") }
            .map(|sym| *sym)?;
        let nvjpegDecodeBatchedPreAllocate = unsafe {
            __library.get(b"nvjpegDecodeBatchedPreAllocate\0")
        }
            .map(|sym| *sym)?;
        let nvjpegBufferPinnedCreate = unsafe {
            __library.get(b"nvjpegBufferPinnedCreate\0")
        }
            .map(|sym| *sym)?;
        let nvjpegBufferPinnedDestroy = unsafe {
            __library.get(b"nvjpegBufferPinnedDestroy\0")
        }
            .map(|sym| *sym)?;
        let nvjpegBufferDeviceCreate = unsafe {
            __library.get(b"nvjpegBufferDeviceCreate\0")
        }
            .map(|sym| *sym)?;
        let nvjpegBufferDeviceDestroy = unsafe {
            __library.get(b"nvjpegBufferDeviceDestroy\0")
        }
            .map(|sym| *sym)?;
        let nvjpegStateAttachPinnedBuffer = unsafe {
            __library.get(b"nvjpegStateAttachPinnedBuffer\0")
        }
            .map(|sym| *sym)?;
        let nvjpegStateAttachDeviceBuffer = unsafe {
            __library.get(b"nvjpegStateAttachDeviceBuffer\0")
        }
            .map(|sym| *sym)?;
        let nvjpegJpegStreamCreate = unsafe {
            __library.get(b"nvjpegJpegStreamCreate\0")
        }
            .map(|sym| *sym)?;
        let nvjpegJpegStreamDestroy = unsafe {
            __library.get(b"nvjpegJpegStreamDestroy\0")
        }
            .map(|sym| *sym)?;
        let nvjpegJpegStreamParse = unsafe { __library.get(b"nvjpegJpegStreamParse\0") }
            .map(|sym| *sym)?;
        let nvjpegJpegStreamParseHeader = unsafe {
            __library.get(b"nvjpegJpegStreamParseHeader\0")
        }
            .map(|sym| *sym)?;
        let nvjpegJpegStreamGetComponentsNum = unsafe {
            __library.get(b"nvjpegJpegStreamGetComponentsNum\0")
        }
            .map(|sym| *sym)?;
        let nvjpegJpegStreamGetComponentDimensions = unsafe {
            __library.get(b"nvjpegJpegStreamGetComponentDimensions\0")
        }
            .map(|sym| *sym)?;
        let nvjpegDecodeParamsCreate = unsafe {
            __library.get(b"nvjpegDecodeParamsCreate\0")
        }
            .map(|sym| *sym)?;
        let nvjpegDecodeParamsDestroy = unsafe {
            __library.get(b"nvjpegDecodeParamsDestroy\0")
        }
            .map(|sym| *sym)?;
        let nvjpegDecodeParamsSetOutputFormat = unsafe {
            __library.get(b"nvjpegDecodeParamsSetOutputFormat\0")
        }
            .map(|sym| *sym)?;
        let nvjpegDecoderCreate = unsafe { __library.get(b"nvjpegDecoderCreate\0") }
            .map(|sym| *sym)?;
        let nvjpegDecoderDestroy = unsafe { __library.get(b"nvjpegDecoderDestroy\0") }
            .map(|sym| *sym)?;
        let nvjpegDecoderJpegSupported = unsafe {
            __library.get(b"nvjpegDecoderJpegSupported\0")
        }
            .map(|sym| *sym)?;
        let nvjpegDecodeBatchedSupportedEx = unsafe {
            __library.get(b"nvjpegDecodeBatchedSupportedEx\0")
        }
            .map(|sym| *sym)?;
        let nvjpegDecoderStateCreate = unsafe {
            __library.get(b"nvjpegDecoderStateCreate\0")
        }
            .map(|sym| *sym)?;
        let nvjpegDecodeJpegHost = unsafe { __library.get(b"nvjpegDecodeJpegHost\0") }
            .map(|sym| *sym)?;
        let nvjpegDecodeJpegTransferToDevice = unsafe {
            __library.get(b"nvjpegDecodeJpegTransferToDevice\0")
        }
            .map(|sym| *sym)?;
        let nvjpegDecodeJpegDevice = unsafe {
            __library.get(b"nvjpegDecodeJpegDevice\0")
        }
            .map(|sym| *sym)?;
        Ok(Functions {
            __library,
            nvjpegGetProperty,
            nvjpegCreateEx,
            nvjpegDestroy,
            nvjpegSetDeviceMemoryPadding,
            nvjpegSetPinnedMemoryPadding,
            nvjpegGetHardwareDecoderInfo,
            nvjpegJpegStateCreate,
            nvjpegJpegStateDestroy,
            nvjpegDecodeBatchedInitialize,
            nvjpegDecodeBatched,
            nvjpegDecodeBatchedPreAllocate,
            nvjpegBufferPinnedCreate,
            nvjpegBufferPinnedDestroy,
            nvjpegBufferDeviceCreate,
            nvjpegBufferDeviceDestroy,
            nvjpegStateAttachPinnedBuffer,
            nvjpegStateAttachDeviceBuffer,
            nvjpegJpegStreamCreate,
            nvjpegJpegStreamDestroy,
            nvjpegJpegStreamParse,
            nvjpegJpegStreamParseHeader,
            nvjpegJpegStreamGetComponentsNum,
            nvjpegJpegStreamGetComponentDimensions,
            nvjpegDecodeParamsCreate,
            nvjpegDecodeParamsDestroy,
            nvjpegDecodeParamsSetOutputFormat,
            nvjpegDecoderCreate,
            nvjpegDecoderDestroy,
            nvjpegDecoderJpegSupported,
            nvjpegDecodeBatchedSupportedEx,
            nvjpegDecoderStateCreate,
            nvjpegDecodeJpegHost,
            nvjpegDecodeJpegTransferToDevice,
            nvjpegDecodeJpegDevice,
        })
    }
    pub unsafe fn nvjpegGetProperty(
        &self,
        type_: libraryPropertyType,
        value: *mut ::std::os::raw::c_int,
    ) -> nvjpegStatus_t {
        unsafe { (self.nvjpegGetProperty)(type_, value) }
    }
    pub unsafe fn nvjpegCreateEx(
        &self,
        backend: nvjpegBackend_t,
        dev_allocator: *mut nvjpegDevAllocator_t,
        pinned_allocator: *mut nvjpegPinnedAllocator_t,
        flags: ::std::os::raw::c_uint,
        handle: *mut nvjpegHandle_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self
                .nvjpegCreateEx)(backend, dev_allocator, pinned_allocator, flags, handle)
        }
    }
    pub unsafe fn nvjpegDestroy(&self, handle: nvjpegHandle_t) -> nvjpegStatus_t {
        unsafe { (self.nvjpegDestroy)(handle) }
    }
    pub unsafe fn nvjpegSetDeviceMemoryPadding(
        &self,
        padding: usize,
        handle: nvjpegHandle_t,
    ) -> nvjpegStatus_t {
        unsafe { (self.nvjpegSetDeviceMemoryPadding)(padding, handle) }
    }
    pub unsafe fn nvjpegSetPinnedMemoryPadding(
        &self,
        padding: usize,
        handle: nvjpegHandle_t,
    ) -> nvjpegStatus_t {
        unsafe { (self.nvjpegSetPinnedMemoryPadding)(padding, handle) }
    }
    pub unsafe fn nvjpegGetHardwareDecoderInfo(
        &self,
        handle: nvjpegHandle_t,
        num_engines: *mut ::std::os::raw::c_uint,
        num_cores_per_engine: *mut ::std::os::raw::c_uint,
    ) -> nvjpegStatus_t {
        unsafe {
            (self
                .nvjpegGetHardwareDecoderInfo)(handle, num_engines, num_cores_per_engine)
        }
    }
    pub unsafe fn nvjpegJpegStateCreate(
        &self,
        handle: nvjpegHandle_t,
        jpeg_handle: *mut nvjpegJpegState_t,
    ) -> nvjpegStatus_t {
        unsafe { (self.nvjpegJpegStateCreate)(handle, jpeg_handle) }
    }
    pub unsafe fn nvjpegJpegStateDestroy(
        &self,
        jpeg_handle: nvjpegJpegState_t,
    ) -> nvjpegStatus_t {
        unsafe { (self.nvjpegJpegStateDestroy)(jpeg_handle) }
    }
    pub unsafe fn nvjpegDecodeBatchedInitialize(
        &self,
        handle: nvjpegHandle_t,
        jpeg_handle: nvjpegJpegState_t,
        batch_size: ::std::os::raw::c_int,
        max_cpu_threads: ::std::os::raw::c_int,
        output_format: nvjpegOutputFormat_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self
                .nvjpegDecodeBatchedInitialize)(
                handle,
                jpeg_handle,
                batch_size,
                max_cpu_threads,
                output_format,
            )
        }
    }
    pub unsafe fn nvjpegDecodeBatched(
        &self,
        handle: nvjpegHandle_t,
        jpeg_handle: nvjpegJpegState_t,
        data: *const *const ::std::os::raw::c_uchar,
        lengths: *const usize,
        destinations: *mut nvjpegImage_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self
                .nvjpegDecodeBatched)(
                handle,
                jpeg_handle,
                data,
                lengths,
                destinations,
                stream,
            )
        }
    }
    pub unsafe fn nvjpegDecodeBatchedPreAllocate(
        &self,
        handle: nvjpegHandle_t,
        jpeg_handle: nvjpegJpegState_t,
        batch_size: ::std::os::raw::c_int,
        width: ::std::os::raw::c_int,
        height: ::std::os::raw::c_int,
        chroma_subsampling: nvjpegChromaSubsampling_t,
        output_format: nvjpegOutputFormat_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self
                .nvjpegDecodeBatchedPreAllocate)(
                handle,
                jpeg_handle,
                batch_size,
                width,
                height,
                chroma_subsampling,
                output_format,
            )
        }
    }
    pub unsafe fn nvjpegBufferPinnedCreate(
        &self,
        handle: nvjpegHandle_t,
        pinned_allocator: *mut nvjpegPinnedAllocator_t,
        buffer: *mut nvjpegBufferPinned_t,
    ) -> nvjpegStatus_t {
        unsafe { (self.nvjpegBufferPinnedCreate)(handle, pinned_allocator, buffer) }
    }
    pub unsafe fn nvjpegBufferPinnedDestroy(
        &self,
        buffer: nvjpegBufferPinned_t,
    ) -> nvjpegStatus_t {
        unsafe { (self.nvjpegBufferPinnedDestroy)(buffer) }
    }
    pub unsafe fn nvjpegBufferDeviceCreate(
        &self,
        handle: nvjpegHandle_t,
        device_allocator: *mut nvjpegDevAllocator_t,
        buffer: *mut nvjpegBufferDevice_t,
    ) -> nvjpegStatus_t {
        unsafe { (self.nvjpegBufferDeviceCreate)(handle, device_allocator, buffer) }
    }
    pub unsafe fn nvjpegBufferDeviceDestroy(
        &self,
        buffer: nvjpegBufferDevice_t,
    ) -> nvjpegStatus_t {
        unsafe { (self.nvjpegBufferDeviceDestroy)(buffer) }
    }
    pub unsafe fn nvjpegStateAttachPinnedBuffer(
        &self,
        decoder_state: nvjpegJpegState_t,
        pinned_buffer: nvjpegBufferPinned_t,
    ) -> nvjpegStatus_t {
        unsafe { (self.nvjpegStateAttachPinnedBuffer)(decoder_state, pinned_buffer) }
    }
    pub unsafe fn nvjpegStateAttachDeviceBuffer(
        &self,
        decoder_state: nvjpegJpegState_t,
        device_buffer: nvjpegBufferDevice_t,
    ) -> nvjpegStatus_t {
        unsafe { (self.nvjpegStateAttachDeviceBuffer)(decoder_state, device_buffer) }
    }
    pub unsafe fn nvjpegJpegStreamCreate(
        &self,
        handle: nvjpegHandle_t,
        jpeg_stream: *mut nvjpegJpegStream_t,
    ) -> nvjpegStatus_t {
        unsafe { (self.nvjpegJpegStreamCreate)(handle, jpeg_stream) }
    }
    pub unsafe fn nvjpegJpegStreamDestroy(
        &self,
        jpeg_stream: nvjpegJpegStream_t,
    ) -> nvjpegStatus_t {
        unsafe { (self.nvjpegJpegStreamDestroy)(jpeg_stream) }
    }
    pub unsafe fn nvjpegJpegStreamParse(
        &self,
        handle: nvjpegHandle_t,
        data: *const ::std::os::raw::c_uchar,
        length: usize,
        save_metadata: ::std::os::raw::c_int,
        save_stream: ::std::os::raw::c_int,
        jpeg_stream: nvjpegJpegStream_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self
                .nvjpegJpegStreamParse)(
                handle,
                data,
                length,
                save_metadata,
                save_stream,
                jpeg_stream,
            )
        }
    }
    pub unsafe fn nvjpegJpegStreamParseHeader(
        &self,
        handle: nvjpegHandle_t,
        data: *const ::std::os::raw::c_uchar,
        length: usize,
        jpeg_stream: nvjpegJpegStream_t,
    ) -> nvjpegStatus_t {
        unsafe { (self.nvjpegJpegStreamParseHeader)(handle, data, length, jpeg_stream) }
    }
    pub unsafe fn nvjpegJpegStreamGetComponentsNum(
        &self,
        jpeg_stream: nvjpegJpegStream_t,
        components_num: *mut ::std::os::raw::c_uint,
    ) -> nvjpegStatus_t {
        unsafe { (self.nvjpegJpegStreamGetComponentsNum)(jpeg_stream, components_num) }
    }
    pub unsafe fn nvjpegJpegStreamGetComponentDimensions(
        &self,
        jpeg_stream: nvjpegJpegStream_t,
        component: ::std::os::raw::c_uint,
        width: *mut ::std::os::raw::c_uint,
        height: *mut ::std::os::raw::c_uint,
    ) -> nvjpegStatus_t {
        unsafe {
            (self
                .nvjpegJpegStreamGetComponentDimensions)(
                jpeg_stream,
                component,
                width,
                height,
            )
        }
    }
    pub unsafe fn nvjpegDecodeParamsCreate(
        &self,
        handle: nvjpegHandle_t,
        decode_params: *mut nvjpegDecodeParams_t,
    ) -> nvjpegStatus_t {
        unsafe { (self.nvjpegDecodeParamsCreate)(handle, decode_params) }
    }
    pub unsafe fn nvjpegDecodeParamsDestroy(
        &self,
        decode_params: nvjpegDecodeParams_t,
    ) -> nvjpegStatus_t {
        unsafe { (self.nvjpegDecodeParamsDestroy)(decode_params) }
    }
    pub unsafe fn nvjpegDecodeParamsSetOutputFormat(
        &self,
        decode_params: nvjpegDecodeParams_t,
        output_format: nvjpegOutputFormat_t,
    ) -> nvjpegStatus_t {
        unsafe { (self.nvjpegDecodeParamsSetOutputFormat)(decode_params, output_format) }
    }
    pub unsafe fn nvjpegDecoderCreate(
        &self,
        nvjpeg_handle: nvjpegHandle_t,
        implementation: nvjpegBackend_t,
        decoder_handle: *mut nvjpegJpegDecoder_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegDecoderCreate)(nvjpeg_handle, implementation, decoder_handle)
        }
    }
    pub unsafe fn nvjpegDecoderDestroy(
        &self,
        decoder_handle: nvjpegJpegDecoder_t,
    ) -> nvjpegStatus_t {
        unsafe { (self.nvjpegDecoderDestroy)(decoder_handle) }
    }
    pub unsafe fn nvjpegDecoderJpegSupported(
        &self,
        decoder_handle: nvjpegJpegDecoder_t,
        jpeg_stream: nvjpegJpegStream_t,
        decode_params: nvjpegDecodeParams_t,
        is_supported: *mut ::std::os::raw::c_int,
    ) -> nvjpegStatus_t {
        unsafe {
            (self
                .nvjpegDecoderJpegSupported)(
                decoder_handle,
                jpeg_stream,
                decode_params,
                is_supported,
            )
        }
    }
    pub unsafe fn nvjpegDecodeBatchedSupportedEx(
        &self,
        handle: nvjpegHandle_t,
        jpeg_stream: nvjpegJpegStream_t,
        decode_params: nvjpegDecodeParams_t,
        is_supported: *mut ::std::os::raw::c_int,
    ) -> nvjpegStatus_t {
        unsafe {
            (self
                .nvjpegDecodeBatchedSupportedEx)(
                handle,
                jpeg_stream,
                decode_params,
                is_supported,
            )
        }
    }
    pub unsafe fn nvjpegDecoderStateCreate(
        &self,
        nvjpeg_handle: nvjpegHandle_t,
        decoder_handle: nvjpegJpegDecoder_t,
        decoder_state: *mut nvjpegJpegState_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegDecoderStateCreate)(nvjpeg_handle, decoder_handle, decoder_state)
        }
    }
    pub unsafe fn nvjpegDecodeJpegHost(
        &self,
        handle: nvjpegHandle_t,
        decoder: nvjpegJpegDecoder_t,
        decoder_state: nvjpegJpegState_t,
        decode_params: nvjpegDecodeParams_t,
        jpeg_stream: nvjpegJpegStream_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self
                .nvjpegDecodeJpegHost)(
                handle,
                decoder,
                decoder_state,
                decode_params,
                jpeg_stream,
            )
        }
    }
    pub unsafe fn nvjpegDecodeJpegTransferToDevice(
        &self,
        handle: nvjpegHandle_t,
        decoder: nvjpegJpegDecoder_t,
        decoder_state: nvjpegJpegState_t,
        jpeg_stream: nvjpegJpegStream_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self
                .nvjpegDecodeJpegTransferToDevice)(
                handle,
                decoder,
                decoder_state,
                jpeg_stream,
                stream,
            )
        }
    }
    pub unsafe fn nvjpegDecodeJpegDevice(
        &self,
        handle: nvjpegHandle_t,
        decoder: nvjpegJpegDecoder_t,
        decoder_state: nvjpegJpegState_t,
        destination: *mut nvjpegImage_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self
                .nvjpegDecodeJpegDevice)(
                handle,
                decoder,
                decoder_state,
                destination,
                stream,
            )
        }
    }
}
