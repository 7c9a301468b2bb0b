//! Reads that are needed first get the whole bandwidth of the storage.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Flush, Region, RegionMut, Tier};
use tierflow_store::{Result, Scratch, Storage};

const MIB: usize = 1 << 20;
const VERSION: usize = 80 * MIB;

/// Storage whose reads wait until the test lets them through. The first byte tells the version.
#[derive(Debug)]
struct Held {
    scratch: Scratch,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The byte written at each offset.
    written: BTreeMap<u64, u8>,
    /// Versions whose reads began, in order.
    begun: Vec<u8>,
    let_through: usize,
}

impl Storage for Held {
    fn alignment(&self) -> usize {
        self.scratch.alignment()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.scratch.write_at(offset, bytes)?;
        self.state.lock().unwrap().written.insert(offset, bytes[0]);
        Ok(())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        let version = *state.written.range(..=offset).next_back().unwrap().1;
        state.begun.push(version);
        let mine = state.begun.len();
        self.changed.notify_all();
        let _state = self
            .changed
            .wait_while(state, |state| state.let_through < mine)
            .unwrap();
        self.scratch.read_at(offset, bytes)
    }
}

impl Held {
    /// Waits until `count` reads have begun. Returns the versions of the first `count` reads.
    fn begun(&self, count: usize) -> Vec<u8> {
        let state = self.state.lock().unwrap();
        let patience = Duration::from_secs(60);
        let (state, late) = self
            .changed
            .wait_timeout_while(state, patience, |state| state.begun.len() < count)
            .unwrap();
        assert!(!late.timed_out(), "{:?}", state.begun);
        state.begun[..count].to_vec()
    }

    fn let_through(&self, count: usize) {
        self.state.lock().unwrap().let_through = count;
        self.changed.notify_all();
    }
}

/// Lets all reads through when it is dropped.
struct Through<'a>(&'a Held);

impl Drop for Through<'_> {
    fn drop(&mut self) {
        self.0.let_through(usize::MAX);
    }
}

#[test]
fn parallel_prefetches_bring_the_version_that_is_needed_first() {
    let directory = tempfile::tempdir().unwrap();
    let held = Arc::new(Held {
        scratch: Scratch::open(directory.path()).unwrap(),
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    let storage: Arc<dyn Storage> = Arc::<Held>::clone(&held);
    let engine = Engine::builder(&open(Choice::Host).unwrap())
        .host_cache(3 * VERSION)
        .tier(Tier::storage(storage))
        .flush(Flush::Eager)
        .build()
        .unwrap();
    // If the test fails, the engine must not wait for its reads.
    let _through = Through(&held);
    for version in 0..6_u8 {
        let content = vec![version; VERSION];
        let regions = [Region::from(content.as_slice())];
        engine.checkpoint(u64::from(version), &regions).unwrap();
    }
    engine.wait().unwrap();
    // The newest three are on the host; these are not, and there is room for three at a time.
    engine.hint([1, 0, 2]);
    engine.hints().prefetch_start();
    assert_eq!(held.begun(4), [1; 4], "four at a time, all for the first");
    held.let_through(4);
    // A version has five parts of 16 MiB, so the fourth worker continues with the next version.
    let mut begun = held.begun(8);
    begun.sort_unstable();
    assert_eq!(begun, [0, 0, 0, 1, 1, 1, 1, 1]);
    held.let_through(usize::MAX);
    for version in [1, 0, 2, 5, 4, 3_u8] {
        let mut bytes = vec![77; VERSION];
        let mut regions = [RegionMut::from(bytes.as_mut_slice())];
        engine.restore(u64::from(version), &mut regions).unwrap();
        assert!(bytes.iter().all(|&byte| byte == version));
    }
}
