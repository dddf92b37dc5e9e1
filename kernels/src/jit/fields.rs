//! Fields as bytes, for files and pipes: each its length in eight bytes, little end first, and then the field itself.

use std::io::{self, ErrorKind, Read, Write};

/// Longest frame that is read; a longer one is no frame of ours.
const MAX_FRAME_BYTES: u64 = 256 << 20;

/// Appends a field.
pub(super) fn put(out: &mut Vec<u8>, field: &[u8]) {
    out.extend((field.len() as u64).to_le_bytes());
    out.extend(field);
}

/// Appends a number as a field.
pub(super) fn put_number(out: &mut Vec<u8>, number: u32) {
    put(out, &number.to_le_bytes());
}

/// Takes fields off the front of bytes. Each method gives `None` where the bytes hold no such field.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.0.split_first_chunk()?;
        let (field, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        self.0 = rest;
        Some(field)
    }

    pub(super) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    pub(super) fn number(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes()?.try_into().ok()?))
    }

    /// The rest, each element by `take`.
    pub(super) fn all<T>(&mut self, take: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut all = Vec::new();
        while !self.0.is_empty() {
            all.push(take(self)?);
        }
        Some(all)
    }
}

/// Writes fields as one message.
pub(super) fn write_frame(to: &mut impl Write, fields: &[u8]) -> io::Result<()> {
    to.write_all(&(fields.len() as u64).to_le_bytes())?;
    to.write_all(fields)?;
    to.flush()
}

/// Reads one message; `None` where the other side closed the pipe between two.
pub(super) fn read_frame(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = Vec::new();
    from.take(8).read_to_end(&mut length)?;
    if length.is_empty() {
        return Ok(None);
    }
    let length = u64::from_le_bytes(length.try_into().map_err(|_| ErrorKind::UnexpectedEof)?);
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("a message of {length} bytes")));
    }
    // Grows with what arrives: a false length takes no memory.
    let mut frame = Vec::new();
    from.take(length).read_to_end(&mut frame)?;
    if (frame.len() as u64) < length { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(Some(frame)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_in_order() {
        let mut bytes = Vec::new();
        put(&mut bytes, "é".as_bytes());
        put(&mut bytes, b"");
        put_number(&mut bytes, 90);
        let mut fields = Fields(&bytes);
        assert_eq!(
            (fields.text().as_deref(), fields.text().as_deref(), fields.number()),
            (Some("é"), Some(""), Some(90))
        );
        assert_eq!(fields.bytes(), None);
        for end in 0..bytes.len() {
            let mut fields = Fields(&bytes[..end]);
            assert!(fields.text().is_none() || fields.text().is_none() || fields.number().is_none(), "{end}");
        }
        let mut false_length = Fields(&[0xff; 12]);
        assert_eq!(false_length.bytes(), None);
    }

    #[test]
    fn frames_end_at_a_closed_pipe_and_are_never_cut_silently() {
        let mut pipe = Vec::new();
        write_frame(&mut pipe, b"abc").unwrap();
        write_frame(&mut pipe, b"").unwrap();
        let mut from = &pipe[..];
        assert_eq!(read_frame(&mut from).unwrap().as_deref(), Some(&b"abc"[..]));
        assert_eq!(read_frame(&mut from).unwrap().as_deref(), Some(&b""[..]));
        assert_eq!(read_frame(&mut from).unwrap(), None);
        for end in 1..11 {
            assert_eq!(read_frame(&mut &pipe[..end]).unwrap_err().kind(), ErrorKind::UnexpectedEof, "{end}");
        }
        assert_eq!(read_frame(&mut &[0xff; 9][..]).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
