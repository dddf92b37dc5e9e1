//! The GPU's time on the host's clock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::device::Device;
use super::stream::{Event, Priority, Stream};
use crate::error::KernelError;

/// Longest that an anchor is good for: the two clocks differ by some millionths.
const GOOD_FOR: Duration = Duration::from_secs(1);
/// Tries for an anchor; the shortest one counts.
const TRIES: usize = 3;

/// Finds moments that both clocks know.
#[derive(Debug)]
pub struct Clock {
    stream: Stream,
    anchor: Anchor,
}

/// A moment that both clocks know. Marks that were recorded after it are told on the host's clock, within some 10 us.
#[derive(Clone, Debug)]
pub struct Anchor(Arc<(Event, Instant)>);

impl Clock {
    /// For marks in this GPU's streams. Waits a moment for the GPU.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn new(device: &Device) -> Result<Self, KernelError> {
        let stream = Stream::new(device, Priority::High)?;
        Ok(Self { anchor: anchor(&stream)?, stream })
    }

    /// An anchor of the last second. Waits for the GPU where a new one is due.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn anchor(&mut self) -> Result<Anchor, KernelError> {
        if self.anchor.0.1.elapsed() > GOOD_FOR {
            self.anchor = anchor(&self.stream)?;
        }
        Ok(self.anchor.clone())
    }
}

fn anchor(stream: &Stream) -> Result<Anchor, KernelError> {
    let attempt = || -> Result<(Duration, Anchor), KernelError> {
        let event = Event::timed(stream.device())?;
        let before = Instant::now();
        event.record(stream)?;
        event.synchronize()?;
        let took = before.elapsed();
        Ok((took, Anchor(Arc::new((event, before + took / 2)))))
    };
    let mut best = attempt()?;
    for _ in 1..TRIES {
        let next = attempt()?;
        if next.0 < best.0 {
            best = next;
        }
    }
    Ok(best.1)
}

impl Anchor {
    /// When a timed mark happened.
    ///
    /// # Errors
    /// Where it is not timed or has not happened yet, or earlier work failed.
    pub fn when(&self, mark: &Event) -> Result<Instant, KernelError> {
        let (event, at) = &*self.0;
        let ms = f64::from(event.elapsed_ms(mark)?);
        Ok(*at + Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default())
    }
}

/// Times pieces of work of one stream, where somebody asked for it.
#[derive(Debug, Default)]
pub(super) struct Spans(Option<Pieces>);

#[derive(Debug)]
struct Pieces {
    clock: Clock,
    anchor: Anchor,
    /// The first `used` of them belong to the pieces since the last [`Spans::restart`], with their numbers of images.
    marks: Vec<([Event; 2], usize)>,
    used: usize,
}

/// Begin, end and images of a piece of work.
pub type Span = ([Instant; 2], usize);

impl Spans {
    /// From now on pieces are timed.
    pub(super) fn start(&mut self, device: &Device) -> Result<(), KernelError> {
        let mut clock = Clock::new(device)?;
        self.0 = Some(Pieces { anchor: clock.anchor()?, clock, marks: Vec::new(), used: 0 });
        Ok(())
    }

    /// Forgets the pieces so far.
    pub(super) fn restart(&mut self) -> Result<(), KernelError> {
        if let Some(pieces) = &mut self.0 {
            pieces.anchor = pieces.clock.anchor()?;
            pieces.used = 0;
        }
        Ok(())
    }

    /// A piece of work on so many images is enqueued from here on.
    pub(super) fn begin(&mut self, stream: &Stream, images: usize) -> Result<(), KernelError> {
        let Some(Pieces { marks, used, .. }) = &mut self.0 else { return Ok(()) };
        if *used == marks.len() {
            let device = stream.device();
            marks.push(([Event::timed(device)?, Event::timed(device)?], images));
        }
        let ([begin, end], held) = &mut marks[*used];
        *held = images;
        begin.record(stream)?;
        // Until the piece has an end, that is its beginning.
        end.record(stream)?;
        *used += 1;
        Ok(())
    }

    /// That piece is enqueued.
    pub(super) fn end(&self, stream: &Stream) -> Result<(), KernelError> {
        match self.0.as_ref().and_then(|pieces| pieces.marks[..pieces.used].last()) {
            Some(([_, end], _)) => end.record(stream),
            None => Ok(()),
        }
    }

    /// The pieces, which must have been waited for.
    pub(super) fn taken(&self) -> impl Iterator<Item = Result<Span, KernelError>> {
        self.0.iter().flat_map(|Pieces { anchor, marks, used, .. }| {
            marks[..*used].iter().map(|([begin, end], images)| Ok(([anchor.when(begin)?, anchor.when(end)?], *images)))
        })
    }
}
