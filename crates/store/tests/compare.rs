//! Tests of comparisons of pieces and arrays.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod histories;

use histories::path_of;
use proptest::prelude::*;
use tempfile::TempDir;
use tierflow_store::container::Element;
use tierflow_store::{Comparison, Error, Options, Piece, Region, Repository, Snapshot};
use tierflow_testing::assert_matches;

/// A history of one version, number 1.
struct Saved {
    directory: TempDir,
    repository: Repository,
}

impl Saved {
    fn of(regions: &[Region<'_>]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let repository = Repository::open(directory.path(), Options::default()).unwrap();
        let snapshot = Snapshot::new(1, regions);
        repository.save(&snapshot).unwrap();
        Self {
            directory,
            repository,
        }
    }

    fn piece(&self) -> Piece {
        self.repository.piece(1).unwrap()
    }
}

/// Returns the distance of two elements of any type. The code is independent of the library's.
fn distance(element: Element, a: &[u8], b: &[u8]) -> f64 {
    let float = |bytes: &[u8]| match bytes.len() {
        4 => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
        _ => f64::from_le_bytes(bytes.try_into().unwrap()),
    };
    let floats = |a: &[u8], b: &[u8]| match (float(a), float(b)) {
        (a, b) if a == b || a.is_nan() && b.is_nan() => 0.0,
        (a, b) if a.is_nan() || b.is_nan() => f64::INFINITY,
        (a, b) => (a - b).abs(),
    };
    let whole = |bytes: &[u8], signed: bool| {
        let negative = signed && bytes[bytes.len() - 1] >= 0x80;
        let mut wide = [if negative { 0xff } else { 0 }; 16];
        wide[..bytes.len()].copy_from_slice(bytes);
        i128::from_le_bytes(wide)
    };
    let half = a.len() / 2;
    match element {
        Element::F32 | Element::F64 => floats(a, b),
        Element::C64 | Element::C128 => {
            floats(&a[..half], &b[..half]).max(floats(&a[half..], &b[half..]))
        }
        Element::I8 | Element::I16 | Element::I32 | Element::I64 => {
            whole(a, true).abs_diff(whole(b, true)) as f64
        }
        _ => whole(a, false).abs_diff(whole(b, false)) as f64,
    }
}

const ELEMENTS: &[Element] = &[
    Element::Bytes,
    Element::U8,
    Element::U16,
    Element::U32,
    Element::U64,
    Element::I8,
    Element::I16,
    Element::I32,
    Element::I64,
    Element::F32,
    Element::F64,
    Element::C64,
    Element::C128,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The library finds the differences that an independent comparison of elements finds, and no others.
    #[test]
    fn differences_are_found_and_nothing_else(
        element in proptest::sample::select(ELEMENTS),
        before in 0_usize..3000,
        count in 1_u64..400_000,
        seed in any::<u64>(),
        planted in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        within in prop_oneof![Just(None), Just(Some(0.0)), (0.0..1e3).prop_map(Some)],
    ) {
        let size = element.size() as usize;
        let count = count / element.size() + 1;
        let mut random = seed | 1;
        let a: Vec<u8> = std::iter::repeat_with(|| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random as u8
        })
        .take(count as usize * size)
        .collect();
        let mut b = a.clone();
        for (index, value) in planted {
            let at = index.index(b.len());
            b[at] ^= value;
        }
        // A region in front moves the compared region within its blocks, in both pieces or in one.
        let (front, other_front) = (vec![1; before], vec![1; before * (seed as usize % 2)]);
        let shape = [count];
        let array = |bytes| match element {
            Element::Bytes => Region::new("array", bytes),
            _ => Region::new("array", bytes).array(element, &shape),
        };
        let left = Saved::of(&[Region::new("front", &front), array(&a)]);
        let right = Saved::of(&[Region::new("front", &other_front), array(&b)]);
        let found = left.piece().compare(&right.piece(), Some("array"), within).unwrap();

        let pairs = a.chunks(size).zip(b.chunks(size));
        let apart: Vec<(u64, f64)> = (0..)
            .zip(pairs)
            .filter(|(_, (a, b))| a != b)
            .map(|(index, (a, b))| (index, distance(element, a, b)))
            .filter(|(_, distance)| within.is_none_or(|within| *distance > within))
            .collect();
        prop_assert!(found.unlike.is_empty());
        let found = found.regions.first().map(|region| region.difference);
        prop_assert_eq!(found.is_some(), !apart.is_empty());
        if let Some(found) = found {
            let largest = apart.iter().map(|(_, distance)| *distance).fold(0.0, f64::max);
            let largest_at = apart.iter().find(|(_, distance)| *distance == largest);
            prop_assert_eq!(found.first, apart[0].0);
            prop_assert_eq!(found.count, apart.len() as u64);
            prop_assert_eq!(found.largest, largest);
            prop_assert_eq!(found.largest_at, largest_at.unwrap().0);
        }
    }
}

