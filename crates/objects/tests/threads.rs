//! A process that may start no more threads gets an error that says so.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use object_store::memory::InMemory;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::Arc;
use std::time::Duration;
use tierflow_objects::ObjectBlobs;
use tierflow_store::{Blobs, Error, Result};
use tokio::runtime::Builder;

fn is_told<T: std::fmt::Debug>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::Remote(text)) if text.contains("raise the limit of processes"))
}

// The limit holds for the whole process, so this file has one test.
#[test]
fn without_threads_a_store_is_an_error_and_no_panic() {
    let open = || ObjectBlobs::new(Arc::new(InMemory::new()), "run", Duration::from_secs(60));
    let blobs = open().unwrap();
    let callers = Builder::new_current_thread().build().unwrap();
    let list = || callers.block_on(async { blobs.list(&mut |_, _| ()) });
    list().unwrap();
    // New threads use the stacks of ended ones, so a few other threads occupy these.
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let ends = Arc::new(std::sync::Mutex::new(ends));
    let others = (0..4).map(|_| {
        let ends = Arc::clone(&ends);
        std::thread::spawn(move || ends.lock().unwrap().recv().is_err())
    });
    let others: Vec<_> = others.collect();
    let before = getrlimit(Resource::As);
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    // The room is smaller than the stack of a thread.
    let room = pages * rustix::param::page_size() as u64 + (1 << 20);
    let limit = Rlimit {
        current: Some(room),
        ..before
    };
    setrlimit(Resource::As, limit).unwrap();
    let outcomes = (open(), list());
    setrlimit(Resource::As, before).unwrap();
    drop(end);
    for other in others {
        assert!(other.join().unwrap());
    }
    assert!(is_told(&outcomes.0), "{:?}", outcomes.0);
    assert!(is_told(&outcomes.1), "{:?}", outcomes.1);
    open().unwrap();
    list().unwrap();
}
