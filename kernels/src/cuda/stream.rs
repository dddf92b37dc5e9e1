//! Queues of work for a GPU, and marks in them.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::result::{self, stream::StreamKind};
use cudarc::driver::sys::{self, CUresult};

use super::device::{Device, check};
use crate::error::KernelError;

/// Whose blocks go first where two streams have some ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Short work that others wait for.
    High,
    /// Everything else.
    Low,
}

/// A queue of work, done in order. Clones are the same queue.
#[derive(Clone, Debug)]
pub struct Stream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    device: Device,
    raw: sys::CUstream,
}

// SAFETY: the driver's streams may be used from any thread, by several at a time.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // An error here was an error of earlier work, and is reported where that is waited for.
        if self.device.bind().is_ok() {
            // SAFETY: the last owner; the driver ends the work that is queued first.
            let _ = unsafe { result::stream::destroy(self.raw) };
        }
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Stream {}

impl Stream {
    /// A new queue, independent of all others.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn new(device: &Device, priority: Priority) -> Result<Self, KernelError> {
        device.bind()?;
        let (least, greatest) = check("cuCtxGetStreamPriorityRange", result::stream::get_priority_range())?;
        let priority = if priority == Priority::High { greatest } else { least };
        let raw = result::stream::create_with_priority(StreamKind::NonBlocking, priority);
        Ok(Self(Arc::new(Inner { device: device.clone(), raw: check("cuStreamCreateWithPriority", raw)? })))
    }

    /// The GPU it belongs to.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The driver's handle, for libraries that take one. It lives as long as a clone of this does.
    pub fn raw(&self) -> *mut c_void {
        self.0.raw.cast()
    }

    pub(super) fn handle(&self) -> sys::CUstream {
        self.0.raw
    }

    /// What is enqueued from here on starts after the work that `event` marks.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn wait(&self, event: &Event) -> Result<(), KernelError> {
        self.device().bind()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both handles are alive.
        check("cuStreamWaitEvent", unsafe { result::stream::wait_event(self.0.raw, event.raw, flags) })
    }

    /// Blocks until everything enqueued so far is done.
    ///
    /// # Errors
    /// Where the driver or earlier work failed.
    pub fn synchronize(&self) -> Result<(), KernelError> {
        self.device().bind()?;
        // SAFETY: the handle is alive.
        check("cuStreamSynchronize", unsafe { result::stream::synchronize(self.0.raw) })
    }
}

/// How a thread waits for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Asleep: costs no processor time, and tens of microseconds until it wakes.
    Asleep,
    /// Awake, which keeps a core busy: for the one picture that somebody waits for.
    Awake,
}

/// A mark in a stream.
#[derive(Debug)]
pub struct Event {
    device: Device,
    raw: sys::CUevent,
}

// SAFETY: the driver's events may be used from any thread, by several at a time.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Drop for Event {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: the only owner; the driver keeps it until it has happened.
            let _ = unsafe { result::event::destroy(self.raw) };
        }
    }
}

impl Event {
    /// A mark that has happened until it is recorded. A thread that waits for it sleeps.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn new(device: &Device) -> Result<Self, KernelError> {
        Self::waited_for(device, Waiting::Asleep)
    }

    /// A mark that has happened until it is recorded, and how a thread waits for it.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn waited_for(device: &Device, waiting: Waiting) -> Result<Self, KernelError> {
        let untimed = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        let sleeps = match waiting {
            Waiting::Asleep => sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32,
            Waiting::Awake => 0,
        };
        Self::with_flags(device, sleeps | untimed)
    }

    /// A mark that keeps its time.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn timed(device: &Device) -> Result<Self, KernelError> {
        Self::with_flags(device, sys::CUevent_flags::CU_EVENT_DEFAULT as u32)
    }

    fn with_flags(device: &Device, flags: u32) -> Result<Self, KernelError> {
        device.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut raw, flags) }.result())?;
        Ok(Self { device: device.clone(), raw })
    }

    /// Puts the mark behind what is enqueued on `stream` so far.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn record(&self, stream: &Stream) -> Result<(), KernelError> {
        self.device.bind()?;
        // SAFETY: both handles are alive.
        check("cuEventRecord", unsafe { result::event::record(self.raw, stream.handle()) })
    }

    /// True when the work before the mark is done.
    ///
    /// # Errors
    /// Where that work failed.
    pub fn is_done(&self) -> Result<bool, KernelError> {
        self.device.bind()?;
        // SAFETY: the handle is alive.
        match unsafe { sys::cuEventQuery(self.raw) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => check("cuEventQuery", other.result()).map(|()| true),
        }
    }

    /// Blocks until the work before the mark is done.
    ///
    /// # Errors
    /// Where that work failed.
    pub fn synchronize(&self) -> Result<(), KernelError> {
        self.device.bind()?;
        // SAFETY: the handle is alive.
        check("cuEventSynchronize", unsafe { result::event::synchronize(self.raw) })
    }

    /// Milliseconds from this mark to a later one, both timed and done.
    ///
    /// # Errors
    /// Where one is not.
    pub fn elapsed_ms(&self, later: &Self) -> Result<f32, KernelError> {
        self.device.bind()?;
        // SAFETY: both handles are alive.
        check("cuEventElapsedTime", unsafe { result::event::elapsed(self.raw, later.raw) })
    }
}
