//! VELOC's client API by groups of processes: see `c/ranks.c`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use support::{build, must, program};

fn run(what: &str, ranks: u32) {
    let directory = tempfile::tempdir().unwrap();
    let built = build("cc", &["-std=gnu99"], "ranks.c", directory.path());
    let ranks = ranks.to_string();
    must(program(&built).arg(directory.path()).args([what, &ranks]));
}

#[test]
fn a_rank_that_comes_late_costs_no_checkpoint() {
    run("late", 3);
}

#[test]
fn nodes_keep_as_many_versions_as_they_are_told() {
    run("kept", 4);
}

#[test]
fn a_rank_opens_few_files_and_directories_however_many_ranks_there_are() {
    run("opened", 8);
    run("opened", 32);
}
