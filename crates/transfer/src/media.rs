//! The media: arenas, memory of other owners, scratch storage, and the caller's bytes.

use crate::straight::Straight;
use crate::{Medium, MediumKind, Result, Source, StreamChoice, Target};
use std::ops::Range;
use std::sync::Arc;
use tierflow_device::{Memory, ReadLoan, Transfer, WriteLoan};
use tierflow_store::Storage;
use tierflow_tier_alloc::{DeviceArena, Gate, HostArena, Transferring};

/// Returns the range as indices of memory. Offsets come from tables of the memory's size; a larger one is clamped, and so is out of
/// bounds.
#[must_use]
pub fn to_usize(range: Range<u64>) -> Range<usize> {
    let clamp = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    clamp(range.start)..clamp(range.end)
}

/// Returns `bytes` rounded up to whole blocks.
#[must_use]
pub fn whole_blocks(block: u64, bytes: u64) -> u64 {
    match block {
        1 => bytes,
        block => bytes.next_multiple_of(block),
    }
}

/// Returns the kind of memory. The host's back end has device memory that the processor reaches.
fn kind_of(memory: &Memory) -> MediumKind {
    match memory.host_accessible() {
        true => MediumKind::Pageable,
        false => MediumKind::Device,
    }
}

fn range(offset: u64, bytes: usize) -> Range<u64> {
    offset..offset + bytes as u64
}

impl Medium for DeviceArena {
    fn kind(&self) -> MediumKind {
        kind_of(self.memory())
    }

    fn capacity(&self) -> Option<u64> {
        Some(self.capacity() as u64)
    }

    fn lend(&self, bytes: Range<u64>) -> Option<Result<ReadLoan>> {
        Some(self.lend(to_usize(bytes)).map_err(Into::into))
    }

    fn lend_mut(&self, bytes: Range<u64>) -> Option<Result<WriteLoan>> {
        Some(self.lend_mut(to_usize(bytes)).map_err(Into::into))
    }
}

impl Medium for HostArena {
    fn kind(&self) -> MediumKind {
        MediumKind::Pinned
    }

    fn capacity(&self) -> Option<u64> {
        Some(self.capacity() as u64)
    }

    fn lend(&self, bytes: Range<u64>) -> Option<Result<ReadLoan>> {
        Some(self.lend(to_usize(bytes)).map_err(Into::into))
    }

    fn lend_mut(&self, bytes: Range<u64>) -> Option<Result<WriteLoan>> {
        Some(self.lend_mut(to_usize(bytes)).map_err(Into::into))
    }

    /// Copies by the arena's fastest path.
    fn begin_read(
        &self,
        offset: u64,
        into: WriteLoan,
        stream: &mut StreamChoice<'_>,
    ) -> Result<Option<Transfer>> {
        Ok(self.begin_copy_out(stream.get()?, to_usize(offset..offset).start, into)?)
    }

    fn begin_write(
        &self,
        offset: u64,
        from: ReadLoan,
        stream: &mut StreamChoice<'_>,
    ) -> Result<Option<Transfer>> {
        Ok(self.begin_copy_in(stream.get()?, from, to_usize(offset..offset).start)?)
    }

    fn gate(&self) -> Option<&Gate> {
        Some(self.gate())
    }

    fn flushed_into(&self, bytes: Range<u64>) -> Option<Transferring<'_>> {
        Some(self.transferring(to_usize(bytes)))
    }
}

/// Memory of another owner, such as that of peers.
#[derive(Debug, Clone)]
pub struct MemoryMedium {
    memory: Memory,
    kind: MediumKind,
}

impl MemoryMedium {
    /// Makes a medium of other devices' memory that this device reaches.
    #[must_use]
    pub fn of_peers(memory: Memory) -> Self {
        let kind = match kind_of(&memory) {
            MediumKind::Device => MediumKind::Peer,
            kind => kind,
        };
        Self { memory, kind }
    }
}

impl Medium for MemoryMedium {
    fn kind(&self) -> MediumKind {
        self.kind
    }

    fn capacity(&self) -> Option<u64> {
        Some(self.memory.len() as u64)
    }

    fn lend(&self, bytes: Range<u64>) -> Option<Result<ReadLoan>> {
        Some(self.memory.lend(to_usize(bytes)).map_err(Into::into))
    }

    fn lend_mut(&self, bytes: Range<u64>) -> Option<Result<WriteLoan>> {
        Some(self.memory.lend_mut(to_usize(bytes)).map_err(Into::into))
    }
}

/// Storage in blocks that ends with the process. Also the file in it, if there is one, that a device reads and writes directly.
#[derive(Debug)]
pub struct ScratchMedium {
    storage: Arc<dyn Storage>,
    straight: Option<Arc<Straight>>,
}

