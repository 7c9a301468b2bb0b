//! Runs MPI programs with MPICH and with Open MPI. Each rank has a directory as its node. The versions of lost nodes are rebuilt.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::process::Command;

use support::{Mpi, home, must, told};

const RANKS: u32 = 4;

fn lose(directory: &Path, nodes: &str) {
    for node in nodes.chars() {
        std::fs::remove_dir_all(directory.join(format!("node-{node}"))).unwrap();
    }
}

#[test]
fn versions_of_lost_nodes_are_rebuilt() {
    let directory = tempfile::tempdir().unwrap();
    for mpi in Mpi::installed() {
        let source = home().join("tests/c/nodes.c");
        let program = mpi.program(&source, &[], directory.path()).unwrap();
        for (scheme, lost) in [("partner", "b"), ("xor:4", "c"), ("rs:2+2", "ad")] {
            for threads in ["single", "multiple"] {
                let own = tempfile::tempdir_in(&directory).unwrap();
                let run = |first: u32, count: &str, nodes: &str, contents: &str| {
                    let first = first.to_string();
                    let arguments = [threads, scheme, &first, count, nodes, contents];
                    let mut command = mpi.run(RANKS, &program);
                    let printed = must(command.arg(own.path()).args(arguments));
                    assert_eq!(printed.matches("passed").count(), 4, "{printed}");
                    printed
                };
                run(0, "4", "abcd", "0");
                lose(own.path(), lost);
                run(4, "4", "abcd", "0");
                // Nodes with other names replace the lost ones.
                lose(own.path(), lost);
                let replaced: String = "abcd"
                    .chars()
                    .map(|node| {
                        if lost.contains(node) {
                            node.to_ascii_uppercase()
                        } else {
                            node
                        }
                    })
                    .collect();
                run(8, "4", &replaced, "0");
                // More nodes are lost than any of the schemes tolerates, so the program takes the first versions again.
                let most: String = replaced.chars().take(3).collect();
                lose(own.path(), &most);
                let printed = run(12, "4", &replaced, "1");
                let told = "told version 11 is lost: rank ";
                assert!(printed.contains(told), "{printed}");
                for node in most.chars().filter(|_| scheme != "partner") {
                    assert!(printed.contains(&format!("on node-{node}")), "{printed}");
                }
                run(4, "4", &replaced, "1");
                if threads == "single" {
                    // MPI has ended before the process ends the engine that it left open. The engine writes its statistics all the same.
                    let statistics = |rank: u32| own.path().join(format!("{rank}.json"));
                    (0..RANKS).for_each(|rank| std::fs::remove_file(statistics(rank)).unwrap());
                    run(8, "0", &replaced, "1");
                    for rank in 0..RANKS {
                        let text = std::fs::read_to_string(statistics(rank)).unwrap();
                        let served = r#"{"call":"restore","value":8}"#;
                        assert!(text.contains(served), "{text}");
                    }
                }
            }
        }
    }
}

/// Returns the command of a program that uses VELOC's API with a scratch directory for each rank.
fn by_veloc(mpi: &Mpi, program: &Path, place: &Path, arguments: &[&str]) -> Command {
    let script = "rank=${PMI_RANK:-$OMPI_COMM_WORLD_RANK}; export VELOC_SCRATCH=$1/node$rank VELOC_FAILURE_DOMAIN=node$rank; \
                  place=$1; shift; exec \"$0\" \"$place/veloc.cfg\" \"$@\"";
    let mut command = mpi.run(RANKS, Path::new("sh"));
    command.arg("-c").arg(script).arg(program).arg(place);
    command.args(arguments);
    command
}

/// Returns the command of the heat equation.
fn heat(mpi: &Mpi, program: &Path, place: &Path, steps: u32) -> Command {
    let steps = steps.to_string();
    by_veloc(mpi, program, place, &["memory", &steps, "5"])
}

fn result(printed: &str) -> &str {
    let mut lines = printed.lines();
    lines.find(|line| line.starts_with("result")).unwrap()
}

#[test]
fn a_program_of_velocs_outlives_a_node() {
    let directory = tempfile::tempdir().unwrap();
    for mpi in Mpi::installed() {
        let program = mpi.example("heat_veloc.c", directory.path()).unwrap();
        let own = tempfile::tempdir_in(&directory).unwrap();
        // Without `persistent`, only the parity (VELOC's erasure coding, `ec_interval`) protects the run from the loss of a node.
        let text = "scratch = /none\nmax_versions = 2\nhost_cache = 16MiB\ngroup_patience = 60\nec_interval = 0\n";
        std::fs::write(own.path().join("veloc.cfg"), text).unwrap();
        let calm = must(&mut heat(&mpi, &program, own.path(), 60));
        assert!(calm.contains("from 0"), "{calm}");
        for rank in 0..RANKS {
            std::fs::remove_dir_all(own.path().join(format!("node{rank}"))).unwrap();
        }
        for (steps, lost) in [(20, 1), (40, 3), (60, 0)] {
            let printed = must(&mut heat(&mpi, &program, own.path(), steps));
            assert!(
                printed.contains(&format!("from {}", steps - 20)),
                "{printed}"
            );
            std::fs::remove_dir_all(own.path().join(format!("node{lost}"))).unwrap();
            if steps == 60 {
                assert_eq!(result(&printed), result(&calm));
            }
        }
    }
}

/// Counts the manifests in a directory, and in those within it.
fn manifests(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).unwrap();
    let counts = entries.map(|entry| {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => manifests(&path),
            false => usize::from(path.extension().is_some_and(|kind| kind == "manifest")),
        }
    });
    counts.sum()
}

#[test]
fn checkpoints_that_velocs_cleanup_removes_are_not_lost() {
    let directory = tempfile::tempdir().unwrap();
    for mpi in Mpi::installed() {
        let source = home().join("tests/c/cleaned.c");
        let program = mpi.program(&source, &[], directory.path()).unwrap();
        // The program that cleans up takes a checkpoint of another name, or none.
        for (arguments, left) in [
            (&["clean", "heat"][..], 0),
            (&["take", "wave", "clean", "heat"], 1),
        ] {
            let own = tempfile::tempdir_in(&directory).unwrap();
            let persistent = own.path().join("persistent");
            let text = format!(
                "scratch = /none\npersistent = {}\nhost_cache = 16MiB\ngroup_patience = 60\nec_interval = 0\n",
                persistent.display()
            );
            std::fs::write(own.path().join("veloc.cfg"), text).unwrap();
            let run = |arguments: &[&str]| {
                let output = by_veloc(&mpi, &program, own.path(), arguments).output();
                let told = told(&output.unwrap());
                assert_eq!(told.matches("passed").count(), RANKS as usize, "{told}");
                told
            };
            let of_ranks = || {
                let nodes = (0..RANKS).map(|rank| own.path().join(format!("node{rank}")));
                nodes.map(|node| manifests(&node)).collect::<Vec<_>>()
            };
            run(&["take", "heat"]);
            let of_one = of_ranks();
            assert!(of_one.iter().all(|count| *count > 0), "{of_one:?}");
            run(arguments);
            let expected: Vec<usize> = of_one.iter().map(|count| count * left).collect();
            assert_eq!(of_ranks(), expected);
            // An operator removes all from persistent storage. If a checkpoint is left, the run would bring it there again.
            if left == 0 {
                std::fs::remove_dir_all(&persistent).unwrap();
                let told = run(&[]);
                assert!(!told.contains("lost"), "{told}");
            }
        }
    }
}
