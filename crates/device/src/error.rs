//! Errors, sorted by what the caller does next.

use std::ops::Range;

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reasons why a call failed. The variant says what the caller does next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The machine does not have the device: choose another one, or mend the installation.
    #[error("no such device: {0}")]
    Unavailable(#[from] Unavailable),
    /// The arguments are wrong, and will be wrong again: mend the caller.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// Too little memory now: free some, or ask for less.
    #[error(
        "out of memory: {asked} bytes asked for {what}, {free} bytes free; free some or ask for less"
    )]
    OutOfMemory {
        /// The use of the memory.
        what: &'static str,
        /// Bytes asked for.
        asked: u64,
        /// Bytes that the device reported free at that moment.
        free: u64,
    },
    /// The bytes are lent elsewhere: wait until that loan is given back.
    #[error(
        "bytes {}..{} are lent out for {held} as {}..{}: wait for that loan to end",
        .asked.start, .asked.end, .overlaps.start, .overlaps.end
    )]
    Busy {
        /// The range asked for, in bytes from the start of the memory.
        asked: Range<usize>,
        /// The range of one live loan that is in the way.
        overlaps: Range<usize>,
        /// The access of that loan.
        held: Access,
    },
    /// The device has failed for good: every later call on it fails. Host memory is still intact;
    /// save from there, then start the process anew.
    #[error("the device failed and cannot be used again by this process ({call}): {reason}")]
    Lost {
        /// The call that reported the failure; an earlier one may have caused it.
        call: &'static str,
        /// The driver's message.
        reason: String,
    },
    /// The driver refused a call for a reason that is none of the above.
    #[error("the driver refused {call}: {reason}")]
    Driver {
        /// The call that failed.
        call: &'static str,
        /// The driver's message.
        reason: String,
    },
    /// The operating system refused.
    #[error("the operating system refused {tried}: {}", std::io::Error::from_raw_os_error(*.errno))]
    System {
        /// The refused operation.
        tried: &'static str,
        /// The `errno` value.
        errno: i32,
    },
}

/// Reasons why a device is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The build has no CUDA back end.
    #[error(
        "this build has no CUDA back end: enable the feature `cuda` of tierflow-device, or choose the host back end"
    )]
    NotBuilt,
    /// The driver's library cannot be loaded.
    #[error("libcuda.so.1 was not found: install the NVIDIA driver, or choose the host back end")]
    NoDriver,
    /// The driver finds no GPU that this process may use.
    #[error(
        "the NVIDIA driver finds no GPU ({reason}): check nvidia-smi and CUDA_VISIBLE_DEVICES, or \
         choose the host back end"
    )]
    NoGpu {
        /// The driver's message.
        reason: String,
    },
    /// The driver is older than this build needs.
    #[error(
        "the NVIDIA driver supports CUDA {}.{}, this build needs {}.{}: update the driver, or \
         choose the host back end",
        .found / 1000, .found % 1000 / 10, .needed / 1000, .needed % 1000 / 10
    )]
    DriverTooOld {
        /// The version that the driver supports, as 1000 × major + 10 × minor.
        found: i32,
        /// The version needed, in the same form.
        needed: i32,
    },
    /// No GPU has this number, though there are GPUs.
    #[error("GPU {ordinal} was asked for, the driver finds {count} (numbered from 0)")]
    NoSuchGpu {
        /// The number asked for.
        ordinal: usize,
        /// Number of GPUs.
        count: usize,
    },
    /// The GPU lacks a feature that this crate needs.
    #[error("GPU {ordinal} lacks {feature}: use another GPU, or choose the host back end")]
    MissingFeature {
        /// The GPU's number.
        ordinal: usize,
        /// The feature.
        feature: &'static str,
    },
}

