//! Tests of volumes: reads return the written bytes whichever stores fail, and slow stores get fewer chunks.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use proptest::prelude::*;
use tierflow_placement::stores::{
    Backlog, Calibration, ChunkMap, ShortestWait, Store, StoreId, StorePolicy, StoreState,
};
use tierflow_store::{Error as StoreError, Faults, Faulty, Scratch, Storage, Throttled};
use tierflow_transfer::volume::{LocalStore, Volume, VolumeError};

/// Bytes of a block, and of a chunk of four.
const BLOCK: usize = 4096;
const CHUNK: usize = 4 * BLOCK;

/// A policy that chooses the first store with room.
#[derive(Debug)]
struct FirstWithRoom;

impl StorePolicy for FirstWithRoom {
    fn usable(&self, stores: usize) -> std::ops::Range<usize> {
        0..stores
    }

    fn choose(&self, stores: &[StoreState<'_>], _: Backlog) -> Option<usize> {
        stores.iter().position(|store| store.has_room)
    }

    fn name(&self) -> &'static str {
        "first with room"
    }
}

/// A policy that always waits for flushes, which a volume does not have.
#[derive(Debug)]
struct AlwaysWaits;

impl StorePolicy for AlwaysWaits {
    fn usable(&self, stores: usize) -> std::ops::Range<usize> {
        0..stores
    }

    fn choose(&self, _: &[StoreState<'_>], _: Backlog) -> Option<usize> {
        None
    }

    fn name(&self) -> &'static str {
        "always waits"
    }
}

fn flat(bandwidth: f64) -> Calibration {
    Calibration::new(1, 1, &[bandwidth]).unwrap()
}

fn store(storage: impl Storage + 'static, bandwidth: f64, chunks: usize) -> LocalStore {
    LocalStore {
        storage: Arc::new(storage),
        calibration: flat(bandwidth),
        chunks,
    }
}

fn volume(stores: Vec<LocalStore>, policy: impl StorePolicy + 'static) -> Volume {
    Volume::new(stores, Box::new(policy), CHUNK, Duration::ZERO).unwrap()
}

fn scratch(folder: &Path) -> Scratch {
    Scratch::open(folder).unwrap()
}

/// Blocks at an address that storage accepts.
struct Blocks(Vec<u8>, usize, usize);

impl Blocks {
    fn of(blocks: usize, byte: u8) -> Self {
        let bytes = vec![byte; (blocks + 1) * BLOCK];
        let start = bytes.as_ptr().align_offset(BLOCK);
        Self(bytes, start, blocks * BLOCK)
    }

    fn get(&self) -> &[u8] {
        &self.0[self.1..self.1 + self.2]
    }

    fn get_mut(&mut self) -> &mut [u8] {
        &mut self.0[self.1..self.1 + self.2]
    }
}

/// Returns the byte that fills each of these blocks.
fn read(volume: &Volume, first: usize, blocks: usize) -> tierflow_store::Result<Vec<u8>> {
    let mut memory = Blocks::of(blocks, 0xee);
    volume.read_at((first * BLOCK) as u64, memory.get_mut())?;
    let blocks = memory.get().chunks(BLOCK);
    Ok(blocks
        .map(|block| {
            assert!(block.iter().all(|byte| *byte == block[0]), "a torn block");
            block[0]
        })
        .collect())
}

#[test]
fn conforms() {
    let home = tempfile::tempdir().unwrap();
    let stores = || {
        let one = store(scratch(home.path()), 2e9, 300);
        vec![one, store(scratch(home.path()), 1e9, 300)]
    };
    tierflow_store::conformance::run_all(&volume(stores(), ShortestWait));
    tierflow_store::conformance::run_all(&volume(stores(), AlwaysWaits));
    tierflow_store::conformance::run_all(&Volume::of_directories([home.path()]).unwrap());
}

#[test]
fn a_volume_is_as_large_as_its_stores_and_may_be_written_over_and_over() {
    let home = tempfile::tempdir().unwrap();
    let stores = vec![
        store(scratch(home.path()), 2e9, 3),
        store(scratch(home.path()), 1e9, 5),
    ];
    let volume = volume(stores, FirstWithRoom);
    assert_eq!(volume.bytes(), 8 * CHUNK as u64);
    for round in 1..6 {
        let all = Blocks::of(32, round);
        volume.write_at(0, all.get()).unwrap();
        assert_eq!(read(&volume, 0, 32).unwrap(), [round; 32]);
        assert_eq!(volume.chunks(), [3, 5]);
    }
    let beyond = volume.write_at(8 * CHUNK as u64, Blocks::of(1, 9).get());
    assert!(matches!(beyond, Err(StoreError::Full { .. })), "{beyond:?}");
    let none = Volume::new(Vec::new(), Box::new(FirstWithRoom), CHUNK, Duration::ZERO);
    assert!(matches!(none, Err(VolumeError::NoRoom { .. })));
}

#[test]
fn empty_requests_are_aligned() {
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(vec![store(scratch(folder.path()), 1.0, 1)], FirstWithRoom);
    // Empty memory may have any address.
    let bytes = &mut [0; 2];
    for at in 0..2 {
        volume.write_at(0, &bytes[at..at]).unwrap();
        volume.read_at(0, &mut bytes[at..at]).unwrap();
    }
}

