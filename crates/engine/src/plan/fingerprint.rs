//! What tells two plans apart: all that decides what they will do, and nothing else.

use super::Plan;
use super::history::{Copy, Record};
use crate::Flush;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

impl Plan {
    /// Feeds everything to `hasher` on which the future depends, for a model checker that explores each state once.
    ///
    /// Two plans of one configuration with the same fingerprint answer the same events alike, up to the names of
    /// tickets and transfers. Logical times enter by their order alone, queues by what is left of them; what was
    /// counted does not enter.
    pub fn fingerprint<H: Hasher>(&self, hasher: &mut H) {
        (self.prefetch_started, self.starved, self.hurry).hash(hasher);
        (self.unwritten, self.sizes_vary, self.last_size).hash(hasher);
        if self.tiers.iter().any(|tier| tier.flush == Flush::Foreseen) {
            self.foresight.hash(hasher);
        }
        (self.largest_size, self.order.end() > 0).hash(hasher);
        self.guesses.fingerprint(hasher);
        (self.flushes_all, self.restores_in_a_row).hash(hasher);
        self.newest.hash(hasher);
        self.discarded.ranges.hash(hasher);
        self.order.queue.hash(hasher);
        self.callers.fingerprint(hasher);
        for (index, tier) in self.tiers.iter().enumerate() {
            (tier.closed, &tier.deferred).hash(hasher);
            tier.flushes.fingerprint(hasher);
            (tier.table.limit(), tier.vacating).hash(hasher);
            tier.backlog.fingerprint(hasher);
            tier.pace.hash(hasher);
            tier.fetches.hash(hasher);
            let ahead = tier.cursor.at.saturating_sub(self.order.head());
            (ahead, tier.cursor.bytes).hash(hasher);
            for fragment in tier.table.fragments() {
                (fragment.offset, fragment.size, fragment.occupant).hash(hasher);
            }
            let written = self.ranks(index, |copy| copy.written);
            let used = self.ranks(index, |copy| copy.used);
            (written, used).hash(hasher);
        }
        let records: BTreeMap<_, _> = self.records.iter().collect();
        for (version, record) in records {
            version.hash(hasher);
            self.fingerprint_record(record, hasher);
        }
        let mut transfers: Vec<_> = self.transfers.values().collect();
        transfers.sort_by_key(|t| (t.version, t.from, t.to));
        for transfer in transfers {
            (
                transfer.version,
                transfer.from,
                transfer.to,
                transfer.purpose,
                &transfer.bases,
                transfer.encodes,
            )
                .hash(hasher);
        }
    }

    fn fingerprint_record<H: Hasher>(&self, record: &Record, hasher: &mut H) {
        let Record {
            size,
            copies,
            doomed,
            produced,
            unreadable,
            adopted,
            waiting,
            form,
            heirs,
        } = record;
        (form, heirs).hash(hasher);
        (size, doomed, produced, unreadable, adopted, waiting.len()).hash(hasher);
        let in_place = |ticket: &&super::Ticket| self.callers.lent.contains(*ticket);
        waiting.iter().filter(in_place).count().hash(hasher);
        for (copy, tier) in copies.iter().zip(&self.tiers) {
            let copy = copy.as_ref().map(|copy| {
                let ahead = copy.queued_at.map(|mark| tier.backlog.ahead(mark));
                let arriving = copy.incoming.is_some();
                (copy.place, copy.state, copy.readers, arriving, ahead)
            });
            copy.hash(hasher);
        }
    }

    /// The versions on a tier with the ranks of their times: equal times have equal ranks.
    fn ranks(&self, tier: usize, time: impl Fn(&Copy) -> u64) -> Vec<(crate::Version, usize)> {
        let copies = self.records.iter().filter_map(|(&version, record)| {
            let copy = record.copies.get(tier)?.as_ref()?;
            Some((time(copy), version))
        });
        let mut times: Vec<_> = copies.collect();
        times.sort_unstable();
        let ranked = times.chunk_by(|a, b| a.0 == b.0).enumerate();
        ranked
            .flat_map(|(rank, same)| same.iter().map(move |&(_, version)| (version, rank)))
            .collect()
    }
}
