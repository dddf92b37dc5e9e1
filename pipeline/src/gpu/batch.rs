//! Collects works for the GPU.

use ocellus_kernels::cuda::planes::plane_bytes;
use ocellus_kernels::picture::{Orientation, PictureDesc, PixelFormat};

use crate::error::JobError;
use crate::frame::{Item, Picture, Work};
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
    items: Vec<Item<Work>>,
}

impl WorkBatcher {
    /// Makes batches of `most_images` images whose planes take at most `most_device_bytes`, unless a single one takes
    /// more.
    pub fn new(most_images: usize, most_device_bytes: usize) -> Self {
        Self {
            most_images: most_images.max(1),
            most_device_bytes,
            images: 0,
            host_bytes: 0,
            device_bytes: 0,
            items: Vec::new(),
        }
    }

    fn flush(&mut self, emit: &mut dyn FnMut(Vec<Item<Work>>)) {
        if !self.items.is_empty() {
            let next = Vec::with_capacity(self.items.len());
            emit(std::mem::replace(&mut self.items, next));
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
    type Out = Vec<Item<Work>>;

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
        self.items.push(item);
        if alone || self.images == self.most_images || self.items.len() == self.most_images * ITEMS_PER_IMAGE {
            self.flush(emit);
        }
        Ok(())
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

    fn jpeg(side_px: usize) -> Work {
        let desc = PictureDesc {
            width_px: side_px,
            height_px: side_px,
            format: PixelFormat::Gray,
            orientation: Orientation::Upright,
        };
        Work::Jpeg { bytes: vec![0; 10], desc, decoder: Decoder::NvjpegHw }
    }

    fn batches(most_device_bytes: usize, works: Vec<Option<Work>>) -> Vec<Vec<u64>> {
        let mut batches = Vec::new();
        let mut batcher = WorkBatcher::new(3, most_device_bytes);
        let mut emit = |batch: Vec<Item<Work>>| batches.push(batch.iter().map(|item| item.id).collect());
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
