//! Device memory lent from one process to another.
//!
//! ```text
//! borrower                                lender
//!    │ ── connects, ask(bytes) ────────────▶ │  exports a chunk
//!    │ ◀─ lent(bytes) + descriptor ───────── │  or refused(spare)
//!    │ ◀─ recall ─────────────────────────── │  when it needs the memory itself
//!    │ ── returned ────────────────────────▶ │  frees it
//! ```
//!
//! One connection is one loan. When it closes, the other process is gone: a borrower's chunk is free
//! again, and a lender's is as good as lost, though what was mapped stays mapped.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tierflow_device::{Device, Exported, Memory, Reservation};

use crate::error::{Error, Result, While};
use crate::socket::{Listener, Message, Socket};

const ASK: u64 = 1;
const LENT: u64 = 2;
const REFUSED: u64 = 3;
const RECALL: u64 = 4;
const RETURNED: u64 = 5;

/// A process that lends memory of its device to others of the same user.
#[derive(Debug)]
pub struct Lender {
    device: Device,
    listener: Listener,
    spare: Arc<AtomicU64>,
}

/// One loan, as the lender sees it. Dropping it closes the connection, by which the borrower sees
/// that its loan is over; the memory is free when the borrower has unmapped it.
#[derive(Debug)]
pub struct Lent {
    chunk: Exported,
    socket: Socket,
    spare: Arc<AtomicU64>,
}

/// One loan, as the borrower sees it: memory of another process's device, at addresses of its own.
/// Dropping it gives it back without waiting for the lender to hear of it.
#[derive(Debug)]
pub struct Loan {
    reservation: Reservation,
    borrowed: Borrowed,
}

/// A loan that has no addresses yet: for a [`PeerCache`](crate::PeerCache), or [`map`](Self::map).
#[derive(Debug)]
pub struct Borrowed {
    memory: OwnedFd,
    len: usize,
    socket: Arc<Socket>,
    /// Set by the lender's one recall message, and never reset.
    recalled: AtomicBool,
    /// The lender is gone, or broke the protocol: no recall can arrive any more.
    is_over: AtomicBool,
}

impl Lender {
    /// Lends up to `spare` bytes of the device to each process of this user that connects to this path.
    ///
    /// # Errors
    /// [`Error::System`] if there cannot be a socket at the path.
    pub fn bind(device: &Device, path: &Path, spare: u64) -> Result<Self> {
        Ok(Self {
            device: device.clone(),
            listener: Listener::bind(path)?,
            spare: Arc::new(AtomicU64::new(spare)),
        })
    }

    /// Bytes that it can still lend.
    pub fn spare(&self) -> u64 {
        self.spare.load(Relaxed)
    }

    /// Waits for the next process that asks, and lends it what it asks for.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`Error::NothingToLend`] after the borrower was told the same;
    /// [`Error::Device`], [`Error::Protocol`], [`Error::Gone`], [`Error::System`]. Whatever it is, the next
    /// one can be waited for.
    pub fn lend(&self, patience: Duration) -> Result<Lent> {
        let socket = self.listener.accept(patience)?;
        let ask = socket.receive("waiting to be asked", patience)?;
        if ask.kind != ASK {
            return Err(unexpected(&ask));
        }
        let granularity = self.device.info().granularity as u64;
        let asked = ask.value;
        let bytes = asked.checked_next_multiple_of(granularity);
        // Relaxed: the count guards no other data.
        let taken = bytes.filter(|bytes| *bytes > 0).and_then(|bytes| {
            let take = |spare: u64| spare.checked_sub(bytes);
            self.spare
                .fetch_update(Relaxed, Relaxed, take)
                .ok()
                .and(usize::try_from(bytes).ok())
        });
        let Some(bytes) = taken else {
            let spare = self.spare();
            socket.send("refusing a loan", REFUSED, spare, None)?;
            return Err(Error::NothingToLend { asked, spare });
        };
        let chunk = self
            .device
            .export(bytes)
            .when(|| "exporting memory".to_owned());
        let chunk = match chunk {
            Ok(chunk) => chunk,
            Err(error) => {
                self.spare.fetch_add(bytes as u64, Relaxed);
                socket.send("refusing a loan", REFUSED, 0, None)?;
                return Err(error);
            }
        };
        let lent = Lent {
            chunk,
            socket,
            spare: Arc::clone(&self.spare),
        };
        let fd = lent.chunk.fd();
        lent.socket
            .send("lending memory", LENT, bytes as u64, Some(fd))?;
        Ok(lent)
    }
}

impl Lent {
    /// The memory, which this process can map too.
    pub fn chunk(&self) -> &Exported {
        &self.chunk
    }

    /// Asks for the memory back. The borrower saves what it has there first, so
    /// [`wait_returned`](Self::wait_returned) is what frees it.
    ///
    /// # Errors
    /// [`Error::Gone`] if the borrower is: then the memory is back already.
    pub fn recall(&self) -> Result<()> {
        self.socket.send("recalling a loan", RECALL, 0, None)
    }

