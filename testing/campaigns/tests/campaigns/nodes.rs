//! Histories of one or two ranks on two nodes that share external storage: with limits, differences, full disks, directories that are not
//! named or cannot be listed, lost nodes, and ranks that change places. No version that was reported durable is lost, and no start removes or
//! changes files.

use super::doors::Door;
use super::draws::{Draws, each_seed, is_over, variable};
use super::start::{Report, Start, Written};
use super::tally::{Kind, Known, Tally};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Nothing is known to fail.
const KNOWN: Known = &[];

/// The state of the external directory and of the node's directory at a start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    Plain,
    /// The option of external storage is forgotten.
    NoExternal,
    NoNode,
    /// The path of external storage is no directory, so it cannot be listed.
    Unlisted,
    /// Every write of the process fails as on a full disk.
    Full,
}

struct History<'a> {
    seed: u64,
    draws: Draws,
    home: PathBuf,
    ranks: u64,
    limited: bool,
    differences: bool,
    starts: u64,
    /// The versions that were reported durable to all ranks, as each rank wrote them.
    durable: BTreeMap<u64, Vec<Written>>,
    tally: &'a Tally,
}

/// Adds the files of versions below a directory to `found`, by their paths.
fn files(of: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(of).into_iter().flatten().flatten() {
        let path = entry.path();
        let ending = path.extension().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            files(&path, found);
        } else if ["tfc", "tfs", "open"].contains(&&*ending) {
            // An open segment has reserved bytes at its end.
            let mut bytes = std::fs::read(&path).unwrap();
            bytes.truncate(
                bytes
                    .iter()
                    .rposition(|byte| *byte != 0)
                    .map_or(0, |at| at + 1),
            );
            if !bytes.is_empty() {
                found.insert(path, bytes);
            }
        }
    }
}

impl<'a> History<'a> {
    fn of(seed: u64, home: &Path, tally: &'a Tally) -> Self {
        let mut draws = Draws(seed);
        let ranks = 1 + draws.below(4) / 3;
        std::fs::create_dir(home.join("external")).unwrap();
        Self {
            seed,
            ranks,
            limited: draws.once(2),
            // Groups store whole versions.
            differences: ranks == 1 && draws.once(2),
            draws,
            home: home.to_owned(),
            starts: 0,
            durable: BTreeMap::new(),
            tally,
        }
    }

    fn near(&self, node: u64) -> PathBuf {
        self.home.join(format!("node-{node}"))
    }

