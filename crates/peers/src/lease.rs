//! Loans of device memory between processes.
//!
//! ```text
//! borrower                                lender
//!    │ ── connects, ask(bytes) ────────────▶ │  exports a chunk
//!    │ ◀─ lent(bytes) + descriptor ───────── │  or refused(spare)
//!    │ ◀─ recall ─────────────────────────── │  when it needs the memory itself
//!    │ ── returned ────────────────────────▶ │  frees it
//! ```
//!
//! Each connection is one loan. When it closes, the other process has ended: a borrower's chunk is free again, and a
//! lender's chunk counts as lost, though it stays mapped. A lender that ends a loan early closes its direction alone, and hears when the
//! borrower has unmapped the chunk.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tierflow_device::{Device, Exported, Memory, Reservation};
use tierflow_sync::{Mutex, rank};

use crate::error::{DeviceContext, Error, Result};
use crate::socket::{Listener, Message, Socket};

const ASK: u64 = 1;
const LENT: u64 = 2;
const REFUSED: u64 = 3;
const RECALL: u64 = 4;
const RETURNED: u64 = 5;

/// A process that lends memory of its device to other processes of the same user.
#[derive(Debug)]
pub struct Lender {
    device: Device,
    listener: Listener,
    spare: Arc<Mutex<Spare, { rank::LEAF }>>,
}

/// The bytes that a lender can lend.
#[derive(Debug)]
struct Spare {
    bytes: u64,
    /// Loans that the lender has ended, and their bytes, which borrowers may still have mapped.
    ended: Vec<(Arc<Socket>, u64)>,
}

impl Spare {
    /// Counts the loans that borrowers have given back meanwhile. Returns the bytes.
    fn count(&mut self) -> u64 {
        let bytes = &mut self.bytes;
        self.ended.retain(|(socket, lent)| {
            let received = socket.receive("asking for the end of a loan", Duration::ZERO);
            let is_mapped = matches!(received, Err(Error::TimedOut { .. }));
            *bytes += if is_mapped { 0 } else { *lent };
            is_mapped
        });
        self.bytes
    }
}

/// A loan on the lender's side. Dropping it tells the borrower that the loan is over. The memory is free, and spare again, when the
/// borrower has unmapped it.
#[derive(Debug)]
pub struct Lent {
    chunk: Exported,
    socket: Arc<Socket>,
    spare: Arc<Mutex<Spare, { rank::LEAF }>>,
    is_returned: AtomicBool,
}

/// A loan on the borrower's side: memory of another process's device, mapped at addresses of this process. Dropping it gives the
/// memory back without waiting for the lender.
#[derive(Debug)]
pub struct Loan {
    reservation: Reservation,
    borrowed: Borrowed,
}

/// A loan without addresses, for a [`PeerCache`](crate::PeerCache) or [`map`](Self::map).
#[derive(Debug)]
pub struct Borrowed {
    memory: OwnedFd,
    len: usize,
    socket: Arc<Socket>,
    /// True once the lender's only recall message has arrived. Never reset.
    recalled: AtomicBool,
    /// True once the lender has ended or broken the protocol: no recall can arrive any more.
    is_over: AtomicBool,
}

impl Lender {
    /// Listens at `path`. The lender lends up to `spare` bytes of the device, to processes of this user. Replaces a socket that a
    /// killed lender left at the path.
    ///
    /// # Errors
    /// [`Error::System`] if no socket can be made at the path: another process listens there, or a file is in the way.
    pub fn bind(device: &Device, path: &Path, spare: u64) -> Result<Self> {
        Ok(Self {
            device: device.clone(),
            listener: Listener::bind(path)?,
            spare: Arc::new(Mutex::new(Spare {
                bytes: spare,
                ended: Vec::new(),
            })),
        })
    }

    /// Returns the bytes that the lender can still lend.
    pub fn spare(&self) -> u64 {
        self.spare.lock().count()
    }

