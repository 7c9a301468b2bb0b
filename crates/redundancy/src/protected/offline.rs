//! Rebuilding without the application: threads of one process act as the ranks of a group, over the directories of their nodes.

use super::pending::PendingVersions;
use super::worker::Worker;
use crate::inventory::{Inventory, ToRebuild, leave_out_given_up, lost_sets, to_rebuild};
use crate::parity_store::{PIECES, ranks_in};
use crate::{Error, Lost, ParityStore, Result, Set, Transport};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierflow_store::{Options, Repository};
use tierflow_sync::{Condvar, Mutex};

/// The available directories of a group's nodes, wherever they are mounted.
///
/// No application may use the directories meanwhile.
#[derive(Debug, Clone)]
pub struct NodeDirectories {
    /// The directory of each rank; `None` if no node has one.
    ranks: Vec<Option<PathBuf>>,
}

/// A version that a set protected, after [`NodeDirectories::rebuild`].
#[derive(Debug, Clone)]
pub struct RebuiltVersion {
    /// The version.
    pub version: u64,
    /// The ranks of the set; if whole sets are lost, the lost ranks.
    pub ranks: Vec<u32>,
    /// The members whose piece or parity was lost, and is rebuilt unless there is an `error`.
    pub lost: Vec<Lost>,
    /// The reason why the version cannot be rebuilt; `None` if it is rebuilt.
    pub error: Option<Error>,
}

/// The size of a group in its last run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    /// The last epoch in which pieces were written.
    epoch: u32,
    ranks: u32,
}

/// Returns the least number of ranks that a group has, by the sets in the manifests of one rank.
fn ranks_of_manifests(store: &ParityStore) -> Result<u32> {
    let mut ranks = 0;
    for version in store.versions()? {
        let manifest = store.manifest(version)?;
        let members = manifest.iter().flat_map(|manifest| &manifest.members);
        ranks = members
            .map(|(rank, ..)| rank.saturating_add(1))
            .fold(ranks, u32::max);
    }
    Ok(ranks)
}

/// The most ranks of a group. More of them in a file are not of an application that ran.
const MOST_RANKS: u32 = 1 << 20;
/// Longest wait for a message of another thread.
const PATIENCE: Duration = Duration::from_secs(600);
/// Largest number of messages from one rank to another that are not received yet.
const WINDOW: usize = 32;

impl NodeDirectories {
    /// Finds the ranks that have pieces or parity in these directories. If a rank has several directories, the one counts to which the
    /// rank's last run wrote.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Store`] if a directory cannot be read; [`Error::Io`] also if its files name more than 2^20 ranks.
    pub fn find(nodes: &[impl AsRef<Path>]) -> Result<Self> {
        let mut found: BTreeMap<u32, (u32, PathBuf)> = BTreeMap::new();
        let mut group = Group::default();
        for node in nodes.iter().map(AsRef::as_ref) {
            let mut ranks = ranks_in(node, PIECES)?;
            ranks.extend(ParityStore::ranks(node).unwrap_or_default());
            for rank in ranks {
                let repository =
                    Repository::read_only(node, Options::default().rank(rank, rank + 1));
                let mut last = 0;
                for piece in repository?.own_pieces()? {
                    let epoch = piece.identity.epoch;
                    last = last.max(epoch);
                    group = group.max(Group {
                        epoch,
                        ranks: piece.ranks,
                    });
                }
                if let Some(store) = ParityStore::existing(node, rank)? {
                    group.ranks = group.ranks.max(ranks_of_manifests(&store)?);
                }
                let known = found.get(&rank).map(|(epoch, _)| *epoch);
                if known.is_none_or(|known| known < last) {
                    found.insert(rank, (last, node.to_owned()));
                }
            }
        }
        if group.ranks > MOST_RANKS {
            let ranks = group.ranks;
            let why = format!(
                "a file of a group of {ranks} ranks is there, more than the {MOST_RANKS} that can be rebuilt: remove the files of other applications"
            );
            let why = std::io::Error::new(std::io::ErrorKind::InvalidData, why);
            return Err(Error::io("the nodes' directories")(why));
        }
        let ranks = (0..group.ranks).map(|rank| found.remove(&rank).map(|(_, node)| node));
        Ok(Self {
            ranks: ranks.collect(),
        })
    }

    /// Returns the ranks that have no directory.
    #[must_use]
    pub fn missing(&self) -> Vec<u32> {
        let ranks = (0..).zip(&self.ranks);
        let missing = ranks.filter(|(_, directory)| directory.is_none());
        missing.map(|(rank, _)| rank).collect()
    }

