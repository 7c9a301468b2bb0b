//! `kill -9` ends the program of each door at random instants, over directories, over an object store whose server is killed, too, and over
//! nodes with redundancy, some of which are lost. No version that was reported durable is lost or replaced by another run's.

use super::doors::Door;
use super::draws::{Draws, each_seed, is_over, variable};
use super::s3::{self, Server};
use super::start::{Report, Start, Written};
use super::tally::{Kind, Known, Tally};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Nothing is known to fail.
const KNOWN: Known = &[];

/// Number of kills on the same storage.
const KILLS: u64 = 10;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Storage {
    Directories,
    S3,
    /// Ranks on nodes of their own. A node may be lost.
    Redundancy(u64),
}

struct History {
    seed: u64,
    draws: Draws,
    door: Door,
    storage: Storage,
    home: PathBuf,
    /// The server of an object store, unless `TIERFLOW_S3` names another one.
    server: Option<Server>,
    starts: u64,
    durable: BTreeMap<u64, Vec<Written>>,
}

impl History {
    fn ranks(&self) -> u64 {
        match self.storage {
            Storage::Redundancy(ranks) => ranks,
            _ => 1,
        }
    }

    fn near(&self, rank: u64) -> PathBuf {
        self.home.join(format!("node-{rank}"))
    }

    fn start(&mut self, actions: &[String]) -> Vec<Start> {
        self.starts += 1;
        let has_node =
            self.door == Door::Veloc || self.storage != Storage::S3 || self.seed.is_multiple_of(2);
        let start = |rank| {
            let mut options = vec![format!("run={}", self.ranks() * self.starts + rank)];
            if has_node {
                options.push(format!("node_local={}", self.near(rank).display()));
            }
            match self.storage {
                Storage::Directories => {
                    options.push(format!("external={}", self.home.join("external").display()));
                }
                Storage::S3 => {
                    let bucket = s3::bucket().unwrap_or_else(|| "s3://runs".to_owned());
                    let name = self.home.file_name().unwrap().to_string_lossy();
                    options.push(format!(
                        "external={bucket}/{}-{:?}",
                        name.trim_start_matches('.'),
                        self.door
                    ));
                }
                Storage::Redundancy(ranks) => {
                    let scheme = if ranks == 2 {
                        "partner".to_owned()
                    } else {
                        format!("xor:{ranks}")
                    };
                    let exchange = self.home.join("exchange");
                    options.extend([
                        format!("rank={rank}"),
                        format!("ranks={ranks}"),
                        format!("group={}", self.starts),
                        format!("redundancy={scheme}"),
                        format!("exchange={}", exchange.display()),
                        format!("failure_domain=node-{rank}"),
                    ]);
                }
            }
            let mut command = self.door.command(&options, actions);
            command.envs(self.server.iter().flat_map(Server::environment));
            Start::of(command)
        };
        (0..self.ranks()).map(start).collect()
    }

    /// Kills all ranks, and sometimes the server of an object store before them or with them.
    fn kill(&mut self, tally: &Tally, place: &str) {
        let actions = [format!("loop:{}", self.draws.below(1 << 40))];
        let mut running = self.start(&actions);
        // The kill comes after a number of reports, however fast the machine is, or during the start.
        let (early, most) = match self.storage {
            // A start takes longer than a version.
            Storage::Redundancy(_) => (12, 150),
            _ => (4, 30),
        };
        let (lines, longest) = if self.draws.once(early) {
            (0, 100_000)
        } else {
            (1 + self.draws.below(most), 20_000)
        };
        running.iter_mut().for_each(|rank| rank.await_lines(lines));
        std::thread::sleep(Duration::from_micros(self.draws.below(longest)));
        let server = self.draws.below(3);
        if let (1 | 2, Some(of)) = (server, &mut self.server) {
            assert!(of.kill(), "the S3 server ended by itself");
            std::thread::sleep(Duration::from_micros(self.draws.below(longest)));
            if server == 2 {
                // The programs continue.
                of.restart();
                let more = self.draws.below(20);
                running.iter_mut().for_each(|rank| rank.await_lines(more));
            }
        }
        if running.iter_mut().any(Start::has_ended) {
            let errors: Vec<Report> = running.into_iter().map(Start::kill).collect();
            tally.found(
                place,
                Kind::Crashed,
                self.seed,
                format!("start {}: {errors:?}", self.starts),
            );
            return;
        }
        let reports: Vec<Report> = running.into_iter().map(Start::kill).collect();
        for (version, size) in &reports[0].took {
            self.durable.remove(version);
            if reports
                .iter()
                .all(|report| report.durable.contains(version))
            {
                let run = |rank| self.ranks() * self.starts + rank;
                let written = (0..self.ranks()).map(|rank| Written {
                    run: run(rank),
                    size: *size,
                });
                self.durable.insert(*version, written.collect());
            }
        }
        let took = reports.iter().map(|report| report.took.len()).sum();
        let durable = reports.iter().map(|report| report.durable.len()).sum();
        tally.count(place, took, durable);
        tally.count_kill();
        if self.draws.once(4) && (self.storage != Storage::S3 || self.seed.is_multiple_of(2)) {
            let rank = self.draws.below(self.ranks());
            let _not_there_yet = std::fs::remove_dir_all(self.near(rank));
        }
    }

