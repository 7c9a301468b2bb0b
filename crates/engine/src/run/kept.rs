//! A tier that outlives the engine: copies lie under their versions' numbers, whole or not at all, with checksums.

use super::sync::Mutex;
use crate::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tierflow_store::{Error, Piece, Region, Result, Retention, Snapshot, Vault};

/// Copies given up are removed so many, or of so many bytes, at a time: small ones share files, which are written anew.
const REMOVED_AT_ONCE: usize = 256;
const BYTES_REMOVED_AT_ONCE: u64 = 64 << 20;

/// The name under which a checkpoint is saved: its regions, one after the other.
const NAME: &str = "checkpoint";

/// A vault as a tier.
#[derive(Debug)]
pub(crate) struct Kept {
    vault: Arc<dyn Vault>,
    /// The vault below: it may have what cannot be read here.
    below: Option<Arc<Kept>>,
    retention: Option<Retention>,
    /// Copies that came since [`Self::outlived`] looked last, and how many it waits for.
    came: Mutex<(usize, usize)>,
    /// Copies given up that are still there, with their bytes.
    dropped: Mutex<BTreeMap<Version, u64>>,
    /// Held while they are removed: [`Self::dropped`] never is, as the plan's lock is held when it is taken.
    removing: Mutex<()>,
}

/// Takes the bytes of a checkpoint from an offset on.
pub(crate) type Push<'a> = dyn FnMut(u64, &[u8]) -> Result<()> + 'a;

impl Kept {
    pub(crate) fn new(
        vault: Arc<dyn Vault>,
        below: Option<Arc<Self>>,
        retention: Option<Retention>,
    ) -> Self {
        Self {
            vault,
            below,
            retention,
            came: Mutex::default(),
            dropped: Mutex::default(),
            removing: Mutex::default(),
        }
    }

    pub(crate) fn vault(&self) -> &dyn Vault {
        &*self.vault
    }

    /// Keeps bytes under a version's number.
    pub(super) fn save_bytes(&self, version: Version, bytes: &[u8]) -> Result<()> {
        self.save(version, Region::new(NAME, bytes))
    }

    /// Keeps bytes that are fetched when they are written.
    pub(super) fn save_pulled(
        &self,
        version: Version,
        size: u64,
        pull: &tierflow_store::Pull<'_>,
    ) -> Result<()> {
        self.save(version, Region::pulled(NAME, size, pull))
    }

    fn save(&self, version: Version, region: Region<'_>) -> Result<()> {
        let regions = [region];
        let snapshot = Snapshot {
            version,
            base: None,
            regions: &regions,
        };
        self.put(version, || self.vault.save(&snapshot))
    }

    /// Keeps the copy of another vault, with its checksums.
    pub(super) fn copy(&self, version: Version, from: &Self) -> Result<()> {
        from.read(version, &mut |piece| {
            self.put(version, || self.vault.copy(piece))
        })
    }

    /// What was given up gets out of the way of what is put there: of the same number, and of a disk that is full.
    fn put(&self, version: Version, put: impl Fn() -> Result<()>) -> Result<()> {
        let is_dropped = self.dropped.lock().contains_key(&version);
        if is_dropped {
            self.remove_dropped()?;
        }
        match put() {
            Err(Error::Full { .. }) if !self.dropped.lock().is_empty() => {
                self.remove_dropped()?;
                put()
            }
            done => done,
        }?;
        self.came.lock().0 += 1;
        Ok(())
    }

    /// The versions that are not to be kept any more. Looked for once for so many new ones that it costs next to nothing.
    pub(super) fn outlived(&self) -> Vec<Version> {
        let Some(retention) = self.retention else {
            return Vec::new();
        };
        let mut came = self.came.lock();
        if came.0 < came.1 {
            return Vec::new();
        }
        // Should they not be listed, the next one that comes tries again.
        let mut versions = self.vault.versions().unwrap_or_default();
        let dropped = self.dropped.lock();
        versions.retain(|info| !dropped.contains_key(&info.version));
        drop(dropped);
        *came = (0, versions.len() / 8);
        retention.given_up(&versions)
    }

    /// Lets [`Self::outlived`] look again in any case.
    pub(super) fn look_again(&self) {
        self.came.lock().1 = 0;
    }

    /// Removes what was given up, once it is worth it.
    pub(super) fn tidy(&self) {
        let is_much = {
            let dropped = self.dropped.lock();
            let bytes = dropped.values().sum::<u64>();
            dropped.len() >= REMOVED_AT_ONCE || bytes >= BYTES_REMOVED_AT_ONCE
        };
        if is_much {
            // Tried again with the next one, and when the engine goes.
            let _still_there = self.remove_dropped();
        }
    }

    /// Fills `bytes` with a version's; every checksum is checked.
    pub(super) fn restore(&self, version: Version, bytes: &mut [u8]) -> Result<()> {
        self.read(version, &mut |piece| {
            let mut rest = &mut *bytes;
            let mut regions = Vec::new();
            for region in piece.regions() {
                let length = usize::try_from(region.length).unwrap_or(usize::MAX);
                let Some((first, behind)) = std::mem::take(&mut rest).split_at_mut_checked(length)
                else {
                    return Err(longer(piece));
                };
                regions.push((region.name.as_str(), first));
                rest = behind;
            }
            piece.restore(&mut regions)
        })
    }

    /// Hands a version's bytes on to `push` in their order; every checksum is checked before.
    pub(super) fn read_through(&self, version: Version, push: &mut Push<'_>) -> Result<()> {
        self.read(version, &mut |piece| {
            let mut before = 0;
            for region in piece.regions() {
                piece.read_through(&region.name, &mut |at, bytes| push(before + at, bytes))?;
                before += region.length;
            }
            Ok(())
        })
    }

    /// Reads the copy here; should that fail, the one below.
    fn read(&self, version: Version, read: &mut dyn FnMut(&Piece) -> Result<()>) -> Result<()> {
        let here = self.vault.piece(version).and_then(|piece| read(&piece));
        let is_unreadable = matches!(
            here,
            Err(Error::Damaged { .. }
                | Error::Read { .. }
                | Error::NoVersion { .. }
                | Error::Vanished { .. }
                | Error::File { .. })
        );
        match &self.below {
            Some(below) if is_unreadable => below.read(version, read).or(here),
            _ => here,
        }
    }

    /// A copy was given up.
    pub(super) fn drop_copy(&self, version: Version, size: u64) {
        self.dropped.lock().insert(version, size);
    }

    /// Removes the copies given up so far.
    pub(crate) fn remove_dropped(&self) -> Result<()> {
        let _one_at_a_time = self.removing.lock();
        let dropped: BTreeSet<Version> = self.dropped.lock().keys().copied().collect();
        if !dropped.is_empty() {
            self.vault.remove(&dropped)?;
            let mut left = self.dropped.lock();
            left.retain(|version, _| !dropped.contains(version));
        }
        Ok(())
    }
}

fn longer(piece: &Piece) -> Error {
    Error::Argument(format!(
        "version {} has another length than it had when it was found",
        piece.version()
    ))
}
