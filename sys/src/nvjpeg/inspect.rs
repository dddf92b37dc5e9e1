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

/// Reads headers, for [`super::BatchDecoder::decode`]. Work of the CPU alone, and little of it: nvJPEG reads no further than
/// the first scan's header. (It takes 0.3 ms to parse half a megabyte to the end; seven engines decode two such files then.)
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
    /// [`Status::JpegNotSupported`] where it does not, where there are not 1 or 3 planes, or where a second frame header
    /// might give other sizes; [`Status::BadJpeg`], [`Status::IncompleteBitstream`] and others as nvJPEG reports.
    pub fn inspect<'a>(&mut self, bytes: &'a [u8]) -> Result<Inspected<'a>, NvjpegError> {
        let inspected = self.parsed.parse_header(&self.handle, bytes)?;
        refuse(i32::from(scan_data(bytes).is_none_or(has_frame)), "nvjpegJpegStreamParseHeader")?;
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
        let (f, stream) = (handle.functions(), self.stream.pointer);
        // SAFETY: the slice is valid for as long as it says. Zeros: neither metadata nor the file is copied.
        let status = unsafe { f.nvjpegJpegStreamParse(handle.raw(), bytes.as_ptr(), bytes.len(), 0, 0, stream) };
        check("nvjpegJpegStreamParse", status)?;
        self.inspected(handle, bytes)
    }

    /// Parses a file up to its first scan: nothing can be decoded from that.
    fn parse_header<'a>(&mut self, handle: &Handle, bytes: &'a [u8]) -> Result<Inspected<'a>, NvjpegError> {
        let (f, stream) = (handle.functions(), self.stream.pointer);
        // SAFETY: the slice is valid for as long as it says.
        let status = unsafe { f.nvjpegJpegStreamParseHeader(handle.raw(), bytes.as_ptr(), bytes.len(), stream) };
        check("nvjpegJpegStreamParseHeader", status)?;
        self.inspected(handle, bytes)
    }

    /// The planes of the file that was parsed.
    fn inspected<'a>(&self, handle: &Handle, bytes: &'a [u8]) -> Result<Inspected<'a>, NvjpegError> {
        let (f, stream) = (handle.functions(), self.stream.pointer);
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

/// What follows the header of the first scan (T.81, B.1.1.2 to B.2.3); `None` where segments do not lead there.
fn scan_data(bytes: &[u8]) -> Option<&[u8]> {
    const START_OF_SCAN: u8 = 0xDA;
    let mut rest = bytes.get(2..)?;
    while let [0xFF, marker, body @ ..] = rest {
        let length = match (marker, body) {
            // A fill byte.
            (0xFF, _) => {
                rest = &rest[1..];
                continue;
            }
            (_, &[high, low, ..]) => usize::from(u16::from_be_bytes([high, low])),
            _ => return None,
        };
        rest = body.get(length..)?;
        if *marker == START_OF_SCAN {
            return Some(rest);
        }
    }
    None
}

/// Whether there is a frame header. Codes of samples never look like one: a zero follows each byte of ones in them.
fn has_frame(data: &[u8]) -> bool {
    // C0 to CF but for C4, C8 and CC: Huffman tables, reserved, arithmetic conditioning.
    let is_frame = |code: u8| code & 0xF0 == 0xC0 && (code & 3 != 0 || code == 0xC0);
    memchr::memchr_iter(0xFF, data).any(|at| data.get(at + 1).is_some_and(|&code| is_frame(code)))
}

/// The answer of the functions that ask whether a file is supported: 0 says that it is.
pub(super) fn refuse(unsupported: i32, call: &'static str) -> Result<(), NvjpegError> {
    if unsupported == 0 { Ok(()) } else { Err(NvjpegError::Call { call, status: Status::JpegNotSupported }) }
}
