//! What the plan says: plain values, no handles.

use crate::{Ticket, TierId, TransferId, Version};

/// Bytes of one tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The tier.
    pub tier: TierId,
    /// First byte within the tier, a multiple of the tier's alignment.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Bytes set aside: `size` rounded up to the tier's alignment.
    pub reserved: u64,
}

/// Where a run of a version's bytes lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Piece {
    /// The run's first byte within the version.
    pub start: u64,
    /// Where it lies.
    pub place: Place,
}

impl Piece {
    /// Appends the next piece of a version. A piece that continues the last one on the tier becomes a part of it, as each
    /// copy takes a device several microseconds to begin.
    pub(crate) fn append(self, pieces: &mut Vec<Self>) {
        let last = pieces.last_mut().filter(|last| {
            let (ends, begins) = (last.place, self.place);
            ends.tier == begins.tier
                && ends.offset + ends.size == begins.offset
                && last.start + ends.size == self.start
        });
        match last {
            Some(last) => {
                last.place.size += self.place.size;
                last.place.reserved += self.place.reserved;
            }
            None => pieces.push(self),
        }
    }
}

/// A difference that lies on a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Difference {
    /// Its bytes.
    pub bytes: u64,
    /// The version that it builds upon.
    pub base: Option<Version>,
}

/// What becomes of the bytes of a replica on their way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Coding {
    /// They stay as they are.
    Plain,
    /// They are a difference, and stay one: of so many bytes of a version, to `base` if there is one.
    Stored {
        /// Bytes of the version.
        size: u64,
        /// What the difference builds upon.
        base: Option<Version>,
    },
    /// A difference is made of them, to the version of which one was asked for before; without one, to nothing. That one may
    /// be on its way still: differences are made in the order in which they are asked for, and may arrive in any. Once begun,
    /// it is not cancelled.
    Encode {
        /// That version. If it is not there in the end, this difference is of no use, unless it turned out to build upon nothing
        /// ([`Stored::alone`](crate::Stored::alone)): its room is given up however its transfer ends.
        base: Option<Version>,
    },
    /// They are a difference, and the bytes of the version are made of it and of those that it builds upon.
    Decode {
        /// These versions, nearest first, and where their differences lie; the last one builds upon none.
        bases: Vec<(Version, Place)>,
    },
}

/// One transfer between tiers: bytes of one version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// Its name.
    pub id: TransferId,
    /// Whose bytes.
    pub version: Version,
    /// Where they lie: ascending and adjacent runs, perhaps on several tiers.
    pub from: Vec<Piece>,
    /// Where they go: the same bytes, cut alike, all on one tier. Only their sizes differ where they are encoded or decoded
    /// on the way; what is encoded has its last place when it is known how many bytes that are
    /// ([`Event::Encoded`](crate::Event::Encoded)).
    pub to: Vec<Piece>,
    /// What is to be done with the bytes.
    pub coding: Coding,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A checkpoint has its place: the caller may copy its bytes there, then reports
    /// [`Event::Written`](crate::Event::Written).
    Write {
        /// The call.
        ticket: Ticket,
        /// What is written.
        version: Version,
        /// Where: all of its bytes in ascending order, on one tier; one run for [`Event::Produce`](crate::Event::Produce).
        pieces: Vec<Piece>,
    },
    /// The caller may copy the bytes out, then reports [`Event::Read`](crate::Event::Read).
    Read {
        /// The call.
        ticket: Ticket,
        /// What is read.
        version: Version,
        /// Where: all of its bytes in ascending order, on whichever tiers they are found fastest.
        pieces: Vec<Piece>,
        /// What is to be done with the bytes: plain, or to be decoded.
        coding: Coding,
    },
    /// The call is done: a drop, or a wait.
    Done {
        /// The call.
        ticket: Ticket,
    },
    /// The call is answered without what it asked for.
    Refuse {
        /// The call.
        ticket: Ticket,
        /// Why.
        refusal: Refusal,
    },
    /// Start copying; report [`Event::TransferDone`](crate::Event::TransferDone) or
    /// [`Event::TransferFailed`](crate::Event::TransferFailed).
    Transfer(Transfer),
    /// The transfer is not needed any more. It may still end as done.
    Cancel {
        /// The transfer.
        id: TransferId,
    },
    /// Nothing lies beyond the first `bytes` of a tier any more, nor will before the next
    /// [`Event::Limit`](crate::Event::Limit): the memory may be given away. The answer to the latest such event, said once.
    Released {
        /// The tier.
        tier: TierId,
        /// Bytes from its start that stay in use: the limit, rounded down to the tier's alignment.
        bytes: u64,
    },
    /// Nothing of `version` is left on a tier: a tier that keeps versions under their names removes it. Said before the
    /// bytes are handed out again. A write that fails leaves nothing to remove.
    Remove {
        /// What was there.
        version: Version,
        /// Where.
        tier: TierId,
        /// Bytes that it had there.
        bytes: u64,
    },
}

/// Why a call is answered without what it asked for. Nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// A checkpoint of no bytes.
    Empty,
    /// The version names a checkpoint already, or did.
    VersionUsed,
    /// No such version was ever checkpointed.
    Unknown,
    /// The version was consumed and discarded, or dropped.
    Discarded,
    /// No tier is large enough, even when empty.
    TooLarge {
        /// The largest tier's capacity in bytes.
        largest: u64,
    },
    /// Every tier that is large enough, as far as it may be used, is full of versions that must be kept, and nothing is
    /// under way that would change it.
    NoRoom,
    /// Versions wait for a tier that takes no more: they are safe where they are, but not lower.
    Stalled {
        /// How many of them are not on the lowest tier.
        versions: u64,
    },
}
