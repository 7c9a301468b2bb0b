#![doc = include_str!("../README.md")]
//!
//! # The contract
//!
//! **Who validates what.** Everything that a safe function is handed is checked here, above the back
//! ends: bounds, mapping, alignment, overlap, length, device. What is wrong is
//! [`Error::Invalid`], costs nothing and changes nothing. Back ends trust what reaches them.
//!
//! **Who holds what.** Bytes are touched through loans alone: many [`ReadLoan`]s or one
//! [`WriteLoan`], checked when they are made. A copy in flight owns its loans. So a safe program
//! cannot free, remap, read or overwrite bytes that a device is working on, whatever it drops,
//! forgets or does from other threads. The only ways around are marked `unsafe`:
//! [`Memory::from_raw`] (bytes that others reach too) and kernels (`Stream::launch`, which may do
//! anything).
//!
//! **What waits.** [`Stream::copy`], [`Stream::record`], [`Stream::record_timed`], [`Stream::wait`]
//! and launches return when the work is enqueued (a copy from or to unpinned host memory may block).
//! Everything else on a [`Stream`] returns when it is done. Dropping a [`Transfer`] waits for it; dropping a stream does
//! not. Allocating, freeing and mapping may wait for the driver, and pinning makes other calls wait.
//!
//! **What a fork leaves.** A child process has its own copy of all memory of the host back end, made
//! page by page as either side writes; what was exported stays shared. CUDA does not work in a
//! child, and neither its memory nor a [`HostReservation`] of a CUDA device may be touched there.
//!
//! **Which errors exist.** Those that the caller cannot foresee, sorted by what to do next; see
//! [`Error`]. A failed device stays failed ([`Error::Lost`]): nothing runs on it any more, loans
//! come back, and host memory keeps what it had.
//!
//! **What is deliberately absent.** No default device, no global state, no stream that orders
//! itself after others implicitly (CUDA streams here do not wait for the legacy default stream), no
//! allocation pools: an arena does that with one [`Reservation`]. A device reaches a peer's memory
//! where it was mapped for it ([`Reservation::map_on`], [`Device::reserve_shared`]), and nowhere else.

// What only the CUDA back end asks of the parts below it.
#![cfg_attr(not(feature = "cuda"), allow(dead_code))]

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
mod reservation;
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
pub use reservation::Reservation;
pub use stream::{Event, Stream};
pub use transfer::{Outcome, Transfer};
