//! Giving versions up.

use super::catalog::Catalog;
use super::record::{Name, Record};
use super::retention::{Retention, with_bases};
use super::save::now;
use super::segment::Batch;
use super::{Owned, Repository, State};
use crate::container::{Found, Source, scan};
use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{PoisonError, RwLockWriteGuard};

/// What pruning took away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The versions that were whole before and are there no more, oldest first.
    pub versions: Vec<u64>,
    /// How many bytes of records were removed, those of pieces that nobody completed included.
    pub bytes: u64,
}

impl Repository {
    /// Gives up what `retention` does not keep, in the directories that this process writes. Every rank of a group
    /// prunes its own; a version of which one piece is gone is no longer listed.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Full`] (a segment of which a part stays is written anew), [`Error::Vanished`]. What
    /// is to stay is there whatever happens.
    pub fn prune(&self, retention: &Retention) -> Result<Pruned> {
        self.complete_all()?;
        let _no_saving = self.stop_packing();
        let mut state = self.state();
        self.refresh(&mut state)?;
        let whole = state.whole();
        let Some(newest) = whole.last().map(|info| info.version) else {
            return Ok(Pruned::default());
        };
        let bases = state.bases();
        let mut kept = retention.kept(&whole, &bases, now());
        kept.extend(with_bases(state.saving.keys().copied().collect(), &bases));
        let stays = |version| version > newest || kept.contains(&version);
        let mut bytes = 0;
        for (rank, owned) in &self.owned {
            bytes += prune_rank(&mut state, *rank, owned, &stays)?;
        }
        let versions = whole.iter().map(|info| info.version);
        Ok(Pruned {
            versions: versions
                .filter(|version| !state.is_whole(*version))
                .collect(),
            bytes,
        })
    }

    /// Gives up these versions, as far as they are there and nothing that stays is a difference against them. Small ones
    /// share files with others, which are written anew: give up many at a time.
    ///
    /// # Errors
    /// As [`prune`](Self::prune).
    pub fn remove(&self, versions: &BTreeSet<u64>) -> Result<()> {
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

    /// [`remove`](Self::remove), whatever is a difference against them: that one is not whole here any more. For who keeps
    /// them elsewhere, too.
    ///
    /// # Errors
    /// As [`prune`](Self::prune).
    pub fn remove_even_bases(&self, versions: &BTreeSet<u64>) -> Result<()> {
        let _no_saving = self.stop_packing();
        let mut state = self.state();
        let stays = |version| !versions.contains(&version);
        for (rank, owned) in &self.owned {
            prune_rank(&mut state, *rank, owned, &stays)?;
        }
        Ok(())
    }

    /// Waits until no batch is between the disk and the catalog, and lets none get there.
    fn stop_packing(&self) -> Vec<RwLockWriteGuard<'_, ()>> {
        let gates = self.owned.values().map(|owned| owned.gate.write());
        gates
            .map(|gate| gate.unwrap_or_else(PoisonError::into_inner))
            .collect()
    }
}

impl State {
    /// What the pieces that are there or being saved are differences against.
    fn bases(&self) -> BTreeMap<u64, u64> {
        let records = self.catalogs.values().flat_map(|c| c.pieces.values());
        let pieces = records.filter_map(|piece| Some((piece.version, piece.base?)));
        let saving = self.saving.iter();
        let saving = saving.filter_map(|(version, base)| Some((*version, (*base)?)));
        pieces.chain(saving).collect()
    }
}

fn prune_rank(
    state: &mut State,
    rank: u32,
    owned: &Owned,
    stays: &dyn Fn(u64) -> bool,
) -> Result<u64> {
    let Some(catalog) = state.catalogs.get_mut(&rank) else {
        return Ok(0);
    };
    let mut bytes = 0;
    let counts = |record: &Record, catalog: &Catalog| {
        let same = match record.rows {
            None => catalog.pieces.get(&record.version),
            Some(_) => catalog.manifests.get(&record.version),
        };
        same.is_some_and(|same| same.sequence == record.sequence)
    };
    let stays =
        |record: &Record, catalog: &Catalog| stays(record.version) && counts(record, catalog);
    let mut losing = Vec::new();
    for (name, seen) in &catalog.files {
        let lost = seen.records.iter().filter(|record| !stays(record, catalog));
        let lost: u64 = lost.map(|record| record.record_length).sum();
        if lost > 0 {
            losing.push((*name, lost));
        }
    }
    if losing.is_empty() {
        return Ok(0);
    }
    // The segment that is being written may lose records too; written anew, it is closed.
    owned.packer.finish()?;
    let mut retired = Vec::new();
    let rewrite = |catalog: &mut Catalog| -> Result<()> {
        for (name, lost) in losing {
            let Some(seen) = catalog.files.get(&name) else {
                continue;
            };
            let staying = seen.records.iter().filter(|record| stays(record, catalog));
            let staying: BTreeSet<u64> = staying.map(|record| record.position).collect();
            let records = match name {
                Name::Segment(number) if !staying.is_empty() => {
                    let mut batch = read(catalog, name, &staying)?;
                    Some(owned.packer.replace(number, &mut batch)?)
                }
                Name::Alone(_) => {
                    let size = seen.records.iter().map(|record| record.record_length).sum();
                    let (from, to) = (name.published(), name.unpublished());
                    retired.extend(owned.spares.retire(&from, &to, size)?);
                    None
                }
                Name::Segment(_) => {
                    catalog.directory.remove(&name.published())?;
                    catalog.directory.remove(&name.unpublished())?;
                    None
                }
            };
            catalog.forget(name);
            for record in records.into_iter().flatten() {
                catalog.insert(record);
            }
            bytes += lost;
        }
        catalog.directory.sync()
    };
    let rewritten = rewrite(catalog);
    for file in retired {
        match rewritten {
            Ok(()) => owned.spares.put(file),
            Err(_) => owned.spares.discard(file),
        }
    }
    // However far that went.
    catalog.sort();
    rewritten.map(|()| bytes)
}

/// The records of a segment at these positions, byte for byte: what was damaged stays damaged, and is found.
fn read(catalog: &Catalog, name: Name, positions: &BTreeSet<u64>) -> Result<Batch> {
    let mut batch = Batch::default();
    let handle = match catalog.directory.read(&name.published())? {
        Some(handle) => Some(handle),
        None => catalog.directory.read(&name.unpublished())?,
    };
    let handle = handle.ok_or_else(|| Error::Vanished {
        directory: catalog.directory.path().to_path_buf(),
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
