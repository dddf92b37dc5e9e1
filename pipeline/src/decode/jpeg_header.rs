//! What a JPEG file is, read from its markers without decoding it.
//!
//! [`parse`] walks the whole file as libjpeg does: bytes that belong to no segment are skipped up to the next marker, a
//! wrong segment length costs what it covers and no more, the walk ends at the first end-of-image marker, and what
//! follows that marker (thumbnails, a second picture, a video) is left alone. The marker codes and the layout of the
//! segments are those of ITU-T T.81, annex B.

use std::ops::Range;

use super::markers::next_marker;

/// How the samples are coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// SOF0.
    Baseline,
    /// SOF1, SOF9.
    ExtendedSequential,
    /// SOF2, SOF10.
    Progressive,
    /// SOF3, SOF11.
    Lossless,
    /// SOF5-7, SOF13-15, or a DHP marker: a pyramid of frames.
    Hierarchical,
}

/// One colour component of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component {
    /// Identifier; scans refer to it.
    pub id: u8,
    /// Horizontal sampling factor, 1 to 4 in a valid file.
    pub h: u8,
    /// Vertical sampling factor, 1 to 4 in a valid file.
    pub v: u8,
}

/// The frame header (SOF segment).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// How the samples are coded.
    pub process: Process,
    /// Arithmetic coding instead of Huffman coding.
    pub arithmetic: bool,
    /// Bits of a sample.
    pub precision_bits: u8,
    /// Columns.
    pub width_px: u16,
    /// Rows. 0: to be told by a DNL marker after the first scan.
    pub height_px: u16,
    /// In the order of the file.
    pub components: Vec<Component>,
}

impl Frame {
    /// Number of MCUs in a scan of all components.
    pub fn mcus(&self) -> usize {
        let factors = |f: fn(&Component) -> u8| {
            // The factors of a single component mean nothing: its MCU is one block.
            let largest = self.components.iter().map(f).max().filter(|_| self.components.len() > 1);
            8 * usize::from(largest.unwrap_or(1).max(1))
        };
        usize::from(self.width_px).div_ceil(factors(|c| c.h)) * usize::from(self.height_px).div_ceil(factors(|c| c.v))
    }

    /// Number of blocks in a scan of this component alone (T.81, A.1.1 and A.2.2).
    pub fn blocks(&self, component: &Component) -> usize {
        let along = |size: u16, factor: u8, f: fn(&Component) -> u8| {
            let largest = self.components.iter().map(f).max().unwrap_or(1).max(1);
            (usize::from(size) * usize::from(factor)).div_ceil(8 * usize::from(largest))
        };
        along(self.width_px, component.h, |c| c.h) * along(self.height_px, component.v, |c| c.v)
    }
}

/// One scan: a SOS segment and the entropy-coded bytes after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Components in the scan, as its header counts them.
    pub components: u8,
    /// The scan header from that count on, as a range of the file: the count, two bytes a component (its identifier; its
    /// two Huffman tables), first and last coefficient, the bit positions of successive approximation (before, after).
    pub header: Range<usize>,
    /// The entropy-coded bytes with their restart markers, as a range of the file.
    pub data: Range<usize>,
    /// Number of its restart markers.
    pub restarts: usize,
    /// Its restart markers do not count 0, 1, .. 7, 0, ..: data is missing or damaged.
    pub restarts_out_of_order: bool,
}

/// How the walk over the file ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// At an end-of-image marker.
    Eoi,
    /// At the end of the file, inside a segment or a scan or between them: the file was cut, or its writer forgot the
    /// end-of-image marker.
    #[default]
    Missing,
}

