//! Tests the options of a group's overflow: the schedule of three host devices on measured links.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use tierflow_bind::{Door, EngineHandle, Options, Outcome, Status};
use tierflow_engine::{Region, RegionMut};

fn open(overflow: &str, machine: &Path) -> Outcome<Arc<EngineHandle>> {
    let mut options = Options::default();
    for (key, value) in [
        ("device", "host"),
        ("device_cache", "8MiB"),
        ("host_cache", "64MiB"),
        ("peers", "host=32MiB, host=32MiB"),
        ("overflow", overflow),
        ("machine", machine.to_str().unwrap()),
    ] {
        options.set(key, value).unwrap().unwrap();
    }
    EngineHandle::open(options, Door::default())
}

/// Returns the bytes that the schedule places on peers: 0 if their links were measured while the machine was busy.
fn on_peers(handle: &EngineHandle) -> u64 {
    let tiers = handle.engine.metrics().tiers;
    let peers = tiers.iter().find(|tier| tier.name == "peers");
    peers.map_or(0, |tier| tier.capacity)
}

#[test]
fn the_overflow_of_a_group_is_placed_by_options_alone() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("machine.toml");
    let handle = open("host=16MiB", &file).unwrap();
    let measured = std::fs::read(&file).unwrap();
    let engine = &handle.engine;
    let scheduled = on_peers(&handle);
    assert!(scheduled <= 16 << 20, "{scheduled}");
    let bytes: Vec<u8> = (0..24 << 20).map(|at| (at / 3 % 251) as u8).collect();
    engine.checkpoint(1, &[Region::from(&*bytes)]).unwrap();
    let mut back = vec![0; bytes.len()];
    engine
        .restore(1, &mut [RegionMut::from(&mut *back)])
        .unwrap();
    assert!(back == bytes);
    // The second engine reads the rates from the file and does not measure again.
    let other = open("host=16MiB", &file).unwrap();
    assert_eq!(on_peers(&other), scheduled);
    assert_eq!(std::fs::read(&file).unwrap(), measured);
}

#[test]
fn options_that_do_not_fit_together_are_told() {
    let file = Path::new("unused");
    let mut options = Options::default();
    options.set("host_cache", "1MiB").unwrap().unwrap();
    options.set("device", "host").unwrap().unwrap();
    options
        .set("machine", file.to_str().unwrap())
        .unwrap()
        .unwrap();
    let failure = EngineHandle::open(options, Door::default()).unwrap_err();
    assert!(failure.text.contains("as overflow"), "{failure}");
}

#[test]
fn a_gpu_is_named_once() {
    let home = tempfile::tempdir().unwrap();
    let failure = open("host=16MiB, host=8MiB", &home.path().join("machine.toml")).unwrap_err();
    assert_eq!(failure.status, Status::Argument, "{failure}");
    assert!(failure.text.contains("twice in overflow"), "{failure}");
}

#[test]
fn a_failure_of_peers_says_who_is_to_mend_it() {
    // The file cannot be read, and cannot be written.
    let home = tempfile::tempdir().unwrap();
    for machine in [
        home.path().to_owned(),
        home.path().join("missing/machine.toml"),
    ] {
        let failure = open("host=16MiB", &machine).unwrap_err();
        assert_eq!(failure.status, Status::Storage, "{failure}");
        assert_eq!(failure.system.path, Some(machine), "{failure}");
        assert!(failure.system.errno.is_some(), "{failure}");
    }
    let file = home.path().join("machine.toml");
    std::fs::write(&file, "format = 0").unwrap();
    let failure = open("host=16MiB", &file).unwrap_err();
    assert_eq!(failure.status, Status::Argument, "{failure}");
    // A cache larger than the address space of a process.
    let mut options = Options::default();
    for (key, value) in [
        ("device", "host"),
        ("device_cache", "8MiB"),
        ("peers", "host=1PiB"),
    ] {
        options.set(key, value).unwrap().unwrap();
    }
    let failure = EngineHandle::open(options, Door::default()).unwrap_err();
    assert_eq!(failure.status, Status::NoRoom, "{failure}");
}
