//! Tests of format 4, which has region names of up to 1 KiB and more types. Heads that need neither are written as before.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod histories;

use histories::bytes_of;
use std::path::Path;
use tierflow_store::container::{Element, Head, Kind, RegionInfo, checksum};
use tierflow_store::{Error, Options, Region, Repository, Snapshot};

fn region(name: &str, offset: u64, element: Element, shape: &[u64]) -> RegionInfo {
    RegionInfo {
        name: name.to_owned(),
        offset,
        length: 48,
        element,
        shape: shape.to_vec(),
    }
}

fn head(epoch: u32, regions: Vec<RegionInfo>, parts: Vec<RegionInfo>) -> Head {
    Head {
        kind: Kind::Piece,
        position: 0,
        version: 7,
        sequence: 9,
        epoch,
        run: 3,
        base: Some(6),
        created: 1,
        rank: 1,
        ranks: 3,
        length: 4096,
        payload_length: 512,
        block_bytes: 256,
        regions,
        parts,
        blocks: vec![1, 2],
    }
}

/// Returns a name of `bytes` bytes. If it is longer than 40, a character lies across the 40th byte.
fn name_of(bytes: usize) -> String {
    let start = format!("{}ä", "n".repeat(39));
    match bytes {
        0..=40 => "n".repeat(bytes),
        _ => format!("{start}{}", "e".repeat(bytes - 41)),
    }
}

fn format_of(head: &[u8]) -> u32 {
    u32::from_le_bytes(*head[8..].first_chunk().unwrap())
}

#[test]
fn heads_without_new_features_are_written_as_before() {
    let forty = "a".repeat(40);
    let plain = || {
        vec![
            region(&forty, 0, Element::F64, &[2, 3]),
            region("b", 256, Element::Bytes, &[]),
        ]
    };
    let encoded = vec![region("difference", 0, Element::Encoded, &[800])];
    let parts = vec![
        region("grid", 0, Element::F32, &[12]),
        region(&forty, 48, Element::Bytes, &[]),
    ];
    let heads = [
        head(0, plain(), vec![]),
        head(4, plain(), vec![]),
        head(4, encoded, parts),
    ];
    let sums = heads.map(|head| (checksum(&head.encode().unwrap()), head.content()));
    // The checksums of heads that the code for formats 1 to 3 wrote.
    let before = [
        (2_473_898_526_653_484_951, 110_507_544_408_867_629),
        (13_431_612_059_652_636_759, 110_507_544_408_867_629),
        (9_472_210_941_364_951_666, 4_827_623_717_549_677_174),
    ];
    assert_eq!(sums, before);
}

#[test]
fn a_head_has_long_names_of_regions_and_of_parts() {
    for lengths in [[41, 1], [40, 1024], [49, 300]] {
        let [one, two] = lengths.map(name_of);
        let encoded = vec![region(&one, 0, Element::Encoded, &[96])];
        let parts = vec![
            region(&two, 0, Element::F32, &[12]),
            region("b", 48, Element::Bool, &[48]),
        ];
        let head = head(4, encoded, parts);
        let bytes = head.encode().unwrap();
        assert_eq!(format_of(&bytes), 4, "{lengths:?}");
        assert_eq!(Head::decode(&bytes), Ok(head.clone()), "{lengths:?}");
        let mut other = head.clone();
        other.parts[0].name.push('x');
        assert!(other.encode().is_err() || other.content() != head.content());
    }
}

#[test]
fn a_head_without_room_for_its_names_is_refused() {
    let long = name_of(1024);
    let regions = vec![region(&long, 0, Element::Bytes, &[])];
    let mut head = head(4, regions, vec![]);
    head.length = 1280;
    assert!(Head::decode(&head.encode().unwrap()).is_ok());
    head.length = 1024;
    assert!(head.encode().is_err());
    // A row claims a longer name than the head has, with a right checksum.
    head.length = 1280;
    let mut bytes = head.encode().unwrap();
    let row = 96;
    for rest in [985_u16, 1200, u16::MAX, 983] {
        bytes[row + 20..row + 22].copy_from_slice(&rest.to_le_bytes());
        let end = bytes.len() - 8;
        let sum = checksum(&bytes[..end]).to_le_bytes();
        bytes[end..].copy_from_slice(&sum);
        assert!(Head::decode(&bytes).is_err(), "{rest}");
    }
}

/// Regions in the golden directory: the lengths of their names, and their types.
const REGIONS: [(usize, Element); 5] = [
    (1, Element::F64),
    (40, Element::Bool),
    (41, Element::F8E4M3),
    (49, Element::Bytes),
    (1024, Element::F32),
];

fn check(repository: &Repository) {
    for (version, length) in [(1, 48_usize), (2, 480)] {
        let piece = repository.piece(version).unwrap();
        assert_eq!(piece.regions().len(), REGIONS.len());
        for ((bytes, element), info) in REGIONS.into_iter().zip(piece.regions()) {
            assert_eq!(
                (info.name.as_str(), info.element),
                (name_of(bytes).as_str(), element)
            );
            let read = piece.read(&info.name).unwrap();
            assert!(read == bytes_of(version + bytes as u64, length), "{bytes}");
        }
    }
    assert_eq!(repository.scrub(None, &|_, _| {}).unwrap().damage, []);
}

fn save(repository: &Repository) {
    for (version, length) in [(1, 48_usize), (2, 480)] {
        let contents = REGIONS.map(|(bytes, element)| {
            let shape = match element {
                Element::Bytes => vec![],
                _ => vec![length as u64 / element.size()],
            };
            (
                name_of(bytes),
                bytes_of(version + bytes as u64, length),
                element,
                shape,
            )
        });
        let regions = contents
            .each_ref()
            .map(|(name, bytes, element, shape)| Region::new(name, bytes).array(*element, shape));
        let snapshot = Snapshot::new(version, &regions);
        repository.save(&snapshot).unwrap();
    }
}

#[test]
fn long_names_come_back_from_a_directory() {
    let home = tempfile::tempdir().unwrap();
    let repository = Repository::open(home.path(), Options::default()).unwrap();
    save(&repository);
    check(&repository);
    drop(repository);
    check(&Repository::read_only(home.path(), Options::default()).unwrap());
}

/// The directory has the versions that [`save`] wrote when format 4 was new.
#[test]
fn the_golden_directory_is_read() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/names");
    check(&Repository::read_only(golden, Options::default()).unwrap());
}

#[test]
fn names_of_more_than_1024_bytes_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let repository = Repository::open(home.path(), Options::default()).unwrap();
    let name = name_of(1025);
    let regions = [Region::new(&name, b"")];
    let snapshot = Snapshot::new(1, &regions);
    let refused = repository.save(&snapshot);
    assert!(matches!(refused, Err(Error::Argument(_))), "{refused:?}");
}
