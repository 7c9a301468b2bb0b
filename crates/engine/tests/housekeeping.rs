//! Removing what a retention does not keep holds no call and no transfer up.

#![allow(clippy::unwrap_used)]

mod history;

use history::{checkpoint, content};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Retention};
use tierflow_store::{Options, Piece, Repository, Result, Snapshot, Vault, VersionInfo};

/// How long a call may take that waits for nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// Removals, and lists that are asked for after it was opened, hang until they are let go.
#[derive(Debug)]
struct Hanging {
    inner: Repository,
    hangs: Mutex<bool>,
    changed: Condvar,
    is_met: AtomicBool,
    /// True if listing hangs, and not removing.
    of_lists: bool,
}

impl Hanging {
    fn hang(&self, is_list: bool) {
        let hangs = self.hangs.lock().unwrap();
        if *hangs && is_list == self.of_lists {
            self.is_met.store(true, Ordering::Relaxed);
            drop(self.changed.wait_while(hangs, |hangs| *hangs).unwrap());
        }
    }

    fn set(&self, hangs: bool) {
        *self.hangs.lock().unwrap() = hangs;
        self.changed.notify_all();
    }
}

impl Vault for Hanging {
    fn versions(&self) -> Result<Vec<VersionInfo>> {
        self.hang(true);
        self.inner.versions()
    }

    fn piece(&self, version: u64) -> Result<Piece> {
        self.inner.own_piece(version)
    }

    fn save(&self, snapshot: &Snapshot<'_>) -> Result<()> {
        self.inner.save(snapshot)
    }

    fn copy(&self, piece: &Piece) -> Result<()> {
        self.inner.copy(piece)
    }

    fn remove(&self, versions: &BTreeSet<u64>) -> Result<()> {
        self.hang(false);
        self.inner.remove(versions)
    }
}

/// A vault that hangs, with an engine that keeps one version there.
fn hanging(of_lists: bool) -> (Arc<Hanging>, Engine, tempfile::TempDir) {
    let kept = tempfile::tempdir().unwrap();
    let vault = Arc::new(Hanging {
        inner: Repository::open(kept.path(), Options::default()).unwrap(),
        hangs: Mutex::new(false),
        changed: Condvar::new(),
        is_met: AtomicBool::new(false),
        of_lists,
    });
    let engine = Engine::builder(&open(Choice::Host).unwrap())
        .host_cache(16 << 20)
        .external_vault(Arc::clone(&vault) as _)
        .retention(Retention::newest(1))
        .build()
        .unwrap();
    (vault, engine, kept)
}

#[test]
fn a_wait_does_not_stand_behind_removals() {
    for of_lists in [false, true] {
        let (vault, engine, _kept) = hanging(of_lists);
        vault.set(true);
        let (mut version, begun) = (0, Instant::now());
        let mut some_more = || {
            for _ in 0..20 {
                checkpoint(&engine, version, &content(version, 300_000));
                version += 1;
            }
            engine.wait_for(PATIENCE)
        };
        while !vault.is_met.load(Ordering::Relaxed) {
            some_more().unwrap();
            assert!(begun.elapsed() < 2 * PATIENCE, "nothing is removed");
        }
        // Each worker would come by once.
        for _ in 0..4 {
            let waited = some_more();
            if waited.is_err() {
                vault.set(false);
            }
            waited.unwrap();
        }
        vault.set(false);
    }
}

#[test]
fn a_wait_ends_though_checkpoints_go_on() {
    let (_vault, engine, _kept) = hanging(false);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                checkpoint(&engine, version, &content(version, 100_000));
            }
        });
        let waits = (0..10).map(|_| engine.wait_for(PATIENCE));
        let waits: Vec<_> = waits.collect();
        is_over.store(true, Ordering::Relaxed);
        waits.into_iter().for_each(|wait| wait.unwrap());
    });
}
