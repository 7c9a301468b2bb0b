//! Remainders on their way by a schedule, and back.

use std::time::Duration;

use tierflow_device::{Device, HostReservation, Memory, ReadLoan, Reservation, Stream, WriteLoan};
use tierflow_placement::{Destination, GpuId, Schedule, Transfer};

use crate::error::{Error, Result, While};
use crate::lanes::{self, Lane};

/// Where one GPU's remainder lies: `memory` from `start` on. The memory must be one that its GPU reaches.
#[derive(Clone, Debug)]
pub struct Remainder {
    /// The memory.
    pub memory: Memory,
    /// Where it starts there, in bytes.
    pub start: usize,
}

/// Where one transfer ends: `memory` from `start` on. The GPU that sends must reach it.
#[derive(Clone, Debug)]
pub struct Room {
    /// The memory.
    pub memory: Memory,
    /// Where the transfer's bytes start there.
    pub start: usize,
}

impl Room {
    /// Pinned memory of the host for a transfer of this device's.
    ///
    /// # Errors
    /// [`Error::Device`] if there is too little.
    pub fn on_host(from: &Device, transfer: &Transfer) -> Result<Self> {
        let reservation = host_memory(from, size(transfer)?);
        let reservation = reservation.when(|| format!("room for {transfer}"))?;
        Ok(Self {
            memory: reservation.memory().clone(),
            start: 0,
        })
    }

    /// Memory of a peer of this process for a transfer of this device's.
    ///
    /// # Errors
    /// [`Error::Device`] if there is too little, or the device does not reach it.
    pub fn on_peer(from: &Device, peer: &Device, transfer: &Transfer) -> Result<Self> {
        let reservation = peer_memory(from, peer, size(transfer)?);
        let reservation = reservation.when(|| format!("room for {transfer}"))?;
        Ok(Self {
            memory: reservation.memory().clone(),
            start: 0,
        })
    }
}

/// A copy that starts together with a schedule's transfers: the part of a checkpoint that stays on its
/// GPU, say. It is made by a stream of its own.
#[derive(Debug)]
pub struct Beside<'a> {
    /// The stream.
    pub stream: &'a Stream,
    /// What is copied.
    pub from: ReadLoan,
    /// Where it is copied to.
    pub to: WriteLoan,
}

/// How long a group's transfers took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Took {
    /// From the common start until the last transfer ended: what blocks the group.
    pub all: Duration,
    /// Until each transfer ended, in the schedule's order, and then each copy beside them.
    pub each: Vec<Duration>,
}

/// The room that a schedule's transfers go to, and the copies there and back. Transfers start together,
/// each on a stream of its own, as the schedule takes for granted.
#[derive(Debug)]
pub struct Overflow {
    pieces: Vec<Piece>,
}

#[derive(Debug)]
struct Piece {
    transfer: Transfer,
    bytes: usize,
    room: Room,
    stream: Stream,
}

impl Overflow {
    /// Takes the room that a schedule needs within this process: of each peer's memory, mapped for the
    /// GPU that sends; and of the host's, pinned. GPU n is the n-th device.
    ///
    /// # Errors
    /// [`Error::Device`] if a peer has too little memory or is not reached; [`Error::Mismatch`] for a
    /// schedule of more GPUs.
    pub fn new(gpus: &[Device], schedule: &Schedule) -> Result<Self> {
        Self::with_rooms(gpus, schedule, |transfer| {
            let gpu = |at: GpuId| gpus.get(at.0).ok_or_else(|| unknown(transfer));
            let from = gpu(transfer.from)?;
            match transfer.to {
                Destination::Peer(peer) => Room::on_peer(from, gpu(peer)?, transfer),
                Destination::Host(_) => Room::on_host(from, transfer),
            }
        })
    }

    /// Uses the room that `room` names for each transfer: memory that another process lent, say.
    ///
    /// # Errors
    /// Those of `room`; [`Error::Mismatch`] if what it names is too small, or for a schedule of more GPUs;
    /// [`Error::Device`].
    pub fn with_rooms(
        gpus: &[Device],
        schedule: &Schedule,
        mut room: impl FnMut(&Transfer) -> Result<Room>,
    ) -> Result<Self> {
        let mut pieces = Vec::new();
        for transfer in schedule.transfers() {
            let from = gpus.get(transfer.from.0).ok_or_else(|| unknown(transfer))?;
            let bytes = size(transfer)?;
            let room = room(transfer)?;
            let fits = room.start.checked_add(bytes);
            if fits.is_none_or(|end| end > room.memory.len()) {
                return Err(mismatch(transfer, "its room is too small"));
            }
            let stream = from.stream().when(|| format!("a stream for {transfer}"))?;
            pieces.push(Piece {
                transfer: *transfer,
                bytes,
                room,
                stream,
            });
        }
        Ok(Self { pieces })
    }

