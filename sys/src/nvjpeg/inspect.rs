//! What nvJPEG itself reads in a file's header.

use super::bindings::{nvjpegDecodeParams, nvjpegJpegStream, nvjpegOutputFormat_t};
use super::{Backend, Handle, NvjpegError, Owned, Status, check};

/// Size of a plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaneSize {
    /// Columns.
    pub width_px: u32,
    /// Rows.
    pub height_px: u32,
}

/// A file that the backend takes, with the sizes of its planes as nvJPEG will write them.
#[derive(Clone, Copy, Debug)]
pub struct Inspected<'a> {
    bytes: &'a [u8],
    sizes: [PlaneSize; 3],
    count: usize,
}

impl<'a> Inspected<'a> {
    /// The file.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Y, or Y, Cb, Cr.
    pub fn planes(&self) -> &[PlaneSize] {
        &self.sizes[..self.count]
    }
}

/// Reads headers, for [`super::BatchDecoder::decode`]. Work of the CPU alone.
pub struct Inspector {
    parsed: Parsed,
    handle: Handle,
}

impl Inspector {
    /// One for the handle's backend.
    ///
    /// # Errors
    /// What nvJPEG reports.
    pub fn new(handle: &Handle) -> Result<Self, NvjpegError> {
        Ok(Self { parsed: Parsed::new(handle)?, handle: handle.clone() })
    }

    /// Reads a file's header and asks whether the backend decodes such a file.
    ///
    /// # Errors
    /// [`Status::JpegNotSupported`] where it does not, or where there are not 1 or 3 planes; [`Status::BadJpeg`],
    /// [`Status::IncompleteBitstream`] and others as nvJPEG reports.
    pub fn inspect<'a>(&mut self, bytes: &'a [u8]) -> Result<Inspected<'a>, NvjpegError> {
        let inspected = self.parsed.parse(&self.handle, bytes)?;
        if self.handle.backend() == Backend::Hardware {
            let mut unsupported = 1;
            // SAFETY: all objects are valid ones, the stream holds the file parsed above, the pointer is valid for writes.
            let status = unsafe {
                self.handle.functions().nvjpegDecodeBatchedSupportedEx(
                    self.handle.raw(),
                    self.parsed.stream.pointer,
                    self.parsed.params.pointer,
                    &raw mut unsupported,
                )
            };
            check("nvjpegDecodeBatchedSupportedEx", status)?;
            refuse(unsupported, "nvjpegDecodeBatchedSupportedEx")?;
        }
        Ok(inspected)
    }
}

/// A parsed file and how it is to be decoded.
pub(super) struct Parsed {
    pub(super) stream: Owned<nvjpegJpegStream>,
    pub(super) params: Owned<nvjpegDecodeParams>,
}

impl Parsed {
    pub(super) fn new(handle: &Handle) -> Result<Self, NvjpegError> {
        let f = handle.functions();
        let stream = Owned::create("nvjpegJpegStreamCreate", f.nvjpegJpegStreamDestroy, |stream| {
            // SAFETY: the handle is a valid one, the pointer is valid for writes.
            unsafe { f.nvjpegJpegStreamCreate(handle.raw(), stream) }
        })?;
        let params = Owned::create("nvjpegDecodeParamsCreate", f.nvjpegDecodeParamsDestroy, |params| {
            // SAFETY: as above.
            unsafe { f.nvjpegDecodeParamsCreate(handle.raw(), params) }
        })?;
        let yuv = nvjpegOutputFormat_t::NVJPEG_OUTPUT_YUV;
        // SAFETY: the parameters are valid ones.
        check("nvjpegDecodeParamsSetOutputFormat", unsafe {
            f.nvjpegDecodeParamsSetOutputFormat(params.pointer, yuv)
        })?;
        Ok(Self { stream, params })
    }

    /// Parses a file. The stream may go on pointing into it.
    pub(super) fn parse<'a>(&mut self, handle: &Handle, bytes: &'a [u8]) -> Result<Inspected<'a>, NvjpegError> {
        let f = handle.functions();
        let stream = self.stream.pointer;
        // SAFETY: the slice is valid for as long as it says. Zeros: neither metadata nor the file is copied.
        let status = unsafe { f.nvjpegJpegStreamParse(handle.raw(), bytes.as_ptr(), bytes.len(), 0, 0, stream) };
        check("nvjpegJpegStreamParse", status)?;
        let mut count = 0;
        // SAFETY: the stream is a valid one, the pointer valid for writes.
        let status = unsafe { f.nvjpegJpegStreamGetComponentsNum(stream, &raw mut count) };
        check("nvjpegJpegStreamGetComponentsNum", status)?;
        refuse(i32::from(!matches!(count, 1 | 3)), "nvjpegJpegStreamGetComponentsNum")?;
        let mut inspected = Inspected { bytes, sizes: Default::default(), count: count as usize };
        for (n, size) in (0..count).zip(&mut inspected.sizes) {
            // SAFETY: as above; there is a component of that number.
            let status = unsafe {
                f.nvjpegJpegStreamGetComponentDimensions(stream, n, &raw mut size.width_px, &raw mut size.height_px)
            };
            check("nvjpegJpegStreamGetComponentDimensions", status)?;
        }
        Ok(inspected)
    }
}

/// The answer of the functions that ask whether a file is supported: 0 says that it is.
pub(super) fn refuse(unsupported: i32, call: &'static str) -> Result<(), NvjpegError> {
    if unsupported == 0 { Ok(()) } else { Err(NvjpegError::Call { call, status: Status::JpegNotSupported }) }
}
