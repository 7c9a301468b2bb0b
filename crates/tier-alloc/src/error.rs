use std::path::PathBuf;

use tierflow_device as device;

use crate::watermark::{End, Watermark};

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reasons why a call of this crate failed. The variant says what the caller does next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arena will never be as large as asked: use the bytes that it has, or make a smaller one.
    #[error("the arena stopped growing at {reached} of {capacity} bytes: {source}")]
    Growth {
        /// Bytes that are usable, and stay so.
        reached: usize,
        /// Bytes of the whole arena.
        capacity: usize,
        /// The error at the next byte.
        source: device::Error,
    },
    /// The thread that grows the arena died: a defect of this crate.
    #[error("the arena's thread ended at {reached} of {capacity} bytes: please report this")]
    Abandoned {
        /// Bytes that are usable, and stay so.
        reached: usize,
        /// Bytes of the whole arena.
        capacity: usize,
    },
    /// The range ends beyond the arena: mend the caller.
    #[error("byte {end} lies beyond the arena's {capacity} bytes")]
    BeyondCapacity {
        /// The end of the range.
        end: usize,
        /// The arena's length in bytes, or the length to which it was resized.
        capacity: usize,
    },
    /// The strategy needs a CUDA device: choose another one, or another device.
    #[error("{strategy} needs a CUDA device, and this one is not")]
    NotCuda {
        /// The strategy's name.
        strategy: &'static str,
    },
    /// A setting makes no sense: mend the caller.
    #[error("{setting} must be at least 1")]
    Zero {
        /// The setting's name.
        setting: &'static str,
    },
    /// The strategy cannot give memory back in parts: choose another one.
    #[error("the memory of {strategy} cannot be given back in parts")]
    Fixed {
        /// The strategy's name.
        strategy: &'static str,
    },
    /// The file for pinning in turn cannot be used: name another one.
    #[error("{} cannot be opened to pin in turn: {reason}", path.display())]
    Turns {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: String,
    },
    /// The pool cannot be used: the reason says what to mend.
    #[error("the pool of host memory cannot be used: {reason}")]
    Pool {
        /// The reason.
        reason: String,
    },
    /// The system refused a thread: raise the limit of processes, or stop some threads.
    #[error("no thread could be started to grow the arena: {reason}")]
    Thread {
        /// The system's message.
        reason: String,
    },
    /// The device refused. The variants of its error say what the caller does next.
    #[error(transparent)]
    Device(#[from] device::Error),
}

/// Waits until the first `end` of `capacity` bytes are usable, which is when `level` reaches `end`.
pub(crate) fn wait_usable(level: &Watermark, end: usize, capacity: usize) -> Result<()> {
    if level.level() >= end {
        return Ok(());
    }
    if end > capacity {
        return Err(Error::BeyondCapacity { end, capacity });
    }
    level.wait(end).map_err(|why| {
        let reached = level.level();
        match why {
            End::Failed(source) => Error::Growth {
                reached,
                capacity,
                source,
            },
            // The arena was resized.
            End::Complete => Error::BeyondCapacity {
                end,
                capacity: reached,
            },
            End::Stopped => Error::Abandoned { reached, capacity },
        }
    })
}
