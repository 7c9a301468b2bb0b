//! Streams that an application names by their handles.
//!
//! Nothing can check that a number is a stream's handle. By the contract of `stream=`, and of the protocols by which arrays name their
//! streams, the stream is of the device's primary context and outlives the call. The engine gives it no work after the call.

use std::sync::Arc;

use tierflow_bind::{DeviceStreams, Order, Outcome};
use tierflow_device::Stream;

/// Orders a call after the work given to the stream with this handle.
pub(crate) fn after(order: &mut Order<'_>, handle: u64) -> Outcome {
    // SAFETY: the contract above.
    unsafe { order.after(handle) }
}

/// Returns the stream with this handle.
pub(crate) fn adopted(
    streams: &DeviceStreams,
    handle: u64,
) -> tierflow_device::Result<Arc<Stream>> {
    // SAFETY: the contract above.
    unsafe { streams.adopted(handle) }
}
