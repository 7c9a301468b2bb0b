//! Versions in an object store.

mod indexing;
mod putting;

use crate::catalog::Catalog;
use crate::entry::{Content, Entry, sum_of, tag_of_text};
use crate::inspect::FIRST;
use crate::name::Name;
use crate::remote::{Object, Remote};
use crate::version_locks::VersionLocks;
use object_store::ObjectStore;
use object_store::path::Path;
use putting::Way;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tierflow_store::container::{Kind, Row};
use tierflow_store::{
    Damage, Encoded, Error, Heads, Identity, Mark, Order, Piece, PieceInfo, Ready, RecordLabel,
    Region, Result, Snapshot, Truncation, Vault, VersionInfo,
};

/// For records that need not wait for others before they are published.
const AT_ONCE: &Ready<'static> = &|| Ok(());

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

    /// Chooses the longest time of a request (of 16 MiB at most); at first a minute.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    #[cfg(feature = "cloud")]
    pub(crate) fn time_for_a_request(&self) -> Duration {
        self.patience
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
    /// The number of the application's run with which pieces are written.
    run: AtomicU64,
    catalog: Mutex<Catalog>,
    order: Order,
    /// Versions whose writes failed, though the store may have executed them.
    unconfirmed: Mutex<BTreeSet<u64>>,
    /// Held while a version is written or removed.
    locks: VersionLocks,
    /// Held while heads are written into indexes.
    indexing: Mutex<()>,
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
            run: AtomicU64::new(settings.run),
            settings,
            catalog: Mutex::default(),
            order: Order::default(),
            unconfirmed: Mutex::default(),
            locks: VersionLocks::default(),
            indexing: Mutex::default(),
        })
    }

    /// Versions under the prefix of a URL: `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`. The environment
    /// variables of the [`object_store`] crate say how to get there, and with which credentials. The list is asked for once.
    ///
    /// # Errors
    /// [`Error::Argument`] for a URL that is none, for credentials or a bucket that the store does not accept, and without the
    /// feature `cloud`; [`Error::Remote`] if it cannot be reached.
    pub fn open(url: &str, settings: Settings) -> Result<Self> {
        #[cfg(feature = "cloud")]
        return crate::cloud::open(url, settings);
        #[cfg(not(feature = "cloud"))]
        {
            let _unused = settings;
            let scheme = url.split("://").next().unwrap_or_default();
            Err(Error::Argument(format!(
                "{scheme}:// URLs need object stores, with which this program was not built: add the feature `cloud` of \
                 tierflow-objects, or `objects` of tierflow-engine"
            )))
        }
    }

    /// The prefixes directly below this one's.
    pub(crate) fn prefixes(&self) -> Result<Vec<String>> {
        self.remote.prefixes(&self.prefix)
    }

    fn known(&self) -> MutexGuard<'_, Catalog> {
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The catalog, after the store's objects are listed.
    pub(crate) fn catalog(&self) -> Result<MutexGuard<'_, Catalog>> {
        let mut catalog = self.known();
        catalog.refresh(&self.remote, &self.prefix)?;
        Ok(catalog)
    }

    /// The catalog, as far as this rank's objects are concerned. Only this process writes them, so in a group of one they are listed
    /// once.
    fn own(&self) -> Result<MutexGuard<'_, Catalog>> {
        let catalog = self.known();
        if catalog.is_listed && self.settings.ranks == 1 {
            return Ok(catalog);
        }
        drop(catalog);
        self.catalog()
    }

    /// The catalog as it was listed last.
    fn listed(&self) -> Result<MutexGuard<'_, Catalog>> {
        let catalog = self.known();
        if catalog.is_listed {
            return Ok(catalog);
        }
        drop(catalog);
        self.catalog()
    }

    /// Enters an object that was just written, with the entity tag of the store's answer.
    fn enter(&self, name: Name, size: u64, tag: Option<&str>, content: Content) {
        let entry = Entry {
            size,
            tag: tag.map_or(0, tag_of_text),
            is_listed: false,
            content,
            index: 0,
        };
        self.known().insert(name, entry);
    }

    fn stamp(&self, catalog: &Catalog, kind: Kind) -> RecordLabel {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = since.map_or(0, |since| since.as_nanos());
        let Settings { rank, ranks, .. } = self.settings;
        let (epoch, sequence) = catalog.order(rank);
        self.order.see(epoch, sequence);
        let (epoch, sequence) = self.order.next();
        RecordLabel {
            kind,
            epoch,
            sequence,
            created: u64::try_from(nanos).unwrap_or(u64::MAX),
            run: self.run.load(Ordering::Relaxed),
            rank,
            ranks,
        }
    }

    /// Writes the manifest of a version if all its pieces are there and no manifest is.
    fn complete(&self, version: u64) -> Result<()> {
        if self.settings.ranks == 1 {
            return Ok(());
        }
        let (rows, stamp) = {
            let catalog = self.catalog()?;
            if catalog.has_all(version).is_some() {
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
        let name = Name::manifest(version, self.settings.rank);
        let record = Encoded::new(&snapshot, stamp)?;
        let path = name.path(&self.prefix);
        let put = self.remote.put(&path, &record, true, AT_ONCE)?;
        if let Some(tag) = put {
            let content = Content::Manifest((stamp.epoch, stamp.sequence), sum_of(rows));
            let size = record.head().record_length();
            self.enter(name, size, tag.as_deref(), content);
        }
        Ok(())
    }

    pub(crate) fn remove_object(&self, name: Name) -> Result<()> {
        self.remote.remove(&name.path(&self.prefix))?;
        self.known().forget(name);
        Ok(())
    }

    /// The newest whole version; with `before`, the newest one of a smaller number than that.
    ///
    /// # Errors
    /// [`Error::Remote`].
    pub fn latest(&self, before: Option<u64>) -> Result<Option<u64>> {
        Ok(self.catalog()?.older(before))
    }

    /// A rank's piece of a whole version.
    ///
    /// # Errors
    /// As [`Vault::piece`]; [`Error::Argument`] for a rank that the version does not have.
    pub fn whole_piece_of(&self, version: u64, rank: u32) -> Result<Piece> {
        if !self.known().is_whole(version) {
            let catalog = self.catalog()?;
            if !catalog.is_whole(version)
                && catalog
                    .damage(Name::piece(version, rank), &self.prefix)
                    .is_none()
            {
                let older = catalog.older(Some(version));
                return Err(Error::NoVersion { version, older });
            }
        }
        if self.known().listed(version, rank).is_none() && self.known().is_whole(version) {
            return Err(Error::Argument(format!(
                "version {version} has no piece of rank {rank}"
            )));
        }
        self.piece_of(version, rank)
    }

    /// A rank's piece of a version, whether or not those of all others are there.
    ///
    /// # Errors
    /// As [`Vault::piece`].
    pub fn piece_of(&self, version: u64, rank: u32) -> Result<Piece> {
        let known = self.known();
        let catalog = match known.listed(version, rank) {
            Some(_) => known,
            None => {
                drop(known);
                self.catalog()?
            }
        };
        let (name, older) = (Name::piece(version, rank), catalog.older(Some(version)));
        if let Some(damage) = catalog.damage(name, &self.prefix) {
            let Damage {
                path, offset, what, ..
            } = damage;
            return Err(Error::Damaged {
                path,
                offset,
                what,
                older,
            });
        }
        let size = catalog.size(version, rank);
        let size = size.ok_or(Error::NoVersion { version, older })?;
        drop(catalog);
        let path = name.path(&self.prefix);
        // A single request gets the head and, of a small piece, all of it.
        let first = self.remote.read(&path, 0..size.min(FIRST))?;
        let object = Object {
            remote: Arc::clone(&self.remote),
            path,
            size,
            first: first.ok_or(Error::NoVersion { version, older })?.into(),
        };
        let name = object.path.to_string();
        Piece::elsewhere(object, name, self.settings.threads, older)
    }
}

impl Vault for Objects {
    fn versions(&self) -> Result<Vec<VersionInfo>> {
        if self.settings.ranks > 1 {
            // Completes versions whose last rank crashed between its piece and the manifest.
            let catalog = self.catalog()?;
            let first = catalog.versions_of(self.settings.rank);
            let complete = |version: &u64| {
                catalog.rows(*version).is_some() && catalog.has_all(*version).is_none()
            };
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
        let (epoch, _) = self.own()?.order(self.settings.rank);
        // Runs leave no marks here.
        Ok(Mark { epoch, run: 0 })
    }

    fn damage(&self) -> Vec<Damage> {
        self.known().all_damage(&self.prefix)
    }

    fn piece(&self, version: u64) -> Result<Piece> {
        self.piece_of(version, self.settings.rank)
    }

    fn save(&self, snapshot: &Snapshot<'_>) -> Result<()> {
        self.save_when(snapshot, AT_ONCE)
    }

    fn save_when(&self, snapshot: &Snapshot<'_>, ready: &Ready<'_>) -> Result<()> {
        {
            let _lock = self.locks.lock(snapshot.version);
            let stamp = {
                let mut catalog = self.own()?;
                let stamp = self.stamp(&catalog, Kind::Piece);
                catalog.begin(stamp.rank, stamp.epoch);
                stamp
            };
            self.put(&Encoded::new(snapshot, stamp)?, ready, Way::Saved)?;
        }
        self.note_superseded()?;
        self.complete(snapshot.version)?;
        self.index();
        Ok(())
    }

    fn copy(&self, piece: &Piece) -> Result<()> {
        self.copy_when(piece, AT_ONCE)
    }

    fn copy_when(&self, piece: &Piece, ready: &Ready<'_>) -> Result<()> {
        let (head, Settings { rank, ranks, .. }) = (piece.head(), self.settings.clone());
        if piece.rank() != (rank, ranks) {
            let (theirs, of) = piece.rank();
            return Err(Error::Argument(format!(
                "a piece of rank {theirs} of {of} cannot be copied as rank {rank} of {ranks}"
            )));
        }
        {
            let _lock = self.locks.lock(head.version);
            let identity = Identity::of(head);
            let (there, sequence, before) = {
                let mut catalog = self.own()?;
                catalog.begin_if_later(rank, identity.epoch);
                let before = catalog.bring(head.version, &identity);
                let (_, sequence) = catalog.order(rank);
                (catalog.identity(head.version, rank), sequence, before)
            };
            if before.is_some() {
                self.note(before)?;
            }
            if !there.is_some_and(|there| there.is_same(&identity)) {
                let record = Encoded::copy(piece, sequence + 1)?;
                self.put(&record, ready, Way::Copied)?;
            }
        }
        self.note_superseded()?;
        self.complete(head.version)?;
        self.index();
        Ok(())
    }

    fn remove(&self, versions: &BTreeSet<u64>) -> Result<()> {
        let rank = self.settings.rank;
        let free: BTreeSet<u64> = {
            let catalog = self.own()?;
            let free = catalog.without_bases(versions);
            let superseded = catalog.superseded_up_to(&free);
            let superseded = superseded.filter(|name| name.rank == rank);
            let superseded: Vec<u64> = superseded.map(|name| name.version).collect();
            free.into_iter().chain(superseded).collect()
        };
        for version in free {
            let _lock = self.locks.lock(version);
            // The manifest first: without it, the version is not there.
            let manifest = (self.settings.ranks > 1).then_some(Name::manifest(version, rank));
            for name in manifest.into_iter().chain([Name::piece(version, rank)]) {
                self.remove_object(name)?;
            }
        }
        Ok(())
    }

    fn truncate(&self, after: Option<u64>) -> Result<()> {
        let Some(from) = after.map_or(Some(0), |after| after.checked_add(1)) else {
            return Ok(());
        };
        let rank = self.settings.rank;
        let mut catalog = self.listed()?;
        let (epoch, sequence) = catalog.order(rank);
        self.order.see(epoch, sequence);
        let epoch = self.order.epoch();
        catalog.truncate(rank, Truncation { epoch, from });
        Ok(())
    }

    fn refuses(&self, version: u64, identity: &Identity) -> Result<bool> {
        let catalog = self.listed()?;
        Ok(catalog.gave_up(self.settings.rank, version, identity))
    }

    fn renumber(&self, run: u64) {
        self.run.store(run, Ordering::Relaxed);
    }
}
