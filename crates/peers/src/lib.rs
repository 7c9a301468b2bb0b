#![doc = include_str!("../README.md")]
//!
//! # The contract
//!
//! Every wait has an end: an operation that takes longer than the caller's patience is [`Error::TimedOut`]. The memory
//! of a copy that a device does not finish by then is never freed, so that it is not allocated again.
//!
//! **Absent on purpose.** The crate has no threads beyond a call. A [`Strategy`](tierflow_placement::Strategy) decides where bytes go; the
//! crate does not.

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
/// Topologies, problems and schedules, for callers that place an overflow.
pub use tierflow_placement as placement;
