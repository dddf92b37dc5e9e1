//! Finds the markers of a JPEG file among its bytes (ITU-T T.81, B.1.1.2).

/// The next marker at or after `from`: its code and where the code is. Skips what is no marker: other bytes, stuffed
/// zeros, fill bytes.
pub(super) fn next_marker(bytes: &[u8], from: usize) -> Option<(u8, usize)> {
    let mut at = from;
    loop {
        at += without_marker(bytes.get(at..)?);
        at += memchr::memchr(0xFF, &bytes[at..])?;
        at += bytes[at..].iter().position(|&b| b != 0xFF)?;
        if bytes[at] != 0 {
            return Some((bytes[at], at));
        }
    }
}

/// How many of the first bytes begin no marker, in whole blocks. Every 256th byte of a scan or so is a 0xFF, with a stuffed zero
/// behind it: to stop at each costs four times what it costs to compare all bytes and their neighbours, many at once.
fn without_marker(bytes: &[u8]) -> usize {
    const BLOCK: usize = 64;
    let next = bytes.get(1..).unwrap_or_default();
    // Numbers instead of conditions, and to the end in any case: so the compiler compares many at once.
    let begins = |(block, next): (&[u8], &[u8])| {
        let pairs = block.iter().zip(next);
        pairs.fold(0, |found, (&byte, &next)| found | (u8::from(byte == 0xFF) & u8::from(next != 0))) != 0
    };
    let mut blocks = bytes.chunks_exact(BLOCK).zip(next.chunks_exact(BLOCK));
    BLOCK * blocks.position(begins).unwrap_or(next.len() / BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_where_a_plain_loop_finds_them() {
        /// As [`next_marker`], byte by byte.
        fn plain(bytes: &[u8], from: usize) -> Option<(u8, usize)> {
            (from + 1..bytes.len())
                .find(|&at| bytes[at - 1] == 0xFF && !matches!(bytes[at], 0 | 0xFF))
                .map(|at| (bytes[at], at))
        }
        // Long stretches without a marker, and bytes that are all about them.
        let mut state = 1_u32;
        let mut random = |n: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % n
        };
        for round in 0..3000 {
            let len = random(if round % 3 == 0 { 20 } else { 500 }) as usize;
            let rare = [3, 40, 2000][round % 3];
            let mut bytes: Vec<u8> = Vec::with_capacity(len);
            while bytes.len() < len {
                match random(rare) {
                    0 => bytes.push(random(256) as u8),
                    1 => bytes.extend([0xFF, 0xD0 + random(8) as u8]),
                    2 => bytes.extend([0xFF, 0xFF]),
                    n if n % 7 == 0 => bytes.extend([0xFF, 0]),
                    n => bytes.push(n as u8 & 0x7F),
                }
            }
            for from in 0..=len.min(70) {
                assert_eq!(next_marker(&bytes, from), plain(&bytes, from), "{bytes:?} from {from}");
            }
            assert_eq!(next_marker(&bytes, len + 1), None);
        }
    }
}
