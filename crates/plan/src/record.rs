//! The record of a version: its bytes, cut into extents, and the places of each extent.

use crate::command::Difference;
use crate::order::Key;
use crate::reuse::{Reuse, UseSoFar};
use crate::{Ticket, TierId, TransferId, Version};
use smallvec::SmallVec;
use tierflow_lifecycle::{Event as Move, State};

/// The form of a version on the tiers where versions lie [encoded](crate::ledger::Ledger::lies_encoded).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StoredForm {
    /// Not encoded: written there as it is.
    Whole,
    /// A difference, to its base if there is one.
    Difference(Difference),
    /// A difference on its way, to its base if there is one. Nothing is there yet.
    Coming(Option<Version>),
}

impl StoredForm {
    /// Returns the version that it builds upon, or will.
    pub(crate) fn base(self) -> Option<Version> {
        match self {
            Self::Difference(Difference { base, .. }) | Self::Coming(base) => base,
            Self::Whole => None,
        }
    }

    /// Returns true if some tier has the version in this form.
    pub(crate) fn is_there(self) -> bool {
        !matches!(self, Self::Coming(_))
    }
}

/// The bytes of one extent on one tier: one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replica {
    pub(crate) tier: TierId,
    pub(crate) state: State,
    /// Callers and transfers that read the replica now.
    pub(crate) readers: u32,
    /// The transfer that fills the replica, while there is one.
    pub(crate) arriving: Option<TransferId>,
    /// First byte on the tier.
    pub(crate) offset: u64,
    /// Bytes of the run. Differs from the extent's length if the run is a difference.
    pub(crate) size: u64,
    /// True if a read of the replica failed.
    pub(crate) damaged: bool,
}

impl Replica {
    /// A replica whose bytes begin to come, by no transfer so far.
    pub(crate) fn new(tier: TierId, began: Move, offset: u64, size: u64) -> Self {
        let mut replica = Self {
            tier,
            state: State::Init,
            readers: 0,
            arriving: None,
            offset,
            size,
            damaged: false,
        };
        replica.advance(began);
        replica
    }

    /// Makes a move of the life cycle.
    pub(crate) fn advance(&mut self, step: Move) {
        match self.state.on(step) {
            Ok(next) => self.state = next,
            Err(illegal) => debug_assert!(false, "{illegal}"),
        }
    }

    /// Makes the last moves of a replica that is given up. `has_below`: a lower tier has the bytes, too.
    pub(crate) fn advance_to_end(&mut self, has_below: bool) {
        match self.state {
            State::ReadComplete if has_below => self.advance(Move::Unpinned),
            State::WriteComplete | State::ReadComplete => self.advance(Move::Consumed),
            _ => {}
        }
        self.advance(Move::Evicted);
    }

    /// Returns true if all bytes are there.
    pub(crate) fn is_readable(&self) -> bool {
        self.state.is_readable()
    }

    /// Returns true if all bytes are there, as far as is known.
    pub(crate) fn is_sound(&self) -> bool {
        self.is_readable() && !self.damaged
    }

    /// Returns true if all bytes are there and are not being read.
    pub(crate) fn is_idle(&self) -> bool {
        self.readers == 0 && self.is_readable()
    }
}

/// The state of a replica's way down to a lower tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WriteBack {
    /// A lower tier has the bytes, or there is no lower tier.
    Clean,
    /// The bytes are written down when the plan finds it worth while.
    Queued,
    /// A transfer takes the bytes down.
    InFlight,
    /// A read of the bytes failed: not tried again before the application has read them. Or a damaged replica on a
    /// lower tier has their place.
    Failed,
}

/// A run of a version's bytes that moves and is given up as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First byte within the version.
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// The extent's replicas, the fastest first.
    pub(crate) replicas: SmallVec<[Replica; 2]>,
}

