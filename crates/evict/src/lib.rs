#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod candidates;
mod error;
mod gaps;
mod policy;
mod table;

pub use candidates::{
    Candidate, Candidates, Distance, GAP_DISTANCE, MAX_CAPACITY, MAX_WAIT, Outlook,
    UNHINTED_DISTANCE,
};
pub use error::TableError;
pub use policy::{Fifo, Lru, Policy, Score, Window};
pub use table::{AllocationTable, Fragment, Slot};
