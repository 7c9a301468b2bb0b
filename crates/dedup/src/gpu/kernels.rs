//! The kernels, loaded once, with a launch wrapper for each.
#![allow(unsafe_code, reason = "a launch is a promise about memory")]

use std::sync::Arc;

use tierflow_device::cuda::{Arg, Function, Launch, Module};
use tierflow_device::{Device, Stream, WriteLoan};

use super::report::Reports;
use crate::error::{Invalid, Result};
use crate::sample::Sample;

const LEAVES: &str = include_str!("../../ptx/dedup_leaves.ptx");
const RECORD: &str = include_str!("../../ptx/dedup_record.ptx");
const REGIONS: &str = include_str!("../../ptx/dedup_regions.ptx");
const VERIFY: &str = include_str!("../../ptx/dedup_verify.ptx");
const GATHER: &str = include_str!("../../ptx/dedup_gather.ptx");
const RESTORE: &str = include_str!("../../ptx/dedup_restore.ptx");

/// The kernels of this crate on one device. Load them once; clones share them.
#[derive(Clone, Debug)]
pub struct Kernels {
    device: Device,
    loaded: Arc<LoadedKernels>,
}

#[derive(Debug)]
struct LoadedKernels {
    multiprocessors: u32,
    reports: Reports,
    leaves_32: Function,
    leaves_64: Function,
    leaves_128: Function,
    leaves_256: Function,
    leaves_long: Function,
    sample: Function,
    find: Function,
    forget: Function,
    sweep: Function,
    enter: Function,
    verify: Function,
    verify_own: Function,
    keep: Function,
    resolve: Function,
    heads: Function,
    emit: Function,
    gather: Function,
    own: Function,
    scatter: Function,
    summed: Function,
}

impl Kernels {
    /// Compiles the kernels for a GPU. Costs some hundred milliseconds the first time; the driver caches the result.
    ///
    /// # Errors
    ///
    /// [`Invalid::NotOnGpu`] if the device is no GPU; errors of the driver.
    pub fn load(device: &Device) -> Result<Self> {
        let cuda = device.as_cuda().ok_or(Invalid::NotOnGpu {
            what: "kernels need a CUDA device",
        })?;
        let leaves = Module::load(cuda, LEAVES)?;
        let record = Module::load(cuda, RECORD)?;
        let regions = Module::load(cuda, REGIONS)?;
        let verify = Module::load(cuda, VERIFY)?;
        let gather = Module::load(cuda, GATHER)?;
        let restore = Module::load(cuda, RESTORE)?;
        let loaded = LoadedKernels {
            multiprocessors: device.info().multiprocessors.max(1),
            reports: Reports::new(device)?,
            leaves_32: leaves.function("dedup_leaves_32")?,
            leaves_64: leaves.function("dedup_leaves_64")?,
            leaves_128: leaves.function("dedup_leaves_128")?,
            leaves_256: leaves.function("dedup_leaves_256")?,
            leaves_long: leaves.function("dedup_leaves_long")?,
            sample: leaves.function("dedup_sample")?,
            find: record.function("dedup_find")?,
            forget: record.function("dedup_forget")?,
            sweep: record.function("dedup_sweep")?,
            enter: record.function("dedup_enter")?,
            verify: verify.function("dedup_verify")?,
            verify_own: verify.function("dedup_verify_own")?,
            keep: verify.function("dedup_keep")?,
            resolve: regions.function("dedup_resolve")?,
            heads: regions.function("dedup_heads")?,
            emit: regions.function("dedup_emit")?,
            gather: gather.function("dedup_gather")?,
            own: restore.function("dedup_own")?,
            scatter: restore.function("dedup_scatter")?,
            summed: restore.function("dedup_summed")?,
        };
        Ok(Self {
            device: device.clone(),
            loaded: Arc::new(loaded),
        })
    }

    /// Lends memory for the kernels' report on a checkpoint.
    pub(super) fn report(&self) -> Result<WriteLoan> {
        self.loaded.reports.take()
    }

    /// Returns the device of the kernels.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the shape of a launch for `work` blocks. The launch has at most as many blocks as run at once, as every
    /// kernel strides over its work.
    fn shape(&self, threads: u32, work: u64, per_multiprocessor: u32) -> Launch {
        let most = self.loaded.multiprocessors * per_multiprocessor;
        let blocks = u32::try_from(work).unwrap_or(u32::MAX).clamp(1, most);
        Launch {
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            shared_bytes: 0,
        }
    }
}

