//! Cutting versions into extents, and joining these again.

use super::Ledger;
use crate::config::ExtentSize;
use crate::order::ExtentId;
use crate::record::{Extent, Record, Replica};
use crate::{TierId, Version};

/// The most extents, approximately, into which a version is cut. A gap shorter than one of them, less than a hundredth
/// of the version's bytes, is lost to it.
const MOST_EXTENTS: u64 = 128;

impl Ledger {
    /// Cuts an extent in two, the first of `len` bytes. The bytes must be at rest.
    pub(crate) fn split(&mut self, (version, start): ExtentId, len: u64) {
        let one = |record: &Record| record.index_of(start).map(|at| at..at + 1);
        self.change_extents(version, one, |record, at, tiers| {
            let first = &mut record.extents[at.start];
            let mut second = Extent {
                start: start + len,
                len: first.len - len,
                replicas: first.replicas.clone(),
            };
            first.len = len;
            let behind = (version, second.start);
            for (first, second) in first.replicas.iter_mut().zip(&mut second.replicas) {
                tiers[first.tier.0].space.split(first.offset, len, behind);
                first.size = len;
                second.offset += len;
                second.size -= len;
            }
            record.extents.insert(at.end, second);
            at.end += 1;
        });
    }

    /// Returns the bytes of one transfer between two tiers.
    pub(crate) fn part(&self, from: TierId, to: TierId) -> u64 {
        let part = self.tier(from.max(to)).config.part;
        self.extents.most.max(part.next_multiple_of(self.unit))
    }

    /// Returns true if an extent may be cut.
    pub(crate) fn is_divisible(&self, (version, start): ExtentId) -> bool {
        let is_whole = |replica: &Replica| self.tier(replica.tier).config.whole;
        self.are_cut()
            && self
                .extent((version, start))
                .is_some_and(|extent| extent.is_at_rest() && !extent.replicas.iter().all(is_whole))
    }

    /// Returns the bytes of which a version's extents are multiples, except its last. Smaller gaps are left alone: used
    /// one by one, they would grind versions down to units.
    pub(crate) fn grain(&self, version: Version) -> u64 {
        let size = self.records.get(&version).map_or(0, |record| record.size);
        let units = (size / MOST_EXTENTS).min(self.extents.least) / self.unit;
        units
            .checked_ilog2()
            .map_or(self.unit, |log| self.unit << log)
    }

    /// Returns the offset at which to cut an extent so that the first part has at most `bytes`; `None` if either part
    /// would be shorter than the least extent.
    pub(crate) fn cut_front(&self, id: ExtentId, bytes: u64) -> Option<u64> {
        let ExtentSize { least, .. } = self.extents;
        let most = bytes.min(self.extent(id)?.len.checked_sub(least)?);
        let grain = self.grain(id.0);
        let at = most / grain * grain;
        (at >= least).then_some(at)
    }

    /// Returns the offset at which to cut so that the second part has at most `bytes`.
    pub(crate) fn cut_back(&self, id: ExtentId, bytes: u64) -> Option<u64> {
        let ExtentSize { least, .. } = self.extents;
        let len = self.extent(id)?.len;
        let grain = self.grain(id.0);
        let at = len.checked_sub(bytes)?.max(least).div_ceil(grain) * grain;
        (at < len).then_some(at)
    }

    /// Joins an extent with the ones before and behind it if they lie side by side on all their tiers.
    pub(crate) fn merge(&mut self, (version, start): ExtentId) {
        let record = self.records.get(&version);
        if let Some(at) = record.and_then(|record| record.index_of(start)) {
            self.join(version, at);
            if at > 0 {
                self.join(version, at - 1);
            }
        }
    }

    /// Joins all extents of a version that can be joined.
    pub(crate) fn merge_all(&mut self, version: Version) {
        for at in (1..self.extents(version).len()).rev() {
            self.join(version, at - 1);
        }
    }

    /// Joins two neighbouring extents if they lie side by side on all their tiers.
    fn join(&mut self, version: Version, at: usize) {
        let are_cut = self.are_cut();
        let both = |record: &Record| match record.extents.get(at..at + 2)? {
            [first, second] if are_cut && record.readers == 0 && first.continues_in(second) => {
                Some(at..at + 2)
            }
            _ => None,
        };
        self.change_extents(version, both, |record, now, tiers| {
            let second = record.extents.remove(at + 1);
            let first = &mut record.extents[at];
            for replica in &mut first.replicas {
                let space = &mut tiers[replica.tier.0].space;
                space.merge(replica.offset, first.len);
                replica.size += second.len;
            }
            first.len += second.len;
            now.end -= 1;
        });
    }
}
