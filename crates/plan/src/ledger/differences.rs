//! Versions that lower tiers hold as differences to others (ICPP'23).
//!
//! A difference is made where a version leaves the tiers that hold it as it is. Each difference builds upon the one
//! made before it. The resulting chain ends where a difference could not be made or is not kept any more, at its
//! greatest length, or where more bytes than a version has are kept in it for versions that were given up. A read of a
//! version may read the whole chain before it. Therefore a version keeps its difference, whatever becomes of the version,
//! until no other builds upon it. Versions are not cut if differences are made.
//!
//! The next difference may be asked for while its base is on its way. The difference counts as there once its base is, and is
//! of no use if the base never comes.
//!
//! A compressed version is a difference to nothing. With chains of one, several versions are on their way at a time,
//! and a version that would not become smaller is written as it is.

use super::Ledger;
use crate::command::{Coding, Difference};
use crate::event::Stored;
use crate::record::{Extent, Record, Replica, StoredForm, first_sound};
use crate::{TierId, Version};
use smallvec::SmallVec;

/// Bytes of the encoded versions, before and after the encoding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EncodedSizes {
    /// Bytes of versions.
    whole: u128,
    /// Bytes of their differences.
    stored: u128,
}

impl EncodedSizes {
    /// Returns the bytes of one version.
    pub(crate) fn of(record: &Record) -> Self {
        match record.form {
            Some(StoredForm::Difference(Difference { bytes, .. })) => Self {
                whole: record.size.into(),
                stored: bytes.into(),
            },
            Some(StoredForm::Whole | StoredForm::Coming(_)) | None => Self::default(),
        }
    }

    pub(crate) fn replace(&mut self, before: Self, after: Self) {
        self.whole = self.whole - before.whole + after.whole;
        self.stored = self.stored - before.stored + after.stored;
    }

    /// Returns the bytes of versions that `bytes` bytes of a tier hold, if later versions shrink as earlier ones did.
    pub(crate) fn held_by(self, bytes: u64) -> u64 {
        let held = u128::from(bytes).saturating_mul(self.whole);
        let held = held.checked_div(self.stored);
        held.map_or(bytes, |held| u64::try_from(held).unwrap_or(u64::MAX))
    }
}

/// A replica that a transfer or a caller reads besides those of its own version.
pub(crate) type Base = (Version, TierId);

impl Ledger {
    /// Returns true if versions lie encoded on `tier`: as differences, as far as these could be made.
    pub(crate) fn lies_encoded(&self, tier: TierId) -> bool {
        self.differences.is_some_and(|how| how.lie_on(tier))
    }

    /// Returns the bytes to set aside for an extent of `len` bytes on `tier`: its own, or the most that its difference
    /// can have.
    pub(crate) fn room_on(&self, version: Version, tier: TierId, len: u64) -> u64 {
        match self.differences.filter(|how| how.lie_on(tier)) {
            Some(how) if !self.is_made(version) => how.overhead.most(len),
            how => {
                let record = self.records.get(&version);
                record.map_or(len, |record| record.size_on(how.is_some(), len))
            }
        }
    }

    /// Returns the bytes that an extent of `len` bytes is expected to have on `tier`: a difference that is still to be
    /// made shrinks as others did.
    pub(crate) fn expected_on(&self, version: Version, tier: TierId, len: u64) -> u64 {
        let room = self.room_on(version, tier, len);
        let EncodedSizes { whole, stored } = self.encoded_sizes;
        let expected = (u128::from(len) * stored).checked_div(whole);
        let expected = expected.filter(|_| self.lies_encoded(tier) && !self.is_made(version));
        expected.map_or(room, |bytes| u64::try_from(bytes).unwrap_or(room).min(room))
    }

    fn form(&self, version: Version) -> Option<StoredForm> {
        self.records.get(&version)?.form
    }

    /// Returns true if some tier has a version in the form in which it lies encoded.
    fn is_made(&self, version: Version) -> bool {
        self.form(version).is_some_and(StoredForm::is_there)
    }

    /// Notes that a tier has a version as it is: written there, or found.
    pub(crate) fn lies_whole(&mut self, version: Version, tier: TierId) {
        if self.lies_encoded(tier) {
            self.change_record(version, |record| record.form = Some(StoredForm::Whole));
        }
    }

