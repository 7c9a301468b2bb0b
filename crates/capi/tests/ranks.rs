//! Runs VELOC's client API in groups of processes (see `c/ranks.c`), and the listing of the paper that introduced VELOC's prefetches.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use support::{Mpi, build, home, must, program};

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
fn a_group_of_another_size_is_told_what_it_does_not_use() {
    run("resized", 3);
}

#[test]
fn losses_beyond_the_code_are_said_by_name_or_refused() {
    run("lost", 4);
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

/// Returns the listing with launches of kernels as a compiler for CUDA lowers them.
fn lowered(listing: &str) -> String {
    let line = |line: &str| match (line.split_once("<<<"), line.split_once(">>>")) {
        (Some((kernel, _)), Some((before, arguments))) => {
            let launched = before.split_once("<<<").unwrap().1;
            let name = kernel.trim_start();
            let indent = &kernel[..kernel.len() - name.len()];
            format!("{indent}launch({name}, {launched}){arguments}\n")
        }
        _ => format!("{line}\n"),
    };
    listing.lines().map(line).collect()
}

#[test]
fn listing_1_of_hpdc_23_runs_as_it_is_printed() {
    let directory = tempfile::tempdir().unwrap();
    let listing = std::fs::read_to_string(home().join("tests/c/listing1.txt")).unwrap();
    std::fs::write(directory.path().join("listing1.lowered"), lowered(&listing)).unwrap();
    for mpi in Mpi::installed() {
        let source = home().join("tests/c/listing1.cpp");
        let include = directory.path().display().to_string();
        let options = ["-I", &include, "-Wall", "-Wextra"];
        let program = mpi.program(&source, &options, directory.path()).unwrap();
        for more in ["", "compress = f32\n", "hints = reverse\nhost_cache = 0\n"] {
            let own = tempfile::tempdir_in(&directory).unwrap();
            let configuration = own.path().join("config");
            let place = own.path().display();
            let text =
                format!("scratch = {place}/scratch\npersistent = {place}/persistent\n{more}");
            std::fs::write(&configuration, text).unwrap();
            let printed = must(mpi.run(2, &program).arg(&configuration));
            assert_eq!(printed.matches("passed").count(), 2, "{printed}");
        }
    }
}