/// Addresses and sizes for the kernels' pass over a checkpoint. A launch is sound if, until the stream is synchronised
/// or an event recorded behind the launch is done, the caller holds
/// - the [`Arena`](super::state::Arena) whose `State` lies at `state`, of this lineage's layout, on the kernels' device;
/// - a loan of the `State`'s `len` bytes at `data`, on the device, aligned to 16;
/// - a loan for writing of `most_stored_bytes(len)` bytes at `out`, which the device can reach, aligned to 64, and a loan
///   for writing of [`RESULT_BYTES`](super::report::RESULT_BYTES) at `report`; either address may be 0 if no launch writes
///   there.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelPass {
    pub(super) state: u64,
    pub(super) data: u64,
    pub(super) out: u64,
    pub(super) report: u64,
    pub(super) ordinal: u32,
    pub(super) is_first: bool,
    pub(super) chunk: u32,
    pub(super) chunks: u32,
    pub(super) words: u32,
    pub(super) slots: u64,
    /// The sample by which `Auto` decides.
    pub(super) sample: Sample,
    /// Largest number of blocks of the kernel `gather`: few if `out` is across the bus.
    pub(super) gather_blocks: u32,
}

/// A link's moves in device memory: their address, their number, and the number of moved chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct MoveList {
    pub(super) address: u64,
    pub(super) moves: u32,
    pub(super) chunks: u32,
}

impl Kernels {
    /// # Safety
    /// As [`KernelPass`] says.
    pub(super) unsafe fn leaves(&self, stream: &Stream, pass: &KernelPass) -> Result<()> {
        let loaded = &self.loaded;
        // `resident` is the number of blocks that fit a multiprocessor, by their registers and shared memory.
        let (function, per_warp, resident) = match pass.chunk {
            32 => (&loaded.leaves_32, 32, 6),
            64 => (&loaded.leaves_64, 32, 6),
            128 => (&loaded.leaves_128, 32, 5),
            256 => (&loaded.leaves_256, 8, 6),
            _ => (&loaded.leaves_long, 8, 6),
        };
        let work = u64::from(pass.chunks.div_ceil(4 * per_warp));
        let shape = self.shape(128, work, resident);
        let args = [
            Arg::address(pass.state),
            Arg::address(pass.data),
            Arg::u32(pass.is_first.into()),
        ];
        // SAFETY: three parameters of these types; the caller promises that the memory that they reach is lent.
        Ok(unsafe { stream.launch(function, shape, &args) }?)
    }

    /// # Safety
    /// As [`KernelPass`] says.
    pub(super) unsafe fn sample(&self, stream: &Stream, pass: &KernelPass) -> Result<()> {
        let shape = self.shape(128, u64::from(pass.sample.len().div_ceil(128)), 8);
        let args = [
            Arg::address(pass.state),
            Arg::address(pass.data),
            Arg::u64(pass.sample.salt()),
        ];
        // SAFETY: three parameters of these types; the caller promises that the memory that they reach is lent.
        Ok(unsafe { stream.launch(&self.loaded.sample, shape, &args) }?)
    }

    /// # Safety
    /// As [`KernelPass`] says.
    pub(super) unsafe fn find(&self, stream: &Stream, pass: &KernelPass) -> Result<()> {
        let shape = self.shape(256, u64::from(pass.words.div_ceil(256)), 8);
        let args = [Arg::address(pass.state)];
        // SAFETY: one parameter, an address; the kernel keeps to the arena that it describes.
        Ok(unsafe { stream.launch(&self.loaded.find, shape, &args) }?)
    }

    /// # Safety
    /// As [`KernelPass`] says.
    pub(super) unsafe fn forget(&self, stream: &Stream, pass: &KernelPass) -> Result<()> {
        let shape = self.shape(256, pass.slots.div_ceil(256), 8);
        let args = [Arg::address(pass.state)];
        // SAFETY: one parameter, an address; the kernel keeps to the arena that it describes.
        Ok(unsafe { stream.launch(&self.loaded.forget, shape, &args) }?)
    }

    /// # Safety
    /// As [`KernelPass`] says.
    pub(super) unsafe fn sweep(&self, stream: &Stream, pass: &KernelPass) -> Result<()> {
        let shape = self.shape(256, pass.slots.div_ceil(256), 8);
        let args = [Arg::address(pass.state)];
        // SAFETY: one parameter, an address; the kernel keeps to the arena that it describes.
        Ok(unsafe { stream.launch(&self.loaded.sweep, shape, &args) }?)
    }

