//! What the plan hears and what it says: plain values, no handles.

use crate::Version;

/// Names one call of the application that waits for the plan's answer. The caller makes them up; each is used once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Names one transfer between two tiers, from its [`Command::Transfer`] until its end is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferId(pub u64);

/// A tier by its position: 0 is the fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TierId(pub usize);

/// Where the bytes of one copy lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The tier.
    pub tier: TierId,
    /// First byte within the tier, a multiple of the tier's alignment.
    pub offset: u64,
    /// Bytes of the checkpoint.
    pub size: u64,
    /// Bytes set aside: `size` rounded up to the tier's alignment.
    pub reserved: u64,
}

/// Why a transfer did not deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransferFailure {
    /// The plan's own [`Command::Cancel`] was obeyed.
    Cancelled,
    /// The source could not be read.
    Source,
    /// The destination could not be written.
    Destination,
}

/// What happened, or is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// The application wants to checkpoint `size` bytes as `version`.
    Checkpoint {
        /// The call.
        ticket: Ticket,
        /// A name not used before in this history.
        version: Version,
        /// Bytes.
        size: u64,
    },
    /// The application wants room for `size` bytes on the fastest tier, to write `version` there in place. It is held,
    /// once granted, until [`Event::Written`], for as long as the application likes; the version is not there before.
    Produce {
        /// The call.
        ticket: Ticket,
        /// A name not used before in this history.
        version: Version,
        /// Bytes.
        size: u64,
    },
    /// The copy allowed by [`Command::Write`] ended.
    Written {
        /// The call.
        ticket: Ticket,
        /// Whether every byte arrived.
        ok: bool,
    },
    /// The application wants `version` back.
    Restore {
        /// The call.
        ticket: Ticket,
        /// The version.
        version: Version,
    },
    /// The application wants to read `version` in place, on the fastest tier, where it is brought first; where it lies,
    /// if there is no room. It is held, once granted, until [`Event::Read`], for as long as the application likes.
    Consume {
        /// The call.
        ticket: Ticket,
        /// The version.
        version: Version,
    },
    /// The copy allowed by [`Command::Read`] ended.
    Read {
        /// The call.
        ticket: Ticket,
        /// Whether every byte arrived. If not, the version is kept and stays unconsumed.
        ok: bool,
    },
    /// The application expects to restore these versions, in this order, after those hinted before.
    Hint {
        /// Appended to the restore order.
        versions: Vec<Version>,
    },
    /// Prefetching may begin. The first restore begins it, too.
    PrefetchStart,
    /// The application will never ask for `version` again.
    Drop {
        /// The call.
        ticket: Ticket,
        /// The version.
        version: Version,
    },
    /// Answer when every accepted version lies on the lowest tier.
    Wait {
        /// The call.
        ticket: Ticket,
    },
    /// Only the first `bytes` of a tier may be used from now on; all of it, to begin with. More take effect at once. Of
    /// fewer, the tier is emptied as far as copies are used and other tiers can take them, until
    /// [`Command::Released`]. With 0 the tier is out of use and everybody goes past it.
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
    /// A transfer delivered.
    TransferDone {
        /// Which.
        id: TransferId,
        /// For how many ns the way was its own: since it was begun, or since the transfer before it in the same direction
        /// arrived, whichever was later. So bytes over it are the way's bandwidth, however many share it.
        elapsed_ns: u64,
        /// The difference that it made, of [`Coding::Encode`].
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

/// What becomes of the bytes of a copy on their way.
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
    /// A difference is made of them, to the version that a difference was made of before, with no failure and no
    /// other since; without one, to nothing. Once begun, it is not cancelled.
    Encode {
        /// That version.
        base: Option<Version>,
    },
    /// They are a difference, and the bytes of the version are made of it and of those that it builds upon.
    Decode {
        /// These versions, nearest first, and where their differences lie; the last one builds upon none.
        bases: Vec<(Version, Place)>,
    },
}

/// A difference that lies on a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Difference {
    /// Its bytes.
    pub bytes: u64,
    /// What it builds upon.
    pub base: Option<Version>,
}

/// A difference that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stored {
    /// Its bytes.
    pub bytes: u64,
    /// It builds upon nothing, whatever it was to build upon: hardly anything was as before. A new chain begins with it.
    pub alone: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// The caller may copy its bytes to `place`, then report [`Event::Written`].
    Write {
        /// The call.
        ticket: Ticket,
        /// What is written.
        version: Version,
        /// Where.
        place: Place,
    },
    /// The caller may copy the bytes at `place` out, then report [`Event::Read`].
    Read {
        /// The call.
        ticket: Ticket,
        /// What is read.
        version: Version,
        /// Where.
        place: Place,
        /// What is to be done with the bytes: plain, or to be decoded.
        coding: Coding,
    },
    /// Start copying; report [`Event::TransferDone`] or [`Event::TransferFailed`].
    Transfer {
        /// The transfer.
        id: TransferId,
        /// What is copied.
        version: Version,
        /// From where.
        from: Place,
        /// To where, on another tier: of the same size, unless they are encoded or decoded on the way.
        to: Place,
        /// What is to be done with the bytes.
        coding: Coding,
    },
    /// The transfer is not needed any more. It may still end as done.
    Cancel {
        /// The transfer.
        id: TransferId,
    },
    /// Nothing lies beyond the first `bytes` of a tier any more, nor will before the next [`Event::Limit`]: the memory
    /// may be given away. The answer to the latest such event, and said once.
    Released {
        /// The tier.
        tier: TierId,
        /// Bytes from its start that stay in use: the limit, rounded down to the tier's alignment.
        bytes: u64,
    },
    /// The copy at `place` is given up: whoever keeps copies under their names removes it. Said before the bytes are handed
    /// out again. A write that fails leaves nothing to remove.
    Drop {
        /// What was there.
        version: Version,
        /// Where.
        place: Place,
    },
    /// The call is answered and there is nothing to copy.
    Finish {
        /// The call.
        ticket: Ticket,
        /// The answer.
        result: Result<(), Refusal>,
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
    /// Every tier that is large enough, as far as it may be used, is full of versions that must be kept, and nothing is under way that would change it.
    NoRoom,
    /// Versions wait for a tier that takes no more: they are safe where they are, but not lower.
    Stalled {
        /// How many copies could not be flushed.
        copies: u64,
    },
}
