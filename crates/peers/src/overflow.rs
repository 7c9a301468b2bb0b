//! Copies the remainders of checkpoints to peers and the host as a schedule says, and back.

use std::thread::Builder;
use std::time::Duration;

use tierflow_device::{Device, HostReservation, Memory, ReadLoan, Reservation, Stream, WriteLoan};
use tierflow_placement::{Destination, GpuId, Schedule, Transfer};

use crate::error::{DeviceContext, Error, Result};
use crate::timed_copies::{self, TimedCopy};

/// The place of a GPU's remainder: `memory` from `start` on. The GPU must reach the memory.
#[derive(Clone, Debug)]
pub struct Remainder {
    /// The memory.
    pub memory: Memory,
    /// Start of the remainder in the memory, in bytes.
    pub start: usize,
}

/// The target of a transfer: `memory` from `start` on. The sending GPU must reach the memory.
#[derive(Clone, Debug)]
pub struct TransferTarget {
    /// The memory.
    pub memory: Memory,
    /// Start of the transfer's bytes in the memory, in bytes.
    pub start: usize,
}

impl TransferTarget {
    /// Allocates pinned memory of the host for a transfer from this device.
    ///
    /// # Errors
    /// [`Error::Device`] if memory is short.
    pub fn on_host(from: &Device, transfer: &Transfer) -> Result<Self> {
        let reservation = host_memory(from, size(transfer)?);
        let reservation = reservation.when(|| format!("target for {transfer}"))?;
        Ok(Self {
            memory: reservation.memory().clone(),
            start: 0,
        })
    }

    /// Allocates memory of a peer of this process for a transfer from this device.
    ///
    /// # Errors
    /// [`Error::Device`] if memory is short, or the device does not reach it.
    pub fn on_peer(from: &Device, peer: &Device, transfer: &Transfer) -> Result<Self> {
        let reservation = peer_memory(from, peer, size(transfer)?);
        let reservation = reservation.when(|| format!("target for {transfer}"))?;
        Ok(Self {
            memory: reservation.memory().clone(),
            start: 0,
        })
    }
}

/// A copy that starts together with a schedule's transfers, on its own stream: for example the part of a checkpoint
/// that stays on its GPU.
#[derive(Debug)]
pub struct ConcurrentCopy<'a> {
    /// The stream.
    pub stream: &'a Stream,
    /// The source.
    pub from: ReadLoan,
    /// The target.
    pub to: WriteLoan,
}

/// Durations of a group's transfers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timings {
    /// Time from the common start to the end of the last transfer: it blocks the group.
    pub all: Duration,
    /// Times from the common start to the end of each transfer, in the schedule's order, and then of each concurrent copy.
    pub each: Vec<Duration>,
}

/// The targets of a schedule's transfers, and the copies there and back. Transfers start together, each on its own
/// stream, as the schedule assumes.
#[derive(Debug)]
pub struct Overflow {
    pieces: Vec<Piece>,
}

#[derive(Debug)]
struct Piece {
    transfer: Transfer,
    bytes: usize,
    target: TransferTarget,
    stream: Stream,
}

impl Overflow {
    /// Allocates the targets of a schedule within this process: memory of each peer, mapped for the sending GPU, and
    /// pinned memory of the host. GPU n is the n-th device.
    ///
    /// # Errors
    /// [`Error::Device`] if a peer has too little memory or is out of reach; [`Error::Mismatch`] if the schedule has
    /// more GPUs.
    pub fn new(gpus: &[Device], schedule: &Schedule) -> Result<Self> {
        Self::with_targets(gpus, schedule, |transfer| {
            let gpu = |at: GpuId| gpus.get(at.0).ok_or_else(|| unknown(transfer));
            let from = gpu(transfer.from)?;
            match transfer.to {
                Destination::Peer(peer) => TransferTarget::on_peer(from, gpu(peer)?, transfer),
                Destination::Host(_) => TransferTarget::on_host(from, transfer),
            }
        })
    }

    /// Uses the target that `target` returns for each transfer: memory that another process lent, for example.
    ///
    /// # Errors
    /// The errors of `target`; [`Error::Mismatch`] if a target is too small, or the schedule has more GPUs;
    /// [`Error::Device`] if a stream cannot be made.
    pub fn with_targets(
        gpus: &[Device],
        schedule: &Schedule,
        mut target: impl FnMut(&Transfer) -> Result<TransferTarget>,
    ) -> Result<Self> {
        let mut pieces = Vec::new();
        for transfer in schedule.transfers() {
            let from = gpus.get(transfer.from.0).ok_or_else(|| unknown(transfer))?;
            let bytes = size(transfer)?;
            let target = target(transfer)?;
            let fits = target.start.checked_add(bytes);
            if fits.is_none_or(|end| end > target.memory.len()) {
                return Err(mismatch(transfer, "its target is too small"));
            }
            let stream = from.stream().when(|| format!("a stream for {transfer}"))?;
            pieces.push(Piece {
                transfer: *transfer,
                bytes,
                target,
                stream,
            });
        }
        Ok(Self { pieces })
    }

