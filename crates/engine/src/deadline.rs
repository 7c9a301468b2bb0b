//! Deadlines and interrupts of waits.

use crate::{Error, Version};
use std::fmt;
use std::time::{Duration, Instant};

/// Time between two checks for an interrupt.
const LOOK: Duration = Duration::from_millis(50);

/// A function of the caller that returns true to end a wait.
#[derive(Clone, Copy)]
pub(crate) struct Interrupt<'a>(pub(crate) &'a (dyn Fn() -> bool + Sync));

impl fmt::Debug for Interrupt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupt")
    }
}

/// The call that a wait belongs to: the subject of [`Error::TimedOut`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Awaited {
    /// The checkpoint of a version.
    Checkpoint(Version),
    /// The restore of a version.
    Restore(Version),
    /// A loan of memory to write a version, or to read one.
    Loan(Version),
    /// The wait for a version to reach the lowest tier.
    Durable(Version),
    /// The wait for all versions to reach the lowest tier.
    #[default]
    AllDurable,
    /// A change of the size of a cache, "device" or "host".
    Resize(&'static str),
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint(version) => write!(f, "checkpoint {version}"),
            Self::Restore(version) => write!(f, "the restore of version {version}"),
            Self::Loan(version) => write!(f, "the loan of memory for version {version}"),
            Self::Durable(version) => {
                write!(f, "the way of version {version} to the lowest tier")
            }
            Self::AllDurable => f.write_str("the way of all versions to the lowest tier"),
            Self::Resize(cache) => write!(f, "the change of the size of the {cache} cache"),
        }
    }
}

/// The end of a call's wait: a time, or an interrupt. The call keeps its place in the queue until then.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Deadline<'a> {
    awaited: Awaited,
    /// The end, and the whole length of the wait; `None` without a limit.
    end: Option<(Instant, Duration)>,
    interrupt: Option<Interrupt<'a>>,
}

impl<'a> Deadline<'a> {
    pub(crate) fn after(patience: Duration) -> Self {
        // An end beyond the clock's range means no limit.
        let end = Instant::now().checked_add(patience);
        Self {
            end: end.map(|at| (at, patience)),
            ..Self::default()
        }
    }

    /// Returns a deadline at this instant.
    pub(crate) fn by(at: Instant) -> Self {
        Self {
            end: Some((at, at.saturating_duration_since(Instant::now()))),
            ..Self::default()
        }
    }

    /// Sets the call whose wait ends.
    pub(crate) fn of(self, awaited: Awaited) -> Self {
        Self { awaited, ..self }
    }

    pub(crate) fn unless(self, interrupt: Option<Interrupt<'a>>) -> Self {
        Self { interrupt, ..self }
    }

    /// Returns the time at which a copy to or from storage is given up.
    pub(crate) fn at(self) -> Option<Instant> {
        self.end.map(|(at, _)| at)
    }

    /// Returns true if the patience is zero: the call answers at once, by what is known.
    pub(crate) fn is_now(self) -> bool {
        self.end.is_some_and(|(_, patience)| patience.is_zero())
    }

    /// Returns true if the wait calls a function of the application.
    pub(crate) fn has_interrupt(self) -> bool {
        self.interrupt.is_some()
    }

    /// Returns the time at which a wait has to call [`goes_on`](Self::goes_on).
    pub(crate) fn next_look(self) -> Option<Instant> {
        let look = self.interrupt.map(|_| Instant::now() + LOOK);
        let end = self.at();
        look.map_or(end, |look| Some(end.map_or(look, |end| end.min(look))))
    }

    /// Returns true if a wait goes on after its [next look](Self::next_look): the end is not reached, and the interrupt returned
    /// false. Without an interrupt, the next look is the end.
    pub(crate) fn goes_on(self) -> bool {
        let Some(Interrupt(is_interrupted)) = self.interrupt else {
            return false;
        };
        self.end.is_none_or(|(at, _)| Instant::now() < at) && !is_interrupted()
    }

    /// Returns the error of a wait that ended.
    pub(crate) fn passed(self) -> Error {
        match self.end {
            Some((at, patience)) if self.interrupt.is_none() || at <= Instant::now() => {
                let what = self.awaited;
                Error::TimedOut { what, patience }
            }
            _ => Error::Interrupted,
        }
    }
}
