//! Vaults on directories. A test watches their calls, holds them back or lets them fail.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "it serves several tests, and not all of them use all of it"
)]

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use tierflow_store::{Options, Piece, Ready, Repository, Result, Snapshot, Vault, VersionInfo};

/// A call at its beginning or at its end.
#[derive(Debug)]
pub(crate) enum Call<'a> {
    List,
    Open(u64),
    Save(u64),
    Saved(u64, &'a Result<()>),
    Copy(&'a Piece),
    Remove,
}

/// The test's part of a vault, which gets each call before the directory does.
pub(crate) trait Watch: Debug + Send + Sync {
    fn meet(&self, call: Call<'_>) -> Result<()>;
}

/// A vault on a directory that passes each call to the test first.
#[derive(Debug)]
pub(crate) struct Watched<W> {
    pub(crate) directory: Repository,
    watch: W,
}

impl<W: Watch> Watched<W> {
    pub(crate) fn new(directory: &Path, watch: W) -> Arc<Self> {
        let directory = Repository::open(directory, Options::default()).unwrap();
        Arc::new(Self { directory, watch })
    }
}

impl<W> Deref for Watched<W> {
    type Target = W;

    fn deref(&self) -> &W {
        &self.watch
    }
}

impl<W: Watch> Vault for Watched<W> {
    fn versions(&self) -> Result<Vec<VersionInfo>> {
        self.meet(Call::List)?;
        self.directory.versions()
    }

    fn piece(&self, version: u64) -> Result<Piece> {
        self.meet(Call::Open(version))?;
        self.directory.own_piece(version)
    }

    fn save(&self, snapshot: &Snapshot<'_>, ready: &Ready<'_>) -> Result<()> {
        self.meet(Call::Save(snapshot.version))?;
        let saved = Vault::save(&self.directory, snapshot, ready);
        self.meet(Call::Saved(snapshot.version, &saved))?;
        saved
    }

    fn copy(&self, piece: &Piece, ready: &Ready<'_>) -> Result<()> {
        self.meet(Call::Copy(piece))?;
        ready()?;
        self.directory.copy(piece)
    }

    fn remove(&self, versions: &BTreeSet<u64>) -> Result<()> {
        self.meet(Call::Remove)?;
        self.directory.remove(versions)
    }
}

/// Holds every call back while it is closed.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    halted: Mutex<bool>,
    resumed: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    pub(crate) fn halt(&self) {
        *self.halted.lock().unwrap() = true;
    }

    pub(crate) fn resume(&self) {
        *self.halted.lock().unwrap() = false;
        self.resumed.notify_all();
    }

    /// Returns true if a call waits at the gate.
    pub(crate) fn is_met(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

impl Watch for Gate {
    fn meet(&self, call: Call<'_>) -> Result<()> {
        if !matches!(call, Call::Saved(..)) {
            let halted = self.halted.lock().unwrap();
            let more = usize::from(*halted);
            self.waiting.fetch_add(more, Ordering::Relaxed);
            drop(self.resumed.wait_while(halted, |halted| *halted).unwrap());
        }
        Ok(())
    }
}
