//! One picture after another, by the CPU, which reads the Huffman codes, and the GPU, which does the rest.

use std::sync::atomic::AtomicBool;

use ocellus_sys::nvjpeg::{Backend, HybridDecoder};

use super::on_demand::Place;
use super::{Jpeg, JpegFile, JpegPath, Path, failed, planes, taken};
use crate::cuda::clock::Spans;
use crate::cuda::stream::{Event, Stream};
use crate::error::KernelError;

/// Decodes what others leave.
pub(super) struct Hybrid {
    decoder: HybridDecoder,
    /// What the decoder enqueued is done.
    done: Event,
    spans: Spans,
    stream: Stream,
}

impl Hybrid {
    /// Enqueues one of the files; false where the decoder does not take it.
    fn one(&mut self, file: &JpegFile<'_>, files: &[JpegFile<'_>]) -> Result<bool, KernelError> {
        let Some(read) = taken(self.decoder.host(file.bytes), files)? else { return Ok(false) };
        if read.planes().len() != file.planes.len() {
            return Ok(false);
        }
        self.done.synchronize()?;
        self.spans.begin(&self.stream, 1)?;
        // SAFETY: the stream and the handle belong to the context that is current; the planes are memory of the arena, which
        // the caller of `JpegDecoder::decode` borrows and whose readers it has waited for; the files are borrowed until its
        // end, which waits for the work; what this decoder enqueued before was waited for.
        let enqueued = unsafe { read.enqueue(&planes(file), self.stream.raw()) };
        let ended = self.spans.end(&self.stream);
        self.done.record(&self.stream)?;
        ended?;
        if enqueued.is_err() {
            self.done.synchronize()?;
        }
        taken(enqueued, files).map(|enqueued| enqueued.is_some())
    }
}

impl Path for Hybrid {
    fn make(Place { jpeg, stream, waiting, .. }: &Place) -> Result<Option<Self>, KernelError> {
        let decoder = HybridDecoder::new(&jpeg.hybrid()?, Backend::Hybrid).map_err(failed)?;
        let done = Event::waited_for(stream.device(), *waiting)?;
        Ok(Some(Self { decoder, done, spans: Spans::default(), stream: stream.clone() }))
    }

    fn is_given_up(jpeg: &Jpeg) -> &AtomicBool {
        &jpeg.given_up.hybrid
    }

    fn takes(_: &JpegFile<'_>) -> bool {
        true
    }

    fn spans(&mut self) -> &mut Spans {
        &mut self.spans
    }

    fn decode(&mut self, files: &[JpegFile<'_>], served: &mut [Option<JpegPath>]) -> Result<(), KernelError> {
        for (file, served) in files.iter().zip(served) {
            if served.is_none() && self.one(file, files)? {
                *served = Some(JpegPath::Hybrid);
            }
        }
        // While others may need the processor.
        self.done.synchronize()
    }
}
