//! Many pictures in one call of nvJPEG: on the JPEG engines, or by kernels where there are none.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ocellus_sys::nvjpeg::{BatchDecoder, Inspected, Inspector, Output, PlaneSize, Planes};

use tracing::debug;

use super::on_demand::Place;
use super::proof::{Proof, Tail};
use super::turns::Turns;
use super::{Jpeg, JpegFile, JpegPath, Path, emptied, failed, planes, taken};
use crate::cuda::clock::Spans;
use crate::cuda::memory::DeviceMemory;
use crate::cuda::planes::{BLANK, Plane, PlaneArena};
use crate::cuda::stream::{Event, Stream};
use crate::error::KernelError;

/// Pixels for each engine in calls that are made at the same time, unless one call has more. Of large pictures the engines
/// lose by every further call: of 1920x1080 in batches of 64 an H200 decodes 6.0k a second with one at a time and 4.8k with
/// six. Of small ones a call is mostly waiting for the multiprocessors, which copy what the engines have decoded, and the
/// more so the busier these are with the network: there as many calls as there are workers are best (500x375, ten workers:
/// 35k a second alone as well as in a job). A call ends before the engines' work: the next one is made during the rest of it.
pub(super) const TURN_PX: u64 = 18_000_000;

/// Decodes many files in one call.
pub(super) struct Batch {
    inspector: Inspector,
    decoder: BatchDecoder,
    path: JpegPath,
    proof: Proof,
    turns: Arc<Turns>,
    spans: Spans,
    done: Event,
    stream: Stream,
    /// Empty, its memory is used again.
    works: Works<'static>,
}

/// The files that it takes of a batch, side by side, the largest pictures first.
#[derive(Default)]
struct Works<'a> {
    inspected: Vec<Inspected<'a>>,
    planes: Vec<Planes>,
    /// Among all files of the batch.
    indices: Vec<usize>,
    /// Of all planes.
    tails: Vec<Tail>,
    /// Those that are still to be decoded, the next part last.
    parts: Vec<Range<usize>>,
}

impl Works<'_> {
    /// Their memory.
    fn emptied<'b>(mut self) -> Works<'b> {
        self.planes.clear();
        self.indices.clear();
        self.tails.clear();
        self.parts.clear();
        let Self { inspected, planes, indices, tails, parts } = self;
        Works { inspected: emptied(inspected), planes, indices, tails, parts }
    }
}

impl Path for Batch {
    fn make(Place { jpeg, stream, waiting, .. }: &Place) -> Result<Option<Self>, KernelError> {
        let Some((handle, path)) = &jpeg.batch else { return Ok(None) };
        Ok(Some(Self {
            inspector: Inspector::new(handle).map_err(failed)?,
            decoder: BatchDecoder::new(handle, Output::Yuv).map_err(failed)?,
            path: *path,
            proof: Proof::new(&jpeg.device, jpeg.proof.clone())?,
            turns: Arc::clone(&jpeg.turns),
            spans: Spans::default(),
            done: Event::waited_for(&jpeg.device, *waiting)?,
            stream: stream.clone(),
            works: Works::default(),
        }))
    }

    fn is_given_up(jpeg: &Jpeg) -> &AtomicBool {
        &jpeg.given_up.batch
    }

    fn takes(file: &JpegFile<'_>) -> bool {
        file.path == JpegPath::Hardware
    }

    fn spans(&mut self) -> &mut Spans {
        &mut self.spans
    }

