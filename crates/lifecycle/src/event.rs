use core::fmt;

/// A change in the life of one copy of a checkpoint.
///
/// An event states a fact, not a wish: [`Event::WriteEnded`] is sent after the last byte has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    /// Space has been granted for a copy that comes from the application or from a faster tier.
    WriteBegan,
    /// Every byte of the checkpoint has arrived from above.
    WriteEnded,
    /// The copy has been flushed: the next slower tier now has a readable copy of its own.
    Flushed,
    /// The copy on the slower tier has been given up, as this copy is nearer to the application. The flush is pending again.
    Unflushed,
    /// Space has been granted for a copy that comes from a slower tier (prefetch or restore).
    ReadBegan,
    /// Every byte of the checkpoint has arrived from below.
    ReadEnded,
    /// A hint or a restore is pending for a copy that is here already. The copy is kept until it is consumed.
    Pinned,
    /// The pin is given up unconsumed, because a blocked caller needs the room.
    ///
    /// The sender vouches that a readable copy exists on a slower tier; this copy may be lost.
    Unpinned,
    /// No restore waits for this copy any more: it was restored from, it was promoted to a faster tier, or the application
    /// dropped its version.
    Consumed,
    /// The transfer that was filling the copy failed or was cancelled: its bytes are worthless.
    Failed,
    /// The space of the copy has been taken back.
    Evicted,
}

impl Event {
    /// Every event, in the order of declaration.
    pub const ALL: [Self; 11] = [
        Self::WriteBegan,
        Self::WriteEnded,
        Self::Flushed,
        Self::Unflushed,
        Self::ReadBegan,
        Self::ReadEnded,
        Self::Pinned,
        Self::Unpinned,
        Self::Consumed,
        Self::Failed,
        Self::Evicted,
    ];
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WriteBegan => "write began",
            Self::WriteEnded => "write ended",
            Self::Flushed => "flushed",
            Self::Unflushed => "unflushed",
            Self::ReadBegan => "read began",
            Self::ReadEnded => "read ended",
            Self::Pinned => "pinned",
            Self::Unpinned => "unpinned",
            Self::Consumed => "consumed",
            Self::Failed => "failed",
            Self::Evicted => "evicted",
        })
    }
}
