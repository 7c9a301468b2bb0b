//! Versions that lie on the tiers below the fastest as differences to others.
//!
//! A difference is made on the way down from the fastest tier, one after the other, each to the one made before it: a
//! chain, which ends where a difference could not be made or is not kept any more, or is as long as it may be. A version
//! is read with all that its chain has before it. So a version that another one builds upon keeps its difference, whatever
//! becomes of it, until nobody builds upon it any more.

use super::Plan;
use super::event::{Coding, Difference, Place, Stored, TierId};
use super::history::Record;
use super::in_place::FASTEST;
use super::transfers::Purpose;
use crate::Version;

/// That versions become differences, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Differences {
    /// The most bytes by which a difference is larger than its checkpoint.
    pub overhead: u64,
    /// The most differences that a version is made of; at least 1.
    pub longest: u32,
    /// Whether a version builds upon those of smaller numbers only, as tiers that outlive the engine want it.
    pub ascending: bool,
}

/// How a version lies on the tiers below the fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// As it is: it was written there.
    Whole,
    /// As a difference of so many bytes, to `base` if there is one.
    Difference(Difference),
}

/// The version of which a difference was made last, of how many bytes, and the differences in its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Newest {
    version: Version,
    size: u64,
    links: u32,
}

/// A copy that a transfer or a caller reads besides that of its own version.
pub(super) type Base = (Version, TierId);

impl Plan {
    /// Bytes to set aside for `version` on `tier`: those of its copy, or the most that its difference can have.
    pub(super) fn room_on(&self, version: Version, tier: TierId) -> u64 {
        let Some(record) = self.records.get(&version) else {
            return 0;
        };
        match self.differences {
            Some(differences) if tier != FASTEST && record.form.is_none() => {
                record.size.saturating_add(differences.overhead)
            }
            _ => record.size_on(tier),
        }
    }

    /// A version was written to a tier, or found there, as it is.
    pub(super) fn lies_whole(&mut self, version: Version, tier: TierId) {
        if self.differences.is_some()
            && tier != FASTEST
            && let Some(record) = self.records.get_mut(&version)
        {
            record.form = Some(Form::Whole);
        }
    }

    /// Whether a version of so many bytes may be found on `tier` as this difference, or as it is.
    pub(super) fn may_lie(
        &self,
        (version, size): (Version, u64),
        tier: TierId,
        difference: Option<Difference>,
    ) -> bool {
        let Some(difference) = difference else {
            let form = self.records.get(&version).and_then(|record| record.form);
            return tier == FASTEST || form.is_none_or(|form| form == Form::Whole);
        };
        let is_difference = |record: &Record| matches!(record.form, Some(Form::Difference(_)));
        let is_same = |record: &Record| {
            record.form.is_none() || record.form == Some(Form::Difference(difference))
        };
        let base = difference.base.map(|base| self.records.get(&base));
        let has_base = base.is_none_or(|base| {
            base.is_some_and(|base| is_difference(base) && !base.doomed && base.size == size)
        });
        self.differences.is_some()
            && tier != FASTEST
            && difference.bytes > 0
            && has_base
            && self.records.get(&version).is_none_or(is_same)
    }

    /// A version was found on a tier as a difference that [it may be](Self::may_lie).
    pub(super) fn lies_different(&mut self, version: Version, difference: Difference) {
        let form = Some(Form::Difference(difference));
        let record = self.records.get_mut(&version);
        let Some(record) = record.filter(|record| record.form != form) else {
            return;
        };
        record.form = form;
        let base = difference.base.and_then(|base| self.records.get_mut(&base));
        if let Some(base) = base {
            base.heirs += 1;
        }
    }

    /// What becomes of the bytes of `version` on their way; whatever else is read or built upon is held.
    pub(super) fn code(
        &mut self,
        purpose: Purpose,
        version: Version,
        from: TierId,
        to: TierId,
    ) -> Coding {
        if self.differences.is_none() {
            return Coding::Plain;
        }
        if from != FASTEST && to != FASTEST {
            let record = self.records.get(&version);
            return match record.and_then(|record| Some((record.size, record.form?))) {
                Some((size, Form::Difference(Difference { base, .. }))) => {
                    Coding::Stored { size, base }
                }
                _ => Coding::Plain,
            };
        }
        match purpose {
            Purpose::Prefetch | Purpose::Guess => self.decode(version, from),
            Purpose::Flush => {
                let base = self.next_base(version);
                if let Some(record) = base.and_then(|base| self.records.get_mut(&base)) {
                    record.heirs += 1;
                }
                Coding::Encode { base }
            }
        }
    }

