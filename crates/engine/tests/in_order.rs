//! Versions become durable in the order of their numbers: none is missing before the newest, whatever happens.
//!
//! `TIERFLOW_KILLS=300` sets the number of kills; CI makes 12.

#![allow(clippy::unwrap_used, clippy::panic)]

mod history;
mod home;
mod vaults;

use history::listed;
use home::home;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use tierflow_device::{Choice, open};
use tierflow_engine::{AfterRestore, Engine, EngineBuilder, Error, RegionMut, Tier};
use tierflow_store::{Error as StoreError, Result, Scratch, Storage};
use tierflow_testing::{Draws, Process, this_test, variable};
use vaults::{Call, Watch, Watched};

const CHILD: &str = "TIERFLOW_IN_ORDER";

fn builder() -> EngineBuilder {
    Engine::builder(&open(Choice::Host).unwrap()).host_cache(8 << 20)
}

fn length_of(version: u64) -> usize {
    match version % 5 {
        0 => 2_500_000,
        2 => 1_100_000,
        _ => 2_000,
    }
}

fn checkpoint(engine: &Engine, version: u64) {
    history::checkpoint(engine, version, &vec![version as u8; length_of(version)]);
}

/// Storage that fails to save version 0, or to read it, once four saves, the most at a time, have come, until the test ends the failure.
#[derive(Debug, Default)]
struct Unlucky {
    /// The error of a read of version 0, which is kept in vain otherwise.
    read: Option<fn() -> StoreError>,
    is_over: AtomicBool,
    came: Mutex<BTreeSet<u64>>,
    changed: Condvar,
}

impl Unlucky {
    fn fail(&self) -> Result<()> {
        if self.is_over.load(Ordering::Relaxed) {
            return Ok(());
        }
        let is_early = |came: &mut BTreeSet<u64>| came.len() < 4;
        let came = self.came.lock().unwrap();
        drop(self.changed.wait_while(came, is_early).unwrap());
        Err(self.read.map_or_else(not_today, |error| error()))
    }
}

fn not_today() -> StoreError {
    StoreError::Remote("not today".to_owned())
}

impl Watch for Unlucky {
    fn meet(&self, call: Call<'_>) -> Result<()> {
        let Call::Save(version) = call else {
            return Ok(());
        };
        self.came.lock().unwrap().insert(version);
        self.changed.notify_all();
        match version {
            0 if self.read.is_none() => self.fail(),
            _ => Ok(()),
        }
    }
}

/// Storage above the vault that meets version 0.
#[derive(Debug)]
struct Above(Scratch, Arc<Watched<Unlucky>>);

impl Storage for Above {
    fn alignment(&self) -> usize {
        self.0.alignment()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, bytes)?;
        match bytes.first() {
            Some(0) => self.1.fail(),
            _ => Ok(()),
        }
    }
}

#[test]
fn no_later_version_becomes_durable_before_one_that_failed() {
    for in_order in [true, false] {
        let home = home();
        let vault = Watched::new(&home.far, Unlucky::default());
        let builder = builder().durable_in_order(in_order);
        let engine = builder
            .tier(Tier::vault(Arc::clone(&vault) as _))
            .build()
            .unwrap();
        (0..4).for_each(|version| checkpoint(&engine, version));
        let error = engine.wait().unwrap_err();
        let Error::Stalled {
            cause: Some(cause), ..
        } = &error
        else {
            panic!("{error}");
        };
        assert!(cause.to_string().contains("not today"), "{cause}");
        if in_order {
            assert!(listed(&home.far).is_empty());
        } else {
            assert_eq!(listed(&home.far), [1, 2, 3]);
        }
        vault.is_over.store(true, Ordering::Relaxed);
        engine.wait().unwrap();
        assert_eq!(listed(&home.far), [0, 1, 2, 3]);
    }
}

/// An engine that cannot read version 0 of four, and its vault.
fn unread(home: &home::Home, read: fn() -> StoreError) -> (Engine, Arc<Watched<Unlucky>>) {
    let unlucky = Unlucky {
        read: Some(read),
        ..Unlucky::default()
    };
    let vault = Watched::new(&home.far, unlucky);
    std::fs::create_dir(&home.near).unwrap();
    let scratch = Scratch::open(&home.near).unwrap();
    let scratch = Tier::storage(Arc::new(Above(scratch, Arc::clone(&vault))));
    let builder = Engine::builder(&open(Choice::Host).unwrap()).tier(scratch);
    let builder = builder.durable_in_order(true);
    let tier = Tier::vault(Arc::clone(&vault) as _);
    let engine = builder.tier(tier).build().unwrap();
    (0..4).for_each(|version| checkpoint(&engine, version));
    let error = engine.wait().unwrap_err();
    assert!(matches!(error, Error::Stalled { .. }), "{error}");
    (engine, vault)
}

#[test]
fn no_later_version_becomes_durable_before_one_that_cannot_be_read_now() {
    let home = home();
    let (engine, vault) = unread(&home, not_today);
    assert!(listed(&home.far).is_empty());
    vault.is_over.store(true, Ordering::Relaxed);
    engine.wait().unwrap();
    assert_eq!(listed(&home.far), [0, 1, 2, 3]);
}

