//! A run in an object store discards versions: nothing changes before it has written a piece, and from then on they stay away for good.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod common;
mod faulty;

use common::{numbers, objects, save};
use faulty::Faulty;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Region, Tier};
use tierflow_objects::{Settings, repository};
use tierflow_store::{Options, Order, Repository, Vault};

/// Returns the first byte of each piece.
fn offered(vault: &dyn Vault) -> Vec<(u64, u8)> {
    let pieces = vault.pieces().unwrap().into_iter();
    let read = |version| vault.piece(version).unwrap().read("state").unwrap()[0];
    pieces
        .map(|piece| (piece.version, read(piece.version)))
        .collect()
}

const FIRST: [(u64, u8); 6] = [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1)];

fn written() -> Arc<dyn ObjectStore> {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let first = objects(&store);
    (0..6).for_each(|version| save(&first, version, &[1; 100]).unwrap());
    store
}

#[test]
fn a_run_that_writes_nothing_gives_nothing_up() {
    let store = written();
    let second = objects(&store);
    second.truncate(Some(3)).unwrap();
    assert_eq!(offered(&second), FIRST[..4]);
    drop(second);
    assert_eq!(offered(&objects(&store)), FIRST);
}

#[test]
fn versions_given_up_stay_so_once_a_piece_is_saved() {
    for number in [4, 9] {
        let store = written();
        let old = objects(&store).piece(5).unwrap();
        let second = objects(&store);
        second.truncate(Some(3)).unwrap();
        save(&second, number, &[2; 100]).unwrap();
        let expected = [&FIRST[..4], &[(number, 2)]].concat();
        assert_eq!(offered(&second), expected);
        drop(second);
        let third = objects(&store);
        assert_eq!(offered(&third), expected);
        assert!(third.refuses(5, &old.info().identity).unwrap());
    }
}

#[test]
fn versions_given_up_stay_so_once_a_piece_is_copied() {
    let store = written();
    let near = tempfile::tempdir().unwrap();
    let second = objects(&store);
    second.truncate(Some(3)).unwrap();
    // As in an engine, the epoch of the run on the node is higher than all that it finds.
    let order = Order::default();
    order.see(second.last_run().unwrap().epoch + 2, 0);
    let options = Options::default().order(&order);
    let local = Repository::open(near.path(), options).unwrap();
    save(&local, 4, &[2; 100]).unwrap();
    second.copy(&local.piece(4).unwrap()).unwrap();
    let expected = [&FIRST[..4], &[(4, 2)]].concat();
    assert_eq!(offered(&second), expected);
    drop(second);
    assert_eq!(offered(&objects(&store)), expected);
}

/// An engine with a node-local directory saves no piece in the store, but copies pieces to it.
#[test]
fn a_run_that_copies_pieces_keeps_hidden_ones_out() {
    let faulty = Arc::new(Faulty::default());
    let store: Arc<dyn ObjectStore> = Arc::clone(&faulty) as Arc<dyn ObjectStore>;
    let first = objects(&store);
    (1..6).for_each(|version| save(&first, version, &[1; 100]).unwrap());
    faulty.lags.store(2, Relaxed);
    let near = tempfile::tempdir().unwrap();
    let device = open(Choice::Host).unwrap();
    let builder = Engine::builder(&device).host_cache(1 << 20);
    let builder = builder.node_local(near.path().join("node"));
    let builder = builder.tier(Tier::vault(Arc::new(objects(&store))));
    let second = builder.build().unwrap();
    assert_eq!(second.latest(None), Some(3));
    let regions = [Region::from([2; 100].as_slice())];
    second.checkpoint(4, &regions).unwrap();
    second.wait().unwrap();
    drop(second);
    faulty.lags.store(0, Relaxed);
    assert_eq!(numbers(&objects(&store)), [1, 2, 3, 4]);
}

#[test]
fn pieces_of_a_renumbered_run_make_no_version_with_those_of_the_run_before() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let rank = |rank| {
        let settings = Settings::default().group(rank, 2, 7);
        repository(Arc::clone(&store), "runs/7", &settings).unwrap()
    };
    save(&rank(1), 5, &[1; 100]).unwrap();
    let second = rank(0);
    second.renumber(99);
    save(&second, 5, &[2; 100]).unwrap();
    assert!(numbers(&second).is_empty());
    let both = rank(1);
    both.renumber(99);
    both.truncate(Some(4)).unwrap();
    save(&both, 5, &[2; 100]).unwrap();
    assert_eq!(numbers(&second), [5]);
    assert_eq!(offered(&both), [(5, 2)]);
}
