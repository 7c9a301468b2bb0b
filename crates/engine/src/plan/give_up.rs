//! Versions that nobody will ask for again: dropped, or consumed and discarded.

use super::Plan;
use super::event::{Command, Refusal, TierId};
use super::history::Copy;
use super::in_place::FASTEST;
use super::prefetch::advance;
use crate::Version;
use tierflow_lifecycle::Event as Move;

impl Plan {
    /// Nobody will ask for `version` again: no more I/O for it, and its copies go as soon as nobody uses them.
    pub(super) fn doom(&mut self, version: Version) {
        let Some(record) = self.records.get_mut(&version) else {
            return;
        };
        if record.doomed {
            return;
        }
        record.doomed = true;
        self.foresight.gone(record.size);
        self.guesses.gone(version);
        let waiting = std::mem::take(&mut record.waiting);
        let mut under_way = Vec::new();
        for (index, copy) in record.copies.iter_mut().enumerate() {
            let Some(copy) = copy else { continue };
            if record.heirs == 0 || TierId(index) == FASTEST {
                under_way.extend(copy.incoming);
            } else if copy.is_pinned() {
                // It is kept for others: nobody will consume it.
                advance(&mut copy.state, Move::Consumed);
            }
        }
        if self.order.next(version).is_some() {
            self.order.forget(version);
            self.rewind();
        }
        for ticket in waiting {
            self.finish(ticket, Err(Refusal::Discarded));
        }
        self.commands
            .extend(under_way.into_iter().map(|id| Command::Cancel { id }));
    }

    /// Frees what can be freed of a doomed version.
    pub(super) fn reap(&mut self, version: Version) {
        if self.records.get(&version).is_some_and(|r| r.doomed) {
            // Else what it builds upon would be kept, and flushed, for nobody.
            self.renounce(version);
        }
        let Some(record) = self.records.get(&version).filter(|r| r.doomed) else {
            return;
        };
        let idle: Vec<_> = (0..record.copies.len())
            .map(TierId)
            .filter(|&tier| !record.is_needed(tier))
            .filter(|&tier| record.copy(tier).is_some_and(Copy::is_idle))
            .collect();
        for tier in idle {
            self.release(tier, version);
        }
        if self
            .records
            .get(&version)
            .is_some_and(|r| r.copies.iter().all(Option::is_none))
        {
            let record = self.records.remove(&version);
            if record.is_some_and(|record| !record.adopted) {
                self.discarded.insert(version);
            }
        }
    }
}