#[test]
fn equal_blocks_are_not_read() {
    let mut values = vec![0.5_f32; 8 << 20];
    let bytes = |values: &[f32]| {
        values
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let shape = [values.len() as u64];
    let array = bytes(&values);
    let left = Saved::of(&[Region::new("wave", &array).array(Element::F32, &shape)]);
    values[7_000_000] += 0.25;
    let array = bytes(&values);
    let right = Saved::of(&[Region::new("wave", &array).array(Element::F32, &shape)]);
    // An equal block is damaged in both pieces. The comparison does not notice, as it does not read equal blocks.
    for saved in [&left, &right] {
        let path = path_of(saved.directory.path(), 1);
        let mut file = std::fs::read(&path).unwrap();
        file[3 << 20] ^= 1;
        std::fs::write(path, file).unwrap();
    }
    let found = left.piece().compare(&right.piece(), None, None).unwrap();
    let [region] = &found.regions[..] else {
        panic!("{found:?}");
    };
    assert_eq!(region.region.name, "wave");
    let difference = region.difference;
    assert_eq!(
        (difference.first, difference.count, difference.largest),
        (7_000_000, 1, 0.25)
    );
    assert!(found.bytes_read <= 4 << 20, "{}", found.bytes_read);
    assert!(
        left.piece()
            .compare(&right.piece(), None, Some(0.25))
            .unwrap()
            .is_none()
    );
    assert_matches!(left.piece().read("wave"), Err(Error::Damaged { .. }));
}

#[test]
fn regions_that_are_not_alike_are_named() {
    let bytes = [0; 24];
    let left = Saved::of(&[
        Region::new("both", &bytes),
        Region::new("shape", &bytes).array(Element::F32, &[2, 3]),
        Region::new("left", &bytes),
    ]);
    let right = Saved::of(&[
        Region::new("right", &bytes),
        Region::new("shape", &bytes).array(Element::F32, &[3, 2]),
        Region::new("both", &bytes),
    ]);
    let found = left.piece().compare(&right.piece(), None, None).unwrap();
    assert!(found.regions.is_empty());
    assert_eq!(found.unlike, ["shape", "left", "right"]);
    for (region, within) in [(Some("nowhere"), None), (None, Some(-1.0))] {
        let refused = left.piece().compare(&right.piece(), region, within);
        assert!(matches!(refused, Err(Error::Argument(_))));
    }
}

#[test]
fn a_tolerance_takes_no_bits_for_values() {
    let of = |values: [f64; 5]| values.map(f64::to_le_bytes).concat();
    let a = of([0.0, f64::NAN, f64::INFINITY, 1.0, f64::NAN]);
    let b = of([-0.0, -f64::NAN, f64::INFINITY, f64::INFINITY, 1.0]);
    let differs = |within| {
        let mut comparison = Comparison::new(Element::F64, within).unwrap();
        comparison.add(0, &a, &b);
        comparison.difference().unwrap()
    };
    let exact = differs(None);
    assert_eq!(
        (exact.first, exact.count, exact.largest),
        (0, 4, f64::INFINITY)
    );
    let near = differs(Some(1e300));
    assert_eq!((near.first, near.count, near.largest_at), (3, 2, 3));
    for within in [-1.0, f64::NAN] {
        assert!(Comparison::new(Element::F64, Some(within)).is_err());
    }
}
