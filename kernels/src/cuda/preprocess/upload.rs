//! What the kernel reads besides pictures: weights that stay on the device, and memory for the tables of a launch.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::memory::{DeviceMemory, PinnedMemory};
use super::super::stream::{Event, Stream};
use super::table::{AxisKey, AxisTable};
use crate::error::KernelError;

/// Memory for weights on the device, unless one batch needs more.
const DEVICE_BYTES: usize = 32 << 20;
/// Weights remembered on the host, to be put on the device again.
const HOST_BYTES: usize = 64 << 20;
/// A slot's memory at first.
const SLOT_BYTES: usize = 1 << 20;

/// The weights of axes. When the device's memory for them is full, all are forgotten and come again as they are needed:
/// work enqueued before has read them by then, since everything happens in the order of one stream.
pub(super) struct Tables {
    stream: Stream,
    memory: DeviceMemory,
    used: usize,
    places: HashMap<AxisKey, usize>,
    /// Placed, but not uploaded yet.
    pending: Vec<(usize, Arc<AxisTable>)>,
    made: HashMap<AxisKey, Arc<AxisTable>>,
    made_bytes: usize,
}

impl Tables {
    pub(super) fn new(stream: &Stream) -> Result<Self, KernelError> {
        Ok(Self {
            stream: stream.clone(),
            memory: DeviceMemory::new(stream, DEVICE_BYTES)?,
            used: 0,
            places: HashMap::new(),
            pending: Vec::new(),
            made: HashMap::new(),
            made_bytes: 0,
        })
    }

    /// The table of an axis.
    pub(super) fn get(&mut self, key: &AxisKey) -> Result<Arc<AxisTable>, KernelError> {
        if let Some(table) = self.made.get(key) {
            return Ok(Arc::clone(table));
        }
        let table = Arc::new(AxisTable::new(key)?);
        if self.made_bytes + table.bytes.len() > HOST_BYTES {
            self.made.clear();
            self.made_bytes = 0;
        }
        self.made_bytes += table.bytes.len();
        self.made.insert(key.clone(), Arc::clone(&table));
        Ok(table)
    }

    /// Puts the addresses of the tables of all `keys` into `addresses`, in their order. Those that are not there yet are
    /// pending.
    pub(super) fn place<'a>(
        &mut self,
        keys: impl Iterator<Item = &'a AxisKey> + Clone,
        addresses: &mut Vec<u64>,
    ) -> Result<(), KernelError> {
        if !self.place_missing(keys.clone())? {
            self.forget();
            if !self.place_missing(keys.clone())? {
                let needed = 2 * self.memory.len_bytes();
                self.forget();
                self.memory = DeviceMemory::new(&self.stream, needed)?;
                return self.place(keys, addresses);
            }
        }
        let places = keys.filter_map(|key| self.places.get(key));
        addresses.clear();
        addresses.extend(places.map(|place| self.memory.address() + *place as u64));
        Ok(())
    }

    pub(super) fn forget(&mut self) {
        self.places.clear();
        self.pending.clear();
        self.used = 0;
    }

    /// False where the memory is full.
    fn place_missing<'a>(&mut self, keys: impl Iterator<Item = &'a AxisKey>) -> Result<bool, KernelError> {
        for key in keys {
            if self.places.contains_key(key) {
                continue;
            }
            let table = self.get(key)?;
            let end = self.used + table.bytes.len();
            if end > self.memory.len_bytes() {
                return Ok(false);
            }
            self.places.insert(key.clone(), self.used);
            self.pending.push((self.used, table));
            self.used = end;
        }
        Ok(true)
    }

    /// Bytes that [`Tables::upload`] takes of a slot.
    pub(super) fn pending_bytes(&self) -> usize {
        self.pending.iter().map(|(_, table)| table.bytes.len()).sum()
    }

    /// Enqueues the upload of what is pending, by way of the slot's memory from `at` on.
    pub(super) fn upload(&mut self, slot: &mut Slot, mut at: usize) -> Result<(), KernelError> {
        for (place, table) in &self.pending {
            slot.host.bytes_mut()[at..at + table.bytes.len()].copy_from_slice(&table.bytes);
            let to = self.memory.address() + *place as u64;
            // SAFETY: the table has its place in memory that is given back in the order of this stream; the slot is
            // written again, and dropped, behind `done`.
            unsafe { slot.host.upload(at, table.bytes.len(), to, &self.stream) }?;
            at += table.bytes.len();
        }
        self.pending.clear();
        Ok(())
    }
}

/// Memory of one launch's tables, used again when that launch is done. They are copied on a stream of their own, while what
/// comes before the launch is still at work: on an H200 the copy for 256 pictures takes a fifth of the kernel's time, that for
/// 32 two thirds.
pub(super) struct Slot {
    host: PinnedMemory,
    /// In the order of the stream that copies.
    device: DeviceMemory,
    copied: Event,
    done: Event,
}

impl Slot {
    pub(super) fn new(copies: &Stream) -> Result<Self, KernelError> {
        Ok(Self {
            host: PinnedMemory::new(copies.device(), SLOT_BYTES)?,
            device: DeviceMemory::new(copies, SLOT_BYTES)?,
            copied: Event::new(copies.device())?,
            done: Event::new(copies.device())?,
        })
    }

    /// Waits until the slot is free, and makes room: for a launch's tables on both sides, and on the host for weights.
    pub(super) fn reserve(&mut self, words_bytes: usize, weights_bytes: usize) -> Result<(), KernelError> {
        self.done.synchronize()?;
        let host_bytes = words_bytes + weights_bytes;
        if host_bytes > self.host.bytes().len() {
            self.host = PinnedMemory::new(self.device.stream().device(), host_bytes.next_power_of_two())?;
        }
        if words_bytes > self.device.len_bytes() {
            self.device = DeviceMemory::new(self.device.stream(), words_bytes.next_power_of_two())?;
        }
        Ok(())
    }

    /// Enqueues the upload of a launch's tables, for what is enqueued on `stream` from here on; gives their address.
    pub(super) fn upload(&mut self, stream: &Stream, words: &[u8]) -> Result<u64, KernelError> {
        self.host.bytes_mut()[..words.len()].copy_from_slice(words);
        let copies = self.device.stream();
        // SAFETY: the tables have room on the device, in memory of the stream that copies, whose last launch is done; this side
        // is written again, and dropped, behind `done`, for which `stream` waits for the copy.
        unsafe { self.host.upload(0, words.len(), self.device.address(), copies) }?;
        let ordered = self.copied.record(copies).and_then(|()| stream.wait(&self.copied));
        ordered.or_else(|_| copies.synchronize())?;
        Ok(self.device.address())
    }

    /// The slot is free when what is enqueued so far is done.
    pub(super) fn release(&self, stream: &Stream) -> Result<(), KernelError> {
        self.done.record(stream)
    }
}
