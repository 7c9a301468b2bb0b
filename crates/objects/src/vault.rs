//! Versions in an object store.

use crate::catalog::{Catalog, Name};
use crate::remote::{Object, Remote};
use object_store::ObjectStore;
use object_store::path::Path;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tierflow_store::container::{Kind, Row};
use tierflow_store::{
    Damage, Encoded, Error, Identity, Mark, Order, Piece, PieceInfo, Region, Result, Snapshot,
    Stamp, Vault, VersionInfo,
};

/// How versions are kept in an object store.
#[derive(Debug, Clone)]
pub struct Settings {
    rank: u32,
    ranks: u32,
    run: u64,
    patience: Duration,
    threads: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rank: 0,
            ranks: 1,
            run: 0,
            patience: Duration::from_secs(60),
            threads: 4,
        }
    }
}

impl Settings {
    /// Keeps the pieces of `rank`, counted from 0, of `ranks`, written in this `run` of the application: another number
    /// after each restart. Without it, of the only one.
    #[must_use]
    pub fn group(self, rank: u32, ranks: u32, run: u64) -> Self {
        Self {
            rank,
            ranks,
            run,
            ..self
        }
    }

    /// What one request (of 16 MiB at most) may take; at first a minute.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// How many requests (at least 1) read a large piece at a time; at first 4.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }
}

/// The versions under a prefix of an object store, as one rank of their group. One process at a time writes as a rank.
#[derive(Debug)]
pub struct Objects {
    remote: Arc<Remote>,
    prefix: Path,
    settings: Settings,
    catalog: Mutex<Catalog>,
    order: Order,
    /// Versions that may have been written though the store did not say so.
    unsure: Mutex<BTreeSet<u64>>,
    /// Held while a piece is written.
    writing: Mutex<()>,
}

