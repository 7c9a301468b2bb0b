//! The command, and a directory to run it on.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "helpers of tests; each test file uses a part"
)]

use serde_json::Value;
use std::process::{Command, Output};
use tierflow_store::container::Element;
use tierflow_store::{Options, Region, Repository, Snapshot};

/// Runs the command.
pub(crate) fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tierflow"))
        .args(arguments)
        .output()
        .unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs with `--json`, and returns the exit code and the answer.
pub(crate) fn json(arguments: &[&str]) -> (i32, Value) {
    let output = run(&[&["--json"], arguments].concat());
    let answer = serde_json::from_slice(&output.stdout);
    (
        output.status.code().unwrap(),
        answer.unwrap_or_else(|_| Value::from(text(&output.stderr))),
    )
}

pub(crate) fn values() -> Vec<u8> {
    (0..6)
        .flat_map(|value: u32| (value as f32).to_le_bytes())
        .collect()
}

pub(crate) fn repository() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let repository = Repository::open(&path, Options::default()).unwrap();
    let (grid, large) = (values(), vec![7; 2_000_000]);
    for version in 1..=6 {
        let regions = [
            Region::new("grid", &grid).array(Element::F32, &[2, 3]),
            Region::new("large", &large),
        ];
        let regions = if version == 6 {
            &regions[..]
        } else {
            &regions[..1]
        };
        repository.save(&Snapshot::new(version, regions)).unwrap();
    }
    (directory, path.to_str().unwrap().to_owned())
}