    /// Waits until the borrower has given the memory back, or has ended, which gives it back too. It is
    /// free once this is dropped.
    ///
    /// # Errors
    /// [`Error::TimedOut`], after which it can be waited for again; [`Error::Protocol`],
    /// [`Error::System`].
    pub fn wait_returned(&self, patience: Duration) -> Result<()> {
        match self.socket.receive("waiting for a loan to end", patience) {
            Ok(message) if message.kind == RETURNED => Ok(()),
            Ok(message) => Err(unexpected(&message)),
            Err(Error::Gone { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.spare.fetch_add(self.chunk.len() as u64, Relaxed);
    }
}

impl Borrowed {
    /// Asks the lender at this path for memory.
    ///
    /// # Errors
    /// [`Error::NothingToLend`]; [`Error::TimedOut`], [`Error::Gone`], [`Error::Protocol`],
    /// [`Error::System`].
    pub fn ask(path: &Path, bytes: u64, patience: Duration) -> Result<Self> {
        let socket = Socket::connect(path, patience)?;
        socket.send("asking for memory", ASK, bytes, None)?;
        match socket.receive("waiting for a loan", patience)? {
            Message {
                kind: LENT,
                value,
                descriptor: Some(memory),
            } => Ok(Self {
                memory,
                len: usize::try_from(value).unwrap_or(usize::MAX),
                socket: Arc::new(socket),
                recalled: AtomicBool::new(false),
                is_over: AtomicBool::new(false),
            }),
            Message {
                kind: REFUSED,
                value: spare,
                ..
            } => Err(Error::NothingToLend {
                asked: bytes,
                spare,
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// Gives it addresses of its own.
    ///
    /// # Errors
    /// [`Error::Device`] if the device does not reach what was lent.
    pub fn map(self, device: &Device) -> Result<Loan> {
        let reservation = device.reserve_for_exported(self.len);
        let reservation = reservation.when(|| "addresses for a loan".to_owned())?;
        self.map_at(&reservation, 0)?;
        Ok(Loan {
            reservation,
            borrowed: self,
        })
    }

    /// Its length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Maps it at an offset of addresses for exported memory.
    pub(crate) fn map_at(&self, reservation: &Reservation, start: usize) -> Result<()> {
        let doing = || "mapping memory that was lent".to_owned();
        let memory = self.memory.try_clone().map_err(|why| Error::System {
            doing: "copying a descriptor",
            why,
        })?;
        let range = start..start.saturating_add(self.len);
        reservation.map_imported(range, memory).when(doing)
    }

    /// Whether the lender wants it back. Returns at once.
    ///
    /// # Errors
    /// [`Error::Gone`] if the lender is; [`Error::Protocol`], [`Error::System`].
    pub fn is_recalled(&self) -> Result<bool> {
        if self.recalled.load(Relaxed) {
            return Ok(true);
        }
        match self.socket.receive("asking for a recall", Duration::ZERO) {
            Ok(message) if message.kind == RECALL => {
                self.recalled.store(true, Relaxed);
                Ok(true)
            }
            Ok(message) => Err(unexpected(&message)),
            Err(Error::TimedOut { .. }) => return Ok(false),
            Err(error) => Err(error),
        }
        .inspect_err(|_| self.is_over.store(true, Relaxed))
    }

    /// The socket that is readable once the lender wants it back, or is gone; `None` once that is known.
    pub(crate) fn recall(&self) -> Option<Arc<Socket>> {
        let is_known = self.recalled.load(Relaxed) || self.is_over.load(Relaxed);
        (!is_known).then(|| Arc::clone(&self.socket))
    }

    /// Tells the lender that nothing of it is mapped any more.
    pub(crate) fn returned(&self) -> Result<()> {
        self.socket.send("giving memory back", RETURNED, 0, None)
    }
}

impl Loan {
    /// Asks the lender at this path for memory that `device` is to reach.
    ///
    /// # Errors
    /// Those of [`Borrowed::ask`] and [`Borrowed::map`].
    pub fn ask(device: &Device, path: &Path, bytes: u64, patience: Duration) -> Result<Self> {
        Borrowed::ask(path, bytes, patience)?.map(device)
    }

    /// The memory, for streams of the device that it was asked for with.
    pub fn memory(&self) -> &Memory {
        self.reservation.memory()
    }

    /// Whether the lender wants it back. Returns at once.
    ///
    /// # Errors
    /// [`Error::Gone`] if the lender is, and with it whatever lies there; [`Error::Protocol`],
    /// [`Error::System`].
    pub fn is_recalled(&self) -> Result<bool> {
        self.borrowed.is_recalled()
    }

    /// Gives the memory back: unmaps it, then tells the lender.
    ///
    /// # Errors
    /// [`Error::Device`] with some of it still in use, and then the loan goes on; [`Error::Gone`] if the
    /// lender is, which ends the loan as well.
    pub fn give_back(&self) -> Result<()> {
        let all = 0..self.reservation.memory().len();
        let unmapped = self.reservation.unmap(all);
        unmapped.when(|| "unmapping memory that was lent".to_owned())?;
        self.borrowed.returned()
    }
}

fn unexpected(message: &Message) -> Error {
    let Message { kind, value, .. } = message;
    Error::Protocol(format!("message {kind} with {value} is unexpected"))
}
