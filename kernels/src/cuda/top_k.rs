//! The best classes of each image, in memory that the host reads in place.

use super::device::Device;
use super::lower::top_k::{Scores, TopKLayout, TopKRow, softmax_top_k};
use super::lower::{Arg, Launch};
use super::memory::{DeviceMemory, PinnedMemory};
use super::module::{Function, Shape, Value};
use super::network::Functions;
use super::schedule::{Placed, size_of};
use super::stream::{Event, Waiting};
use crate::error::KernelError;
use crate::jit::Jit;
use crate::tensor::DType;

/// Most classes that are reported for an image.
pub const MAX_K: usize = 100;

/// Finds the best classes.
pub struct TopK {
    device: Device,
    function: Function,
    /// As for the output that this was made for.
    launch: Launch,
    /// What an output is like, but for its number of images.
    dtype: DType,
    classes: usize,
    layout: TopKLayout,
    max_batch: usize,
    /// Of the last launch, to be used again.
    args: Vec<Value>,
}

/// The best classes of the images of one batch.
pub struct TopKResults {
    layout: TopKLayout,
    memory: PinnedMemory,
    written: Event,
}

impl TopK {
    /// For an output `[images, classes]` like `output`, of any number of images up to `max_batch`. At most `k` classes are
    /// found, and never more than there are.
    ///
    /// # Errors
    /// Where `k` is not 1 to [`MAX_K`], or the kernel cannot be compiled.
    pub fn new(
        device: &Device,
        jit: &Jit,
        output: &Placed,
        scores: Scores,
        k: usize,
        max_batch: usize,
    ) -> Result<Self, KernelError> {
        let images = output.tensor.dims.first().copied().unwrap_or(1).max(1);
        let classes = output.tensor.len() / images;
        let k = k.min(classes);
        if !(1..=MAX_K).contains(&k) {
            return Err(KernelError::invalid("top k", format!("{k} classes; 1 to {MAX_K} can be found")));
        }
        let layout = TopKLayout { k };
        let mut functions = Functions::default();
        let launch = softmax_top_k(&output.tensor, scores, layout);
        functions.prepare(device, jit, [&launch])?;
        let (device, function) = (device.clone(), functions.get(&launch.kernel)?.clone());
        let dtype = output.tensor.dtype;
        Ok(Self { device, function, launch, dtype, classes, layout, max_batch, args: Vec::new() })
    }

    /// Memory for the results of a batch.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`], or where the driver fails.
    pub fn results(&self) -> Result<TopKResults, KernelError> {
        self.results_waited_for(Waiting::Asleep)
    }

    /// As [`TopK::results`], and how [`TopKResults::wait`] waits.
    ///
    /// # Errors
    /// As there.
    pub fn results_waited_for(&self, waiting: Waiting) -> Result<TopKResults, KernelError> {
        let memory = PinnedMemory::new(&self.device, self.max_batch * self.layout.row_bytes())?;
        Ok(TopKResults { layout: self.layout, memory, written: Event::waited_for(&self.device, waiting)? })
    }

    /// Enqueues the search over an output of a network, on the stream of its memory. What `results` held before is gone.
    ///
    /// # Errors
    /// Where the output is not in the memory or has other classes, it has more images than there is room for, or the driver
    /// fails.
    pub fn enqueue(
        &mut self,
        (memory, output): (&DeviceMemory, &Placed),
        results: &mut TopKResults,
    ) -> Result<(), KernelError> {
        if !memory.holds(output.at_bytes, output.tensor.len() * size_of(output.tensor.dtype)) {
            return Err(KernelError::invalid("top k", "an output outside its memory"));
        }
        let (stream, address) = (memory.stream(), memory.address() + output.at_bytes as u64);
        let images = output.tensor.dims.first().copied().unwrap_or(1);
        if output.tensor.dtype != self.dtype || output.tensor.len() != images * self.classes {
            return Err(KernelError::invalid("top k", "an output of another kind"));
        }
        if images * self.layout.row_bytes() > results.memory.bytes().len() || results.layout != self.layout {
            return Err(KernelError::invalid("top k", format!("no room for the results of {images} images")));
        }
        results.written.synchronize()?;
        let value = |arg: &Arg| match arg {
            Arg::Input(_) => Value::Address(address),
            Arg::Output => Value::Address(results.memory.address()),
            Arg::I32(x) => Value::I32(*x),
            Arg::F32(x) => Value::F32(*x),
            _ => Value::Address(0),
        };
        self.args.clear();
        self.args.extend(self.launch.args.iter().map(value));
        let Launch { block, shared_bytes, .. } = self.launch;
        let shape = Shape { grid: [images as u32, 1, 1], block, shared_bytes };
        // SAFETY: the arguments are those of the kernel; it reads the output, which is as large as its tensor says and in
        // memory that is given back in the order of this stream, and writes a row for each image, for which there is room.
        // The results are not looked at or dropped before the event.
        unsafe { self.function.launch(stream, shape, &self.args, false) }?;
        results.written.record(stream).or_else(|_| stream.synchronize())
    }
}

impl TopKResults {
    /// Waits until the results are there.
    ///
    /// # Errors
    /// Where the driver or earlier work failed.
    pub fn wait(&self) -> Result<TopKRows<'_>, KernelError> {
        self.written.synchronize().map(|()| TopKRows(self))
    }
}

/// Results that are there.
#[derive(Clone, Copy)]
pub struct TopKRows<'a>(&'a TopKResults);

impl TopKRows<'_> {
    /// The result of image `image`; `None` where there is no such image.
    pub fn row(&self, image: usize) -> Option<TopKRow<'_>> {
        self.0.layout.read(self.0.memory.bytes(), image)
    }
}

impl Drop for TopKResults {
    fn drop(&mut self) {
        let _ = self.wait();
    }
}
