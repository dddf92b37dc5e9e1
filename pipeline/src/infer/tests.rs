use std::path::PathBuf;

use ocellus_kernels::KernelError;
use ocellus_kernels::plan::{Buffer, Port};
use ocellus_kernels::preprocess::Transform;
use ocellus_kernels::tensor::DType;

use super::*;
use crate::error::{ErrorKind, ItemError, StageName};
use crate::frame::{Decoder, Item, Origin, PictureInfo};

/// Doubles an image of two values and counts them; takes `group` images at a time.
struct Doubler {
    group: usize,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
}

impl Doubler {
    fn stage(group: usize) -> Infer {
        let port = |len| Port {
            name: "x".into(),
            dtype: DType::F32,
            layout: None,
            buffer: Buffer { offset: 0, dims: vec![group, len] },
        };
        Infer::new(Box::new(Self { group, inputs: vec![port(2)], outputs: vec![port(2), port(1)] }))
    }
}

impl Engine for Doubler {
    fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    fn run(&mut self, images: usize, inputs: &[&[f32]], outputs: &mut [Vec<f32>]) -> Result<(), KernelError> {
        assert!(images > 0 && images.is_multiple_of(self.group) && inputs[0].len() == 2 * images);
        outputs[0] = inputs[0].iter().map(|x| 2.0 * x).collect();
        outputs[1] = vec![2.0; images];
        Ok(())
    }
}

fn batch(good: &[bool]) -> Batch {
    let transform = Transform { scale: [1.0; 2], offset_px: [0.0; 2] };
    let info = PictureInfo { width_px: 1, height_px: 2, decoder: Decoder::Image, partial: false, transform };
    let item = |(id, &good): (usize, &bool)| {
        let payload = if good { Ok(info) } else { Err(ItemError::new(StageName::Decode, ErrorKind::Corrupt, "x")) };
        Item::new(id as u64, Origin::File(PathBuf::from("x")), payload)
    };
    let images = good.iter().filter(|&&good| good).count();
    Batch { items: good.iter().enumerate().map(item).collect(), data: (0..2 * images).map(|i| i as f32).collect() }
}

#[test]
fn good_items_are_run_and_failed_ones_ride_along() {
    for group in [1, 2, 4] {
        for good in [&[true][..], &[false], &[true, false, true, true], &[]] {
            let mut outputs = Vec::new();
            Doubler::stage(group).process(batch(good), &mut |o| outputs.push(o)).expect("the doubler never fails");
            let [outputs] = outputs.as_slice() else { panic!("one batch for one batch") };
            let images = good.iter().filter(|&&good| good).count();
            let doubled: Vec<f32> = (0..2 * images).map(|i| 2.0 * i as f32).collect();
            assert_eq!(outputs.data, [doubled, vec![2.0; images]], "group {group}, {good:?}");
            assert_eq!(outputs.items.iter().map(|i| i.payload.is_ok()).collect::<Vec<_>>(), good);
            assert_eq!(
                outputs.items.iter().map(|i| i.id).collect::<Vec<_>>(),
                (0..good.len() as u64).collect::<Vec<_>>()
            );
        }
    }
}
