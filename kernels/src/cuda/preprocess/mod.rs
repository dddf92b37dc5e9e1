//! Preprocessing on the GPU: one launch for pictures of any sizes and formats, from planes to the network's input.
//!
//! The bits are those of [`crate::cpu::preprocess`] after [`crate::cpu::planes`]. What to do is planned here, as data:
//! weights of an axis are made once and stay on the device; a launch takes a table of pictures and of work.

mod plan;
mod table;
mod upload;

use std::collections::HashMap;
use std::sync::Arc;

use super::memory::DeviceMemory;
use super::module::{Function, Shape, Value};
use super::planes::{Plane, PlaneArena};
use super::stream::{Priority, Stream};
use crate::error::KernelError;
use crate::jit::{Jit, KernelSpec};
use crate::picture::PictureDesc;
use crate::preprocess::place::check;
use crate::preprocess::{PreprocessDesc, Transform};
use crate::tensor::{DType, Layout};
use plan::{
    Batch, PicturePlan, Planned, blocks_at_a_time, check_output, resident_blocks, settings, shared_budget_bytes,
};
use upload::{Slot, Tables};

/// Threads of a block.
const THREADS: u32 = 224;
/// Launches that may be under way before the next one waits for the first.
const SLOTS: usize = 4;
/// Geometries whose plan is remembered.
const KNOWN_PLANS: usize = 4096;

/// How values are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutputFormat {
    /// f32, f16, bf16 or i8.
    pub dtype: DType,
    /// Axis order; that of the description does not matter here.
    pub layout: Layout,
    /// Elements from one pixel to the next in N, H, W, C: 3 or more, the others are zero. 3 in N, C, H, W.
    pub pitch: usize,
    /// What 1 stands for in i8: a value is divided by it, rounded to nearest (halves to even) and cut to -128..=127. Of no
    /// meaning elsewhere.
    pub step: f32,
}

impl OutputFormat {
    /// Bytes of an image of `desc`.
    pub fn image_bytes(&self, desc: &PreprocessDesc) -> usize {
        let element = match self.dtype {
            DType::F32 => 4,
            DType::I8 => 1,
            _ => 2,
        };
        desc.width_px * desc.height_px * self.pitch * element
    }

    /// The kernel that writes it.
    pub fn kernel(&self) -> KernelSpec {
        let kind = match self.dtype {
            DType::F16 => "1",
            DType::Bf16 => "2",
            DType::I8 => "3",
            _ => "0",
        };
        let planes = if self.layout == Layout::Nchw { "1" } else { "0" };
        let defines = [("PITCH", self.pitch.to_string()), ("PLANES", planes.into()), ("TYPE", kind.into())];
        KernelSpec::new("preprocess.cu", "preprocess", defines)
    }
}

/// Where a plane lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DevicePlane {
    /// Of its first sample, a multiple of 16.
    pub address: u64,
    /// Bytes from row to row, a multiple of 16. All of them may be read, in every row.
    pub pitch_bytes: u32,
}

/// A decoded picture in the GPU's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevicePicture {
    /// What it is.
    pub desc: PictureDesc,
    /// Its planes; those that the format has not do not matter.
    pub planes: [DevicePlane; 3],
}

impl DevicePicture {
    /// Whether all its planes lie in the arena's memory, whole rows with their padding, at multiples of 16.
    fn is_in(&self, arena: &PlaneArena) -> bool {
        self.planes.iter().take(self.desc.planes()).enumerate().all(|(n, plane)| {
            let [row_bytes, rows] = self.desc.plane_size(n);
            let rows = u32::try_from(rows).ok();
            let place = |rows| Plane { address: plane.address, pitch_bytes: plane.pitch_bytes, rows };
            let aligned = plane.address.is_multiple_of(16) && plane.pitch_bytes.is_multiple_of(16);
            aligned && row_bytes <= plane.pitch_bytes as usize && rows.is_some_and(|rows| arena.holds(&place(rows)))
        })
    }
}

/// Preprocesses pictures on one stream.
pub struct GpuPreprocess {
    stream: Stream,
    function: Function,
    /// Most of a block.
    shared_bytes: usize,
    /// Blocks that the device runs at the same time, about.
    resident_blocks: usize,
    desc: PreprocessDesc,
    output: OutputFormat,
    max_batch: usize,
    settings: Vec<u8>,
    plans: HashMap<PictureDesc, Arc<Planned>>,
    tables: Tables,
    slots: Vec<Slot>,
    next: usize,
    scratch: Scratch,
}

/// What belongs to the last batch, in memory that is used again for the next one.
#[derive(Default)]
struct Scratch {
    plans: Vec<Arc<Planned>>,
    /// Of the tables of each picture's axes.
    addresses: Vec<u64>,
    batch: Batch,
    transforms: Vec<Transform>,
}

impl GpuPreprocess {
    /// Compiles the kernel and takes memory. Batches hold up to `max_batch` pictures.
    ///
    /// # Errors
    /// Where the description or the output's format is not possible, or the GPU fails.
    pub fn new(
        stream: &Stream,
        jit: &Jit,
        desc: PreprocessDesc,
        output: OutputFormat,
        max_batch: usize,
    ) -> Result<Self, KernelError> {
        check(&desc)?;
        check_output(&output)?;
        let facts = stream.device().facts();
        let resident_blocks = resident_blocks(facts);
        let settings = settings(&desc, &output, resident_blocks)?;
        let shared_bytes = shared_budget_bytes(facts.shared_bytes as usize, blocks_at_a_time(facts));
        let kernel = output.kernel();
        let cubins = jit.compile(std::slice::from_ref(&kernel))?;
        let cubin = cubins.first().ok_or_else(|| KernelError::gpu("no kernel was compiled"))?;
        let function = Function::load(stream.device(), cubin, kernel.entry, shared_bytes as u32)?;
        let copies = Stream::new(stream.device(), Priority::High)?;
        let slots = (0..SLOTS).map(|_| Slot::new(&copies)).collect::<Result<_, _>>()?;
        let tables = Tables::new(stream)?;
        Ok(Self {
            stream: stream.clone(),
            function,
            shared_bytes,
            resident_blocks,
            desc,
            output,
            max_batch,
            settings,
            plans: HashMap::new(),
            tables,
            slots,
            next: 0,
            scratch: Scratch::default(),
        })
    }

