//! An application is killed at random instants and goes on at either of two nodes that share external storage, each with an
//! agent that runs or not, is killed too, or brings what is left before the job goes on elsewhere. Every version that was
//! reported durable to the application comes back as it was, at both nodes, even if agents bring older leftovers later.
//!
//! `TIERFLOW_KILLS=200` sets the number of kills; CI runs 12.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod homes;

use homes::Home;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use tierflow_agent::AgentConnection;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Region, RegionMut, Tier};
use tierflow_testing::{Draws, Process, this_test, variable};

const CHILD: &str = "TIERFLOW_NODES_RUN";

/// Returns the bytes that a run writes as a version. All runs write as many bytes for a version.
fn content(run: u64, version: u64) -> Vec<u8> {
    let length = homes::length_of(version);
    homes::bytes_of(run << 32 | version, length)
}

fn engine(home: &Home, limit: u64) -> Engine {
    let vault = AgentConnection::new(&home.scratch, &home.near, &home.far);
    let device = open(Choice::Host).unwrap();
    Engine::builder(&device)
        .host_cache(8 << 20)
        .tier(Tier::node_local(&home.near).limit(limit))
        .tier(Tier::vault(vault.open().unwrap()))
        .build()
        .unwrap()
}

/// The application. Does nothing without the number of its run, as in an ordinary run of all tests.
#[test]
fn child() {
    let Ok(run) = std::env::var(CHILD) else {
        return;
    };
    let run: u64 = run.parse().unwrap();
    let path = |name| PathBuf::from(std::env::var_os(name).unwrap());
    let home = Home::at(
        path("TIERFLOW_NODES_SCRATCH"),
        path("TIERFLOW_NODES_NEAR"),
        path("TIERFLOW_NODES_FAR"),
    );
    let limit = if run % 3 == 1 { 4 << 20 } else { u64::MAX };
    let engine = engine(&home, limit);
    let mut output = std::io::stdout();
    for version in engine.latest(None).map_or(0, |newest| newest + 1).. {
        let bytes = content(run, version);
        let regions = [Region::from(bytes.as_slice())];
        engine.checkpoint(version, &regions).unwrap();
        if version % 4 != 1 && engine.wait().is_ok() {
            // All versions up to this one are durable.
            writeln!(output, "durable {version}").unwrap();
            output.flush().unwrap();
        }
    }
}

fn restored(engine: &Engine, version: u64) -> Vec<u8> {
    let mut bytes = vec![0; engine.restore_size(version).unwrap() as usize];
    let restored = engine.restore(version, &mut [RegionMut::from(bytes.as_mut_slice())]);
    restored.unwrap_or_else(|error| panic!("version {version}: {error}"));
    bytes
}

/// Asserts that each acknowledged version is there as the run that is given for it wrote it.
fn check(home: &Home, acknowledged: &BTreeMap<u64, u64>) {
    let engine = engine(home, u64::MAX);
    for (version, run) in acknowledged.iter().rev().take(30) {
        assert!(
            restored(&engine, *version) == content(*run, *version),
            "version {version} is not run {run}'s"
        );
    }
}

/// A node with its agent, if one runs.
struct Node {
    home: Home,
    agent: Option<Process>,
}

/// Two nodes that share external storage.
fn nodes() -> [Node; 2] {
    let (first, mut second) = (Home::new(), Home::new());
    second.far.clone_from(&first.far);
    [first, second].map(|home| Node { home, agent: None })
}

impl Node {
    /// Lets the job go on at the other node: the agent here is killed, or brings all that is left before it ends.
    fn leave(&mut self, draws: &mut Draws) {
        if let Some(mut agent) = self.agent.take() {
            match draws.below(2) {
                0 => drop(agent.kill()),
                _ => self.home.stop(&mut agent),
            }
        }
    }

    /// Runs the application until it is killed, and perhaps kills the agent with it. Returns the versions that it reported durable.
    fn run(&mut self, run: u64, draws: &mut Draws) -> Vec<u64> {
        if self.agent.is_none() && !draws.once(5) {
            self.agent = Some(self.home.agent(&[]));
        }
        let mut child = this_test("child");
        let child = child
            .env(CHILD, run.to_string())
            .env("TIERFLOW_NODES_SCRATCH", &self.home.scratch)
            .env("TIERFLOW_NODES_NEAR", &self.home.near)
            .env("TIERFLOW_NODES_FAR", &self.home.far);
        let mut child = Process::start(child, "durable ");
        let mut reports = child.live(draws, 5_000..305_000);
        if let Some(mut agent) = self.agent.take_if(|_| draws.once(3)) {
            agent.kill();
            draws.pause(0..60_000);
        }
        reports.extend(child.kill());
        reports.iter().filter_map(|r| r.parse().ok()).collect()
    }
}

#[test]
fn no_kill_and_no_agent_makes_an_acknowledged_version_stale() {
    let kills: u64 = variable("TIERFLOW_KILLS", 12);
    let mut nodes = nodes();
    let mut draws = Draws::fresh();
    let (mut acknowledged, mut all): (BTreeMap<u64, u64>, usize) = (BTreeMap::new(), 0);
    for run in 1..=kills {
        let at = draws.index(2);
        nodes[1 - at].leave(&mut draws);
        let before = acknowledged.last_key_value().map(|(version, _)| *version);
        let reports = nodes[at].run(run, &mut draws);
        if let (Some(oldest), Some(newest)) = (reports.first(), reports.last()) {
            let engine = engine(&nodes[at].home, u64::MAX);
            for version in before.map_or(0, |before| before + 1)..=*newest {
                // Versions older than this run's reports may be leftovers of other runs that nobody had acknowledged. Some of
                // these numbers may be missing.
                let writer = match version < *oldest {
                    true if engine.restore_size(version).is_err() => continue,
                    true => {
                        let bytes = restored(&engine, version);
                        let mut runs = (0..=run).rev();
                        runs.find(|run| bytes == content(*run, version)).unwrap()
                    }
                    false => run,
                };
                acknowledged.insert(version, writer);
            }
        }
        let looks = draws.index(2);
        if looks != at {
            nodes[at].leave(&mut draws);
        }
        check(&nodes[looks].home, &acknowledged);
        if run % 40 == 0 {
            all += acknowledged.len();
            acknowledged.clear();
            nodes = self::nodes();
        }
    }
    all += acknowledged.len();
    println!("{kills} kills, {all} versions acknowledged");
    assert!(all > 0, "nothing was acknowledged before a kill");
}
