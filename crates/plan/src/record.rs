//! What is known of a version: its bytes, cut into extents, and where each of them lies.

use crate::command::{Difference, Piece, Place};
use crate::order::Key;
use crate::{Ticket, TierId, TransferId, Version};
use tierflow_lifecycle::State;

/// How a version lies on the tiers where versions lie [encoded](crate::ledger::Ledger::lies_encoded).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// As it is: it was written there.
    Whole,
    /// As a difference of so many bytes, to its base if there is one.
    Difference(Difference),
    /// Nowhere yet: a difference is on its way, to its base if there is one.
    Coming(Option<Version>),
}

impl Form {
    /// What it builds upon, or is to.
    pub(crate) fn base(self) -> Option<Version> {
        match self {
            Self::Difference(Difference { base, .. }) | Self::Coming(base) => base,
            Self::Whole => None,
        }
    }

    /// Whether the version lies so somewhere.
    pub(crate) fn is_there(self) -> bool {
        !matches!(self, Self::Coming(_))
    }
}

/// Where the bytes of one extent lie on one tier: one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replica {
    pub(crate) tier: TierId,
    pub(crate) state: State,
    /// Callers and transfers that read these bytes now.
    pub(crate) readers: u32,
    /// The transfer that writes these bytes, while one does.
    pub(crate) arriving: Option<TransferId>,
    /// First byte on the tier.
    pub(crate) offset: u64,
    /// Bytes there; another number than the extent's where it lies as a difference.
    pub(crate) size: u64,
    /// They could not be read.
    pub(crate) damaged: bool,
}

impl Replica {
    /// All bytes are there.
    pub(crate) fn is_readable(&self) -> bool {
        self.state.is_readable()
    }

    /// All bytes are there, as far as is known.
    pub(crate) fn is_sound(&self) -> bool {
        self.is_readable() && !self.damaged
    }

    /// All bytes are there, and are not being read.
    pub(crate) fn is_idle(&self) -> bool {
        self.readers == 0 && self.is_readable()
    }
}

/// Whether the bytes of a replica are on a lower tier, too, or on their way there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WriteBack {
    /// A lower tier has them, or there is none.
    Clean,
    /// They are to be written down when the plan finds that worth while.
    Queued,
    /// A transfer takes them down.
    InFlight,
    /// They could not be read: not tried again before the application has read them. Or what lies below is damaged, and in
    /// their place.
    Failed,
}

/// A run of a version's bytes that moves and is given up as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First byte within the version.
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// The fastest first.
    pub(crate) replicas: Vec<Replica>,
}

impl Extent {
    #[cfg(any(test, feature = "check"))]
    pub(crate) fn end(&self) -> u64 {
        self.start + self.len
    }

    pub(crate) fn on(&self, tier: TierId) -> Option<&Replica> {
        self.replicas.iter().find(|replica| replica.tier == tier)
    }

    pub(crate) fn on_mut(&mut self, tier: TierId) -> Option<&mut Replica> {
        let mut replicas = self.replicas.iter_mut();
        replicas.find(|replica| replica.tier == tier)
    }

    /// The fastest replica to be read: a sound one if there is one.
    pub(crate) fn fastest(&self) -> Option<&Replica> {
        first_sound(self.replicas.iter())
    }

    /// Whether a replica was written to a tier below `tier`.
    pub(crate) fn has_below(&self, tier: TierId) -> bool {
        let mut replicas = self.replicas.iter();
        replicas.any(|replica| replica.tier > tier && replica.is_readable())
    }

    /// Whether a tier below `tier` holds the bytes, so that they may go from there.
    pub(crate) fn is_sound_below(&self, tier: TierId) -> bool {
        let mut replicas = self.replicas.iter();
        replicas.any(|replica| replica.tier > tier && replica.is_sound())
    }

    /// Whether a tier above `tier` holds the bytes, so that they may go from there.
    pub(crate) fn is_sound_above(&self, tier: TierId) -> bool {
        let mut replicas = self.replicas.iter();
        replicas.any(|replica| replica.tier < tier && replica.is_sound())
    }

    /// The bytes are not being read or written anywhere.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.replicas.iter().all(Replica::is_idle)
    }

    pub(crate) fn write_back(&self, tier: TierId, last: TierId, unreadable: bool) -> WriteBack {
        let below = || self.replicas.iter().filter(|replica| replica.tier > tier);
        if tier == last || below().any(Replica::is_sound) {
            WriteBack::Clean
        } else if below().any(|replica| !replica.is_readable()) {
            WriteBack::InFlight
        } else if unreadable || below().next().is_some() {
            WriteBack::Failed
        } else {
            WriteBack::Queued
        }
    }

    /// Where the replica on `tier` lies.
    pub(crate) fn piece(&self, replica: &Replica, reserved: u64) -> Piece {
        Piece {
            start: self.start,
            place: Place {
                tier: replica.tier,
                offset: replica.offset,
                size: replica.size,
                reserved,
            },
        }
    }

    /// Whether `next` follows this extent on the same tiers, byte for byte, and both are at rest.
    pub(crate) fn continues_in(&self, next: &Self) -> bool {
        let pairs = self.replicas.iter().zip(&next.replicas);
        self.replicas.len() == next.replicas.len()
            && self.is_at_rest()
            && next.is_at_rest()
            && pairs.into_iter().all(|(a, b)| {
                let (behind, before) = (a.offset + a.size, b.offset);
                (a.tier, a.state, a.damaged, behind) == (b.tier, b.state, b.damaged, before)
                    && a.size == self.len
            })
    }
}

