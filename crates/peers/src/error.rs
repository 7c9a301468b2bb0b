use std::path::PathBuf;
use std::time::Duration;

use tierflow_placement::{GpuId, PlacementError, TopologyError};

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason for which a call failed. The variant says what the caller does next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device refused or failed: see its error.
    #[error("{doing}: {why}")]
    Device {
        /// The operation that failed.
        doing: String,
        /// The device's own error.
        why: tierflow_device::Error,
    },
    /// The operation took longer than the caller's patience. A device may still work on it.
    #[error("{doing} was not done after {patience:?}: take the devices for failed, or wait longer")]
    TimedOut {
        /// The operation.
        doing: String,
        /// The caller's patience.
        patience: Duration,
    },
    /// The list of devices is empty.
    #[error("no device was given: give at least one")]
    NoDevices,
    /// Two of the devices are the same.
    #[error("{one} and {other} are the same device: give each once")]
    Twice {
        /// The number of the first.
        one: GpuId,
        /// The number of the second.
        other: GpuId,
    },
    /// The file describes another machine: calibrate anew.
    #[error(
        "the file is of another machine: {gpu} is {expected} there, and {found} here; calibrate anew"
    )]
    OtherMachine {
        /// The first GPU that differs.
        gpu: GpuId,
        /// The description in the file.
        expected: String,
        /// The description on this machine.
        found: String,
    },
    /// The description of a machine is impossible: correct it, or calibrate again.
    #[error("{node}: {why}")]
    Description {
        /// The node with the wrong description.
        node: String,
        /// The defect.
        why: String,
    },
    /// The measurements give no topology: see the inner error.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The overflow cannot be placed: see the inner error.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The file cannot be read or written.
    #[error("cannot {doing} {}: {why}", path.display())]
    File {
        /// `read` or `write`.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        why: std::io::Error,
    },
    /// The file is no description of a machine in this format: calibrate anew.
    #[error("{} is no machine file of format {format}: {why}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The format of this version.
        format: u32,
        /// The defect.
        why: String,
    },
    /// A transfer of the schedule does not fit its memory or devices.
    #[error("{transfer}: {why}")]
    Mismatch {
        /// The transfer.
        transfer: String,
        /// The reason.
        why: String,
    },
    /// The lender has fewer bytes to lend now: ask for less, or another lender.
    #[error("{asked} bytes were asked for, the lender has {spare} to spare")]
    NothingToLend {
        /// Bytes asked for.
        asked: u64,
        /// Bytes that the lender can lend.
        spare: u64,
    },
    /// The other process has ended or closed the connection. The bytes in its memory are lost: read them from a lower
    /// copy.
    #[error("the other process is gone ({doing})")]
    Gone {
        /// The operation.
        doing: &'static str,
    },
    /// The other process sent a message that is not part of the protocol.
    #[error("the other process does not keep to the protocol: {0}")]
    Protocol(String),
    /// The system refused.
    #[error("the operating system refused {doing}: {why}")]
    System {
        /// The operation.
        doing: &'static str,
        /// The system's reason.
        why: std::io::Error,
    },
}

/// Adds the operation to a device's error.
pub(crate) trait DeviceContext<T> {
    fn when(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T> DeviceContext<T> for tierflow_device::Result<T> {
    fn when(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|why| Error::Device {
            doing: doing(),
            why,
        })
    }
}
