//! Reads everything, to find damage before the bytes are needed.

use super::catalog::Catalog;
use super::damage::Damage;
use super::piece::Piece;
use super::record::Record;
use super::{Repository, rank_name};
use crate::container::UNREADABLE;
use crate::{Error, Result};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// The findings of a scrub.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Pieces that were read and are sound.
    pub pieces: u64,
    /// Bytes of these pieces.
    pub bytes: u64,
    /// The damage that was found.
    pub damage: Vec<Damage>,
}

impl Repository {
    /// Reads all pieces of all ranks, or only those of `version` if it is given, and verifies every checksum. Calls `progress`,
    /// from several threads, with the bytes that are done and the bytes in all. Changes and repairs nothing.
    ///
    /// # Errors
    /// If a directory cannot be read. Faults of single files are part of the result.
    pub fn scrub(
        &self,
        version: Option<u64>,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Scrubbed> {
        let mut state = self.state();
        self.refresh(&mut state)?;
        let ranks: Vec<u32> = state.catalogs.keys().copied().collect();
        drop(state);
        let mut scrubbed = Scrubbed::default();
        let mut catalogs = Vec::new();
        if self.blobs().is_some() {
            return self.scrub_blobs(version, progress);
        }
        for rank in ranks {
            let Some(top) = self.directories() else {
                continue;
            };
            let directory = top.sub(&rank_name(rank), false)?;
            // A new catalog reads the files again, whatever is known of them.
            let mut catalog = Catalog::new(directory, rank);
            catalog.refresh()?;
            let damage = catalog.damage();
            let wanted = |damage: &Damage| {
                version.is_none() || damage.version.is_none() || damage.version == version
            };
            scrubbed.damage.extend(damage.filter(wanted));
            catalog.close();
            catalogs.push(catalog);
        }
        let wanted = |record: &&Record| version.is_none_or(|version| version == record.version);
        let pieces = |(at, catalog): (usize, &Catalog)| -> Vec<(usize, Record)> {
            let records = catalog.counting_pieces().filter(wanted);
            records.map(|record| (at, record.clone())).collect()
        };
        let pieces: Vec<_> = catalogs.iter().enumerate().flat_map(pieces).collect();
        let total = pieces.iter().map(|(_, record)| record.bytes).sum();
        let done = AtomicU64::new(0);
        for (at, record) in pieces {
            let before = done.load(Ordering::Relaxed);
            let progress = |bytes| {
                let done = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
                progress(done.min(before + record.bytes).min(total), total);
            };
            let found = self.check(&mut catalogs[at], &record, &progress)?;
            catalogs[at].close();
            // Padding is read but does not count.
            done.store(before + record.bytes, Ordering::Relaxed);
            match found {
                Checked::Sound => {
                    scrubbed.pieces += 1;
                    scrubbed.bytes += record.bytes;
                }
                Checked::Gone => {}
                Checked::Damaged(damage) => scrubbed.damage.push(damage),
            }
        }
        Ok(scrubbed)
    }

    /// Scrubs blobs, as [`scrub`](Self::scrub) does. The blobs were listed before.
    fn scrub_blobs(
        &self,
        version: Option<u64>,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Scrubbed> {
        let is_wanted = |found: Option<u64>| version.is_none() || found == version;
        let damage = self.damage().into_iter();
        let mut scrubbed = Scrubbed {
            damage: damage.filter(|damage| is_wanted(damage.version)).collect(),
            ..Scrubbed::default()
        };
        let mut pieces = Vec::new();
        for (rank, catalog) in &self.state().catalogs {
            let wanted = catalog.counting_pieces();
            let wanted = wanted.filter(|record| is_wanted(Some(record.version)));
            pieces.extend(wanted.map(|record| (*rank, record.version, record.bytes)));
        }
        let total = pieces.iter().map(|(_, _, bytes)| bytes).sum();
        let done = AtomicU64::new(0);
        for (rank, version, bytes) in pieces {
            let before = done.load(Ordering::Relaxed);
            let report = |more| {
                let done = done.fetch_add(more, Ordering::Relaxed) + more;
                progress(done.min(before + bytes), total);
            };
            let found = self.found(&self.state(), rank, version)?;
            let piece = found.map(|(place, record)| self.open_record(&place, &record, None));
            match piece.map(|piece| piece.and_then(|piece| piece.verify(&report))) {
                Some(Ok(())) => {
                    scrubbed.pieces += 1;
                    scrubbed.bytes += bytes;
                }
                // The blob was removed meanwhile.
                None | Some(Err(Error::NoVersion { .. })) => {}
                Some(Err(Error::Damaged {
                    path, offset, what, ..
                })) => scrubbed.damage.push(Damage {
                    path,
                    offset,
                    version: Some(version),
                    what,
                }),
                Some(Err(error)) => return Err(error),
            }
            // Padding is read but does not count.
            done.store(before + bytes, Ordering::Relaxed);
        }
        Ok(scrubbed)
    }

    /// Verifies a piece. After a failure, looks for the piece again, as the writer may have moved it meanwhile.
    fn check(
        &self,
        catalog: &mut Catalog,
        record: &Record,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Checked> {
        let mut record = record.clone();
        let top = self.directories();
        let directory = top.map(|top| top.sub(&rank_name(catalog.rank), false));
        if !directory
            .transpose()?
            .is_some_and(|directory| catalog.reopen(directory))
        {
            return Ok(Checked::Gone);
        }
        loop {
            let piece = Piece::open(catalog.directory()?, &record, self.options.threads, None);
            let (path, offset, what) = match piece.and_then(|piece| piece.verify(progress)) {
                Ok(()) => return Ok(Checked::Sound),
                Err(Error::Damaged {
                    path, offset, what, ..
                }) => (path, offset, what),
                Err(Error::Read { offset, .. }) => {
                    let path = catalog.path().join(record.file.published());
                    (path, offset, UNREADABLE.what())
                }
                Err(Error::NoVersion { .. }) => (PathBuf::new(), 0, ""),
                Err(error) => return Err(error),
            };
            catalog.refresh()?;
            match catalog.piece(record.version) {
                None => return Ok(Checked::Gone),
                Some(now) if !now.is_at(&record) => record = now.clone(),
                // The file is being written over.
                Some(_) if what.is_empty() => return Ok(Checked::Gone),
                Some(_) => {
                    return Ok(Checked::Damaged(Damage {
                        path,
                        offset,
                        version: Some(record.version),
                        what,
                    }));
                }
            }
        }
    }
}

/// The result for one piece.
enum Checked {
    Sound,
    /// The piece was given up meanwhile.
    Gone,
    Damaged(Damage),
}
