//! What a tier is made of.

#[cfg(not(feature = "peers"))]
use super::absent::PeerCache;
use super::kept::Kept;
use crate::plan::{Piece, Place};
use crate::{Error, Result};
use std::ops::Range;
use std::sync::Arc;
use tierflow_device::{ReadLoan, Stream, WriteLoan};
#[cfg(feature = "peers")]
use tierflow_peers::PeerCache;
use tierflow_store::Storage;
use tierflow_tier_alloc::{DeviceArena, Gate, HostArena, Pass, Transferring};

/// A tier: its name in reports and its medium.
#[derive(Debug)]
pub(crate) struct Tier {
    pub(crate) name: &'static str,
    pub(crate) media: Media,
}

/// Where a tier's bytes lie.
#[derive(Debug)]
pub(crate) enum Media {
    Device(DeviceArena),
    /// Memory of other devices that this one reaches.
    #[cfg_attr(not(feature = "peers"), expect(dead_code))]
    Peers(Arc<PeerCache>),
    Host(HostArena),
    Storage(Arc<dyn Storage>),
    Kept(Arc<Kept>),
}

/// An end of a copy, for which it failed.
pub(super) enum End {
    Source,
    Target,
}

/// How a copy reaches the bytes of one place.
pub(crate) enum Reach<'a> {
    /// Through loans of an arena's memory.
    Memory(&'a Media),
    /// Through reads and writes.
    Storage(&'a dyn Storage),
    /// As a whole, by its version.
    Kept,
}

impl Media {
    pub(crate) fn reach(&self) -> Reach<'_> {
        match self {
            Self::Device(_) | Self::Peers(_) | Self::Host(_) => Reach::Memory(self),
            Self::Storage(storage) => Reach::Storage(storage.as_ref()),
            Self::Kept(_) => Reach::Kept,
        }
    }

    /// The tier that keeps copies under their versions' numbers.
    pub(crate) fn kept(&self) -> Option<&Kept> {
        match self {
            Self::Kept(kept) => Some(kept),
            Self::Device(_) | Self::Peers(_) | Self::Host(_) | Self::Storage(_) => None,
        }
    }

    /// Bytes of an arena; storage has no size of its own.
    pub(crate) fn capacity(&self) -> Option<u64> {
        match self {
            Self::Device(arena) => Some(arena.capacity() as u64),
            Self::Peers(cache) => Some(cache.capacity() as u64),
            Self::Host(arena) => Some(arena.capacity() as u64),
            Self::Storage(_) | Self::Kept(_) => None,
        }
    }

    /// What holds the medium's own background work back while a caller copies.
    pub(super) fn gate(&self) -> Option<&Gate> {
        match self {
            Self::Host(arena) => Some(arena.gate()),
            Self::Device(_) | Self::Peers(_) | Self::Storage(_) | Self::Kept(_) => None,
        }
    }

    /// What tells a medium that a flush into these bytes is under way.
    pub(super) fn flushed_into(&self, range: Range<u64>) -> Option<Transferring<'_>> {
        match self {
            Self::Host(arena) => Some(arena.transferring(to_usize(range))),
            Self::Device(_) | Self::Peers(_) | Self::Storage(_) | Self::Kept(_) => None,
        }
    }

    /// What tells a medium that a prefetch out of it is under way.
    pub(super) fn fetched_from(&self) -> Option<Pass<'_>> {
        self.gate().map(Gate::enter_transfer)
    }

    /// Copies bytes from one arena to another. A host arena knows the fastest way in and out of it.
    pub(super) fn copy(
        stream: &Stream,
        (source, from): (&Self, Range<u64>),
        (target, to): (&Self, Range<u64>),
    ) -> std::result::Result<(), (End, Error)> {
        let at_source = |error: Error| (End::Source, error);
        let at_target = |error: Error| (End::Target, error);
        match (source, target) {
            (_, Self::Host(arena)) => {
                let source = source.lend(from).map_err(at_source)?;
                let copied = arena.copy_in(stream, source, to_usize(to).start);
                copied.map_err(|error| at_target(error.into()))
            }
            (Self::Host(arena), _) => {
                let target = target.lend_mut(to).map_err(at_target)?;
                let copied = arena.copy_out(stream, to_usize(from).start, target);
                copied.map_err(|error| at_source(error.into()))
            }
            _ => {
                let source = source.lend(from).map_err(at_source)?;
                let target = target.lend_mut(to).map_err(at_target)?;
                let copied = stream.copy_all([(source, target)]);
                copied.map_err(|error| at_target(error.into()))
            }
        }
    }

    /// Lends bytes of an arena for reading.
    pub(crate) fn lend(&self, range: Range<u64>) -> Result<ReadLoan> {
        let range = to_usize(range);
        match self {
            Self::Device(arena) => Ok(arena.lend(range)?),
            Self::Peers(cache) => Ok(cache.memory().lend(range)?),
            Self::Host(arena) => Ok(arena.lend(range)?),
            Self::Storage(_) | Self::Kept(_) => Err(not_memory()),
        }
    }

    /// Lends bytes of an arena for writing; waits until they are mapped.
    pub(crate) fn lend_mut(&self, range: Range<u64>) -> Result<WriteLoan> {
        let range = to_usize(range);
        match self {
            Self::Device(arena) => Ok(arena.lend_mut(range)?),
            Self::Peers(cache) => Ok(cache.memory().lend_mut(range)?),
            Self::Host(arena) => Ok(arena.lend_mut(range)?),
            Self::Storage(_) | Self::Kept(_) => Err(not_memory()),
        }
    }
}

/// Arena offsets come from tables of the arena's own size, which is a `usize`.
fn to_usize(range: Range<u64>) -> Range<usize> {
    let clamp = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    clamp(range.start)..clamp(range.end)
}

/// Unreachable by construction: [`Media::reach`] tells arenas and storage apart.
fn not_memory() -> Error {
    Error::Device(tierflow_device::Invalid::NotHostAccessible.into())
}

/// What a piece lies on: the plan knows the tiers that there are.
pub(super) fn media<'a>(tiers: &'a [Tier], piece: &Piece) -> &'a Media {
    &tiers[piece.place.tier.0].media
}

/// All bytes of a piece.
pub(super) fn whole(piece: &Piece) -> Range<u64> {
    part(&piece.place, 0, piece.place.size)
}

/// The bytes of a checkpoint at its place, from `start` on, at most `length` of them.
pub(super) fn part(place: &Place, start: u64, length: u64) -> Range<u64> {
    let from = place.offset + start;
    from..(from + length)
}
