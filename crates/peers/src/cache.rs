//! Spare memory of several peers as one range of addresses.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tierflow_device::{Device, Memory, Reservation};
use tierflow_placement::{Destination, GpuId, Schedule};
use tierflow_sync::{Mutex, rank};

use crate::error::{DeviceContext, Error, Result};
use crate::lease::Borrowed;

/// Memory of one peer, for a [`PeerCache`].
#[derive(Debug)]
pub struct Part {
    source: Source,
    bytes: usize,
}

#[derive(Debug)]
enum Source {
    /// Memory of a device of this process.
    Device { peer: Device, recall: Recall },
    /// Memory of a device of another process.
    Borrowed(Borrowed),
}

/// A handle by which a peer of this process takes its memory back. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Recall {
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    asked: AtomicBool,
    returned: AtomicBool,
    wake: Mutex<Option<Wake>>,
}

/// A callback that wakes a waiting thread. Any thread may call it, and it does not block.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("asked", &self.asked)
            .field("returned", &self.returned)
            .finish_non_exhaustive()
    }
}

impl Recall {
    /// Asks for the memory.
    pub fn ask(&self) {
        self.state.asked.store(true, Ordering::Release);
        if let Some(wake) = &*self.state.wake.lock() {
            wake();
        }
    }

    /// Returns true once the memory is free again.
    pub fn is_returned(&self) -> bool {
        self.state.returned.load(Ordering::Acquire)
    }
}

impl Part {
    /// Makes a part of `bytes` bytes of a device of this process, and the handle to take it back.
    pub fn on(peer: &Device, bytes: usize) -> (Self, Recall) {
        let recall = Recall::default();
        let source = Source::Device {
            peer: peer.clone(),
            recall: recall.clone(),
        };
        (Self { source, bytes }, recall)
    }

    /// Makes a part of memory that another process lent.
    pub fn borrowed(loan: Borrowed) -> Self {
        Self {
            bytes: loan.len(),
            source: Source::Borrowed(loan),
        }
    }

    /// Returns the parts that a schedule sends from `from` to each of its peers, GPU n being the n-th device: with
    /// these lengths the last byte arrives as early as possible.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if the schedule has more GPUs than there are devices.
    pub fn by_schedule(
        gpus: &[Device],
        from: GpuId,
        schedule: &Schedule,
    ) -> Result<Vec<(Self, Recall)>> {
        let ours = schedule.transfers().iter();
        let to_peers = ours.filter(|transfer| transfer.from == from);
        let parts = to_peers.filter_map(|transfer| match transfer.to {
            Destination::Peer(peer) => Some((transfer, peer)),
            Destination::Host(_) => None,
        });
        let parts = parts.map(|(transfer, peer)| {
            let mismatch = |why: &str| Error::Mismatch {
                transfer: transfer.to_string(),
                why: why.to_owned(),
            };
            let peer = gpus.get(peer.0);
            let peer = peer.ok_or_else(|| mismatch("there is no such device"))?;
            let bytes = usize::try_from(transfer.bytes);
            let bytes =
                bytes.map_err(|_| mismatch("it is longer than this machine's addresses"))?;
            Ok(Self::on(peer, bytes))
        });
        parts.collect()
    }

    /// Returns true if the owner wants the memory back, or has ended.
    fn is_wanted(&self) -> bool {
        match &self.source {
            Source::Device { recall, .. } => recall.state.asked.load(Ordering::Acquire),
            // The socket of a loan that is over, or that was recalled, gets no more messages.
            Source::Borrowed(loan) => loan.recall().is_none() || loan.is_recalled().unwrap_or(true),
        }
    }

    fn map(&self, reservation: &Reservation, start: usize) -> Result<()> {
        match &self.source {
            Source::Device { peer, .. } => reservation
                .map_on(start..start + self.bytes, peer)
                .when(|| format!("memory of device {}", peer.info().ordinal)),
            Source::Borrowed(loan) => loan.map_at(reservation, start),
        }
    }
}

impl Drop for Part {
    /// Reports that no byte of the part is mapped any more: a cache unmaps a part before it drops it.
    fn drop(&mut self) {
        match &self.source {
            Source::Device { recall, .. } => recall.state.returned.store(true, Ordering::Release),
            // A lender that has ended needs no message.
            Source::Borrowed(loan) => drop(loan.returned()),
        }
    }
}

/// Spare memory of peers, one part after the other in one range of addresses of a device. If the owner of a part wants
/// it back, the caller first moves its data beyond [`wanted`](Self::wanted) elsewhere. Then [`give_back`](Self::give_back)
/// unmaps the part and moves the parts behind it up.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tierflow_device::host;
/// use tierflow_peers::{Part, PeerCache};
/// # let open = |n| host::open(host::Options::default().ordinal(n));
/// # let (device, one, other) = (open(0)?, open(1)?, open(2)?);
/// let (first, recall) = Part::on(&one, 1 << 20);
/// let (second, _) = Part::on(&other, 1 << 20);
/// let cache = PeerCache::new(&device, vec![first, second])?;
/// assert_eq!(cache.usable(), 2 << 20);
///
/// recall.ask();
/// assert_eq!(cache.wanted(), Some(0), "no data may be beyond byte 0");
/// assert_eq!(cache.give_back(0)?, 1 << 20);
/// assert!(recall.is_returned());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct PeerCache {
    // The reservation is the first field, so that no byte is mapped any more when the parts are dropped.
    reservation: Reservation,
    parts: Mutex<Vec<Part>, { rank::LIST }>,
}

