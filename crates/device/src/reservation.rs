//! Reservations: addresses that get memory chunk by chunk.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tierflow_sync::{Mutex, rank};

use crate::backend::ChunkMemory;
use crate::device::{Device, not_empty};
use crate::error::{Invalid, Result};
use crate::memory::{Chunk, Memory};
use crate::pages;
use crate::peer::Exported;

/// A range of device addresses that becomes usable chunk by chunk. From [`Device::reserve_pinned`], a range of host
/// addresses.
///
/// On CUDA, a reservation is `cuMemAddressReserve`, and each chunk `cuMemCreate`, `cuMemMap` and `cuMemSetAccess`. The
/// first chunk is usable long before the last one is mapped.
///
/// ```
/// # fn main() -> tierflow_device::Result<()> {
/// # let device = tierflow_device::open(tierflow_device::Choice::Host)?;
/// let reservation = device.reserve(1 << 30)?;
/// let chunk = 16 * reservation.granularity();
/// assert!(reservation.memory().lend(0..chunk).is_err(), "nothing there yet");
/// reservation.map(0..chunk)?;
/// assert!(reservation.memory().lend(0..chunk).is_ok());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Reservation {
    memory: Memory,
    /// The memory that [`map`](Self::map) puts behind addresses; `None` if the reservation is for exported chunks.
    behind: Option<Arc<ChunkMemory>>,
    granularity: usize,
    /// The lock that `map` and `unmap` hold, so that checking, mapping and noting are one step.
    mapping: Mutex<(), { rank::DEVICE }>,
}

impl Device {
    /// Reserves device addresses that become usable chunk by chunk, as they are mapped. `len` is rounded up to the
    /// granularity. Costs well under a millisecond for any `len`.
    ///
    /// # Errors
    ///
    /// [`Invalid::Empty`]; [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the addresses do not suffice.
    pub fn reserve(&self, len: usize) -> Result<Reservation> {
        let own = ChunkMemory::Device { peers: Vec::new() };
        Reservation::new(self, not_empty(len)?, own)
    }

    /// Reserves device addresses as [`reserve`](Self::reserve) does, for memory that `peers` may read and write too.
    /// Each peer makes mapping a little slower.
    ///
    /// # Errors
    ///
    /// The errors of [`reserve`](Self::reserve); [`Invalid::OtherDevice`] for a peer that cannot reach this device's
    /// memory.
    pub fn reserve_shared(&self, len: usize, peers: &[Device]) -> Result<Reservation> {
        let mut ordinals = Vec::new();
        for peer in peers.iter().filter(|peer| !peer.is_same(self)) {
            if peer.link_to(self)?.is_none() {
                return Err(Invalid::OtherDevice.into());
            }
            ordinals.push(peer.info().ordinal);
        }
        let behind = ChunkMemory::Device { peers: ordinals };
        Reservation::new(self, not_empty(len)?, behind)
    }

    /// Reserves addresses for chunks that processes share: [`Exported`] chunks of this process, chunks that other
    /// processes exported, and chunks [on a peer](Reservation::map_on). The processor never reaches them in place, even on
    /// the host back end, as another process may write them at any time. `len` is rounded up to the granularity.
    ///
    /// # Errors
    ///
    /// [`Invalid::Empty`]; [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the addresses do not suffice.
    pub fn reserve_for_exported(&self, len: usize) -> Result<Reservation> {
        Reservation::for_exported(self, not_empty(len)?)
    }

    /// Reserves host addresses that become usable chunk by chunk, as the driver puts pinned memory of a NUMA node
    /// behind them. Copies cross the borders of chunks at full speed. Making a chunk stalls other copies for only a third
    /// of a millisecond, but is slow: 6 GB/s on an H100 machine. `len` is rounded up to the granularity.
    ///
    /// # Errors
    ///
    /// [`Invalid::NotCuda`] on the host back end; [`Invalid::Empty`], [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn reserve_pinned(&self, len: usize, node: u32) -> Result<Reservation> {
        Reservation::new(self, not_empty(len)?, ChunkMemory::Host { node })
    }
}

impl Reservation {
    pub(crate) fn new(device: &Device, len: usize, behind: ChunkMemory) -> Result<Self> {
        let (memory, granularity) = Memory::reserve(device, len, &behind)?;
        Ok(Self {
            memory,
            behind: Some(Arc::new(behind)),
            granularity,
            mapping: Mutex::new(()),
        })
    }