    /// Waits for the next process that asks, and lends it the bytes that it asks for.
    ///
    /// # Errors
    /// [`Error::NothingToLend`] if there are too few spare bytes, and [`Error::Device`] if the device has too little memory: the borrower is told.
    /// [`Error::TimedOut`] if no process asks; [`Error::Protocol`], [`Error::Gone`] and [`Error::System`] if the connection fails. The lender
    /// can be called again after any error.
    pub fn lend(&self, patience: Duration) -> Result<Lent> {
        let socket = self.listener.accept(patience)?;
        let ask = socket.receive("waiting to be asked", patience)?;
        if ask.kind != ASK {
            return Err(unexpected(&ask));
        }
        let granularity = self.device.info().granularity as u64;
        let asked = ask.value;
        let bytes = asked.checked_next_multiple_of(granularity);
        let mut all = self.spare.lock();
        let spare = all.count();
        let left = bytes.and_then(|bytes| spare.checked_sub(bytes));
        all.bytes = left.unwrap_or(spare);
        drop(all);
        let bytes = bytes.filter(|bytes| *bytes > 0 && left.is_some());
        let Some(bytes) = bytes.and_then(|bytes| usize::try_from(bytes).ok()) else {
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
                self.spare.lock().bytes += bytes as u64;
                socket.send("refusing a loan", REFUSED, 0, None)?;
                return Err(error);
            }
        };
        let lent = Lent {
            chunk,
            socket: Arc::new(socket),
            spare: Arc::clone(&self.spare),
            is_returned: AtomicBool::new(false),
        };
        let fd = lent.chunk.fd();
        lent.socket
            .send("lending memory", LENT, bytes as u64, Some(fd))?;
        Ok(lent)
    }
}

impl Lent {
    /// Returns the memory, which this process can map, too.
    pub fn chunk(&self) -> &Exported {
        &self.chunk
    }

    /// Asks for the memory back. The borrower first saves its data; [`wait_returned`](Self::wait_returned) waits for
    /// the end of the loan.
    ///
    /// # Errors
    /// [`Error::Gone`] if the borrower has ended: the loan is over.
    pub fn recall(&self) -> Result<()> {
        self.socket.send("recalling a loan", RECALL, 0, None)
    }

    /// Waits until the borrower has given the memory back or has ended. Dropping this value then frees the memory.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if the borrower still has the memory: call again. [`Error::Protocol`] and [`Error::System`] if the connection fails.
    pub fn wait_returned(&self, patience: Duration) -> Result<()> {
        match self.socket.receive("waiting for a loan to end", patience) {
            Ok(message) if message.kind == RETURNED => {}
            Ok(message) => return Err(unexpected(&message)),
            Err(Error::Gone { .. }) => {}
            Err(error) => return Err(error),
        }
        self.is_returned.store(true, Relaxed);
        Ok(())
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let bytes = self.chunk.len() as u64;
        let mut spare = self.spare.lock();
        match *self.is_returned.get_mut() {
            true => spare.bytes += bytes,
            false => {
                self.socket.end();
                spare.ended.push((Arc::clone(&self.socket), bytes));
            }
        }
    }
}

impl Borrowed {
    /// Asks the lender at this path for `bytes` bytes of memory.
    ///
    /// # Errors
    /// [`Error::NothingToLend`] if the lender has too few spare bytes; [`Error::TimedOut`] if there is no lender, or it does not answer;
    /// [`Error::Gone`], [`Error::Protocol`] and [`Error::System`] if the connection fails.
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

    /// Maps the memory at new addresses of `device`.
    ///
    /// # Errors
    /// [`Error::Device`] if the device does not reach the memory.
    pub fn map(self, device: &Device) -> Result<Loan> {
        let reservation = device.reserve_for_exported(self.len);
        let reservation = reservation.when(|| "addresses for a loan".to_owned())?;
        self.map_at(&reservation, 0)?;
        Ok(Loan {
            reservation,
            borrowed: self,
        })
    }

    /// Returns the length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Maps the memory at offset `start` of a reservation for exported memory.
    pub(crate) fn map_at(&self, reservation: &Reservation, start: usize) -> Result<()> {
        let doing = || "mapping memory that was lent".to_owned();
        let memory = self.memory.try_clone().map_err(|why| Error::System {
            doing: "copying a descriptor",
            why,
        })?;
        let range = start..start.saturating_add(self.len);
        reservation.map_imported(range, memory).when(doing)
    }

    /// Returns true if the lender wants the memory back. Does not wait.
    ///
    /// # Errors
    /// [`Error::Gone`] if the lender has ended; [`Error::Protocol`] and [`Error::System`] if the connection fails.
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