impl PeerCache {
    /// Maps these parts for `device`. Rounds their lengths up to the granularity.
    ///
    /// # Errors
    /// [`Error::NoDevices`] without a part; [`Error::Device`] if a peer has too little memory, or is out of reach.
    pub fn new(device: &Device, parts: Vec<Part>) -> Result<Self> {
        let (cache, refusals) = Self::of_those_that_lend(device, parts)?;
        match refusals.into_iter().next_back() {
            Some((_, refusal)) => Err(refusal),
            None => Ok(cache),
        }
    }

    /// Maps the parts whose owners lend them. Returns the number and the error of each other part, too.
    pub(crate) fn of_those_that_lend(
        device: &Device,
        mut parts: Vec<Part>,
    ) -> Result<(Self, Vec<(usize, Error)>)> {
        let granularity = device.info().granularity;
        let mut total = 0_usize;
        for part in &mut parts {
            let whole = part.bytes.checked_next_multiple_of(granularity);
            part.bytes = whole.unwrap_or(usize::MAX);
            total = total.saturating_add(part.bytes);
        }
        if total == 0 {
            return Err(Error::NoDevices);
        }
        let reservation = device.reserve_for_exported(total);
        let reservation = reservation.when(|| "addresses for memory of peers".to_owned())?;
        let cache = Self {
            reservation,
            parts: Mutex::default(),
        };
        let refusals = cache.append(&mut cache.parts.lock(), 0, parts);
        Ok((cache, refusals))
    }

    /// Returns the bytes of the range of addresses: the bytes of all parts when the cache was made.
    pub fn capacity(&self) -> usize {
        self.reservation.memory().len()
    }

    /// Returns the bytes that are mapped now, from the start of the range on.
    pub fn usable(&self) -> usize {
        self.reservation.mapped()
    }

    /// Returns the memory, for streams of the device.
    pub fn memory(&self) -> &Memory {
        self.reservation.memory()
    }

    /// Returns the start of the first part that its owner wants back, or whose lender has ended; `None` if there is
    /// no such part. Save the bytes from there on; they stay readable until [`give_back`](Self::give_back).
    pub fn wanted(&self) -> Option<usize> {
        let (mut start, mut first) = (0, None);
        for part in self.parts.lock().iter() {
            // Each recall that came is taken in, as its descriptor stays readable until then.
            if part.is_wanted() {
                first = first.or(Some(start));
            }
            start += part.bytes;
        }
        first
    }

    /// Returns the end of the part in which the byte at `offset` lies: one link leads to all bytes up to there. Returns `u64::MAX` for an offset
    /// beyond the last part.
    pub fn part_end(&self, offset: u64) -> u64 {
        let mut end = 0;
        let parts = self.parts.lock();
        let mut ends = parts.iter().map(|part| {
            end += part.bytes as u64;
            end
        });
        let found = ends.find(|end| *end > offset);
        found.unwrap_or(u64::MAX)
    }

    /// Calls `wake` when a peer of this process wants a part back. For peers of other processes, see
    /// [`recalls`](Self::recalls).
    pub fn wake_by(&self, wake: &Wake) {
        for part in self.parts.lock().iter() {
            if let Source::Device { recall, .. } = &part.source {
                *recall.state.wake.lock() = Some(Arc::clone(wake));
            }
        }
    }

    /// Returns descriptors that become readable for `poll` when another process wants a part back, or ends.
    pub fn recalls(&self) -> Vec<impl AsFd + use<>> {
        let parts = self.parts.lock();
        let recalls = parts.iter().filter_map(|part| match &part.source {
            Source::Borrowed(loan) => loan.recall(),
            Source::Device { .. } => None,
        });
        recalls.collect()
    }

    /// Gives back those parts from the byte `from` on that their owners want, and moves the parts behind them up. The content from
    /// the first of them on is lost. Parts before `from` stay, even if an owner has wanted one since [`wanted`](Self::wanted) returned
    /// `from`. Returns the bytes that are mapped now.
    ///
    /// # Errors
    /// [`Error::Device`] if some byte from the first such part on is lent: nothing changes. [`Error::Device`], too, if a part
    /// cannot be mapped again: this part is given back, too.
    pub fn give_back(&self, from: usize) -> Result<usize> {
        let mut parts = self.parts.lock();
        let mut start = 0;
        let first = parts.iter().position(|part| {
            let is_first = start >= from && part.is_wanted();
            start += if is_first { 0 } else { part.bytes };
            is_first
        });
        let Some(first) = first else {
            return Ok(self.usable());
        };
        let unmapped = self.reservation.unmap(start..self.usable());
        unmapped.when(|| "unmapping memory of peers".to_owned())?;
        let behind = parts.split_off(first);
        let (wanted, kept): (Vec<_>, Vec<_>) = behind.into_iter().partition(Part::is_wanted);
        drop(wanted);
        match self.append(&mut parts, start, kept).pop() {
            Some((_, failed)) => Err(failed),
            None => Ok(self.usable()),
        }
    }

    /// Maps parts from `start` on. Returns the number and the error of each part that cannot be mapped.
    fn append(
        &self,
        parts: &mut Vec<Part>,
        mut start: usize,
        new: Vec<Part>,
    ) -> Vec<(usize, Error)> {
        let mut failed = Vec::new();
        for (number, part) in new.into_iter().enumerate() {
            match part.map(&self.reservation, start) {
                Ok(()) => {
                    start += part.bytes;
                    parts.push(part);
                }
                Err(error) => failed.push((number, error)),
            }
        }
        failed
    }
}
