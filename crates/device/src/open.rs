//! Opening a device.

#[cfg(feature = "cuda")]
use crate::cuda;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::host;

/// Which device to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The first GPU if there is a driver and a GPU, else the host back end.
    /// [`Device::why_host`] then says why.
    #[default]
    Auto,
    /// This GPU, or an error.
    Cuda {
        /// The GPU's number, from 0, as `CUDA_VISIBLE_DEVICES` leaves them.
        ordinal: usize,
    },
    /// Plain memory of this machine in the place of a GPU's.
    Host,
}

/// Opens a device. It costs a few hundred milliseconds the first time that a process opens a GPU,
/// and nothing on the host back end.
///
/// # Errors
///
/// [`Error::Unavailable`] says what the machine lacks. [`Choice::Auto`] never fails for the lack of
/// a GPU, but a GPU that is there and does not work is an error, not a silent change of back end.
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