/// The volume must report to its map when its writes begin and end. The shares of faster stores are tested at the map, where time is a
/// number (`tierflow-placement`, `tests/chunk_map.rs`).
#[test]
fn a_store_that_is_slower_than_its_calibration_is_left() {
    let home = tempfile::tempdir().unwrap();
    // Both stores have the same calibration, so the first is chosen until its writes show that it is slower.
    let slow = Throttled::new(scratch(home.path()), 1 << 16);
    let stores = vec![store(slow, 1e6, 100), store(scratch(home.path()), 1e6, 100)];
    let volume = volume(stores, ShortestWait);
    let chunk = Blocks::of(4, 1);
    for at in 0..40 {
        volume.write_at((at * CHUNK) as u64, chunk.get()).unwrap();
    }
    let chunks = volume.chunks();
    assert!(0 < chunks[0] && chunks[0] < chunks[1], "{chunks:?}");
}

#[test]
fn chunks_that_a_store_refuses_go_to_another_one() {
    let home = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let failing = Faulty::new(scratch(home.path()), Arc::clone(&faults));
    let stores = vec![
        store(failing, 9e9, 100),
        store(scratch(home.path()), 1e6, 100),
    ];
    let volume = volume(stores, FirstWithRoom);
    volume.write_at(0, Blocks::of(4, 1).get()).unwrap();
    faults.writes_fail.store(true, Ordering::Relaxed);
    volume
        .write_at(CHUNK as u64, Blocks::of(8, 2).get())
        .unwrap();
    assert_eq!(volume.chunks(), [1, 2]);
    // The first chunk can be overwritten as a whole, and not in part.
    let part = volume.write_at(0, Blocks::of(1, 3).get());
    assert!(part.is_err());
    volume.write_at(0, Blocks::of(4, 3).get()).unwrap();
    assert_eq!(
        read(&volume, 0, 12).unwrap(),
        [3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2]
    );
    assert_eq!(volume.chunks(), [0, 3]);
    faults.writes_fail.store(false, Ordering::Relaxed);
    volume
        .write_at(3 * CHUNK as u64, Blocks::of(4, 4).get())
        .unwrap();
    assert_eq!(volume.chunks(), [1, 3], "it is tried again");
}

#[test]
fn a_failed_write_takes_nothing_from_others_in_the_same_chunk() {
    let stores = vec![Store::new(flat(2e9), 4), Store::new(flat(1e9), 4)];
    let mut map = ChunkMap::new(CHUNK as u64, stores, Box::new(FirstWithRoom), 0);
    let block = BLOCK as u64;
    // Both requests write to the second chunk, and one fails.
    let one = map.place(0, 0..6 * block, &[]).unwrap();
    let other = map.place(0, 6 * block..8 * block, &[]).unwrap();
    map.written(1, &other);
    map.failed(2, &one);
    assert_eq!(map.find(&(6 * block..8 * block)), Ok(other.extent));
    assert_eq!(
        map.find(&(0..8 * block)),
        Err(4 * block),
        "the first chunk is placed anew"
    );
    let refused = [one.extent.store];
    let again = map.place(3, 0..6 * block, &refused).unwrap();
    assert_eq!(
        (again.extent.store, again.extent.bytes),
        (StoreId(1), 4 * block)
    );
    assert_eq!(map.chunks(), [1, 1]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn reads_return_the_written_bytes(
        writes in prop::collection::vec((0_usize..60, 1_usize..14, any::<bool>()), 1..80),
        seed in 0_usize..3,
    ) {
        let home = tempfile::tempdir().unwrap();
        let faults = Arc::new(Faults::default());
        let stores = vec![
            store(Faulty::new(scratch(home.path()), Arc::clone(&faults)), 3e9, 4),
            store(scratch(home.path()), 2e9, 9),
            store(scratch(home.path()), 1e9, 3),
        ];
        let volume = match seed {
            0 => volume(stores, ShortestWait),
            1 => volume(stores, AlwaysWaits),
            _ => volume(stores, FirstWithRoom),
        };
        // The byte of each block. `None` if the content is unspecified.
        let mut expected = [Some(0); 64];
        for (round, (first, blocks, fails)) in writes.into_iter().enumerate() {
            let blocks = blocks.min(64 - first);
            let byte = (round + 1) as u8;
            faults.writes_fail.store(fails, Ordering::Relaxed);
            let written = volume.write_at((first * BLOCK) as u64, Blocks::of(blocks, byte).get());
            prop_assert!(fails || written.is_ok(), "{:?}", written);
            let is_known = written.is_ok().then_some(byte);
            expected[first..first + blocks].fill(is_known);
        }
        // A block that was never written, or whose write failed, may have any content.
        for (at, expected) in expected.iter().enumerate() {
            if let Some(byte) = expected.filter(|byte| *byte > 0) {
                prop_assert_eq!(read(&volume, at, 1).unwrap()[0], byte, "block {}", at);
            }
        }
        prop_assert!(volume.chunks().iter().sum::<usize>() <= 16);
    }
}
