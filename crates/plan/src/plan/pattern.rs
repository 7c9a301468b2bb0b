//! The pattern of the readings so far, which predicts later ones without hints.

use crate::Version;
use crate::order::Direction;

/// The pattern in which the application reads versions that it did not announce.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pattern {
    /// The version read last, and the tick at which it was taken in.
    pub(super) last: Option<(Version, u64)>,
    /// Difference of its number to that of the one before.
    pub(super) step: Option<i64>,
    /// Bytes read so far.
    pub(super) bytes: u64,
    /// Bytes of versions that were read again before as many others as the fastest tier holds, and of those that were
    /// read again later. Both are halved when they exceed what that tier holds: the last readings count most.
    pub(super) again: ReadAgain,
}

/// Bytes that were read again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct ReadAgain {
    soon: u64,
    late: u64,
}

impl Pattern {
    /// Returns true if most bytes that were lately read again returned so soon that the fastest tier can have kept them.
    pub(super) fn returns_soon(&self) -> bool {
        self.again.soon > self.again.late
    }

    /// Takes in the reading of a version of `size` bytes: the tick `written` at which it was taken in, and the bytes read before its
    /// last reading. The fastest tier holds `reach` bytes. If the reading belongs to a scan (to a neighbour, or by the
    /// same step twice), returns the scan's direction, and true if it goes to a neighbour.
    pub(super) fn observe(
        &mut self,
        version: Version,
        size: u64,
        written: u64,
        last_reading: Option<u64>,
        reach: u64,
    ) -> Option<(Direction, bool)> {
        if let Some(before) = last_reading {
            let ReadAgain { soon, late } = &mut self.again;
            *match self.bytes.saturating_sub(before) <= reach {
                true => &mut *soon,
                false => &mut *late,
            } += size;
            if *soon + *late > reach {
                (*soon, *late) = (*soon / 2, *late / 2);
            }
        }
        let (last, its) = self.last.replace((version, written))?;
        let step = version.wrapping_sub(last) as i64;
        let before = self.step.replace(step);
        let is_scan = step != 0 && (step.unsigned_abs() == 1 || before == Some(step));
        let direction = match written > its {
            true => Direction::OldestFirst,
            false => Direction::NewestFirst,
        };
        is_scan.then_some((direction, step.unsigned_abs() == 1))
    }
}