    fn decode(&mut self, files: &[JpegFile<'_>], served: &mut [Option<JpegPath>]) -> Result<(), KernelError> {
        // What fails loses it, which only costs memory once more.
        let mut works: Works<'_> = std::mem::take(&mut self.works);
        largest_first(files, &mut works.indices);
        let Works { inspected, planes: outputs, indices, tails, .. } = &mut works;
        indices.retain(|&index| {
            let file = &files[index];
            let Some(found) = self.inspector.inspect(file.bytes).ok().filter(|found| has_planes(found, file)) else {
                return false;
            };
            let tail = |(plane, size): (&Plane, &PlaneSize)| {
                Tail::new(plane.address, plane.pitch_bytes, [size.width_px, size.height_px])
            };
            tails.extend(file.planes.iter().zip(found.planes()).map(tail));
            inspected.push(found);
            outputs.push(planes(file));
            true
        });
        if !works.indices.is_empty() {
            self.decode_works(&mut works, files, served)?;
        }
        self.works = works.emptied();
        Ok(())
    }
}

impl Batch {
    fn decode_works(
        &mut self,
        works: &mut Works<'_>,
        files: &[JpegFile<'_>],
        served: &mut [Option<JpegPath>],
    ) -> Result<(), KernelError> {
        let Self { decoder, path, proof, turns, spans, done, stream, .. } = self;
        let Works { inspected, planes, indices, tails, parts } = works;
        // Waits for what comes before it as well: memory is taken in the order of the stream.
        proof.spoil(stream, tails)?;
        // One call decodes all, or fails as a whole. Then each half is tried, so that a file which costs the call costs
        // the others nothing.
        parts.push(0..indices.len());
        while let Some(part) = parts.pop().filter(|part| !part.is_empty()) {
            let (batch, outputs) = (&inspected[part.clone()], &planes[part.clone()]);
            let pixels = batch.iter().map(|file| px(file.planes()[0])).sum();
            let turn = (*path == JpegPath::Hardware).then(|| turns.wait(pixels));
            spans.begin(stream, part.len())?;
            // SAFETY: the stream and the handle belong to the context that is current; the planes are memory of the
            // arena, which the caller of `JpegDecoder::decode` borrows and whose readers it has waited for; the files are
            // borrowed until its end, which waits for the work; the decoder is only used again behind the wait below.
            let decoded = unsafe { decoder.decode(batch, outputs, stream.raw()) };
            // What is left is the work of the engines alone: the next call prepares its own meanwhile.
            drop(turn);
            spans.end(stream)?;
            let decoded = taken(decoded, files)?.is_some();
            if decoded {
                for &index in &indices[part] {
                    served[index] = Some(*path);
                }
            } else if part.len() > 1 {
                debug!(files = part.len(), "nvJPEG fails at a batch; each half is tried");
                let middle = part.start + part.len() / 2;
                parts.extend([middle..part.end, part.start..middle]);
            }
            // Also what failed may be under way in part, over planes that the next decoder writes. (Should any of it be left on streams
            // of nvJPEG's own, it reads files of a call whose pictures nobody takes.)
            done.record(stream)?;
            done.synchronize()?;
        }
        let mut written = proof.written(stream, tails)?;
        for (inspected, &index) in inspected.iter().zip(&*indices) {
            let unwritten = written.by_ref().take(inspected.planes().len()).filter(|written| !written).count();
            if unwritten > 0 {
                debug!(index, "nvJPEG left planes unwritten; the next decoder tries");
                served[index] = None;
            }
        }
        Ok(())
    }
}

/// Adds the indices of the files that it takes. The engines go through a batch in rounds of one picture each, so that a large
/// picture keeps small ones waiting; and each place in a batch has buffers that grow with the largest picture that was ever
/// there (a job of 500x375, now and then one of 6000x4000 among them, takes 3.1 GB of an H200 in this order; in that of the job
/// 6.2 GB after half a minute, and more to come).
fn largest_first(files: &[JpegFile<'_>], indices: &mut Vec<usize>) {
    indices.extend((0..files.len()).filter(|&index| Batch::takes(&files[index])));
    indices.sort_unstable_by_key(|&index| (Reverse(luma_bytes(&files[index])), index));
}

/// Of the first plane, in memory.
fn luma_bytes(file: &JpegFile<'_>) -> u64 {
    file.planes.first().map_or(0, |plane| u64::from(plane.pitch_bytes) * u64::from(plane.rows))
}

/// Whether the decoder would write the planes that there are, and no others.
fn has_planes(inspected: &Inspected<'_>, file: &JpegFile<'_>) -> bool {
    let fits = |(size, plane): (&PlaneSize, &Plane)| size.height_px == plane.rows && size.width_px <= plane.pitch_bytes;
    inspected.planes().len() == file.planes.len() && inspected.planes().iter().zip(file.planes).all(fits)
}

fn px(size: PlaneSize) -> u64 {
    u64::from(size.width_px) * u64::from(size.height_px)
}

/// Work that keeps a stream busy for several milliseconds: fills of this many bytes.
const DELAY_BYTES: usize = 512 << 20;
/// Their number.
const DELAYS: usize = 32;

impl Batch {
    /// Whether the engines wait for earlier work of the stream, see [`super::JpegDecoder::engines_wait`]. The planes are the
    /// arena's.
    ///
    /// A copy of the file's first plane is enqueued behind work that takes long, then the file is decoded over it without
    /// waiting. Where the copy has new samples, the engines were first.
    pub(super) fn engines_wait(
        &mut self,
        arena: &PlaneArena,
        file: &JpegFile<'_>,
    ) -> Result<Option<bool>, KernelError> {
        let Self { inspector, decoder, path: JpegPath::Hardware, stream, .. } = self else { return Ok(None) };
        let Ok(inspected) = inspector.inspect(file.bytes) else { return Ok(None) };
        let Some(plane) = file.planes.first().filter(|_| has_planes(&inspected, file)) else { return Ok(None) };
        let bytes = plane.pitch_bytes as usize * plane.rows as usize;
        let (busy, copy) = (DeviceMemory::new(stream, DELAY_BYTES)?, DeviceMemory::new(stream, bytes)?);
        arena.fill(plane, BLANK)?;
        stream.synchronize()?;
        for _ in 0..DELAYS {
            busy.fill(0)?;
        }
        // SAFETY: the plane is in the arena, which is borrowed until the copy has been read.
        unsafe { copy.copy_from_address(plane.address) }?;
        // SAFETY: as in `decode`, but for what was enqueued before, which only reads the plane: that is the question.
        let decoded = unsafe { decoder.decode(&[inspected], &[planes(file)], stream.raw()) };
        let mut samples = vec![0; bytes];
        copy.read(&mut samples)?;
        decoded.map_err(failed)?;
        Ok(Some(samples.iter().all(|&sample| sample == BLANK)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_pictures_come_first_and_those_of_a_size_stay_in_order() {
        let plane = |side: u32| [Plane { address: 256, pitch_bytes: side, rows: side }];
        for sides in [&[][..], &[5], &[1, 1, 1], &[3, 0, 7, 3, 7, 7, 2], &[9, 8, 2, 1], &[1, 2, 8, 9, 70_000]] {
            let planes: Vec<_> = sides.iter().map(|&side| plane(side)).collect();
            let file = |(n, planes)| {
                let path = if n % 3 == 1 { JpegPath::Hybrid } else { JpegPath::Hardware };
                JpegFile { bytes: b"", path, planes }
            };
            let files: Vec<_> = planes.iter().map(|planes| &planes[..]).enumerate().map(file).collect();
            let mut indices = Vec::new();
            largest_first(&files, &mut indices);
            // Again and again the first of the largest that are left.
            let mut left: Vec<usize> = (0..sides.len()).filter(|n| n % 3 != 1).collect();
            for &index in &indices {
                let largest = left.iter().map(|&n| sides[n]).max().unwrap();
                let first = left.iter().position(|&n| sides[n] == largest).unwrap();
                assert_eq!(index, left.remove(first), "of {sides:?}: {indices:?}");
            }
            assert!(left.is_empty(), "{left:?} of {sides:?}");
        }
    }
}
