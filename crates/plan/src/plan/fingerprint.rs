//! A fingerprint of all that decides what a plan will do, and of nothing else. Every struct is taken apart, so that a
//! new field cannot be forgotten.

use super::Plan;
use super::calls::{Calls, ReadCall};
use crate::hints::Hints;
use crate::ledger::{Ledger, Tier};
use crate::order::Position;
use crate::record::{Extent, Record, Replica};
use crate::traffic::{Flight, Traffic};
use crate::{Ticket, TierId, Version};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

impl Plan {
    /// Feeds all state that decides the future to `hasher`, for a model checker that explores each state once.
    ///
    /// Two plans of one configuration with the same fingerprint answer the same events alike, up to the names of
    /// tickets and transfers. Logical times enter by their order alone; counts and the driver's clock do not enter.
    pub fn fingerprint<H: Hasher>(&self, hasher: &mut H) {
        let Self {
            traffic,
            calls,
            phase,
        } = self;
        phase.hash(hasher);
        traffic.fingerprint(hasher);
        calls.fingerprint(&traffic.ledger, hasher);
    }
}

impl Traffic {
    fn fingerprint<H: Hasher>(&self, hasher: &mut H) {
        let Self {
            ledger,
            flights,
            depths,
            next: _,
            now_ns: _,
            // Found anew before they are used.
            write_waits: _,
            settles: _,
            prefetch_blocked,
            // Measured times decide nothing that follows from an event.
            pace: _,
            ended: _,
            suspension,
        } = self;
        (depths, prefetch_blocked, suspension).hash(hasher);
        ledger.fingerprint(hasher);
        let flights = flights.values().map(|flight| {
            let Flight {
                purpose,
                version,
                parts,
                to,
                bytes: _,
                begun_ns: _,
                service: _,
                bases,
                encodes,
            } = flight;
            (
                *version,
                parts.clone(),
                *to,
                *purpose,
                bases.clone(),
                *encodes,
            )
        });
        let mut flights: Vec<_> = flights.collect();
        flights.sort_unstable();
        flights.hash(hasher);
    }
}

impl Ledger {
    fn fingerprint<H: Hasher>(&self, hasher: &mut H) {
        let Self {
            tiers,
            records,
            discarded,
            hints,
            hints_reach_far,
            predictor,
            order,
            outlook: _,
            contest,
            last_read,
            policy: _,
            windows,
            after_restore: _,
            extents: _,
            unit: _,
            differences: _,
            members: _,
            // Follows from the records.
            encoded_sizes: _,
            latest_encoding,
            tick: _,
            commands: _,
            failing,
            settled: _,
            statistics: _,
            evictions: _,
        } = self;
        let awaited = windows.as_ref().map(|windows| &windows.awaited);
        (discarded, latest_encoding, order.scan(), awaited).hash(hasher);
        failing.hash(hasher);
        last_read.hash(hasher);
        (contest.costs(), contest.below_head()).hash(hasher);
        hints.fingerprint(hasher);
        let given = hints.last_before(predictor.first_hinted()).count();
        (hints_reach_far, predictor, given).hash(hasher);
        for tier in tiers {
            let Tier {
                config: _,
                space,
                // The sets follow from the records.
                sets: _,
                owed: _,
                unsent: _,
                callers: _,
                closed,
                vacating,
            } = tier;
            (closed, vacating, space.limit()).hash(hasher);
        }
        let ranks = |of: &dyn Fn(&Record) -> Position| {
            let mut positions: Vec<_> = records.iter().map(|(&v, r)| (of(r), v)).collect();
            positions.sort_unstable();
            positions
                .into_iter()
                .map(|(_, v)| v)
                .collect::<Vec<Version>>()
        };
        ranks(&|record| order.position(record.key)).hash(hasher);
        let times = |of: &dyn Fn(&Record) -> Option<u64>| {
            let mut times: Vec<_> = records.iter().map(|(&v, r)| (of(r), v)).collect();
            times.sort_unstable();
            let ranked = times.chunk_by(|a, b| a.0 == b.0).enumerate();
            let ranked = ranked.flat_map(|(rank, same)| same.iter().map(move |s| (rank, s.1)));
            ranked.collect::<Vec<_>>()
        };
        (times(&|r| Some(r.written)), times(&|r| r.read)).hash(hasher);
        for (version, record) in records.iter().collect::<BTreeMap<_, _>>() {
            version.hash(hasher);
            record.fingerprint(hasher);
        }
    }
}

impl Record {
    fn fingerprint<H: Hasher>(&self, hasher: &mut H) {
        let Self {
            size,
            asked: _,
            key: _,
            written: _,
            read: _,
            reads,
            reuse,
            extents,
            readers,
            waiting,
            is_taken_in,
            produced,
            discarded,
            unreadable,
            adopted,
            form,
            dependents,
        } = self;
        (
            size,
            reads,
            reuse,
            readers,
            waiting.len(),
            form,
            dependents.len(),
        )
            .hash(hasher);
        (is_taken_in, produced, discarded, unreadable, adopted).hash(hasher);
        for extent in extents {
            let Extent {
                start,
                len,
                replicas,
            } = extent;
            (start, len).hash(hasher);
            for replica in replicas {
                let Replica {
                    tier,
                    state,
                    readers,
                    arriving,
                    offset,
                    size,
                    damaged,
                } = replica;
                let is_arriving = arriving.is_some();
                (tier, state, readers, is_arriving, offset, size, damaged).hash(hasher);
            }
        }
    }
}

impl Hints {
    fn fingerprint<H: Hasher>(&self, hasher: &mut H) {
        self.from(0).collect::<Vec<_>>().hash(hasher);
        self.unwritten().hash(hasher);
    }
}

impl Calls {
    /// Calls are told apart by their subjects, not by their tickets.
    fn fingerprint<H: Hasher>(&self, ledger: &Ledger, hasher: &mut H) {
        let Self {
            open: _,
            lists: _,
            in_place,
            blocked,
            writing,
            reading,
            waiting,
            awaiting,
            suspending,
        } = self;
        let wanted = suspending.map(|call| call.suspension);
        wanted.map(|s| (s.version, s.scope)).hash(hasher);
        let is_slot = |ticket: &Ticket| in_place.contains(ticket);
        let blocked = blocked.iter();
        let blocked = blocked.map(|b| (b.version, b.size, is_slot(&b.ticket)));
        let writing = writing.iter();
        let mut writing: Vec<_> = writing.map(|(t, call)| (call, is_slot(t))).collect();
        let reading = reading.iter().map(|(ticket, reading)| {
            let ReadCall {
                version,
                parts,
                bases,
            } = reading;
            (version, parts, bases, is_slot(ticket))
        });
        let mut reading: Vec<_> = reading.collect();
        writing.sort_unstable();
        reading.sort_unstable();
        (blocked.collect::<Vec<_>>(), writing, reading).hash(hasher);
        let slots = ledger.records.iter().map(|(&version, record)| {
            let slots = record.waiting.iter().map(is_slot);
            (version, slots.collect::<Vec<_>>())
        });
        slots.collect::<BTreeMap<_, _>>().hash(hasher);
        let last: TierId = ledger.last();
        let owed = ledger.tier(last).owed.iter().flatten();
        let awaiting = awaiting.iter();
        let awaiting: Vec<_> = awaiting.map(|(v, tickets)| (v, tickets.len())).collect();
        awaiting.hash(hasher);
        for (moment, _) in waiting {
            let before = owed.clone().filter(|(written, _)| written <= moment);
            before
                .map(|&(_, version)| version)
                .collect::<Vec<_>>()
                .hash(hasher);
        }
    }
}
