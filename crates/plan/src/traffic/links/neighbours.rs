//! Short extents of one version that move in one transfer.

use super::super::{Purpose, Traffic};
use super::{End, Link, Part};
use crate::ledger::{Outlook, RoomBytes, RoomRequest};
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
        outlook: &Outlook,
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
        let runs = self.ledger.make_room(to, bytes, request, outlook)?;
        // The evictions may have removed the version.
        let part = |start| {
            self.ledger.replica((version, start), from)?;
            Some((start, from))
        };
        let parts: Option<Vec<_>> = starts.into_iter().map(part).collect();
        let is_there = parts.is_some();
        if let Some(parts) = parts {
            self.launch(purpose, version, parts, to, runs);
        }
        Some(is_there)
    }

    /// Returns a short extent with those beside it that can move in one transfer with it, until they are as long as the least extent together: those
    /// behind it if a front moves first, else those before it. At most as many bytes as the part and a transfer may have.
    fn with_neighbours(
        &self,
        purpose: Purpose,
        Part {
            id: (version, start),
            end,
            most,
        }: Part,
        Link { from, to }: Link,
    ) -> Vec<u64> {
        let ledger = &self.ledger;
        let (least, most) = (ledger.extents.least, most.min(ledger.part(from, to)));
        let comes_along = |extent: &Extent| {
            let mut replicas = extent.replicas.iter();
            let is_missing = match purpose {
                Purpose::WriteBack => replicas.all(|replica| replica.tier < to),
                Purpose::Prefetch => replicas.all(|replica| replica.tier >= from),
            };
            let source = self.source(purpose, (version, extent.start), to);
            is_missing && source == Some(from) && ledger.is_divisible((version, extent.start))
        };
        let mut starts = vec![start];
        let Some(record) = ledger.records.get(&version) else {
            return starts;
        };
        let Some(mut at) = record.index_of(start) else {
            return starts;
        };
        let mut bytes = record.extents[at].len;
        while bytes < least {
            at = match end {
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
