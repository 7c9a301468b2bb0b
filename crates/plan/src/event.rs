//! The plan's input: plain values, no handles.

use crate::command::Difference;
use crate::{Ticket, TierId, TransferId, Version};

/// Why a transfer did not deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransferFailure {
    /// The executor obeyed [`Command::Cancel`](crate::Command::Cancel).
    Cancelled,
    /// A source could not be read. Unless [`Event::Damaged`] told of damage before, it is read again after the application's next
    /// checkpoint, wait or suspension.
    Source,
    /// The destination could not be written, or what the copy itself needs was not there. Nothing more goes to that tier before the
    /// application's next checkpoint, wait or suspension.
    Destination,
}

/// The result of an encoding: a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stored {
    /// Bytes of the difference.
    pub bytes: u64,
    /// True if the difference builds upon nothing, whatever its base was to be, because hardly anything was as before.
    /// A new chain begins with it.
    pub alone: bool,
}

/// The part of a history that must reach the lowest tier so that the application can continue from a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The version alone.
    Version,
    /// The version and all that were taken in under smaller numbers: the history is read back, or versions build upon
    /// others.
    History,
}

/// A fact about the application or a transfer, or a request of the application.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// The application wants to checkpoint `size` bytes as `version`. Answered by
    /// [`Command::Write`](crate::Command::Write) or [`Command::Refuse`](crate::Command::Refuse).
    Checkpoint {
        /// The call.
        ticket: Ticket,
        /// A number not used before in this history.
        version: Version,
        /// Bytes, not 0.
        size: u64,
    },
    /// The application wants one run of `size` bytes on the fastest tier, to write `version` there in place. A granted
    /// run is held until [`Event::Written`], for as long as the application likes. The version does not exist before.
    Produce {
        /// The call.
        ticket: Ticket,
        /// A number not used before in this history.
        version: Version,
        /// Bytes, not 0.
        size: u64,
    },
    /// The copy allowed by [`Command::Write`](crate::Command::Write) ended.
    Written {
        /// The call.
        ticket: Ticket,
        /// True if every byte arrived.
        ok: bool,
    },
    /// The application wants `version` back. Answered by [`Command::Read`](crate::Command::Read) or
    /// [`Command::Refuse`](crate::Command::Refuse).
    Restore {
        /// The call.
        ticket: Ticket,
        /// The version.
        version: Version,
    },
    /// The application wants to read `version` in place: in one run on the fastest tier, to which the plan brings it
    /// first, or at its present place if there is no room. A granted read is held until [`Event::Read`], for as long as
    /// the application likes.
    Consume {
        /// The call.
        ticket: Ticket,
        /// The version.
        version: Version,
    },
    /// The copy allowed by [`Command::Read`](crate::Command::Read) ended.
    Read {
        /// The call.
        ticket: Ticket,
        /// True if every byte arrived. If not, the version is kept and stays unconsumed.
        ok: bool,
    },
    /// A checkpoint was asked for, and its bytes are in the place that [`Plan::place_to_write`](crate::Plan::place_to_write) named
    /// just before. Not answered.
    WrittenAtOnce {
        /// A number not used before in this history.
        version: Version,
        /// Bytes.
        size: u64,
    },
    /// A version was asked for, and its bytes were copied out of the place that
    /// [`Plan::place_to_read`](crate::Plan::place_to_read) named just before. Not answered.
    ReadAtOnce {
        /// The version.
        version: Version,
    },
    /// The caller's deadline has passed, so it stops waiting for the answer. A call that was not answered yet never
    /// will be, and has changed nothing.
    Abandon {
        /// The call.
        ticket: Ticket,
    },
    /// The application expects to restore these versions, in this order, after those hinted before.
    Hint {
        /// Appended to the restore order.
        versions: Vec<Version>,
    },
    /// The application expects to restore these versions, in this order, before those hinted before. A long list is handed in in
    /// pieces, the last one first.
    HintNext {
        /// Put in front of the restore order.
        versions: Vec<Version>,
    },
    /// The application does not expect to restore these versions any more: their hints are void. A long list is handed in in
    /// pieces.
    ForgetHints {
        /// The versions; those of [`Plan::hinted`](crate::Plan::hinted) are all.
        versions: Vec<Version>,
    },
    /// Prefetching may begin. The first restore begins it, too.
    PrefetchStart,
    /// The application will never ask for `version` again. Answered at once by
    /// [`Command::Done`](crate::Command::Done) or [`Command::Refuse`](crate::Command::Refuse).
    Drop {
        /// The call.
        ticket: Ticket,
        /// The version.
        version: Version,
    },
    /// A retention rule gives up these versions. The plan keeps those that the application asked for (hinted, being
    /// restored, held in place, or being written); name them again later.
    Prune {
        /// The versions.
        versions: Vec<Version>,
    },
    /// Asks for [`Command::Done`](crate::Command::Done) once every version taken in so far lies on the lowest tier or
    /// is gone. With a version: once that one lies there; refused if it is gone. Versions that cannot get there give
    /// [`Refusal::Stalled`](crate::Refusal::Stalled).
    Wait {
        /// The call.
        ticket: Ticket,
        /// The version to wait for; `None` for all.
        version: Option<Version>,
    },
    /// The application is about to be preempted: bring this version to the lowest tier, straight from where it lies,
    /// and nothing else. Transfers that take time from it are cancelled, and do not begin again until the
    /// application asks for something and this event's version is there or cannot get there. Answered with
    /// [`Command::Done`](crate::Command::Done) once the version is there. A later suspension replaces this one, which
    /// is refused as [`Refusal::Stalled`](crate::Refusal::Stalled).
    Suspend {
        /// The call.
        ticket: Ticket,
        /// A version that was taken in.
        version: Version,
        /// The versions that must reach the lowest tier with it.
        scope: Scope,
    },
    /// Reports that the bytes of a version on its way into the lowest tier have arrived there, and that it waits for
    /// other versions to become durable first or that its turn has come. The pace of that tier does not count the wait,
    /// and counts the time after the turn by itself. Ignored if the version is not on its way.
    Hold {
        /// The version.
        version: Version,
        /// True while it waits; false once its turn has come.
        is_held: bool,
    },
    /// Limits a tier to its first `bytes`; at the start, all of the tier may be used. A higher limit takes effect at
    /// once. With a lower one, the tier is emptied beyond it as replicas become idle and other tiers can take them,
    /// until [`Command::Released`](crate::Command::Released). 0 takes the tier out of use.
    Limit {
        /// The tier.
        tier: TierId,
        /// Bytes from the tier's start; at most its capacity.
        bytes: u64,
    },
    /// A version of an earlier run lies on a tier that outlives the engine. Name the lowest tier of a version first,
    /// and a base before the versions that build upon it. The plan ignores a version that contradicts its state or
    /// finds no room.
    Adopt {
        /// The version.
        version: Version,
        /// Bytes.
        size: u64,
        /// The tier that holds it.
        tier: TierId,
        /// The difference as which the tier holds it; `None` if it lies there as it is.
        difference: Option<Difference>,
    },
    /// The bytes that `tier` has of `version` could not be read, or differ from those written. The replica stays. Until
    /// nothing else is left, the version is read and carried from its other replicas, none of which is given up on
    /// account of this one.
    Damaged {
        /// The version.
        version: Version,
        /// The tier.
        tier: TierId,
    },
    /// The result of an encoding is known. The place of the result from now on is that of [`Plan::pieces`](crate::Plan::pieces), as
    /// other encodings may have left room nearer to the bytes that are there. Write nothing before. Report the same
    /// result with [`Event::TransferDone`].
    Encoded {
        /// The transfer, of [`Coding::Encode`](crate::Coding::Encode).
        id: TransferId,
        /// The difference that was made; `None` if the bytes are written as they are.
        stored: Option<Stored>,
    },
    /// A transfer delivered.
    TransferDone {
        /// The transfer.
        id: TransferId,
        /// The difference that it made, of [`Coding::Encode`](crate::Coding::Encode); `None` if it wrote the bytes as
        /// they are.
        stored: Option<Stored>,
    },
    /// A transfer did not deliver.
    TransferFailed {
        /// The transfer.
        id: TransferId,
        /// The reason.
        why: TransferFailure,
    },
}

