//! The plan's output: plain values, no handles.

use crate::ledger::Base;
use crate::{Ticket, TierId, TransferId, Version};

/// A run of bytes on one tier.
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

/// A run of a version's bytes, and its place on a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Piece {
    /// The run's first byte within the version.
    pub start: u64,
    /// The run's place on a tier.
    pub place: Place,
}

impl Piece {
    /// Appends the next piece of a version. If it continues the last one on the tier, the two become one: each copy
    /// takes a device several microseconds to begin.
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
    /// Bytes of the difference.
    pub bytes: u64,
    /// The version that it builds upon.
    pub base: Option<Version>,
}

/// The change of a replica's bytes during a transfer or a read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Coding {
    /// The bytes stay as they are.
    Plain,
    /// The bytes are a difference, and stay one.
    Stored {
        /// Bytes of the version.
        size: u64,
        /// The version that the difference builds upon, if there is one.
        base: Option<Version>,
    },
    /// The bytes become a difference to `base`, or to nothing without one. The base may still be on its way:
    /// differences are made in the order of their commands and may arrive in any order. An encoding that has begun is
    /// not cancelled.
    Encode {
        /// The version whose difference was asked for before this one. If it never arrives, this difference is of no
        /// use and its room is given up however its transfer ends; unless it turns out to build upon nothing
        /// ([`Stored::alone`](crate::Stored::alone)).
        base: Option<Version>,
    },
    /// The bytes are a difference; the version's bytes are made of it and of those that it builds upon.
    Decode {
        /// The versions that it builds upon, nearest first, and the places of their differences; the last one builds
        /// upon none.
        bases: Vec<(Version, Place)>,
    },
}

impl Coding {
    /// Returns the replicas of other versions that are read along.
    pub(crate) fn bases(&self) -> Vec<Base> {
        let bases = match self {
            Self::Decode { bases } => bases.as_slice(),
            _ => &[],
        };
        let bases = bases.iter().map(|&(base, place)| (base, place.tier));
        bases.collect()
    }
}

/// A transfer of bytes of one version between tiers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// The transfer's name.
    pub id: TransferId,
    /// The version whose bytes move.
    pub version: Version,
    /// The sources: ascending and adjacent runs of the version, perhaps on several tiers.
    pub from: Vec<Piece>,
    /// The targets: the same runs, all on one tier. Sizes differ from those of the sources only if the bytes are
    /// encoded or decoded. An encoded version gets its final place once its size is known
    /// ([`Event::Encoded`](crate::Event::Encoded)).
    pub to: Vec<Piece>,
    /// The change of the bytes on their way.
    pub coding: Coding,
}

/// An order of the plan to its executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A checkpoint has its place: the caller may copy its bytes there, then reports
    /// [`Event::Written`](crate::Event::Written).
    Write {
        /// The call.
        ticket: Ticket,
        /// The version that is written.
        version: Version,
        /// The places of all its bytes, in ascending order, on one tier; one run for
        /// [`Event::Produce`](crate::Event::Produce).
        pieces: Vec<Piece>,
    },
    /// The caller may copy the bytes out, then reports [`Event::Read`](crate::Event::Read).
    Read {
        /// The call.
        ticket: Ticket,
        /// The version that is read.
        version: Version,
        /// The places of all its bytes, in ascending order, each on the fastest tier that has it.
        pieces: Vec<Piece>,
        /// The change of the bytes: none, or decoding.
        coding: Coding,
    },
    /// The call is done: a drop, or a wait.
    Done {
        /// The call.
        ticket: Ticket,
    },
    /// The call is refused.
    Refuse {
        /// The call.
        ticket: Ticket,
        /// The reason.
        refusal: Refusal,
    },
    /// Start copying, then report [`Event::TransferDone`](crate::Event::TransferDone) or
    /// [`Event::TransferFailed`](crate::Event::TransferFailed).
    Transfer(Transfer),
    /// The transfer is not needed any more. The executor may still report it as done.
    Cancel {
        /// The transfer.
        id: TransferId,
    },
    /// Nothing lies beyond the first `bytes` of a tier, nor will before the next [`Event::Limit`](crate::Event::Limit):
    /// the memory may be given away. Answers the latest such event, once.
    Released {
        /// The tier.
        tier: TierId,
        /// Bytes from its start that stay in use: the limit, rounded down to the tier's alignment.
        bytes: u64,
    },
    /// The last bytes of `version` left a tier: a tier that keeps versions under their names removes it. The command
    /// comes before the bytes are handed out again. A write that fails leaves nothing to remove, but for one of a
    /// discarded version to a tier with [`from_above`](crate::TierConfig::from_above): it comes with that of the tier above.
    Remove {
        /// The version that was there.
        version: Version,
        /// The tier.
        tier: TierId,
        /// Bytes that the version had there.
        bytes: u64,
        /// True if the version is given up on every tier, and false if it lies on another one, too, or was damaged.
        is_discarded: bool,
    },
}

/// Why a call is refused. Nothing changed.
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
    /// Every tier that is large enough, within its limit, is full of versions that must be kept, and nothing is under
    /// way that would change this.
    NoRoom,
    /// Versions wait for a tier that takes no more: they are safe where they are, but not lower.
    Stalled {
        /// Number of versions that are not on the lowest tier.
        versions: u64,
    },
}
