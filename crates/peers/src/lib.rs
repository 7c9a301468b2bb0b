#![doc = include_str!("../README.md")]
//!
//! # The contract
//!
//! Every wait has an end: what takes longer than the caller's patience is [`Error::TimedOut`]. A copy that
//! a device does not finish by then keeps its memory for good, so that it is not allocated again.
//!
//! **What is deliberately absent.** No threads beyond a call. No decision about what goes where: that
//! is a [`Strategy`](tierflow_placement::Strategy)'s.

#![forbid(unsafe_code)]

mod cache;
mod calibration;
mod error;
mod lanes;
mod lease;
mod machine;
mod overflow;
mod socket;

pub use cache::{Part, PeerCache, Recall, Wake};
pub use calibration::{Effort, calibrate};
pub use error::{Error, Result};
pub use lease::{Borrowed, Lender, Lent, Loan};
pub use machine::{Gpu, HostLink, Link, Machine};
pub use overflow::{Beside, Overflow, Remainder, Room, Took};