/// What [`parse`] finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JpegHeader {
    /// The first frame header; `None` in a file without any.
    pub frame: Option<Frame>,
    /// Number of frame headers. More than one are of a hierarchical file, or there to mislead: decoders differ in which
    /// one they take.
    pub frames: usize,
    /// MCUs between restart markers as of the first scan, 0 for none.
    pub restart_interval: u16,
    /// A JFIF segment is there: three components are Y, Cb, Cr.
    pub jfif: bool,
    /// The colour transform of an Adobe segment: 0 none, 1 Y Cb Cr, 2 Y Cb Cr K; other values are out of the standard.
    pub adobe_transform: Option<u8>,
    /// The TIFF structure in the first EXIF segment, for [`super::exif::orientation`].
    pub exif: Option<Range<usize>>,
    /// The segments before the first scan that decoding needs (DQT, DHT, DRI, DAC, SOF), marker and length included.
    pub tables: Vec<Range<usize>>,
    /// First byte of the first SOS marker.
    pub first_sos: Option<usize>,
    /// All scans.
    pub scans: Vec<Scan>,
    /// Bytes or markers that have no place there, or a DNL marker, lie between the segments: decoders make different things
    /// of them.
    pub junk: bool,
    /// How the file ended.
    pub end: End,
    /// Bytes up to the end of that marker, or all.
    pub length_bytes: usize,
    /// Empty: memory for the components of the next file's frame.
    spare: Vec<Component>,
}

/// Segments, and scans, whose memory is kept for the next file.
const MOST_KEPT: usize = 64;

pub(super) mod code {
    //! Second bytes of the markers.
    pub(super) const SOF0: u8 = 0xC0;
    pub(super) const SOF15: u8 = 0xCF;
    pub(in crate::decode) const DHT: u8 = 0xC4;
    pub(super) const JPG: u8 = 0xC8;
    pub(super) const DAC: u8 = 0xCC;
    pub(super) const RST0: u8 = 0xD0;
    pub(super) const RST7: u8 = 0xD7;
    pub(super) const SOI: u8 = 0xD8;
    pub(super) const EOI: u8 = 0xD9;
    pub(super) const SOS: u8 = 0xDA;
    pub(in crate::decode) const DQT: u8 = 0xDB;
    pub(super) const DNL: u8 = 0xDC;
    pub(super) const DRI: u8 = 0xDD;
    pub(super) const DHP: u8 = 0xDE;
    pub(super) const APP0: u8 = 0xE0;
    pub(super) const APP1: u8 = 0xE1;
    pub(super) const APP14: u8 = 0xEE;
    pub(super) const TEM: u8 = 0x01;
}

/// Whether the bytes begin like a JPEG file (an SOI marker).
pub fn is_jpeg(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xFF, code::SOI])
}

/// Reads the structure of a JPEG file; `None` if it does not begin with an SOI marker.
///
/// Any bytes are taken without panic, in time linear in their number and with memory for the scans and segments only.
/// Nothing is judged here: a header may describe a file that no decoder takes.
pub fn parse(bytes: &[u8]) -> Option<JpegHeader> {
    let mut header = JpegHeader::default();
    header.read(bytes).then_some(header)
}

impl JpegHeader {
    /// Becomes that of another file, as [`parse`] finds it, in the same memory. False if the file does not begin with an SOI
    /// marker.
    pub fn read(&mut self, bytes: &[u8]) -> bool {
        let Self { frame, mut tables, mut scans, spare, .. } = std::mem::take(self);
        // Of a file of very many segments the memory does not stay.
        tables.clear();
        tables.shrink_to(MOST_KEPT);
        scans.clear();
        scans.shrink_to(MOST_KEPT);
        let mut spare = frame.map_or(spare, |frame| frame.components);
        spare.clear();
        *self = Self { tables, scans, spare, length_bytes: bytes.len(), ..Self::default() };
        if !is_jpeg(bytes) {
            return false;
        }
        let mut hierarchical = false;
        let mut at = 2;
        while let Some((marker, code_at)) = next_marker(bytes, at) {
            // Any number of fill bytes may stand before the marker's code.
            self.junk |= bytes[at..code_at].iter().any(|&byte| byte != 0xFF);
            at = code_at + 1;
            match marker {
                code::EOI => {
                    self.end = End::Eoi;
                    self.length_bytes = at;
                    break;
                }
                // Markers without a segment. A second SOI or a stray restart marker means nothing here.
                code::SOI | code::TEM | code::RST0..=code::RST7 => {
                    self.junk = true;
                    continue;
                }
                _ => {}
            }
            let Some(length) = bytes.get(at..at + 2).map(|b| usize::from(u16::from_be_bytes([b[0], b[1]]))) else {
                break;
            };
            // A length below 2 is wrong; it covers itself alone.
            self.junk |= length < 2;
            let end = at + length.max(2);
            let Some(body) = bytes.get(at + 2..end) else { break };
            match marker {
                code::SOS => {
                    self.first_sos.get_or_insert(code_at - 1);
                    let scan = Scan::read(at + 2..end, bytes);
                    at = scan.data.end;
                    self.scans.push(scan);
                    continue;
                }
                code::DHP => hierarchical = true,
                // Some decoders take its height, others keep the frame header's or give up.
                code::DNL => self.junk = true,
                _ => self.segment(marker, code_at - 1..end, body),
            }
            at = end;
        }
        if hierarchical && let Some(frame) = &mut self.frame {
            frame.process = Process::Hierarchical;
        }
        true
    }

