//! A schedule with memory, constants and compiled kernels: one graph to launch.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::thread;

use super::device::Device;
use super::graph::Graph;
use super::lower::{Launch, Packed, Packing};
use super::memory::DeviceMemory;
use super::module::{Function, Shape, Value};
use super::schedule::{Place, Placed, PlacedLaunch, Schedule, bytes_of};
use super::stream::Stream;
use super::tensor_map;
use crate::error::KernelError;
use crate::jit::{Jit, KernelSpec};
use crate::plan::Constant;

/// Compiled kernels, each loaded once.
#[derive(Default)]
pub(super) struct Functions(HashMap<KernelSpec, (Function, u32)>);

impl Functions {
    /// Compiles and loads what is missing, all at once.
    pub(super) fn prepare<'a>(
        &mut self,
        device: &Device,
        jit: &Jit,
        launches: impl IntoIterator<Item = &'a Launch>,
    ) -> Result<(), KernelError> {
        let mut missing: BTreeMap<KernelSpec, u32> = BTreeMap::new();
        for launch in launches {
            let known = self.0.get(&launch.kernel).is_some_and(|(_, shared)| *shared >= launch.shared_bytes);
            if !known {
                let shared = missing.entry(launch.kernel.clone()).or_default();
                *shared = launch.shared_bytes.max(*shared);
            }
        }
        let specs: Vec<_> = missing.keys().cloned().collect();
        let cubins = jit.compile(&specs)?;
        for ((spec, shared), cubin) in missing.into_iter().zip(cubins) {
            let function = Function::load(device, &cubin, spec.entry, shared)?;
            self.0.insert(spec, (function, shared));
        }
        Ok(())
    }

    pub(super) fn get(&self, spec: &KernelSpec) -> Result<&Function, KernelError> {
        let found = self.0.get(spec).map(|(function, _)| function);
        found.ok_or_else(|| KernelError::gpu(format!("kernel {} was not compiled", spec.entry)))
    }
}

/// Most constants that are packed at the same time.
const MOST_AT_ONCE: usize = 16;

/// Constants on the device, each uploaded once for all batch sizes.
#[derive(Default)]
pub(super) struct Constants(HashMap<(*const Constant, Packing), Uploaded>);

struct Uploaded {
    /// Keeps the address taken that it is known by.
    _constant: Arc<Constant>,
    memory: Arc<DeviceMemory>,
}

// SAFETY: the pointers are only compared; what they point to is kept alive, and shared, beside them.
unsafe impl Send for Constants {}

impl Constants {
    /// Packs and uploads what is missing; packing, which costs the most, on all cores.
    pub(super) fn prepare<'a>(
        &mut self,
        stream: &Stream,
        constants: impl IntoIterator<Item = &'a Packed>,
    ) -> Result<(), KernelError> {
        let mut seen = HashSet::new();
        let is_new = |packed: &&Packed| !self.0.contains_key(&key_of(packed)) && seen.insert(key_of(packed));
        let missing: Vec<&Packed> = constants.into_iter().filter(is_new).collect();
        // A few at a time, so that not all of them are in memory once more; in their order, so that every start is the same.
        for few in missing.chunks(thread::available_parallelism().map_or(1, usize::from).min(MOST_AT_ONCE)) {
            let bytes: Vec<Vec<u8>> = thread::scope(|scope| {
                let pack = |packed: &'a Packed| packed.packing.pack(&packed.constant);
                let start = |&packed| thread::Builder::new().spawn_scoped(scope, move || pack(packed));
                let threads: Vec<_> = few.iter().map(start).collect();
                let packed = threads.into_iter().map(|thread| thread.ok().and_then(|thread| thread.join().ok()));
                // Where no thread can be started this one does it.
                packed.zip(few).map(|(bytes, packed)| bytes.unwrap_or_else(|| pack(packed))).collect()
            });
            for (packed, bytes) in few.iter().zip(bytes) {
                self.upload(stream, packed, &bytes)?;
            }
        }
        Ok(())
    }

    fn upload(&mut self, stream: &Stream, packed: &Packed, bytes: &[u8]) -> Result<(), KernelError> {
        let memory = Arc::new(DeviceMemory::from_slice(stream, bytes)?);
        self.0.insert(key_of(packed), Uploaded { _constant: Arc::clone(&packed.constant), memory });
        Ok(())
    }

    /// What was [prepared](Self::prepare).
    fn get(&self, packed: &Packed) -> Result<Arc<DeviceMemory>, KernelError> {
        let uploaded = self.0.get(&key_of(packed)).map(|uploaded| Arc::clone(&uploaded.memory));
        uploaded.ok_or_else(|| KernelError::invalid("network", "a constant was not prepared"))
    }
}

fn key_of(packed: &Packed) -> (*const Constant, Packing) {
    (Arc::as_ptr(&packed.constant), packed.packing)
}

/// A network for one batch size, ready to run on the stream of its memory.
pub struct Network {
    // Before what its launches use.
    graph: Graph,
    _functions: Vec<Function>,
    _constants: Vec<Arc<DeviceMemory>>,
    memory: Arc<DeviceMemory>,
    batch: usize,
    inputs: Vec<Placed>,
    outputs: Vec<Placed>,
}

