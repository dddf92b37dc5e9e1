//! Small texts that people write: cards, labels, jobs.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error};

/// Longest text that is read. What is longer was named by mistake.
const MOST_BYTES: u64 = 16 << 20;

/// Reads a text.
///
/// # Errors
/// Where it cannot be read, is longer than 16 MiB or not UTF-8; the reason then has the line.
pub fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    let invalid = |what: String| io::Error::new(ErrorKind::InvalidData, what);
    if bytes.len() as u64 > MOST_BYTES {
        return Err(invalid("longer than 16 MiB".into()));
    }
    String::from_utf8(bytes).map_err(|error| {
        let sound = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        invalid(format!("line {}: not UTF-8", line(sound)))
    })
}

/// Reads TOML.
///
/// # Errors
/// One line that says what is wrong, and in which line where that is known.
pub fn toml<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| {
        let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        match error.span() {
            Some(span) => format!("line {}: {message}", line(&text.as_bytes()[..span.start.min(text.len())])),
            None => message,
        }
    })
}

/// The line, from 1, that begins or goes on behind this text.
fn line(before: &[u8]) -> usize {
    1 + memchr::memchr_iter(b'\n', before).count()
}

/// Three values. An array of serde's takes the first three of more.
pub(super) fn three<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<[T; 3], D::Error> {
    let values = Vec::deserialize(deserializer)?;
    <[T; 3]>::try_from(values).map_err(|values| D::Error::invalid_length(values.len(), &"three values"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_an_end_and_errors_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        for (bytes, expected) in [
            (b"a\nb".to_vec(), Ok("a\nb")),
            (b"a\n\xff".to_vec(), Err("line 2: not UTF-8")),
            (b"a\n\nb\xe2\x82".to_vec(), Err("line 3: not UTF-8")),
            (vec![b' '; 1 + MOST_BYTES as usize], Err("longer than 16 MiB")),
        ] {
            std::fs::write(&path, bytes).unwrap();
            match (read(&path), expected) {
                (Ok(text), Ok(expected)) => assert_eq!(text, expected),
                (Err(error), Err(expected)) => assert_eq!(error.to_string(), expected),
                (found, _) => panic!("{found:?} instead of {expected:?}"),
            }
        }
        assert!(read(Path::new("/dev/zero")).is_err());
    }
}
