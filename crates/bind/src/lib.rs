#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod engine_handle;
mod failure;
mod logger;
mod memory;
mod options;
mod process;
mod slot;
mod statistics;
mod streams;
mod until;

pub use engine_handle::{Door, EngineHandle, OpenEngine, Suspension, end_of_process, log_start};
pub use failure::{Failure, Outcome, Status, System};
pub use logger::{Level, LevelFilter, LogSink, log_to, to_standard_error};
pub use memory::{CallMemory, Span};
pub use options::{
    Growth, Kind, OPTIONS, OptionInfo, Options, Pool, PoolOfNode, Ranks, Value, parse,
};
pub use process::{PerProcess, at_exit};
pub use slot::{OrderAfter, Slot, SlotEnd};
pub use streams::{Borrowed, CallStream, DeviceStreams, Order};
pub use until::Until;
