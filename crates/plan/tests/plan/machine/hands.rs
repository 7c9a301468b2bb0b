//! The machine's executor. Every byte knows its version, and the executor checks that the plan gives out no place in use.

use super::Call;
use std::collections::{BTreeMap, BTreeSet};
use tierflow_plan::{
    AfterRestore, Coding, Executor, Piece, Place, Refusal, Ticket, TierId, Transfer, TransferId,
    Version,
};

/// The content of one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Byte {
    /// A byte of a version, by its number.
    Of(Version, u64),
    /// A byte of a version's difference.
    Difference(Version),
}

/// Carries out the commands of the plan.
#[derive(Clone, Default)]
pub(super) struct Hands {
    pub(super) bytes: Vec<Vec<Option<Byte>>>,
    pub(super) after: AfterRestore,
    /// The lowest tier on which versions lie as they are, if lower ones hold differences.
    pub(super) below: Option<TierId>,
    /// The codings of all transfers so far: from a tier, to a tier, and the coding's name.
    pub(super) codings: BTreeSet<(usize, usize, &'static str)>,
    pub(super) open: BTreeMap<Ticket, Call>,
    pub(super) in_place: BTreeSet<Ticket>,
    pub(super) writes: BTreeMap<Ticket, (Version, Vec<Piece>)>,
    pub(super) reads: BTreeMap<Ticket, (Version, Vec<Piece>, Coding)>,
    pub(super) transfers: BTreeMap<TransferId, Transfer>,
    pub(super) cancelled: BTreeSet<TransferId>,
    /// Transfers whose differences are made, so that they have their final places.
    pub(super) made: BTreeSet<TransferId>,
    /// The bases of differences, by version.
    pub(super) bases: BTreeMap<Version, Option<Version>>,
    /// The version whose difference was requested last, if that transfer has not failed.
    pub(super) newest: Option<Version>,
    /// The sizes of the versions that were taken in and not discarded.
    pub(super) held: BTreeMap<Version, u64>,
    pub(super) asked: BTreeMap<Version, u64>,
    pub(super) adopted: BTreeSet<Version>,
    pub(super) gone: BTreeSet<Version>,
    pub(super) limits: Vec<(u64, bool)>,
    pub(super) refused: Vec<(Call, Refusal)>,
    pub(super) done: Vec<Ticket>,
    /// The requested removals: a version and a tier each.
    pub(super) removed: Vec<(Version, usize)>,
    /// For each wait for all versions, the versions that were held when it began.
    pub(super) awaited: BTreeMap<Ticket, Vec<Version>>,
}

impl Hands {
    pub(super) fn span(&mut self, place: &Place) -> &mut [Option<Byte>] {
        let start = place.offset as usize;
        &mut self.bytes[place.tier.0][start..start + place.size as usize]
    }

    pub(super) fn overlaps(a: &Place, b: &Place) -> bool {
        a.tier == b.tier && a.offset < b.offset + b.reserved && b.offset < a.offset + a.reserved
    }

    /// Asserts that a place which the plan gives out to be written is not in use, and not beyond a limit.
    pub(super) fn assert_free(&self, place: &Place) {
        assert!(
            place.offset + place.reserved <= self.limits[place.tier.0].0,
            "{place:?} is beyond the limit"
        );
        let writes = self.writes.values().flat_map(|(_, pieces)| pieces);
        let reads = self.reads.values().flat_map(|(_, pieces, _)| pieces);
        let moved = self.transfers.values().flat_map(|transfer| {
            let encodes = matches!(transfer.coding, Coding::Encode { .. });
            let has_place = !encodes || self.made.contains(&transfer.id);
            let to = transfer.to.iter().filter(move |_| has_place);
            transfer.from.iter().chain(to)
        });
        let mut pieces = writes.chain(reads).chain(moved);
        assert!(
            !pieces.any(|piece| Self::overlaps(&piece.place, place)),
            "{place:?} is in use"
        );
        let codings = self.reads.values().map(|(.., coding)| coding);
        let codings = codings.chain(self.transfers.values().map(|t| &t.coding));
        for coding in codings {
            if let Coding::Decode { bases } = coding {
                assert!(
                    !bases.iter().any(|(_, base)| Self::overlaps(base, place)),
                    "{place:?} is read along"
                );
            }
        }
    }

    /// Asserts that the pieces have all bytes of the version in their order, or its difference.
    pub(super) fn assert_holds(&mut self, version: Version, pieces: &[Piece], coding: &Coding) {
        for piece in pieces {
            let is_difference = !matches!(coding, Coding::Plain | Coding::Encode { .. });
            for (at, byte) in self.span(&piece.place).iter().enumerate() {
                let expected = match is_difference {
                    true => Byte::Difference(version),
                    false => Byte::Of(version, piece.start + at as u64),
                };
                assert_eq!(*byte, Some(expected), "at {piece:?} + {at}");
            }
        }
        if let Coding::Decode { bases } = coding {
            let mut next = self.bases[&version];
            for (base, place) in bases {
                assert_eq!(next, Some(*base), "the chain of {version}");
                assert!(
                    self.span(place)
                        .iter()
                        .all(|byte| *byte == Some(Byte::Difference(*base)))
                );
                next = self.bases[base];
            }
            assert_eq!(next, None, "the chain of {version} ends");
        }
    }

    pub(super) fn assert_covers(&self, pieces: &[Piece], size: u64) {
        let mut end = 0;
        for piece in pieces {
            assert_eq!(piece.start, end);
            end += piece.place.size;
        }
        assert_eq!(end, size);
    }

    /// Notes that no difference of a version was made.
    pub(super) fn not_encoded(&mut self, version: Version) {
        self.newest = self.newest.filter(|newest| *newest != version);
    }