impl ScratchMedium {
    /// Makes a medium of storage, with its path past the host's memory if there is one.
    #[must_use]
    pub fn new(storage: Arc<dyn Storage>, straight: Option<Arc<Straight>>) -> Self {
        Self { storage, straight }
    }

    /// Returns the storage.
    #[must_use]
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// Returns the file in the storage that a device reads and writes directly.
    #[must_use]
    pub fn straight(&self) -> Option<&Arc<Straight>> {
        self.straight.as_ref()
    }
}

/// A place on scratch storage.
#[derive(Debug, Clone, Copy)]
pub struct ScratchPlace<'a> {
    /// The storage.
    pub medium: &'a ScratchMedium,
    /// Offset of the first byte on the storage.
    pub offset: u64,
}

impl Medium for ScratchMedium {
    fn kind(&self) -> MediumKind {
        MediumKind::Scratch
    }

    fn block(&self) -> u64 {
        self.storage.alignment() as u64
    }

    fn begin_read(
        &self,
        offset: u64,
        mut into: WriteLoan,
        _: &mut StreamChoice<'_>,
    ) -> Result<Option<Transfer>> {
        self.storage.read_at(offset, into.bytes_mut()?)?;
        Ok(None)
    }

    fn begin_write(
        &self,
        offset: u64,
        from: ReadLoan,
        _: &mut StreamChoice<'_>,
    ) -> Result<Option<Transfer>> {
        self.storage.write_at(offset, from.bytes()?)?;
        Ok(None)
    }

    fn scratch(&self) -> Option<&ScratchMedium> {
        Some(self)
    }
}

/// Bytes of the caller that hold a version from `start` on. [`HostBytes`] lends no memory.
#[derive(Debug)]
pub struct HostBytes<B> {
    /// Offset of the first byte in the version.
    pub start: u64,
    /// The bytes.
    pub bytes: B,
}

impl<B> HostBytes<B> {
    fn range(&self, at: u64, length: usize) -> Range<usize> {
        let from = (at - self.start) as usize;
        from..from + length
    }
}

impl Source for HostBytes<&[u8]> {
    fn kind(&self) -> MediumKind {
        MediumKind::Pageable
    }

    fn read(&self, at: u64, mut into: WriteLoan, _: &mut StreamChoice<'_>) -> Result<()> {
        let into = into.bytes_mut()?;
        into.copy_from_slice(&self.bytes[self.range(at, into.len())]);
        Ok(())
    }
}

impl Target for HostBytes<&mut [u8]> {
    fn kind(&self) -> MediumKind {
        MediumKind::Pageable
    }

    fn write(&mut self, at: u64, from: ReadLoan, _: &mut StreamChoice<'_>) -> Result<()> {
        let from = from.bytes()?;
        let to = self.range(at, from.len());
        self.bytes[to].copy_from_slice(from);
        Ok(())
    }
}

/// Memory of the caller that holds a version from `start` on.
#[derive(Debug)]
pub struct MemoryBytes<'m> {
    /// Offset of the first byte in the version.
    pub start: u64,
    /// The memory.
    pub memory: &'m Memory,
}

impl MemoryBytes<'_> {
    fn range(&self, bytes: Range<u64>) -> Range<usize> {
        to_usize(bytes.start - self.start..bytes.end - self.start)
    }
}

impl Source for MemoryBytes<'_> {
    fn kind(&self) -> MediumKind {
        kind_of(self.memory)
    }

    fn lend(&self, bytes: Range<u64>) -> Option<Result<ReadLoan>> {
        // Whole blocks may end beyond the memory; then the copy takes buffers.
        Some(Ok(self.memory.lend(self.range(bytes)).ok()?))
    }

    fn read(&self, at: u64, into: WriteLoan, stream: &mut StreamChoice<'_>) -> Result<()> {
        let from = self.memory.lend(self.range(range(at, into.len())))?;
        Ok(stream.get()?.copy_all([(from, into)])?)
    }
}

impl Target for MemoryBytes<'_> {
    fn kind(&self) -> MediumKind {
        kind_of(self.memory)
    }

    fn lend_mut(&mut self, bytes: Range<u64>) -> Option<Result<WriteLoan>> {
        Some(Ok(self.memory.lend_mut(self.range(bytes)).ok()?))
    }

    fn write(&mut self, at: u64, from: ReadLoan, stream: &mut StreamChoice<'_>) -> Result<()> {
        let into = self.memory.lend_mut(self.range(range(at, from.len())))?;
        Ok(stream.get()?.copy_all([(from, into)])?)
    }
}
