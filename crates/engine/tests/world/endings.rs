//! What a model checker asks of the world: what may happen next, and whether it has been here before.

use super::World;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use tierflow_engine::plan::{AfterRestore, Coding, Event, Place, Ticket, TierId, TransferFailure};

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
    /// Ends the `which`-th thing under way; false if nothing is.
    pub(crate) fn end_one(&mut self, which: usize, ok: bool) -> bool {
        let (writing, reading, transfers) =
            (self.writing.len(), self.reading.len(), self.transfers.len());
        let total = writing + reading + transfers;
        if total == 0 {
            return false;
        }
        let which = which % total;
        if which < writing {
            self.end_write(which, ok);
        } else if which < writing + reading {
            self.end_read(which - writing, ok);
        } else {
            self.end_transfer(which - writing - reading, ok);
        }
        true
    }

    fn end_write(&mut self, index: usize, ok: bool) {
        let (ticket, version, place) = self.writing.remove(index).unwrap();
        self.open.remove(&ticket);
        self.span(&place).fill(ok.then_some(version));
        if ok && !self.gone.contains(&version) {
            self.held.insert(version, place.size);
        }
        self.tell(Event::Written { ticket, ok });
    }

    fn end_read(&mut self, index: usize, ok: bool) {
        let (ticket, version, place) = self.reading.remove(index).unwrap();
        self.open.remove(&ticket);
        assert!(
            self.span(&place).iter().all(|&b| b == Some(version)),
            "version {version} came back wrong"
        );
        match self.decoded.remove(&ticket) {
            Some(bases) => self.assert_decodes(version, bases),
            None => assert!(place.size == self.held.get(&version).copied().unwrap_or(place.size)),
        }
        // Of two that read it, the first one consumes it.
        if ok && self.after == AfterRestore::Discard && self.held.contains_key(&version) {
            self.forget(version);
        }
        self.tell(Event::Read { ticket, ok });
    }

    fn end_transfer(&mut self, index: usize, ok: bool) {
        let id = self.transfers[index].0;
        let how = match (ok, self.cancelled.contains(&id), id.0 % 2) {
            (true, ..) => Ok(()),
            (false, true, _) => Err(TransferFailure::Cancelled),
            (false, false, 0) => Err(TransferFailure::Source),
            (false, false, _) => Err(TransferFailure::Destination),
        };
        self.end_transfer_as(index, how);
    }

    fn end_transfer_as(&mut self, index: usize, how: Result<(), TransferFailure>) {
        let (id, version, from, to) = self.transfers.remove(index).unwrap();
        self.cancelled.remove(&id);
        let coding = self.codings.remove(&id).unwrap();
        let encodes = matches!(coding, Coding::Encode { .. });
        if encodes {
            self.newest = None;
        }
        if let Err(why) = how {
            // Whatever a failed transfer left is garbage.
            self.span(&to).fill(None);
            self.tell(Event::TransferFailed { id, why });
        } else {
            assert!(
                self.span(&from).iter().all(|&b| b == Some(version)),
                "a transfer read foreign bytes"
            );
            let mut stored = None;
            match coding {
                Coding::Plain => self.span(&to).fill(Some(version)),
                Coding::Stored { base, size } => {
                    // Of what is gone, nothing is known any more but that others build upon it.
                    let held = self.held.get(&version).copied();
                    assert_eq!((self.bases[&version], held.unwrap_or(size)), (base, size));
                    self.span(&to).fill(Some(version));
                }
                Coding::Decode { bases } => {
                    self.assert_decodes(version, bases);
                    self.span(&to).fill(Some(version));
                }
                Coding::Encode { base } => {
                    stored = Some(self.encode(version, base, &to));
                }
            }
            self.tell(Event::TransferDone {
                id,
                elapsed_ns: place_cost(&to),
                stored,
            });
        }
    }

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

fn place_cost(place: &Place) -> u64 {
    place.size * 10 * (1 + place.tier.0 as u64)
}
