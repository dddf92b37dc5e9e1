//! The work of a stream as a track of the job's trace.

use std::collections::VecDeque;

use ocellus_kernels::KernelError;
use ocellus_kernels::cuda::clock::{Anchor, Clock};
use ocellus_kernels::cuda::device::Device;
use ocellus_kernels::cuda::stream::{Event, Stream};

use crate::observe::{Recorder, Track};

/// Most batches whose marks may be under way; more are not recorded.
const MOST_UNDER_WAY: usize = 32;

/// A track among those of a GPU.
pub(super) fn track(recorder: &Recorder, device: &Device, name: &str) -> Track {
    recorder.track_of(Some(&format!("cuda:{}", device.facts().ordinal)), name)
}

/// Records what a stream does. Costs nothing where nothing is recorded.
#[derive(Debug, Default)]
pub(super) struct StreamTrace(Option<Recording>);

#[derive(Debug)]
struct Recording {
    track: Track,
    clock: Clock,
    device: Device,
    spare: Vec<Event>,
    under_way: VecDeque<Batch>,
    /// Steps of this batch are recorded.
    open: bool,
}

/// Marks of one batch: its beginning, and the end of each step.
#[derive(Debug)]
struct Batch {
    anchor: Anchor,
    images: usize,
    begin: Event,
    ends: Vec<(&'static str, Event)>,
}

impl StreamTrace {
    /// For a stream of this GPU; `name` is the track's.
    pub(super) fn new(recorder: &Recorder, device: &Device, name: &str) -> Result<Self, KernelError> {
        if !recorder.is_on() {
            return Ok(Self(None));
        }
        Ok(Self(Some(Recording {
            track: track(recorder, device, name),
            clock: Clock::new(device)?,
            device: device.clone(),
            spare: Vec::new(),
            under_way: VecDeque::new(),
            open: false,
        })))
    }

    /// What is enqueued on `stream` from here on is a batch of so many images.
    pub(super) fn begin(&mut self, stream: &Stream, images: usize) -> Result<(), KernelError> {
        let Some(recording) = &mut self.0 else { return Ok(()) };
        recording.collect()?;
        recording.open = recording.under_way.len() < MOST_UNDER_WAY;
        if recording.open {
            let anchor = recording.clock.anchor()?;
            let begin = recording.mark(stream)?;
            recording.under_way.push_back(Batch { anchor, images, begin, ends: Vec::new() });
        }
        Ok(())
    }

    /// A step of the batch ends with what is enqueued so far.
    pub(super) fn step(&mut self, stream: &Stream, name: &'static str) -> Result<(), KernelError> {
        let Some(recording) = self.0.as_mut().filter(|recording| recording.open) else { return Ok(()) };
        let end = recording.mark(stream)?;
        if let Some(batch) = recording.under_way.back_mut() {
            batch.ends.push((name, end));
        }
        Ok(())
    }
}

impl Recording {
    fn mark(&mut self, stream: &Stream) -> Result<Event, KernelError> {
        let event = self.spare.pop().map_or_else(|| Event::timed(&self.device), Ok)?;
        event.record(stream)?;
        Ok(event)
    }

    /// Records what has happened by now.
    fn collect(&mut self) -> Result<(), KernelError> {
        while let Some(batch) = self.under_way.front() {
            if !batch.ends.last().map_or(&batch.begin, |(_, end)| end).is_done()? {
                break;
            }
            let Some(Batch { anchor, images, begin, ends }) = self.under_way.pop_front() else { break };
            let mut at = anchor.when(&begin)?;
            self.spare.push(begin);
            for (name, end) in ends {
                let next = anchor.when(&end)?;
                self.track.span_between(name, [at, next], Some(images as u64));
                at = next;
                self.spare.push(end);
            }
        }
        Ok(())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Who enqueued the work has waited for it. Where it failed, that was told.
        let _ = self.collect();
    }
}
