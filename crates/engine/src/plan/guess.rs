//! What comes up though nobody asked for it. Where versions are discarded after their restore, every other one will be
//! read, too: room that is left over is filled with them while the links have nothing better to do.

use super::event::TierId;
use super::history::Copy;
use super::transfers::Purpose;
use super::{AfterRestore, Plan};
use crate::Version;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

/// Unread versions by the fastest tier that has or gets them, and what the last readings say about the next.
#[derive(Debug, Default)]
pub(super) struct Guesses {
    unread: BTreeSet<Version>,
    by_tier: Vec<BTreeSet<Version>>,
    /// The last version read, and whether it was the one after, or before, its predecessor.
    last: Option<Version>,
    upwards: bool,
}

impl Guesses {
    pub(super) fn written(&mut self, version: Version) {
        self.unread.insert(version);
    }

    pub(super) fn consumed(&mut self, version: Version) {
        self.upwards = self.last.and_then(|last| last.checked_add(1)) == Some(version);
        self.last = Some(version);
        self.gone(version);
    }

    pub(super) fn gone(&mut self, version: Version) {
        self.unread.remove(&version);
    }

    /// All that guesses depend on.
    pub(super) fn fingerprint<H: Hasher>(&self, hasher: &mut H) {
        (&self.unread, self.last, self.upwards).hash(hasher);
    }

    fn place(&mut self, version: Version, tier: Option<TierId>) {
        let tier = tier.filter(|_| self.unread.contains(&version));
        if let Some(tier) = tier
            && self.by_tier.len() <= tier.0
        {
            self.by_tier.resize(tier.0 + 1, BTreeSet::new());
        }
        for (index, versions) in self.by_tier.iter_mut().enumerate() {
            if tier == Some(TierId(index)) {
                versions.insert(version);
            } else {
                versions.remove(&version);
            }
        }
    }

    /// Versions on `tier` and not above, likely ones first: those that go on where the last readings went, else the
    /// newest.
    fn likely(&self, tier: TierId) -> impl Iterator<Item = Version> + '_ {
        let versions = self.by_tier.get(tier.0).into_iter();
        let last = self.last.unwrap_or(Version::MAX);
        let (up, down) = (self.upwards, !self.upwards);
        let above = versions
            .clone()
            .flat_map(move |v| v.range(last..))
            .filter(move |_| up);
        let below = versions
            .clone()
            .flat_map(move |v| v.range(..last).rev())
            .filter(move |_| down);
        let newest = versions.flat_map(|v| v.iter().rev());
        above.chain(below).chain(newest).copied()
    }
}

/// How many unlikely candidates are looked at before the search is given up.
const TRIES: usize = 4;

impl Plan {
    /// The copies of `version` came or went.
    pub(super) fn note(&mut self, version: Version) {
        let record = self
            .records
            .get(&version)
            .filter(|r| !r.doomed && !r.unreadable);
        let fastest = record.and_then(|r| r.copies.iter().position(Option::is_some));
        self.guesses.place(version, fastest.map(TierId));
    }

    /// Brings up one version into room that is free, if nothing else comes into `tier` now.
    pub(super) fn guess_into(&mut self, tier: TierId) {
        let this = &self.tiers[tier.0];
        let may_guess = this.conduct.guesses && self.after_restore == AfterRestore::Discard;
        if !may_guess || this.prefetching > 0 || tier >= self.last_tier() {
            return;
        }
        // What is hinted passes through without pushing a guess out.
        let passage = match self.order.end() {
            0 => 0,
            _ => this.table.reserved(self.largest_size),
        };
        let below = (tier.0 + 1..self.tiers.len()).map(TierId);
        for from in below {
            let found = self.guesses.likely(from).take(TRIES).find_map(|version| {
                let record = self.records.get(&version)?;
                record.copy(from).filter(|copy| Copy::is_readable(copy))?;
                let size = record.size_on(tier);
                let room = this.table.reserved(size).checked_add(passage)?;
                let offset = this.table.first_gap(room)?;
                Some((version, size, offset))
            });
            if let Some((version, size, offset)) = found {
                if let Some(to) = self.take(tier, offset, version, size) {
                    self.start(Purpose::Guess, version, from, to);
                }
                return;
            }
        }
    }
}
