//! What is written as it is: devices, pipes, the process's own open files.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;

use crate::error::JobError;
use crate::stage::Cancel;

/// How often one looks whether a pipe has a reader.
const POLL: Duration = Duration::from_millis(20);

/// True for what has no name to give when the job is complete: devices, pipes, and the process's own open files, such as
/// `/dev/stdout`, whatever they lead to.
pub fn is_stream(path: &Path) -> bool {
    is_own(path) || (path.exists() && !path.is_file())
}

fn is_own(path: &Path) -> bool {
    let below = |path: &Path| ["/dev/fd", "/proc/self/fd"].iter().any(|folder| path.starts_with(folder));
    below(path) || path.read_link().is_ok_and(|to| below(&to))
}

/// Opens what [`is_stream`] for appending: the shell may have redirected it to a file that holds something. A pipe without a
/// reader is waited for until `cancel` is set.
///
/// # Errors
/// [`JobError::Interrupted`] then; where it cannot be opened.
pub fn open_stream(path: &Path, cancel: &Cancel) -> Result<File, JobError> {
    let is_pipe = fs::metadata(path).is_ok_and(|m| m.file_type().is_fifo());
    // The system's own wait for a reader does not end when somebody asks to stop.
    let flags = if is_pipe { OFlags::NONBLOCK } else { OFlags::empty() };
    loop {
        let opened = File::options().append(true).custom_flags(flags.bits() as i32).open(path);
        let opened = opened.and_then(|file| {
            if is_pipe {
                fcntl_setfl(&file, OFlags::APPEND)?;
            }
            Ok(file)
        });
        match opened {
            // One's own pipe had a reader, and gets no other.
            Err(e) if is_pipe && !is_own(path) && Errno::from_io_error(&e) == Some(Errno::NXIO) => {
                if cancel.is_set() {
                    return Err(JobError::Interrupted);
                }
                sleep(POLL);
            }
            opened => return opened.map_err(|e| JobError::io(format!("cannot open {}", path.display()), e)),
        }
    }
}
