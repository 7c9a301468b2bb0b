//! Measures the memory of a long history.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod common;

use common::objects;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::sync::Arc;
use tierflow_store::{Region, Snapshot};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn a_version_of_a_history_that_was_opened_takes_250_bytes() {
    const VERSIONS: u64 = 20_000;
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let writer = objects(&store);
    for version in 0..VERSIONS {
        let bytes = version.to_le_bytes();
        let snapshot = Snapshot {
            version,
            base: None,
            regions: &[Region::new("state", &bytes)],
        };
        writer.save(&snapshot).unwrap();
    }
    drop(writer);
    let held = || {
        let stats = ALLOCATOR.stats();
        stats.bytes_allocated as u64 - stats.bytes_deallocated as u64
    };
    let before = held();
    let reader = objects(&store);
    assert_eq!(reader.latest(None).unwrap(), Some(VERSIONS - 1));
    let bytes = (held() - before) / VERSIONS;
    println!("{bytes} bytes a version");
    assert!(bytes <= 250, "{bytes} bytes a version");
}