    /// # Safety
    /// As [`KernelPass`] says.
    pub(super) unsafe fn enter(&self, stream: &Stream, pass: &KernelPass) -> Result<()> {
        let shape = self.shape(256, u64::from(pass.words.div_ceil(256)), 8);
        let args = [Arg::address(pass.state)];
        // SAFETY: one parameter, an address; the kernel keeps to the arena.
        Ok(unsafe { stream.launch(&self.loaded.enter, shape, &args) }?)
    }

    /// # Safety
    /// As [`KernelPass`] says.
    pub(super) unsafe fn verify(&self, stream: &Stream, pass: &KernelPass) -> Result<()> {
        let shape = self.shape(256, u64::from(pass.words.div_ceil(8)), 8);
        let args = [
            Arg::address(pass.state),
            Arg::address(pass.data),
            Arg::u32(pass.ordinal),
            Arg::u32(pass.is_first.into()),
        ];
        // SAFETY: four parameters of these types; the caller promises that the memory that they reach is lent. The
        // arena has the bytes to compare with, as its plan verifies.
        Ok(unsafe { stream.launch(&self.loaded.verify, shape, &args) }?)
    }

    /// # Safety
    /// As [`KernelPass`] says.
    pub(super) unsafe fn verify_own(&self, stream: &Stream, pass: &KernelPass) -> Result<()> {
        let shape = self.shape(256, u64::from(pass.words.div_ceil(8)), 8);
        let args = [
            Arg::address(pass.state),
            Arg::address(pass.data),
            Arg::u32(pass.ordinal),
        ];
        // SAFETY: three parameters of these types, as for `verify`.
        Ok(unsafe { stream.launch(&self.loaded.verify_own, shape, &args) }?)
    }

    /// # Safety
    /// As [`KernelPass`] says.
    pub(super) unsafe fn keep(&self, stream: &Stream, pass: &KernelPass) -> Result<()> {
        let bytes = u64::from(pass.chunks) * u64::from(pass.chunk);
        let shape = self.shape(256, bytes.div_ceil(256 * 16), 8);
        let args = [Arg::address(pass.state), Arg::address(pass.data)];
        // SAFETY: two parameters, both addresses, as for `verify`.
        Ok(unsafe { stream.launch(&self.loaded.keep, shape, &args) }?)
    }

    /// # Safety
    /// As [`KernelPass`] says.
    pub(super) unsafe fn resolve(&self, stream: &Stream, pass: &KernelPass) -> Result<()> {
        let shape = self.shape(256, u64::from(pass.words.div_ceil(256)), 6);
        let args = [Arg::address(pass.state), Arg::u32(pass.ordinal)];
        // SAFETY: two parameters of these types; the kernel keeps to the arena.
        Ok(unsafe { stream.launch(&self.loaded.resolve, shape, &args) }?)
    }

    /// # Safety
    /// As [`KernelPass`] says.
    pub(super) unsafe fn heads(&self, stream: &Stream, pass: &KernelPass) -> Result<()> {
        let shape = self.shape(256, u64::from(pass.words.div_ceil(256)), 6);
        let args = [Arg::address(pass.state)];
        // SAFETY: one parameter, an address; the kernel keeps to the arena.
        Ok(unsafe { stream.launch(&self.loaded.heads, shape, &args) }?)
    }

    /// # Safety
    /// As [`KernelPass`] says.
    pub(super) unsafe fn emit(&self, stream: &Stream, pass: &KernelPass) -> Result<()> {
        let shape = self.shape(256, u64::from(pass.words.div_ceil(256)), 4);
        let args = [
            Arg::address(pass.state),
            Arg::address(pass.out),
            Arg::u32(pass.ordinal),
        ];
        // SAFETY: three parameters of these types. The kernel writes metadata behind the header only if `heads` found
        // that all of it fits in a full checkpoint's length, which the caller promises.
        Ok(unsafe { stream.launch(&self.loaded.emit, shape, &args) }?)
    }

