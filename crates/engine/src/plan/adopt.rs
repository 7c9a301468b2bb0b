//! What was there before: versions that an earlier run left on a tier that outlives it.

use super::event::{Difference, TierId};
use super::history::{Copy, Record};
use super::prefetch::advance;
use super::{Place, Plan};
use crate::Version;
use tierflow_lifecycle::{Event as Move, State};

impl Plan {
    /// Takes in a version as if it had been written to `tier` long ago.
    pub(super) fn adopt(
        &mut self,
        version: Version,
        size: u64,
        tier: TierId,
        difference: Option<Difference>,
    ) {
        let record = self.records.get(&version);
        let fits_in = record.is_none_or(|record| {
            let same = record.adopted && !record.doomed && record.size == size;
            same && record.copy(tier).is_none()
        }) && self.may_lie((version, size), tier, difference);
        let bytes = difference.map_or(size, |difference| difference.bytes);
        let Some(this) = self.tiers.get_mut(tier.0) else {
            return;
        };
        if size == 0 || !fits_in || self.discarded.contains(version) {
            return;
        }
        let reserved = this.table.reserved(bytes);
        let gap = this.table.first_gap(reserved);
        let Some(slot) = gap.and_then(|offset| this.table.insert(offset, version, bytes).ok())
        else {
            return;
        };
        this.statistics.peak_bytes = this.statistics.peak_bytes.max(this.table.used());
        if record.is_none() {
            let is_hinted = self.order.next(version).is_some();
            if is_hinted {
                self.unwritten = self.unwritten.saturating_sub(1);
            }
            self.foresight.begun(size, is_hinted);
        }
        let mut state = State::Init;
        advance(&mut state, Move::WriteBegan);
        advance(&mut state, Move::WriteEnded);
        let tiers = self.tiers.len();
        let new = Record {
            adopted: true,
            ..Record::new(size, tiers)
        };
        let record = self.records.get_or_insert(version, new);
        record.copies[tier.0] = Some(Copy {
            place: Place {
                tier,
                offset: slot.offset,
                size: slot.size,
                reserved: slot.reserved,
            },
            state,
            readers: 0,
            incoming: None,
            queued_at: None,
            written: self.tick,
            used: self.tick,
        });
        let has_lower = record.has_lower(tier);
        match difference {
            Some(difference) => self.lies_different(version, difference),
            None => self.lies_whole(version, tier),
        }
        if !has_lower {
            self.enqueue_flush(version, tier);
        }
        if self.order.next(version).is_some() {
            self.rewind();
        }
    }
}
