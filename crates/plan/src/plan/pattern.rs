//! What the readings so far say of those to come, where no hint does.

use crate::Version;
use crate::order::Direction;

/// How the application reads what it did not announce.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pattern {
    /// The version read last, and when it was taken in.
    pub(super) last: Option<(Version, u64)>,
    /// By how much its number was larger than that of the one before.
    pub(super) step: Option<i64>,
    /// Bytes read so far.
    pub(super) bytes: u64,
    /// What was read is read again before as many other bytes as the fastest tier holds, and not in a scan.
    pub(super) returns_soon: bool,
}

impl Pattern {
    /// Takes in that a version is read that was taken in at `written`, and of which the last reading began after so many
    /// bytes, where the fastest tier holds `reach` bytes. Returns which way a scan goes that it is part of, one
    /// to a neighbour or by the same step twice; and whether it is one to a neighbour.
    pub(super) fn observe(
        &mut self,
        (version, written): (Version, u64),
        last_reading: Option<u64>,
        reach: u64,
    ) -> Option<(Direction, bool)> {
        if let Some(before) = last_reading {
            self.returns_soon = self.bytes.saturating_sub(before) <= reach;
        }
        let (last, its) = self.last.replace((version, written))?;
        let step = version.wrapping_sub(last) as i64;
        let before = self.step.replace(step);
        let is_scan = step != 0 && (step.unsigned_abs() == 1 || before == Some(step));
        self.returns_soon &= !is_scan;
        let direction = match written > its {
            true => Direction::OldestFirst,
            false => Direction::NewestFirst,
        };
        is_scan.then_some((direction, step.unsigned_abs() == 1))
    }
}
