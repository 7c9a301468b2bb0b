//! Streams that an application names by their handles.
//!
//! Nothing can check that a handle is one. It is the contract of `stream=`, and of the protocols by which arrays name theirs,
//! that it is a stream of the device's primary context which outlives the call; the engine gives it no work after that.

use std::sync::Arc;

use tierflow_bind::{DeviceStreams, Order, Outcome};
use tierflow_device::Stream;

/// Has a call come after the work given to the stream of a handle.
pub(crate) fn after(order: &mut Order<'_>, handle: u64) -> Outcome {
    // SAFETY: the contract above.
    unsafe { order.after(handle) }
}

/// The stream of a handle.
pub(crate) fn adopted(
    streams: &DeviceStreams,
    handle: u64,
) -> tierflow_device::Result<Arc<Stream>> {
    // SAFETY: the contract above.
    unsafe { streams.adopted(handle) }
}
