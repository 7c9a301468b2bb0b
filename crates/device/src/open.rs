//! Opening a device.

#[cfg(feature = "cuda")]
use crate::cuda;
use crate::device::Device;
use crate::error::{Error, Result, Unavailable};
use crate::host;

/// The device to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The first GPU; the host back end if there is no driver, or the driver finds no GPU. Then [`Device::why_host`]
    /// gives the reason.
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
        Choice::Auto => or_host(open_gpu(0)),
    }
}

/// Returns the host back end if the machine has no GPU, and `gpu` otherwise.
fn or_host(gpu: Result<Device>) -> Result<Device> {
    use Unavailable::{NoDriver, NoGpu, NotBuilt};
    match gpu {
        Err(Error::Unavailable(why @ (NotBuilt | NoDriver | NoGpu { .. }))) => Ok(Device::new(
            host::Host::new(host::Options::default()),
            Some(why.into()),
        )),
        found => found,
    }
}

#[cfg(feature = "cuda")]
fn open_gpu(ordinal: usize) -> Result<Device> {
    cuda::open(ordinal).map(|gpu| Device::new(gpu, None))
}

#[cfg(not(feature = "cuda"))]
fn open_gpu(_: usize) -> Result<Device> {
    Err(Unavailable::NotBuilt.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_is_there_is_not_replaced_by_the_host() {
        let (found, needed) = (11_000, 12_000);
        let old = or_host(Err(Unavailable::DriverTooOld { found, needed }.into()));
        assert!(matches!(
            old,
            Err(Error::Unavailable(Unavailable::DriverTooOld { .. }))
        ));
        let none = or_host(Err(Unavailable::NoDriver.into())).unwrap();
        assert!(none.why_host().is_some());
    }
}
