//! `Engine::close` waits as long as bytes move, and for storage that hangs no longer than its patience.

#![allow(clippy::unwrap_used, clippy::panic)]

mod vaults;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tierflow_device::{Choice, open};
use tierflow_engine::{Cause, Engine, Error, Group, Region, Retention, Tier};
use tierflow_store::{
    LostVersion, NodeDirectory, Piece, PieceInfo, Protection, Protector, Ready, Repository, Result,
    Snapshot, Vault, VersionInfo,
};
use tierflow_testing::assert_matches;
use vaults::{Call, Watch, Watched};

const PATIENCE: Duration = Duration::from_secs(2);
/// Time of a block. A block is far shorter than the patience, even on a busy machine, and all blocks together are longer.
const STEP: Duration = Duration::from_millis(50);
const STEPS: u32 = 80;

/// External storage that hangs, or that takes longer than the patience for a version, one block after the other.
#[derive(Debug)]
struct Slow {
    hangs: AtomicBool,
}

impl Watch for Slow {
    fn meet(&self, call: Call<'_>) -> Result<()> {
        if let Call::Copy(piece) = call {
            for _block in 0..STEPS {
                while self.hangs.load(Ordering::Relaxed) {
                    std::thread::sleep(STEP);
                }
                let _wanted = piece.go_on();
                std::thread::sleep(STEP);
            }
        }
        Ok(())
    }
}

fn close(hangs: bool) -> (tierflow_engine::Result<()>, Duration, usize) {
    let (node, external) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let hangs = AtomicBool::new(hangs);
    let slow = Watched::new(external.path(), Slow { hangs });
    let engine = Engine::builder(&open(Choice::Host).unwrap())
        .node_local(node.path())
        .tier(Tier::vault(slow.clone()))
        .closing_patience(PATIENCE)
        .build()
        .unwrap();
    let bytes = vec![7_u8; 4 << 20];
    engine.checkpoint(1, &[Region::from(&bytes[..])]).unwrap();
    let begun = Instant::now();
    let closed = engine.close();
    let took = begun.elapsed();
    slow.hangs.store(false, Ordering::Relaxed);
    (closed, took, slow.versions().unwrap().len())
}

#[test]
fn storage_that_is_slow_is_waited_for_as_long_as_bytes_move() {
    let (closed, took, versions) = close(false);
    closed.unwrap();
    assert!(took > PATIENCE, "{took:?}: it shows nothing");
    assert_eq!(versions, 1);
}

#[test]
fn storage_that_hangs_is_waited_for_as_long_as_the_patience_lasts() {
    let (closed, _, versions) = close(true);
    let error = closed.unwrap_err();
    let Error::Lost {
        versions: lost,
        kept,
        cause,
        ..
    } = &error
    else {
        panic!("{error}");
    };
    // The version is still on the node, so it is not lost.
    assert_eq!((&lost[..], &kept[..]), (&[][..], &[1][..]));
    assert_matches!(
        **cause,
        Error::TimedOut {
            patience: PATIENCE,
            ..
        }
    );
    assert_eq!(versions, 0);
}

/// Other ranks that take several times the patience to protect a version, block by block.
#[derive(Debug)]
struct SlowNodes {
    directory: Arc<Repository>,
    begun: Instant,
    blocks: AtomicU64,
}

#[derive(Debug)]
struct OfSlowNodes;

impl Protection for OfSlowNodes {
    fn open(&self, node: NodeDirectory<'_>) -> Result<Arc<dyn Protector>> {
        Ok(Arc::new(SlowNodes {
            directory: node.repository,
            begun: Instant::now(),
            blocks: AtomicU64::new(0),
        }))
    }
}

impl Vault for SlowNodes {
    fn versions(&self) -> Result<Vec<VersionInfo>> {
        self.directory.versions()
    }

    fn piece(&self, version: u64) -> Result<Piece> {
        self.directory.own_piece(version)
    }

    fn pieces(&self) -> Result<Vec<PieceInfo>> {
        self.directory.own_pieces()
    }

