use core::fmt;

use crate::Event;

/// The state of one copy of a checkpoint on one tier (HPDC'23, Figure 1 and §4.1.3).
///
/// No state says whether a copy *has been flushed*. A flushed copy has a readable copy on the next slower tier, and only
/// [`State::is_readable`] of that copy says so. `READ_COMPLETE` and `CONSUMED` therefore accept [`Event::Flushed`] and
/// stay. Only in `WRITE_COMPLETE` does the flush decide about *this* copy, so only there the event is a move.
///
/// The code that starts transfers counts those that read from a copy, as a flush may still be reading a `CONSUMED` copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// There is no copy on this tier: it is not born yet, failed, or was evicted.
    #[default]
    Init,
    /// The bytes are arriving from the application or from a faster tier.
    WriteInProgress,
    /// The bytes are here, and the flush to the next slower tier is pending.
    WriteComplete,
    /// A slower tier has the bytes too and no restore is waiting for this copy: evictable.
    Flushed,
    /// The bytes are arriving from a slower tier.
    ReadInProgress,
    /// The bytes are here and a hint or a restore is waiting for them: pinned.
    ReadComplete,
    /// The bytes are here and have served their purpose: evictable.
    Consumed,
}

impl State {
    /// Every state, in the order of declaration.
    pub const ALL: [Self; 7] = [
        Self::Init,
        Self::WriteInProgress,
        Self::WriteComplete,
        Self::Flushed,
        Self::ReadInProgress,
        Self::ReadComplete,
        Self::Consumed,
    ];

    /// Returns the state after `event`: the only transition function of the life cycle.
    ///
    /// ```text
    ///                write began                  read began
    ///       ┌─────────────────────── INIT ───────────────────────┐
    ///       ▼                                                    ▼
    /// WRITE_IN_PROGRESS                                 READ_IN_PROGRESS
    ///       │ write ended                             read ended │
    ///       ▼                     pinned                         ▼
    /// WRITE_COMPLETE ─────────────────────────────────► READ_COMPLETE ⟲ flushed
    ///   │         │                                         ▲ │ ▲ │
    ///   │         │ flushed, unflushed ▲   pinned           │ │ │ │
    ///   │         └───────► FLUSHED ────────────────────────┘ │ │ │
    ///   │                    │   ▲         unpinned           │ │ │
    ///   │                    │   └────────────────────────────┘ │ │
    ///   │           consumed │                                  │ │
    ///   │ consumed           ▼             pinned               │ │
    ///   └───────────────► CONSUMED ─────────────────────────────┘ │
    ///    ⟲ flushed, consumed    ▲          consumed               │
    ///                           └─────────────────────────────────┘
    ///
    /// WRITE_IN_PROGRESS, READ_IN_PROGRESS ── failed ──► INIT
    /// FLUSHED, CONSUMED ── evicted ──► INIT
    /// ```
    ///
    /// Beyond the edges drawn in the paper:
    /// - `WRITE_COMPLETE` and `FLUSHED` are consumed in place when a restore that was not hinted is served
    ///   straight from the copy, or when the application drops the version; `CONSUMED` is consumed
    ///   again when a kept version is restored again without a hint;
    /// - `CONSUMED` is pinned when a kept version is hinted again, or when the faster copy it was
    ///   promoted to is given up unconsumed;
    /// - `FLUSHED` is unflushed when the slower copy is given up first, as this one is nearer to the application;
    /// - `READ_COMPLETE` is un-pinned so that a blocked caller always gets room in the end. The copy falls back to
    ///   `FLUSHED`, never to `WRITE_COMPLETE`, as un-pinning needs a slower copy.
    ///
    /// # Errors
    ///
    /// [`IllegalMove`] if the event cannot happen in this state. The state is unchanged. The sender has a wrong idea of the
    /// copy, which is a bug of the sender.
    pub const fn on(self, event: Event) -> Result<Self, IllegalMove> {
        Ok(match (self, event) {
            (Self::Init, Event::WriteBegan) => Self::WriteInProgress,
            (Self::Init, Event::ReadBegan) => Self::ReadInProgress,

            (Self::WriteInProgress, Event::WriteEnded) => Self::WriteComplete,
            (Self::ReadInProgress, Event::ReadEnded) => Self::ReadComplete,
            (Self::WriteInProgress | Self::ReadInProgress, Event::Failed) => Self::Init,

            (Self::WriteComplete, Event::Flushed) => Self::Flushed,
            (Self::Flushed, Event::Unflushed) => Self::WriteComplete,
            (Self::ReadComplete | Self::Consumed, Event::Flushed) => self,

            (Self::WriteComplete | Self::Flushed | Self::Consumed, Event::Pinned) => {
                Self::ReadComplete
            }
            (Self::ReadComplete, Event::Unpinned) => Self::Flushed,
            (
                Self::WriteComplete | Self::Flushed | Self::ReadComplete | Self::Consumed,
                Event::Consumed,
            ) => Self::Consumed,

            (Self::Flushed | Self::Consumed, Event::Evicted) => Self::Init,

            (from, event) => return Err(IllegalMove { from, event }),
        })
    }

    /// Returns true if every byte of the checkpoint is here, so that a restore or a transfer may read it.
    #[must_use]
    pub const fn is_readable(self) -> bool {
        matches!(
            self,
            Self::WriteComplete | Self::Flushed | Self::ReadComplete | Self::Consumed
        )
    }

    /// Returns true if the life cycle lets the copy be evicted (`FLUSHED`, `CONSUMED`).
    ///
    /// Transfers that are still reading from the copy must have ended as well.
    #[must_use]
    pub const fn is_evictable(self) -> bool {
        matches!(self, Self::Flushed | Self::Consumed)
    }

    /// Returns true while a transfer is filling the copy.
    #[must_use]
    pub const fn in_transit(self) -> bool {
        matches!(self, Self::WriteInProgress | Self::ReadInProgress)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Init => "INIT",
            Self::WriteInProgress => "WRITE_IN_PROGRESS",
            Self::WriteComplete => "WRITE_COMPLETE",
            Self::Flushed => "FLUSHED",
            Self::ReadInProgress => "READ_IN_PROGRESS",
            Self::ReadComplete => "READ_COMPLETE",
            Self::Consumed => "CONSUMED",
        })
    }
}

/// An event that cannot happen to a copy in the state it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IllegalMove {
    /// The state of the copy, which does not change.
    pub from: State,
    /// The event that is not legal in this state.
    pub event: Event,
}

impl fmt::Display for IllegalMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "illegal move: \"{}\" in state {}; legal there: ",
            self.event, self.from
        )?;
        let mut legal = Event::ALL
            .into_iter()
            .filter(|&event| self.from.on(event).is_ok());
        if let Some(first) = legal.next() {
            write!(f, "{first}")?;
        }
        legal.try_for_each(|event| write!(f, ", {event}"))
    }
}

impl core::error::Error for IllegalMove {}
