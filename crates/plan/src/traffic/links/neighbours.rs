//! Short extents of one version that move in one transfer.

use super::super::{Purpose, Traffic};
use super::{End, Link, Part};
use crate::ledger::{RoomBytes, RoomRequest};
use crate::record::Extent;

impl Traffic {
    /// Starts to copy a short extent with those beside it. Returns false if the version is gone by then, and `None` if the extent moves alone: there are none, or there
    /// is no room for them.
    pub(super) fn carry_together(
        &mut self,
        purpose: Purpose,
        part: Part,
        link: Link,
        request: RoomRequest,
    ) -> Option<bool> {
        let (version, _) = part.id;
        let starts = self.with_neighbours(purpose, part, link);
        if starts.len() < 2 {
            return None;
        }
        let Link { from, to } = link;
        let ledger = &self.ledger;
        let lens = starts.iter().map(|&start| ledger.len((version, start)));
        let room = lens.map(|len| ledger.reserved_on(version, to, len));
        let bytes = RoomBytes::exactly(room.sum());
        let runs = self.ledger.make_room(to, bytes, request)?;
        // The evictions may have removed the version.
        let part = |start| {
            self.ledger.replica((version, start), from)?;
            Some((start, from))
        };
        let parts: Option<Vec<_>> = starts.into_iter().map(part).collect();
        let Some(parts) = parts else {
            return Some(false);
        };
        self.launch(purpose, version, parts, to, runs);
        Some(true)
    }

    /// Returns a short extent with those beside it that can move in one transfer with it, until they are as long as the least extent together: those
    /// behind it if a front moves first, else those before it. At most as many bytes as the part and a transfer may have.
    fn with_neighbours(&self, purpose: Purpose, part: Part, Link { from, to }: Link) -> Vec<u64> {
        let ledger = &self.ledger;
        let (version, start) = part.id;
        let most = part.most.min(ledger.part(from, to));
        let comes_along = |extent: &Extent| {
            let id = (version, extent.start);
            let is_there = match purpose {
                Purpose::WriteBack => extent.has(|replica| replica.tier >= to),
                Purpose::Prefetch => extent.has(|replica| replica.tier < from),
            };
            !is_there && self.source(purpose, id, to) == Some(from) && ledger.is_divisible(id)
        };
        let mut starts = vec![start];
        let record = ledger.records.get(&version);
        let Some((record, mut at)) = record.and_then(|r| Some((r, r.index_of(start)?))) else {
            return starts;
        };
        let mut bytes = record.extents[at].len;
        while bytes < ledger.extents.least {
            at = match part.end {
                End::Front => at + 1,
                End::Back => at.wrapping_sub(1),
            };
            let next = record.extents.get(at);
            let Some(extent) = next.filter(|next| bytes + next.len <= most && comes_along(next))
            else {
                break;
            };
            bytes += extent.len;
            starts.push(extent.start);
        }
        starts.sort_unstable();
        starts
    }
}
