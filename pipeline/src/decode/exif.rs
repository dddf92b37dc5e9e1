//! The orientation tag of an EXIF block.

use super::orient::Orientation;

/// The tag `Orientation` (TIFF 6.0, EXIF 2.32).
const ORIENTATION: u16 = 0x0112;

/// The orientation that an EXIF block states in its first image directory.
///
/// `exif` begins with the TIFF header (`II*\0` or `MM\0*`), with or without `Exif\0\0` before it. `None` if there is no
/// such tag, its value is not 1 to 8, or the block is broken: bad EXIF never costs the picture.
pub fn orientation(exif: &[u8]) -> Option<Orientation> {
    let tiff = Tiff::new(exif.strip_prefix(b"Exif\0\0").unwrap_or(exif))?;
    let directory = tiff.u32(4)? as usize;
    let entries = usize::from(tiff.u16(directory)?);
    let first = directory.checked_add(2)?;
    // A directory has at most 65,535 entries, and the walk ends where the block does.
    let entry = (0..entries).map_while(|n| {
        let at = first.checked_add(12 * n)?;
        Some((at, tiff.u16(at)?))
    });
    let (at, _) = entry.into_iter().find(|&(_, tag)| tag == ORIENTATION)?;
    let value_at = at.checked_add(8)?;
    let value = match tiff.u16(at.checked_add(2)?)? {
        1 => u32::from(*tiff.bytes.get(value_at)?),
        3 => u32::from(tiff.u16(value_at)?),
        4 => tiff.u32(value_at)?,
        _ => return None,
    };
    Orientation::from_exif(value)
}

/// A TIFF structure with its byte order.
struct Tiff<'a> {
    bytes: &'a [u8],
    big_endian: bool,
}

impl<'a> Tiff<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        match bytes.get(..4)? {
            b"II*\0" => Some(Self { bytes, big_endian: false }),
            b"MM\0*" => Some(Self { bytes, big_endian: true }),
            _ => None,
        }
    }

    fn u16(&self, at: usize) -> Option<u16> {
        let raw = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.big_endian { u16::from_be_bytes(raw) } else { u16::from_le_bytes(raw) })
    }

    fn u32(&self, at: usize) -> Option<u32> {
        let raw = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.big_endian { u32::from_be_bytes(raw) } else { u32::from_le_bytes(raw) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block with one other tag before the orientation, of the given field type.
    fn block(big_endian: bool, field_type: u16, value: u32) -> Vec<u8> {
        let u16 = |v: u16| if big_endian { v.to_be_bytes() } else { v.to_le_bytes() };
        let u32 = |v: u32| if big_endian { v.to_be_bytes() } else { v.to_le_bytes() };
        let mut bytes = if big_endian { b"MM\0*".to_vec() } else { b"II*\0".to_vec() };
        bytes.extend(u32(8));
        bytes.extend(u16(2));
        bytes.extend([u16(0x010F), u16(2)].concat());
        bytes.extend([u32(4), u32(0x2121_2121)].concat());
        bytes.extend([u16(ORIENTATION), u16(field_type)].concat());
        bytes.extend(u32(1));
        bytes.extend(match field_type {
            1 => vec![value as u8, 0, 0, 0],
            3 => [u16(value as u16), [0, 0]].concat(),
            _ => u32(value).to_vec(),
        });
        bytes.extend(u32(0));
        bytes
    }

    #[test]
    fn all_values_types_and_byte_orders() {
        for big_endian in [false, true] {
            for field_type in [1, 3, 4] {
                for value in 0..=10 {
                    let exif = block(big_endian, field_type, value);
                    assert_eq!(orientation(&exif), Orientation::from_exif(value), "{big_endian} {field_type} {value}");
                    let with_prefix = [&b"Exif\0\0"[..], &exif].concat();
                    assert_eq!(orientation(&with_prefix), Orientation::from_exif(value));
                }
            }
            assert_eq!(orientation(&block(big_endian, 2, 6)), None, "a text is no orientation");
            assert_eq!(orientation(&block(big_endian, 3, 65_535)), None);
        }
        assert_eq!(orientation(&block(true, 3, 6)), Some(Orientation::Rotate90));
    }

    #[test]
    fn broken_blocks_say_nothing() {
        let whole = block(false, 3, 6);
        // The last 6 bytes are two of padding and the link to the next directory: not needed.
        for cut in 0..whole.len() - 6 {
            assert_eq!(orientation(&whole[..cut]), None, "cut at {cut}");
        }
        for offset in [0, 7, 9, 1 << 20, u32::MAX - 1, u32::MAX] {
            let mut moved = whole.clone();
            moved[4..8].copy_from_slice(&offset.to_le_bytes());
            assert_eq!(orientation(&moved), None, "directory at {offset}");
        }
        assert_eq!(orientation(b"II+\0\x08\0\0\0"), None, "BigTIFF is no EXIF");
    }
}
