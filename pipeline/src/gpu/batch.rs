//! Collects works for the GPU.

use std::time::Instant;

use ocellus_kernels::cuda::planes::plane_bytes;
use ocellus_kernels::picture::{Orientation, PictureDesc, PixelFormat};

use crate::error::JobError;
use crate::frame::{Deadline, Item, Picture, PooledVec, VecPool, Work};
use crate::stage::Stage;

/// Items a batch holds at most, for each image: a long row of failed items must not pile up.
const ITEMS_PER_IMAGE: usize = 4;
/// Most bytes of files and pictures that wait in a batch.
const HOST_BYTES: usize = 256 << 20;

/// The stage: collects works until a batch is full, the source pauses or ends. Failed items ride along.
pub struct WorkBatcher {
    most_images: usize,
    most_device_bytes: usize,
    images: usize,
    host_bytes: usize,
    device_bytes: usize,
    items: PooledVec<Item<Work>>,
    /// Batches that have been loaded come back to it.
    pool: VecPool<Item<Work>>,
    deadline: Option<Deadline>,
    /// When the first item must go on.
    due: Option<Instant>,
}

impl WorkBatcher {
    /// Makes batches of `most_images` images whose planes take at most `most_device_bytes`, unless a single one takes
    /// more.
    pub fn new(most_images: usize, most_device_bytes: usize) -> Self {
        let pool = VecPool::default();
        Self {
            most_images: most_images.max(1),
            most_device_bytes,
            images: 0,
            host_bytes: 0,
            device_bytes: 0,
            items: pool.take(),
            pool,
            deadline: None,
            due: None,
        }
    }

    /// Does not wait for a full batch longer than until the deadline of its first item, unless the next is there already.
    #[must_use]
    pub fn with_deadline(self, deadline: Option<Deadline>) -> Self {
        Self { deadline, ..self }
    }

    fn flush(&mut self, emit: &mut dyn FnMut(PooledVec<Item<Work>>)) {
        if !self.items.is_empty() {
            if let (Some(deadline), Some(last)) = (&self.deadline, self.items.last()) {
                deadline.handed_on(last.id);
            }
            self.due = None;
            emit(std::mem::replace(&mut self.items, self.pool.take()));
            (self.images, self.host_bytes, self.device_bytes) = (0, 0, 0);
        }
    }
}

/// The one plane of a decoded picture.
pub(super) fn rgb_desc(picture: &Picture) -> PictureDesc {
    PictureDesc {
        width_px: picture.width_px as usize,
        height_px: picture.height_px as usize,
        format: PixelFormat::Rgb,
        orientation: Orientation::Upright,
    }
}

/// Bytes of a picture's planes in the GPU's memory.
pub(crate) fn planes_bytes(desc: &PictureDesc) -> usize {
    let bytes = |plane| {
        let [row_bytes, rows] = desc.plane_size(plane);
        plane_bytes(row_bytes, rows)
    };
    (0..desc.planes()).map(bytes).sum()
}

impl Stage for WorkBatcher {
    type In = Item<Work>;
    type Out = PooledVec<Item<Work>>;

    fn process(&mut self, item: Item<Work>, emit: &mut dyn FnMut(Self::Out)) -> Result<(), JobError> {
        let (host_bytes, device_bytes, alone) = match &item.payload {
            Ok(Work::Jpeg { bytes, desc, .. }) => (bytes.len(), planes_bytes(desc), false),
            Ok(Work::Rgb(picture)) => (picture.rgb.len(), planes_bytes(&rgb_desc(picture)), false),
            // Its size is not known yet, and it holds a share of the memory for large ones.
            Ok(Work::Later(_)) => (0, 0, true),
            Err(_) => (0, 0, false),
        };
        let full =
            self.host_bytes + host_bytes > HOST_BYTES || self.device_bytes + device_bytes > self.most_device_bytes;
        if full || alone {
            self.flush(emit);
        }
        self.images += usize::from(item.payload.is_ok());
        self.host_bytes += host_bytes;
        self.device_bytes += device_bytes;
        if let Some(deadline) = &self.deadline {
            // Items that were slow on their way here may be older than the first.
            let due = deadline.due(item.arrived);
            self.due = Some(self.due.map_or(due, |first| first.min(due)));
        }
        self.items.push(item);
        if alone || self.images == self.most_images || self.items.len() == self.most_images * ITEMS_PER_IMAGE {
            self.flush(emit);
        }
        Ok(())
    }