    /// Enqueues the preprocessing of `pictures`, whose planes lie in `arena`, image `i` to byte
    /// `output_at + i * image_bytes` of `output`; gives the transforms. The arena is not used again until that is done.
    /// Waits only where four earlier calls are still under way.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`], after which a smaller batch may be tried; where there are too many pictures, one is
    /// empty or too large or not in the arena at multiples of 16, the output has no room for them, is of another stream or
    /// its address no multiple of 16, or the GPU fails.
    pub fn enqueue(
        &mut self,
        pictures: &[DevicePicture],
        arena: &PlaneArena,
        (output, output_at): (&DeviceMemory, usize),
    ) -> Result<&[Transform], KernelError> {
        let output_address = output.address().saturating_add(output_at as u64);
        let fits = output.holds(output_at, pictures.len().saturating_mul(self.output.image_bytes(&self.desc)));
        let sound = fits && *output.stream() == self.stream && output_address.is_multiple_of(16);
        if pictures.len() > self.max_batch || !sound {
            let why = format!("{} pictures of {} to address {output_address:#x}", pictures.len(), self.max_batch);
            return Err(KernelError::invalid("preprocess", why));
        }
        if !pictures.iter().all(|picture| picture.is_in(arena)) {
            return Err(KernelError::invalid("preprocess", "a picture outside the arena, or not at multiples of 16"));
        }
        if pictures.is_empty() {
            return Ok(&[]);
        }
        // Away from here for the time being; what fails loses it, which only costs memory once more.
        let mut scratch = std::mem::take(&mut self.scratch);
        let Scratch { plans, addresses, batch, transforms } = &mut scratch;
        plans.clear();
        for picture in pictures {
            plans.push(self.plan(&picture.desc)?);
        }
        self.tables.place(plans.iter().flat_map(|plan| &plan.plan.axes), addresses)?;
        batch.fill(&self.desc, &self.output, &self.settings, (plans, self.resident_blocks), |i| {
            let planes = pictures[i].planes.map(|plane| (plane.address, plane.pitch_bytes));
            (planes, [addresses[2 * i], addresses[2 * i + 1]])
        });
        let launched = self.launch(batch, output_address).and_then(|()| {
            // The arena waits for this before it uses its memory again or gives it back.
            arena.read_by(&self.stream).or_else(|_| self.stream.synchronize())
        });
        if launched.is_err() {
            // Weights that were not uploaded must not burden a smaller batch.
            self.tables.forget();
        }
        launched?;
        transforms.clear();
        transforms.extend(plans.iter().map(|plan| plan.plan.placed.transform));
        self.scratch = scratch;
        Ok(&self.scratch.transforms)
    }

    fn launch(&mut self, batch: &Batch, output_address: u64) -> Result<(), KernelError> {
        let slot = &mut self.slots[self.next];
        self.next = (self.next + 1) % SLOTS;
        let words = &batch.words.0;
        slot.reserve(words.len(), self.tables.pending_bytes())?;
        let uploaded = slot.upload(&self.stream, words).and_then(|table| {
            self.tables.upload(slot, words.len())?;
            Ok(table)
        });
        let launched = uploaded.and_then(|table| {
            let at = |offset: usize| Value::Address(table + offset as u64);
            let args = [at(0), at(batch.pictures_at), at(batch.items_at), Value::Address(output_address)];
            let grid = [batch.items as u32, 1, 1];
            let shape = Shape { grid, block: THREADS, shared_bytes: batch.shared_bytes as u32 };
            // SAFETY: the arguments are those of `preprocess`; weights are this object's and are written before on the same
            // stream, which waits for the tables' copy; the output is given back in its order; the arena keeps the planes, of
            // which it is told.
            unsafe { self.function.launch(&self.stream, shape, &args, false) }
        });
        // Also after an error: uploads are under way.
        slot.release(&self.stream).or_else(|_| self.stream.synchronize()).and(launched)
    }

    /// Whether a picture can be preprocessed.
    ///
    /// # Errors
    /// [`KernelError::Invalid`] where it is empty or too large.
    pub fn check(&mut self, picture: &PictureDesc) -> Result<(), KernelError> {
        self.plan(picture).map(|_| ())
    }

    fn plan(&mut self, picture: &PictureDesc) -> Result<Arc<Planned>, KernelError> {
        if let Some(plan) = self.plans.get(picture) {
            return Ok(Arc::clone(plan));
        }
        let plan = PicturePlan::new(&self.desc, picture)?;
        let [across, down] = [self.tables.get(&plan.axes[0])?, self.tables.get(&plan.axes[1])?];
        let plan = Arc::new(Planned::new(plan, &self.desc, [&across, &down], self.shared_bytes));
        if self.plans.len() >= KNOWN_PLANS {
            self.plans.clear();
        }
        self.plans.insert(*picture, Arc::clone(&plan));
        Ok(plan)
    }
}

impl Drop for GpuPreprocess {
    fn drop(&mut self) {
        // What is under way uses the kernel and page-locked memory, which the driver may take away at once.
        let _ = self.stream.synchronize();
    }
}
