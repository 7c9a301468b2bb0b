#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod buffered;
mod buffers;
mod context;
mod copy;
mod direct_io;
mod end;
mod error;
mod media;
mod medium;
pub mod probe;
mod record;
mod requests;
mod route;
mod straight;
#[doc(hidden)]
mod under_way;
pub mod volume;

pub use buffers::{BUFFER_BYTES, Buffer, BufferPool};
pub use context::{CopyContext, Stop, StreamChoice};
pub use copy::PART_BYTES;
pub use direct_io::DirectIo;
pub use end::{Source, Target};
pub use error::{Error, FailedEnd, Result, TransferError};
pub use media::{
    HostBytes, MemoryBytes, MemoryMedium, ScratchMedium, ScratchPlace, to_usize, whole_blocks,
};
pub use medium::{Medium, Span};
pub use record::{SourceRecord, TargetRecord};
pub use requests::{Helper, Workers};
pub use route::{MediumKind, Route, route};
pub use straight::{
    DirectTarget, OpenFile, Opener, Straight, StraightError, StraightStatistics, WayBytes,
};