    /// Returns true if a version of `size` bytes may be found on `tier` as this difference, or as it is without one.
    pub(crate) fn may_lie(
        &self,
        version: Version,
        size: u64,
        tier: TierId,
        difference: Option<Difference>,
    ) -> bool {
        let own = self.records.get(&version);
        let Some(difference) = difference else {
            let form = own.and_then(|record| record.form);
            return !self.lies_encoded(tier) || form.is_none_or(|form| form == StoredForm::Whole);
        };
        let base = difference.base.map(|base| self.records.get(&base));
        let has_base = base.is_none_or(|base| {
            base.is_some_and(|base| {
                matches!(base.form, Some(StoredForm::Difference(_)))
                    && !base.discarded
                    && base.size == size
            })
        });
        let form = Some(StoredForm::Difference(difference));
        self.lies_encoded(tier)
            && difference.bytes > 0
            && has_base
            && own.is_none_or(|own| own.form.is_none() || own.form == form)
    }

    /// Notes that a tier has a version as a difference for which [`may_lie`](Self::may_lie) returned true.
    pub(crate) fn lies_different(&mut self, version: Version, difference: Difference) {
        let form = Some(StoredForm::Difference(difference));
        if self.form(version) != form {
            self.change_record(version, |record| record.form = form);
            self.add_dependent(difference.base, version);
        }
    }

    /// Returns the change of a version's bytes on their way between two tiers. Counts a reader of each base that is
    /// read along.
    pub(crate) fn code(&mut self, version: Version, from: TierId, to: TierId) -> Coding {
        if !self.lies_encoded(to) {
            return self.decode(version, from);
        }
        if !self.lies_encoded(from) {
            let base = self.next_base(version);
            self.add_dependent(base, version);
            self.change_record(version, |record| {
                record.form = Some(StoredForm::Coming(base))
            });
            self.latest_encoding = Some(version);
            return Coding::Encode { base };
        }
        let record = self.records.get(&version);
        match record.and_then(|record| Some((record.size, record.form?))) {
            Some((size, StoredForm::Difference(Difference { base, .. }))) => {
                Coding::Stored { size, base }
            }
            _ => Coding::Plain,
        }
    }

    /// Returns the version that the difference of `version` will build upon. `None` if the version begins a chain of its own: the
    /// chain before is as long as is allowed, or one of its versions cannot be read where differences lie.
    fn next_base(&self, version: Version) -> Option<Version> {
        let (differences, latest) = (self.differences?, self.latest_encoding?);
        let size = self.records.get(&version)?.size;
        if differences.ascending && latest >= version {
            return None;
        }
        let is_short = || {
            let chain = self
                .chain(latest)
                .filter_map(|link| self.records.get(&link));
            let given_up = chain.clone().filter(|record| record.discarded);
            let given_up: u64 = given_up.map(|record| record.size_on(true, 0)).sum();
            chain.count() < differences.longest as usize && given_up <= size
        };
        // A version that was given up may have lost replicas already.
        let fits = self.held(latest)?.size == size && is_short() && !self.has_damaged_link(latest);
        fits.then_some(latest)
    }

    /// Returns true if the chain of `version` has a version of which no sound replica lies where differences lie.
    fn has_damaged_link(&self, version: Version) -> bool {
        let mut extents = self.chain(version).flat_map(|link| self.extents(link));
        extents.any(|extent| {
            let encoded = extent.replicas.iter();
            let encoded = encoded.filter(|replica| self.lies_encoded(replica.tier));
            first_sound(encoded).is_some_and(|replica| replica.damaged)
        })
    }

    /// Returns the version that the difference of `version` builds upon, or will.
    pub(crate) fn base_of(&self, version: Version) -> Option<Version> {
        self.form(version)?.base()
    }

