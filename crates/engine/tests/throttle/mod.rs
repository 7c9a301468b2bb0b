//! A vault with a bandwidth for all callers together, which knows how many bytes of each version are through.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tierflow_store::{Piece, Ready, Repository, Result, Snapshot, Vault, VersionInfo};

/// Bytes that a version pays for at a time.
const STEP: u64 = 64 << 10;

/// Time that a thread may make up for if it woke late. Without it, the rate would be below the limit.
const CREDIT: Duration = Duration::from_millis(20);

/// The bytes of each version that may come.
pub(crate) type Sizes = Arc<Mutex<BTreeMap<u64, usize>>>;

#[derive(Debug)]
pub(crate) struct Slow {
    inner: Repository,
    bytes_per_second: u64,
    sizes: Sizes,
    paid_until: Mutex<Instant>,
    /// The bytes that are through, for each version on its way.
    paid: Mutex<BTreeMap<u64, u64>>,
    halted: Mutex<bool>,
    changed: Condvar,
}

impl Slow {
    pub(crate) fn new(inner: Repository, bytes_per_second: u64, sizes: &Sizes) -> Self {
        Self {
            inner,
            bytes_per_second,
            sizes: Arc::clone(sizes),
            paid_until: Mutex::new(Instant::now()),
            paid: Mutex::default(),
            halted: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Stops or resumes all transfers. A transfer that is cancelled while stopped ends.
    pub(crate) fn halt(&self, halted: bool) {
        *self.halted.lock().unwrap() = halted;
        self.changed.notify_all();
    }

    /// Returns the bytes that are through, for each version on its way.
    pub(crate) fn paid(&self) -> BTreeMap<u64, u64> {
        self.paid.lock().unwrap().clone()
    }

    /// Lets a version through at the bandwidth of the vault. Returns the error of `is_wanted` once it fails.
    fn pay(&self, version: u64, is_wanted: &dyn Fn() -> Result<()>) -> Result<()> {
        let size = self.sizes.lock().unwrap()[&version] as u64;
        let mut at = 0;
        let through = loop {
            self.paid.lock().unwrap().insert(version, at);
            let mut halted = self.halted.lock().unwrap();
            while *halted && is_wanted().is_ok() {
                let pause = Duration::from_millis(1);
                halted = self.changed.wait_timeout(halted, pause).unwrap().0;
            }
            drop(halted);
            if let Err(error) = is_wanted() {
                break Err(error);
            }
            if at == size {
                break Ok(());
            }
            let step = STEP.min(size - at);
            let cost = Duration::from_secs_f64(step as f64 / self.bytes_per_second as f64);
            let until = {
                let mut until = self.paid_until.lock().unwrap();
                let earliest = Instant::now().checked_sub(CREDIT);
                *until = (*until).max(earliest.unwrap_or(*until)) + cost;
                *until
            };
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
            at += step;
        };
        self.paid.lock().unwrap().remove(&version);
        through
    }
}

impl Vault for Slow {
    fn versions(&self) -> Result<Vec<VersionInfo>> {
        self.inner.versions()
    }

    fn piece(&self, version: u64) -> Result<Piece> {
        self.inner.own_piece(version)
    }

    fn save(&self, snapshot: &Snapshot<'_>, ready: &Ready<'_>) -> Result<()> {
        let paid = || {
            ready()?;
            self.pay(snapshot.version, ready)
        };
        Vault::save(&self.inner, snapshot, &paid)
    }

    fn copy(&self, piece: &Piece, ready: &Ready<'_>) -> Result<()> {
        self.pay(piece.version(), &|| piece.go_on())?;
        Vault::copy(&self.inner, piece, ready)
    }

    fn remove(&self, versions: &BTreeSet<u64>) -> Result<()> {
        self.inner.remove(versions)
    }
}