impl Extent {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.len
    }

    /// Adds a replica on a tier that has none.
    pub(crate) fn insert(&mut self, new: Replica) {
        let at = self.replicas.partition_point(|own| own.tier < new.tier);
        self.replicas.insert(at, new);
    }

    pub(crate) fn on(&self, tier: TierId) -> Option<&Replica> {
        self.replicas.iter().find(|replica| replica.tier == tier)
    }

    pub(crate) fn on_mut(&mut self, tier: TierId) -> Option<&mut Replica> {
        let mut replicas = self.replicas.iter_mut();
        replicas.find(|replica| replica.tier == tier)
    }

    /// Returns the replica to read: the fastest sound one, or the fastest if all are damaged.
    pub(crate) fn fastest(&self) -> Option<&Replica> {
        first_sound(self.replicas.iter())
    }

    /// Returns true if a replica is like this.
    pub(crate) fn has(&self, is_it: impl Fn(&Replica) -> bool) -> bool {
        self.replicas.iter().any(is_it)
    }

    /// Returns true if a tier below `tier` has a readable replica.
    pub(crate) fn has_below(&self, tier: TierId) -> bool {
        self.has(|replica| replica.tier > tier && replica.is_readable())
    }

    /// Returns true if a tier below `tier` has a sound replica, so that the bytes may go from `tier`.
    pub(crate) fn is_sound_below(&self, tier: TierId) -> bool {
        self.has(|replica| replica.tier > tier && replica.is_sound())
    }

    /// Returns true if a tier above `tier` has a sound replica, so that the bytes may go from `tier`.
    pub(crate) fn is_sound_above(&self, tier: TierId) -> bool {
        self.has(|replica| replica.tier < tier && replica.is_sound())
    }

    /// Returns true if no replica is being read or written.
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

    /// Returns true if `next` follows this extent byte for byte on the same tiers, and both are at rest.
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

/// Returns the first readable replica that is sound, or the first readable one if all are damaged.
pub(crate) fn first_sound<'r>(
    replicas: impl Iterator<Item = &'r Replica> + Clone,
) -> Option<&'r Replica> {
    let mut readable = replicas.filter(|replica| replica.is_readable());
    readable
        .clone()
        .find(|replica| !replica.damaged)
        .or_else(|| readable.next())
}

/// Counts a reader that begins, or that has ended.
pub(crate) fn count(readers: &mut u32, begin: bool) {
    *readers = match begin {
        true => *readers + 1,
        false => readers.saturating_sub(1),
    };
}

/// The plan's record of one version.
#[derive(Debug, Clone, Default)]
pub(crate) struct Record {
    pub(crate) size: u64,
    /// The place that the policy asks for.
    pub(crate) asked: Key,
    /// The version's own place: that one, or one nearby that was free. Versions of a plan with one tier may share one.
    pub(crate) key: Key,
    /// Ticks at which the version was taken in, and at which it was read last.
    pub(crate) written: u64,
    pub(crate) read: Option<u64>,
    pub(crate) reads: u32,
    /// The order in which versions were expected to be read when this one was last written or read.
    pub(crate) reuse: Reuse,
    /// In ascending order, without holes. Empty before room is granted.
    pub(crate) extents: SmallVec<[Extent; 1]>,
    /// Callers that read the version now.
    pub(crate) readers: u32,
    /// Restores that wait for bytes on their way.
    pub(crate) waiting: Vec<Ticket>,
    /// True once all bytes are there. Before, a caller writes them or waits for room.
    pub(crate) is_taken_in: bool,
    /// True if the application writes the version in place, for as long as it likes.
    pub(crate) produced: bool,
    /// True once the version was consumed and discardable, or dropped: its replicas go as soon as they are not used.
    pub(crate) discarded: bool,
    /// True after a flush or a prefetch failed at its source: the plan does not try again by itself. See also
    /// [`failing`](crate::ledger::Ledger::failing).
    pub(crate) unreadable: bool,
    /// True if an earlier run wrote the version: its number is free once it is gone.
    pub(crate) adopted: bool,
    /// The form on the tiers where versions lie [encoded](crate::ledger::Ledger::lies_encoded), if any of them has the
    /// version.
    pub(crate) form: Option<StoredForm>,
    /// Versions whose differences build upon this one's, or will once they have arrived, in no particular order.
    pub(crate) dependents: Vec<Version>,
}

