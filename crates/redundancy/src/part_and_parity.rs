//! Pairs of values: one for a member's part of a version, and one for the parity that it stores.

use crate::Place;

/// A value for a member's part of a version, and a value for the parity that it stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PartAndParity<T> {
    pub(crate) part: T,
    pub(crate) parity: T,
}

/// Flags: true if a member has its part, and its parity, as they were protected.
pub(crate) type Intact = PartAndParity<bool>;

impl<T> PartAndParity<T> {
    /// Returns the value for the part if the shard at `place` is data, and the value for the parity otherwise.
    pub(crate) fn of(self, place: Place) -> T {
        match place {
            Place::Data { .. } => self.part,
            Place::Parity { .. } => self.parity,
        }
    }

    pub(crate) fn as_ref(&self) -> PartAndParity<&T> {
        let Self { part, parity } = self;
        PartAndParity { part, parity }
    }

    pub(crate) fn as_mut(&mut self) -> PartAndParity<&mut T> {
        let Self { part, parity } = self;
        PartAndParity { part, parity }
    }

    pub(crate) fn map<U>(self, mut f: impl FnMut(T) -> U) -> PartAndParity<U> {
        PartAndParity {
            part: f(self.part),
            parity: f(self.parity),
        }
    }

    pub(crate) fn try_map<U, E>(
        self,
        mut f: impl FnMut(T) -> Result<U, E>,
    ) -> Result<PartAndParity<U>, E> {
        Ok(PartAndParity {
            part: f(self.part)?,
            parity: f(self.parity)?,
        })
    }

    pub(crate) fn zip<U>(self, other: PartAndParity<U>) -> PartAndParity<(T, U)> {
        PartAndParity {
            part: (self.part, other.part),
            parity: (self.parity, other.parity),
        }
    }
}
