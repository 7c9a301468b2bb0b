//! Gives up versions.

use super::batch::Batch;
use super::catalog::Catalog;
use super::damage::Damage;
use super::record::{Name, Record};
use super::restorable::{can_be_restored, last_restorable};
use super::retention::{Retention, with_bases};
use super::save::now;
use super::{Heads, Owned, Repository, State, rank_name};
use crate::container::{Found, Source, scan};
use crate::{Error, Result};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use tierflow_sync::{RwLockWriteGuard, rank};

/// The versions and bytes that a pruning removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The versions that were whole before and no longer exist, oldest first.
    pub versions: Vec<u64>,
    /// Bytes of the removed records, including those of pieces whose versions were never complete.
    pub bytes: u64,
}

impl Repository {
    /// Gives up the versions that `retention` does not keep, in the directories that this process writes. Every rank of a group
    /// prunes its own directory; a version that lost one piece is no longer listed.
    ///
    /// The last version that can be verified is never given up. If this process saved none of the kept versions, it reads their
    /// pieces in its directories, until it finds a version whose checksums all match. If there is none, the newest such version
    /// among the others is kept, too.
    ///
    /// # Errors
    /// [`Error::Full`] if nothing at all could be freed, since a segment that keeps some of its records is rewritten;
    /// [`Error::File`] and [`Error::Vanished`]. Every version that is kept stays, whatever happens.
    pub fn prune(&self, retention: &Retention) -> Result<Pruned> {
        self.complete_all()?;
        let sound = self.last_sound(retention)?;
        let _no_saving = self.stop_packing();
        let mut state = self.state();
        self.refresh(&mut state)?;
        let Some((whole, kept)) = state.kept(retention, sound) else {
            return Ok(Pruned::default());
        };
        let newest = whole.last().copied();
        let stays = |version| Some(version) > newest || kept.contains(&version);
        let bytes = match self.blobs() {
            Some(blobs) => {
                // The other pieces of an incomplete version may be missing from a listing that lags.
                let numbers: BTreeSet<u64> = whole.iter().copied().collect();
                let stays = |version: u64| !numbers.contains(&version) || stays(version);
                drop(state);
                let bytes = self.remove_blobs(blobs, &BTreeSet::new(), &stays)?;
                state = self.state();
                bytes
            }
            None => {
                self.sync_others(self.relied_on(&state, &stays))?;
                let mut bytes = 0;
                for (rank, owned) in &self.owned {
                    let none = BTreeSet::new();
                    bytes += prune_rank(&mut state, *rank, owned, Packing::Stopped, &none, &stays)?;
                }
                bytes
            }
        };
        state.saved.retain(|version| stays(*version));
        let gone = |version: &u64| !state.is_whole(*version);
        let versions = whole.into_iter().filter(gone).collect();
        Ok(Pruned { versions, bytes })
    }

    /// Returns the versions of all ranks that [`prune`](Self::prune) would give up. Changes nothing.
    ///
    /// # Errors
    /// As [`versions`](Self::versions).
    pub fn would_prune(&self, retention: &Retention) -> Result<Pruned> {
        let sound = self.last_sound(retention)?;
        let mut state = self.state();
        self.refresh(&mut state)?;
        let Some((whole, kept)) = state.kept(retention, sound) else {
            return Ok(Pruned::default());
        };
        let newest = whole.last().copied();
        let is_of_blobs = self.blobs().is_some();
        let numbers: BTreeSet<u64> = whole.iter().copied().collect();
        let goes = |version: &u64| {
            let may_go = !is_of_blobs || numbers.contains(version);
            may_go && Some(*version) <= newest && !kept.contains(version)
        };
        let files = state.catalogs.values().flat_map(|c| c.files.values());
        let records = files.flat_map(|seen| &seen.records);
        let lost = records.filter(|record| goes(&record.version));
        let bytes = lost.map(|record| record.record_length).sum();
        let versions = whole.into_iter().filter(goes).collect();
        Ok(Pruned { versions, bytes })
    }

    /// Returns the version that must stay because no version that `retention` keeps is known to be sound.
    fn last_sound(&self, retention: &Retention) -> Result<Option<u64>> {
        let (whole, kept) = {
            let mut state = self.state();
            self.refresh(&mut state)?;
            let Some((whole, kept)) = state.kept(retention, None) else {
                return Ok(None);
            };
            if kept.iter().any(|version| state.saved.contains(version)) {
                return Ok(None);
            }
            (whole, kept)
        };
        let (staying, going): (Vec<u64>, Vec<u64>) =
            whole.iter().partition(|version| kept.contains(version));
        // Reads the directories that this process writes, or all directories if it writes none.
        let is_read = |rank| self.owned.is_empty() || self.owned.contains_key(&rank);
        let piece_of = |version, rank| self.piece_of(version, rank);
        Ok(last_restorable(staying, going, |version| {
            can_be_restored(version, piece_of, is_read)
        }))
    }

