//! From pictures to batches of the network's input.

use std::sync::Arc;
use std::time::Instant;

use ocellus_kernels::KernelError;
use ocellus_kernels::cpu::preprocess::Preprocessor;
use ocellus_kernels::preprocess::PreprocessDesc;

use crate::error::{ErrorKind, ItemError, JobError, StageName};
use crate::frame::{Batch, Deadline, Item, Picture, PictureInfo, Tensor};
use crate::stage::Stage;

/// The stage: resizes, crops, normalises. Several may work on one picture.
pub struct Preprocess {
    preprocessor: Preprocessor,
    /// 3 x height x width of the network's input.
    input_len: usize,
}

impl Preprocess {
    /// A stage that follows the description.
    ///
    /// # Errors
    /// Where the description contradicts itself.
    pub fn new(desc: PreprocessDesc) -> Result<Self, KernelError> {
        let input_len = 3 * desc.height_px * desc.width_px;
        Ok(Self { preprocessor: Preprocessor::new(desc)?, input_len })
    }

    fn tensor(&mut self, picture: &Picture) -> Result<Tensor, ItemError> {
        let Picture { width_px, height_px, rgb, decoder, partial, share: _ } = picture;
        let mut data = vec![0.0; self.input_len];
        let transform = self
            .preprocessor
            .run_f32(rgb, *width_px as usize, *height_px as usize, &mut data)
            .map_err(|e| ItemError::new(StageName::Preprocess, ErrorKind::Unsupported, e.to_string()))?;
        let info =
            PictureInfo { width_px: *width_px, height_px: *height_px, decoder: *decoder, partial: *partial, transform };
        Ok(Tensor { info, data })
    }
}

impl Stage for Preprocess {
    type In = Item<Arc<Picture>>;
    type Out = Item<Tensor>;

    fn process(&mut self, item: Item<Arc<Picture>>, emit: &mut dyn FnMut(Item<Tensor>)) -> Result<(), JobError> {
        emit(item.and_then(|picture| self.tensor(&picture)));
        Ok(())
    }
}

/// The stage: collects images until a batch is full, the source pauses or ends. Failed items ride along.
#[derive(Debug)]
pub struct Batcher {
    batch: usize,
    images: usize,
    collected: Batch,
    deadline: Option<Deadline>,
    /// When the first item must go on.
    due: Option<Instant>,
}

/// Items a batch holds at most, for each image: a long row of failed items must not pile up.
const ITEMS_PER_IMAGE: usize = 4;

impl Batcher {
    /// Makes batches of `batch` images.
    pub fn new(batch: usize) -> Self {
        let collected = Batch { items: Vec::new(), data: Vec::new() };
        Self { batch: batch.max(1), images: 0, collected, deadline: None, due: None }
    }

    /// Does not wait for a full batch longer than until the deadline of its first item, unless the next is there already.
    #[must_use]
    pub fn with_deadline(self, deadline: Option<Deadline>) -> Self {
        Self { deadline, ..self }
    }

    fn flush(&mut self, emit: &mut dyn FnMut(Batch)) {
        if !self.collected.items.is_empty() {
            if let (Some(deadline), Some(last)) = (&self.deadline, self.collected.items.last()) {
                deadline.handed_on(last.id);
            }
            self.due = None;
            // The next batch is likely as large.
            let data = Vec::with_capacity(self.collected.data.len());
            emit(std::mem::replace(&mut self.collected, Batch { items: Vec::new(), data }));
            self.images = 0;
        }
    }
}

impl Stage for Batcher {
    type In = Item<Tensor>;
    type Out = Batch;

    fn process(&mut self, item: Item<Tensor>, emit: &mut dyn FnMut(Batch)) -> Result<(), JobError> {
        let Self { images, collected, .. } = self;
        if let Some(deadline) = &self.deadline {
            let due = deadline.due(item.arrived);
            self.due = Some(self.due.map_or(due, |first| first.min(due)));
        }
        collected.items.push(item.and_then(|tensor| {
            collected.data.extend_from_slice(&tensor.data);
            *images += 1;
            Ok(tensor.info)
        }));
        if self.images == self.batch || self.collected.items.len() == self.batch * ITEMS_PER_IMAGE {
            self.flush(emit);
        }
        Ok(())
    }

    fn due(&self) -> Option<Instant> {
        self.due
    }

    fn idle(&mut self, emit: &mut dyn FnMut(Batch)) -> Result<(), JobError> {
        self.flush(emit);
        Ok(())
    }

    fn finish(&mut self, emit: &mut dyn FnMut(Batch)) -> Result<(), JobError> {
        self.flush(emit);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Decoder, Origin};
    use ocellus_kernels::preprocess::Transform;

    /// Batches of 3 out of items; `true` is a good one, whose image holds its number twice.
    fn batches(good: &[bool]) -> Vec<Batch> {
        let mut batches = Vec::new();
        let mut batcher = Batcher::new(3);
        for (id, good) in good.iter().enumerate() {
            let transform = Transform { scale: [1.0; 2], offset_px: [0.0; 2] };
            let info = PictureInfo { width_px: 1, height_px: 1, decoder: Decoder::Image, partial: false, transform };
            let payload = if *good {
                Ok(Tensor { info, data: vec![id as f32; 2] })
            } else {
                Err(ItemError::new(StageName::Decode, ErrorKind::Corrupt, "x"))
            };
            let item = Item::new(id as u64, Origin::File("x".into()), payload);
            batcher.process(item, &mut |batch| batches.push(batch)).unwrap();
        }
        batcher.finish(&mut |batch| batches.push(batch)).unwrap();
        batches
    }

    #[test]
    fn every_item_is_in_one_batch_with_its_image() {
        for pattern in 0_u32..256 {
            let good: Vec<bool> = (0..8).map(|i| pattern >> i & 1 == 1).collect();
            let batches = batches(&good);
            let ids: Vec<u64> = batches.iter().flat_map(|b| &b.items).map(|i| i.id).collect();
            assert!(ids.iter().copied().eq(0..8), "{ids:?}");
            for (i, batch) in batches.iter().enumerate() {
                let images = batch.items.iter().filter(|item| item.payload.is_ok());
                let expected: Vec<f32> = images.flat_map(|item| [item.id as f32; 2]).collect();
                assert_eq!(batch.data, expected);
                assert!(expected.len() == 6 || i == batches.len() - 1, "only the last batch is short");
            }
        }
        assert!(batches(&[]).is_empty());
    }

    #[test]
    fn failed_items_do_not_pile_up() {
        let lens: Vec<usize> = batches(&[false; 30]).iter().map(|b| b.items.len()).collect();
        assert_eq!(lens, [12, 12, 6]);
    }
}