    fn check(&mut self, tally: &Tally, place: &str) {
        if let Some(server) = &mut self.server {
            server.restart();
        }
        let asked: Vec<u64> = self.durable.keys().rev().take(20).copied().collect();
        let mut actions: Vec<String> = asked.iter().map(|version| format!("r:{version}")).collect();
        actions.push("close".to_owned());
        let running = self.start(&actions);
        let reports: Vec<Report> = running.into_iter().map(Start::end).collect();
        for version in asked {
            let written = self.durable[&version].clone();
            for (report, written) in reports.iter().zip(&written) {
                let (kind, text) = match report.whole.get(&version) {
                    Some(is) if is == written => continue,
                    Some(is) => (Kind::Stale, format!("{version} is {is:?}, not {written:?}")),
                    None => {
                        let why = report.missing.get(&version);
                        (
                            Kind::Lost,
                            format!("{version} of {written:?}: {why:?} {}", report.errors),
                        )
                    }
                };
                tally.found(
                    place,
                    kind,
                    self.seed,
                    format!("start {}: {text}", self.starts),
                );
                self.durable.remove(&version);
            }
        }
    }
}

/// Kills each door `kills` times over each storage.
fn campaign(name: &'static str, cases: &[(Door, Storage)], kills: u64) {
    let tally = Tally::of(name);
    each_seed(kills.div_ceil(KILLS), cases, |seed, (door, storage)| {
        let place = format!("{door:?}, {storage:?}");
        let home = tempfile::tempdir().unwrap();
        let own = storage == Storage::S3 && s3::bucket().is_none();
        let server = own.then(|| Server::start(&home.path().join("s3"), 0));
        let mut history = History {
            seed,
            draws: Draws(seed),
            door,
            storage,
            home: home.path().to_owned(),
            server: server.flatten(),
            starts: 0,
            durable: BTreeMap::new(),
        };
        for _ in 0..KILLS.min(kills) {
            if !is_over() {
                history.kill(&tally, &place);
                history.check(&tally, &place);
            }
        }
        tally.count_history();
    });
    tally.end(KNOWN);
}

fn on(storage: Storage, doors: &[Door]) -> Vec<(Door, Storage)> {
    doors.iter().map(|door| (*door, storage)).collect()
}

#[test]
fn no_kill_loses_a_durable_version_of_directories() {
    let cases = on(Storage::Directories, &Door::runnable());
    campaign("kills, directories", &cases, variable("TIERFLOW_KILLS", 5));
}

#[test]
fn no_kill_loses_a_durable_version_of_an_object_store() {
    if s3::bucket().is_none() && s3::shared().is_none() {
        return;
    }
    let cases = on(Storage::S3, &Door::runnable());
    campaign("kills, object store", &cases, variable("TIERFLOW_KILLS", 5));
}

/// The doors C and VELOC have groups by MPI alone. The tests `mpi` and `nodes` of the C crate kill these, and lose their nodes.
#[test]
fn no_kill_and_no_lost_node_loses_versions_that_nodes_protect() {
    let mut doors = Door::runnable();
    doors.retain(|door| [Door::Rust, Door::Python].contains(door));
    let cases = [2, 3].map(|ranks| on(Storage::Redundancy(ranks), &doors));
    let kills: u64 = variable("TIERFLOW_KILLS", 4);
    campaign("kills, redundancy", &cases.concat(), kills / 2);
}
