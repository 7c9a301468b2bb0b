//! The documentation of the container is complete: a Python reader that was written from it reads versions of this library.
//!
//! The test fails if there is no `python3`, unless `TIERFLOW_WITHOUT_PYTHON=1` is set.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod histories;

use histories::{bytes_of, path_of, save};
use std::path::Path;
use std::process::{Command, Output};
use tierflow_store::container::{Element, RegionInfo};
use tierflow_store::{Options, Region, Repository, Snapshot};

const READER: &str = include_str!("../../../docs/read_checkpoint.py");
const LARGE: usize = 1_500_000;

fn read(file: &Path, arguments: &[&str]) -> Output {
    let output = Command::new("python3")
        .args(["-c", READER])
        .arg(file)
        .args(arguments)
        .output();
    assert!(
        output.is_ok(),
        "python3 cannot be run ({output:?}): install it, or set TIERFLOW_WITHOUT_PYTHON=1"
    );
    output.unwrap()
}

#[test]
fn sixty_lines_of_python_read_a_checkpoint() {
    assert!(READER.lines().count() <= 60);
    if std::env::var_os("TIERFLOW_WITHOUT_PYTHON").is_some() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    let lengths = [(1, 0), (2, 300), (3, 70_000), (4, LARGE)];
    for (version, length) in lengths {
        save(&repository, version, length);
    }
    let parts = [RegionInfo {
        name: "grid".to_owned(),
        offset: 0,
        length: 800,
        element: Element::F64,
        shape: vec![100],
    }];
    let encoded = Region::new("difference", b"short");
    let encoded = encoded.array(Element::Encoded, &[800]);
    let snapshot = Snapshot {
        version: 5,
        base: None,
        regions: &[encoded.decoded_to(&parts)],
    };
    repository.save(&snapshot).unwrap();
    let long = "module.".repeat(14);
    let regions = [Region::new(&long, b"long"), Region::new("end", b"end")];
    let snapshot = Snapshot {
        version: 6,
        base: None,
        regions: &regions,
    };
    repository.save(&snapshot).unwrap();
    drop(repository);

    let segment = directory.path().join("rank-0/s00000000000000000001.tfs");
    let large = path_of(directory.path(), 4);
    let listed = read(&segment, &[]);
    assert!(listed.status.success(), "{listed:?}");
    let expected =
        format!("1 state 0\n2 state 300\n3 state 70000\n5 difference 5\n6 {long} 4\n6 end 3\n");
    assert_eq!(String::from_utf8(listed.stdout).unwrap(), expected);
    for (version, length) in lengths {
        let file = if length == LARGE { &large } else { &segment };
        let output = read(file, &[&version.to_string(), "state"]);
        assert!(output.status.success(), "{output:?}");
        assert!(
            output.stdout == bytes_of(version, length),
            "version {version}"
        );
    }

    let missing = read(&segment, &["9", "state"]);
    assert!(
        !missing.status.success() && missing.stdout.is_empty(),
        "{missing:?}"
    );

    let whole = std::fs::read(&large).unwrap();
    for at in [20, 50, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        std::fs::write(&large, bytes).unwrap();
        assert!(!read(&large, &[]).status.success(), "byte {at}");
    }
}
