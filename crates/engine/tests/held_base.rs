//! A difference is durable only if its base is. Here storage holds the base back, and lets the difference pass.

#![allow(clippy::unwrap_used)]

mod history;
mod home;

use home::home;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierflow_dedup::Tree;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Error};
use tierflow_store::{Faults, Options, Repository};
use tierflow_testing::noise;

/// Bytes of a version. A base of this size has a file of its own, and a difference is in a segment.
const SIZE: usize = 3 << 20;

/// Takes a checkpoint in which no two chunks are the same.
fn checkpoint(engine: &Engine, version: u64) {
    let mut bytes = noise(0, SIZE);
    bytes[..8].copy_from_slice(&version.to_le_bytes());
    history::checkpoint(engine, version, &bytes);
}

#[test]
fn a_difference_whose_base_is_held_back_is_not_durable() {
    let home = home();
    let faults = Arc::<Faults>::default();
    let builder = Engine::builder(&open(Choice::Host).unwrap())
        .device_cache(4 * SIZE)
        .node_local(&home.near)
        .external(&home.far)
        .dedup(Tree { chunk: 64 })
        .durable_in_order(false);
    let engine = faults.during(|| builder.build()).unwrap();
    faults.hold(Some(&home.far));
    checkpoint(&engine, 0);
    checkpoint(&engine, 1);
    let far = || {
        let far = Repository::read_only(&home.far, Options::default()).unwrap();
        let pieces = far.own_pieces().unwrap().into_iter();
        pieces.map(|piece| piece.version).collect::<Vec<_>>()
    };
    while far() != [1] {
        std::thread::sleep(Duration::from_millis(1));
    }
    let soon = engine.call().within(Duration::from_millis(50));
    let waited = soon.wait_version(1);
    assert!(matches!(waited, Err(Error::TimedOut { .. })), "{waited:?}");
    assert!(!engine.is_durable(1));
    let suspend = |patience| {
        let suspension = engine.suspend(Some(1), Instant::now() + patience).unwrap();
        suspension.wait().unwrap()
    };
    assert!(!suspend(Duration::from_millis(50)));
    faults.hold(None);
    assert!(suspend(Duration::from_secs(600)));
    assert!(engine.is_durable(1) && engine.is_durable(0));
    assert_eq!(far(), [0, 1]);
}
