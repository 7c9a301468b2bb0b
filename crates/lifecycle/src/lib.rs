#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

mod event;
mod state;

pub use event::Event;
pub use state::{IllegalMove, State};
