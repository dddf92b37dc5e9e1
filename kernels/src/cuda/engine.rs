//! Executes a network on the GPU.

use std::collections::BTreeMap;

use super::device::Device;
use super::lower::{self, Arg, Launch, Precision, Target, Tensor};
use super::memory::{DeviceMemory, PinnedMemory};
use super::module::{Shape, Value};
use super::network::{Constants, Functions, Network};
use super::schedule::{Placed, Schedule, bytes_of, schedule};
use super::stream::{Priority, Stream};
use crate::engine::{Engine, Signature};
use crate::error::KernelError;
use crate::jit::Jit;
use crate::plan::{Plan, Port};

/// Plans the network for a batch size.
pub type Planner = Box<dyn FnMut(usize) -> Result<Plan, KernelError> + Send>;

/// How a network is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Arithmetic.
    pub precision: Precision,
    /// Only kernels that run on every architecture.
    pub portable: bool,
    /// Batch sizes that get a graph of their own, the largest among them the most images of a run. A network whose file
    /// fixes the batch has that one.
    pub batches: Vec<usize>,
}

/// The GPU engine: weights uploaded once, one graph for each batch size, all of them over the same memory.
pub struct CudaEngine {
    // Dropped first: graphs hold kernels and memory.
    networks: BTreeMap<usize, Network>,
    functions: Functions,
    constants: Constants,
    stream: Stream,
    signature: Signature,
    staging: Option<Staging>,
}

impl Drop for CudaEngine {
    fn drop(&mut self) {
        // What is under way uses kernels and page-locked memory, which the driver may take away at once.
        let _ = self.stream.synchronize();
    }
}

/// f32 copies of inputs and outputs for [`Engine::run`], on both sides. Everything that is enqueued with it is waited for,
/// also after an error, before it is used again.
struct Staging {
    device: DeviceMemory,
    host: PinnedMemory,
}

impl Staging {
    fn new(stream: &Stream, bytes: usize) -> Result<Self, KernelError> {
        let host = PinnedMemory::new(stream.device(), bytes)?;
        Ok(Self { device: DeviceMemory::new(stream, bytes)?, host })
    }

    /// Writes values where a network reads an input, zeros for the images that they are not enough for, and waits until they
    /// are there: what an earlier run left must not matter, even where images influence one another. Enough memory has been
    /// taken.
    fn write(
        &mut self,
        values: &[f32],
        functions: &Functions,
        (network, placed): (&Network, &Placed),
    ) -> Result<(), KernelError> {
        let Self { device, host } = self;
        for (to, x) in host.bytes_mut().chunks_exact_mut(4).zip(values) {
            to.copy_from_slice(&x.to_le_bytes());
        }
        let stream = device.stream();
        let from = placed.as_f32();
        let (given, all) = (values.len() * 4, bytes_of(&from));
        let to = (&placed.tensor, network.address(placed));
        // SAFETY: all have room for the whole input, and stay until the wait below.
        let enqueued = unsafe {
            let copied = host.upload(0, given, device.address(), stream);
            let filled = copied.and_then(|()| device.fill_range(given, all - given, 0));
            filled.and_then(|()| convert(functions, stream, (&from, device.address()), to))
        };
        stream.synchronize().and(enqueued)
    }

    /// The first values of a network's output, when the work so far is done. Enough memory has been taken.
    fn read(
        &mut self,
        len: usize,
        functions: &Functions,
        (network, placed): (&Network, &Placed),
    ) -> Result<impl Iterator<Item = f32>, KernelError> {
        let Self { device, host } = self;
        let stream = device.stream();
        let from = (&placed.tensor, network.address(placed));
        let to = (&placed.as_f32(), device.address());
        // SAFETY: all have room for the whole output, and stay until the wait below; nobody looks before.
        let enqueued = unsafe {
            let converted = convert(functions, stream, from, to);
            converted.and_then(|()| host.download(0, 4 * len, device.address(), stream))
        };
        stream.synchronize().and(enqueued)?;
        let values = host.bytes()[..4 * len].chunks_exact(4);
        Ok(values.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])))
    }
}

impl CudaEngine {
    /// Plans, compiles and uploads.
    ///
    /// # Errors
    /// [`KernelError::Unsupported`] where an operator has no kernel, [`KernelError::OutOfMemory`] where the largest batch
    /// does not fit, [`KernelError::TooLarge`] where it cannot be counted, and where the network cannot be planned, a kernel
    /// not compiled or the driver fails.
    pub fn new(device: &Device, jit: &Jit, planner: Planner, options: &EngineOptions) -> Result<Self, KernelError> {
        Self::on(&Stream::new(device, Priority::Low)?, jit, planner, options)
    }