    fn save(&self, snapshot: &Snapshot<'_>, ready: &Ready<'_>) -> Result<()> {
        Vault::save(&*self.directory, snapshot, ready)
    }

    fn copy(&self, piece: &Piece, ready: &Ready<'_>) -> Result<()> {
        Vault::copy(&*self.directory, piece, ready)
    }

    fn remove(&self, versions: &BTreeSet<u64>) -> Result<()> {
        self.directory.remove(versions)
    }
}

impl Protector for SlowNodes {
    fn gone(&self) -> Vec<LostVersion> {
        Vec::new()
    }

    fn weakness(&self) -> Option<String> {
        None
    }

    fn is_driven(&self) -> bool {
        false
    }

    fn is_protected(&self, _: u64) -> bool {
        self.begun.elapsed() > 2 * PATIENCE
    }

    fn wait(&self, _: Option<u64>, patience: Duration) -> Result<bool> {
        let begun = Instant::now();
        while !self.is_protected(0) && begun.elapsed() < patience {
            std::thread::sleep(patience.min(STEP));
        }
        Ok(self.is_protected(0))
    }

    /// Returns another number at each call, as if a block came.
    fn progress(&self) -> u64 {
        self.blocks.fetch_add(1, Ordering::Relaxed)
    }

    fn protect(&self) -> Result<()> {
        Ok(())
    }

    fn forget_after(&self, _: Option<u64>) {}

    fn discard(&self, _: &BTreeSet<u64>) -> Result<()> {
        Ok(())
    }
}

/// Returns an engine with version 1, which other ranks are slow to protect.
fn among_slow_nodes(node: &Path) -> Engine {
    let engine = Engine::builder(&open(Choice::Host).unwrap())
        .node_local(node)
        .group(Group::new(0, 1, 1))
        .redundancy(OfSlowNodes)
        .closing_patience(PATIENCE)
        .build()
        .unwrap();
    engine
        .checkpoint(1, &[Region::from([7_u8; 9].as_slice())])
        .unwrap();
    engine
}

#[test]
fn a_suspension_waits_until_other_ranks_protect_its_version() {
    let node = tempfile::tempdir().unwrap();
    let engine = among_slow_nodes(node.path());
    let deadline = Instant::now() + 100 * PATIENCE;
    let suspension = engine.suspend(Some(1), deadline).unwrap();
    assert!(suspension.wait().unwrap());
    assert!(engine.is_durable(1));
    let late = engine.suspend(Some(1), Instant::now()).unwrap();
    assert!(late.wait().unwrap(), "it is durable already");
}

#[test]
fn other_ranks_that_are_slow_are_waited_for_as_long_as_bytes_move() {
    let node = tempfile::tempdir().unwrap();
    let engine = among_slow_nodes(node.path());
    engine.call().within(PATIENCE).settle().unwrap();
    let metrics = engine.metrics();
    assert_eq!(metrics.wait.count, 1, "one part of the wait succeeded");
    let protection = metrics.times(Cause::Protection).total;
    assert!(protection > metrics.wait.blocked / 2, "{metrics}");
    engine.close().unwrap();
}

/// Another engine can open the directory as soon as `close` returns, even with the shortest patience, as nothing was under way.
#[test]
fn a_directory_is_free_when_an_engine_that_had_nothing_under_way_is_closed() {
    let (node, external) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for version in 0..200 {
        let builder = Engine::builder(&open(Choice::Host).unwrap())
            .host_cache(1 << 20)
            .external(external.path())
            .retention(Retention::newest(2))
            .closing_patience(Duration::ZERO);
        let engine = match version % 2 {
            0 => builder,
            _ => builder.node_local(node.path()),
        };
        let engine = engine.build().unwrap();
        let bytes = vec![7_u8; 300_000];
        let regions = [Region::from(&bytes[..])];
        engine.checkpoint(version, &regions).unwrap();
        engine.wait().unwrap();
        engine.close().unwrap();
    }
}