    pub(crate) fn for_exported(device: &Device, len: usize) -> Result<Self> {
        let (memory, granularity) = Memory::reserve_for_exported(device, len)?;
        Ok(Self {
            memory,
            behind: None,
            granularity,
            mapping: Mutex::new(()),
        })
    }

    /// Puts memory behind a range, until the memory is dropped or the range [unmapped](Self::unmap). The content is
    /// unspecified.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the device has no more; then nothing of the range is
    /// mapped. [`Invalid::Misaligned`], [`Invalid::OutOfBounds`], [`Invalid::Twice`], [`Invalid::Empty`];
    /// [`Invalid::NotSuchChunks`] if the reservation is for exported chunks.
    pub fn map(&self, range: Range<usize>) -> Result<()> {
        let behind = self.behind.as_ref().ok_or(Invalid::NotSuchChunks)?;
        match behind.as_ref() {
            ChunkMemory::Host { .. } => {
                pages::within_available(range.len(), "a chunk of host memory")?
            }
            _ => self.fits(self.memory.device(), range.len())?,
        }
        self.map_behind(range, Arc::clone(behind))
    }

    /// Puts memory of `peer` behind a range. The reservation's device accesses it over the link between the two. No other
    /// device does, so a [shared](Device::reserve_shared) reservation takes memory of its own device alone.
    ///
    /// # Errors
    ///
    /// As for [`map`](Self::map), with the peer's memory; [`Invalid::OtherDevice`] if this device does not reach the
    /// peer's memory; [`Invalid::NotSuchChunks`] if the reservation is not for device memory, or shared with peers.
    pub fn map_on(&self, range: Range<usize>, peer: &Device) -> Result<()> {
        if let Some(ChunkMemory::Host { .. }) = self.behind.as_deref() {
            return Err(Invalid::NotSuchChunks.into());
        }
        if peer.is_same(self.memory.device()) {
            self.fits(peer, range.len())?;
            let own = ChunkMemory::Device { peers: Vec::new() };
            return self.map_behind(range, self.behind.clone().unwrap_or_else(|| Arc::new(own)));
        }
        if let Some(ChunkMemory::Device { peers }) = self.behind.as_deref()
            && !peers.is_empty()
        {
            return Err(Invalid::NotSuchChunks.into());
        }
        if self.memory.device().link_to(peer)?.is_none() {
            return Err(Invalid::OtherDevice.into());
        }
        self.fits(peer, range.len())?;
        let device = peer.clone();
        self.map_behind(range, Arc::new(ChunkMemory::Peer { device }))
    }

    /// Puts exported memory of this process behind the addresses from `start` on, so that this device reaches it too.
    /// The memory stays allocated while it is mapped.
    ///
    /// # Errors
    ///
    /// [`Invalid::NotSuchChunks`] unless the addresses are from [`Device::reserve_for_exported`]; the errors of
    /// [`map`](Self::map); [`Error::Driver`](crate::Error::Driver) if the device cannot reach the memory.
    pub fn map_exported(&self, start: usize, chunk: &Exported) -> Result<()> {
        self.only_for_exported()?;
        let range = start..start.saturating_add(chunk.len());
        self.map_behind(range, Arc::new(ChunkMemory::Exported(chunk.inner())))
    }

    /// Puts memory that another process exported behind a range of the same length. The memory stays allocated until it
    /// is unmapped, even if the other process ends.
    ///
    /// # Errors
    ///
    /// [`Invalid::NotSuchChunks`] unless the addresses are from [`Device::reserve_for_exported`]; the errors of
    /// [`map`](Self::map); [`Error::Driver`](crate::Error::Driver) or [`Error::System`](crate::Error::System) if
    /// `memory` is no exported memory, is shorter, or cannot be reached by this device.
    pub fn map_imported(&self, range: Range<usize>, memory: OwnedFd) -> Result<()> {
        self.only_for_exported()?;
        self.map_behind(range, Arc::new(ChunkMemory::Imported(memory)))
    }

    fn only_for_exported(&self) -> Result<()> {
        match self.behind {
            None => Ok(()),
            Some(_) => Err(Invalid::NotSuchChunks.into()),
        }
    }

    /// Refuses more bytes than the device has. The driver checks too, but drivers differ in their error.
    fn fits(&self, device: &Device, len: usize) -> Result<()> {
        device.within_total(len, "a chunk of device memory")
    }