    /// Takes over what a segment other than SOS says. `range` is the whole segment, `body` what follows its length.
    fn segment(&mut self, marker: u8, range: Range<usize>, body: &[u8]) {
        let body_at = range.end - body.len();
        let in_head = self.scans.is_empty();
        match marker {
            code::DHT | code::DAC | code::DQT if in_head => self.tables.push(range),
            code::DRI if in_head => {
                if let [high, low] = *body {
                    self.restart_interval = u16::from_be_bytes([high, low]);
                    self.tables.push(range);
                }
            }
            code::APP0 => self.jfif |= body.starts_with(b"JFIF\0"),
            code::APP1 if self.exif.is_none() && body.starts_with(b"Exif\0") => {
                self.exif = Some((body_at + 6).min(range.end)..range.end);
            }
            // "Adobe", version, two flag words, the transform.
            code::APP14 if body.starts_with(b"Adobe") => {
                if let Some(&transform) = body.get(11) {
                    self.adobe_transform = Some(transform);
                }
            }
            code::SOF0..=code::SOF15 if !matches!(marker, code::DHT | code::JPG | code::DAC) => {
                self.frames += 1;
                if self.frame.is_none() {
                    self.frame = Frame::parse(marker, body, &mut self.spare);
                    if in_head && self.frame.is_some() {
                        self.tables.push(range);
                    }
                }
            }
            _ => {}
        }
    }
}

impl Frame {
    /// The frame header in the body of a SOF segment; `None` if it is too short for the components it announces, which are put
    /// into `spare`'s memory.
    fn parse(marker: u8, body: &[u8], spare: &mut Vec<Component>) -> Option<Self> {
        let (&[precision_bits, h1, h0, w1, w0, count], list) = body.split_first_chunk()?;
        let list = list.get(..3 * usize::from(count))?;
        let n = marker - code::SOF0;
        let process = match n {
            0 => Process::Baseline,
            1 | 9 => Process::ExtendedSequential,
            2 | 10 => Process::Progressive,
            3 | 11 => Process::Lossless,
            _ => Process::Hierarchical,
        };
        spare.extend(list.chunks_exact(3).map(|c| Component { id: c[0], h: c[1] >> 4, v: c[1] & 15 }));
        Some(Self {
            process,
            arithmetic: n > 8,
            precision_bits,
            width_px: u16::from_be_bytes([w1, w0]),
            height_px: u16::from_be_bytes([h1, h0]),
            components: std::mem::take(spare),
        })
    }
}

impl Scan {
    /// The scan whose header is there, with the entropy-coded bytes after it up to the marker that ends them.
    fn read(header: Range<usize>, bytes: &[u8]) -> Self {
        let start = header.end;
        let components = bytes[header.clone()].first().copied().unwrap_or(0);
        let mut scan = Self { components, header, data: start..bytes.len(), restarts: 0, restarts_out_of_order: false };
        let mut at = start;
        while let Some((marker, code_at)) = next_marker(bytes, at) {
            if !(code::RST0..=code::RST7).contains(&marker) {
                scan.data.end = code_at - 1;
                break;
            }
            scan.restarts_out_of_order |= usize::from(marker - code::RST0) != scan.restarts % 8;
            scan.restarts += 1;
            at = code_at + 1;
        }
        scan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(marker: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xFF, marker];
        bytes.extend(u16::try_from(body.len() + 2).unwrap().to_be_bytes());
        bytes.extend(body);
        bytes
    }