    /// The same on a stream that there is.
    ///
    /// # Errors
    /// As [`CudaEngine::new`].
    pub fn on(stream: &Stream, jit: &Jit, mut planner: Planner, options: &EngineOptions) -> Result<Self, KernelError> {
        let (stream, device) = (stream.clone(), stream.device());
        let target = target(device, options);
        let one = planner(1)?;
        let signature = Signature::of(&one);
        let mut batches: Vec<usize> = options.batches.iter().copied().filter(|&n| n > 0).collect();
        batches.sort_unstable();
        batches.dedup();
        let plan = |batch: usize| if batch == one.batch { Ok(one.clone()) } else { planner(batch) };
        let schedules = batches.into_iter().map(plan).map(|plan| schedule(&plan?, &target));
        let mut schedules = schedules.collect::<Result<Vec<Schedule>, _>>()?;
        // A file that fixes the batch gives the same plan for every size.
        schedules.dedup_by_key(|schedule| schedule.batch);
        let mut engine = Self {
            networks: BTreeMap::new(),
            functions: Functions::default(),
            constants: Constants::default(),
            stream,
            signature,
            staging: None,
        };
        // One call compiles the kernels of all batch sizes in parallel.
        let launches: Vec<&Launch> =
            schedules.iter().flat_map(|schedule| &schedule.launches).map(|l| &l.launch).collect();
        let conversions: Vec<Launch> = schedules.iter().flat_map(Schedule::conversions).collect();
        engine.functions.prepare(device, jit, launches.into_iter().chain(&conversions))?;
        engine.constants.prepare(&engine.stream, schedules.iter().flat_map(|schedule| &schedule.constants))?;
        // The largest first: the others use its memory.
        for schedule in schedules.into_iter().rev() {
            let shared = engine.networks.values().next_back().map(Network::memory);
            let network = Network::new(schedule, &engine.stream, &engine.functions, &mut engine.constants, shared)?;
            engine.networks.insert(network.batch(), network);
        }
        Ok(engine)
    }

    /// The stream that everything runs on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The network for a number of images: the smallest batch that holds them, or the largest there is.
    pub fn network(&mut self, images: usize) -> Option<&mut Network> {
        smallest_for(&mut self.networks, images)
    }

    /// Writes images, as [`Engine::run`] takes them, where the network for that many reads its first input. Blocks until
    /// they are there.
    ///
    /// # Errors
    /// Where they are more than the network takes, there is no memory for the copy, or the driver or earlier work failed.
    pub fn write_input(&mut self, images: usize, input: &[f32]) -> Result<(), KernelError> {
        let Self { networks, functions, stream, staging, .. } = self;
        let network = smallest_for(networks, images).ok_or_else(no_batch_size)?;
        let (_, placed) = network.input(0).ok_or_else(no_batch_size)?;
        let from = placed.as_f32();
        if images > network.batch() || input.len() > from.len() {
            return Err(KernelError::invalid("input", format!("{images} images are too many")));
        }
        let staging = staging_of(staging, stream, bytes_of(&from))?;
        staging.write(input, functions, (network, placed))
    }

    /// The first output of the network for that many images, as [`Engine::run`] gives it: of the run that was enqueued last.
    /// Waits for it.
    ///
    /// # Errors
    /// Where they are more than the network takes, there is no memory for the copy, or the driver or earlier work failed.
    pub fn read_output(&mut self, images: usize) -> Result<Vec<f32>, KernelError> {
        let Self { networks, functions, stream, staging, .. } = self;
        let network = smallest_for(networks, images).ok_or_else(no_batch_size)?;
        let (_, placed) = network.output(0).ok_or_else(no_batch_size)?;
        let batch = network.batch();
        if images > batch {
            return Err(KernelError::invalid("output", format!("{images} images are too many")));
        }
        let staging = staging_of(staging, stream, bytes_of(&placed.as_f32()))?;
        Ok(staging.read(placed.tensor.len() / batch * images, functions, (network, placed))?.collect())
    }

    /// Takes the memory that [`CudaEngine::write_input`] needs for so many images, which it then has.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`], or where the driver fails.
    pub fn reserve_input(&mut self, images: usize) -> Result<(), KernelError> {
        let network = smallest_for(&mut self.networks, images).ok_or_else(no_batch_size)?;
        let (_, placed) = network.input(0).ok_or_else(no_batch_size)?;
        staging_of(&mut self.staging, &self.stream, bytes_of(&placed.as_f32())).map(drop)
    }

