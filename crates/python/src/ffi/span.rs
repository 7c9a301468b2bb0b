//! Bytes of the application's, by address, and what the engine is handed for them.

use std::any::Any;
use std::sync::{Arc, LazyLock};

use tierflow_device::{Device, Memory, Place, Stream};
use tierflow_engine::{Region, RegionMut};

use super::buffer::View;
use super::dlpack::Managed;

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

/// What keeps an array's bytes where they are, beside the array itself, which is the caller's argument.
pub(crate) enum Hold {
    Nothing,
    View(#[expect(dead_code, reason = "kept for its drop")] View),
    Managed(#[expect(dead_code, reason = "kept for its drop")] Managed),
}

/// The bytes of one argument, for the time of a call that is attached to the interpreter at both its ends.
pub(crate) struct Given {
    span: Span,
    /// If they are the device's.
    memory: Option<Memory>,
    #[expect(dead_code, reason = "kept for its drop")]
    hold: Hold,
}

impl Given {
    /// Host memory.
    pub(crate) fn on_host(span: Span, hold: Hold) -> Self {
        let memory = None;
        Self { span, memory, hold }
    }

    /// Memory of `device`, whose the array says that it is.
    ///
    /// # Errors
    /// [`Invalid::Address`](tierflow_device::Invalid) for what is no memory.
    pub(crate) fn on_device(
        span: Span,
        device: &Device,
        hold: Hold,
    ) -> tierflow_device::Result<Self> {
        let memory = Some(memory(span, device, Place::Device)?);
        Ok(Self { span, memory, hold })
    }

    pub(crate) fn is_on_device(&self) -> bool {
        self.memory.is_some()
    }

    /// Memory to be copied by a stream of `device`.
    ///
    /// # Errors
    /// As [`Given::on_device`].
    pub(crate) fn lendable(&self, device: &Device) -> tierflow_device::Result<Memory> {
        match &self.memory {
            Some(memory) => Ok(memory.clone()),
            None => memory(self.span, device, Place::Host),
        }
    }

    pub(crate) fn span(&self) -> Span {
        self.span
    }

    /// To be read.
    pub(crate) fn region(&self) -> Region<'_> {
        if let Some(memory) = &self.memory {
            return Region::from(memory);
        }
        let pointer = std::ptr::with_exposed_provenance(self.span.address as usize);
        Region::Bytes(match self.span.bytes {
            // An empty array may have no address.
            0 => &[],
            // SAFETY: the promise of `Span::new`; what the span is of is held as long as `self`. Other threads of the
            // application may write to its array meanwhile; the engine only copies the bytes.
            bytes => unsafe { std::slice::from_raw_parts(pointer, bytes) },
        })
    }

    /// To be written.
    pub(crate) fn region_mut(&mut self) -> RegionMut<'_> {
        if let Some(memory) = &self.memory {
            return RegionMut::from(memory);
        }
        let pointer = std::ptr::with_exposed_provenance_mut(self.span.address as usize);
        RegionMut::Bytes(match self.span.bytes {
            0 => &mut [],
            // SAFETY: as for `region`. The array said that it may be written, and no other argument of the call overlaps
            // it, which `Arrays` sees to.
            bytes => unsafe { std::slice::from_raw_parts_mut(pointer, bytes) },
        })
    }
}

/// The array's bytes, for the time of a call, or as long as a stream that the caller names has work on them.
pub(crate) fn memory(span: Span, device: &Device, place: Place) -> tierflow_device::Result<Memory> {
    static NOBODY: LazyLock<Arc<dyn Any + Send + Sync>> = LazyLock::new(|| Arc::new(()));
    let nobody = Arc::clone(&NOBODY);
    // SAFETY: the promise of `Span::new`. The call that has the array as an argument waits for its copies, or has them from
    // the caller's stream, so neither the memory nor a loan of it outlives what `Given` and the caller keep.
    unsafe { Memory::from_raw(device, span.address, span.bytes, place, nobody) }
}

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
