use std::time::Duration;

use tierflow_device::Error;

/// The requested and the obtained properties of a device arena.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceReport {
    /// The strategy, by its name.
    pub strategy: &'static str,
    /// Bytes asked for.
    pub asked: usize,
    /// Bytes there are to be: those asked for, rounded up to the device's granularity.
    pub capacity: usize,
    /// Bytes usable, from the first one on.
    pub usable: usize,
    /// Why it will not grow any more, if it failed.
    pub failed: Option<Error>,
    /// True if the arena grows no more.
    pub finished: bool,
    /// How it grew, chunk by chunk.
    pub timeline: Vec<Mapped>,
}

/// A chunk that was put behind an arena's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// When it was there, from the start of the arena.
    pub at: Duration,
    /// The chunk's bytes.
    pub bytes: usize,
    /// How long the call took.
    pub took: Duration,
}
