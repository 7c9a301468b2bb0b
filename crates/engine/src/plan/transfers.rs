//! Copies under way between tiers: their start, their end, their failure.

use super::Plan;
use super::differences::Base;
use super::event::{Coding, Command, Place, Stored, TierId, TransferFailure, TransferId};
use super::history::Copy;
use super::prefetch::advance;
use crate::Version;
use tierflow_lifecycle::{Event as Move, State};

/// Why a transfer was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// Down, so that the source becomes evictable.
    Flush,
    /// Up, so that a restore finds the version near.
    Prefetch,
    /// Up, though no hint names the version.
    Guess,
}

/// One transfer under way.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) purpose: Purpose,
    pub(super) version: Version,
    pub(super) from: TierId,
    pub(super) to: TierId,
    /// Copies of other versions that it reads.
    pub(super) bases: Vec<Base>,
    /// It makes a difference, to a version if there is one to build upon.
    pub(super) encodes: Option<Option<Version>>,
}

impl Plan {
    /// Starts copying `version` from its copy on `from` to the room claimed at `to`.
    pub(super) fn start(&mut self, purpose: Purpose, version: Version, from: TierId, to: Place) {
        let id = TransferId(self.next_transfer);
        let tick = self.tick;
        let Some(record) = self.records.get_mut(&version) else {
            return;
        };
        let Some(source) = record.copy_mut(from) else {
            return;
        };
        source.readers += 1;
        let source = source.place;
        let coding = self.code(purpose, version, from, to.tier);
        let (bases, encodes) = match &coding {
            Coding::Plain | Coding::Stored { .. } => (Vec::new(), None),
            Coding::Encode { base } => (Vec::new(), Some(*base)),
            Coding::Decode { bases } => {
                let bases = bases.iter().map(|&(base, place)| (base, place.tier));
                (bases.collect(), None)
            }
        };
        let mut state = State::Init;
        advance(
            &mut state,
            match purpose {
                Purpose::Flush => Move::WriteBegan,
                Purpose::Prefetch | Purpose::Guess => Move::ReadBegan,
            },
        );
        let Some(record) = self.records.get_mut(&version) else {
            return;
        };
        record.copies[to.tier.0] = Some(Copy {
            place: to,
            state,
            readers: 0,
            incoming: Some(id),
            queued_at: None,
            written: tick,
            used: tick,
        });
        self.next_transfer += 1;
        self.transfers.insert(
            id,
            Transfer {
                purpose,
                version,
                from,
                to: to.tier,
                bases,
                encodes,
            },
        );
        *self.under_way(purpose, from, to.tier) += 1;
        self.note(version);
        self.commands.push(Command::Transfer {
            id,
            version,
            from: source,
            to,
            coding,
        });
    }

    /// The counter that a transfer's depth limit looks at.
    fn under_way(&mut self, purpose: Purpose, from: TierId, to: TierId) -> &mut usize {
        match purpose {
            Purpose::Flush => &mut self.tiers[from.0].flushing,
            Purpose::Prefetch | Purpose::Guess => &mut self.tiers[to.0].prefetching,
        }
    }

    /// Takes a transfer off the books: its source is no longer read by it. That is no use of the source in the sense of
    /// LRU: else copies that were just flushed, which can go, would be the last to go.
    fn end(&mut self, id: TransferId) -> Option<Transfer> {
        let transfer = self.transfers.remove(&id)?;
        *self.under_way(transfer.purpose, transfer.from, transfer.to) -= 1;
        if let Some(source) = self
            .records
            .get_mut(&transfer.version)
            .and_then(|r| r.copy_mut(transfer.from))
        {
            source.readers = source.readers.saturating_sub(1);
        }
        Some(transfer)
    }

    pub(super) fn transfer_done(
        &mut self,
        id: TransferId,
        elapsed_ns: u64,
        stored: Option<Stored>,
    ) {
        let Some(Transfer {
            purpose,
            version,
            from,
            to,
            bases,
            encodes,
        }) = self.end(id)
        else {
            return;
        };
        if let Some(base) = encodes {
            self.encoded(version, to, base, stored);
        }
        let Some(record) = self.records.get_mut(&version) else {
            return;
        };
        let (carried, taken) = (record.size_on(to), record.size_on(from));
        let doomed = record.doomed;
        if let Some(copy) = record.copy_mut(to) {
            copy.incoming = None;
            advance(
                &mut copy.state,
                match purpose {
                    Purpose::Flush => Move::WriteEnded,
                    Purpose::Prefetch | Purpose::Guess => Move::ReadEnded,
                },
            );
            // If it is kept at all, it is for others: nobody will consume it.
            if doomed && copy.is_pinned() {
                advance(&mut copy.state, Move::Consumed);
            }
        }
        if let Some(source) = record.copy_mut(from) {
            match (purpose, source.state) {
                (Purpose::Flush, _) => advance(&mut source.state, Move::Flushed),
                // The copy nearer to the application is the one that will be read.
                (Purpose::Prefetch, State::ReadComplete) => {
                    advance(&mut source.state, Move::Consumed)
                }
                (Purpose::Prefetch | Purpose::Guess, _) => {}
            }
        }
        let hinted = self.order.next(version).is_some();
        if let Some(copy) = record.copy_mut(to)
            && purpose == Purpose::Guess
            && !hinted
            && !doomed
        {
            advance(&mut copy.state, Move::Unpinned);
        }
        self.hop(from, to).carried(carried, elapsed_ns);
        if purpose == Purpose::Flush {
            self.leave_flush_queue(version, from);
            self.tiers[from.0].backlog.measure(taken, elapsed_ns);
            self.tiers[to.0.saturating_sub(1)].pace.carried(taken);
            self.enqueue_flush(version, to);
        } else {
            self.tiers[to.0].fetches[from.0].measure(carried, elapsed_ns);
        }
        self.let_go(&bases);
        self.settle_version(version);
    }

    pub(super) fn transfer_failed(&mut self, id: TransferId, why: TransferFailure) {
        let Some(Transfer {
            purpose,
            version,
            from,
            to,
            bases,
            encodes,
        }) = self.end(id)
        else {
            return;
        };
        self.release(to, version);
        if let Some(base) = encodes {
            self.not_encoded(base);
        }
        self.let_go(&bases);
        let hop = self.hop(from, to);
        match why {
            TransferFailure::Cancelled => hop.cancelled += 1,
            TransferFailure::Source | TransferFailure::Destination => hop.failed += 1,
        }
        match (purpose, why) {
            (Purpose::Flush, TransferFailure::Destination | TransferFailure::Cancelled) => {
                self.tiers[to.0].closed |= why == TransferFailure::Destination;
                self.tiers[from.0].flushes.push_front(version);
            }
            // Not tried again by itself: a restore still asks every tier that has it.
            (_, _) => {
                self.leave_flush_queue(version, from);
                if let Some(record) = self.records.get_mut(&version) {
                    record.unreadable = true;
                }
            }
        }
        self.settle_version(version);
    }

    /// After anything ended that used `version`: frees it if it is doomed, serves who waited for it.
    pub(super) fn settle_version(&mut self, version: Version) {
        self.reap(version);
        self.note(version);
        let waiting = match self.records.get_mut(&version) {
            Some(record) => std::mem::take(&mut record.waiting),
            None => return,
        };
        for ticket in waiting {
            self.serve(ticket, version);
        }
    }
}
