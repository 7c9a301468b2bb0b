//! Tests of repositories over blobs in memory: removals beside saves, and panics.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tierflow_store::container::Source;
use tierflow_store::{
    BlobStamp, Blobs, ByteSource, Collective, Error, Options, PutRule, Ready, RecordBytes, Region,
    Repository, Result, Snapshot, Vault, Written,
};

type Blob = (u64, Arc<Vec<u8>>);
type Hook = Mutex<Box<dyn Fn() + Send + Sync>>;

/// Blobs in memory, and functions that are called before each removal and each write.
struct Memory {
    blobs: Mutex<BTreeMap<String, Blob>>,
    tags: AtomicU64,
    removes: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    puts: Hook,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            blobs: Mutex::default(),
            tags: AtomicU64::new(0),
            removes: Mutex::default(),
            puts: Mutex::new(Box::new(|| ())),
        }
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}

#[derive(Debug)]
struct Bytes(Arc<Vec<u8>>);

impl Source for Bytes {
    type Error = Error;

    fn size(&self) -> Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let at = offset as usize;
        bytes.copy_from_slice(&self.0[at..at + bytes.len()]);
        Ok(())
    }
}

impl Memory {
    fn stamp_of((tag, bytes): &Blob) -> BlobStamp {
        BlobStamp {
            size: bytes.len() as u64,
            tag: *tag,
            is_exact: true,
        }
    }

    fn write(&self, name: &str, bytes: Vec<u8>) -> u64 {
        let tag = self.tags.fetch_add(1, Relaxed) + 1;
        let blob = (tag, Arc::new(bytes));
        self.blobs.lock().unwrap().insert(name.to_owned(), blob);
        tag
    }
}

impl Blobs for Memory {
    fn list(&self, found: &mut (dyn FnMut(&str, BlobStamp) + Send)) -> Result<()> {
        let blobs = self.blobs.lock().unwrap().clone();
        blobs
            .iter()
            .for_each(|(name, blob)| found(name, Self::stamp_of(blob)));
        Ok(())
    }

    fn stamp(&self, name: &str) -> Result<Option<BlobStamp>> {
        Ok(self.blobs.lock().unwrap().get(name).map(Self::stamp_of))
    }

    fn open(&self, name: &str, _: u64, _: u64) -> Result<Option<Box<dyn ByteSource>>> {
        let blobs = self.blobs.lock().unwrap();
        let bytes = blobs.get(name).map(|(_, bytes)| Bytes(Arc::clone(bytes)));
        Ok(bytes.map(|bytes| Box::new(bytes) as Box<dyn ByteSource>))
    }

    fn put(
        &self,
        name: &str,
        record: &RecordBytes<'_>,
        how: PutRule,
        ready: &Ready<'_>,
    ) -> Result<Written> {
        let mut payload = vec![0; record.head().payload_length as usize];
        record.fill(0, &mut payload)?;
        ready()?;
        self.puts.lock().unwrap()();
        if how == PutRule::Absent && self.stamp(name)?.is_some() {
            return Ok(Written::Taken);
        }
        let bytes = [record.head_bytes(), &payload].concat();
        Ok(Written::Done(self.write(name, bytes)))
    }

    fn note(&self, name: &str) -> Result<()> {
        self.write(name, Vec::new());
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        let before = self.removes.lock().unwrap().pop();
        before.into_iter().for_each(|before| before());
        self.blobs.lock().unwrap().remove(name);
        Ok(())
    }

    fn shown(&self, name: &str) -> PathBuf {
        PathBuf::from(name)
    }
}

fn over(memory: &Arc<Memory>) -> Repository {
    let blobs = Arc::clone(memory) as Arc<dyn Blobs>;
    Repository::open_blobs(blobs, Options::default()).unwrap()
}

fn save(repository: &Repository, version: u64, byte: u8) -> Result<()> {
    let bytes = [byte; 100];
    repository.save(&Snapshot::new(version, &[Region::new("state", &bytes)]))
}

fn read(repository: &Repository, version: u64) -> Result<Vec<u8>> {
    repository.piece(version)?.read("state")
}