impl Network {
    /// Gives a schedule addresses and records its launches. The network's memory is `shared` where that is large enough.
    pub(super) fn new(
        schedule: Schedule,
        stream: &Stream,
        functions: &Functions,
        constants: &mut Constants,
        shared: Option<&Arc<DeviceMemory>>,
    ) -> Result<Self, KernelError> {
        let memory = match shared {
            Some(memory) if memory.len_bytes() >= schedule.memory_bytes => Arc::clone(memory),
            _ => Arc::new(DeviceMemory::new(stream, schedule.memory_bytes)?),
        };
        let constants = schedule.constants.iter().map(|packed| constants.get(packed));
        let constants = constants.collect::<Result<Vec<_>, _>>()?;
        let addresses: Vec<u64> = constants.iter().map(|memory| memory.address()).collect();
        let bind = Bind { memory: memory.address(), constants: &addresses, driver: stream.device().facts().driver };
        let mut ready = Vec::with_capacity(schedule.launches.len());
        for PlacedLaunch { launch, args, .. } in &schedule.launches {
            let values = args.iter().map(|place| bind.value(place)).collect::<Result<Vec<_>, _>>()?;
            let shape = Shape { grid: launch.grid, block: launch.block, shared_bytes: launch.shared_bytes };
            ready.push((functions.get(&launch.kernel)?, shape, values, launch.overlaps));
        }
        let record = || {
            for (i, (function, shape, values, overlaps)) in ready.iter().enumerate() {
                // The first follows work of other kinds, which says nothing about its end before it ends.
                let overlaps = *overlaps && i > 0;
                // SAFETY: the lowering wrote the arguments for this kernel, over memory that the schedule laid out.
                unsafe { function.launch(stream, *shape, values, overlaps) }?;
            }
            Ok(())
        };
        // SAFETY: this network owns memory, constants and kernels. The memory is given back in the order of the graph's
        // stream; the kernels wait for it.
        let graph = unsafe { Graph::record(stream, record) }?;
        let functions = ready.into_iter().map(|(function, ..)| function.clone()).collect();
        let Schedule { batch, inputs, outputs, .. } = schedule;
        Ok(Self { graph, _functions: functions, _constants: constants, memory, batch, inputs, outputs })
    }

    /// Images that a run takes.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Memory that networks of other batch sizes may use as well, one at a time.
    pub(super) fn memory(&self) -> &Arc<DeviceMemory> {
        &self.memory
    }

    pub(super) fn address(&self, placed: &Placed) -> u64 {
        self.memory.address() + placed.at_bytes as u64
    }

    /// Enqueues zeros for the inputs of the images from `images` on, where those are fewer than a run takes: what an
    /// earlier run left there must not matter, even where images influence one another.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn pad(&self, images: usize) -> Result<(), KernelError> {
        if images >= self.batch {
            return Ok(());
        }
        for placed in &self.inputs {
            let bytes = bytes_of(&placed.tensor);
            let kept = bytes / self.batch * images;
            self.memory.fill_range(placed.at_bytes + kept, bytes - kept, 0)?;
        }
        Ok(())
    }

    /// Input `n`: the memory it lies in, where, and what has to lie there before a run.
    pub fn input(&self, n: usize) -> Option<(&DeviceMemory, &Placed)> {
        self.inputs.get(n).map(|placed| (self.memory.as_ref(), placed))
    }

    /// Output `n`: the memory it lies in, where, and what lies there after a run, until the next of any batch size.
    pub fn output(&self, n: usize) -> Option<(&DeviceMemory, &Placed)> {
        self.outputs.get(n).map(|placed| (self.memory.as_ref(), placed))
    }

    /// Takes memory on the network's stream and enqueues a copy of the first input to it, to be
    /// [restored](Network::restore_input): a run leaves other things in the input's place.
    ///
    /// # Errors
    /// Where there is no input or no memory, or the driver fails.
    pub fn keep_input(&self) -> Result<DeviceMemory, KernelError> {
        let input = self.first_input()?;
        let kept = DeviceMemory::new(self.memory.stream(), bytes_of(&input.tensor))?;
        kept.copy_part(0, &self.memory, input.at_bytes, kept.len_bytes())?;
        Ok(kept)
    }

    /// Enqueues the copy back.
    ///
    /// # Errors
    /// Where it is not an input of this network, or the driver fails.
    pub fn restore_input(&self, kept: &DeviceMemory) -> Result<(), KernelError> {
        let input = self.first_input()?;
        self.memory.copy_part(input.at_bytes, kept, 0, bytes_of(&input.tensor))
    }

    fn first_input(&self) -> Result<&Placed, KernelError> {
        self.inputs.first().ok_or_else(|| KernelError::invalid("input", "the network has none"))
    }

    /// Enqueues a run.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn enqueue(&mut self) -> Result<(), KernelError> {
        self.graph.launch()
    }
}

/// Turns places into arguments.
struct Bind<'a> {
    memory: u64,
    constants: &'a [u64],
    driver: (u32, u32),
}

impl Bind<'_> {
    fn value(&self, place: &Place) -> Result<Value, KernelError> {
        Ok(match place {
            Place::I32(x) => Value::I32(*x),
            Place::F32(x) => Value::F32(*x),
            Place::Map(map, base) => Value::Map(tensor_map::encode(map, self.address(base)?, self.driver)?),
            Place::Memory(_) | Place::Constant(_) | Place::Null => Value::Address(self.address(place)?),
        })
    }

    fn address(&self, place: &Place) -> Result<u64, KernelError> {
        match place {
            Place::Memory(at) => Ok(self.memory + *at as u64),
            Place::Constant(n) => Ok(self.constants[*n]),
            Place::Null => Ok(0),
            Place::I32(_) | Place::F32(_) | Place::Map(..) => Err(KernelError::gpu("a number is no address")),
        }
    }
}
