#![doc = include_str!("../README.md")]
//!
//! # The contract
//!
//! Every wait has an end: an operation that takes longer than the caller's patience is [`Error::TimedOut`]. The memory
//! of a copy that a device does not finish by then is never freed, so that it is not allocated again.
//!
//! **Absent on purpose.** The crate has no threads beyond a call. It does not decide where bytes go: a
//! [`Strategy`](tierflow_placement::Strategy) does.

#![forbid(unsafe_code)]

mod cache;
mod calibration;
mod error;
mod group;
mod lease;
mod machine;
mod overflow;
mod socket;
mod timed_copies;

pub use cache::{Part, PeerCache, Recall, Wake};
pub use calibration::{Effort, calibrate};
pub use error::{Error, Result};
pub use group::GroupOverflow;
pub use lease::{Borrowed, Lender, Lent, Loan};
pub use machine::{Gpu, HostLink, Link, Machine};
pub use overflow::{ConcurrentCopy, Overflow, Remainder, Timings, TransferTarget};
/// Topologies, problems and schedules, for those who place an overflow.
pub use tierflow_placement as placement;
