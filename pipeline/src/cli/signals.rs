//! Ctrl-C, SIGTERM and the end of the terminal.

use std::fs;
use std::os::raw::c_int;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use ocellus_kernels::jit::Stop;

use super::{Exit, say};
use crate::error::JobError;
use crate::stage::Cancel;

/// The first signal asks the job and the compilation of its kernels to stop, the second ends the process where it is.
/// Signals that are ignored when the program starts stay so: `nohup` and the background jobs of a script ask for it.
///
/// A file that grows past the limit on its size (`ulimit -f`) sends one too, which would end the process on the spot: with it
/// caught, the write fails as on a full disk.
///
/// # Errors
/// Where the system does not let signals be caught.
pub(super) fn watch(cancel: Cancel, compiling: Stop) -> Result<(), JobError> {
    let failed = |e| JobError::io("cannot watch for Ctrl-C", e);
    // Where the system does not say, none is.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored_signals(&status).unwrap_or(0);
    let watched = [SIGINT, SIGTERM, SIGHUP, SIGXFSZ].into_iter().filter(|signal| !contains(ignored, *signal));
    let mut signals = Signals::new(watched).map_err(failed)?;
    let watcher = std::thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever().filter(|&signal| signal != SIGXFSZ) {
            if !cancel.set() {
                std::process::exit(Exit::Interrupted as i32);
            }
            compiling.set();
            say("stopping; what is under way is finished (again to stop at once)");
        }
    });
    watcher.map(drop).map_err(failed)
}

/// The set of ignored signals in `/proc/self/status`: bit n - 1 for signal n.
fn ignored_signals(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn contains(signals: u64, signal: c_int) -> bool {
    (1..=64).contains(&signal) && signals >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        let ignored = ignored_signals("Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000003\n").unwrap();
        assert_eq!([SIGHUP, SIGINT, SIGTERM].map(|signal| contains(ignored, signal)), [true, true, false]);
        assert_eq!(ignored_signals("SigIgn:\tx"), None);
        assert_eq!(ignored_signals(""), None);
    }
}
