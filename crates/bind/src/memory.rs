//! The application's memory, by address, for the time of a call.
#![allow(unsafe_code, reason = "applications name their memory by addresses")]

use std::any::Any;
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::{Arc, LazyLock};

use tierflow_device::{Device, Memory, Place, Result};
use tierflow_engine::{Region, RegionMut};

/// Bytes by their address, as the application says.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    address: u64,
    bytes: usize,
}

impl Span {
    /// Names bytes by their address, which was exposed.
    ///
    /// # Safety
    /// As long as memory and regions of the span are used, these are initialised bytes of this process, or of the GPU whose memory
    /// they are said to be. Bytes that are written by a call are read and written by nothing else meanwhile. Other threads of the
    /// application may write to bytes that are read: they are only copied.
    #[must_use]
    pub unsafe fn new(address: u64, bytes: usize) -> Self {
        Self { address, bytes }
    }

    /// The address of the first byte.
    #[must_use]
    pub fn address(self) -> u64 {
        self.address
    }

    /// How many bytes there are.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// Returns true if both have a byte in common.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        let end = |span: Self| span.address.saturating_add(span.bytes as u64);
        self.bytes > 0 && other.bytes > 0 && self.address < end(other) && other.address < end(self)
    }

    /// The bytes as memory of a device, to be copied by its streams.
    ///
    /// # Errors
    /// Errors of the device, for what is no memory.
    pub fn memory(self, device: &Device, place: Place) -> Result<Memory> {
        static NO_OWNER: LazyLock<Arc<dyn Any + Send + Sync>> = LazyLock::new(|| Arc::new(()));
        let no_owner = Arc::clone(&NO_OWNER);
        // SAFETY: the promise of `new`, which lasts as long as this memory and its loans.
        unsafe { Memory::from_raw(device, self.address, self.bytes, place, no_owner) }
    }
}

/// Bytes that a call reads or writes.
#[derive(Debug)]
pub struct CallMemory {
    span: Span,
    /// If they are the device's.
    memory: Option<Memory>,
}

impl CallMemory {
    /// Host memory.
    #[must_use]
    pub fn on_host(span: Span) -> Self {
        Self { span, memory: None }
    }

    /// Memory of a GPU; none has no bytes there.
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

    /// The address, and how many bytes there are.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span
    }

    /// The same to be copied by a stream of `device`.
    ///
    /// # Errors
    /// As [`Span::memory`].
    pub fn lendable(&self, device: &Device) -> Result<Memory> {
        match &self.memory {
            Some(memory) => Ok(memory.clone()),
            None => self.span.memory(device, Place::Host),
        }
    }

    /// To be read.
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

    /// To be written.
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