    /// Returns a version and those that it builds upon, or will, nearest first.
    pub(crate) fn chain(&self, version: Version) -> impl Iterator<Item = Version> + Clone + '_ {
        std::iter::successors(Some(version), |&version| self.base_of(version))
    }

    /// Returns the way to read the replica of `version` on `tier`. Counts a reader of each base that is read along.
    pub(crate) fn decode(&mut self, version: Version, tier: TierId) -> Coding {
        let own = self.form(version).filter(|_| self.lies_encoded(tier));
        if !matches!(own, Some(StoredForm::Difference(_))) {
            return Coding::Plain;
        }
        let place = |base| {
            let extent = self.extent((base, 0))?;
            let stored = extent.replicas.iter();
            let stored = first_sound(stored.filter(|r| self.lies_encoded(r.tier)))?;
            Some((base, self.piece(extent, stored).place))
        };
        let bases: Vec<_> = self.chain(version).skip(1).filter_map(place).collect();
        for &(base, place) in &bases {
            self.read((base, 0), place.tier, true);
        }
        Coding::Decode { bases }
    }

    /// Ends the reading of these replicas on behalf of another version.
    pub(crate) fn release_bases(&mut self, bases: &[Base]) {
        for &(version, tier) in bases {
            self.read((version, 0), tier, false);
        }
        for &(version, _) in bases {
            self.free_discarded(version);
        }
    }

    /// Notes that `version` arrived on `tier`: as a difference, or as it is.
    pub(crate) fn encoded(&mut self, version: Version, tier: TierId, stored: Option<Stored>) {
        let Some(Stored { bytes, alone }) = stored else {
            self.set_aside(version, tier, None);
            self.not_encoded(version);
            return self.lies_whole(version, tier);
        };
        let bytes = self.set_aside(version, tier, Some(bytes));
        let base = self.base_of(version);
        let (base, former) = if alone { (None, base) } else { (base, None) };
        let form = Some(StoredForm::Difference(Difference { bytes, base }));
        self.change_record(version, |record| record.form = form);
        self.remove_dependent(former, version);
    }

    /// Shrinks the room of an encoded version to its bytes, or to those of the version as it is. Returns the bytes.
    pub(crate) fn set_aside(&mut self, version: Version, tier: TierId, bytes: Option<u64>) -> u64 {
        let len = self.records.get(&version).map_or(0, |record| record.size);
        let most = self.room_on(version, tier, len);
        let bytes = bytes.unwrap_or(len).clamp(1, most.max(1));
        self.shrink((version, 0), tier, bytes);
        bytes
    }

    /// Notes that there is no difference of a version, or no longer: nothing more builds upon it, nor does it upon
    /// another.
    pub(crate) fn not_encoded(&mut self, version: Version) {
        self.latest_encoding.take_if(|latest| *latest == version);
        let form = self.change_record(version, |record| record.form.take());
        self.remove_dependent(form.flatten().and_then(StoredForm::base), version);
    }

    /// Notes that the base of a difference on its way never comes: the difference is of use only if it builds upon
    /// nothing.
    pub(crate) fn lose_base(&mut self, version: Version) {
        self.not_encoded(version);
        self.change_record(version, |record| {
            record.form = Some(StoredForm::Coming(None))
        });
    }

    fn add_dependent(&mut self, base: Option<Version>, version: Version) {
        if let Some(base) = base {
            self.change_record(base, |record| record.dependents.push(version));
        }
    }

    /// Ends the dependence of `version` on `base`, and frees the base if nothing needs it any more.
    fn remove_dependent(&mut self, base: Option<Version>, version: Version) {
        self.end_dependence(base, version);
        if let Some(base) = base {
            self.free_discarded(base);
        }
    }

    fn end_dependence(&mut self, base: Option<Version>, version: Version) {
        if let Some(base) = base {
            self.change_record(base, |record| {
                record.dependents.retain(|own| *own != version);
            });
            // Lower tiers are not owed a base that was given up and is not needed any more.
            self.settle_owed(base);
        }
    }

    /// Ends the dependence of a version that was given up and that no other builds upon. Readers of the version still hold
    /// the bases that they read. Returns the base.
    fn drop_base(&mut self, version: Version) -> Option<Version> {
        let record = self.records.get_mut(&version);
        let base = record.and_then(|record| match &mut record.form {
            Some(StoredForm::Difference(difference)) if record.dependents.is_empty() => {
                difference.base.take()
            }
            _ => None,
        });
        self.end_dependence(base, version);
        base
    }

    /// Forgets the form of `version` if its last encoded replica was given up: it builds upon nothing any more.
    pub(crate) fn forget_form(&mut self, version: Version) {
        let is_encoded = |extent: &Extent| extent.has(|replica| self.lies_encoded(replica.tier));
        if self.form(version).is_some() && !self.extents(version).iter().any(is_encoded) {
            self.not_encoded(version);
        }
    }

    // Discarded versions.

    /// Gives up `version`, which will not be asked for again: nothing more is moved for it. Makes another change to the
    /// version in the same update of the sets. Returns the transfers that are not needed any more.
    pub(crate) fn discard(
        &mut self,
        version: Version,
        change: impl FnOnce(&mut Record),
    ) -> Vec<crate::TransferId> {
        let Some(record) = self.records.get(&version).filter(|r| !r.discarded) else {
            return Vec::new();
        };
        if record.is_free() && record.waiting.is_empty() {
            self.forget_hints(version);
            self.free_whole(version, change);
            return Vec::new();
        }
        let is_needed =
            |replica: &&Replica| !record.dependents.is_empty() && self.lies_encoded(replica.tier);
        let replicas = record.extents.iter().flat_map(|extent| &extent.replicas);
        let unneeded = replicas.filter(|replica| !is_needed(replica));
        let mut under_way: Vec<_> = unneeded.filter_map(|replica| replica.arriving).collect();
        under_way.dedup();
        self.forget_hints(version);
        self.change_record(version, |record| {
            change(record);
            record.discarded = true;
        });
        self.settle_owed(version);
        under_way
    }

    /// Makes a last change to a version [without users](Record::is_free), and removes it, in one update of the sets.
    fn free_whole(&mut self, version: Version, change: impl FnOnce(&mut Record)) {
        let all = |record: &Record| Some(0..record.extents.len());
        let freed = self.change_extents(version, all, |record, at, tiers| {
            change(record);
            *at = 0..0;
            let mut left: SmallVec<[TierId; 4]> = SmallVec::new();
            for (tier, this) in (0..).map(TierId).zip(tiers) {
                for extent in &mut record.extents {
                    let has_below = extent.has_below(tier);
                    if let Some(replica) = extent.on_mut(tier) {
                        replica.advance_to_end(has_below);
                        let end = replica.offset + this.space.reserved(replica.size);
                        this.space.give(replica.offset..end);
                        left.push(tier);
                    }
                }
            }
            left.dedup();
            (record.size, left)
        });
        let Some((size, left)) = freed else { return };
        self.forget_discarded(version);
        for tier in left {
            self.emit_removal(version, tier, size, true);
        }
    }

    /// Removes the record of a discarded version. The caller frees its replicas, if it has any.
    fn forget_discarded(&mut self, version: Version) {
        let record = self.remove(version);
        if record.is_some_and(|record| !record.adopted) {
            self.discarded.insert(version);
        }
    }

    /// Frees those replicas of a discarded version, and of the discarded versions that only it builds upon, that are not
    /// in use: the oldest version first. A loop, as chains are long.
    pub(crate) fn free_discarded(&mut self, version: Version) {
        let mut discarded: SmallVec<[Version; 4]> = SmallVec::new();
        let mut next = Some(version);
        while let Some(version) = next
            && self.records.get(&version).is_some_and(|r| r.discarded)
        {
            discarded.push(version);
            // Without this, its base would be kept, and written back, for nothing.
            next = self.drop_base(version);
        }
        while let Some(version) = discarded.pop() {
            self.free_idle(version);
        }
    }

    /// Frees those replicas of one discarded version that are not in use.
    fn free_idle(&mut self, version: Version) {
        let Some(record) = self.records.get(&version) else {
            return;
        };
        if record.is_free() {
            return self.free_whole(version, |_| ());
        }
        let mut unneeded = Vec::new();
        for extent in &record.extents {
            let idle = extent.replicas.iter().filter(|replica| replica.is_idle());
            let idle = idle.filter(|replica| !record.is_needed(self.lies_encoded(replica.tier)));
            unneeded.extend(idle.map(|replica| (extent.start, replica.tier)));
        }
        for (start, tier) in unneeded {
            self.release((version, start), tier);
        }
        if self.records.get(&version).is_some_and(Record::is_gone) {
            self.forget_discarded(version);
        }
    }
}
