//! Verifying and pruning a history, whichever ranks wrote it.

use crate::Objects;
use crate::name::{Name, ObjectKind};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use tierflow_store::{
    Damage, Error, Heads, Pruned, Result, Retention, Scrubbed, Vault, can_be_restored,
    last_restorable,
};

impl Objects {
    /// Returns true if nothing lies under the prefix.
    ///
    /// # Errors
    /// [`Error::Remote`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.catalog()?.names().next().is_none())
    }

    /// Reads all pieces of all ranks (of one `version` only, if it is named) and checks every checksum. `progress` is told, by
    /// several threads, how many bytes of how many are done.
    ///
    /// # Errors
    /// [`Error::Remote`]; what is wrong with an object is in the outcome.
    pub fn verify(
        &self,
        version: Option<u64>,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Scrubbed> {
        let is_wanted = |found: Option<u64>| version.is_none() || found == version;
        let catalog = self.catalog()?;
        let names = catalog.names();
        let names =
            names.filter(|name| name.kind == ObjectKind::Piece && is_wanted(Some(name.version)));
        let pieces = names.filter_map(|name| {
            let piece = catalog.listed(name.version, name.rank)?;
            Some((name, piece.info.bytes))
        });
        let pieces: Vec<(Name, u64)> = pieces.collect();
        drop(catalog);
        let damage = self.damage().into_iter();
        let mut scrubbed = Scrubbed {
            damage: damage.filter(|damage| is_wanted(damage.version)).collect(),
            ..Scrubbed::default()
        };
        let total = pieces.iter().map(|(_, bytes)| bytes).sum();
        let done = AtomicU64::new(0);
        for (name, bytes) in pieces {
            let before = done.load(Ordering::Relaxed);
            // Padding is read and does not count.
            let report = |more| {
                let done = done.fetch_add(more, Ordering::Relaxed) + more;
                progress(done.min(before + bytes), total);
            };
            let piece = self.piece_of(name.version, name.rank);
            match piece.and_then(|piece| piece.verify(&report)) {
                Ok(()) => {
                    scrubbed.pieces += 1;
                    scrubbed.bytes += bytes;
                }
                // The object was removed meanwhile.
                Err(Error::NoVersion { .. }) => {}
                Err(Error::Damaged {
                    path, offset, what, ..
                }) => scrubbed.damage.push(Damage {
                    path,
                    offset,
                    version: Some(name.version),
                    what,
                }),
                Err(error) => return Err(error),
            }
            done.store(before + bytes, Ordering::Relaxed);
        }
        Ok(scrubbed)
    }

    /// Returns the versions that [`prune`](Self::prune) would give up. Nothing is changed.
    ///
    /// # Errors
    /// [`Error::Remote`].
    pub fn would_prune(&self, retention: &Retention) -> Result<Pruned> {
        let whole = self.versions()?;
        let mut going: BTreeSet<u64> = retention.given_up(&whole).into_iter().collect();
        if !going.is_empty() {
            let numbers = whole.iter().map(|info| info.version);
            let staying = numbers.filter(|version| !going.contains(version));
            let piece_of = |version, rank| self.piece_of(version, rank);
            let last = last_restorable(staying, going.iter().copied(), |version| {
                can_be_restored(version, piece_of, |_| true)
            });
            last.map(|version| going.remove(&version));
        }
        let catalog = self.catalog()?;
        let going = catalog.without_bases(&going);
        let names = catalog.names().filter(|name| going.contains(&name.version));
        let bytes = names
            .filter_map(|name| catalog.size(name.version, name.rank))
            .sum();
        let versions = going.into_iter().collect();
        Ok(Pruned { versions, bytes })
    }

    /// Gives up what `retention` does not keep, of all ranks, while none of them writes. Of the versions that stay, one is read
    /// whose checksums match; if there is none, the newest such one of the others stays with them.
    ///
    /// # Errors
    /// [`Error::Remote`]; what is to stay is there whatever happens.
    pub fn prune(&self, retention: &Retention) -> Result<Pruned> {
        let pruned = self.would_prune(retention)?;
        self.remove_all_ranks(&pruned.versions.iter().copied().collect())?;
        Ok(pruned)
    }

    /// Gives up the pieces of all ranks of these versions, as far as they are there and nothing that stays is a difference
    /// against them, while none of the ranks writes.
    ///
    /// # Errors
    /// [`Error::Remote`] when some may still be there.
    pub fn remove_all_ranks(&self, versions: &BTreeSet<u64>) -> Result<()> {
        let catalog = self.catalog()?;
        let free = catalog.without_bases(versions);
        let names = catalog.names().filter(|name| free.contains(&name.version));
        let mut names: Vec<Name> = names.chain(catalog.superseded_up_to(&free)).collect();
        drop(catalog);
        // The manifests first: without them, a version is not there.
        names.sort_by_key(|name| (name.version, name.kind == ObjectKind::Piece));
        names
            .into_iter()
            .try_for_each(|name| self.remove_object(name))
    }
}
