//! An application and its agent are killed at random instants, again and again on the same directories: the one, the other,
//! or both. Every version that was reported durable comes back bit for bit from external storage alone, and every version
//! that is listed there is whole.
//!
//! `TIERFLOW_KILLS=200` sets the number of kills; CI runs 12.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod homes;

use homes::Home;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use tierflow_agent::AgentConnection;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Region, RegionMut, Retention, Tier};
use tierflow_store::{Options, Repository};
use tierflow_testing::{Draws, Process, this_test, variable};

const CHILD: &str = "TIERFLOW_KILLS_SCRATCH";
/// Versions that the application keeps. The newest of the versions that were reported durable must be on external storage.
const NEWEST: usize = 12;

/// The application. Does nothing without directories, as in an ordinary run of all tests.
#[test]
fn child() {
    let Some(scratch) = std::env::var_os(CHILD).map(PathBuf::from) else {
        return;
    };
    let near = PathBuf::from(std::env::var_os("TIERFLOW_KILLS_NEAR").unwrap());
    let far = PathBuf::from(std::env::var_os("TIERFLOW_KILLS_FAR").unwrap());
    let vault = AgentConnection::new(&scratch, &near, &far).open().unwrap();
    let device = open(Choice::Host).unwrap();
    let engine = Engine::builder(&device)
        .host_cache(8 << 20)
        .node_local(&near)
        .tier(Tier::vault(vault))
        .retention(Retention::newest(NEWEST))
        .build()
        .unwrap();
    let newest = engine.latest(None);
    if let Some(newest) = newest {
        let mut bytes = vec![0; engine.restore_size(newest).unwrap() as usize];
        let mut regions = [RegionMut::from(bytes.as_mut_slice())];
        engine.restore(newest, &mut regions).unwrap();
        assert!(bytes == homes::bytes_of(newest, homes::length_of(newest)));
    }
    let mut output = std::io::stdout();
    for version in newest.map_or(0, |newest| newest + 1).. {
        let bytes = homes::bytes_of(version, homes::length_of(version));
        engine
            .checkpoint(version, &[Region::from(bytes.as_slice())])
            .unwrap();
        // The application does not wait for every fourth version.
        if version % 4 != 1 && engine.wait().is_ok() {
            writeln!(output, "durable {version}").unwrap();
            output.flush().unwrap();
        }
    }
}

/// Runs the application until it is killed, and kills the agent on the way if `agent` is given. Returns the versions that
/// were reported durable.
fn killed(home: &Home, draws: &mut Draws, agent: Option<&mut Process>) -> BTreeSet<u64> {
    let mut child = this_test("child");
    let child = child
        .env(CHILD, &home.scratch)
        .env("TIERFLOW_KILLS_NEAR", &home.near)
        .env("TIERFLOW_KILLS_FAR", &home.far);
    let mut child = Process::start(child, "durable ");
    let mut reports = child.live(draws, 2_000..402_000);
    if let Some(agent) = agent {
        agent.kill();
        draws.pause(0..60_000);
    }
    reports.extend(child.kill());
    // The kill may cut off the last report.
    reports.iter().filter_map(|r| r.parse().ok()).collect()
}

#[test]
fn no_kill_loses_or_tears_what_was_durable() {
    let kills: u64 = variable("TIERFLOW_KILLS", 12);
    let home = Home::new();
    let mut draws = Draws::fresh();
    let mut reported = BTreeSet::new();
    let (mut of_application, mut of_agent) = (0, 0);
    let mut agent = None;
    while of_application + of_agent < kills {
        // In some rounds no agent runs, in others the agent of the round before goes on.
        if agent.is_none() && !draws.once(5) {
            agent = Some(home.agent(&[]));
        }
        let kill_agent = draws.once(2);
        let killed_agent = agent.as_mut().filter(|_| kill_agent);
        of_agent += u64::from(killed_agent.is_some());
        of_application += 1;
        reported.extend(killed(&home, &mut draws, killed_agent));
        if kill_agent {
            agent = None;
        }
        check(&home, &reported);
        if agent.is_none() {
            // The next process that opens external storage must find the same.
            drop(Repository::open(&home.far, Options::default()).unwrap());
            check(&home, &reported);
        }
    }
    println!(
        "{of_application} kills of the application, {of_agent} of the agent, {} versions reported durable",
        reported.len()
    );
    assert!(!reported.is_empty(), "nothing was reported before a kill");
}

fn check(home: &Home, reported: &BTreeSet<u64>) {
    if !home.far.exists() {
        assert!(reported.is_empty());
        return;
    }
    home.check();
    let listed = home.external();
    // Newer versions may have pushed some of these out: the application or the agent was still at work.
    let newest = listed.last().copied().unwrap_or_default();
    for version in reported.iter().rev().take(NEWEST) {
        let kept = version + NEWEST as u64 > newest;
        assert!(
            listed.contains(version) || !kept,
            "version {version} was reported and is lost: {listed:?}"
        );
    }
}
