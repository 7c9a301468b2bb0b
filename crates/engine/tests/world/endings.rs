//! What a model checker asks of the world: what may happen next, and whether it has been here before.

use super::World;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use tierflow_engine::plan::{Place, Ticket, TierId, TransferFailure};

/// How one thing under way ends: which version, on which tiers, and whether well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Ending {
    Write(u64, TierId, bool),
    Read(u64, TierId, bool),
    Transfer(u64, TierId, TierId, Result<(), TransferFailure>),
}

impl Ending {
    pub(crate) fn is_well(self) -> bool {
        match self {
            Self::Write(_, _, ok) | Self::Read(_, _, ok) => ok,
            Self::Transfer(_, _, _, how) => how.is_ok(),
        }
    }

    /// Orders endings in any way that is always the same.
    fn key(&self) -> (u8, u64, TierId, TierId) {
        match *self {
            Self::Write(version, tier, ok) => (u8::from(ok), version, tier, tier),
            Self::Read(version, tier, ok) => (2 + u8::from(ok), version, tier, tier),
            Self::Transfer(version, from, to, how) => {
                let how = match how {
                    Ok(()) => 4,
                    Err(TransferFailure::Cancelled) => 5,
                    Err(TransferFailure::Source) => 6,
                    Err(TransferFailure::Destination) => 7,
                };
                (how, version, from, to)
            }
        }
    }

    /// It is what the plan asked for itself.
    pub(crate) fn is_cancelled(self) -> bool {
        matches!(
            self,
            Self::Transfer(_, _, _, Err(TransferFailure::Cancelled))
        )
    }
}

impl World {
    /// How many things are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.writing.len() + self.reading.len() + self.transfers.len()
    }

    /// Every way in which what is under way may end. Things that nothing tells apart end in the same way.
    pub(crate) fn endings(&self) -> Vec<Ending> {
        let mut endings = Vec::new();
        for &(_, version, place) in &self.writing {
            endings.extend([true, false].map(|ok| Ending::Write(version, place.tier, ok)));
        }
        for &(_, version, place) in &self.reading {
            endings.extend([true, false].map(|ok| Ending::Read(version, place.tier, ok)));
        }
        for (id, version, from, to) in &self.transfers {
            let ending = |how| Ending::Transfer(*version, from.tier, to.tier, how);
            endings.push(ending(Ok(())));
            if self.cancelled.contains(id) {
                endings.push(ending(Err(TransferFailure::Cancelled)));
            }
            let failures = [TransferFailure::Source, TransferFailure::Destination];
            endings.extend(failures.map(|why| ending(Err(why))));
        }
        endings.sort_unstable_by_key(Ending::key);
        endings.dedup();
        endings
    }

    /// Ends one thing as said.
    pub(crate) fn end(&mut self, ending: Ending) {
        let is_caller = |calls: &VecDeque<(Ticket, u64, Place)>, version, tier| {
            let mut calls = calls.iter();
            calls
                .position(|c| (c.1, c.2.tier) == (version, tier))
                .unwrap()
        };
        match ending {
            Ending::Write(version, tier, ok) => {
                self.end_write(is_caller(&self.writing, version, tier), ok);
            }
            Ending::Read(version, tier, ok) => {
                self.end_read(is_caller(&self.reading, version, tier), ok);
            }
            Ending::Transfer(version, from, to, how) => {
                let mut transfers = self.transfers.iter();
                let which =
                    |t: &(_, u64, Place, Place)| (t.1, t.2.tier, t.3.tier) == (version, from, to);
                let index = transfers.position(which).unwrap();
                self.end_transfer_as(index, how);
            }
        }
    }

    /// Everything on which the future of plan and world depends. Bytes of versions that are gone are like any garbage.
    pub(crate) fn fingerprint<H: Hasher>(&self, hasher: &mut H) {
        self.plan.fingerprint(hasher);
        for tier in &self.bytes {
            let known = |byte: &Option<u64>| byte.filter(|version| !self.gone.contains(version));
            tier.iter().map(known).collect::<Vec<_>>().hash(hasher);
        }
        let open = self.open.iter();
        let mut open: Vec<_> = open
            .map(|(t, call)| (call, self.lent.contains(t)))
            .collect();
        open.sort_unstable();
        self.limits.hash(hasher);
        (open, &self.held, &self.gone, self.next_version).hash(hasher);
        self.endings().hash(hasher);
    }

    /// Calls without an answer. Whoever has a slot in place has it.
    pub(crate) fn open_calls(&self) -> usize {
        self.open.len() - self.slots()
    }
}
