//! The endings of copies and transfers.

use super::hands::Byte;
use super::{Ending, Machine};
use tierflow_plan::{AfterRestore, Coding, Event, Stored, Transfer, TransferFailure, TransferId};

fn encodes(transfer: &Transfer) -> bool {
    matches!(transfer.coding, Coding::Encode { .. })
}

/// Returns the result of a transfer: of five versions, one is stored as it is, and one as a difference without a base.
fn stored_of(transfer: &Transfer) -> Option<Stored> {
    let version = transfer.version;
    let is_made = encodes(transfer) && version % 5 != 2;
    is_made.then_some(Stored {
        bytes: 1 + version % 2,
        alone: version % 5 == 4,
    })
}

impl Machine {
    /// Returns all endings that may happen now, well or not.
    pub(crate) fn endings(&self) -> Vec<Ending> {
        let hands = &self.hands;
        let mut endings = Vec::new();
        for &ticket in hands.writes.keys() {
            endings.extend([Ending::Write(ticket, true), Ending::Write(ticket, false)]);
        }
        for &ticket in hands.reads.keys() {
            endings.extend([Ending::Read(ticket, true), Ending::Read(ticket, false)]);
        }
        for (&id, transfer) in &hands.transfers {
            if encodes(transfer) && !hands.made.contains(&id) {
                endings.push(Ending::Encoding(id));
            }
            endings.push(Ending::Transfer(id, None));
            let cancelled = hands
                .cancelled
                .contains(&id)
                .then_some(TransferFailure::Cancelled);
            endings.extend(cancelled.map(|why| Ending::Transfer(id, Some(why))));
            for why in [TransferFailure::Source, TransferFailure::Destination] {
                endings.push(Ending::Transfer(id, Some(why)));
            }
        }
        endings
    }

    /// Returns true for the ending of a lent slot, which only the application gives back.
    pub(crate) fn is_slot(&self, ending: Ending) -> bool {
        match ending {
            Ending::Write(ticket, _) | Ending::Read(ticket, _) => {
                self.hands.in_place.contains(&ticket)
            }
            Ending::Transfer(..) | Ending::Encoding(_) => false,
        }
    }

    pub(crate) fn end(&mut self, ending: Ending) {
        match ending {
            Ending::Write(ticket, ok) => {
                let (version, pieces) = self.hands.writes.remove(&ticket).unwrap();
                for piece in &pieces {
                    for (at, byte) in self.hands.span(&piece.place).iter_mut().enumerate() {
                        *byte = ok.then_some(Byte::Of(version, piece.start + at as u64));
                    }
                }
                self.hands.open.remove(&ticket);
                self.hands.in_place.remove(&ticket);
                let size = self.hands.asked.remove(&version);
                if ok && !self.hands.gone.contains(&version) {
                    self.hands.held.insert(version, size.unwrap());
                }
                self.tell(Event::Written { ticket, ok });
            }
            Ending::Read(ticket, ok) => {
                let (version, pieces, coding) = self.hands.reads.remove(&ticket).unwrap();
                self.hands.assert_holds(version, &pieces, &coding);
                self.hands.open.remove(&ticket);
                self.hands.in_place.remove(&ticket);
                if ok && self.hands.after == AfterRestore::Discard {
                    self.hands.forget(version);
                }
                if !ok {
                    self.damage(version, &pieces, &coding);
                }
                self.tell(Event::Read { ticket, ok });
            }
            Ending::Transfer(id, failure) => self.end_transfer(id, failure),
            Ending::Encoding(id) => self.end_encoding(id),
        }
    }

    fn end_encoding(&mut self, id: TransferId) {
        let stored = stored_of(&self.hands.transfers[&id]);
        self.tell(Event::Encoded { id, stored });
        self.hands.made.insert(id);
        // The transfer goes to the place that the plan gave last.
        let transfer = self.hands.transfers.get_mut(&id).unwrap();
        let tier = transfer.to[0].place.tier;
        transfer.to = self.world.plan().pieces(transfer.version, tier);
    }

    fn end_transfer(&mut self, id: TransferId, failure: Option<TransferFailure>) {
        let is_unmade = encodes(&self.hands.transfers[&id]) && !self.hands.made.contains(&id);
        if is_unmade && failure.is_none() {
            self.end_encoding(id);
        }
        let transfer = self.hands.transfers.remove(&id).unwrap();
        self.hands.made.remove(&id);
        let stored = stored_of(&transfer);
        self.hands.cancelled.remove(&id);
        let Transfer {
            version,
            from,
            to,
            coding,
            ..
        } = transfer;
        if let Some(why) = failure {
            if matches!(coding, Coding::Encode { .. }) {
                self.hands.not_encoded(version);
            }
            for piece in to.iter().filter(|_| !is_unmade) {
                self.hands.span(&piece.place).fill(None);
            }
            if why == TransferFailure::Source {
                self.damage(version, &from, &coding);
            }
            return self.tell(Event::TransferFailed { id, why });
        }
        self.hands.assert_holds(version, &from, &coding);
        let as_it_is = matches!(coding, Coding::Encode { .. }) && stored.is_none();
        let size: u64 = from.iter().map(|piece| piece.place.size).sum();
        for piece in &to {
            for (at, byte) in self.hands.span(&piece.place).iter_mut().enumerate() {
                let at = piece.start + at as u64;
                *byte = match coding {
                    Coding::Plain | Coding::Decode { .. } => Some(Byte::Of(version, at)),
                    _ if as_it_is => (at < size).then_some(Byte::Of(version, at)),
                    _ => Some(Byte::Difference(version)),
                };
            }
        }
        if as_it_is {
            self.hands.not_encoded(version);
        } else if let (Coding::Encode { base }, Some(stored)) = (coding, stored) {
            let base = base.filter(|_| !stored.alone);
            self.hands.bases.insert(version, base);
        }
        self.tell(Event::TransferDone { id, stored });
    }
}