    fn far(&self) -> PathBuf {
        self.home.join("external")
    }

    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        files(&self.home, &mut found);
        found
    }

    /// Starts all ranks with the same actions: the first one on this node, and the second on the other or the same node.
    fn start(&mut self, place: Place, node: u64, actions: &[String]) -> Vec<Report> {
        self.starts += 1;
        // The ranks share a node, or have one each, in either order.
        let apart = self.draws.below(2);
        if place == Place::Unlisted {
            std::fs::rename(self.far(), self.home.join("away")).unwrap();
            std::fs::write(self.far(), "no directory").unwrap();
        }
        let running: Vec<Start> = (0..self.ranks)
            .map(|rank| {
                let mut options = vec![format!("run={}", 2 * self.starts + rank)];
                if place != Place::NoNode {
                    let node = self.near((node + apart * rank) % 2);
                    options.push(format!("node_local={}", node.display()));
                }
                if place != Place::NoExternal {
                    options.push(format!("external={}", self.far().display()));
                }
                if self.ranks > 1 {
                    let group = [
                        ("rank", rank),
                        ("ranks", self.ranks),
                        ("group", self.starts),
                    ];
                    options.extend(group.map(|(key, value)| format!("{key}={value}")));
                }
                let limit = if self.differences { 6_000_000 } else { 600_000 };
                for (is, option) in [
                    (self.limited, &*format!("node_local_limit={limit}")),
                    (self.differences, "dedup=256"),
                    (place == Place::Full, "full=1"),
                ] {
                    options.extend(is.then(|| option.to_owned()));
                }
                Start::of(Door::Rust.command(&options, actions))
            })
            .collect();
        let reports: Vec<Report> = running.into_iter().map(Start::end).collect();
        if place == Place::Unlisted {
            std::fs::remove_file(self.far()).unwrap();
            std::fs::rename(self.home.join("away"), self.far()).unwrap();
        }
        for report in &reports {
            if report.hung {
                self.found(Kind::Hung, place, format!("{actions:?}: {}", report.errors));
            }
            if report.signal().is_some_and(|signal| signal != 9) {
                self.found(
                    Kind::Crashed,
                    place,
                    format!("{:?} {}", report.status, report.errors),
                );
            }
        }
        reports
    }

    fn place(&self, place: Place) -> String {
        let more = match (self.limited, self.differences) {
            (false, false) => "",
            (true, false) => ", limit",
            (false, true) => ", differences",
            (true, true) => ", limit and differences",
        };
        format!("{place:?}, {} ranks{more}", self.ranks)
    }

    fn found(&self, kind: Kind, place: Place, text: String) {
        let text = format!("start {}: {text}", self.starts);
        self.tally.found(&self.place(place), kind, self.seed, text);
    }

    /// Runs starts that continue the history.
    fn work(&mut self) {
        let place = match self.draws.below(10) {
            0 if self.starts > 0 => Place::Unlisted,
            1 => Place::Full,
            _ => Place::Plain,
        };
        // A difference takes an eighth of its version.
        let times = if self.differences { 8 * 8 } else { 8 };
        let mut actions = vec!["c:4000".to_owned()];
        for _ in 0..5 + self.draws.below(16) {
            actions.push(match self.draws.below(16) {
                0..6 => format!("c:{}", times * (300 + self.draws.below(5_000))),
                6..9 => format!("c:{}", times * (1_000 + self.draws.below(80_000))),
                // If the disk is full, or external storage is away, the wait fails.
                9..12 => "w".to_owned(),
                12..14 => "W".to_owned(),
                14 if place == Place::Full => "full:0".to_owned(),
                _ => format!("p:{}", self.draws.below(40)),
            });
        }
        let end = *self
            .draws
            .one_of(&["close", "return", "kill", "kill", "exit"]);
        actions.push(end.to_owned());
        if end == "kill" {
            self.tally.count_kill();
        }
        let node = self.draws.below(2);
        let mut reports = self.start(place, node, &actions);
        for report in reports.iter_mut().filter(|report| report.closed) {
            report.durable.extend(report.took.keys());
        }
        let run = self.starts;
        for (version, size) in &reports[0].took {
            self.durable.remove(version);
            if reports
                .iter()
                .all(|report| report.durable.contains(version))
            {
                let written = |rank| Written {
                    run: 2 * run + rank,
                    size: *size,
                };
                let written = (0..self.ranks).map(written).collect();
                self.durable.insert(*version, written);
            }
        }
        let took = reports.iter().map(|report| report.took.len()).sum();
        let durable = reports.iter().map(|report| report.durable.len()).sum();
        self.tally.count(&self.place(place), took, durable);
    }

    /// Runs starts that read and write nothing.
    fn look(&mut self) {
        let places = [
            Place::NoExternal,
            Place::NoExternal,
            Place::NoNode,
            Place::Unlisted,
            Place::Full,
            Place::Plain,
        ];
        let place = *self.draws.one_of(&places);
        let versions = self.durable.keys().rev().take(3);
        let mut actions: Vec<String> = versions.map(|version| format!("r:{version}")).collect();
        actions.push(self.draws.one_of(&["close", "return", "kill"]).to_string());
        let node = self.draws.below(2);
        self.unchanged(place, node, &actions);
    }

    /// Runs a start. Asserts that it leaves all files as they are.
    fn unchanged(&mut self, place: Place, node: u64, actions: &[String]) -> Vec<Report> {
        let before = self.files();
        let reports = self.start(place, node, actions);
        let mut after = self.files();
        for (path, bytes) in before {
            // A segment that was left open may have been closed.
            let closed = after.remove(&path.with_extension("tfs"));
            let is_there = after.remove(&path).or(closed);
            let name = path.strip_prefix(&self.home).unwrap().display();
            let what = match is_there {
                Some(now) if now == bytes => continue,
                Some(now) if now.len() > bytes.len() && now.starts_with(&bytes) => continue,
                Some(now) => format!("{name} changed, {} to {} bytes", bytes.len(), now.len()),
                None => format!("{name} is gone, {} bytes", bytes.len()),
            };
            self.found(
                Kind::Deleted,
                place,
                format!("node {node}: {what}; {actions:?}"),
            );
        }
        self.tally.count(&self.place(place), 0, 0);
        reports
    }

    /// Starts on any node with all directories in place. Asserts that all durable versions are there.
    fn check(&mut self) {
        let versions = self.durable.keys().rev().take(40);
        let mut actions: Vec<String> = versions.map(|version| format!("r:{version}")).collect();
        let asked = actions.len();
        actions.push("close".to_owned());
        let node = self.draws.below(2);
        let reports = self.unchanged(Place::Plain, node, &actions);
        let checked: Vec<_> = self
            .durable
            .iter()
            .rev()
            .take(asked)
            .map(|(v, w)| (*v, w.clone()))
            .collect();
        for (version, written) in checked {
            for (report, written) in reports.iter().zip(&written) {
                let what = match report.whole.get(&version) {
                    Some(is) if is == written => continue,
                    Some(is) => (Kind::Stale, format!("{version} is {is:?}, not {written:?}")),
                    None => (
                        Kind::Lost,
                        format!(
                            "{version} of {written:?}: {:?} {}",
                            report.missing.get(&version),
                            report.errors
                        ),
                    ),
                };
                self.found(what.0, Place::Plain, what.1);
                self.durable.remove(&version);
            }
        }
    }
}

/// A node has differences whose base is on external storage alone. Then a start forgets the option of external storage.
fn forgotten(tally: &Tally) {
    let home = tempfile::tempdir().unwrap();
    let mut history = History::of(0, home.path(), tally);
    (history.ranks, history.limited, history.differences) = (1, true, true);
    for count in [24, 3] {
        let mut actions = vec!["c:3000000".to_owned(); count];
        actions.extend(["W".to_owned(), "close".to_owned()]);
        history.start(Place::Plain, 0, &actions);
    }
    history.unchanged(Place::NoExternal, 0, &["return".to_owned()]);
}

#[test]
fn no_start_loses_or_removes_a_version_whatever_is_missing() {
    let tally = Tally::of("nodes");
    forgotten(&tally);
    each_seed(variable("TIERFLOW_HISTORIES", 12), &[()], |seed, ()| {
        let home = tempfile::tempdir().unwrap();
        let mut history = History::of(seed, home.path(), &tally);
        history.work();
        for _ in 0..2 + history.draws.below(4) {
            match history.draws.below(8) {
                0..4 => history.work(),
                4 => {
                    let lost = history.draws.below(2);
                    let node = history.near(lost);
                    let _not_there_yet = std::fs::remove_dir_all(node);
                }
                _ => history.look(),
            }
            history.check();
            if is_over() {
                break;
            }
        }
        tally.count_history();
    });
    tally.end(KNOWN);
}
