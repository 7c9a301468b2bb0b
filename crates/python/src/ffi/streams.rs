//! Streams that an application names by their handles.

use tierflow_device::{Device, Stream};

/// The stream of a handle that an application names.
///
/// Nothing can check that it is one. It is the contract of `stream=`, and of the protocols by which arrays name theirs,
/// that it is a stream of the device's primary context which outlives the call; the engine gives it no work after that.
pub(crate) fn adopt(device: &Device, handle: u64) -> tierflow_device::Result<Stream> {
    // SAFETY: the contract above. What is kept of it is only used when the handle is named again.
    unsafe { device.adopt_stream(handle) }
}

/// Whether a CUDA graph is being captured on the stream of a handle that an application names: see [`adopt`].
pub(crate) fn is_captured(device: &Device, handle: u64) -> tierflow_device::Result<bool> {
    // SAFETY: the contract of `adopt`.
    unsafe { device.is_captured(handle) }
}

/// Lets `stream` wait for the one of a handle that an application names: see [`adopt`].
pub(crate) fn wait_for(stream: &Stream, handle: u64) -> tierflow_device::Result<()> {
    // SAFETY: the contract of `adopt`.
    unsafe { stream.wait_for_foreign(handle) }
}
