//! Tests with untrusted bytes. The fuzz target `records` does the same for longer.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use proptest::prelude::*;
use tierflow_store::container::{Element, Found, Head, Kind, RegionInfo, UNIT, checksum, scan};
use tierflow_store::{Options, Region, Repository, Snapshot};

fn sound() -> Head {
    let region = |name: &str, offset, element, shape: &[u64]| RegionInfo {
        name: name.to_owned(),
        offset,
        length: 48,
        element,
        shape: shape.to_vec(),
    };
    Head {
        kind: Kind::Piece,
        position: 0,
        version: 7,
        sequence: 9,
        epoch: 4,
        run: 3,
        base: None,
        created: 1,
        rank: 0,
        ranks: 1,
        length: 512,
        payload_length: 512,
        block_bytes: 256,
        regions: vec![
            region("a", 0, Element::F64, &[2, 3]),
            region("b", 256, Element::Bytes, &[]),
        ],
        parts: Vec::new(),
        blocks: vec![checksum(&[0; 256]); 2],
    }
}

fn file(head: &Head) -> Vec<u8> {
    let mut file = head.encode().unwrap();
    file.resize(4096, 0);
    file
}

/// Corrects the head's checksum.
fn seal(file: &mut [u8]) {
    let sum = checksum(&file[..504]);
    file[504..512].copy_from_slice(&sum.to_le_bytes());
}

/// Returns the heads that are found in the bytes. Asserts that each lies within them and is encoded to the same bytes.
fn records(bytes: &[u8]) -> Vec<Head> {
    let mut heads = Vec::new();
    let end = scan(bytes, 0, |found| {
        if let Found::Record(head) = found {
            let at = head.position as usize;
            let again = head.encode().unwrap();
            assert_eq!(again, bytes[at..at + again.len()]);
            assert!(head.position + head.record_length() <= bytes.len() as u64);
            heads.push(*head);
        }
        Ok(true)
    });
    assert!(end.unwrap() <= bytes.len() as u64);
    heads
}

