//! The contract of every [`Storage`], [`Vault`] and [`Repository`](crate::Repository). The tests of a new storage call [`run_all`],
//! those of a new vault call [`vault`], and those of new blobs use the [`repository_suite`](crate::repository_suite).

pub mod repository;

pub use repository::Home;

use crate::{Error, Region, Result, Snapshot, Storage, Vault};
use std::collections::BTreeSet;

/// Runs every check. The checks write to the first few MiB.
///
/// # Panics
/// If a check fails. The message says what was expected.
pub fn run_all(storage: &dyn Storage) {
    returns_what_was_written(storage);
    keeps_neighbours(storage);
    serves_threads(storage);
    refuses_what_is_not_aligned(storage);
}

/// Memory that starts at an aligned address.
struct AlignedBytes {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBytes {
    fn new(storage: &dyn Storage, blocks: usize) -> Self {
        let length = blocks * storage.alignment();
        let bytes = vec![0; length + storage.alignment()];
        let start = bytes.as_ptr().align_offset(storage.alignment());
        Self {
            bytes,
            start,
            length,
        }
    }

    fn patterned(storage: &dyn Storage, blocks: usize, seed: usize) -> Self {
        let mut memory = Self::new(storage, blocks);
        memory
            .get_mut()
            .iter_mut()
            .enumerate()
            .for_each(|(i, b)| *b = pattern(seed, i));
        memory
    }

    fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

fn pattern(seed: usize, index: usize) -> u8 {
    ((seed.wrapping_mul(31) ^ index).wrapping_mul(0x9E37_79B9) >> 16) as u8
}

fn written(storage: &dyn Storage, offset: u64, memory: &AlignedBytes) {
    let result = storage.write_at(offset, memory.get());
    assert!(result.is_ok(), "a write at {offset} failed: {result:?}");
}

fn assert_holds(storage: &dyn Storage, offset: u64, expected: &AlignedBytes) {
    let mut memory = AlignedBytes::new(storage, expected.length / storage.alignment());
    let result = storage.read_at(offset, memory.get_mut());
    assert!(result.is_ok(), "a read at {offset} failed: {result:?}");
    assert!(
        memory.get() == expected.get(),
        "the bytes at {offset} are not those that were written"
    );
}

fn returns_what_was_written(storage: &dyn Storage) {
    for (seed, blocks) in [1, 3, 256].into_iter().enumerate() {
        let memory = AlignedBytes::patterned(storage, blocks, seed);
        written(storage, 0, &memory);
        assert_holds(storage, 0, &memory);
    }
}

fn keeps_neighbours(storage: &dyn Storage) {
    let block = storage.alignment() as u64;
    let (around, within) = (
        AlignedBytes::patterned(storage, 1, 7),
        AlignedBytes::patterned(storage, 2, 8),
    );
    written(storage, 0, &around);
    written(storage, 3 * block, &around);
    written(storage, block, &within);
    assert_holds(storage, 0, &around);
    assert_holds(storage, block, &within);
    assert_holds(storage, 3 * block, &around);
}

fn serves_threads(storage: &dyn Storage) {
    let span = 16 * storage.alignment() as u64;
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            scope.spawn(move || {
                for round in 0..4 {
                    let memory = AlignedBytes::patterned(storage, 16, thread * 100 + round);
                    written(storage, thread as u64 * span, &memory);
                    assert_holds(storage, thread as u64 * span, &memory);
                }
            });
        }
    });
}

fn refuses_what_is_not_aligned(storage: &dyn Storage) {
    let mut memory = AlignedBytes::new(storage, 2);
    let block = storage.alignment();
    let misaligned = [
        storage.write_at(1, &memory.get()[..block]),
        storage.write_at(0, &memory.get()[..block - 1]),
        storage.write_at(0, &memory.get()[1..=block]),
        storage.read_at(1, &mut memory.get_mut()[..block]),
    ];
    if block > 1 {
        assert!(
            misaligned
                .iter()
                .all(|r| matches!(r, Err(Error::Unaligned { .. }))),
            "{misaligned:?}"
        );
    }
}

/// Runs every check of a vault that belongs to a group of one rank. The vault is empty at first. `open` opens it; it is called
/// again after the vault that it returned before was dropped.
///
/// # Panics
/// If a check fails. The message says what was expected.
pub fn vault(open: &dyn Fn() -> Box<dyn Vault>) {
    for (version, length) in [(1, 0), (2, 5_000), (3, 18_000_001)] {
        gives_a_number_once(open, version, length);
    }
}

fn save(vault: &dyn Vault, version: u64, bytes: &[u8]) -> Result<()> {
    let regions = [Region::new("state", bytes)];
    vault.save(&Snapshot::new(version, &regions), &|| Ok(()))
}

fn assert_kept(vault: &dyn Vault, version: u64, expected: &[u8]) {
    let read = vault.piece(version).and_then(|piece| piece.read("state"));
    assert!(
        read.as_ref().is_ok_and(|bytes| bytes == expected),
        "version {version} does not hold what was saved: {:?}",
        read.map(|bytes| bytes.len())
    );
    let versions = vault.versions();
    let is_listed = |all: &Vec<crate::VersionInfo>| all.iter().any(|info| info.version == version);
    assert!(
        versions.as_ref().is_ok_and(is_listed),
        "version {version} is not listed: {versions:?}"
    );
}

/// Checks that a number in use is refused, both by the vault that wrote the version and after a reopening.
fn gives_a_number_once(open: &dyn Fn() -> Box<dyn Vault>, version: u64, length: usize) {
    let of = |seed| -> Vec<u8> { (0..length).map(|at| pattern(seed, at)).collect() };
    let (first, second) = (of(1), of(2));
    let assert_refused = |vault: &dyn Vault| {
        for bytes in [&second, &first, &Vec::from("shorter")] {
            let again = save(vault, version, bytes);
            assert!(
                matches!(again, Err(Error::Exists { version: told }) if told == version),
                "version {version} was saved again: {again:?}"
            );
            assert_kept(vault, version, &first);
        }
    };
    let writer = open();
    let saved = save(&*writer, version, &first);
    assert!(saved.is_ok(), "version {version} was not saved: {saved:?}");
    assert_refused(&*writer);
    // Copying the very piece that is there is allowed.
    let copied = writer
        .piece(version)
        .and_then(|piece| writer.copy(&piece, &|| Ok(())));
    assert!(copied.is_ok(), "{copied:?}");
    drop(writer);
    let writer = open();
    assert_refused(&*writer);
    let removed = writer.remove(&BTreeSet::from([version]));
    assert!(removed.is_ok(), "{removed:?}");
    let saved = save(&*writer, version, &second);
    assert!(
        saved.is_ok(),
        "the number {version} was given up, and is not free: {saved:?}"
    );
    drop(writer);
    assert_kept(&*open(), version, &second);
}