    /// Gives up those of these versions that are there and on which no remaining difference builds. Small pieces share files with
    /// others, and these files are rewritten, so callers should give up many versions at a time. Pieces that are being saved stay.
    /// The call waits for them only if they go to a file that contains some of these versions.
    ///
    /// # Errors
    /// As [`prune`](Self::prune).
    pub fn remove(&self, versions: &BTreeSet<u64>) -> Result<()> {
        self.list_own()?;
        let free = {
            let state = self.state();
            let bases = state.bases();
            let others = state.catalogs.values().flat_map(|c| c.pieces.keys());
            let others = others.chain(state.saving.keys());
            let others: BTreeSet<u64> = others.copied().collect();
            versions - &with_bases(&others - versions, &bases)
        };
        self.remove_even_bases(&free)
    }

    /// Gives up versions like [`remove`](Self::remove), even if differences build upon them. Such differences are not whole here
    /// any more. For callers that also keep them elsewhere.
    ///
    /// # Errors
    /// As [`prune`](Self::prune).
    pub fn remove_even_bases(&self, versions: &BTreeSet<u64>) -> Result<()> {
        let stays = |version| !versions.contains(&version);
        if let Some(blobs) = self.blobs() {
            self.remove_blobs(blobs, versions, &stays)?;
        } else {
            let files = self.relied_on(&self.state(), &stays);
            self.sync_others(files)?;
            // A batch that is being written may hang. Only the versions that share its segment wait for it.
            let is_shared = match self.prune_beside_batches(versions) {
                Err(Error::Full { .. }) => true,
                done => done?,
            };
            if is_shared {
                let _no_saving = self.stop_packing();
                let (mut state, none) = (self.state(), BTreeSet::new());
                for (rank, owned) in &self.owned {
                    prune_rank(&mut state, *rank, owned, Packing::Stopped, &none, &stays)?;
                }
            }
        }
        let mut state = self.state();
        for version in versions {
            state.saved.remove(version);
        }
        Ok(())
    }

    /// Returns the files of other ranks whose records a removal relies on: all that are still written to, if one whole version stays. A rank's
    /// records are listed once they are written, so the only version that stays may still be on its way to the disk. Of two, the older one was
    /// whole before the newer one was. If none stays, the removal relies on nothing.
    fn relied_on(&self, state: &State, stays: &dyn Fn(u64) -> bool) -> Vec<(u32, Vec<String>)> {
        let whole = state.candidates(None);
        let left = whole.filter(|&version| stays(version) && state.has_all(version).is_some());
        if self.options.ranks == 1 || left.take(2).count() != 1 {
            return Vec::new();
        }
        let others = state.catalogs.iter();
        let others = others.filter(|(rank, _)| !self.owned.contains_key(rank));
        let files = others.map(|(rank, catalog)| {
            let open = catalog.files.iter().filter(|(_, seen)| !seen.published);
            (*rank, open.map(|(name, _)| name.unpublished()).collect())
        });
        files.collect()
    }

    /// Makes files of other ranks, and the names in their directories, durable. On a network file system only the writer's own
    /// synchronisation waits for the server, but the writer's node sends again what a server lost: such a record is lost only if
    /// both fail together.
    fn sync_others(&self, files: Vec<(u32, Vec<String>)>) -> Result<()> {
        let Some(top) = self.directories() else {
            return Ok(());
        };
        for (rank, names) in files {
            let directory = top.sub(&rank_name(rank), false);
            match directory.and_then(|directory| directory.sync_with(names.into_iter())) {
                // The directory was removed, and the versions with it.
                Err(
                    Error::Vanished { .. }
                    | Error::File {
                        source: Errno::NOENT,
                        ..
                    },
                ) => {}
                synced => synced?,
            }
        }
        Ok(())
    }

    /// Waits until no batch is between the disk and the catalog, and keeps new ones from starting.
    pub(super) fn stop_packing(&self) -> RwLockWriteGuard<'_, (), { rank::GATE }> {
        self.settle_all();
        self.gate.write()
    }

    fn settle_all(&self) {
        for (rank, owned) in &self.owned {
            // If this fails, the files that a crash left remain readable as they are.
            let _settled_later = self.settle(*rank, owned);
        }
    }

    /// Gives up these versions, except in each rank's segment to which a batch may be on its way. Returns true if some of them lie
    /// there.
    fn prune_beside_batches(&self, versions: &BTreeSet<u64>) -> Result<bool> {
        self.settle_all();
        let (mut state, none) = (self.state(), BTreeSet::new());
        let stays = |version| !versions.contains(&version);
        let mut is_shared = false;
        for (rank, owned) in &self.owned {
            // Read once: later batches may go to another segment, and the catalog learns of it only when it is unlocked.
            let current = owned.files()?.packer.current();
            let packing = Packing::GoesOn(current);
            prune_rank(&mut state, *rank, owned, packing, &none, &stays)?;
            let catalog = state.catalogs.get(rank);
            let seen = catalog.and_then(|catalog| catalog.files.get(&current));
            is_shared |= seen.is_some_and(|seen| seen.records.iter().any(|r| !stays(r.version)));
        }
        Ok(is_shared)
    }
}