#[test]
fn every_field_that_lies_is_found_out() {
    let head = sound();
    assert_eq!(records(&file(&head)), [head]);
    // Places of fields, each with an impossible value. The checksum is corrected.
    let wrong: [(usize, u64, &str); 22] = [
        (0, 0, "the magic"),
        (8, 1, "an epoch in format 1"),
        (8, 3, "format 3 without parts"),
        (8, 4, "format 4"),
        (92, 0, "no epoch in format 2"),
        (12, 0, "no head"),
        (12, 511, "an odd head"),
        (12, 1 << 30, "a huge head"),
        (16, 513, "an odd payload"),
        (16, !255, "a payload behind all files"),
        (24, 256, "a record of another place"),
        (56, 7, "its own base"),
        (72, 1, "a rank outside the group"),
        (76, 0, "no ranks"),
        (80, 0, "no block size"),
        (80, 100, "an odd block size"),
        (84, 3, "more regions than there are"),
        (84, u32::MAX as u64, "regions without end"),
        (88, 3, "an unknown kind"),
        (96, u64::MAX, "a region behind the payload"),
        (96, 464, "a region behind the next one"),
        (96 + 128, 40, "a region within the one before"),
    ];
    for (at, value, what) in wrong {
        let mut bytes = file(&sound());
        let length = if matches!(at, 8 | 12 | 72..96) { 4 } else { 8 };
        bytes[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
        seal(&mut bytes);
        assert_eq!(records(&bytes), [], "{what}");
    }
}

/// Returns the head of a checkpoint of 96 bytes that is stored in 48, with the two arrays that it decodes to.
fn encoded() -> Head {
    let part = |name: &str, offset, shape: &[u64]| RegionInfo {
        name: name.to_owned(),
        offset,
        length: 48,
        element: Element::F64,
        shape: shape.to_vec(),
    };
    let mut head = sound();
    head.regions.truncate(1);
    head.regions[0].element = Element::Encoded;
    head.regions[0].shape = vec![96];
    head.parts = vec![part("a", 0, &[2, 3]), part("b", 48, &[6])];
    head
}

#[test]
fn parts_that_lie_are_found_out() {
    let head = encoded();
    assert_eq!(records(&file(&head)), [head]);
    let second = 96 + 128;
    let wrong: [(usize, u8, &str); 6] = [
        (8, 2, "parts in format 2"),
        (96 + 16, Element::F64 as u8, "parts of what is not encoded"),
        (second + 18, 0, "a region in the place of a part"),
        (second + 18, 2, "a row of an unknown kind"),
        (second, 49, "a part behind what is decoded"),
        (96 + 18, 1, "a part and nothing that it is of"),
    ];
    for (at, value, what) in wrong {
        let mut bytes = file(&encoded());
        bytes[at] = value;
        seal(&mut bytes);
        assert_eq!(records(&bytes), [], "{what}");
    }
    let mut bytes = file(&encoded());
    bytes[second + 128 + 18] = 0;
    seal(&mut bytes);
    assert_eq!(records(&bytes), [], "a region after a part");
}

#[test]
fn a_head_is_not_believed_about_its_length() {
    // No memory is allocated for a payload that the file does not have.
    let mut head = sound();
    head.payload_length = 1 << 40;
    head.block_bytes = 1 << 30;
    head.regions.truncate(1);
    head.regions[0].length = 1 << 40;
    head.regions[0].element = Element::Bytes;
    head.regions[0].shape.clear();
    head.length = 96 + 128 + 8 * 1024 + 8;
    head.length = head.length.next_multiple_of(UNIT as u32);
    head.blocks = vec![0; 1024];
    let bytes = head.encode().unwrap();
    assert_eq!(records(&bytes), []);
}

#[test]
fn a_copy_of_a_file_in_a_payload_is_no_version() {
    let directory = tempfile::tempdir().unwrap();
    let inner = file(&sound());
    {
        let repository = Repository::open(directory.path(), Options::default()).unwrap();
        let regions = [Region::new("file", &inner)];
        let snapshot = Snapshot::new(1, &regions);
        repository.save(&snapshot).unwrap();
    }
    // Without the outer head, the search finds the inner one.
    let segment = directory.path().join("rank-0/s00000000000000000001.tfs");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    assert_eq!(repository.versions().unwrap(), []);
}

proptest! {
    #[test]
    fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        prop_assert_eq!(records(&bytes), []);
    }

    #[test]
    fn sound_files_with_words_overwritten_are_taken(
        edits in proptest::collection::vec((0_usize..508, any::<u32>()), 1..4),
        sealed: bool,
        cut in 0_usize..4096,
    ) {
        let mut bytes = file(&sound());
        for (at, word) in edits {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        if sealed {
            seal(&mut bytes);
        }
        records(&bytes);
        bytes.truncate(cut);
        records(&bytes);
    }

    #[test]
    fn a_repository_opens_over_any_bytes(
        edits in proptest::collection::vec((0_usize..508, any::<u32>()), 1..4),
        name in 0_usize..3,
    ) {
        let mut bytes = file(&sound());
        for (at, word) in edits {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        seal(&mut bytes);
        let directory = tempfile::tempdir().unwrap();
        let rank = directory.path().join("rank-0");
        std::fs::create_dir(&rank).unwrap();
        let names = ["v00000000000000000007.tfc", "s00000000000000000001.tfs", "s00000000000000000001.open"];
        std::fs::write(rank.join(names[name]), bytes).unwrap();
        let repository = Repository::open(directory.path(), Options::default()).unwrap();
        for info in repository.versions().unwrap() {
            let piece = repository.piece(info.version).unwrap();
            for region in piece.regions() {
                let _sound_or_not = piece.read(&region.name);
            }
        }
        repository.scrub(None, &|_, _| {}).unwrap();
    }
}

#[test]
fn a_segment_of_the_greatest_number_stops_no_save() {
    let home = tempfile::tempdir().unwrap();
    for ending in ["tfs", "open"] {
        for _ in 0..2 {
            let repository = Repository::open(home.path(), Options::default()).unwrap();
            let name = format!("rank-0/s{}.{ending}", u64::MAX);
            std::fs::write(home.path().join(name), b"bytes").unwrap();
            let version = repository.latest(None).unwrap().map_or(0, |last| last + 1);
            let regions = [Region::new("state", b"bytes")];
            repository.save(&Snapshot::new(version, &regions)).unwrap();
        }
    }
    let repository = Repository::open(home.path(), Options::default()).unwrap();
    assert_eq!(repository.versions().unwrap().len(), 4);
}