    /// Most images of a run.
    pub fn max_batch(&self) -> Option<usize> {
        self.networks.keys().next_back().copied()
    }
}

fn no_batch_size() -> KernelError {
    KernelError::invalid("run", "the engine has no batch size")
}

/// Memory of at least so many bytes on both sides.
fn staging_of<'a>(
    staging: &'a mut Option<Staging>,
    stream: &Stream,
    bytes: usize,
) -> Result<&'a mut Staging, KernelError> {
    let fits = staging.take().filter(|staging| staging.host.bytes().len() >= bytes);
    let fits = fits.map_or_else(|| Staging::new(stream, bytes), Ok)?;
    Ok(staging.insert(fits))
}

fn smallest_for(networks: &mut BTreeMap<usize, Network>, images: usize) -> Option<&mut Network> {
    let fits = networks.keys().copied().find(|&batch| batch >= images);
    let batch = fits.or_else(|| networks.keys().next_back().copied());
    networks.get_mut(&batch?)
}

/// What kernels are made for on a device.
pub fn target(device: &Device, options: &EngineOptions) -> Target {
    let facts = device.facts();
    Target {
        arch: facts.arch,
        multiprocessors: facts.multiprocessors,
        shared_bytes: facts.shared_bytes,
        precision: options.precision,
        portable: options.portable,
    }
}

/// Enqueues a conversion between two addresses.
///
/// # Safety
/// Both sides must be as large as their tensors say, until the work is done.
unsafe fn convert(
    functions: &Functions,
    stream: &Stream,
    (from, from_address): (&Tensor, u64),
    (to, to_address): (&Tensor, u64),
) -> Result<(), KernelError> {
    let launch = lower::convert(from, to);
    let value = |arg: &Arg| match arg {
        Arg::Input(_) => Value::Address(from_address),
        Arg::Output => Value::Address(to_address),
        Arg::I32(x) => Value::I32(*x),
        Arg::F32(x) => Value::F32(*x),
        _ => Value::Address(0),
    };
    let values: Vec<Value> = launch.args.iter().map(value).collect();
    let shape = Shape { grid: launch.grid, block: launch.block, shared_bytes: launch.shared_bytes };
    // SAFETY: the arguments are those of the conversion; of both sides the caller promises.
    unsafe { functions.get(&launch.kernel)?.launch(stream, shape, &values, false) }
}

impl Engine for CudaEngine {
    fn inputs(&self) -> &[Port] {
        &self.signature.inputs
    }

    fn outputs(&self) -> &[Port] {
        &self.signature.outputs
    }

    fn run(&mut self, images: usize, inputs: &[&[f32]], outputs: &mut [Vec<f32>]) -> Result<(), KernelError> {
        self.signature.check(images, inputs, outputs)?;
        if !self.signature.divisible && !self.networks.contains_key(&images) {
            return Err(KernelError::invalid("run", format!("the engine was not made for batches of {images}")));
        }
        outputs.iter_mut().for_each(Vec::clear);
        let mut done = 0;
        while done < images {
            done += self.run_part(images - done, done, images, inputs, outputs)?;
        }
        Ok(())
    }
}

impl CudaEngine {
    /// Runs one batch of at most `left` images, those from `first` on, and returns how many they were.
    fn run_part(
        &mut self,
        left: usize,
        first: usize,
        images: usize,
        inputs: &[&[f32]],
        outputs: &mut [Vec<f32>],
    ) -> Result<usize, KernelError> {
        let Self { networks, functions, stream, staging, .. } = self;
        let network = smallest_for(networks, left).ok_or_else(no_batch_size)?;
        let (batch, count) = (network.batch(), left.min(network.batch()));
        let places = (0..inputs.len())
            .filter_map(|n| network.input(n))
            .chain((0..outputs.len()).filter_map(|n| network.output(n)));
        let most = places.map(|(_, placed)| bytes_of(&placed.as_f32())).max().unwrap_or(0);
        let staging = staging_of(staging, stream, most)?;
        for (n, input) in inputs.iter().enumerate() {
            let Some((_, placed)) = network.input(n) else { continue };
            let each = input.len() / images;
            staging.write(&input[first * each..(first + count) * each], functions, (network, placed))?;
        }
        network.enqueue()?;
        for (n, output) in outputs.iter_mut().enumerate() {
            let Some((_, placed)) = network.output(n) else { continue };
            let len = placed.tensor.len() / batch * count;
            output.extend(staging.read(len, functions, (network, placed))?);
        }
        Ok(count)
    }
}
