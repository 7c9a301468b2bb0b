//! Objects of each kind that earlier releases wrote stay readable. Except for times, today's objects are the same byte for byte.
//!
//! `TIERFLOW_GOLDEN=write` writes the files anew.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod common;
mod faulty;

use common::{bytes_of, numbers, open};
use faulty::Faulty;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tierflow_objects::Settings;
use tierflow_store::container::{Found, Head, Kind, scan};
use tierflow_store::{Region, Snapshot, Vault};

/// Versions of two ranks. The second run discards version 5 and writes version 6.
const VERSIONS: [u64; 5] = [1, 2, 3, 4, 6];
/// Number of other objects before. An index is written once 1024 objects have no row in one.
const OTHERS: u64 = 1014;

fn rank(store: &Arc<dyn ObjectStore>, rank: u32, run: u64) -> impl Vault + use<> {
    open(store, "golden", Settings::default().group(rank, 2, run))
}

fn save(vault: &dyn Vault, version: u64, length: usize) {
    let bytes = bytes_of(version, length);
    let regions = [Region::new("state", &bytes)];
    let base = (version == 2).then_some(1);
    let regions = &regions;
    let snapshot = Snapshot {
        version,
        base,
        regions,
    };
    vault.save(&snapshot, &|| Ok(())).unwrap();
}

fn length_of(rank: u64, version: u64) -> usize {
    (100 * version + 1000 * rank) as usize
}

/// Writes a history. Returns its objects by their paths, with their entity tags.
fn written() -> BTreeMap<String, (u64, Vec<u8>)> {
    let store: Arc<dyn ObjectStore> = Arc::new(object_store::memory::InMemory::new());
    let others = open(&store, "golden", Settings::default());
    (0..OTHERS).for_each(|other| save(&others, 1000 + other, 10));
    let [first, second] = [0, 1].map(|number| rank(&store, number, 1));
    for version in 1..=5 {
        save(&first, version, length_of(0, version));
    }
    for version in 1..=5 {
        save(&second, version, length_of(1, version));
    }
    drop((first, second));
    let ranks = [0, 1].map(|number| rank(&store, number, 2));
    for (number, vault) in (0..).zip(&ranks) {
        vault.truncate(Some(4)).unwrap();
        save(vault, 6, length_of(number, 6));
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let all: Vec<_> = runtime.block_on(store.list(None).try_collect()).unwrap();
    let wanted = all.into_iter().filter(|meta| {
        let path = meta.location.as_ref();
        // Nearly all rows of the first rank's index belong to the other objects.
        let others = [
            "golden/rank-0/v00000000000000001",
            "golden/rank-0/v00000000000000002",
            "golden/rank-0/index",
        ];
        !others.iter().any(|start| path.starts_with(start))
    });
    let read = |meta: object_store::ObjectMeta| {
        let bytes =
            runtime.block_on(async { store.get(&meta.location).await.unwrap().bytes().await });
        let tag = meta.e_tag.unwrap().trim_matches('"').parse().unwrap();
        (meta.location.to_string(), (tag, bytes.unwrap().to_vec()))
    };
    wanted.map(read).collect()
}

fn home() -> PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Returns the golden objects in the form of [`written`].
fn kept() -> BTreeMap<String, (u64, Vec<u8>)> {
    let list = std::fs::read_to_string(home().join("tags")).unwrap();
    let read = |line: &str| {
        let (tag, path) = line.split_once(' ').unwrap();
        let bytes = std::fs::read(home().join(path)).unwrap();
        (path.to_owned(), (tag.parse().unwrap(), bytes))
    };
    list.lines().map(read).collect()
}

/// Returns a record without its times and without the checksums of lists that contain times.
fn timeless(record: &[u8]) -> Option<Vec<u8>> {
    let mut found = None;
    scan(record, 0, |first| {
        found = Some(first);
        Ok(false)
    })
    .unwrap();
    let Found::Record(head) = found? else {
        return None;
    };
    assert!(
        record.starts_with(&head.encode().unwrap()),
        "the head says all"
    );
    let mut payload = record[head.length as usize..].to_vec();
    let region = head.regions[0].offset as usize;
    let words = payload[region..].as_chunks_mut::<8>().0;
    let length = head.regions[0].length as usize / 8;
    // The places of the time, and of a checksum over times.
    let (row, times): (usize, &[usize]) = match head.kind {
        Kind::Piece => (1, &[]),
        Kind::Manifest => (4, &[2]),
        Kind::Index => (14, &[6, 7]),
    };
    for row in words[..length].chunks_mut(row) {
        let is_piece = head.kind != Kind::Index || row[3][0] & 1 == 0;
        let times = times
            .iter()
            .skip(usize::from(head.kind == Kind::Index && is_piece));
        times.for_each(|time| row[*time] = [0; 8]);
    }
    let mut head = Head {
        created: 0,
        ..*head
    };
    if head.kind != Kind::Piece {
        head.blocks.fill(0);
    }
    Some([head.encode().unwrap(), payload].concat())
}

#[test]
fn objects_are_written_as_they_were() {
    let written = written();
    if std::env::var("TIERFLOW_GOLDEN").is_ok_and(|what| what == "write") {
        let mut tags = String::new();
        for (path, (tag, bytes)) in &written {
            tags += &format!("{tag} {path}\n");
            let path = home().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        std::fs::write(home().join("tags"), tags).unwrap();
    }
    let kept = kept();
    let of_kind = |ending| kept.keys().filter(|path| path.ends_with(ending)).count();
    let kinds = [".tfc", ".tfm", ".tfi", ".cut"].map(of_kind);
    assert_eq!(kinds, [12, 6, 1, 2]);
    assert_eq!(
        written.keys().collect::<Vec<_>>(),
        kept.keys().collect::<Vec<_>>()
    );
    for ((path, (_, new)), (_, old)) in written.iter().zip(kept.values()) {
        assert!(timeless(new) == timeless(old), "{path}");
    }
}

#[test]
fn objects_that_were_kept_are_read() {
    let faulty = Arc::new(Faulty::default());
    let store: Arc<dyn ObjectStore> = Arc::clone(&faulty) as _;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let kept = kept();
    let by_tag: BTreeMap<u64, (&String, &Vec<u8>)> = kept
        .iter()
        .map(|(path, (tag, bytes))| (*tag, (path, bytes)))
        .collect();
    let put = |path: &str, bytes: &[u8]| {
        let path = Path::from(path);
        let put = store.put(&path, PutPayload::from(bytes.to_vec()));
        runtime.block_on(put).unwrap();
    };
    // The tags of the store are the numbers of its writes.
    for tag in 0..=*by_tag.keys().last().unwrap() {
        match by_tag.get(&tag) {
            Some((path, bytes)) => put(path, bytes),
            None => put("elsewhere", b""),
        }
    }
    let reader = rank(&store, 1, 3);
    assert_eq!(numbers(&reader), VERSIONS);
    assert_eq!(faulty.puts.load(Relaxed), 1036, "nothing is written anew");
    // The requests are for the heads of nine pieces that have no row in the index, and for the heads and lists of the index and of three
    // manifests.
    assert_eq!(faulty.gets.load(Relaxed), 9 + 2 * (1 + 3));
    for number in 0..2 {
        let reader = rank(&store, number, 3);
        for version in VERSIONS {
            let bytes = reader.piece(version).unwrap().read("state").unwrap();
            assert!(bytes == bytes_of(version, length_of(number.into(), version)));
        }
        assert_eq!(reader.piece(2).unwrap().head().base, Some(1));
    }
}
