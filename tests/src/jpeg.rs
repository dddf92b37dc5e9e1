//! JPEG files made in code: of any size, and of few bytes.

/// A baseline grey JPEG of stripes across, from middle to light grey and back: a quarter of a byte for a block of 64 pixels,
/// so that 100 megapixels are 400 kB and quick to decode.
pub fn striped(width_px: u16, height_px: u16) -> Vec<u8> {
    let [w0, w1] = width_px.to_be_bytes();
    let [h0, h1] = height_px.to_be_bytes();
    let mut file = vec![0xff, 0xd8];
    let mut segment = |marker: u8, body: &[u8]| {
        let length = body.len() as u16 + 2;
        file.extend([0xff, marker]);
        file.extend(length.to_be_bytes());
        file.extend(body);
    };
    // All quantisers are 8: a step of the DC coefficient is one of brightness.
    segment(0xdb, &[&[0][..], &[8; 64]].concat());
    segment(0xc0, &[8, h0, h1, w0, w1, 1, 1, 0x11, 0]);
    // Two DC codes, 0 for "as before" and 10 for a difference of four bits; one AC code, 0 for "no more".
    segment(0xc4, &[&[0x00, 1, 1][..], &[0; 14], &[0, 4]].concat());
    segment(0xc4, &[&[0x10, 1][..], &[0; 15], &[0]].concat());
    segment(0xda, &[1, 1, 0x00, 0, 63, 0]);
    let mut bits = Bits { file, byte: 0, filled: 0 };
    let [columns, rows] = [width_px, height_px].map(|px| px.div_ceil(8));
    for row in 0..rows {
        // Eight steps of 9 up from the middle grey, eight down, and so on; -9 is written as 15 - 9.
        bits.put(0b10, 2);
        bits.put(if row / 8 % 2 == 0 { 9 } else { 6 }, 4);
        bits.put(0, 1);
        for _ in 1..columns {
            bits.put(0, 2);
        }
    }
    bits.end()
}

/// The data of a scan, which never has a byte of eight ones here.
struct Bits {
    file: Vec<u8>,
    byte: u8,
    filled: u32,
}

impl Bits {
    fn put(&mut self, value: u16, count: u32) {
        for bit in (0..count).rev() {
            self.byte = self.byte << 1 | (value >> bit & 1) as u8;
            self.filled += 1;
            if self.filled == 8 {
                self.file.push(self.byte);
                (self.byte, self.filled) = (0, 0);
            }
        }
    }

    fn end(mut self) -> Vec<u8> {
        while self.filled != 0 {
            self.put(1, 1);
        }
        self.file.extend([0xff, 0xd9]);
        self.file
    }
}
