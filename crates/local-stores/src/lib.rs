#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod backend;
mod buffer;
mod calibration;
mod error;
mod flush;
pub mod placement;
mod state;
mod volume;

pub use backend::{Backend, LocalStore, Options, Producer};
pub use calibration::{Effort, Points, calibrate, measure};
pub use error::{Error, Result};
pub use volume::Volume;