impl Event {
    /// Returns the call that the event begins, if it begins one.
    pub(crate) fn call(&self) -> Option<Ticket> {
        match *self {
            Self::Checkpoint { ticket, .. }
            | Self::Produce { ticket, .. }
            | Self::Restore { ticket, .. }
            | Self::Consume { ticket, .. }
            | Self::Drop { ticket, .. }
            | Self::Wait { ticket, .. }
            | Self::Suspend { ticket, .. } => Some(ticket),
            _ => None,
        }
    }
}

/// An event that contradicts the plan's state: its sender is wrong about the plan. Nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Misuse {
    /// The ticket names a call that is not over yet.
    #[error("ticket {} is in use by another call", .0.0)]
    TicketInUse(Ticket),
    /// No copy was granted to this ticket, or its end was reported already.
    #[error("ticket {} names no copy that was granted and has not ended", .0.0)]
    NotGranted(Ticket),
    /// The plan names no place for this version at once.
    #[error("version {0} has no place at once")]
    NotAtOnce(Version),
    /// No such transfer is under way: it never was, or its end was reported already.
    #[error("transfer {} is not under way", .0.0)]
    NoTransfer(TransferId),
    /// There is no such tier.
    #[error("there is no tier {0}")]
    NoTier(TierId),
    /// A difference was reported that was not asked for, or that differs from the one reported before.
    #[error("transfer {} made a difference that was not asked for, or another one before", .0.0)]
    WrongCoding(TransferId),
}