/// Errors in the arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The length is 0, which cannot be allocated or reserved.
    #[error("a length of 0 bytes was asked for: ask for at least one")]
    Empty,
    /// The range is reversed or ends beyond the memory.
    #[error("bytes {}..{} do not lie within 0..{len}", .range.start, .range.end)]
    OutOfBounds {
        /// The range asked for.
        range: Range<usize>,
        /// The length of the memory, in bytes.
        len: usize,
    },
    /// The range, or part of it, has no memory behind it yet.
    #[error("bytes {}..{} are reserved but not mapped yet: map them first", .range.start, .range.end)]
    Unmapped {
        /// The range asked for.
        range: Range<usize>,
    },
    /// The range is mapped, or pinned, already.
    #[error("bytes {}..{} overlap a range that is {what} already", .range.start, .range.end)]
    Twice {
        /// The range asked for.
        range: Range<usize>,
        /// "mapped" or "pinned".
        what: &'static str,
    },
    /// The ends of the range are no multiples of the granularity.
    #[error(
        "bytes {}..{} do not begin and end at multiples of the granularity, {granularity} bytes",
        .range.start, .range.end
    )]
    Misaligned {
        /// The range asked for.
        range: Range<usize>,
        /// Both ends must be a multiple of this, in bytes.
        granularity: usize,
    },
    /// The reservation does not take chunks of this kind. Exported chunks need
    /// [`Device::reserve_for_exported`](crate::Device::reserve_for_exported), others
    /// [`Device::reserve`](crate::Device::reserve).
    #[error("this reservation is not for chunks of this kind")]
    NotSuchChunks,
    /// Source and destination differ in length.
    #[error("the source has {src} bytes, the destination {dst}: they must be of one length")]
    LengthMismatch {
        /// Bytes in the source.
        src: usize,
        /// Bytes in the destination.
        dst: usize,
    },
    /// The processor cannot read or write this memory.
    #[error("device memory cannot be read or written in place by the host: copy it with a stream")]
    NotHostAccessible,
    /// The memory or event belongs to another device than the stream.
    #[error("the memory or event belongs to another device than the stream")]
    OtherDevice,
    /// The memory is not managed, so no driver moves its bytes. Only
    /// [`Device::alloc_managed`](crate::Device::alloc_managed) gives memory that takes advice and prefetches.
    #[error("{what} needs managed memory, and this is not: allocate it with alloc_managed")]
    NotManaged {
        /// The operation asked for.
        what: &'static str,
    },
    /// The call needs a CUDA device.
    #[error("{what} needs a CUDA device, and this one is not")]
    NotCuda {
        /// The operation asked for.
        what: &'static str,
    },
    /// An event has no time stamp.
    #[error("an event tells no time: record both with Stream::record_timed")]
    Untimed,
    /// The event is not yet reached.
    #[error("the events have no time between them yet: synchronise the later one first")]
    NotReached,
    /// A name or a text holds a NUL byte, or is not known to the driver.
    #[error("{what} {name:?} is not usable: {reason}")]
    Name {
        /// The kind of thing that has this name.
        what: &'static str,
        /// The name.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The address is null or the range wraps around the address space.
    #[error("{len} bytes at address {address:#x} are no memory")]
    Address {
        /// The address.
        address: u64,
        /// The length in bytes.
        len: usize,
    },
}

/// The access that a loan gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Many readers may share bytes.
    Read,
    /// A single writer has the bytes alone.
    Write,
}

impl std::fmt::Display for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Read => "reading",
            Self::Write => "writing",
        })
    }
}

impl Error {
    pub(crate) fn system(tried: &'static str, errno: rustix::io::Errno) -> Self {
        Self::System {
            tried,
            errno: errno.raw_os_error(),
        }
    }
}

/// Makes the error for `asked` bytes of `what`, of which only `free` bytes are free.
pub(crate) fn out_of_memory(what: &'static str, asked: usize, free: u64) -> Error {
    Error::OutOfMemory {
        what,
        asked: asked as u64,
        free,
    }
}

/// Makes the error for a call that the host back end does not have.
pub(crate) fn not_cuda(what: &'static str) -> Error {
    Invalid::NotCuda { what }.into()
}