    /// Asserts that transfers encode and decode where versions cross the boundary. Below it, a version may also be stored as it is.
    fn assert_codes(&mut self, coding: &Coding, from: TierId, to: TierId) {
        let lies_encoded = |tier| self.below.is_some_and(|below| tier > below);
        let ends = (lies_encoded(from), lies_encoded(to));
        let (name, can_be) = match coding {
            Coding::Plain => ("plain", ends != (false, true)),
            Coding::Stored { .. } => ("stored", ends == (true, true)),
            Coding::Encode { .. } => ("encode", ends == (false, true)),
            Coding::Decode { .. } => ("decode", ends == (true, false)),
        };
        assert!(can_be, "{coding:?} from {from:?} to {to:?}");
        self.codings.insert((from.0, to.0, name));
    }

    /// Asserts that the lowest tier has the bytes of a version, or its difference and the bytes of all its bases.
    fn assert_durable(&self, version: Version) {
        let lowest = self.bytes.last().into_iter().flatten();
        let lowest: BTreeSet<Byte> = lowest.copied().flatten().collect();
        let mut next = Some(version);
        while let Some(link) = next {
            let size = self.held.get(&link).copied().unwrap_or(u64::MAX);
            let is_whole = (0..size).all(|at| lowest.contains(&Byte::Of(link, at)));
            let is_difference = lowest.contains(&Byte::Difference(link));
            assert!(
                is_whole || is_difference,
                "{version} counts as durable without {link}"
            );
            next = match is_whole {
                true => None,
                false => self.bases[&link],
            };
        }
    }

    pub(super) fn forget(&mut self, version: Version) {
        // A number that is free again serves another version, for which no earlier wait waits.
        let awaited = self.awaited.values_mut();
        awaited.for_each(|all| all.retain(|one| *one != version));
        if self.held.remove(&version).is_some() && !self.adopted.remove(&version) {
            self.gone.insert(version);
        }
    }
}

impl Executor for Hands {
    fn write(&mut self, ticket: Ticket, version: Version, pieces: Vec<Piece>) {
        assert_eq!(self.open[&ticket], Call::Checkpoint(version));
        self.assert_covers(&pieces, self.asked[&version]);
        for piece in &pieces {
            self.assert_free(&piece.place);
            // A version that is larger than a tier continues on the next.
            assert!(piece.place.tier >= pieces[0].place.tier);
        }
        if self.in_place.contains(&ticket) {
            assert_eq!((pieces.len(), pieces[0].place.tier), (1, TierId(0)));
        }
        self.writes.insert(ticket, (version, pieces));
    }

    fn read(&mut self, ticket: Ticket, version: Version, pieces: Vec<Piece>, coding: Coding) {
        assert_eq!(self.open[&ticket], Call::Restore(version));
        if coding == Coding::Plain {
            self.assert_covers(&pieces, self.held[&version]);
        }
        self.reads.insert(ticket, (version, pieces, coding));
    }

    fn transfer(&mut self, transfer: Transfer) {
        assert_eq!(transfer.from.len(), transfer.to.len());
        for (from, to) in transfer.from.iter().zip(&transfer.to) {
            assert_eq!(from.start, to.start);
            assert_ne!(from.place.tier, to.place.tier);
            if transfer.coding == Coding::Plain {
                assert_eq!(from.place.size, to.place.size);
            }
            self.assert_free(&to.place);
            self.assert_codes(&transfer.coding, from.place.tier, to.place.tier);
        }
        if let Coding::Encode { base } = transfer.coding {
            assert!(base.is_none() || base == self.newest);
            self.newest = Some(transfer.version);
        }
        self.transfers.insert(transfer.id, transfer);
    }

    fn cancel(&mut self, id: TransferId) {
        assert!(self.transfers.contains_key(&id));
        self.cancelled.insert(id);
    }

    fn answer(&mut self, ticket: Ticket, answer: Result<(), Refusal>) {
        let call = self
            .open
            .remove(&ticket)
            .expect("an answer to an open call");
        self.in_place.remove(&ticket);
        match (call, answer) {
            (Call::Drop(version), Ok(())) => {
                self.forget(version);
                // The version's checkpoint may still be under way.
                if self.asked.contains_key(&version) {
                    self.gone.insert(version);
                }
            }
            (Call::Wait, Ok(())) => {
                for version in self.awaited.remove(&ticket).unwrap_or_default() {
                    if self.held.contains_key(&version) {
                        self.assert_durable(version);
                    }
                }
                self.done.push(ticket);
            }
            (Call::WaitFor(version) | Call::Suspend(version), Ok(())) => {
                self.assert_durable(version);
                self.done.push(ticket);
            }
            (call, Ok(())) => panic!("{call:?} was answered without a copy"),
            (call, Err(refusal)) => {
                if let Call::Restore(version) = call {
                    assert!(
                        !self.held.contains_key(&version),
                        "a held version was refused: {refusal:?}"
                    );
                }
                if let Call::Checkpoint(version) = call
                    && refusal != Refusal::VersionUsed
                {
                    self.asked.remove(&version);
                }
                self.refused.push((call, refusal));
            }
        }
    }

    fn released(&mut self, tier: TierId, bytes: u64) {
        assert_eq!(self.limits[tier.0], (bytes, false));
        self.limits[tier.0].1 = true;
        // The released memory serves something else.
        self.bytes[tier.0][bytes as usize..].fill(None);
    }

    fn removed(&mut self, version: Version, tier: TierId, _: u64, _: bool) {
        self.removed.push((version, tier.0));
        for byte in &mut self.bytes[tier.0] {
            if matches!(*byte, Some(Byte::Of(of, _) | Byte::Difference(of)) if of == version) {
                *byte = None;
            }
        }
    }
}
