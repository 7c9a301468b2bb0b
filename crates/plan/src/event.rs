//! The plan's input: plain values, no handles.

use crate::command::Difference;
use crate::{Ticket, TierId, TransferId, Version};

/// Why a transfer did not deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransferFailure {
    /// [`Command::Cancel`](crate::Command::Cancel) was obeyed.
    Cancelled,
    /// A source could not be read.
    Source,
    /// The destination could not be written.
    Destination,
}

/// A difference that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stored {
    /// Its bytes.
    pub bytes: u64,
    /// It builds upon nothing, whatever it was to build upon: hardly anything was as before. A new chain begins with it.
    pub alone: bool,
}

/// What of a history has to be on the lowest tier for the application to go on from a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// That version alone.
    Version,
    /// It and all that were taken in under smaller numbers: the history is read back, or versions build upon others.
    History,
}

/// What happened, or is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
    /// The application wants one run of `size` bytes on the fastest tier, to write `version` there in place. It is held,
    /// once granted, until [`Event::Written`], for as long as the application likes; the version does not exist before.
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
        /// Whether every byte arrived.
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
    /// The application wants to read `version` in place: in one run on the fastest tier, where it is brought first; where
    /// it lies, if there is no room. It is held, once granted, until [`Event::Read`], for as long as the application likes.
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
        /// Whether every byte arrived. If not, the version is kept and stays unconsumed.
        ok: bool,
    },
    /// The caller waits no longer for the answer to a call: its deadline has passed. If it was not answered yet, it never
    /// will be, and nothing has changed.
    Abandon {
        /// The call.
        ticket: Ticket,
    },
    /// The application expects to restore these versions, in this order, after those hinted before.
    Hint {
        /// Appended to the restore order.
        versions: Vec<Version>,
    },
    /// The hints given last are void, and with them all others of the same versions.
    ForgetHints {
        /// How many, at most: a long list is withdrawn in pieces, until [`Plan::is_hinted`](crate::Plan::is_hinted) says
        /// that nothing is left of it.
        most: usize,
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
    /// A rule about versions that outlive the run does not keep these. Those that the application has asked for stay for now:
    /// what it hinted, restores, holds in place or writes. Name them again later.
    Prune {
        /// The versions.
        versions: Vec<Version>,
    },
    /// Answer with [`Command::Done`](crate::Command::Done) when every version taken in so far lies on the lowest tier, or
    /// is gone; or when that one lies there, which is refused when it is gone. What cannot get there is
    /// [`Refusal::Stalled`](crate::Refusal::Stalled).
    Wait {
        /// The call.
        ticket: Ticket,
        /// The version, if it is one.
        version: Option<Version>,
    },
    /// The application is about to be preempted: bring this version to the lowest tier, straight from where it lies, and nothing else.
    /// Transfers under way that take time from it are cancelled; what they did is not begun again before the application
    /// asks for something, and what this wants is there or cannot get there. Answered with
    /// [`Command::Done`](crate::Command::Done) when it is there; one that another
    /// takes the place of is refused as [`Refusal::Stalled`](crate::Refusal::Stalled).
    Suspend {
        /// The call.
        ticket: Ticket,
        /// A version that was taken in.
        version: Version,
        /// Whether those before it are wanted, too.
        scope: Scope,
    },
    /// The bytes of a version on its way into the lowest tier are there, and it waits for others to be there before it, or it
    /// is its turn, waiting or not: what tells the pace of that tier does not count the time that it waits, and counts what
    /// comes after its turn by itself. Nothing happens if it is not on its way.
    Hold {
        /// The version.
        version: Version,
        /// Whether it waits; if not, it is its turn.
        is_held: bool,
    },
    /// Only the first `bytes` of a tier may be used from now on; all of it, to begin with. More take effect at once. Of
    /// fewer, the tier is emptied as far as replicas are used and other tiers can take them, until
    /// [`Command::Released`](crate::Command::Released). With 0 the tier is out of use.
    Limit {
        /// The tier.
        tier: TierId,
        /// Bytes from its start; its capacity if that is less.
        bytes: u64,
    },
    /// A version of an earlier run lies on a tier that outlives the engine. Of a version on several tiers, the lowest is
    /// named first; what it builds upon before itself. What contradicts what the plan knows, or finds no room, is not
    /// taken in.
    Adopt {
        /// The version.
        version: Version,
        /// Bytes.
        size: u64,
        /// Where it lies.
        tier: TierId,
        /// The difference as which it lies there, if it does.
        difference: Option<Difference>,
    },
    /// What `tier` has of `version` could not be read, or is not what was written there. It stays, and is read again if nothing
    /// else is left; until then the version is read, and carried, from its other replicas, and none of these is given up
    /// because this one is there.
    Damaged {
        /// The version.
        version: Version,
        /// Where.
        tier: TierId,
    },
    /// What a transfer encodes is known, and goes to where [`Plan::pieces`](crate::Plan::pieces) says from now on: nothing is
    /// written before, as what else was encoded may have left room nearer to what is there already. The transfer is to be told
    /// as done with the same.
    Encoded {
        /// The transfer, of [`Coding::Encode`](crate::Coding::Encode).
        id: TransferId,
        /// The difference that was made; `None` if the bytes are written as they are.
        stored: Option<Stored>,
    },
    /// A transfer delivered.
    TransferDone {
        /// Which.
        id: TransferId,
        /// The difference that it made, of [`Coding::Encode`](crate::Coding::Encode); `None` if it wrote the bytes as they are.
        stored: Option<Stored>,
    },
    /// A transfer did not deliver.
    TransferFailed {
        /// Which.
        id: TransferId,
        /// Why.
        why: TransferFailure,
    },
}

/// An event that cannot be: its sender's picture of the plan is wrong. The plan is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Misuse {
    /// The ticket names a call that is not over yet.
    #[error("ticket {} is in use by another call", .0.0)]
    TicketInUse(Ticket),
    /// No copy was granted to this ticket, or its end was reported already.
    #[error("ticket {} names no copy that was granted and has not ended", .0.0)]
    NotGranted(Ticket),
    /// No such transfer is under way: it never was, or its end was reported already.
    #[error("transfer {} is not under way", .0.0)]
    NoTransfer(TransferId),
    /// There is no such tier.
    #[error("there is no tier {0}")]
    NoTier(TierId),
    /// A difference was reported that was not asked for, or another one than before.
    #[error("transfer {} made a difference that was not asked for, or another one before", .0.0)]
    WrongCoding(TransferId),
}
