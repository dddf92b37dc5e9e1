//! Many pictures in one call.

use super::bindings::{nvjpegChromaSubsampling_t, nvjpegImage_t, nvjpegJpegState, nvjpegOutputFormat_t};
use super::{Handle, Inspected, NvjpegError, Owned, Planes, Stream, check};

/// Which planes a decoder writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// All that the picture has, in its own subsampling.
    Yuv,
    /// The first one.
    Luma,
}

impl Output {
    fn code(self) -> nvjpegOutputFormat_t {
        match self {
            Self::Yuv => nvjpegOutputFormat_t::NVJPEG_OUTPUT_YUV,
            Self::Luma => nvjpegOutputFormat_t::NVJPEG_OUTPUT_Y,
        }
    }
}

/// Decodes pictures of any sizes together: on the JPEG engines or, with [`super::Backend::GpuHybrid`], by kernels. The
/// engines stand idle between two batches of one decoder; two decoders on two threads keep them busy.
pub struct BatchDecoder {
    state: Owned<nvjpegJpegState>,
    output: Output,
    /// Pictures of the batch that the state is set up for, 0 for none.
    batch: usize,
    lists: Lists,
    handle: Handle,
}

/// What a call is given, in memory that is used again for the next one.
#[derive(Default)]
struct Lists {
    files: Vec<*const u8>,
    lengths: Vec<usize>,
    images: Vec<nvjpegImage_t>,
}

// SAFETY: the pointers are only followed in the call that they were written for.
unsafe impl Send for Lists {}

impl BatchDecoder {
    /// A decoder of the handle's backend.
    ///
    /// # Errors
    /// What nvJPEG reports.
    pub fn new(handle: &Handle, output: Output) -> Result<Self, NvjpegError> {
        let f = handle.functions();
        let state = Owned::create("nvjpegJpegStateCreate", f.nvjpegJpegStateDestroy, |state| {
            // SAFETY: the handle is a valid one, the pointer is valid for writes.
            unsafe { f.nvjpegJpegStateCreate(handle.raw(), state) }
        })?;
        Ok(Self { state, output, batch: 0, lists: Lists::default(), handle: handle.clone() })
    }

    /// Allocates for batches of up to so many pictures of up to this size, whatever their subsampling, so that decoding
    /// them does not.
    ///
    /// # Errors
    /// What nvJPEG reports: [`super::Status::AllocatorFailure`] where memory is short.
    pub fn pre_allocate(&mut self, pictures: usize, width_px: u32, height_px: u32) -> Result<(), NvjpegError> {
        self.set_up(pictures)?;
        // SAFETY: handle and state are valid ones.
        let status = unsafe {
            self.handle.functions().nvjpegDecodeBatchedPreAllocate(
                self.handle.raw(),
                self.state.pointer,
                pictures as i32,
                width_px as i32,
                height_px as i32,
                nvjpegChromaSubsampling_t::NVJPEG_CSS_444,
                self.output.code(),
            )
        };
        check("nvjpegDecodeBatchedPreAllocate", status)
    }

    /// Decodes a batch; `outputs` has the planes of each picture. The planes are written when the work that this call
    /// enqueues on `stream` has finished, but perhaps before work that was enqueued earlier (see the module's "Order").
    ///
    /// # Errors
    /// [`NvjpegError::WrongBatch`] and [`NvjpegError::PlanesTooSmall`] before anything is done. A
    /// [`NvjpegError::Call`] is the whole batch's, and planes may be written in part; the decoder can be used again.
    ///
    /// # Safety
    /// * `stream` is a stream of the current context, which is that of the handle.
    /// * The planes are device memory of pitch times rows bytes each that nothing else reads or writes from this call on
    ///   until the enqueued work has finished.
    /// * Until then the files' bytes stay, and this decoder is neither used nor dropped, also after an error.
    pub unsafe fn decode(
        &mut self,
        pictures: &[Inspected<'_>],
        outputs: &[Planes],
        stream: Stream,
    ) -> Result<(), NvjpegError> {
        if pictures.is_empty() || pictures.len() != outputs.len() {
            return Err(NvjpegError::WrongBatch { pictures: pictures.len(), outputs: outputs.len() });
        }
        let mut pairs = pictures.iter().zip(outputs);
        if let Some(index) = pairs.position(|(picture, planes)| !planes.hold(picture, self.output)) {
            return Err(NvjpegError::PlanesTooSmall { index });
        }
        self.set_up(pictures.len())?;
        let Lists { files, lengths, images } = &mut self.lists;
        files.clear();
        files.extend(pictures.iter().map(|picture| picture.bytes().as_ptr()));
        lengths.clear();
        lengths.extend(pictures.iter().map(|picture| picture.bytes().len()));
        images.clear();
        images.extend(outputs.iter().map(Planes::image));
        // SAFETY: handle and state are valid ones, set up for as many pictures as the lists are long; each file is as long
        // as its length says; the planes hold the pictures, whose sizes nvJPEG itself has read; the rest is the caller's.
        let status = unsafe {
            self.handle.functions().nvjpegDecodeBatched(
                self.handle.raw(),
                self.state.pointer,
                files.as_ptr(),
                lengths.as_ptr(),
                images.as_mut_ptr(),
                stream,
            )
        };
        let decoded = check("nvjpegDecodeBatched", status);
        if decoded.is_err() {
            // Setting up again also resets a failed state.
            self.batch = 0;
        }
        decoded
    }

    fn set_up(&mut self, pictures: usize) -> Result<(), NvjpegError> {
        if self.batch == pictures {
            return Ok(());
        }
        self.batch = 0;
        // One thread: a caller has threads of its own.
        // SAFETY: handle and state are valid ones.
        let status = unsafe {
            self.handle.functions().nvjpegDecodeBatchedInitialize(
                self.handle.raw(),
                self.state.pointer,
                pictures as i32,
                1,
                self.output.code(),
            )
        };
        check("nvjpegDecodeBatchedInitialize", status)?;
        self.batch = pictures;
        Ok(())
    }
}
