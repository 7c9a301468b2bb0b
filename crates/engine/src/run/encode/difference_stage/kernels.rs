//! Differences for a fastest tier in device memory: the device's kernels make them, and restore checkpoints from them.

use super::super::stored;
use super::encoded::{self, DifferenceCoder};
use super::{Links, PlacedPiece, TierContext};
use crate::run::context::TransferError;
use crate::run::encode::{at_destination, at_source, starts_on_device};
use crate::run::medium::TierState;
use crate::{Error, Result};
use std::sync::Arc;
use tierflow_dedup::{Config, Summary, gpu, most_stored_bytes};
use tierflow_device::{Device, Error as DeviceError, Memory, ReadLoan, WriteLoan};
use tierflow_sync::model::{AtomicBool, Monitor, Mutex, Ordering};
use tierflow_sync::rank;

/// Largest number of chains kept in device memory: the number of workers that bring versions up.
const CHAINS: usize = 2;

/// Largest number of differences in device memory: one being made, and one on its way down.
const OUTPUTS: usize = 2;

/// The device, its kernels, memory for differences, and the chains used last. More chains would not help a program that restores
/// its newest versions.
#[derive(Debug)]
pub(super) struct OnDevice {
    device: Device,
    kernels: gpu::Kernels,
    outputs: Monitor<OutputBufferPool>,
    chains: Mutex<Vec<Arc<Loaded>>>,
}

/// Buffers in device memory for one difference each. Copy engines take differences from there.
#[derive(Debug, Default)]
struct OutputBufferPool {
    free: Vec<Memory>,
    /// Number of buffers, those in use included.
    all: usize,
    is_closed: bool,
}

/// A buffer for a difference, given back to the pool when this is dropped.
pub(super) struct OutputBuffer<'k> {
    memory: Memory,
    of: &'k Monitor<OutputBufferPool>,
}

/// Makes differences, each upon the one before, until one fails.
#[derive(Debug)]
pub(super) struct Lineage {
    lineage: gpu::GpuLineage,
    validity: Validity,
}

/// A flag that is true while the differences of a lineage can be used.
#[derive(Debug, Clone)]
pub(super) struct Validity(Arc<AtomicBool>);

/// A difference that the device is making. `making` is `None` if the device did not begin one.
pub(super) struct EncodeStarted<'k> {
    output: OutputBuffer<'k>,
    making: Option<(gpu::Encoding, Validity)>,
}

/// A difference that the device has made. `made` is `None` if the device did not begin one.
pub(super) struct EncodeDone<'k> {
    pub(super) output: OutputBuffer<'k>,
    pub(super) made: Option<(Result<Summary>, Validity)>,
}

/// A chain in device memory.
#[derive(Debug)]
struct Loaded {
    /// Headers of the differences, oldest first. A header has the sums of its content and of its parent's.
    heads: Vec<Vec<u8>>,
    /// The chain in device memory, locked while it is loaded. `None` before that, and after a failure.
    resident: Mutex<Option<gpu::Resident>, { rank::LIST }>,
}

impl OnDevice {
    /// Loads the kernels. Returns `None` if the processor reads the fastest tier.
    pub(super) fn new(device: &Device, tiers: &[TierState]) -> Result<Option<Self>> {
        let needs_kernels = starts_on_device(tiers) && device.as_cuda().is_some();
        let load = || -> Result<Self> {
            Ok(Self {
                device: device.clone(),
                kernels: gpu::Kernels::load(device)?,
                outputs: Monitor::default(),
                chains: Mutex::default(),
            })
        };
        needs_kernels.then(load).transpose()
    }

    /// Starts a lineage for checkpoints of `len` bytes.
    pub(super) fn lineage(&self, config: Config, len: u64) -> Result<Lineage> {
        Ok(Lineage {
            lineage: gpu::GpuLineage::new(&self.kernels, config, len)?,
            validity: Validity(Arc::new(AtomicBool::new(true))),
        })
    }

    /// Waits for a buffer for the difference of a checkpoint of `len` bytes. Returns `None` if the engine closes before.
    pub(super) fn output(&self, len: u64) -> Result<Option<OutputBuffer<'_>>> {
        let bytes = most_stored_bytes(len) as usize;
        let memory = self.outputs.wait(|outputs| match outputs.is_closed {
            true => Some(Ok(None)),
            false => outputs
                .take(&self.device, bytes)
                .transpose()
                .map(|taken| taken.map(Some)),
        })?;
        Ok(memory.map(|memory| OutputBuffer {
            memory,
            of: &self.outputs,
        }))
    }

    /// Ends all waits for a buffer.
    pub(super) fn close(&self) {
        self.outputs.change(|outputs| outputs.is_closed = true);
    }
}

