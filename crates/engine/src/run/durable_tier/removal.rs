//! Copies that were given up, and the room of a limited tier.

use super::{DroppedCopy, DurableTier};
use crate::Version;
use std::collections::BTreeSet;
use tierflow_store::{Error, Options, Result};

/// Number of parts of a tier's limit. Given-up copies of more bytes than one part are removed before others are written.
/// Another such part is left to heads, and to what small versions leave free in their files, until the sizes of these are known.
const PART_REMOVED_LATER: u64 = 64;

impl DurableTier {
    /// Removes the given-up copies if some have the numbers of these versions, or if they take much of the tier's limit. Tells protection
    /// of discarded versions with these numbers first.
    pub(super) fn make_way(&self, versions: impl IntoIterator<Item = Version>) -> Result<()> {
        let limit = self.settings.limit.as_ref();
        let is_much =
            limit.is_some_and(|(limit, _)| self.dropped_bytes(false) > limit / PART_REMOVED_LATER);
        let (mut is_dropped, mut own) = (is_much, BTreeSet::new());
        for version in versions {
            own.insert(version);
            self.drop_unfit(version);
            is_dropped |= self.dropped.lock().contains_key(&version);
            if self.unheard.lock().contains(&version) {
                self.note_discarded()?;
                self.unheard.lock().remove(&version);
            }
            let below = self.below.as_ref();
            if let Some(below) = below.filter(|below| below.has_discarded(version)) {
                // A later note would name the version that comes now.
                self.settings.first.note()?;
                below.note_discarded()?;
                below.unheard.lock().remove(&version);
            }
        }
        match is_dropped.then(|| self.remove_dropped()) {
            Some(Err(error)) => {
                let is_own = self.dropped.lock().keys().any(|one| own.contains(one));
                // A file that cannot be removed holds no other version up: its bytes count, and the removal is tried again.
                tracing::warn!("a version that was given up stays: {error}");
                if is_own { Err(error) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    pub(in crate::run) fn is_limited(&self) -> bool {
        self.settings.limit.is_some()
    }

    /// Returns the bytes of given-up copies that are still here: of those that could not be removed if `is_stuck`, else of the others.
    fn dropped_bytes(&self, is_stuck: bool) -> u64 {
        let dropped = self.dropped.lock();
        let those = dropped.values().filter(|copy| copy.is_stuck == is_stuck);
        those.map(|copy| copy.bytes).sum()
    }

    /// Returns the bytes that the plan may fill of a limited tier; `None` if the tier has no limit, or if its use is not known. From the
    /// bytes that pieces may have, subtracts those that may stay given up, and those that `planned` bytes take beyond themselves.
    pub(crate) fn room(&self, planned: u64) -> Option<u64> {
        let (limit, directory) = self.settings.limit.as_ref()?;
        let part = limit / PART_REMOVED_LATER;
        let room = Options::default().limit(Some(*limit)).room()?;
        let beyond = directory.used()?.saturating_sub(self.dropped_bytes(false));
        // Versions that are on their way are among the planned bytes, so they hide bytes that others take beyond themselves.
        let stuck = self.dropped_bytes(true).saturating_add(part);
        let beyond = beyond.saturating_sub(planned).max(stuck);
        Some(room.saturating_sub(part).saturating_sub(beyond))
    }

    /// Gives up copies that need not stay, on a full disk. Returns true if there is a copy to remove, or was.
    pub(super) fn make_room(&self) -> bool {
        self.drop_all_unfit();
        self.settings.first.make_room() || !self.dropped.lock().is_empty()
    }

    /// Notes that a copy was given up.
    pub(crate) fn drop_copy(&self, version: Version, copy: DroppedCopy) {
        let mut dropped = self.dropped.lock();
        let is_discarded = &mut dropped.entry(version).or_insert(copy).is_discarded;
        *is_discarded |= copy.is_discarded;
    }

    fn has_discarded(&self, version: Version) -> bool {
        if self.unheard.lock().contains(&version) {
            return true;
        }
        let dropped = self.dropped.lock();
        dropped.get(&version).is_some_and(|one| one.is_discarded)
    }

    /// Tells protection of the discarded versions of which copies are still here.
    fn note_discarded(&self) -> Result<()> {
        let Some(protected) = &self.settings.protected else {
            return Ok(());
        };
        let _one_at_a_time = self.noting.lock();
        let is_new = |(one, copy): (&Version, &DroppedCopy)| copy.is_discarded.then_some(*one);
        let mut discarded = self.unheard.lock().clone();
        discarded.extend(self.dropped.lock().iter().filter_map(is_new));
        if discarded.is_empty() {
            return Ok(());
        }
        match protected.discard(&discarded) {
            Ok(()) => self.unheard.lock().clear(),
            // Removals need no room, and give some: the note is tried again after them.
            Err(Error::Full { .. }) => self.unheard.lock().extend(&discarded),
            // A node that fails does not hold up the storage below it.
            Err(_) if !self.settings.is_node_lowest => {}
            failed => failed?,
        }
        let mut dropped = self.dropped.lock();
        let heard = dropped
            .iter_mut()
            .filter(|(version, _)| discarded.contains(version));
        heard.for_each(|(_, one)| one.is_discarded = false);
        Ok(())
    }

    /// Removes the given-up copies.
    pub(crate) fn remove_dropped(&self) -> Result<()> {
        let _one_at_a_time = self.removing.lock();
        let dropped: BTreeSet<Version> = self.dropped.lock().keys().copied().collect();
        if !dropped.is_empty() {
            match self.settings.first.note() {
                Ok(()) | Err(Error::Full { .. }) => self.note_discarded()?,
                failed => failed?,
            }
            let removed = match &self.directory {
                // The plan gives up no copy that is needed here and nowhere else.
                Some(directory) if self.settings.builds => directory.remove_even_bases(&dropped),
                _ => self.vault.remove(&dropped),
            };
            let stay = match removed {
                Ok(()) => BTreeSet::new(),
                Err(_) => self.vault.pieces()?.iter().map(|one| one.version).collect(),
            };
            let is_gone = |version: &Version| dropped.contains(version) && !stay.contains(version);
            self.sound.lock().retain(|version| !is_gone(version));
            self.dropped.lock().retain(|version, copy| {
                copy.is_stuck |= stay.contains(version);
                !is_gone(version)
            });
            removed?;
            if !self.unheard.lock().is_empty() {
                self.note_discarded()?;
            }
        }
        Ok(())
    }
}