impl Record {
    pub(crate) fn use_so_far(&self) -> UseSoFar {
        UseSoFar {
            written: self.written,
            read: self.read,
            bytes: self.size,
        }
    }

    /// Returns true if the application may ask for the version: accepted, and not discarded.
    pub(crate) fn is_held(&self) -> bool {
        !self.discarded && (self.is_taken_in || !self.produced)
    }

    /// Returns true if no caller and no transfer uses a replica of the version, and no other version builds upon it.
    pub(crate) fn is_free(&self) -> bool {
        self.form.is_none()
            && self.dependents.is_empty()
            && self.extents.iter().all(Extent::is_at_rest)
    }

    /// Returns true if the version's bytes are of use on a tier that holds versions encoded, or on another: to restore
    /// this version, or one that builds upon it.
    pub(crate) fn is_needed(&self, lies_encoded: bool) -> bool {
        !self.discarded || (!self.dependents.is_empty() && lies_encoded)
    }

    /// Bytes of a complete replica of an extent of `len` bytes, on a tier that holds versions encoded or on another.
    pub(crate) fn size_on(&self, lies_encoded: bool, len: u64) -> u64 {
        match self.form {
            Some(StoredForm::Difference(difference)) if lies_encoded => difference.bytes,
            _ => len,
        }
    }

    /// Returns the slowest of the fastest tiers that hold the version's bytes; `None` if some cannot be read anywhere.
    pub(crate) fn fastest(&self) -> Option<TierId> {
        let fastest = self.extents.iter().map(Extent::fastest);
        let tiers = fastest.map(|replica| Some(replica?.tier));
        tiers.reduce(|slowest, tier| Some(slowest?.max(tier?)))?
    }

    /// Returns true if all bytes can be read on `tier` or lower.
    pub(crate) fn has_reached(&self, tier: TierId) -> bool {
        self.has_all(|replica| replica.tier >= tier && replica.is_readable())
    }

    /// Returns true if all bytes are on `tier` or lower, as far as is known.
    pub(crate) fn is_sound_from(&self, tier: TierId) -> bool {
        self.has_all(|replica| replica.tier >= tier && replica.is_sound())
    }

    /// Returns true if the version has bytes, and all of them have a replica like this.
    fn has_all(&self, is_it: impl Fn(&Replica) -> bool) -> bool {
        !self.extents.is_empty() && self.extents.iter().all(|extent| extent.has(&is_it))
    }

    /// Counts a caller that begins to read these extents on these tiers, or that has ended.
    pub(crate) fn read(&mut self, parts: &[(u64, TierId)], begin: bool) {
        count(&mut self.readers, begin);
        for &(start, tier) in parts {
            if let Some(replica) = self.replica_mut(start, tier) {
                count(&mut replica.readers, begin);
            }
        }
    }

    pub(crate) fn replica_mut(&mut self, start: u64, tier: TierId) -> Option<&mut Replica> {
        let at = self.index_of(start)?;
        self.extents[at].on_mut(tier)
    }

    /// Returns true if no tier has anything of the version, nor has a transfer bring anything there.
    pub(crate) fn is_gone(&self) -> bool {
        let mut extents = self.extents.iter();
        extents.all(|extent| extent.replicas.is_empty())
    }

    /// Returns true if `tier` has nothing of the version, nor has a transfer bring anything there.
    pub(crate) fn is_off(&self, tier: TierId) -> bool {
        self.extents.iter().all(|extent| extent.on(tier).is_none())
    }

    pub(crate) fn index_of(&self, start: u64) -> Option<usize> {
        let found = self.extents.binary_search_by_key(&start, |e| e.start);
        found.ok()
    }
}