impl OutputBufferPool {
    fn take(&mut self, device: &Device, bytes: usize) -> Result<Option<Memory>> {
        let free = self.free.len();
        self.free.retain(|memory| memory.len() >= bytes);
        self.all -= free - self.free.len();
        if let Some(memory) = self.free.pop() {
            return Ok(Some(memory));
        }
        if self.all == OUTPUTS {
            return Ok(None);
        }
        // The first call allocates all buffers: it waits for the device in any case, so later calls need not.
        loop {
            match device.alloc(bytes) {
                Ok(memory) => {
                    self.all += 1;
                    self.free.push(memory);
                }
                // A single buffer is enough.
                Err(DeviceError::OutOfMemory { .. }) if self.all > 0 => break,
                Err(error) => return Err(error.into()),
            }
            if self.all == OUTPUTS {
                break;
            }
        }
        Ok(self.free.pop())
    }
}

impl Drop for OutputBuffer<'_> {
    fn drop(&mut self) {
        self.of
            .change(|outputs| outputs.free.push(self.memory.clone()));
    }
}

impl OutputBuffer<'_> {
    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }
}

impl Validity {
    pub(super) fn holds(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Lineage {
    pub(super) fn holds(&self) -> bool {
        self.validity.holds()
    }

    /// Makes the device begin the next difference of the lineage.
    pub(super) fn begin<'k>(
        &mut self,
        context: &mut TierContext,
        number: u64,
        source: ReadLoan,
        output: OutputBuffer<'k>,
    ) -> Result<EncodeStarted<'k>> {
        let out = gpu::OutputBuffer::device(&output.memory, 0..output.memory.len())?;
        let mut streams = context.streams(None);
        let encoding = self.lineage.encode(streams.get()?, number, source, out);
        Ok(EncodeStarted {
            output,
            making: Some((encoding, self.validity.clone())),
        })
    }
}

impl<'k> EncodeStarted<'k> {
    /// Returns an `EncodeStarted` without a difference.
    pub(super) fn nothing(output: OutputBuffer<'k>) -> Self {
        let making = None;
        Self { output, making }
    }

    pub(super) fn wait(self) -> EncodeDone<'k> {
        let made = self.making.map(|(encoding, validity)| {
            let result = encoding.wait().result.map_err(Error::from);
            (result, validity)
        });
        let output = self.output;
        EncodeDone { output, made }
    }
}

impl OnDevice {
    /// Makes the device restore a checkpoint from its differences. With a `coder`, the device decompresses them. Returns false if
    /// the checkpoint is not stored as differences.
    pub(super) fn up(
        &self,
        context: &mut TierContext,
        tiers: &[TierState],
        (version, place, bases): Links<'_>,
        to: PlacedPiece<'_>,
        coder: Option<&DifferenceCoder>,
    ) -> std::result::Result<bool, TransferError> {
        let newest = stored::fetch_all(context, tiers, (version, place, &[]));
        let mut newest = newest.map_err(at_source)?;
        if stored::is_compressed(&newest) {
            return Ok(false);
        }
        let Some(newest) = newest.pop() else {
            return Ok(false);
        };
        let room = to.medium.lend_mut(to.at(to.all()));
        let room = room.map_err(at_destination)?;
        let others = |context: &mut TierContext| match bases {
            [] => Ok(Vec::new()),
            [(version, place), bases @ ..] => {
                stored::fetch_all(context, tiers, (*version, place, bases))
            }
        };
        let restored = self.restore(context, newest, others, room, coder);
        restored.map(|()| true).map_err(at_source)
    }