impl State {
    /// Returns the whole versions in their order, and the versions that stay, including `sound` and its bases; `None` if no version
    /// is whole.
    fn kept(&self, retention: &Retention, sound: Option<u64>) -> Option<(Vec<u64>, BTreeSet<u64>)> {
        let whole = self.whole();
        let bases = self.bases();
        let mut kept = retention.kept(&whole, &bases, now());
        let more = self.saving.keys().copied().chain(sound);
        kept.extend(with_bases(more.collect(), &bases));
        let whole: Vec<u64> = whole.iter().map(|info| info.version).collect();
        (!whole.is_empty()).then_some((whole, kept))
    }

    /// Returns the bases of the pieces that exist or are being saved.
    fn bases(&self) -> BTreeMap<u64, u64> {
        let records = self.catalogs.values().flat_map(Catalog::counting_pieces);
        let pieces = records.filter_map(|piece| Some((piece.version, piece.identity.base?)));
        let saving = self.saving.iter();
        let saving = saving.filter_map(|(version, base)| Some((*version, (*base)?)));
        pieces.chain(saving).collect()
    }
}

/// The state of packing while versions are given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    /// Batches may be on their way to this segment, so it is not changed.
    GoesOn(Name),
    /// Packing was [stopped](Repository::stop_packing).
    Stopped,
}

/// Gives up the records of one rank, except for the `versions` that stay. Keeps the records of each number that is being saved, as
/// the new piece may already have the name of the old one. Numbers of the caller's `own` saves are not kept.
pub(super) fn prune_rank(
    state: &mut State,
    rank: u32,
    owned: &Owned,
    packing: Packing,
    own: &BTreeSet<u64>,
    versions: &dyn Fn(u64) -> bool,
) -> Result<u64> {
    let others = state.saving.keys().filter(|version| !own.contains(version));
    let others: BTreeSet<u64> = others.copied().collect();
    let Some(catalog) = state.catalogs.get_mut(&rank) else {
        return Ok(0);
    };
    catalog.being_written = others;
    let pruned = prune_catalog(catalog, owned, packing, versions);
    catalog.being_written.clear();
    pruned
}

