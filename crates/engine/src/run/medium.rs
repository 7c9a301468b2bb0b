//! What a tier is made of.

use super::capacity::PeerMemory;
use super::direct::Direct;
use super::kept::DurableTier;
use crate::kind::Kind;
use crate::plan::Piece;
use crate::{Error, Result};
use std::ops::Range;
use std::sync::Arc;
use tierflow_device::{ReadLoan, WriteLoan};
use tierflow_store::Storage;
use tierflow_tier_alloc::{DeviceArena, Gate, HostArena, Pass, Transferring};

/// A tier: its kind and its medium.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) kind: Kind,
    pub(crate) medium: Medium,
}

/// Where a tier's bytes lie.
#[derive(Debug)]
pub(crate) enum Medium {
    Device(DeviceArena),
    /// Memory of other devices that this one reaches.
    Peers(Arc<dyn PeerMemory>),
    Host(HostArena),
    /// And the ways between it and a device that are not through the host.
    Storage(Arc<dyn Storage>, Option<Arc<Direct>>),
    DurableTier(Arc<DurableTier>),
}

impl Medium {
    /// The storage that is read and written in blocks.
    pub(super) fn storage(&self) -> Option<&Arc<dyn Storage>> {
        match self {
            Self::Storage(storage, _) => Some(storage),
            Self::Device(_) | Self::Peers(_) | Self::Host(_) | Self::DurableTier(_) => None,
        }
    }

    /// The ways between storage and a device, and where on it they lead.
    pub(crate) fn direct(&self) -> Option<&Arc<Direct>> {
        match self {
            Self::Storage(_, direct) => direct.as_ref(),
            Self::Device(_) | Self::Peers(_) | Self::Host(_) | Self::DurableTier(_) => None,
        }
    }

    /// The tier that keeps copies under their versions' numbers.
    pub(crate) fn kept(&self) -> Option<&DurableTier> {
        match self {
            Self::DurableTier(kept) => Some(kept),
            Self::Device(_) | Self::Peers(_) | Self::Host(_) | Self::Storage(..) => None,
        }
    }

    /// Bytes of an arena; storage has no size of its own.
    pub(crate) fn capacity(&self) -> Option<u64> {
        match self {
            Self::Device(arena) => Some(arena.capacity() as u64),
            Self::Peers(cache) => Some(cache.capacity() as u64),
            Self::Host(arena) => Some(arena.capacity() as u64),
            Self::Storage(..) | Self::DurableTier(_) => None,
        }
    }

    /// What holds the medium's own background work back while a caller copies.
    pub(super) fn gate(&self) -> Option<&Gate> {
        match self {
            Self::Host(arena) => Some(arena.gate()),
            Self::Device(_) | Self::Peers(_) | Self::Storage(..) | Self::DurableTier(_) => None,
        }
    }

    /// What tells a medium that a flush into these bytes is under way.
    pub(super) fn flushed_into(&self, range: Range<u64>) -> Option<Transferring<'_>> {
        match self {
            Self::Host(arena) => Some(arena.transferring(to_usize(range))),
            Self::Device(_) | Self::Peers(_) | Self::Storage(..) | Self::DurableTier(_) => None,
        }
    }

    /// What tells a medium that a prefetch out of it is under way.
    pub(super) fn fetched_from(&self) -> Option<Pass<'_>> {
        self.gate().map(Gate::enter_transfer)
    }

    pub(super) fn is_memory(&self) -> bool {
        matches!(self, Self::Device(_) | Self::Peers(_) | Self::Host(_))
    }

    /// Lends bytes of an arena for reading.
    pub(crate) fn lend(&self, range: Range<u64>) -> Result<ReadLoan> {
        let range = to_usize(range);
        match self {
            Self::Device(arena) => Ok(arena.lend(range)?),
            Self::Peers(cache) => Ok(cache.memory().lend(range)?),
            Self::Host(arena) => Ok(arena.lend(range)?),
            Self::Storage(..) | Self::DurableTier(_) => Err(not_memory()),
        }
    }

    /// Lends bytes of an arena for writing; waits until they are mapped.
    pub(crate) fn lend_mut(&self, range: Range<u64>) -> Result<WriteLoan> {
        let range = to_usize(range);
        match self {
            Self::Device(arena) => Ok(arena.lend_mut(range)?),
            Self::Peers(cache) => Ok(cache.memory().lend_mut(range)?),
            Self::Host(arena) => Ok(arena.lend_mut(range)?),
            Self::Storage(..) | Self::DurableTier(_) => Err(not_memory()),
        }
    }
}

/// Arena offsets come from tables of the arena's own size, which is a `usize`.
pub(super) fn to_usize(range: Range<u64>) -> Range<usize> {
    let clamp = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    clamp(range.start)..clamp(range.end)
}

/// [`Medium::is_memory`] tells arenas and storage apart before anything is lent.
fn not_memory() -> Error {
    Error::Device(tierflow_device::Invalid::NotHostAccessible.into())
}

/// What a piece lies on: the plan knows the tiers that there are.
pub(super) fn medium<'a>(tiers: &'a [Level], piece: &Piece) -> &'a Medium {
    &tiers[piece.place.tier.0].medium
}