    /// What the difference of `version` will build upon.
    fn next_base(&self, version: Version) -> Option<Version> {
        let (differences, newest) = (self.differences?, self.newest?);
        let size = self.records.get(&version)?.size;
        if differences.ascending && newest.version >= version {
            return None;
        }
        // One that was given up may have lost copies already.
        let is_held = self.size_of(newest.version).is_some();
        (is_held && newest.size == size && newest.links < differences.longest)
            .then_some(newest.version)
    }

    /// How the copy of `version` on `tier` is read; what it builds upon is read along.
    pub(super) fn decode(&mut self, version: Version, tier: TierId) -> Coding {
        let record = self.records.get(&version).filter(|_| tier != FASTEST);
        let Some(Form::Difference(Difference { base, .. })) = record.and_then(|record| record.form)
        else {
            return Coding::Plain;
        };
        let mut bases: Vec<(Version, Place)> = Vec::new();
        let mut next = base;
        while let Some(base) = next {
            let Some(record) = self.records.get_mut(&base) else {
                break;
            };
            let mut stored = record.copies.iter_mut().skip(1).flatten();
            if let Some(copy) = stored.find(|copy| copy.is_readable()) {
                copy.readers += 1;
                bases.push((base, copy.place));
            }
            next = match record.form {
                Some(Form::Difference(Difference { base, .. })) => base,
                _ => None,
            };
        }
        Coding::Decode { bases }
    }

    /// Nobody reads these copies any more on behalf of another version.
    pub(super) fn let_go(&mut self, bases: &[Base]) {
        for &(version, tier) in bases {
            if let Some(copy) = self
                .records
                .get_mut(&version)
                .and_then(|record| record.copy_mut(tier))
            {
                copy.readers = copy.readers.saturating_sub(1);
            }
        }
        bases.iter().for_each(|&(version, _)| self.reap(version));
    }

    /// The difference of `version` to `base` arrived on `tier`, and has so many bytes.
    pub(super) fn encoded(
        &mut self,
        version: Version,
        tier: TierId,
        base: Option<Version>,
        stored: Option<Stored>,
    ) {
        let most = self.room_on(version, tier);
        let bytes = stored.map_or(most, |stored| stored.bytes);
        let bytes = bytes.clamp(1, most.max(1));
        let alone = stored.is_some_and(|stored| stored.alone);
        let (base, former) = if alone { (None, base) } else { (base, None) };
        let shrunk = self.tiers[tier.0].table.shrink(&version, bytes);
        let Some(record) = self.records.get_mut(&version) else {
            return;
        };
        if let (Ok(slot), Some(copy)) = (shrunk, record.copy_mut(tier)) {
            copy.place.size = slot.size;
            copy.place.reserved = slot.reserved;
        }
        record.form = Some(Form::Difference(Difference { bytes, base }));
        let before = self.newest.filter(|newest| Some(newest.version) == base);
        self.newest = Some(Newest {
            version,
            size: record.size,
            links: before.map_or(1, |newest| newest.links + 1),
        });
        self.disinherit(former);
    }

    /// The difference of a version to `base` was not made: the chain ends, for who makes them may have got as far as
    /// that.
    pub(super) fn not_encoded(&mut self, base: Option<Version>) {
        self.newest = None;
        self.disinherit(base);
    }

    /// A version that nobody will ask for, nor builds upon, builds upon nothing any more: whoever reads it still holds
    /// the copies that it takes.
    pub(super) fn renounce(&mut self, version: Version) {
        let Some(record) = self.records.get_mut(&version) else {
            return;
        };
        if let (0, Some(Form::Difference(difference))) = (record.heirs, &mut record.form) {
            let base = difference.base.take();
            self.disinherit(base);
        }
    }

    fn disinherit(&mut self, base: Option<Version>) {
        let Some(base) = base else { return };
        if let Some(record) = self.records.get_mut(&base) {
            record.heirs = record.heirs.saturating_sub(1);
        }
        self.reap(base);
    }

    /// After a copy of `version` was given up: if that was its last one below the fastest tier, it builds upon nothing
    /// any more.
    pub(super) fn forget_form(&mut self, version: Version) {
        let Some(record) = self.records.get_mut(&version) else {
            return;
        };
        if record.copies.iter().skip(1).any(Option::is_some) {
            return;
        }
        if let Some(Form::Difference(Difference { base, .. })) = record.form.take() {
            if self.newest.is_some_and(|newest| newest.version == version) {
                self.newest = None;
            }
            self.disinherit(base);
        }
    }
}
