//! Parts of regions, for readers that want rows of an array.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod histories;

use histories::save;
use tierflow_store::{Error, Options, Repository};

const LARGE: usize = 5_000_001;

#[test]
fn parts_of_a_region_come_back_alone() {
    let directory = tempfile::tempdir().unwrap();
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    for (version, length) in [(1, 1000), (2, LARGE)] {
        save(&repository, version, length);
        let piece = repository.piece(version).unwrap();
        let name = piece.regions()[0].name.clone();
        let whole = piece.read(&name).unwrap();
        let (mut end, mut start, mut middle) = (vec![0; 100], vec![0; 7], vec![0; length / 2]);
        let mut parts = [
            ((length - 100) as u64, end.as_mut_slice()),
            (0, start.as_mut_slice()),
            (50, &mut []),
            (11, middle.as_mut_slice()),
        ];
        piece.restore_parts(&name, &mut parts).unwrap();
        assert!(end == whole[length - 100..] && start == whole[..7]);
        assert!(middle == whole[11..11 + length / 2]);
        for (offset, other) in [(3, 0), (length as u64 - 3, 0), (u64::MAX, 0), (0, 9)] {
            let (mut one, mut two) = ([0; 5], [0; 4]);
            let mut parts = [(offset, one.as_mut_slice()), (other + 4, &mut two)];
            let error = piece.restore_parts(&name, &mut parts);
            let fits = offset == 0 && other == 9;
            assert_eq!(matches!(error, Err(Error::Argument(_))), !fits, "{offset}");
        }
    }
}