/// The first sound one of these replicas; of damaged ones alone, the first.
pub(crate) fn first_sound<'r>(
    replicas: impl Iterator<Item = &'r Replica> + Clone,
) -> Option<&'r Replica> {
    let mut readable = replicas.filter(|replica| replica.is_readable());
    readable
        .clone()
        .find(|replica| !replica.damaged)
        .or_else(|| readable.next())
}

/// One version.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) size: u64,
    pub(crate) key: Key,
    /// When it was taken in, and when it was read last, in ticks.
    pub(crate) written: u64,
    pub(crate) read: Option<u64>,
    pub(crate) reads: u32,
    /// After how many bytes read its last reading began.
    pub(crate) reading: Option<u64>,
    /// When it was read last, versions were read again soon.
    pub(crate) returns_soon: bool,
    /// In ascending order, without holes. None before its room is granted.
    pub(crate) extents: Vec<Extent>,
    /// Callers that read it now.
    pub(crate) readers: u32,
    /// Restores that wait for bytes under way.
    pub(crate) waiting: Vec<Ticket>,
    /// It was taken in: all of its bytes are there. Until then a caller writes them, or waits for room.
    pub(crate) is_taken_in: bool,
    /// It is written in place, for as long as the application likes.
    pub(crate) produced: bool,
    /// Consumed and discardable, or dropped: its replicas go as soon as they are not used.
    pub(crate) discarded: bool,
    /// Its flush or its prefetch failed at the source: not tried again on the plan's own account.
    pub(crate) unreadable: bool,
    /// An earlier run wrote it: once it is gone, its number is free.
    pub(crate) adopted: bool,
    /// How it lies on the tiers where versions lie [encoded](crate::ledger::Ledger::lies_encoded), if it does.
    pub(crate) form: Option<Form>,
    /// Versions whose differences build upon this one's, and those on their way to, in no particular order.
    pub(crate) dependents: Vec<Version>,
}

impl Record {
    /// The application may ask for it: it was accepted, and not discarded.
    pub(crate) fn is_held(&self) -> bool {
        !self.discarded && (self.is_taken_in || !self.produced)
    }

    /// Whether its bytes are of use on a tier where versions lie encoded, or on another: to restore it, or another version that
    /// builds upon it.
    pub(crate) fn is_needed(&self, lies_encoded: bool) -> bool {
        !self.discarded || (!self.dependents.is_empty() && lies_encoded)
    }

    /// Bytes that a complete replica of an extent of `len` bytes has on a tier where versions lie encoded, or on another.
    pub(crate) fn size_on(&self, lies_encoded: bool, len: u64) -> u64 {
        match self.form {
            Some(Form::Difference(difference)) if lies_encoded => difference.bytes,
            _ => len,
        }
    }

    /// The slowest of the fastest tiers that its bytes can be read from; `None` if some cannot be read anywhere.
    pub(crate) fn fastest(&self) -> Option<TierId> {
        let fastest = self.extents.iter().map(Extent::fastest);
        let tiers = fastest.map(|replica| Some(replica?.tier));
        tiers.reduce(|slowest, tier| Some(slowest?.max(tier?)))?
    }

    /// Whether all of its bytes can be read on `tier` or lower.
    pub(crate) fn has_reached(&self, tier: TierId) -> bool {
        let reached = |extent: &Extent| {
            let mut replicas = extent.replicas.iter();
            replicas.any(|replica| replica.tier >= tier && replica.is_readable())
        };
        !self.extents.is_empty() && self.extents.iter().all(reached)
    }

    /// A caller begins to read these extents on these tiers, or has ended.
    pub(crate) fn read(&mut self, parts: &[(u64, TierId)], begin: bool) {
        let step = |count: u32| match begin {
            true => count + 1,
            false => count.saturating_sub(1),
        };
        self.readers = step(self.readers);
        for &(start, tier) in parts {
            let at = self.index_of(start);
            let replica = at.and_then(|at| self.extents[at].on_mut(tier));
            if let Some(replica) = replica {
                replica.readers = step(replica.readers);
            }
        }
    }

    /// Whether nothing of it lies on `tier`, nor is on its way there.
    pub(crate) fn is_off(&self, tier: TierId) -> bool {
        self.extents.iter().all(|extent| extent.on(tier).is_none())
    }

    pub(crate) fn index_of(&self, start: u64) -> Option<usize> {
        let found = self.extents.binary_search_by_key(&start, |e| e.start);
        found.ok()
    }
}