    fn map_behind(&self, range: Range<usize>, behind: Arc<ChunkMemory>) -> Result<()> {
        let _one_at_a_time = self.mapping.lock();
        {
            let ledger = self.memory.ledger().lock();
            ledger.in_bounds(&range)?;
            aligned(&range, self.granularity(), self.memory.len())?;
            if ledger.overlaps_mapped(&range) {
                return Err(Invalid::Twice {
                    range,
                    what: "mapped",
                }
                .into());
            }
        }
        let address = self.memory.base() + range.start as u64;
        // SAFETY: the range is in bounds of a live reservation, aligned, not mapped, and
        // `mapping` keeps all other threads from mapping meanwhile.
        unsafe {
            self.memory
                .device()
                .backend()
                .map(address, range.len(), &behind)
        }?;
        let chunk = Chunk {
            range: range.clone(),
            behind,
        };
        self.memory.chunks().lock().push(chunk);
        self.memory.ledger().lock().add_mapped(range);
        Ok(())
    }

    /// Takes the memory behind a range away. The addresses stay reserved and may be mapped again. The range consists of
    /// whole chunks, as they were mapped.
    ///
    /// # Errors
    ///
    /// An error changes nothing. [`Error::Busy`](crate::Error::Busy) if some bytes are lent; [`Invalid::Unmapped`],
    /// [`Invalid::OutOfBounds`], [`Invalid::Empty`]; [`Invalid::Misaligned`] if a chunk lies only partly in the range.
    pub fn unmap(&self, range: Range<usize>) -> Result<()> {
        let _one_at_a_time = self.mapping.lock();
        if range.is_empty() {
            return Err(Invalid::Empty.into());
        }
        // While this loan lives, no other loan of the range can be made; afterwards the range is out of the ledger.
        let alone = self.memory.lend_mut(range.clone())?;
        let mut chunks = self.memory.chunks().lock();
        let overlaps =
            |chunk: &Chunk| chunk.range.start < range.end && range.start < chunk.range.end;
        let lies_within =
            |chunk: &Chunk| range.start <= chunk.range.start && chunk.range.end <= range.end;
        if chunks
            .iter()
            .any(|chunk| overlaps(chunk) && !lies_within(chunk))
        {
            let granularity = self.granularity;
            return Err(Invalid::Misaligned { range, granularity }.into());
        }
        self.memory.ledger().lock().remove_mapped(&range);
        let gone: Vec<_> = chunks.extract_if(.., |chunk| overlaps(chunk)).collect();
        drop(alone);
        for chunk in gone {
            let address = self.memory.base() + chunk.range.start as u64;
            let (backend, len) = (self.memory.device().backend(), chunk.range.len());
            // SAFETY: the chunk was mapped with this very range. `extract_if` took it out of `chunks`, so it is
            // unmapped once. Only `alone` was a loan of it, and it can be lent no more, so no work uses it.
            unsafe { backend.unmap(address, len, &chunk.behind) };
        }
        Ok(())
    }

    /// Returns the end of the chunk that contains both `byte` and the byte before it; `byte` if there is none.
    pub fn mapped_end(&self, byte: usize) -> usize {
        let chunks = self.memory.chunks().lock();
        let mut ranges = chunks.iter().map(|chunk| &chunk.range);
        let across = ranges.find(|range| range.start < byte && byte < range.end);
        across.map_or(byte, |range| range.end)
    }

    /// Returns the bytes that are mapped now.
    pub fn mapped(&self) -> usize {
        self.memory.ledger().lock().mapped_bytes()
    }

    /// Returns the memory of all addresses. The mapped ones can be lent.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the granularity in bytes: ranges to map must begin and end at multiples of it.
    pub fn granularity(&self) -> usize {
        self.granularity
    }
}

/// Checks that both ends are multiples of the granularity, or the second one is the end of the memory.
pub(crate) fn aligned(range: &Range<usize>, granularity: usize, len: usize) -> Result<()> {
    if range.is_empty() {
        return Err(Invalid::Empty.into());
    }
    let end_fits = range.end.is_multiple_of(granularity) || range.end == len;
    if range.start.is_multiple_of(granularity) && end_fits {
        return Ok(());
    }
    Err(Invalid::Misaligned {
        range: range.clone(),
        granularity,
    }
    .into())
}
