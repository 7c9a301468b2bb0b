//! Bytes of the application's, by address.

use std::any::Any;
use std::sync::{Arc, LazyLock};

use tierflow_device::{Device, Memory, Place};

/// Where bytes lie, as the array that they are of says by its protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    address: u64,
    bytes: usize,
}

impl Span {
    /// # Safety
    /// As long as what the span is of is held, be it a view, a tensor or the array itself: these are initialised bytes of
    /// this process, or of a GPU that the array names.
    pub(crate) unsafe fn new(address: u64, bytes: usize) -> Self {
        Self { address, bytes }
    }

    pub(crate) fn address(self) -> u64 {
        self.address
    }

    pub(crate) fn bytes(self) -> usize {
        self.bytes
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        let end = |span: Self| span.address.saturating_add(span.bytes as u64);
        self.bytes > 0 && other.bytes > 0 && self.address < end(other) && other.address < end(self)
    }
}

/// The array's bytes, for the time of a call, or as long as a stream that the caller names has work on them.
pub(crate) fn memory(span: Span, device: &Device, place: Place) -> tierflow_device::Result<Memory> {
    static NO_OWNER: LazyLock<Arc<dyn Any + Send + Sync>> = LazyLock::new(|| Arc::new(()));
    let no_owner = Arc::clone(&NO_OWNER);
    // SAFETY: the promise of `Span::new`. The call that has the array as an argument waits for its copies, or has them from
    // the caller's stream, so neither the memory nor a loan of it outlives what `Given` and the caller keep.
    unsafe { Memory::from_raw(device, span.address, span.bytes, place, no_owner) }
}
