//! Short extents of one version that move in one transfer.

use super::super::{Purpose, Traffic};
use super::{End, Link, Part};
use crate::TierId;
use crate::record::Extent;

impl Traffic {
    /// Returns a short extent with those beside it that can move in one transfer with it, if there are some, until they are as long as the least extent together: those
    /// behind it if a front moves first, else those before it. At most as many bytes as the part and a transfer may have.
    pub(super) fn with_neighbours(
        &self,
        purpose: Purpose,
        part: Part,
        Link { from, to }: Link,
    ) -> Option<Vec<(u64, TierId)>> {
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
        let mut parts = vec![(start, from)];
        let record = ledger.records.get(&version)?;
        let mut at = record.index_of(start)?;
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
            parts.push((extent.start, from));
        }
        parts.sort_unstable();
        (parts.len() > 1).then_some(parts)
    }
}
