//! One picture at a time, in phases: the CPU reads the Huffman codes, the GPU does the rest.

use super::bindings::{nvjpegBufferDevice, nvjpegBufferPinned, nvjpegJpegDecoder, nvjpegJpegState};
use super::inspect::{Parsed, refuse};
use super::{Backend, Handle, Inspected, NvjpegError, Output, Owned, PlaneSize, Planes, Stream, check};

/// Decodes what the engines refuse: progressive pictures, several scans, 4:1:1 and 4:1:0. One a thread; the CPU's phase
/// of a picture runs beside the GPU's phase of the one before.
pub struct HybridDecoder {
    state: Owned<nvjpegJpegState>,
    decoder: Owned<nvjpegJpegDecoder>,
    parsed: Parsed,
    /// Filled in turn: the GPU may still read the first, the CPU fills the second.
    pinned: [Owned<nvjpegBufferPinned>; 2],
    _device: Owned<nvjpegBufferDevice>,
    handle: Handle,
}

/// A picture whose codes have been read.
#[must_use = "a picture is decoded by `enqueue`"]
pub struct HostDecoded<'a> {
    decoder: &'a mut HybridDecoder,
    picture: Inspected<'a>,
}

impl HybridDecoder {
    /// A decoder with buffers of its own. `backend` is [`Backend::Hybrid`] or [`Backend::GpuHybrid`], and may be another
    /// than the handle's.
    ///
    /// # Errors
    /// What nvJPEG reports.
    pub fn new(handle: &Handle, backend: Backend) -> Result<Self, NvjpegError> {
        let f = handle.functions();
        let decoder = Owned::create("nvjpegDecoderCreate", f.nvjpegDecoderDestroy, |decoder| {
            // SAFETY: the handle is a valid one, the pointer is valid for writes.
            unsafe { f.nvjpegDecoderCreate(handle.raw(), backend.code(), decoder) }
        })?;
        let pinned = || {
            Owned::create("nvjpegBufferPinnedCreate", f.nvjpegBufferPinnedDestroy, |buffer| {
                // SAFETY: as above; a null allocator means CUDA's own.
                unsafe { f.nvjpegBufferPinnedCreate(handle.raw(), std::ptr::null_mut(), buffer) }
            })
        };
        let device = Owned::create("nvjpegBufferDeviceCreate", f.nvjpegBufferDeviceDestroy, |buffer| {
            // SAFETY: as above.
            unsafe { f.nvjpegBufferDeviceCreate(handle.raw(), std::ptr::null_mut(), buffer) }
        })?;
        let pinned = [pinned()?, pinned()?];
        // Last, so that after an error below it goes before the buffers.
        let state = Owned::create("nvjpegDecoderStateCreate", f.nvjpegJpegStateDestroy, |state| {
            // SAFETY: as above; the decoder is a valid one.
            unsafe { f.nvjpegDecoderStateCreate(handle.raw(), decoder.pointer, state) }
        })?;
        // SAFETY: both are valid ones, and the state is destroyed before the buffer.
        let status = unsafe { f.nvjpegStateAttachDeviceBuffer(state.pointer, device.pointer) };
        check("nvjpegStateAttachDeviceBuffer", status)?;
        Ok(Self { state, decoder, parsed: Parsed::new(handle)?, pinned, _device: device, handle: handle.clone() })
    }

    /// The CPU's phase: reads the header, then all codes. Work that was enqueued for the picture before may still run.
    ///
    /// # Errors
    /// [`super::Status::JpegNotSupported`] for what the backend does not decode, [`super::Status::BadJpeg`],
    /// [`super::Status::IncompleteBitstream`] and others as nvJPEG reports. The decoder can be used again.
    pub fn host<'a>(&'a mut self, bytes: &'a [u8]) -> Result<HostDecoded<'a>, NvjpegError> {
        let f = self.handle.functions();
        let picture = self.parsed.parse(&self.handle, bytes)?;
        let (stream, params) = (self.parsed.stream.pointer, self.parsed.params.pointer);
        let mut unsupported = 1;
        // SAFETY: all objects are valid ones, the stream holds the file parsed above, the pointer is valid for writes.
        let status =
            unsafe { f.nvjpegDecoderJpegSupported(self.decoder.pointer, stream, params, &raw mut unsupported) };
        check("nvjpegDecoderJpegSupported", status)?;
        refuse(unsupported, "nvjpegDecoderJpegSupported")?;
        // SAFETY: both are valid ones, and the state is destroyed before the buffer. Nothing reads this one: what was
        // enqueued from it had finished when `enqueue` was called for the other one.
        let status = unsafe { f.nvjpegStateAttachPinnedBuffer(self.state.pointer, self.pinned[1].pointer) };
        check("nvjpegStateAttachPinnedBuffer", status)?;
        // SAFETY: all objects are valid ones and belong together; the file that the stream points into is borrowed.
        let status = unsafe {
            f.nvjpegDecodeJpegHost(self.handle.raw(), self.decoder.pointer, self.state.pointer, params, stream)
        };
        check("nvjpegDecodeJpegHost", status)?;
        Ok(HostDecoded { decoder: self, picture })
    }
}

impl HostDecoded<'_> {
    /// Y, or Y, Cb, Cr.
    pub fn planes(&self) -> &[PlaneSize] {
        self.picture.planes()
    }

    /// The GPU's phase: enqueues the copy to the device and the rest of decoding on `stream`, in its order.
    ///
    /// # Errors
    /// [`NvjpegError::PlanesTooSmall`] before anything is done, else what nvJPEG reports.
    ///
    /// # Safety
    /// * `stream` is a stream of the current context, which is that of the handle.
    /// * What this decoder enqueued before has finished.
    /// * The planes are device memory of pitch times rows bytes each that nothing outside the order of `stream` reads or
    ///   writes until the enqueued work has finished.
    /// * The decoder is not dropped, and the file's bytes stay, until then.
    pub unsafe fn enqueue(self, output: &Planes, stream: Stream) -> Result<(), NvjpegError> {
        if !output.hold(&self.picture, Output::Yuv) {
            return Err(NvjpegError::PlanesTooSmall { index: 0 });
        }
        let HybridDecoder { state, decoder, parsed, pinned, handle, .. } = self.decoder;
        pinned.swap(0, 1);
        let f = handle.functions();
        // SAFETY: all objects are valid ones and belong together, the host's phase of this file has succeeded, and the
        // file is borrowed; the rest is the caller's.
        let status = unsafe {
            f.nvjpegDecodeJpegTransferToDevice(
                handle.raw(),
                decoder.pointer,
                state.pointer,
                parsed.stream.pointer,
                stream,
            )
        };
        check("nvjpegDecodeJpegTransferToDevice", status)?;
        let mut image = output.image();
        // SAFETY: as above; the planes hold the picture, whose size nvJPEG itself has read.
        let status =
            unsafe { f.nvjpegDecodeJpegDevice(handle.raw(), decoder.pointer, state.pointer, &raw mut image, stream) };
        check("nvjpegDecodeJpegDevice", status)
    }
}
