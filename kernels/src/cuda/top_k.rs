//! The best classes of each image, in memory that the host reads in place.

use super::device::Device;
use super::lower::top_k::{Scores, TopKLayout, TopKRow, softmax_top_k};
use super::lower::{Arg, Launch};
use super::memory::{DeviceMemory, PinnedMemory};
use super::module::{Shape, Value};
use super::network::Functions;
use super::schedule::{Placed, size_of};
use super::stream::{Event, Waiting};
use crate::error::KernelError;
use crate::jit::Jit;

/// Most classes that are reported for an image.
pub const MAX_K: usize = 100;

/// Finds the best classes.
pub struct TopK {
    device: Device,
    functions: Functions,
    scores: Scores,
    layout: TopKLayout,
    max_batch: usize,
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
        let k = k.min(output.tensor.len() / images);
        if !(1..=MAX_K).contains(&k) {
            return Err(KernelError::invalid("top k", format!("{k} classes; 1 to {MAX_K} can be found")));
        }
        let layout = TopKLayout { k };
        let mut functions = Functions::default();
        functions.prepare(device, jit, [&softmax_top_k(&output.tensor, scores, layout)])?;
        Ok(Self { device: device.clone(), functions, scores, layout, max_batch })
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
    /// Where the output is not in the memory, it has more images than there is room for, or the driver fails.
    pub fn enqueue(
        &self,
        (memory, output): (&DeviceMemory, &Placed),
        results: &mut TopKResults,
    ) -> Result<(), KernelError> {
        if !memory.holds(output.at_bytes, output.tensor.len() * size_of(output.tensor.dtype)) {
            return Err(KernelError::invalid("top k", "an output outside its memory"));
        }
        let (stream, address) = (memory.stream(), memory.address() + output.at_bytes as u64);
        let launch: Launch = softmax_top_k(&output.tensor, self.scores, self.layout);
        let images = launch.grid[0] as usize;
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
        let values: Vec<Value> = launch.args.iter().map(value).collect();
        let shape = Shape { grid: launch.grid, block: launch.block, shared_bytes: launch.shared_bytes };
        // SAFETY: the arguments are those of the kernel; it reads the output, which is as large as its tensor says and in
        // memory that is given back in the order of this stream, and writes a row for each image, for which there is room.
        // The results are not looked at or dropped before the event.
        unsafe { self.functions.get(&launch.kernel)?.launch(stream, shape, &values, false) }?;
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
    pub fn row(&self, image: usize) -> Option<TopKRow> {
        self.0.layout.read(self.0.memory.bytes(), image)
    }
}

impl Drop for TopKResults {
    fn drop(&mut self) {
        let _ = self.wait();
    }
}
