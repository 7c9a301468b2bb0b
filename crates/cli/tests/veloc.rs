//! Checkpoints of VELOC's interface, by the names that the application gave them.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod running;

use running::{json, run, text};
use serde_json::{Value, json as value};
use std::path::Path;
use tierflow_store::veloc::{Content, VelocHead, part_of};
use tierflow_store::{Options, Region, Repository, Snapshot};

const LARGE: u64 = 2_000_000;

fn save(repository: &Repository, version: u64, bytes: &[u8]) {
    let regions = [Region::new("checkpoint", bytes)];
    let snapshot = Snapshot::new(version, &regions);
    repository.save(&snapshot).unwrap();
}

/// Returns the bytes of a region of a version.
fn bytes_of(version: u64, id: u64, length: u64) -> Vec<u8> {
    vec![(16 * version + id) as u8; length as usize]
}

/// Saves a checkpoint as `VELOC_Checkpoint` does: two regions of memory, a file, then the head.
fn checkpoint(repository: &Repository, name: &str, version: u64, serial: u64) {
    let memory = [bytes_of(version, 1, 24), bytes_of(version, 7, LARGE)].concat();
    save(repository, part_of(serial, 0), &memory);
    save(repository, part_of(serial, 1), &bytes_of(version, 9, 100));
    let head = VelocHead {
        name: name.to_owned(),
        version,
        serial,
        spares: 0,
        parts: vec![
            Content::Memory(vec![(1, 24), (7, LARGE)]),
            Content::File(100),
        ],
    };
    save(repository, head.number(), &head.encode());
}

/// Makes a scratch directory with versions 1 to 4 of "heat", one of "flow", and one that was not ended.
fn scratch() -> (tempfile::TempDir, String) {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("tierflow/here");
    std::fs::create_dir_all(&path).unwrap();
    let repository = Repository::open(&path, Options::default()).unwrap();
    for version in 1..=4 {
        checkpoint(&repository, "heat", version, version);
    }
    checkpoint(&repository, "flow", 10, 5);
    save(&repository, part_of(6, 0), b"not ended");
    let root = scratch.path().to_str().unwrap().to_owned();
    (scratch, root)
}

/// Returns the names and versions that the command lists.
fn listed(path: &str) -> Vec<(String, u64)> {
    let (code, answer) = json(&["list", path]);
    assert_eq!(code, 0, "{answer}");
    let rows = answer["checkpoints"].as_array().unwrap().iter();
    rows.map(|row| {
        let name = row["name"].as_str().unwrap().to_owned();
        (name, row["version"].as_u64().unwrap())
    })
    .collect()
}

/// Asserts that a version comes back with all that was protected.
fn comes_back(root: &str, name: &str, version: u64) {
    let to = tempfile::tempdir().unwrap();
    let folder = to.path().to_str().unwrap();
    let number = version.to_string();
    let (code, answer) = json(&[
        "export", root, &number, "--name", name, "--to", folder, "--format", "raw",
    ]);
    assert_eq!(code, 0, "{answer}");
    let read = |file: &str| std::fs::read(to.path().join(file)).unwrap();
    assert!(read("region-1.raw") == bytes_of(version, 1, 24));
    assert!(read("region-7.raw") == bytes_of(version, 7, LARGE));
    let file = format!("{name}-0-{version}.dat.raw");
    assert!(read(&file) == bytes_of(version, 9, 100));
}

fn own(names: &[(&str, u64)]) -> Vec<(String, u64)> {
    let names = names.iter();
    names
        .map(|(name, version)| ((*name).to_owned(), *version))
        .collect()
}

