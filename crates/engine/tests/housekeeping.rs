//! The removal of versions that a retention does not keep delays no call and no transfer.

#![allow(clippy::unwrap_used)]

mod history;
mod vaults;

use history::{checkpoint, content};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Retention, Tier};
use tierflow_store::Result;
use vaults::{Call, Watch, Watched};

/// Time limit of a call that need not wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// Storage whose removals, or lists after its opening, hang until the test lets them go.
#[derive(Debug, Default)]
struct Hanging {
    hangs: Mutex<bool>,
    changed: Condvar,
    is_met: AtomicBool,
    /// True if lists hang, false if removals do.
    of_lists: bool,
}

impl Watch for Hanging {
    fn meet(&self, call: Call<'_>) -> Result<()> {
        let hangs = self.hangs.lock().unwrap();
        let concerns = match call {
            Call::List => self.of_lists,
            Call::Remove => !self.of_lists,
            _ => false,
        };
        if *hangs && concerns {
            self.is_met.store(true, Ordering::Relaxed);
            drop(self.changed.wait_while(hangs, |hangs| *hangs).unwrap());
        }
        Ok(())
    }
}

impl Hanging {
    fn set(&self, hangs: bool) {
        *self.hangs.lock().unwrap() = hangs;
        self.changed.notify_all();
    }
}

/// Returns a vault that hangs, and an engine that keeps one version there.
fn hanging(of_lists: bool) -> (Arc<Watched<Hanging>>, Engine, tempfile::TempDir) {
    let kept = tempfile::tempdir().unwrap();
    let hanging = Hanging {
        of_lists,
        ..Hanging::default()
    };
    let vault = Watched::new(kept.path(), hanging);
    let engine = Engine::builder(&open(Choice::Host).unwrap())
        .host_cache(16 << 20)
        .tier(Tier::vault(Arc::clone(&vault) as _))
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
            engine.call().within(PATIENCE).wait()
        };
        while !vault.is_met.load(Ordering::Relaxed) {
            some_more().unwrap();
            assert!(begun.elapsed() < 2 * PATIENCE, "nothing is removed");
        }
        // Each worker gets a turn.
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
        let waits = (0..10).map(|_| engine.call().within(PATIENCE).wait());
        let waits: Vec<_> = waits.collect();
        is_over.store(true, Ordering::Relaxed);
        waits.into_iter().for_each(|wait| wait.unwrap());
    });
}
