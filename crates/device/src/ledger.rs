//! The ledger of loans: a run-time borrow checker for memory that the compiler cannot see into.
//!
//! Each byte has many readers or one writer. Live loans are few (one or two for each transfer in flight), so one vector
//! holds them, sorted by start. A conflicting loan starts before the end of the range asked for, and at most `longest`
//! bytes before the start of that range; the search reads only these loans.

use std::ops::Range;

use crate::error::{Access, Error, Invalid, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    start: usize,
    end: usize,
    access: Access,
}

/// The loans of one memory, and the parts that have memory behind them.
#[derive(Debug)]
pub(crate) struct Ledger {
    len: usize,
    /// Usable ranges: sorted, disjoint, never touching.
    mapped: Vec<Range<usize>>,
    /// Live loans, sorted by start. Equal entries are interchangeable, so any of them may be given back.
    live: Vec<Entry>,
    /// Upper bound on the length of live loans, in bytes. The bound shrinks only when nothing is lent.
    longest: usize,
}

impl Ledger {
    /// Makes a ledger for `len` bytes of addresses without memory.
    pub(crate) fn reserved(len: usize) -> Self {
        Self {
            len,
            mapped: Vec::new(),
            live: Vec::new(),
            longest: 0,
        }
    }

    /// Makes a ledger for `len` usable bytes.
    pub(crate) fn usable(len: usize) -> Self {
        let all = 0..len;
        Self {
            mapped: Vec::from([all]),
            ..Self::reserved(len)
        }
    }

    pub(crate) fn in_bounds(&self, range: &Range<usize>) -> Result<()> {
        if range.start <= range.end && range.end <= self.len {
            return Ok(());
        }
        Err(Invalid::OutOfBounds {
            range: range.clone(),
            len: self.len,
        }
        .into())
    }

    pub(crate) fn lend(&mut self, range: &Range<usize>, access: Access) -> Result<()> {
        self.in_bounds(range)?;
        if range.is_empty() {
            return Ok(());
        }
        if !self.is_mapped(range) {
            return Err(Invalid::Unmapped {
                range: range.clone(),
            }
            .into());
        }
        let before_end = self.live.partition_point(|entry| entry.start < range.end);
        for entry in self.live[..before_end].iter().rev() {
            if entry.start.saturating_add(self.longest) <= range.start {
                break;
            }
            let overlaps = entry.end > range.start;
            let shared = access == Access::Read && entry.access == Access::Read;
            if overlaps && !shared {
                return Err(Error::Busy {
                    asked: range.clone(),
                    overlaps: entry.start..entry.end,
                    held: entry.access,
                });
            }
        }
        self.insert(Entry {
            start: range.start,
            end: range.end,
            access,
        });
        Ok(())
    }

    pub(crate) fn give_back(&mut self, range: &Range<usize>, access: Access) {
        if range.is_empty() {
            return;
        }
        let found = self.remove(Entry {
            start: range.start,
            end: range.end,
            access,
        });
        debug_assert!(found, "every loan is in the ledger once");
        if self.live.is_empty() {
            self.longest = 0;
        }
    }

    /// Splits a loan in two. The bytes stay lent throughout.
    pub(crate) fn split(&mut self, range: &Range<usize>, at: usize, access: Access) {
        let Range { start, end } = *range;
        if at == start || at == end {
            return;
        }
        if self.remove(Entry { start, end, access }) {
            self.insert(Entry {
                start,
                end: at,
                access,
            });
            self.insert(Entry {
                start: at,
                end,
                access,
            });
        }
    }

    /// Turns a loan for writing into one for reading.
    pub(crate) fn downgrade(&mut self, range: &Range<usize>) {
        let Range { start, end } = *range;
        if self.remove(Entry {
            start,
            end,
            access: Access::Write,
        }) {
            self.insert(Entry {
                start,
                end,
                access: Access::Read,
            });
        }
    }

    /// Adds a range that is usable from now on. The range is in bounds and not mapped.
    pub(crate) fn add_mapped(&mut self, range: Range<usize>) {
        let at = self.mapped.partition_point(|old| old.start < range.start);
        self.mapped.insert(at, range);
        self.mapped.dedup_by(|later, earlier| {
            let touching = earlier.end >= later.start;
            if touching {
                earlier.end = earlier.end.max(later.end);
            }
            touching
        });
    }

    /// Removes a range that is unmapped from now on. Only the caller may hold a loan of it.
    pub(crate) fn remove_mapped(&mut self, range: &Range<usize>) {
        let kept = self.mapped.iter().flat_map(|old| {
            let before = old.start..old.end.min(range.start);
            let after = old.start.max(range.end)..old.end;
            [before, after]
        });
        self.mapped = kept.filter(|part| !part.is_empty()).collect();
    }

    pub(crate) fn is_mapped(&self, range: &Range<usize>) -> bool {
        let after = self.mapped.partition_point(|old| old.start <= range.start);
        after > 0 && self.mapped[after - 1].end >= range.end
    }

    pub(crate) fn overlaps_mapped(&self, range: &Range<usize>) -> bool {
        let before_end = self.mapped.partition_point(|old| old.start < range.end);
        before_end > 0 && self.mapped[before_end - 1].end > range.start
    }

    pub(crate) fn mapped_bytes(&self) -> usize {
        self.mapped
            .iter()
            .map(|range| range.end - range.start)
            .sum()
    }

    pub(crate) fn live_loans(&self) -> usize {
        self.live.len()
    }

    fn insert(&mut self, entry: Entry) {
        let at = self.live.partition_point(|old| old.start <= entry.start);
        self.longest = self.longest.max(entry.end - entry.start);
        self.live.insert(at, entry);
    }

    fn remove(&mut self, entry: Entry) -> bool {
        let first = self.live.partition_point(|old| old.start < entry.start);
        let same_start = self.live[first..]
            .iter()
            .take_while(|old| old.start == entry.start);
        let Some(at) = same_start
            .enumerate()
            .find_map(|(i, old)| (*old == entry).then_some(i))
        else {
            return false;
        };
        self.live.remove(first + at);
        true
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