    /// # Safety
    /// As [`KernelPass`] says.
    pub(super) unsafe fn gather(&self, stream: &Stream, pass: &KernelPass) -> Result<()> {
        let bytes = u64::from(pass.chunks) * u64::from(pass.chunk);
        let mut shape = self.shape(256, bytes.div_ceil(8 * 2048), 8);
        shape.grid[0] = shape.grid[0].min(pass.gather_blocks);
        let args = [
            Arg::address(pass.state),
            Arg::address(pass.data),
            Arg::address(pass.out),
            Arg::address(pass.report),
        ];
        // SAFETY: four parameters, all addresses. The kernel writes its report, and payload under the same condition as
        // `emit` writes metadata.
        Ok(unsafe { stream.launch(&self.loaded.gather, shape, &args) }?)
    }

    /// Applies a list of moves to the owners.
    ///
    /// # Safety
    /// Until the launch is over, the caller holds loans of the moves, of the owners for writing, and of all memory in which
    /// the moves' sources lie. Every moved chunk has an entry in the owners.
    pub(super) unsafe fn own(
        &self,
        stream: &Stream,
        list: MoveList,
        chunk: u32,
        owners: u64,
    ) -> Result<()> {
        let shape = self.shape(256, u64::from(list.chunks.div_ceil(256)), 8);
        let args = [
            Arg::address(list.address),
            Arg::u32(list.moves),
            Arg::u32(list.chunks),
            Arg::u32(chunk.trailing_zeros()),
            Arg::address(owners),
        ];
        // SAFETY: five parameters of these types; the caller promises that the memory that they reach is lent.
        Ok(unsafe { stream.launch(&self.loaded.own, shape, &args) }?)
    }

    /// Copies `len` bytes to `out`, chunk by chunk, from the chunks' owners.
    ///
    /// # Safety
    /// Until the launch is over, the caller holds loans as for [`own`](Self::own), and one for writing of `len` bytes
    /// at `out`. Every chunk has an owner.
    pub(super) unsafe fn scatter(
        &self,
        stream: &Stream,
        owners: u64,
        out: u64,
        len: u64,
        chunk: u32,
    ) -> Result<()> {
        let shape = self.shape(256, len.div_ceil(8 * 2048), 8);
        let args = [
            Arg::address(owners),
            Arg::address(out),
            Arg::u64(len),
            Arg::u32(chunk.trailing_zeros()),
        ];
        // SAFETY: four parameters of these types; the caller promises that the memory that they reach is lent.
        Ok(unsafe { stream.launch(&self.loaded.scatter, shape, &args) }?)
    }

    /// Writes the sum of a leaf pass that kept no digests to `pass.report`.
    ///
    /// # Safety
    /// As [`KernelPass`] says.
    pub(super) unsafe fn summed(&self, stream: &Stream, pass: &KernelPass) -> Result<()> {
        let shape = self.shape(1, 1, 1);
        let args = [Arg::address(pass.state), Arg::address(pass.report)];
        // SAFETY: two parameters, both addresses, of memory that is lent by the caller's promise.
        Ok(unsafe { stream.launch(&self.loaded.summed, shape, &args) }?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernels, and the number of parameters that the wrappers pass.
    const WRAPPERS: [(&str, usize); 20] = [
        ("dedup_leaves_32", 3),
        ("dedup_leaves_64", 3),
        ("dedup_leaves_128", 3),
        ("dedup_leaves_256", 3),
        ("dedup_leaves_long", 3),
        ("dedup_sample", 3),
        ("dedup_find", 1),
        ("dedup_forget", 1),
        ("dedup_sweep", 1),
        ("dedup_enter", 1),
        ("dedup_verify", 4),
        ("dedup_verify_own", 3),
        ("dedup_keep", 2),
        ("dedup_resolve", 2),
        ("dedup_heads", 1),
        ("dedup_emit", 3),
        ("dedup_gather", 4),
        ("dedup_own", 5),
        ("dedup_scatter", 4),
        ("dedup_summed", 2),
    ];

    #[test]
    fn the_ptx_has_the_kernels_that_are_launched_with_as_many_parameters() {
        let mut found: Vec<(String, usize)> = Vec::new();
        for ptx in [LEAVES, RECORD, VERIFY, REGIONS, GATHER, RESTORE] {
            for entry in ptx.split(".visible .entry ").skip(1) {
                let (name, rest) = entry.split_once('(').unwrap();
                let parameters = rest.split_once(')').unwrap().0;
                found.push((name.to_owned(), parameters.matches(".param").count()));
            }
        }
        found.sort();
        let mut wrapped: Vec<_> = WRAPPERS.map(|(name, n)| (name.to_owned(), n)).to_vec();
        wrapped.sort();
        assert_eq!(found, wrapped);
    }
}