#[test]
fn a_save_waits_for_all_removals_of_its_version() {
    let memory = Arc::<Memory>::default();
    let repository = over(&memory);
    save(&repository, 1, 1).unwrap();
    let (is_there, there) = channel();
    let mut go_on = Vec::new();
    for _ in 0..2 {
        let (go, gone) = channel::<()>();
        let is_there = is_there.clone();
        go_on.push(go);
        memory.removes.lock().unwrap().push(Box::new(move || {
            is_there.send(()).unwrap();
            gone.recv().unwrap();
        }));
    }
    let repository = &repository;
    std::thread::scope(|scope| {
        let remove = || repository.remove_even_bases(&[1].into());
        let last = scope.spawn(remove);
        there.recv().unwrap();
        let first = scope.spawn(remove);
        there.recv().unwrap();
        // The hooks are taken from the end, so the removal that came last is let go first.
        go_on.remove(0).send(()).unwrap();
        first.join().unwrap().unwrap();
        let saved = scope.spawn(|| save(repository, 1, 2));
        // A save that does not wait has the time to write before the other removal.
        std::thread::sleep(Duration::from_millis(200));
        go_on.remove(0).send(()).unwrap();
        last.join().unwrap().unwrap();
        saved.join().unwrap().unwrap();
    });
    assert_eq!(read(repository, 1).unwrap(), [2; 100]);
    assert_eq!(read(&over(&memory), 1).unwrap(), [2; 100]);
}

#[test]
fn a_removal_that_panics_keeps_no_save_waiting() {
    let memory = Arc::<Memory>::default();
    let repository = over(&memory);
    save(&repository, 1, 1).unwrap();
    let removes = || memory.removes.lock().unwrap();
    removes().push(Box::new(|| panic!("on purpose")));
    let removed = repository.remove_even_bases(&[1].into());
    assert!(
        matches!(removed, Err(Error::Panicked { .. })),
        "{removed:?}"
    );
    repository.remove_even_bases(&[1].into()).unwrap();
    save(&repository, 1, 2).unwrap();
    assert_eq!(read(&repository, 1).unwrap(), [2; 100]);
}

#[test]
fn a_save_that_panics_leaves_its_number_free() {
    let directory = tempfile::tempdir().unwrap();
    let memory = Arc::<Memory>::default();
    let places = [
        Repository::open(directory.path(), Options::default()).unwrap(),
        over(&memory),
    ];
    for (version, length) in [(1, 100), (2, 2_000_000)] {
        for repository in &places {
            let panics = |_: u64, _: &mut [u8]| panic!("on purpose");
            let region = [Region::pulled("state", length, &panics)];
            let bytes = vec![7; length as usize];
            let sound = [Region::new("state", &bytes)];
            let saved = [
                catch_unwind(AssertUnwindSafe(|| {
                    repository.save(&Snapshot::new(version, &region))
                })),
                catch_unwind(AssertUnwindSafe(|| {
                    Vault::save(repository, &Snapshot::new(version, &sound), &|| {
                        panic!("on purpose")
                    })
                })),
            ];
            for saved in saved {
                assert!(
                    matches!(saved, Ok(Err(Error::Panicked { .. }))),
                    "{saved:?}"
                );
            }
            repository.save(&Snapshot::new(version, &sound)).unwrap();
            assert_eq!(read(repository, version).unwrap(), bytes);
        }
    }
    *memory.puts.lock().unwrap() = Box::new(|| panic!("on purpose"));
    let saved = save(&places[1], 3, 1);
    assert!(matches!(saved, Err(Error::Panicked { .. })), "{saved:?}");
    memory.puts.clear_poison();
    *memory.puts.lock().unwrap() = Box::new(|| ());
    save(&places[1], 3, 1).unwrap();
}

#[test]
fn ranks_do_not_meet_through_blobs() {
    let gathered = |ranks| {
        let blobs = Arc::<Memory>::default() as Arc<dyn Blobs>;
        let repository = Repository::open_blobs(blobs, Options::default().rank(0, ranks)).unwrap();
        repository.all_gather(b"mine", Duration::ZERO)
    };
    assert_eq!(gathered(1).unwrap(), [b"mine"]);
    assert!(matches!(gathered(2), Err(Error::Argument(_))));
}
