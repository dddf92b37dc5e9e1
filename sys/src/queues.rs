//! How many queues of work the driver keeps to a GPU.

use std::ffi::OsStr;
use std::{env, fs};

/// The variable that the driver looks at when it starts.
const VARIABLE: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
/// As many as there can be.
const MOST: &str = "32";

/// Has the driver keep as many queues to the GPU as it can, instead of 8, unless the user asks for a number: streams that
/// share a queue wait for one another's work, and every JPEG decoder has several. (Files to labels on an H200, 500x375, ten
/// decoders: 40.0k images a second; with 8 queues 24.9k.) It makes the context slower to make: there 0.57 s, with 8 queues 0.12
/// to 0.16 s. So it is for programs that decode much.
///
/// To be called before the driver starts, at the beginning of a program. False where it changes nothing: the process has
/// more than one thread already, or nobody knows how many. Then the variable `CUDA_DEVICE_MAX_CONNECTIONS` can be set where
/// the program is started.
pub fn use_all_queues() -> bool {
    let threads = fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    if threads != 1 {
        return false;
    }
    if env::var_os(VARIABLE).as_deref().is_none_or(OsStr::is_empty) {
        // SAFETY: this is the only thread, so that nobody else looks at the environment or changes it meanwhile.
        unsafe { env::set_var(VARIABLE, MOST) };
    }
    true
}