    /// Returns the socket that becomes readable when the lender wants the memory back or ends; `None` once one of these
    /// is known.
    pub(crate) fn recall(&self) -> Option<Arc<Socket>> {
        let is_known = self.recalled.load(Relaxed) || self.is_over.load(Relaxed);
        (!is_known).then(|| Arc::clone(&self.socket))
    }

    /// Tells the lender that no byte of the memory is mapped any more.
    pub(crate) fn returned(&self) -> Result<()> {
        self.socket.send("giving memory back", RETURNED, 0, None)
    }
}

impl Loan {
    /// Asks the lender at this path for memory, and maps it for `device`.
    ///
    /// # Errors
    /// The errors of [`Borrowed::ask`] and [`Borrowed::map`].
    pub fn ask(device: &Device, path: &Path, bytes: u64, patience: Duration) -> Result<Self> {
        Borrowed::ask(path, bytes, patience)?.map(device)
    }

    /// Returns the memory, for streams of the device that it is mapped for.
    pub fn memory(&self) -> &Memory {
        self.reservation.memory()
    }

    /// Returns true if the lender wants the memory back. Does not wait.
    ///
    /// # Errors
    /// [`Error::Gone`] if the lender has ended: the bytes there are lost. [`Error::Protocol`] and [`Error::System`] if the connection fails.
    pub fn is_recalled(&self) -> Result<bool> {
        self.borrowed.is_recalled()
    }

    /// Unmaps the memory, then tells the lender.
    ///
    /// # Errors
    /// [`Error::Device`] if some bytes are still in use: the loan goes on. [`Error::Gone`] if the lender has ended: the loan is over, too.
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;
    use crate::{Part, PeerCache};
    use tierflow_device::host;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Makes a loan whose lender says that it has `bytes` bytes. Returns both ends of the loan, and the lent memory.
    fn lent(bytes: u64) -> (Device, Borrowed, Socket, Exported) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("lender");
        let device = host::open(host::Options::default()).unwrap();
        let listener = Listener::bind(&path).unwrap();
        let chunk = device.export(device.info().granularity).unwrap();
        std::thread::scope(|scope| {
            let borrower = scope.spawn(|| Borrowed::ask(&path, 1, PATIENCE).unwrap());
            let socket = listener.accept(PATIENCE).unwrap();
            socket.receive("", PATIENCE).unwrap();
            socket.send("", LENT, bytes, Some(chunk.fd())).unwrap();
            (device.clone(), borrower.join().unwrap(), socket, chunk)
        })
    }

    #[test]
    fn memory_of_a_lender_that_talks_nonsense_is_given_back() {
        let (device, loan, lender, chunk) = lent(4096);
        let cache = PeerCache::new(&device, vec![Part::borrowed(loan)]).unwrap();
        assert_eq!(cache.usable(), chunk.len());
        lender.send("", 99, 0, None).unwrap();
        assert_eq!(cache.wanted(), Some(0));
        assert_eq!(cache.give_back(0).unwrap(), 0);
        let returned = lender.receive("", PATIENCE).unwrap();
        assert_eq!(returned.kind, RETURNED);
    }

    #[test]
    fn memory_that_a_borrower_still_maps_is_not_spare() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("lender");
        let device = host::open(host::Options::default()).unwrap();
        let spare = device.info().granularity as u64;
        let lender = Lender::bind(&device, &path, spare).unwrap();
        let (lent, loan) = std::thread::scope(|scope| {
            let borrower = scope.spawn(|| Loan::ask(&device, &path, 1, PATIENCE).unwrap());
            (lender.lend(PATIENCE).unwrap(), borrower.join().unwrap())
        });
        drop(lent);
        assert!(loan.is_recalled().is_err(), "the loan is not over");
        assert_eq!(lender.spare(), 0);
        drop(loan);
        assert_eq!(lender.spare(), spare);
    }

    #[test]
    fn a_loan_longer_than_all_addresses_is_an_error() {
        for bytes in [u64::MAX, 0] {
            let (device, loan, ..) = lent(bytes);
            PeerCache::new(&device, vec![Part::borrowed(loan)]).unwrap_err();
            let (device, loan, ..) = lent(bytes);
            loan.map(&device).unwrap_err();
        }
    }
}
