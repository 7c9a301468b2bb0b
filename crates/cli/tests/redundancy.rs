//! The command on a node's directory that redundancy protects.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod running;

use running::{json, run, text};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tierflow_redundancy::{Directory, Exchange, Member, ParityStore, Pieces, Redundancy, Sets};
use tierflow_store::{Options, Region, Repository, Snapshot};

const PATIENCE: Duration = Duration::from_secs(60);

fn node(home: &Path, rank: u32) -> PathBuf {
    home.join(format!("node{rank}"))
}

/// Two nodes with a rank each, which protect version 3.
fn nodes() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let member = |rank| Member {
        rank,
        node: format!("node{rank}"),
    };
    let sets = Sets::choose(&[member(0), member(1)], Redundancy::Partner).unwrap();
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (home, set) = (home.path(), sets.of(rank).unwrap());
            scope.spawn(move || {
                let node = node(home, rank);
                std::fs::create_dir_all(&node).unwrap();
                let repository = Repository::open(&node, Options::default().rank(rank, 2)).unwrap();
                let bytes = vec![rank as u8; 5000];
                let regions = [Region::new("state", &bytes)];
                let (version, base, regions) = (3, None, regions.as_slice());
                let snapshot = Snapshot {
                    version,
                    base,
                    regions,
                };
                repository.save(&snapshot).unwrap();
                let store = ParityStore::of_rank(&node, rank).unwrap();
                let transport = Directory::open(&home.join("shared"), 1, rank).unwrap();
                let exchange = Exchange::new(set, rank, &transport, &store, PATIENCE).unwrap();
                let pieces = Pieces::new(&repository, exchange, &store);
                pieces.protect(3).unwrap();
            });
        }
    });
    home
}

#[test]
fn what_a_node_protects_is_listed_and_verified() {
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
    // All is there: nothing more is done.
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