    fn due(&self) -> Option<Instant> {
        self.due
    }

    fn idle(&mut self, emit: &mut dyn FnMut(Self::Out)) -> Result<(), JobError> {
        self.flush(emit);
        Ok(())
    }

    fn finish(&mut self, emit: &mut dyn FnMut(Self::Out)) -> Result<(), JobError> {
        self.flush(emit);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ErrorKind, ItemError, StageName};
    use crate::frame::{Decoder, Origin};
    use std::time::Duration;

    fn jpeg(side_px: usize) -> Work {
        let desc = PictureDesc {
            width_px: side_px,
            height_px: side_px,
            format: PixelFormat::Gray,
            orientation: Orientation::Upright,
        };
        Work::Jpeg { bytes: vec![0; 10].into(), desc, decoder: Decoder::NvjpegHw }
    }

    fn batches(most_device_bytes: usize, works: Vec<Option<Work>>) -> Vec<Vec<u64>> {
        let mut batches = Vec::new();
        let mut batcher = WorkBatcher::new(3, most_device_bytes);
        let mut emit = |batch: PooledVec<Item<Work>>| batches.push(batch.iter().map(|item| item.id).collect());
        for (id, work) in works.into_iter().enumerate() {
            let payload = work.ok_or_else(|| ItemError::new(StageName::Decode, ErrorKind::Corrupt, "x"));
            let item = Item::new(id as u64, Origin::File("x".into()), payload);
            batcher.process(item, &mut emit).unwrap();
        }
        batcher.finish(&mut emit).unwrap();
        batches
    }

    #[test]
    fn batches_are_full_of_images() {
        let good = || Some(jpeg(16));
        let works = vec![good(), None, good(), good(), good(), None, good()];
        assert_eq!(batches(usize::MAX, works), [vec![0, 1, 2, 3], vec![4, 5, 6]]);
        let failed: Vec<usize> = batches(usize::MAX, vec![None; 30]).iter().map(Vec::len).collect();
        assert_eq!(failed, [12, 12, 6], "failed items do not pile up");
        assert!(batches(usize::MAX, vec![]).is_empty());
    }

    #[test]
    fn the_oldest_item_says_when_a_batch_is_due() {
        let deadline = Deadline::new(Duration::from_secs(100));
        let mut batcher = WorkBatcher::new(3, usize::MAX).with_deadline(Some(deadline.clone()));
        assert_eq!(batcher.due(), None);
        let start = Instant::now();
        let mut batches = Vec::new();
        for (id, at_s) in [(0, 6), (1, 0), (2, 9), (3, 8)] {
            let arrived = start + Duration::from_secs(at_s);
            let item = Item { arrived, ..Item::new(id, Origin::File("x".into()), Ok(jpeg(16))) };
            batcher.process(item, &mut |batch| batches.push(batch.len())).unwrap();
            let oldest_s = [Some(6), Some(0), None, Some(8)][id as usize];
            let due = oldest_s.map(|at_s| start + Duration::from_secs(100 + at_s));
            assert_eq!(batcher.due(), due, "after {id}");
        }
        batcher.idle(&mut |batch| batches.push(batch.len())).unwrap();
        assert_eq!((batches, batcher.due()), (vec![3, 1], None));
        assert_eq!(WorkBatcher::new(3, 1).due(), None);
    }

    #[test]
    fn planes_fit_and_what_is_large_is_alone() {
        // A plane of 256 columns has 256 bytes a row.
        let plane = || Some(jpeg(256));
        assert_eq!(batches(2 << 16, vec![plane(), plane(), plane()]), [vec![0, 1], vec![2]]);
        assert_eq!(batches(100, vec![plane(), plane()]), [vec![0], vec![1]]);
        let later = Some(Work::Later(None));
        let works = vec![plane(), later.clone(), later, plane(), None];
        assert_eq!(batches(usize::MAX, works), [vec![0], vec![1], vec![2], vec![3, 4]]);
    }
}
