//! A reader for zune-jpeg that notices data which the decoder passes over.

use std::cell::Cell;
use std::ops::Range;

use zune_jpeg::zune_core::bytestream::{ZByteIoError, ZByteReaderTrait, ZCursor, ZSeekFrom};

/// Bytes with ranges of entropy-coded data in them.
///
/// zune-jpeg fetches entropy-coded data by four bytes or by [`ZByteReaderTrait::read_byte_no_error`]. It looks for the
/// next marker by single bytes that must be there: those that lie in a range are left over.
pub(super) struct Watched<'a> {
    cursor: ZCursor<&'a [u8]>,
    data: &'a [Range<usize>],
    left_over: &'a Cell<bool>,
}

impl<'a> Watched<'a> {
    /// Reads `bytes`; `left_over` is set where the decoder passes over bytes of the ranges `data`, which are in order.
    pub(super) fn new(bytes: &'a [u8], data: &'a [Range<usize>], left_over: &'a Cell<bool>) -> Self {
        Self { cursor: ZCursor::new(bytes), data, left_over }
    }
}

impl ZByteReaderTrait for Watched<'_> {
    #[inline]
    fn read_byte_no_error(&mut self) -> u8 {
        self.cursor.read_byte_no_error()
    }

    #[inline]
    fn read_exact_bytes(&mut self, buf: &mut [u8]) -> Result<(), ZByteIoError> {
        if buf.len() == 1 {
            let at = self.cursor.z_position()?;
            let next = self.data.partition_point(|range| range.end as u64 <= at);
            if self.data.get(next).is_some_and(|range| range.start as u64 <= at) {
                self.left_over.set(true);
            }
        }
        self.cursor.read_exact_bytes(buf)
    }

    #[inline]
    fn read_bytes(&mut self, buf: &mut [u8]) -> Result<usize, ZByteIoError> {
        self.cursor.read_bytes(buf)
    }

    fn peek_bytes(&mut self, buf: &mut [u8]) -> Result<usize, ZByteIoError> {
        self.cursor.peek_bytes(buf)
    }

    fn peek_exact_bytes(&mut self, buf: &mut [u8]) -> Result<(), ZByteIoError> {
        self.cursor.peek_exact_bytes(buf)
    }

    #[inline]
    fn z_seek(&mut self, from: ZSeekFrom) -> Result<u64, ZByteIoError> {
        self.cursor.z_seek(from)
    }

    #[inline]
    fn is_eof(&mut self) -> Result<bool, ZByteIoError> {
        self.cursor.is_eof()
    }

    #[inline]
    fn z_position(&mut self) -> Result<u64, ZByteIoError> {
        self.cursor.z_position()
    }

    fn read_remaining(&mut self, sink: &mut Vec<u8>) -> Result<usize, ZByteIoError> {
        self.cursor.read_remaining(sink)
    }
}
