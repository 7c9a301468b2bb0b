use std::path::PathBuf;
use std::time::Duration;

use tierflow_placement::{GpuId, TopologyError};

/// What this crate's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be done. The variant says what the caller does next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device refused or failed: see there.
    #[error("{doing}: {why}")]
    Device {
        /// What was being done.
        doing: String,
        /// The device's own error.
        why: tierflow_device::Error,
    },
    /// It took longer than the caller would wait. A device may still be at it.
    #[error("{doing} was not done after {patience:?}: take the devices for failed, or wait longer")]
    TimedOut {
        /// What was being done.
        doing: String,
        /// How long that was.
        patience: Duration,
    },
    /// There is nothing to calibrate, or to schedule on.
    #[error("no device was given: give at least one")]
    NoDevices,
    /// Two of the devices given are one.
    #[error("{one} and {other} are the same device: give each once")]
    Twice {
        /// The first of them.
        one: GpuId,
        /// The second.
        other: GpuId,
    },
    /// A file describes another machine: calibrate anew.
    #[error(
        "the file is of another machine: {gpu} is {expected} there, and {found} here; calibrate anew"
    )]
    OtherMachine {
        /// The first node that does not fit.
        gpu: GpuId,
        /// What the file says it is.
        expected: String,
        /// What it is.
        found: String,
    },
    /// What a file or a caller says of a machine cannot be: mend the description, or calibrate anew.
    #[error("{node}: {why}")]
    Description {
        /// The node that is described wrongly.
        node: String,
        /// What is wrong with it.
        why: String,
    },
    /// A measured machine has no topology: see there.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A file cannot be read or written.
    #[error("cannot {doing} {}: {why}", path.display())]
    File {
        /// `read` or `write`.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        why: std::io::Error,
    },
    /// A file is no description of a machine of this format: calibrate anew.
    #[error("{} is no machine file of format {format}: {why}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The format that is read here.
        format: u32,
        /// What is wrong with it.
        why: String,
    },
    /// A transfer of the schedule and what it is to move do not go together.
    #[error("{transfer}: {why}")]
    Mismatch {
        /// The transfer.
        transfer: String,
        /// What does not fit.
        why: String,
    },
    /// The lender has not so much to lend now: ask for less, or another lender.
    #[error("{asked} bytes were asked for, the lender has {spare} to spare")]
    NothingToLend {
        /// Bytes asked for.
        asked: u64,
        /// Bytes that could be had.
        spare: u64,
    },
    /// The other process has ended or closed the connection: what lies there is lost, take it from a lower
    /// copy.
    #[error("the other process is gone ({doing})")]
    Gone {
        /// What was being done.
        doing: &'static str,
    },
    /// The other process says something that is not part of the protocol.
    #[error("the other process does not keep to the protocol: {0}")]
    Protocol(String),
    /// The system refused.
    #[error("the operating system refused {doing}: {why}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// The system's reason.
        why: std::io::Error,
    },
}

/// Says what was being done when a device refused.
pub(crate) trait While<T> {
    fn when(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T> While<T> for tierflow_device::Result<T> {
    fn when(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|why| Error::Device {
            doing: doing(),
            why,
        })
    }
}
