//! Memory that the application names by its address, for the time of a call.
#![allow(unsafe_code, reason = "applications name their memory by addresses")]

use std::any::Any;
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::{Arc, LazyLock};

use tierflow_device::{Device, Memory, Place, Result};
use tierflow_engine::{Region, RegionMut};

/// Bytes that the application named by their address.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    address: u64,
    bytes: usize,
}

impl Span {
    /// Names bytes by their address, whose provenance was exposed.
    ///
    /// # Safety
    /// As long as memory and regions of the span are used, the bytes are initialised and belong to this process, or to the GPU that the
    /// caller passes to [`Self::memory`]. If a call writes the bytes, nothing else reads or writes them meanwhile. If a call reads them, other
    /// threads of the application may write to them: they are only copied.
    #[must_use]
    pub unsafe fn new(address: u64, bytes: usize) -> Self {
        Self { address, bytes }
    }

    /// Returns the address of the first byte.
    #[must_use]
    pub fn address(self) -> u64 {
        self.address
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// Returns true if the spans have a byte in common.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        let end = |span: Self| span.address.saturating_add(span.bytes as u64);
        self.bytes > 0 && other.bytes > 0 && self.address < end(other) && other.address < end(self)
    }

    /// Returns the bytes as memory of `device`, whose streams can copy it.
    ///
    /// # Errors
    /// The errors of the device, such as for an address without memory.
    pub fn memory(self, device: &Device, place: Place) -> Result<Memory> {
        static NO_OWNER: LazyLock<Arc<dyn Any + Send + Sync>> = LazyLock::new(|| Arc::new(()));
        let no_owner = Arc::clone(&NO_OWNER);
        // SAFETY: the promise of `new`, which lasts as long as this memory and its loans.
        unsafe { Memory::from_raw(device, self.address, self.bytes, place, no_owner) }
    }
}

/// Memory that a call reads or writes.
#[derive(Debug)]
pub struct CallMemory {
    span: Span,
    /// The device's memory; `None` for host memory, and for no bytes.
    memory: Option<Memory>,
}

impl CallMemory {
    /// Makes host memory of a span.
    #[must_use]
    pub fn on_host(span: Span) -> Self {
        Self { span, memory: None }
    }

    /// Makes memory of a GPU of a span. A span without bytes becomes host memory.
    ///
    /// # Errors
    /// As [`Span::memory`].
    pub fn on_device(span: Span, device: &Device) -> Result<Self> {
        let memory = (span.bytes > 0).then(|| span.memory(device, Place::Device));
        Ok(Self {
            span,
            memory: memory.transpose()?,
        })
    }

    /// Returns true for memory of a GPU.
    #[must_use]
    pub fn is_on_device(&self) -> bool {
        self.memory.is_some()
    }

    /// Returns the span of the memory.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span
    }

    /// Returns the memory for copies by streams of `device`.
    ///
    /// # Errors
    /// As [`Span::memory`].
    pub fn lendable(&self, device: &Device) -> Result<Memory> {
        match &self.memory {
            Some(memory) => Ok(memory.clone()),
            None => self.span.memory(device, Place::Host),
        }
    }

    /// Returns the memory as a region to read.
    #[must_use]
    pub fn region(&self) -> Region<'_> {
        if let Some(memory) = &self.memory {
            return Region::from(memory);
        }
        let pointer = std::ptr::with_exposed_provenance(self.span.address as usize);
        Region::Bytes(match self.span.bytes {
            // Memory without bytes may have no address.
            0 => &[],
            // SAFETY: the promise of `Span::new`.
            bytes => unsafe { from_raw_parts(pointer, bytes) },
        })
    }

    /// Returns the memory as a region to write.
    pub fn region_mut(&mut self) -> RegionMut<'_> {
        if let Some(memory) = &self.memory {
            return RegionMut::from(memory);
        }
        let pointer = std::ptr::with_exposed_provenance_mut(self.span.address as usize);
        RegionMut::Bytes(match self.span.bytes {
            0 => &mut [],
            // SAFETY: the promise of `Span::new`.
            bytes => unsafe { from_raw_parts_mut(pointer, bytes) },
        })
    }
}
