//! Tests of the command on the directory of a node that redundancy protects.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod running;

use running::{json, run, text};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tierflow_redundancy::{Directory, Exchange, Member, ParityStore, Pieces, Redundancy, Sets};
use tierflow_store::veloc::{Content, VelocHead, part_of};
use tierflow_store::{Options, Region, Repository, Snapshot};

const PATIENCE: Duration = Duration::from_secs(60);

fn node(home: &Path, rank: u32) -> PathBuf {
    home.join(format!("node{rank}"))
}

/// A version, and the bytes of its only region.
type Saved = (u64, Vec<u8>);

/// Makes two nodes with a rank each, which protect version 3.
fn nodes() -> tempfile::TempDir {
    nodes_with(Path::new(""), |rank| vec![(3, vec![rank as u8; 5000])])
}

/// Makes two nodes with a rank each. Each saves and protects the versions of `saved` in the node's directory `below`.
fn nodes_with(below: &Path, saved: impl Fn(u32) -> Vec<Saved> + Sync) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let member = |rank| Member {
        rank,
        node: format!("node{rank}"),
    };
    let sets = Sets::choose(&[member(0), member(1)], Redundancy::Partner).unwrap();
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (home, set, saved) = (home.path(), sets.of(rank).unwrap(), &saved);
            scope.spawn(move || {
                let node = node(home, rank).join(below);
                std::fs::create_dir_all(&node).unwrap();
                let repository = Repository::open(&node, Options::default().rank(rank, 2)).unwrap();
                let store = ParityStore::of_rank(&node, rank).unwrap();
                let transport = Directory::open(&home.join("shared"), 1, rank).unwrap();
                let exchange = Exchange::new(set, rank, &transport, &store, PATIENCE).unwrap();
                let pieces = Pieces::new(&repository, exchange, &store);
                for (version, bytes) in saved(rank) {
                    let regions = [Region::new("state", &bytes)];
                    let (base, regions) = (None, regions.as_slice());
                    let snapshot = Snapshot {
                        version,
                        base,
                        regions,
                    };
                    repository.save(&snapshot).unwrap();
                    pieces.protect(version).unwrap();
                }
            });
        }
    });
    home
}

/// Returns the two versions of a checkpoint of VELOC's interface: its part and its head.
fn named(version: u64, serial: u64) -> Vec<Saved> {
    let head = VelocHead {
        name: "heat".to_owned(),
        version,
        serial,
        spares: 0,
        parts: vec![Content::Memory(vec![(0, 5000)])],
    };
    vec![
        (part_of(serial, 0), vec![version as u8; 5000]),
        (head.number(), head.encode()),
    ]
}

/// The versions that VELOC's interface wrote on nodes, in the directory that its configuration names.
#[test]
fn checkpoints_on_nodes_are_listed_verified_and_rebuilt_by_their_names() {
    let below = Path::new("tierflow/ranks-2");
    let home = nodes_with(below, |_| [named(40, 0), named(41, 1)].concat());
    let (node0, node1) = (node(home.path(), 0), node(home.path(), 1));
    let (left, into) = (node0.to_str().unwrap(), node1.to_str().unwrap());
    let (code, answer) = json(&["list", left]);
    assert_eq!(code, 0, "{answer}");
    let rows = answer["protected"].as_array().unwrap();
    let rows: Vec<_> = rows
        .iter()
        .map(|row| (&row["name"], &row["version"]))
        .collect();
    let heat = json!("heat");
    assert_eq!(rows, [(&heat, &json!(40)), (&heat, &json!(41))]);
    let (code, answer) = json(&["verify", left, "41", "--name", "heat"]);
    assert_eq!((code, &answer["pieces"]), (0, &json!(2)), "{answer}");
    assert_eq!(json(&["verify", left, "42"]).0, 2);

    std::fs::remove_dir_all(&node1).unwrap();
    let human = run(&["rebuild", left, "--into", into]);
    assert_eq!(
        text(&human.stdout),
        "version 40 of \"heat\" of ranks 0, 1: rebuilt of ranks 1\n\
         version 41 of \"heat\" of ranks 0, 1: rebuilt of ranks 1\n"
    );
    let options = Options::default().rank(1, 2);
    let repository = Repository::read_only(node1.join(below), options).unwrap();
    let piece = repository.own_piece(part_of(1, 0)).unwrap();
    assert_eq!(piece.read("state").unwrap(), vec![41_u8; 5000]);
}

