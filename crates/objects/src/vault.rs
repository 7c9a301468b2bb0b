//! Versions in an object store.

use crate::catalog::{Catalog, Name};
use crate::remote::{Object, Remote};
use object_store::ObjectStore;
use object_store::path::Path;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tierflow_store::container::{Kind, Row};
use tierflow_store::{Encoded, Error, Piece, Region, Result, Snapshot, Stamp, Vault, VersionInfo};

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
            writing: Mutex::default(),
        })
    }

    /// What lies there now.
    fn catalog(&self) -> Result<MutexGuard<'_, Catalog>> {
        let mut catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        catalog.refresh(&self.remote, &self.prefix)?;
        Ok(catalog)
    }

    fn path(&self, version: u64, is_manifest: bool) -> Path {
        let name = Name {
            version,
            rank: self.settings.rank,
            is_manifest,
        };
        name.path(&self.prefix)
    }

    fn stamp(&self, catalog: &Catalog, kind: Kind) -> Stamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = since.map_or(0, |since| since.as_nanos());
        let Settings {
            rank, ranks, run, ..
        } = self.settings;
        Stamp {
            kind,
            sequence: catalog.sequence(rank) + 1,
            created: u64::try_from(nanos).unwrap_or(u64::MAX),
            run,
            rank,
            ranks,
        }
    }

    /// Puts a piece where there is none, or one of a version that never became whole.
    fn put(&self, catalog: &Catalog, record: &Encoded<'_>) -> Result<()> {
        let (version, rank) = (record.head().version, self.settings.rank);
        let is_there = catalog.head(version, rank).is_some();
        if is_there && catalog.has_all(version) {
            return Err(Error::Exists { version });
        }
        // What is damaged is written over, too.
        let over = is_there || catalog.damage(version, rank).is_some();
        let put = self.remote.put(&self.path(version, false), record, over)?;
        put.ok_or(Error::Exists { version })
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
        let put = self.remote.put(&self.path(version, true), &record, true);
        put.map(drop)
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

    fn piece(&self, version: u64) -> Result<Piece> {
        let catalog = self.catalog()?;
        let rank = self.settings.rank;
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
        };
        let name = object.path.to_string();
        Piece::elsewhere(object, name, self.settings.threads, older)
    }

    fn save(&self, snapshot: &Snapshot<'_>) -> Result<()> {
        {
            let _one_at_a_time = self.writing();
            let stamp = self.stamp(&*self.catalog()?, Kind::Piece);
            let record = Encoded::new(snapshot, stamp)?;
            let catalog = self.catalog()?;
            self.put(&catalog, &record)?;
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
            let catalog = self.catalog()?;
            let there = catalog.head(head.version, rank);
            let is_same = there.is_some_and(|there| {
                (there.run, there.created, there.base) == (head.run, head.created, head.base)
            });
            if !is_same {
                let record = Encoded::copy(piece, catalog.sequence(rank) + 1)?;
                self.put(&catalog, &record)?;
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
        }
        Ok(())
    }
}
