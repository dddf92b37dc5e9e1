//! A list of paths, one a line.

use std::ffi::OsString;
use std::io::{self, BufRead, ErrorKind, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use crate::stage::Cancel;

/// Longest line; no system has longer paths.
const MAX_LINE_BYTES: u64 = 64 * 1024;
/// What some editors begin a text with; no path does.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// How often a waiting reader looks whether it should stop.
const POLL: Duration = Duration::from_millis(50);

/// Paths from a reader. Reading happens on a thread of its own, which is left behind when the job is cancelled: a read
/// from a terminal or a pipe that nobody writes to cannot be interrupted.
pub(super) struct Lines {
    lines: Receiver<io::Result<PathBuf>>,
    cancel: Cancel,
}

impl Lines {
    /// Starts to read. `open` is called on the reading thread.
    pub(super) fn new<R: BufRead>(open: impl FnOnce() -> R + Send + 'static, cancel: Cancel) -> io::Result<Self> {
        let (sender, lines) = sync_channel(64);
        std::thread::Builder::new().name("list".into()).spawn(move || {
            let mut reader = open();
            if reader.fill_buf().is_ok_and(|start| start.starts_with(BYTE_ORDER_MARK)) {
                reader.consume(BYTE_ORDER_MARK.len());
            }
            loop {
                let line = read_line(&mut reader);
                let last = match &line {
                    Ok(line) => line.is_none(),
                    Err(error) => error.kind() != ErrorKind::InvalidData,
                };
                let sent = line.transpose().map(|line| sender.send(line));
                if last || sent.is_some_and(|sent| sent.is_err()) {
                    break;
                }
            }
        })?;
        Ok(Self { lines, cancel })
    }
}

impl Iterator for Lines {
    type Item = io::Result<PathBuf>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.cancel.is_set() {
            match self.lines.recv_timeout(POLL) {
                Ok(line) => return Some(line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }
}

/// The next line that is not empty, without its end (`\n` or `\r\n`); its bytes are kept as they are. `InvalidData` where it
/// is no path; what follows may be.
fn read_line(reader: &mut impl BufRead) -> io::Result<Option<PathBuf>> {
    loop {
        let mut line = Vec::new();
        if reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
        } else if line.len() as u64 == MAX_LINE_BYTES {
            reader.skip_until(b'\n')?;
            return Err(no_path("longer than 64 KiB"));
        }
        if line.contains(&0) {
            return Err(no_path("with a zero byte; write one path a line, as find does without -print0"));
        }
        if !line.is_empty() {
            return Ok(Some(OsString::from_vec(line).into()));
        }
    }
}

fn no_path(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("a line {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Cursor};
    use std::os::unix::ffi::OsStrExt;

    fn lines(text: &'static [u8]) -> Vec<Vec<u8>> {
        let lines = Lines::new(move || Cursor::new(text), Cancel::default()).unwrap();
        lines.map(|line| line.unwrap().as_os_str().as_bytes().to_vec()).collect()
    }

    #[test]
    fn lines_keep_their_bytes() {
        assert_eq!(lines(b""), Vec::<Vec<u8>>::new());
        assert_eq!(lines(b"\n\r\n\n"), Vec::<Vec<u8>>::new());
        assert_eq!(
            lines(b"a b.jpg\n\xff\xfe.jpg\r\n c"),
            [b"a b.jpg".to_vec(), b"\xff\xfe.jpg".to_vec(), b" c".to_vec()]
        );
    }

    #[test]
    fn what_is_no_path_is_an_error_and_the_next_line_is_read() {
        let long = |len: usize| vec![b'x'; len];
        let longest = MAX_LINE_BYTES as usize - 1;
        let list = [
            &b"\xef\xbb\xbfa\0b\n"[..],
            &long(longest),
            b"\n",
            &long(longest + 1),
            b"\n",
            &long(3 * longest),
            b"\nc\n",
            &long(longest + 1),
        ];
        let list = list.concat();
        let mixed = Lines::new(|| BufReader::new(Cursor::new(list)), Cancel::default()).unwrap();
        let found: Vec<_> =
            mixed.map(|line| line.map(|path| path.as_os_str().len()).map_err(|e| e.to_string())).collect();
        let too_long = || Err("a line longer than 64 KiB".to_owned());
        let zero = "a line with a zero byte; write one path a line, as find does without -print0".to_owned();
        assert_eq!(found, [Err(zero), Ok(longest), too_long(), too_long(), Ok(1), too_long()]);
        assert_eq!(lines(b"\xef\xbb\xbfa\n\xef\xbb\xbfb"), [b"a".to_vec(), b"\xef\xbb\xbfb".to_vec()]);
    }

    #[test]
    fn a_cancel_ends_the_wait_for_a_line() {
        let (reader, _writer) = io::pipe().unwrap();
        let cancel = Cancel::default();
        let mut lines = Lines::new(move || BufReader::new(reader), cancel.clone()).unwrap();
        let waiter = std::thread::spawn(move || lines.next().is_none());
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiter.is_finished());
        cancel.set();
        assert!(waiter.join().unwrap());
    }
}