#[test]
fn checkpoints_are_listed_by_their_names_from_the_scratch_directory() {
    let (_scratch, root) = scratch();
    let all = [
        ("flow", 10),
        ("heat", 1),
        ("heat", 2),
        ("heat", 3),
        ("heat", 4),
    ];
    assert_eq!(listed(&root), own(&all));
    let (_, answer) = json(&["list", &root]);
    assert_eq!(answer["checkpoints"][1]["bytes"], Value::from(LARGE + 124));
    assert_eq!(answer["versions"].as_array().unwrap().len(), 1);
    let said = text(&run(&["list", &root]).stdout);
    assert!(
        said.contains("heat") && said.contains("1 part(s) of checkpoints that were not ended"),
        "{said}"
    );
    let (code, answer) = json(&["show", &root, "3", "--name", "heat"]);
    assert_eq!((code, &answer["name"]), (0, &value!("heat")), "{answer}");
    let regions = answer["pieces"][0]["regions"].as_array().unwrap();
    let names: Vec<_> = regions
        .iter()
        .map(|region| region["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["region-1", "region-7", "heat-0-3.dat"]);
    let output = run(&["show", &root]);
    assert!(
        text(&output.stderr).contains("choose one by --name: flow, heat"),
        "{output:?}"
    );
    let output = run(&["show", &root, "7", "--name", "heat"]);
    assert!(
        text(&output.stderr).contains("no whole version 7 of \"heat\", but 1, 2, 3, 4"),
        "{output:?}"
    );
    assert_eq!(
        json(&["verify", &root, "3", "--name", "heat"]).1["pieces"],
        Value::from(3)
    );
}

#[test]
fn a_name_alone_is_copied_without_the_others() {
    let (scratch, root) = scratch();
    let to = scratch.path().join("copy");
    let to = to.to_str().unwrap();
    let (code, error) = json(&["copy", &root, to, "--name", "none"]);
    assert_eq!(code, 2, "{error}");
    let (code, answer) = json(&["copy", &root, to, "--name", "flow"]);
    assert_eq!(code, 0, "{answer}");
    assert_eq!(listed(to), own(&[("flow", 10)]));
}

#[test]
fn the_newest_of_each_name_stays_and_comes_back() {
    let (_scratch, root) = scratch();
    let gone = value!([1, 2, 3].map(|version| value!({"name": "heat", "version": version})));
    for dry in [true, false] {
        let arguments = ["prune", &root, "--keep", "1", "--dry-run"];
        let (code, answer) = json(&arguments[..4 + usize::from(dry)]);
        assert_eq!((code, &answer["checkpoints"]), (0, &gone), "{answer}");
        assert_eq!(listed(&root).len(), if dry { 5 } else { 2 });
    }
    comes_back(&root, "heat", 4);
    comes_back(&root, "flow", 10);
    assert_eq!(json(&["verify", &root]).0, 0);
    let output = run(&["remove", &root, "4", "--name", "heat"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(listed(&root), own(&[("flow", 10)]));
    // The part of a checkpoint that was not ended does not count as the last checkpoint.
    let last = ["remove", &root, "10", "--name", "flow"];
    let output = run(&last);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("--force"), "{output:?}");
    assert_eq!(listed(&root), own(&[("flow", 10)]));
    assert_eq!(json(&[&last[..], &["--force"]].concat()).0, 0);
}

#[test]
fn a_checkpoint_with_a_damaged_part_is_not_the_one_that_stays() {
    let (scratch, root) = scratch();
    let rank = scratch.path().join("tierflow/here/rank-0");
    let newest = rank.join(format!("v{:020}.tfc", part_of(4, 0)));
    let mut bytes = std::fs::read(&newest).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&newest, bytes).unwrap();
    let (code, answer) = json(&["prune", &root, "--keep", "1"]);
    assert_eq!(code, 0, "{answer}");
    assert_eq!(
        listed(&root),
        own(&[("flow", 10), ("heat", 3), ("heat", 4)])
    );
    comes_back(&root, "heat", 3);
}

#[test]
fn nothing_is_given_up_where_no_head_can_be_read() {
    let scratch = tempfile::tempdir().unwrap();
    let repository = Repository::open(scratch.path(), Options::default()).unwrap();
    // Heads in files of their own, as heads of very many regions have.
    let mut numbers = Vec::new();
    for serial in 0..2 {
        save(&repository, part_of(serial, 0), b"state");
        let head = VelocHead {
            name: "heat".to_owned(),
            version: serial,
            serial,
            spares: 0,
            parts: vec![Content::Memory(vec![(1, 0); 200_000])],
        };
        save(&repository, head.number(), &head.encode());
        numbers.push(head.number());
    }
    drop(repository);
    for number in numbers {
        let path = scratch.path().join(format!("rank-0/v{number:020}.tfc"));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[8192] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let output = run(&["prune", scratch.path().to_str().unwrap(), "--keep", "1"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let left = Repository::read_only(scratch.path(), Options::default()).unwrap();
    assert_eq!(left.versions().unwrap().len(), 4);
}

#[test]
fn a_program_that_went_back_leaves_what_it_wrote_after() {
    let scratch = tempfile::tempdir().unwrap();
    let repository = Repository::open(scratch.path(), Options::default()).unwrap();
    for (serial, version) in [1, 2, 3, 2].into_iter().enumerate() {
        checkpoint(&repository, "heat", version, serial as u64);
    }
    drop(repository);
    let path = scratch.path().to_str().unwrap();
    assert_eq!(listed(path), own(&[("heat", 1), ("heat", 2)]));
}

#[test]
fn of_several_repositories_below_a_path_none_is_chosen() {
    let scratch = tempfile::tempdir().unwrap();
    let home = scratch.path().join("tierflow");
    for rank in ["id-0", "id-1"] {
        std::fs::create_dir_all(home.join(rank)).unwrap();
        let repository = Repository::open(home.join(rank), Options::default()).unwrap();
        checkpoint(&repository, "heat", 1, 1);
    }
    let root = scratch.path().to_str().unwrap();
    let (code, answer) = json(&["list", root]);
    assert_eq!((code, answer.as_array().unwrap().len()), (0, 2), "{answer}");
    for arguments in [
        &["show", root][..],
        &["prune", root, "--keep", "1"],
        &["verify", root],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains("id-0") && said.contains("id-1"), "{said}");
    }
    assert!(Path::new(root).join("tierflow/id-0/rank-0").exists());
}