    /// Copies every remainder to its room, and waits for the last byte. `remainders` has one for each
    /// GPU that sends.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::TimedOut`]; the room's content is unspecified then, and the remainders
    /// are as they were. [`Error::Mismatch`] if a remainder is missing or too short.
    pub fn store(&self, remainders: &[Option<Remainder>], patience: Duration) -> Result<Took> {
        self.store_beside(remainders, Vec::new(), patience)
    }

    /// Copies every remainder to its room and makes these copies meanwhile, and waits for the last byte
    /// of all.
    ///
    /// # Errors
    /// As for [`store`](Self::store).
    pub fn store_beside(
        &self,
        remainders: &[Option<Remainder>],
        beside: Vec<Beside<'_>>,
        patience: Duration,
    ) -> Result<Took> {
        let doing = "a checkpoint's overflow";
        self.copy(doing, remainders, beside, patience, false)
    }

    /// Copies what lies in the room back to where the remainders lie, and waits for the last byte.
    ///
    /// # Errors
    /// As for [`store`](Self::store), with the remainders' content unspecified.
    pub fn load(&self, remainders: &[Option<Remainder>], patience: Duration) -> Result<Took> {
        let doing = "the way back from peers";
        self.copy(doing, remainders, Vec::new(), patience, true)
    }

    /// The rooms, in the order of the schedule's transfers.
    pub fn rooms(&self) -> impl Iterator<Item = &Room> {
        self.pieces.iter().map(|piece| &piece.room)
    }

    fn copy(
        &self,
        doing: &str,
        remainders: &[Option<Remainder>],
        beside: Vec<Beside<'_>>,
        patience: Duration,
        back: bool,
    ) -> Result<Took> {
        let lanes = self.pieces.iter().map(|piece| piece.lane(remainders, back));
        let mut lanes = lanes.collect::<Result<Vec<_>>>()?;
        lanes.extend(beside.into_iter().map(|Beside { stream, from, to }| Lane {
            stream,
            from,
            to,
        }));
        let each = lanes::run(doing, lanes, patience)?;
        let all = each.iter().copied().max().unwrap_or_default();
        Ok(Took { all, each })
    }
}

impl Piece {
    fn lane(&self, remainders: &[Option<Remainder>], back: bool) -> Result<Lane<'_>> {
        let transfer = &self.transfer;
        let remainder = remainders.get(transfer.from.0).and_then(Option::as_ref);
        let remainder = remainder.ok_or_else(|| mismatch(transfer, "it has no remainder"))?;
        let offset = usize::try_from(transfer.offset).unwrap_or(usize::MAX);
        let start = remainder.start.saturating_add(offset);
        let ours = start..start.saturating_add(self.bytes);
        if ours.end > remainder.memory.len() {
            return Err(mismatch(transfer, "its remainder is shorter"));
        }
        let room = self.room.start..self.room.start + self.bytes;
        let (from, from_range, to, to_range) = if back {
            (&self.room.memory, room, &remainder.memory, ours)
        } else {
            (&remainder.memory, ours, &self.room.memory, room)
        };
        let doing = || transfer.to_string();
        Ok(Lane {
            stream: &self.stream,
            from: from.lend(from_range).when(doing)?,
            to: to.lend_mut(to_range).when(doing)?,
        })
    }
}

/// Memory of `peer` that `device` reaches.
fn peer_memory(
    device: &Device,
    peer: &Device,
    bytes: usize,
) -> tierflow_device::Result<Reservation> {
    let reservation = device.reserve(bytes)?;
    reservation.map_on(0..reservation.memory().len(), peer)?;
    Ok(reservation)
}

/// Host memory near the device, touched, and pinned where the system lets us.
pub(crate) fn host_memory(
    device: &Device,
    bytes: usize,
) -> tierflow_device::Result<HostReservation> {
    /// Touching is bound by the kernel, not by memory: it gains from a few threads.
    const TOUCHERS: usize = 4;
    let reservation = device.reserve_host(bytes)?;
    if let Some(node) = device.numa_node() {
        // Where the system refuses, memory of another node will do.
        let _ = reservation.prefer_node(node);
    }
    let len = reservation.memory().len();
    let share = len
        .div_ceil(TOUCHERS)
        .next_multiple_of(HostReservation::GRANULARITY);
    std::thread::scope(|scope| {
        let touchers: Vec<_> = (0..len)
            .step_by(share)
            .map(|start| {
                let reservation = &reservation;
                scope.spawn(move || reservation.touch(start..len.min(start + share)))
            })
            .collect();
        touchers
            .into_iter()
            .try_for_each(|toucher| match toucher.join() {
                Ok(touched) => touched,
                Err(panic) => std::panic::resume_unwind(panic),
            })
    })?;
    // Not pinned is slower, which a calibration sees.
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
