//! The media of an engine's tiers.

use super::capacity::PeerMemory;
use super::durable_tier::DurableTier;
use crate::blocked::{Cause, spend_on};
use crate::kind::Kind;
use crate::plan::Piece;
use crate::{Error, Result};
use std::ops::Range;
use std::sync::Arc;
use tierflow_device::{ReadLoan, WriteLoan};
use tierflow_store::Storage;
use tierflow_tier_alloc::{DeviceArena, Gate, HostArena};
use tierflow_transfer::{Medium as Bytes, MediumKind, ScratchMedium, Straight};

/// A tier: its kind and its medium.
#[derive(Debug)]
pub(crate) struct TierState {
    pub(crate) kind: Kind,
    pub(crate) medium: Medium,
}

/// The medium of a tier.
#[derive(Debug)]
pub(crate) enum Medium {
    Device(DeviceArena),
    /// Memory of other devices that this one reaches.
    Peers(Arc<dyn PeerMemory>),
    Host(HostArena),
    Storage(ScratchMedium),
    DurableTier(Arc<DurableTier>),
}

impl Medium {
    /// Returns the medium as an end of copies uses it.
    pub(crate) fn bytes(&self) -> &dyn Bytes {
        match self {
            Self::Device(arena) => arena,
            Self::Peers(memory) => memory.medium(),
            Self::Host(arena) => arena,
            Self::Storage(scratch) => scratch,
            Self::DurableTier(durable) => &**durable,
        }
    }

    /// Returns the storage that is read and written in blocks.
    pub(crate) fn storage(&self) -> Option<&Arc<dyn Storage>> {
        self.bytes().scratch().map(ScratchMedium::storage)
    }

    /// Returns the tier that keeps copies under their versions' numbers.
    pub(crate) fn durable(&self) -> Option<&DurableTier> {
        match self {
            Self::DurableTier(durable) => Some(durable),
            _ => None,
        }
    }

    /// Returns the way between storage and a device past the host's memory.
    pub(crate) fn straight(&self) -> Option<&Arc<Straight>> {
        self.bytes().scratch()?.straight()
    }

    /// Returns the bytes of an arena; `None` for storage, which has no fixed size.
    pub(crate) fn capacity(&self) -> Option<u64> {
        self.bytes().capacity()
    }

    /// Returns the gate that holds the medium's own background work back while a caller copies.
    pub(super) fn gate(&self) -> Option<&Gate> {
        self.bytes().gate()
    }

    pub(crate) fn is_memory(&self) -> bool {
        self.bytes().kind().is_memory()
    }

    /// Lends bytes of an arena for reading. Waits until they are mapped.
    pub(crate) fn lend(&self, range: Range<u64>) -> Result<ReadLoan> {
        let lent = self.once_mapped(range.end, || self.bytes().lend(range));
        Ok(lent.ok_or(NOT_MEMORY)??)
    }

    /// Lends bytes of an arena for writing. Waits until they are mapped.
    pub(crate) fn lend_mut(&self, range: Range<u64>) -> Result<WriteLoan> {
        let lent = self.once_mapped(range.end, || self.bytes().lend_mut(range));
        Ok(lent.ok_or(NOT_MEMORY)??)
    }

    /// Lends bytes of an arena for reading, if they are mapped.
    pub(super) fn lend_mapped(&self, range: Range<u64>) -> Option<ReadLoan> {
        let is_mapped = self.is_mapped(range.end);
        is_mapped.then(|| self.bytes().lend(range))??.ok()
    }

    /// Lends bytes of an arena for writing, if they are mapped.
    pub(super) fn lend_mapped_mut(&self, range: Range<u64>) -> Option<WriteLoan> {
        let is_mapped = self.is_mapped(range.end);
        is_mapped.then(|| self.bytes().lend_mut(range))??.ok()
    }

    /// Calls `lend`, and charges its time to [`Cause::Growth`] if the bytes before `end` are not mapped yet.
    pub(super) fn once_mapped<T>(&self, end: u64, lend: impl FnOnce() -> T) -> T {
        match self.is_mapped(end) {
            true => lend(),
            false => spend_on(Cause::Growth, lend),
        }
    }

    /// Returns true if the bytes before `end` are mapped.
    fn is_mapped(&self, end: u64) -> bool {
        match self {
            Self::Device(arena) => arena.usable() as u64 >= end,
            Self::Host(arena) => arena.usable() as u64 >= end,
            _ => true,
        }
    }
}

/// The error of a loan that was asked of storage.
const NOT_MEMORY: Error = Error::Internal {
    what: "memory of a tier that is none",
};

/// A durable tier lends no bytes: records are copied as a whole, through [`Medium::durable`].
impl Bytes for DurableTier {
    fn kind(&self) -> MediumKind {
        MediumKind::Directory
    }
}

/// Returns the medium of a piece: the plan names only tiers that exist.
pub(super) fn medium<'a>(tiers: &'a [TierState], piece: &Piece) -> &'a Medium {
    &tiers[piece.place.tier.0].medium
}
