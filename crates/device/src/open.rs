//! Opening a device.

#[cfg(feature = "cuda")]
use crate::cuda;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::host;

/// The device to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The first GPU if there is a driver and a GPU, else the host back end, and then [`Device::why_host`] gives the
    /// reason.
    #[default]
    Auto,
    /// The GPU of this number, or an error.
    Cuda {
        /// The GPU's number, from 0, among those that `CUDA_VISIBLE_DEVICES` leaves.
        ordinal: usize,
    },
    /// Plain memory of this machine in the place of a GPU's.
    Host,
}

/// Opens a device. The first GPU of a process costs a few hundred milliseconds, the host back end nothing.
///
/// # Errors
///
/// [`Error::Unavailable`] names what the machine lacks. [`Choice::Auto`] accepts a machine without a GPU, but a GPU
/// that does not work is an error, not a silent change of back end.
pub fn open(choice: Choice) -> Result<Device> {
    match choice {
        Choice::Host => host::open(host::Options::default()),
        Choice::Cuda { ordinal } => open_gpu(ordinal),
        Choice::Auto => match open_gpu(0) {
            Ok(gpu) => Ok(gpu),
            Err(Error::Unavailable(why)) => Ok(Device::new(
                host::Host::new(host::Options::default()),
                Some(why.into()),
            )),
            Err(broken) => Err(broken),
        },
    }
}

#[cfg(feature = "cuda")]
fn open_gpu(ordinal: usize) -> Result<Device> {
    cuda::open(ordinal).map(|gpu| Device::new(gpu, None))
}

#[cfg(not(feature = "cuda"))]
fn open_gpu(_: usize) -> Result<Device> {
    Err(crate::error::Unavailable::NotBuilt.into())
}