    /// Copies every remainder to its target, and waits for the last byte. `remainders` has one for each GPU that sends.
    ///
    /// # Errors
    /// [`Error::Device`] if a copy fails, [`Error::TimedOut`] if it takes longer than `patience`: the targets' content is then unspecified,
    /// and the remainders are unchanged. [`Error::Mismatch`] if a remainder is missing or too short.
    pub fn store(&self, remainders: &[Option<Remainder>], patience: Duration) -> Result<Timings> {
        self.store_beside(remainders, Vec::new(), patience)
    }

    /// Copies every remainder to its target, makes the copies of `beside` at the same time, and waits for the last byte of all.
    ///
    /// # Errors
    /// As for [`store`](Self::store).
    pub fn store_beside(
        &self,
        remainders: &[Option<Remainder>],
        beside: Vec<ConcurrentCopy<'_>>,
        patience: Duration,
    ) -> Result<Timings> {
        let doing = "a checkpoint's overflow";
        self.copy(doing, remainders, beside, patience, false)
    }

    /// Copies the targets' bytes back to the remainders, and waits for the last byte.
    ///
    /// # Errors
    /// As for [`store`](Self::store), but then the remainders' content is unspecified, and the targets are unchanged.
    pub fn load(&self, remainders: &[Option<Remainder>], patience: Duration) -> Result<Timings> {
        let doing = "the way back from peers";
        self.copy(doing, remainders, Vec::new(), patience, true)
    }

    fn copy(
        &self,
        doing: &str,
        remainders: &[Option<Remainder>],
        beside: Vec<ConcurrentCopy<'_>>,
        patience: Duration,
        back: bool,
    ) -> Result<Timings> {
        let timed_copies = self
            .pieces
            .iter()
            .map(|piece| piece.timed_copy(remainders, back));
        let mut timed_copies = timed_copies.collect::<Result<Vec<_>>>()?;
        timed_copies.extend(
            beside
                .into_iter()
                .map(|ConcurrentCopy { stream, from, to }| TimedCopy { stream, from, to }),
        );
        let each = timed_copies::run(doing, timed_copies, patience)?;
        let all = each.iter().copied().max().unwrap_or_default();
        Ok(Timings { all, each })
    }
}

impl Piece {
    fn timed_copy(&self, remainders: &[Option<Remainder>], back: bool) -> Result<TimedCopy<'_>> {
        let transfer = &self.transfer;
        let remainder = remainders.get(transfer.from.0).and_then(Option::as_ref);
        let remainder = remainder.ok_or_else(|| mismatch(transfer, "it has no remainder"))?;
        let offset = usize::try_from(transfer.offset).unwrap_or(usize::MAX);
        let start = remainder.start.saturating_add(offset);
        let ours = start..start.saturating_add(self.bytes);
        if ours.end > remainder.memory.len() {
            return Err(mismatch(transfer, "its remainder is shorter"));
        }
        let target = self.target.start..self.target.start + self.bytes;
        let (from, from_range, to, to_range) = if back {
            (&self.target.memory, target, &remainder.memory, ours)
        } else {
            (&remainder.memory, ours, &self.target.memory, target)
        };
        let doing = || transfer.to_string();
        Ok(TimedCopy {
            stream: &self.stream,
            from: from.lend(from_range).when(doing)?,
            to: to.lend_mut(to_range).when(doing)?,
        })
    }
}

/// Reserves memory of `peer` for `device`.
fn peer_memory(
    device: &Device,
    peer: &Device,
    bytes: usize,
) -> tierflow_device::Result<Reservation> {
    let reservation = device.reserve(bytes)?;
    reservation.map_on(0..reservation.memory().len(), peer)?;
    Ok(reservation)
}

/// Reserves host memory near the device, touched, and pinned if the system allows it.
pub(crate) fn host_memory(
    device: &Device,
    bytes: usize,
) -> tierflow_device::Result<HostReservation> {
    /// Number of threads that touch memory. A few are faster than one, as the kernel limits touching, not the memory.
    const TOUCHERS: usize = 4;
    let reservation = device.reserve_host(bytes)?;
    if let Some(node) = device.numa_node() {
        // If the system refuses, memory of another node is used.
        let _ = reservation.prefer_node(node);
    }
    let len = reservation.memory().len();
    let share = len
        .div_ceil(TOUCHERS)
        .next_multiple_of(HostReservation::GRANULARITY);
    let reserved = &reservation;
    std::thread::scope(|scope| {
        let touchers: Vec<_> = (0..len)
            .step_by(share)
            .map(|start| {
                let touch = move || reserved.touch(start..len.min(start + share));
                // The caller touches the share of a thread that the system does not start.
                Builder::new()
                    .spawn_scoped(scope, touch)
                    .map_err(|_| touch())
            })
            .collect();
        touchers.into_iter().try_for_each(|toucher| match toucher {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(touched) => touched,
        })
    })?;
    // Memory that cannot be pinned is used unpinned. Copies are slower then, and a calibration measures that.
    let _ = reservation.pin(0..len)?;
    Ok(reservation)
}

fn size(transfer: &Transfer) -> Result<usize> {
    usize::try_from(transfer.bytes)
        .map_err(|_| mismatch(transfer, "it is longer than this machine's addresses"))
}

fn unknown(transfer: &Transfer) -> Error {
    mismatch(
        transfer,
        "the schedule has more GPUs than there are devices",
    )
}

fn mismatch(transfer: &Transfer, why: &str) -> Error {
    Error::Mismatch {
        transfer: transfer.to_string(),
        why: why.to_owned(),
    }
}