    fn sof(marker: u8) -> Vec<u8> {
        segment(marker, &[8, 0, 30, 0, 40, 3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1])
    }

    fn sos(components: &[u8], data: &[u8]) -> Vec<u8> {
        let mut body = vec![components.len() as u8];
        body.extend(components.iter().flat_map(|&c| [c, 0]));
        body.extend([0, 63, 0]);
        [segment(code::SOS, &body), data.to_vec()].concat()
    }

    fn file(parts: &[Vec<u8>]) -> Vec<u8> {
        [vec![0xFF, code::SOI], parts.concat()].concat()
    }

    const EOI: [u8; 2] = [0xFF, code::EOI];

    #[test]
    fn reads_an_ordinary_file() {
        let bytes = file(&[
            segment(code::APP0, b"JFIF\0\x01\x02\0\0\x01\0\x01\0\0"),
            segment(code::APP1, b"Exif\0\0II*\0"),
            segment(0xE2, b"ICC_PROFILE\0\x01\x01x"),
            segment(code::APP14, b"Adobe\0\x64\0\0\0\0\x01"),
            segment(code::DQT, &[0; 65]),
            sof(0xC0),
            segment(code::DRI, &[0, 5]),
            sos(&[1, 2, 3], &[1, 0xFF, 0, 2, 0xFF, 0xD0, 3, 0xFF, 0xD1, 4]),
            EOI.to_vec(),
            vec![0xFF, code::SOI, 9, 9],
        ]);
        let header = parse(&bytes).unwrap();
        let frame = header.frame.as_ref().unwrap();
        assert_eq!(frame.process, Process::Baseline);
        assert!(!frame.arithmetic);
        assert_eq!((frame.width_px, frame.height_px, frame.precision_bits), (40, 30, 8));
        assert_eq!(frame.components[0], Component { id: 1, h: 2, v: 2 });
        assert_eq!(frame.components[2], Component { id: 3, h: 1, v: 1 });
        assert_eq!(frame.mcus(), 3 * 2);
        assert!(header.jfif);
        assert_eq!(header.adobe_transform, Some(1));
        assert_eq!(&bytes[header.exif.clone().unwrap()], b"II*\0");
        assert_eq!(header.restart_interval, 5);
        assert_eq!(header.tables.len(), 3);
        assert_eq!(header.scans.len(), 1);
        assert_eq!(header.scans[0].components, 3);
        assert_eq!(&bytes[header.scans[0].header.clone()], [3, 1, 0, 2, 0, 3, 0, 0, 63, 0]);
        assert!(!header.scans[0].restarts_out_of_order);
        assert_eq!(&bytes[header.scans[0].data.clone()], [1, 0xFF, 0, 2, 0xFF, 0xD0, 3, 0xFF, 0xD1, 4]);
        assert_eq!(header.end, End::Eoi);
        assert!(!header.junk);
        assert_eq!(header.frames, 1);
        assert_eq!(header.length_bytes, bytes.len() - 4);
    }

    #[test]
    fn frame_headers_are_counted_and_the_first_one_stands() {
        let bytes = file(&[sof(0xC0), sof(0xC2), sos(&[1, 2, 3], &[7; 9]), sof(0xC1), segment(0xC0, &[8])]);
        let header = parse(&bytes).unwrap();
        assert_eq!(header.frames, 4);
        assert_eq!(header.frame.unwrap().process, Process::Baseline);
        assert_eq!(header.length_bytes, bytes.len());
    }

