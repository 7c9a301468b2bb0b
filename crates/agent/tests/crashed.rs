//! A program is killed, and its agent goes on: the agent brings what the program left, and keeps no route for it.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod homes;

use homes::Home;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use tierflow_agent::Client;
use tierflow_store::{Options, Repository};
use tierflow_testing::{Process, this_test};

const SCRATCH: &str = "TIERFLOW_CRASHED_SCRATCH";
const NEAR: &str = "TIERFLOW_CRASHED_NEAR";
const FAR: &str = "TIERFLOW_CRASHED_FAR";
/// The variable that says how far the program comes: with 0 it has no engine yet, with 1 no checkpoint.
const STEPS: &str = "TIERFLOW_CRASHED_STEPS";

/// The program that is killed. Does nothing without directories, as in an ordinary run of all tests.
#[test]
fn child() {
    let path = |name| std::env::var_os(name).map(PathBuf::from);
    let (Some(scratch), Some(near), Some(far)) = (path(SCRATCH), path(NEAR), path(FAR)) else {
        return;
    };
    let steps: u64 = std::env::var(STEPS).unwrap().parse().unwrap();
    let home = Home::at(scratch, near, far);
    let vault = home.vault(None);
    let engine = (steps > 0).then(|| home.engine(vault.clone()));
    for version in 1..steps {
        home.checkpoint(engine.as_ref().unwrap(), version);
    }
    println!("is there");
    thread::sleep(Duration::from_secs(600));
}

fn versions(directory: &PathBuf) -> Vec<u64> {
    let repository = Repository::read_only(directory, Options::default()).unwrap();
    let versions = repository.versions().unwrap().into_iter();
    versions.map(|info| info.version).collect()
}

#[test]
fn the_route_of_a_program_that_was_killed_ends() {
    for steps in [0, 1, 9] {
        let home = Home::new();
        // The prologue of a job makes this directory.
        std::fs::create_dir(&home.near).unwrap();
        let mut agent = home.agent(&["--exit-when-idle", "1"]);
        let mut child = this_test("child");
        child
            .env(SCRATCH, &home.scratch)
            .env(STEPS, steps.to_string());
        child.env(NEAR, &home.near).env(FAR, &home.far);
        let mut child = Process::start(&mut child, "is there");
        child.report();
        child.kill();
        let routes = || {
            Client::connect(&home.scratch)
                .unwrap()
                .status()
                .unwrap()
                .routes
        };
        home.until(|| routes().is_empty());
        if steps > 0 {
            let brought = home.external();
            assert!(
                versions(&home.near)
                    .iter()
                    .all(|version| brought.contains(version))
            );
            home.check();
        }
        // No route is left, so the agent ends.
        assert!(agent.wait().success());
    }
}
