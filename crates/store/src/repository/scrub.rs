//! Reading everything, to find what no longer is what was written before it is needed.

use super::Repository;
use super::catalog::Catalog;
use super::piece::Piece;
use super::seen::Damage;
use crate::{Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};

/// What a scrub found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// How many pieces were read.
    pub pieces: u64,
    /// How many bytes of them.
    pub bytes: u64,
    /// All that is damaged.
    pub damage: Vec<Damage>,
}

impl Repository {
    /// Reads all pieces of all ranks (of one `version` only, if it is named) and checks every checksum. `progress` is
    /// told, by several threads, how many bytes of how many are done.
    ///
    /// # Errors
    /// When a directory cannot be read; what is wrong with a file is in the outcome.
    pub fn scrub(
        &self,
        version: Option<u64>,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Scrubbed> {
        let mut state = self.state();
        self.refresh(&mut state)?;
        let directories: Vec<_> = state
            .catalogs
            .values()
            .map(|c| (c.rank, c.directory.clone()))
            .collect();
        drop(state);
        let mut scrubbed = Scrubbed::default();
        let mut catalogs = Vec::new();
        for (rank, directory) in directories {
            // From the disk, whatever is known of it.
            let mut catalog = Catalog::new(directory, rank);
            catalog.refresh()?;
            let damage = catalog.files.values().flat_map(|seen| seen.damage.clone());
            let wanted = |damage: &Damage| {
                version.is_none() || damage.version.is_none() || damage.version == version
            };
            scrubbed.damage.extend(damage.filter(wanted));
            catalogs.push(catalog);
        }
        let pieces = || {
            let all = catalogs.iter().flat_map(|catalog| {
                catalog
                    .pieces
                    .values()
                    .map(|record| (&catalog.directory, record))
            });
            all.filter(|(_, record)| version.is_none_or(|version| version == record.version))
        };
        let total = pieces().map(|(_, record)| record.bytes).sum();
        let done = AtomicU64::new(0);
        for (directory, record) in pieces() {
            let before = done.load(Ordering::Relaxed);
            let checked =
                Piece::open(directory, record, self.options.threads, None).and_then(|piece| {
                    piece.verify(&|bytes| {
                        let done = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
                        progress(done.min(before + record.bytes).min(total), total);
                    })
                });
            // Padding is read and does not count.
            done.store(before + record.bytes, Ordering::Relaxed);
            let (path, offset, what) = match checked {
                Ok(()) => {
                    scrubbed.pieces += 1;
                    scrubbed.bytes += record.bytes;
                    continue;
                }
                // Pruned meanwhile.
                Err(Error::NoVersion { .. }) => continue,
                Err(Error::Damaged {
                    path, offset, what, ..
                }) => (path, offset, what),
                Err(Error::Read { offset, .. }) => {
                    let path = directory.path().join(record.file.published());
                    (path, offset, "it cannot be read")
                }
                Err(error) => return Err(error),
            };
            scrubbed.damage.push(Damage {
                path,
                offset,
                version: Some(record.version),
                what,
            });
        }
        Ok(scrubbed)
    }
}
