#![doc = include_str!("../README.md")]
//!
//! # The contract
//!
//! **Validation.** The crate checks every argument of a safe function above the back ends: bounds, mapping, alignment,
//! overlap, length, device. A wrong argument is [`Error::Invalid`], costs nothing and changes nothing. Back ends trust
//! their arguments.
//!
//! **Loans.** Code touches bytes through loans alone: many [`ReadLoan`]s or one [`WriteLoan`], checked when they are
//! made. A copy in flight owns its loans. So a safe program cannot free, remap, read or overwrite bytes that a device
//! is working on, whatever it drops, forgets or does from other threads. The only exceptions are `unsafe`:
//! [`Memory::from_raw`] (bytes that others reach too) and kernels (`Stream::launch`, which may do anything).
//!
//! **Waiting.** [`Stream::copy`], [`Stream::record`], [`Stream::record_timed`], [`Stream::wait`] and launches return
//! when the work is enqueued (a copy from or to unpinned host memory may block). Other methods of [`Stream`] return
//! when the work is done. Dropping a [`Transfer`] waits for it; dropping a stream does not. Allocating, freeing and
//! mapping may wait for the driver, and pinning makes other calls wait.
//!
//! **Fork.** A child process has its own copy of all memory of the host back end, made page by page as either side
//! writes; exported memory stays shared. CUDA does not work in a child, which may touch neither CUDA memory nor
//! a [`HostReservation`] of a CUDA device.
//!
//! **Errors.** Errors cover what the caller cannot foresee, sorted by what to do next; see [`Error`]. A failed device
//! stays failed ([`Error::Lost`]): nothing runs on it any more, loans come back, and host memory keeps its content.
//!
//! **Absent on purpose.** The crate has no default device, no global state, no stream that orders itself after others
//! implicitly (CUDA streams here do not wait for the legacy default stream) and no allocation pools: an arena does that
//! with one [`Reservation`]. A device reaches a peer's memory only where that was mapped for it
//! ([`Reservation::map_on`], [`Device::reserve_shared`]).

// Only the CUDA back end uses some of the items.
#![cfg_attr(not(feature = "cuda"), allow(dead_code))]

#[cfg(not(target_os = "linux"))]
compile_error!("tierflow-device, and all that depends on it, builds for Linux alone");

mod advice;
mod backend;
#[cfg(feature = "testing")]
pub mod conformance;
#[cfg(feature = "cuda")]
pub mod cuda;
mod device;
mod error;
pub mod host;
mod host_reservation;
mod info;
mod ledger;
mod loan;
mod managed;
mod memory;
mod numa;
mod open;
mod pages;
mod parts;
mod peer;
mod pinned;
mod process;
mod reservation;
#[cfg(feature = "signals")]
mod signals;
mod stream;
mod transfer;

pub use advice::Advice;
pub use device::Device;
pub use error::{Access, Error, Invalid, Result, Unavailable};
pub use host_reservation::HostReservation;
pub use info::{Info, Kind, PeerLink, Place};
pub use loan::{ReadLoan, WriteLoan};
pub use managed::Migration;
pub use memory::Memory;
pub use open::{Choice, open};
pub use parts::{Part, PartMut};
pub use peer::Exported;
pub use pinned::{Pinned, WhyUnpinned};
pub use process::OwnerProcess;
pub use reservation::Reservation;
#[cfg(feature = "signals")]
pub use signals::receive_signal;
pub use stream::{Event, Stream};
pub use transfer::{Outcome, Transfer};
