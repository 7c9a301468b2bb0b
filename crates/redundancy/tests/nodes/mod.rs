//! A group of engines whose ranks are threads and whose nodes are directories.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test uses some of it, and fails by panicking"
)]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, EngineBuilder, Region, RegionMut, Tier};
use tierflow_redundancy::{Directory, Redundancy, Result, Transport};
use tierflow_testing::as_ranks;

pub(crate) const RANKS: u32 = 4;
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A transport for the application's threads alone, like an MPI without `MPI_THREAD_MULTIPLE`.
#[derive(Debug)]
struct OneThread(Directory, std::thread::ThreadId);

impl OneThread {
    fn check(&self) -> &Directory {
        assert_eq!(std::thread::current().id(), self.1);
        &self.0
    }
}

impl Transport for OneThread {
    fn send(&self, to: u32, message: &[u8], patience: Duration) -> Result<()> {
        self.check().send(to, message, patience)
    }

    fn receive(&self, from: u32, patience: Duration) -> Result<Vec<u8>> {
        self.check().receive(from, patience)
    }

    fn is_concurrent(&self) -> bool {
        false
    }
}

/// A transport that panics once its flag is set.
#[derive(Debug)]
struct Panicking(Directory, Arc<AtomicBool>);

impl Panicking {
    fn check(&self) -> &Directory {
        assert!(!self.1.load(Ordering::Relaxed), "no messages today");
        &self.0
    }
}

impl Transport for Panicking {
    fn send(&self, to: u32, message: &[u8], patience: Duration) -> Result<()> {
        self.check().send(to, message, patience)
    }

    fn receive(&self, from: u32, patience: Duration) -> Result<Vec<u8>> {
        self.check().receive(from, patience)
    }
}

pub(crate) struct Group {
    pub(crate) ranks: u32,
    pub(crate) home: tempfile::TempDir,
    pub(crate) scheme: Redundancy,
    /// The host of each rank, which is the name of its node.
    pub(crate) hosts: Mutex<Vec<String>>,
    pub(crate) has_external: bool,
    /// Limit of a node's directory in bytes.
    pub(crate) node_limit: Option<u64>,
    pub(crate) is_driven: bool,
    /// True if concurrent transports panic.
    pub(crate) panics: Arc<AtomicBool>,
    /// True if the builder refuses a start at which versions are lost.
    pub(crate) refuses: bool,
    pub(crate) runs: AtomicU64,
}

impl Group {
    pub(crate) fn new(scheme: Redundancy) -> Self {
        Self::of(RANKS, scheme)
    }

    pub(crate) fn of(ranks: u32, scheme: Redundancy) -> Self {
        let hosts = (0..ranks).map(|rank| format!("node{rank}")).collect();
        Self {
            ranks,
            home: tempfile::tempdir().unwrap(),
            scheme,
            hosts: Mutex::new(hosts),
            has_external: false,
            node_limit: None,
            is_driven: false,
            panics: Arc::default(),
            refuses: false,
            runs: AtomicU64::new(1),
        }
    }

    pub(crate) fn host(&self, rank: u32) -> String {
        self.hosts.lock().unwrap()[rank as usize].clone()
    }

    pub(crate) fn node(&self, rank: u32) -> PathBuf {
        self.home.path().join(self.host(rank))
    }

    pub(crate) fn lose(&self, rank: u32) {
        std::fs::remove_dir_all(self.node(rank)).unwrap();
    }

    /// Removes a rank's node, and puts one of another name in its place.
    pub(crate) fn replace(&self, rank: u32, by: &str) {
        self.lose(rank);
        self.hosts.lock().unwrap()[rank as usize] = by.to_owned();
    }

    pub(crate) fn builder(&self, rank: u32, run: u64) -> EngineBuilder {
        let directory = Directory::open(&self.home.path().join("shared"), run, rank).unwrap();
        let transport: Arc<dyn Transport> = match self.is_driven {
            true => Arc::new(OneThread(directory, std::thread::current().id())),
            false => Arc::new(Panicking(directory, Arc::clone(&self.panics))),
        };
        let group = tierflow_engine::Group::new(rank, self.ranks, run)
            .patience(PATIENCE)
            .refuse_losses(self.refuses);
        let node = Tier::node_local(self.node(rank));
        let node = self.node_limit.into_iter().fold(node, Tier::limit);
        let mut builder = Engine::builder(&open(Choice::Host).unwrap())
            .host_cache(8 << 20)
            .tier(node)
            .group(group)
            .redundancy(self.scheme.over(transport).failure_domain(self.host(rank)))
            .durable_in_order(true);
        if self.has_external {
            builder = builder.external(self.home.path().join("external"));
        }
        builder
    }

    pub(crate) fn open(&self, rank: u32, run: u64) -> Engine {
        self.builder(rank, run).build().unwrap()
    }

    /// Takes a node's mount away. Files that are made under its path then are not on the node.
    pub(crate) fn unmount(&self, node: &str) {
        let path = self.home.path();
        // The node may not have been used yet.
        std::fs::create_dir_all(path.join(node)).unwrap();
        std::fs::rename(path.join(node), path.join(format!("{node}.away"))).unwrap();
    }

    /// Brings a node's mount back.
    pub(crate) fn mount(&self, node: &str) {
        let path = self.home.path();
        // The mount hides all files that were made under its path.
        let _there_is_none = std::fs::remove_dir_all(path.join(node));
        std::fs::rename(path.join(format!("{node}.away")), path.join(node)).unwrap();
    }

    /// Sets the hosts of the ranks in their order.
    pub(crate) fn place(&self, hosts: &[impl AsRef<str>]) {
        let hosts = hosts.iter().map(|host| host.as_ref().to_owned());
        *self.hosts.lock().unwrap() = hosts.collect();
    }

    /// Runs the application once, with all its ranks.
    pub(crate) fn run<T: Send>(&self, body: impl Fn(u32, &Engine) -> T + Sync) -> Vec<T> {
        self.threads(|rank, run| body(rank, &self.open(rank, run)))
    }

    /// Runs the group until its engines are built, or failed to be built. Returns the outcome of each rank.
    pub(crate) fn try_run(&self) -> Vec<tierflow_engine::Result<()>> {
        self.threads(|rank, run| self.builder(rank, run).build().map(drop))
    }

    /// Runs the application once, with a thread for each rank.
    pub(crate) fn threads<T: Send>(&self, body: impl Fn(u32, u64) -> T + Sync) -> Vec<T> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        as_ranks(self.ranks, |rank| body(rank, run))
    }
}

pub(crate) fn state(rank: u32, version: u64) -> Vec<u8> {
    let bytes = if version % 4 == 3 {
        1_500_000
    } else {
        2_000 + 10 * rank as usize
    };
    (0..bytes)
        .map(|at| (at * 13 + at / 255 + version as usize * 5 + rank as usize) as u8)
        .collect()
}

pub(crate) fn checkpoint(engine: &Engine, rank: u32, version: u64) {
    let state = state(rank, version);
    engine
        .checkpoint(version, &[Region::from(state.as_slice())])
        .unwrap();
}

pub(crate) fn is_there(engine: &Engine, rank: u32, version: u64) -> bool {
    let mut bytes = vec![0; engine.restore_size(version).unwrap() as usize];
    engine
        .restore(version, &mut [RegionMut::from(bytes.as_mut_slice())])
        .unwrap();
    bytes == state(rank, version)
}
