//! Work recorded once and replayed.

use cudarc::driver::{result, sys};

use super::device::check;
use super::stream::Stream;
use crate::error::KernelError;

/// Recorded launches and copies, for the stream on which they were recorded.
#[derive(Debug)]
pub struct Graph {
    stream: Stream,
    raw: sys::CUgraphExec,
}

// SAFETY: launching takes `&mut self`, so one thread at a time uses it; the driver does not care which.
unsafe impl Send for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.stream.device().bind().is_ok() {
            // SAFETY: the only owner; the driver keeps it until launches under way are done.
            let _ = unsafe { result::graph::exec_destroy(self.raw) };
        }
    }
}

impl Graph {
    /// Records what `work` enqueues on `stream`, without running it.
    ///
    /// # Errors
    /// Where `work` fails or does what cannot be recorded.
    ///
    /// # Safety
    /// Everything the work uses must be there until the graph is dropped and what it enqueued until then is done.
    pub unsafe fn record(stream: &Stream, work: impl FnOnce() -> Result<(), KernelError>) -> Result<Self, KernelError> {
        stream.device().bind()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive.
        check("cuStreamBeginCapture", unsafe { result::stream::begin_capture(stream.handle(), mode) })?;
        let worked = work();
        // Ended whether or not the work failed: the stream must not stay in capture.
        // SAFETY: as above.
        let recorded = check("cuStreamEndCapture", unsafe { result::stream::end_capture(stream.handle()) });
        worked?;
        let recorded = recorded?;
        // SAFETY: the graph was just made; the executable copy does not need it.
        let instance = unsafe {
            let mut instance = std::ptr::null_mut();
            let made = sys::cuGraphInstantiateWithFlags(&raw mut instance, recorded, 0).result().map(|()| instance);
            let _ = result::graph::destroy(recorded);
            made
        };
        Ok(Self { stream: stream.clone(), raw: check("cuGraphInstantiate", instance)? })
    }

    /// Enqueues all of it.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn launch(&mut self) -> Result<(), KernelError> {
        self.stream.device().bind()?;
        // SAFETY: both handles are alive; so is what the work uses, as whoever recorded it promised.
        check("cuGraphLaunch", unsafe { result::graph::launch(self.raw, self.stream.handle()) })
    }
}