    /// Rebuilds the lost pieces and parity of the versions that were protected, and returns all of these versions. Ranks
    /// [without a directory](Self::missing) get theirs in `spare`, to be mounted in place of a lost node's directory.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Store`] if a directory cannot be read or written, or an application uses it.
    pub fn rebuild(&self, spare: &Path) -> Result<Vec<RebuiltVersion>> {
        std::fs::create_dir_all(spare).map_err(Error::io(spare))?;
        let (mut workers, mut all) = (Vec::new(), Vec::new());
        let count = u32::try_from(self.ranks.len()).unwrap_or(u32::MAX);
        let messages = Arc::new(Messages::default());
        for (rank, directory) in (0..).zip(&self.ranks) {
            let directory = directory.as_deref().unwrap_or(spare);
            let repository = Repository::open(directory, Options::default().rank(rank, count))?;
            let store = ParityStore::of_rank(directory, rank)?;
            let pieces = repository.own_pieces()?;
            let node = directory.display().to_string();
            let elsewhere = BTreeSet::new();
            all.push(Inventory::of(&store, node, &elsewhere, &pieces, count)?);
            workers.push(Worker {
                set: Set {
                    members: Vec::new(),
                    tolerates: 0,
                },
                rank,
                start: 0,
                transport: Arc::new(Threads {
                    rank,
                    messages: Arc::clone(&messages),
                }),
                repository: Arc::new(repository),
                store: Arc::new(store),
                pending: Arc::<PendingVersions>::default(),
                patience: PATIENCE,
            });
        }
        leave_out_given_up(&mut all, 0);
        let wanted = to_rebuild(&all);
        let mut outcome: Vec<RebuiltVersion> = lost_sets(&all)
            .into_iter()
            .map(|(version, ranks)| set_lost(version, ranks))
            .collect();
        let rebuilt = std::thread::scope(|scope| {
            let threads: Vec<_> = workers
                .into_iter()
                .map(|worker| scope.spawn(|| rebuild_as(worker, &wanted)))
                .collect();
            let ended = threads.into_iter().map(|thread| match thread.join() {
                Ok(rebuilt) => rebuilt,
                Err(_panic) => Err(Error::io("a thread")(std::io::Error::other("it panicked"))),
            });
            ended.collect::<Result<Vec<_>>>()
        })?;
        for (at, wanted) in wanted.iter().enumerate() {
            let mut one = RebuiltVersion {
                version: wanted.version,
                ranks: wanted
                    .set
                    .members
                    .iter()
                    .map(|member| member.rank)
                    .collect(),
                lost: Vec::new(),
                error: None,
            };
            for result in rebuilt.iter().filter_map(|rank| rank.get(&at)) {
                match result {
                    Ok(lost) => one.lost.clone_from(lost),
                    Err(error) => one.error = Some(error.clone()),
                }
            }
            outcome.push(one);
        }
        outcome.sort_by_key(|one| one.version);
        Ok(outcome)
    }
}

fn set_lost(version: u64, ranks: Vec<u32>) -> RebuiltVersion {
    let lost: Vec<Lost> = ranks
        .iter()
        .map(|rank| Lost {
            rank: *rank,
            node: "a node that is not there".to_owned(),
        })
        .collect();
    RebuiltVersion {
        version,
        ranks,
        lost: lost.clone(),
        error: Some(Error::SetLost { version, lost }),
    }
}

/// The results of a rank, by the indexes of the versions in the list of versions to rebuild.
type OfRank = BTreeMap<usize, std::result::Result<Vec<Lost>, Error>>;

/// Rebuilds the versions of one rank's sets, as this rank.
fn rebuild_as(mut worker: Worker, wanted: &[ToRebuild]) -> Result<OfRank> {
    let mut results = BTreeMap::new();
    for (at, one) in wanted.iter().enumerate() {
        if one.set.place_of(worker.rank).is_some() {
            let rebuilt = worker.rebuild(one)?;
            results.insert(at, rebuilt.map(|rebuilt| rebuilt.lost));
        }
    }
    Ok(results)
}

/// A rank that sends, and a rank that receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Pair {
    from: u32,
    to: u32,
}

/// Messages between threads.
#[derive(Debug, Default)]
struct Messages {
    sent: Mutex<HashMap<Pair, VecDeque<Vec<u8>>>>,
    changed: Condvar,
}

impl Messages {
    /// Calls `attempt` with the messages of a pair of ranks until `attempt` returns a value, or `patience` is over.
    fn until<T>(
        &self,
        pair: Pair,
        patience: Duration,
        mut attempt: impl FnMut(&mut VecDeque<Vec<u8>>) -> Option<T>,
    ) -> Option<T> {
        let end = Instant::now() + patience;
        let mut sent = self.sent.lock();
        let answer = loop {
            let answer = attempt(sent.entry(pair).or_default());
            if answer.is_some() || Instant::now() >= end {
                break answer;
            }
            self.changed.wait_until(&mut sent, end);
        };
        drop(sent);
        self.changed.notify_all();
        answer
    }
}

/// A thread's side of the messages.
#[derive(Debug)]
struct Threads {
    rank: u32,
    messages: Arc<Messages>,
}

impl Transport for Threads {
    fn send(&self, to: u32, message: &[u8], patience: Duration) -> Result<()> {
        let put = |sent: &mut VecDeque<Vec<u8>>| {
            (sent.len() < WINDOW).then(|| sent.push_back(message.to_vec()))
        };
        let from = self.rank;
        let sent = self.messages.until(Pair { from, to }, patience, put);
        sent.ok_or(Error::Absent { rank: to, patience })
    }

    fn receive(&self, from: u32, patience: Duration) -> Result<Vec<u8>> {
        let to = self.rank;
        let pair = Pair { from, to };
        let received = self.messages.until(pair, patience, VecDeque::pop_front);
        received.ok_or(Error::Absent {
            rank: from,
            patience,
        })
    }

    fn is_parallel(&self) -> bool {
        true
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::{Digest, Manifest};

    #[test]
    fn ranks_that_no_group_has_are_passed_over_or_refused() {
        let home = tempfile::tempdir().unwrap();
        for folder in ["redundancy/4294967295", &format!("{PIECES}4294967295")] {
            std::fs::create_dir_all(home.path().join(folder)).unwrap();
        }
        let found = NodeDirectories::find(&[home.path()]).unwrap();
        assert!(found.ranks.is_empty());
        let store = ParityStore::of_rank(home.path(), 0).unwrap();
        let none = Digest { bytes: 0, hash: 0 };
        for rank in [MOST_RANKS, u32::MAX] {
            let manifest = Manifest {
                version: 1,
                start: 1,
                tolerates: 1,
                nodes: vec!["node".to_owned()],
                members: vec![(rank, none, none)],
            };
            store.put(&manifest).unwrap();
            let refused = NodeDirectories::find(&[home.path()]);
            assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
        }
    }
}
