//! Turns panics of storage, vaults and blobs that the caller implements into errors.

use crate::panics::guarded;
use crate::{
    BlobStamp, Blobs, ByteSource, Collective, Damage, Identity, Mark, Piece, PieceInfo, PutRule,
    Ready, RecordBytes, Result, Snapshot, Storage, Vault, VersionInfo, Written,
};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Turns a panic in storage, in a vault or in blobs into [`Error::Panicked`](crate::Error::Panicked), so that the calling threads live on.
/// `Guarded` calls the implementation again after a panic, which must cope with the state that it left.
#[derive(Debug)]
pub struct Guarded<T: ?Sized> {
    inner: Arc<T>,
    /// The first alignment that the storage reported.
    alignment: OnceLock<usize>,
}

impl<T: ?Sized> Guarded<T> {
    /// Guards `inner`.
    pub fn new(inner: Arc<T>) -> Self {
        Self {
            inner,
            alignment: OnceLock::new(),
        }
    }
}

impl<S: Storage + ?Sized> Storage for Guarded<S> {
    /// Returns the first alignment that the storage reported; 0, which no storage has, if the call panicked.
    fn alignment(&self) -> usize {
        *self.alignment.get_or_init(|| {
            guarded("telling its alignment", || Ok(self.inner.alignment())).unwrap_or(0)
        })
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        guarded("writing", || self.inner.write_at(offset, bytes))
    }

    fn write_parts(&self, offset: u64, bytes: &[u8], parts: &[usize]) -> Result<()> {
        guarded("writing", || self.inner.write_parts(offset, bytes, parts))
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        guarded("reading", || self.inner.read_at(offset, bytes))
    }

    fn unverified(&self) -> u64 {
        let told = guarded("counting unverified bytes", || Ok(self.inner.unverified()));
        told.unwrap_or(0)
    }
}

impl<B: Blobs + ?Sized> Blobs for Guarded<B> {
    fn list(&self, found: &mut (dyn FnMut(&str, BlobStamp) + Send)) -> Result<()> {
        guarded("listing blobs", || self.inner.list(found))
    }

    fn stamp(&self, name: &str) -> Result<Option<BlobStamp>> {
        guarded("looking for a blob", || self.inner.stamp(name))
    }

    fn open(&self, name: &str, size: u64, ahead: u64) -> Result<Option<Box<dyn ByteSource>>> {
        guarded("opening a blob", || self.inner.open(name, size, ahead))
    }

    fn put(
        &self,
        name: &str,
        record: &RecordBytes<'_>,
        how: PutRule,
        ready: &Ready<'_>,
    ) -> Result<Written> {
        guarded("writing a blob", || {
            self.inner.put(name, record, how, ready)
        })
    }

    fn note(&self, name: &str) -> Result<()> {
        guarded("writing a note", || self.inner.note(name))
    }

    fn remove(&self, name: &str) -> Result<()> {
        guarded("removing a blob", || self.inner.remove(name))
    }

    fn shown(&self, name: &str) -> PathBuf {
        let shown = guarded("naming a blob", || Ok(self.inner.shown(name)));
        shown.unwrap_or_else(|_| PathBuf::from(name))
    }
}

// Every method must be forwarded: the default methods of the trait describe a vault that does nothing.
#[deny(clippy::missing_trait_methods)]
impl<V: Vault + ?Sized> Vault for Guarded<V> {
    fn versions(&self) -> Result<Vec<VersionInfo>> {
        guarded("listing its versions", || self.inner.versions())
    }

    fn piece(&self, version: u64) -> Result<Piece> {
        guarded("opening a version", || self.inner.piece(version))
    }

    fn pieces(&self) -> Result<Vec<PieceInfo>> {
        guarded("listing its pieces", || self.inner.pieces())
    }

    fn last_run(&self) -> Result<Mark> {
        guarded("looking for its last run", || self.inner.last_run())
    }

    fn damage(&self) -> Vec<Damage> {
        let damage = guarded("telling its damage", || Ok(self.inner.damage()));
        damage.unwrap_or_else(|_| {
            vec![Damage {
                path: PathBuf::new(),
                offset: 0,
                version: None,
                what: "it panicked when it was asked for its damage",
            }]
        })
    }

    fn save(&self, snapshot: &Snapshot<'_>, ready: &Ready<'_>) -> Result<()> {
        guarded("saving a version", || self.inner.save(snapshot, ready))
    }

    fn copy(&self, piece: &Piece, ready: &Ready<'_>) -> Result<()> {
        guarded("copying a version", || self.inner.copy(piece, ready))
    }

    fn takes_copies_alone(&self) -> bool {
        let told = guarded("telling how versions come there", || {
            Ok(self.inner.takes_copies_alone())
        });
        told.unwrap_or(false)
    }

    fn remove(&self, versions: &BTreeSet<u64>) -> Result<()> {
        guarded("removing versions", || self.inner.remove(versions))
    }

    fn collective(&self) -> Option<&dyn Collective> {
        self.inner.collective()
    }

    fn truncate(&self, after: Option<u64>) -> Result<()> {
        guarded("giving versions up", || self.inner.truncate(after))
    }

    fn refuses(&self, version: u64, identity: &Identity) -> Result<bool> {
        guarded("looking for versions given up", || {
            self.inner.refuses(version, identity)
        })
    }

    fn renumber(&self, run: u64) {
        let renumbered = guarded("renumbering its run", || {
            self.inner.renumber(run);
            Ok(())
        });
        // Storage that panicked here fails again when it is to keep a piece.
        let _said_later = renumbered;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn what_a_panic_said_is_told() {
        let said = |panic: fn() -> Result<()>| match guarded("trying", panic) {
            Err(Error::Panicked { doing, message }) => (doing, message),
            other => panic!("{other:?}"),
        };
        assert_eq!(said(|| panic!("a word")), ("trying", "a word".to_owned()));
        assert_eq!(said(|| panic!("{} words", 2)).1, "2 words");
        assert_eq!(said(|| std::panic::panic_any(7)).1, "it did not say why");
    }
}