#[test]
fn a_lost_version_holds_up_no_later_one() {
    let home = home();
    let lost = || StoreError::Read {
        offset: 0,
        bytes: 1,
        source: Errno::IO,
    };
    let (_engine, _) = unread(&home, lost);
    assert_eq!(listed(&home.far), [1, 2, 3]);
}

/// Storage that fails to save version 0 once version 1 has come, and holds version 1 until the test lets it go.
#[derive(Debug, Default)]
struct Unneeded {
    /// The number of saves of version 1, and true once it may go on.
    state: Mutex<(u32, bool)>,
    changed: Condvar,
}

impl Watch for Unneeded {
    fn meet(&self, call: Call<'_>) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        match call {
            Call::Save(0) => {
                let waits = |(saves, _): &mut (u32, bool)| *saves == 0;
                drop(self.changed.wait_while(state, waits).unwrap());
                Err(StoreError::Remote("not today".to_owned()))
            }
            Call::Save(1) => {
                state.0 += 1;
                self.changed.notify_all();
                let waits = |(_, may_go_on): &mut (u32, bool)| !*may_go_on;
                drop(self.changed.wait_while(state, waits).unwrap());
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[test]
fn a_version_that_failed_and_was_given_up_holds_up_no_other() {
    let home = home();
    let vault = Watched::new(&home.far, Unneeded::default());
    let builder = builder().durable_in_order(true);
    let tier = Tier::vault(Arc::clone(&vault) as _);
    let engine = builder.tier(tier).build().unwrap();
    (0..2).for_each(|version| checkpoint(&engine, version));
    while engine.metrics().hops.iter().all(|hop| hop.failed == 0) {
        std::thread::yield_now();
    }
    engine.discard(0).unwrap();
    vault.state.lock().unwrap().1 = true;
    vault.changed.notify_all();
    engine.wait().unwrap();
    assert_eq!(listed(&home.far), [1]);
    let (saves, _) = *vault.state.lock().unwrap();
    assert_eq!(saves, 1, "the bytes of version 1 were written in vain");
}

#[test]
fn histories_that_are_read_back_are_kept_in_order() {
    let home = home();
    let engine = builder().node_local(&home.near).external(&home.far);
    let engine = engine.after_restore(AfterRestore::Discard).build().unwrap();
    (0..20).for_each(|version| checkpoint(&engine, version));
    engine.wait().unwrap();
    for version in (0..20).rev() {
        let mut bytes = vec![0; length_of(version)];
        let regions = &mut [RegionMut::from(bytes.as_mut_slice())];
        engine.restore(version, regions).unwrap();
        assert!(bytes == vec![version as u8; length_of(version)]);
    }
    drop(engine);
    assert!(listed(&home.far).is_empty());
}

#[test]
fn an_engine_ends_though_versions_wait_for_their_turn() {
    let home = home();
    for _ in 0..20 {
        let builder = builder().node_local(&home.near).external(&home.far);
        let engine = builder.durable_in_order(true).build().unwrap();
        let first = engine.latest(None).map_or(0, |newest| newest + 1);
        (first..first + 8).for_each(|version| checkpoint(&engine, version));
        drop(engine);
        let there = listed(&home.near);
        assert_eq!(there, (0..there.len() as u64).collect::<Vec<_>>());
    }
}

/// The application. Does nothing without directories, as in an ordinary run of all tests.
#[test]
fn child() {
    let Some(home) = std::env::var_os(CHILD).map(PathBuf::from) else {
        return;
    };
    let builder = builder().node_local(home.join("near"));
    let builder = builder.external(home.join("far"));
    let in_order = std::env::var_os("TIERFLOW_ANY_ORDER").is_none();
    let mut builder = builder.durable_in_order(in_order);
    if std::env::var_os("TIERFLOW_DIFFERENCES").is_some() {
        builder = builder.dedup(tierflow_dedup::Tree { chunk: 256 });
    }
    let engine = builder.build().unwrap();
    let mut output = std::io::stdout();
    for version in engine.latest(None).map_or(0, |newest| newest + 1).. {
        checkpoint(&engine, version);
        if version % 16 == 0 {
            writeln!(output, "wrote {version}").unwrap();
            output.flush().unwrap();
        }
    }
}

#[test]
fn no_kill_leaves_a_hole_before_the_newest() {
    let kills: u64 = variable("TIERFLOW_KILLS", 12);
    let mut draws = Draws::fresh();
    let (mut versions, mut holes) = (0, 0);
    let mut kept = tempfile::tempdir().unwrap();
    for kill in 0..kills {
        if kill % 6 == 0 {
            kept = tempfile::tempdir().unwrap();
        }
        let mut child = this_test("child");
        let child = child.env(CHILD, kept.path());
        if kill / 6 % 2 == 1 {
            child.env("TIERFLOW_DIFFERENCES", "");
        }
        let mut child = Process::start(child, "wrote ");
        child.report();
        draws.pause(0..150_000);
        child.kill();
        for directory in ["near", "far"] {
            let there = listed(&kept.path().join(directory));
            versions += there.len();
            let whole: Vec<u64> = (0..there.len() as u64).collect();
            holes += usize::from(there != whole);
        }
    }
    println!("{kills} kills, {versions} versions found, {holes} holes");
    assert_eq!(holes, 0);
}
