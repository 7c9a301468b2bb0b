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
    /// Bytes of the whole arena: the bytes asked for, rounded up to the device's granularity.
    pub capacity: usize,
    /// Usable bytes, from the first byte on.
    pub usable: usize,
    /// The error that ended the growth, if one did.
    pub failed: Option<Error>,
    /// True if the arena grows no more.
    pub finished: bool,
    /// The mapped chunks, in the order of time.
    pub timeline: Vec<Mapped>,
}

/// A chunk that was put behind an arena's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Time from the start of the arena until the chunk was there.
    pub at: Duration,
    /// The chunk's bytes.
    pub bytes: usize,
    /// Duration of the call.
    pub took: Duration,
}