    /// Makes the device restore a checkpoint from its newest difference and the earlier ones. `others` fetches the earlier ones if
    /// they are not in device memory.
    fn restore(
        &self,
        context: &mut TierContext,
        newest: stored::Bytes,
        others: impl FnOnce(&mut TierContext) -> Result<Vec<stored::Bytes>>,
        whole: WriteLoan,
        coder: Option<&DifferenceCoder>,
    ) -> Result<()> {
        let size = whole.len() as u64;
        let head = head_of(&newest);
        // The first thread loads the chain; the others wait.
        let found = self.loaded(&head, None);
        let chain = match found.filter(|chain| chain.resident.lock().is_some()) {
            Some(chain) => chain,
            None => {
                let mut stored = others(context)?;
                stored.push(newest);
                let own = Arc::new(Loaded {
                    heads: stored.iter().map(head_of).collect(),
                    resident: Mutex::default(),
                });
                loop {
                    // The chain is in the list only while it is locked, or once it is loaded.
                    let mut resident = own.resident.lock();
                    let Some(other) = self.loaded(&head, Some(&own)) else {
                        let loaded = self.load(context, stored, size, coder);
                        *resident = Some(loaded.inspect_err(|_| self.forget(&own))?);
                        drop(resident);
                        break own;
                    };
                    drop(resident);
                    if other.resident.lock().is_some() {
                        break other;
                    }
                    // The thread of that chain could not load it.
                    self.forget(&other);
                }
            }
        };
        let mut resident = chain.resident.lock();
        let resident_chain = resident.as_mut().ok_or(Error::Internal {
            what: "a chain that is not loaded",
        })?;
        let restoring = chain.enqueue(resident_chain, context, &head, whole)?;
        drop(resident);
        // A damaged difference is detected only now. Another copy of it may be intact.
        let restored = restoring.wait().result;
        Ok(restored.inspect_err(|_| self.forget(&chain))?)
    }

    /// Removes the chain from the list, so that it is loaded again when needed.
    fn forget(&self, chain: &Arc<Loaded>) {
        let mut chains = self.chains.lock();
        chains.retain(|other| !Arc::ptr_eq(other, chain));
    }

    /// Returns the loaded chain that has a difference with this header. If there is none, adds `new` to the list.
    fn loaded(&self, head: &[u8], new: Option<&Arc<Loaded>>) -> Option<Arc<Loaded>> {
        let mut chains = self.chains.lock();
        let is_of = |chain: &Arc<Loaded>| chain.heads.iter().any(|known| known == head);
        let found = chains.iter().position(is_of).map(|at| chains.remove(at));
        let used = found.clone().or_else(|| new.cloned())?;
        if chains.len() == CHAINS {
            chains.remove(0);
        }
        chains.push(used);
        found
    }

    /// Loads the differences of checkpoints of `size` bytes. Without a coder, the host decompresses them.
    fn load(
        &self,
        context: &mut TierContext,
        mut stored: Vec<stored::Bytes>,
        size: u64,
        coder: Option<&DifferenceCoder>,
    ) -> Result<gpu::Resident> {
        let mut decoded = match coder {
            Some(coder) => coder.decode(context, &self.device, &mut stored, size)?,
            None => Vec::new(),
        };
        let (chain, _) = super::chain(stored, size)?;
        let mut streams = context.streams(None);
        let on_device = |at: usize| decoded.get_mut(at)?.take();
        let stream = streams.get()?;
        let loaded = gpu::Resident::load_beside(&self.kernels, stream, &chain, on_device);
        Ok(loaded?)
    }
}

/// Returns the header of a stored difference, which identifies it.
fn head_of(stored: &stored::Bytes) -> Vec<u8> {
    gpu::head(encoded::plain(stored.as_ref())).to_vec()
}

impl Loaded {
    /// Makes the device restore the checkpoint whose difference has this header.
    fn enqueue(
        &self,
        resident: &mut gpu::Resident,
        context: &mut TierContext,
        head: &[u8],
        whole: WriteLoan,
    ) -> Result<gpu::Restoring> {
        let mut numbers = std::iter::zip(resident.versions(), &self.heads);
        let number = numbers.find(|(_, known)| *known == head);
        let (number, _) = number.ok_or(Error::Internal {
            what: "a chain without versions",
        })?;
        drop(numbers);
        let mut streams = context.streams(None);
        Ok(resident.restore(streams.get()?, number, whole))
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use tierflow_device::host;

    #[test]
    fn a_buffer_is_never_smaller_than_was_asked_for() {
        let options = host::Options::default().device_bytes(3 << 20);
        let device = host::open(options).unwrap();
        let mut pool = OutputBufferPool::default();
        let first = pool.take(&device, 1 << 20).unwrap().unwrap();
        let second = pool.take(&device, 1 << 20).unwrap().unwrap();
        pool.free.extend([first, second]);
        // The device has no room for this and a small one.
        let large = pool.take(&device, 3 << 20).unwrap().unwrap();
        assert_eq!((large.len(), pool.all), (3 << 20, 1));
        assert!(pool.take(&device, 3 << 20).unwrap().is_none());
        pool.free.push(large);
        let again = pool.take(&device, 2 << 20).unwrap().unwrap();
        assert_eq!(again.len(), 3 << 20);
    }
}
