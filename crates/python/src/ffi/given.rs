//! Arguments of a call, and what the engine is handed for them.

use tierflow_device::{Device, Memory, Place};
use tierflow_engine::{Region, RegionMut};

use super::dlpack::Managed;
use super::span::{Span, memory};
use super::view::View;
use crate::dtype::ArrayType;

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
    /// What its bytes are, if that is known.
    array: Option<ArrayType>,
    #[expect(dead_code, reason = "kept for its drop")]
    hold: Hold,
}

impl Given {
    /// Host memory.
    pub(crate) fn on_host(span: Span, hold: Hold) -> Self {
        Self {
            span,
            memory: None,
            array: None,
            hold,
        }
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
        Ok(Self {
            memory: Some(memory(span, device, Place::Device)?),
            ..Self::on_host(span, hold)
        })
    }

    /// The same, of which it is known what its bytes are.
    pub(crate) fn typed(self, array: Option<ArrayType>) -> Self {
        Self { array, ..self }
    }

    /// What its bytes are, if that is known.
    pub(crate) fn array(&self) -> Option<&ArrayType> {
        self.array.as_ref()
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
        let pointer = std::ptr::with_exposed_provenance(self.span.address() as usize);
        Region::Bytes(match self.span.bytes() {
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
        let pointer = std::ptr::with_exposed_provenance_mut(self.span.address() as usize);
        RegionMut::Bytes(match self.span.bytes() {
            0 => &mut [],
            // SAFETY: as for `region`. The array said that it may be written, and no other argument of the call overlaps
            // it, which `Arrays` sees to.
            bytes => unsafe { std::slice::from_raw_parts_mut(pointer, bytes) },
        })
    }
}