fn prune_catalog(
    catalog: &mut Catalog,
    owned: &Owned,
    packing: Packing,
    versions: &dyn Fn(u64) -> bool,
) -> Result<u64> {
    let counts = |record: &Record, catalog: &Catalog| {
        let same = match record.manifest() {
            None => catalog.piece(record.version),
            Some(_) => catalog.manifest(record.version),
        };
        same.is_some_and(|same| same.is_at(record))
            || catalog.must_stay(record.version, &record.identity)
    };
    let stays =
        |record: &Record, catalog: &Catalog| versions(record.version) && counts(record, catalog);
    let mut losing = Vec::new();
    for (name, seen) in &catalog.files {
        let (staying, lost): (Vec<&Record>, Vec<&Record>) = seen
            .records
            .iter()
            .partition(|record| stays(record, catalog));
        let length = |records: Vec<&Record>| -> u64 {
            records.iter().map(|record| record.record_length).sum()
        };
        let (staying, lost) = (length(staying), length(lost));
        if lost > 0 {
            losing.push((staying, *name, lost));
        }
    }
    if let Packing::GoesOn(current) = packing {
        losing.retain(|(_, name, _)| *name != current);
    }
    if losing.is_empty() {
        return Ok(0);
    }
    let files = owned.files()?;
    // Removals that need no space come first.
    losing.sort_unstable();
    if packing == Packing::Stopped {
        // The current segment may also lose records; if it is rewritten, it must be closed.
        match files.packer.finish() {
            // The file is read as it is.
            Ok(()) | Err(Error::Full { .. }) => {}
            failed => failed?,
        }
    }
    let (mut bytes, mut retired) = (0, Vec::new());
    let mut rewrite = |catalog: &mut Catalog, name: Name, lost: u64| -> Result<()> {
        let Some(seen) = catalog.files.get(&name) else {
            return Ok(());
        };
        let staying = seen.records.iter().filter(|record| stays(record, catalog));
        let staying: BTreeSet<u64> = staying.map(|record| record.position).collect();
        let mut records = Vec::new();
        match name {
            Name::Alone(_) | Name::Manifest(_) => {
                let size = seen.records.iter().map(|record| record.record_length).sum();
                let (from, to) = (name.published(), files.spares.next_name());
                retired.extend(files.spares.retire(&from, &to, size)?);
            }
            Name::Segment(_) | Name::Twin(_) => {
                let mut batch = read(catalog, name, &staying)?;
                if !batch.records.is_empty() {
                    records = files.packer.rewrite(&mut batch)?;
                }
                // Damaged bytes that may belong to a record that stays are not removed, nor is a record whose head was damaged since the last look.
                let is_lost = |damage: &Damage| damage.version.is_some_and(|v| !versions(v));
                if records.len() == staying.len() && seen.details().damage.iter().all(is_lost) {
                    let directory = catalog.directory()?;
                    // An open segment of the same number, beside a closed one, is another file.
                    let twin = name.segment().map(Name::Twin);
                    let is_alone = twin.is_none_or(|twin| !catalog.files.contains_key(&twin));
                    let (own, other) = match seen.published {
                        true => (
                            name.published(),
                            Some(name.unpublished()).filter(|_| is_alone),
                        ),
                        false => (name.unpublished(), Some(name.published())),
                    };
                    // The name that has the records goes last, so they are still there if a removal fails.
                    let mut names = other.into_iter().chain([own]);
                    let removed = names.try_for_each(|name| directory.remove(&name));
                    if removed.is_err() {
                        // All pieces are still where they were. The catalog lists the new segment only if it cannot be removed
                        // either.
                        let successor = records.first().map(|record| record.file.published());
                        if successor.is_some_and(|name| directory.remove(&name).is_err()) {
                            records
                                .into_iter()
                                .for_each(|record| catalog.insert(record));
                        }
                        return removed;
                    }
                } else {
                    let text = match seen.published {
                        true => name.published(),
                        false => name.unpublished(),
                    };
                    catalog.put_aside(&text, name);
                }
            }
        }
        catalog.forget(name);
        for record in records {
            catalog.insert(record);
        }
        bytes += lost;
        Ok(())
    };
    let (mut done, mut full) = (Ok(()), None);
    for (_, name, lost) in losing {
        match rewrite(catalog, name, lost) {
            Ok(()) => {}
            // There may be room once other files are removed.
            Err(error @ Error::Full { .. }) => {
                files.spares.clear();
                if rewrite(catalog, name, lost).is_err() {
                    full = Some(error);
                }
            }
            // A file that cannot be read or removed does not keep others from being removed.
            Err(error @ (Error::File { .. } | Error::Read { .. })) => done = done.and(Err(error)),
            Err(error) => {
                done = Err(error);
                break;
            }
        }
    }
    let synced = catalog.directory()?.sync();
    let done = done.and(synced);
    for file in retired {
        match done {
            Ok(()) if full.is_none() => files.spares.put(file),
            _ => files.spares.discard(file),
        }
    }
    // The catalog is sorted even after an error.
    catalog.sort();
    done?;
    match full {
        Some(error) if bytes == 0 => Err(error),
        _ => Ok(bytes),
    }
}

/// Reads the records of a segment at these positions, byte for byte. Damaged records stay damaged, so that readers notice. Leaves
/// out records whose heads are damaged.
fn read(catalog: &Catalog, name: Name, positions: &BTreeSet<u64>) -> Result<Batch> {
    let mut batch = Batch::default();
    if positions.is_empty() {
        return Ok(batch);
    }
    let handle = catalog.directory()?.read_by_either_name(name)?;
    let handle = handle.ok_or_else(|| Error::Vanished {
        directory: catalog.path().to_path_buf(),
    })?;
    let seen = catalog.files.get(&name);
    let known = seen.into_iter().flat_map(|seen| &seen.records);
    let known: BTreeMap<u64, &Record> = known.map(|record| (record.position, record)).collect();
    scan(&handle.plain, 0, |found| {
        if let Found::Record(head) = found
            && positions.contains(&head.position)
            && let Some(record) = known.get(&head.position)
        {
            let mut bytes = vec![0; head.record_length() as usize];
            handle.plain.read(head.position, &mut bytes)?;
            batch.push(&bytes, head.length as usize, (*record).clone());
        }
        Ok(true)
    })?;
    Ok(batch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Region, Snapshot};

    #[test]
    fn versions_that_are_removed_take_no_memory() {
        let home = tempfile::tempdir().unwrap();
        let repository = Repository::open(home.path(), Options::default()).unwrap();
        for version in 0..100 {
            let regions = &[Region::new("state", b"bytes")];
            let snapshot = Snapshot::new(version, regions);
            repository.save(&snapshot).unwrap();
        }
        repository.remove(&(0..99).collect()).unwrap();
        assert_eq!(repository.state().saved, BTreeSet::from([99]));
    }
}