impl Objects {
    /// Versions under `prefix` of `store`. Nothing is asked yet.
    ///
    /// # Errors
    /// [`Error::Argument`] for a rank outside the group; [`Error::Remote`] if no thread can be started.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        prefix: impl Into<Path>,
        settings: Settings,
    ) -> Result<Self> {
        if settings.rank >= settings.ranks {
            let (rank, ranks) = (settings.rank, settings.ranks);
            let why = format!("rank {rank} is none of {ranks}: they are counted from 0");
            return Err(Error::Argument(why));
        }
        Ok(Self {
            remote: Arc::new(Remote::new(store, settings.patience)?),
            prefix: prefix.into(),
            settings,
            catalog: Mutex::default(),
            order: Order::default(),
            unsure: Mutex::default(),
            writing: Mutex::default(),
        })
    }

    fn known(&self) -> MutexGuard<'_, Catalog> {
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What lies there now.
    fn catalog(&self) -> Result<MutexGuard<'_, Catalog>> {
        let mut catalog = self.known();
        catalog.refresh(&self.remote, &self.prefix)?;
        Ok(catalog)
    }

    /// What lies there of this rank, as which nobody else writes: the list is asked for once.
    fn own(&self) -> Result<MutexGuard<'_, Catalog>> {
        let catalog = self.known();
        if catalog.is_listed && self.settings.ranks == 1 {
            return Ok(catalog);
        }
        drop(catalog);
        self.catalog()
    }

    fn name(&self, version: u64, is_manifest: bool) -> Name {
        Name {
            version,
            rank: self.settings.rank,
            is_manifest,
        }
    }

    fn path(&self, version: u64, is_manifest: bool) -> Path {
        self.name(version, is_manifest).path(&self.prefix)
    }

    fn stamp(&self, catalog: &Catalog, kind: Kind) -> Stamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = since.map_or(0, |since| since.as_nanos());
        let Settings {
            rank, ranks, run, ..
        } = self.settings;
        self.order.see(catalog.epoch(rank), catalog.sequence(rank));
        let (epoch, sequence) = self.order.next();
        Stamp {
            kind,
            epoch,
            sequence,
            created: u64::try_from(nanos).unwrap_or(u64::MAX),
            run,
            rank,
            ranks,
        }
    }

    /// Puts a piece where there is none, an older one, or one of a version that never became whole. If the same bytes are
    /// there already, written by this run, the answer of the store was lost before: that is a success.
    fn put(&self, catalog: &mut Catalog, record: &Encoded<'_>) -> Result<()> {
        let (head, rank) = (record.head(), self.settings.rank);
        let (version, identity) = (head.version, Identity::of(head));
        let there = catalog.head(version, rank).map(Identity::of);
        if let Some(there) = there
            && catalog.has_all(version)
        {
            if self.is_ours(version, &there, &identity) {
                self.unsure().remove(&version);
                return Ok(());
            }
            if !identity.is_newer_than(&there) || identity.epoch == there.epoch {
                return Err(Error::Exists { version });
            }
        }
        // What is damaged is written over, too.
        let over = there.is_some() || catalog.damage(version, rank).is_some();
        let path = self.path(version, false);
        let put = self.remote.put(&path, record, over);
        match put {
            Ok(_) => self.unsure().remove(&version),
            Err(_) => self.unsure().insert(version),
        };
        let Some(tag) = put? else {
            self.unsure().insert(version);
            catalog.refresh(&self.remote, &self.prefix)?;
            let there = catalog.head(version, rank).map(Identity::of);
            return match there {
                Some(there) if self.is_ours(version, &there, &identity) => {
                    self.unsure().remove(&version);
                    Ok(())
                }
                _ => Err(Error::Exists { version }),
            };
        };
        catalog.insert(self.name(version, false), tag, (head.clone(), None));
        Ok(())
    }

    fn unsure(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.unsure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what is there is what is to be written: the same piece, or the same bytes that this run tried to write before.
    fn is_ours(&self, version: u64, there: &Identity, identity: &Identity) -> bool {
        let same = |identity: &Identity| {
            (
                identity.epoch,
                identity.run,
                identity.content,
                identity.base,
            )
        };
        there.is_same(identity)
            || (self.unsure().contains(&version) && same(there) == same(identity))
    }

    /// Writes the manifest of a version if all its pieces are there and no manifest is.
    fn complete(&self, version: u64) -> Result<()> {
        if self.settings.ranks == 1 {
            return Ok(());
        }
        let (rows, stamp) = {
            let catalog = self.catalog()?;
            if catalog.has_all(version) {
                return Ok(());
            }
            let Some(rows) = catalog.rows(version) else {
                return Ok(());
            };
            (rows, self.stamp(&catalog, Kind::Manifest))
        };
        let words = rows.iter().flat_map(Row::words);
        let list: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let regions = [Region::new("pieces", &list)];
        let snapshot = Snapshot {
            version,
            base: None,
            regions: &regions,
        };
        let record = Encoded::new(&snapshot, stamp)?;
        let put = self.remote.put(&self.path(version, true), &record, true)?;
        if let Some(tag) = put {
            let found = (record.head().clone(), Some(rows));
            self.known().insert(self.name(version, true), tag, found);
        }
        Ok(())
    }

    fn writing(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Vault for Objects {
    fn versions(&self) -> Result<Vec<VersionInfo>> {
        if self.settings.ranks > 1 {
            // Those whose last rank crashed between its piece and the manifest.
            let catalog = self.catalog()?;
            let first = catalog.versions_of(self.settings.rank);
            let complete =
                |version: &u64| catalog.rows(*version).is_some() && !catalog.has_all(*version);
            let open: Vec<u64> = first.into_iter().filter(complete).collect();
            drop(catalog);
            open.into_iter()
                .try_for_each(|version| self.complete(version))?;
        }
        Ok(self.catalog()?.whole())
    }

    fn pieces(&self) -> Result<Vec<PieceInfo>> {
        Ok(self.catalog()?.pieces(self.settings.rank))
    }

    fn last_run(&self) -> Result<Mark> {
        let epoch = self.own()?.epoch(self.settings.rank);
        // Runs leave no marks here.
        Ok(Mark { epoch, run: 0 })
    }

    fn damage(&self) -> Vec<Damage> {
        self.known().all_damage()
    }

    fn piece(&self, version: u64) -> Result<Piece> {
        let rank = self.settings.rank;
        let known = self.known();
        let catalog = match known.head(version, rank) {
            Some(_) => known,
            None => {
                drop(known);
                self.catalog()?
            }
        };
        let whole = catalog.whole();
        let older = whole
            .iter()
            .map(|info| info.version)
            .filter(|v| *v < version);
        let older = older.max();
        match catalog.damage(version, rank) {
            Some(Error::Damaged {
                path, offset, what, ..
            }) => {
                return Err(Error::Damaged {
                    path: path.clone(),
                    offset: *offset,
                    what,
                    older,
                });
            }
            Some(error) => return Err(error.clone()),
            None => {}
        }
        let size = catalog.size(version, rank);
        let size = size.ok_or(Error::NoVersion { version, older })?;
        drop(catalog);
        let object = Object {
            remote: Arc::clone(&self.remote),
            path: self.path(version, false),
            size,
            first: Vec::new(),
        };
        let name = object.path.to_string();
        Piece::elsewhere(object, name, self.settings.threads, older)
    }

    fn save(&self, snapshot: &Snapshot<'_>) -> Result<()> {
        {
            let _one_at_a_time = self.writing();
            let stamp = self.stamp(&*self.own()?, Kind::Piece);
            let record = Encoded::new(snapshot, stamp)?;
            let mut catalog = self.own()?;
            self.put(&mut catalog, &record)?;
        }
        self.complete(snapshot.version)
    }

    fn copy(&self, piece: &Piece) -> Result<()> {
        let (head, Settings { rank, ranks, .. }) = (piece.head(), self.settings.clone());
        if piece.rank() != (rank, ranks) {
            let (theirs, of) = piece.rank();
            return Err(Error::Argument(format!(
                "a piece of rank {theirs} of {of} cannot be copied as rank {rank} of {ranks}"
            )));
        }
        {
            let _one_at_a_time = self.writing();
            let mut catalog = self.own()?;
            let there = catalog.head(head.version, rank).map(Identity::of);
            let identity = Identity::of(head);
            if !there.is_some_and(|there| there.is_same(&identity)) {
                let record = Encoded::copy(piece, catalog.sequence(rank) + 1)?;
                self.put(&mut catalog, &record)?;
            }
        }
        self.complete(head.version)
    }

    fn remove(&self, versions: &BTreeSet<u64>) -> Result<()> {
        let _one_at_a_time = self.writing();
        let free = self.catalog()?.without_bases(versions);
        for version in free {
            // The manifest first: without it, the version is not there.
            if self.settings.ranks > 1 {
                self.remote.remove(&self.path(version, true))?;
            }
            self.remote.remove(&self.path(version, false))?;
            let mut catalog = self.known();
            for is_manifest in [true, false] {
                catalog.forget(self.name(version, is_manifest));
            }
        }
        Ok(())
    }
}
