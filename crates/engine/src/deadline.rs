//! When calls give up.

use crate::Error;
use std::time::{Duration, Instant};

/// When a call gives up, and how long it had; none if it never does.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Deadline {
    end: Option<(Instant, Duration)>,
    /// When it gives up waiting to begin, if that is earlier.
    slice: Option<(Instant, Duration)>,
}

impl Deadline {
    pub(crate) fn after(patience: Duration) -> Self {
        // Beyond what clocks tell, it is never.
        let end = Instant::now().checked_add(patience);
        Self {
            end: end.map(|at| (at, patience)),
            slice: None,
        }
    }

    pub(crate) fn sliced(self, slice: Option<Duration>) -> Self {
        let at = slice.and_then(|slice| Instant::now().checked_add(slice));
        let at = at.filter(|at| self.end.is_none_or(|(end, _)| *at < end));
        Self {
            slice: at.zip(slice),
            ..self
        }
    }

    /// When a copy with storage is given up.
    pub(crate) fn at(self) -> Option<Instant> {
        self.end.map(|(at, _)| at)
    }

    /// When waiting for the copy to begin is given up.
    pub(crate) fn to_begin(self) -> Option<Instant> {
        self.slice.or(self.end).map(|(at, _)| at)
    }

    /// What was too short: the slice, as long as it is the only one that can be over.
    pub(crate) fn passed(self) -> Error {
        let is_over = |(at, _): &(Instant, Duration)| *at <= Instant::now();
        let passed = self.end.filter(is_over).or(self.slice).or(self.end);
        let patience = passed.map_or(Duration::MAX, |(_, patience)| patience);
        Error::TimedOut { patience }
    }
}
