#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod candidates;
mod policy;

pub use candidates::{
    Candidate, Candidates, Distance, GAP_DISTANCE, MAX_CAPACITY, MAX_WAIT, Outlook,
    UNHINTED_DISTANCE,
};
pub use policy::{Policy, Score, Window};