#[test]
fn protected_versions_of_a_node_are_listed_and_verified() {
    let home = nodes();
    let path = node(home.path(), 1);
    let directory = path.to_str().unwrap();
    let (code, answer) = json(&["list", directory]);
    assert_eq!(code, 0, "{answer}");
    let one = &answer["protected"][0];
    assert_eq!((&one["version"], &one["rank"]), (&json!(3), &json!(1)));
    let set = &one["set"];
    assert!(
        set.as_array().unwrap().contains(&json!([0, "node0"])),
        "{set}"
    );
    assert_eq!(one["has_piece"], true);
    let human = text(&run(&["list", directory]).stdout);
    assert!(
        human.contains("0 on node0") && human.contains("here"),
        "{human}"
    );
    let (code, answer) = json(&["verify", directory]);
    assert_eq!((code, &answer["pieces"]), (0, &json!(1)), "{answer}");
    assert_eq!(json(&["verify", directory, "4"]).0, 2);

    let parity = path.join("redundancy/1/00000000000000000003.parity");
    let mut bytes = std::fs::read(&parity).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&parity, bytes).unwrap();
    let (code, answer) = json(&["verify", directory]);
    assert_eq!((code, &answer["wrong_parity"]), (1, &json!([[3, 1]])));
    let human = text(&run(&["verify", directory]).stdout);
    assert!(
        human.contains("the parity that rank 1 stores is not"),
        "{human}"
    );
}

#[test]
fn a_lost_node_is_rebuilt_without_the_application() {
    let home = nodes();
    let (node0, node1) = (node(home.path(), 0), node(home.path(), 1));
    let whole = std::fs::read_dir(node1.join("rank-1")).unwrap().count();
    std::fs::remove_dir_all(&node1).unwrap();
    let left = node0.to_str().unwrap();
    let (code, answer) = json(&["rebuild", left]);
    assert_eq!(code, 2, "{answer}");
    assert!(
        answer
            .as_str()
            .unwrap()
            .contains("ranks 1 have no directory"),
        "{answer}"
    );
    let spare = home.path().join("spare");
    let into = spare.to_str().unwrap();
    let (code, answer) = json(&["rebuild", left, "--into", into]);
    assert_eq!((code, &answer[0]["version"]), (0, &json!(3)), "{answer}");
    assert_eq!(
        (&answer[0]["lost"], &answer[0]["error"]),
        (&json!([1]), &json!(null))
    );
    assert!(whole > 0);
    let options = Options::default().rank(1, 2);
    let repository = Repository::read_only(&spare, options).unwrap();
    let piece = repository.own_piece(3).unwrap();
    assert_eq!(piece.read("state").unwrap(), vec![1_u8; 5000]);
    let (code, answer) = json(&["verify", into]);
    assert_eq!((code, &answer["pieces"]), (0, &json!(1)), "{answer}");
    // After the rebuild nothing is missing, so a second call changes nothing.
    let human = run(&["rebuild", left, into]);
    assert_eq!(
        text(&human.stdout),
        "version 3 of ranks 0, 1: nothing was lost\n"
    );
}

#[test]
fn more_losses_than_the_set_bears_are_said() {
    let home = nodes();
    std::fs::remove_dir_all(node(home.path(), 1)).unwrap();
    let path = node(home.path(), 0);
    for entry in std::fs::read_dir(path.join("rank-0")).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let spare = home.path().join("spare");
    let (left, into) = (path.to_str().unwrap(), spare.to_str().unwrap());
    let (code, answer) = json(&["rebuild", left, "--into", into]);
    assert_eq!(code, 1, "{answer}");
    let error = answer[0]["error"].as_str().unwrap();
    assert!(error.contains("version 3 cannot be rebuilt"), "{error}");
}