    #[test]
    fn knows_every_process() {
        for (marker, process, arithmetic) in [
            (0xC0, Process::Baseline, false),
            (0xC1, Process::ExtendedSequential, false),
            (0xC2, Process::Progressive, false),
            (0xC3, Process::Lossless, false),
            (0xC5, Process::Hierarchical, false),
            (0xC6, Process::Hierarchical, false),
            (0xC7, Process::Hierarchical, false),
            (0xC9, Process::ExtendedSequential, true),
            (0xCA, Process::Progressive, true),
            (0xCB, Process::Lossless, true),
            (0xCD, Process::Hierarchical, true),
            (0xCE, Process::Hierarchical, true),
            (0xCF, Process::Hierarchical, true),
        ] {
            let frame = parse(&file(&[sof(marker)])).unwrap().frame.unwrap();
            assert_eq!((frame.process, frame.arithmetic), (process, arithmetic), "marker {marker:02X}");
        }
        for marker in [code::DHT, code::JPG, code::DAC] {
            assert_eq!(parse(&file(&[sof(marker)])).unwrap().frame, None, "marker {marker:02X} is no frame");
        }
        let pyramid = file(&[segment(code::DHP, &[8, 0, 30, 0, 40, 0]), sof(0xC0)]);
        assert_eq!(parse(&pyramid).unwrap().frame.unwrap().process, Process::Hierarchical);
    }

    #[test]
    fn skips_what_is_no_segment() {
        let plain = file(&[sof(0xC0), sos(&[1, 2, 3], &[7; 20]), EOI.to_vec()]);
        let expected = parse(&plain).unwrap();
        for junk in [
            &[0xFF, 0xFF, 0xFF][..],
            &[0xFF, 0, 0xFF, 0],
            &[1, 2, 3, 4],
            &[0xFF, code::SOI],
            &[0xFF, code::TEM],
            &[0xFF, 0xD3],
            &[0xFF, 0xFE, 0, 0],
            &[0xFF, 0xFE, 0, 1],
        ] {
            let bytes = file(&[junk.to_vec(), sof(0xC0), junk.to_vec(), sos(&[1, 2, 3], &[7; 20]), EOI.to_vec()]);
            let header = parse(&bytes).unwrap();
            assert_eq!(header.frame, expected.frame, "junk {junk:02X?}");
            assert_eq!(header.scans.len(), 1, "junk {junk:02X?}");
            assert_eq!(header.end, End::Eoi, "junk {junk:02X?}");
            assert_eq!(header.junk, junk != [0xFF; 3], "junk {junk:02X?}");
        }
    }

    #[test]
    fn a_wrong_length_costs_no_more_than_it_covers() {
        // An EXIF segment two bytes short: its last bytes are junk before the next marker.
        let mut app = segment(code::APP1, b"Exif\0\0II*\0....");
        app[3] -= 2;
        let header = parse(&file(&[app, sof(0xC0), sos(&[1], &[7; 9]), EOI.to_vec()])).unwrap();
        assert!(header.frame.is_some() && header.junk);
        assert_eq!(header.scans.len(), 1);
    }

    #[test]
    fn every_cut_is_seen() {
        let bytes = file(&[
            segment(code::APP1, b"Exif\0\0II*\0"),
            sof(0xC2),
            sos(&[1, 2, 3], &[7; 20]),
            segment(code::DHT, &[0; 20]),
            sos(&[1], &[8; 20]),
            EOI.to_vec(),
        ]);
        assert_eq!(parse(&bytes).unwrap().end, End::Eoi);
        for cut in 2..bytes.len() {
            assert_eq!(parse(&bytes[..cut]).unwrap().end, End::Missing, "cut at {cut}");
        }
        assert_eq!(parse(&bytes[..1]), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn restart_markers_are_counted() {
        let data = |order: &[u8]| order.iter().flat_map(|&n| [7, 0xFF, code::RST0 + n]).collect::<Vec<_>>();
        for (order, wrong) in [
            (&[][..], false),
            (&[0, 1, 2, 3, 4, 5, 6, 7, 0, 1], false),
            (&[1], true),
            (&[0, 2], true),
            (&[0, 0], true),
            (&[0, 1, 2, 3, 4, 5, 6, 7, 1], true),
        ] {
            let header = parse(&file(&[sof(0xC0), sos(&[1, 2, 3], &data(order)), EOI.to_vec()])).unwrap();
            assert_eq!(header.scans[0].restarts_out_of_order, wrong, "{order:?}");
            assert_eq!(header.scans[0].restarts, order.len());
        }
    }
}
