//! Directories, agents and engines to test with.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "helpers of tests; each test file uses a part"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierflow_agent::{AgentConnection, AgentVault, Client};
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Group, Region, Tier};
use tierflow_store::{Options, Repository, Snapshot};
use tierflow_testing::Process;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_tierflow-agent");

/// A scratch directory, the directory of a rank on the node (`near`), and one of external storage (`far`).
pub(crate) struct Home {
    _kept: Option<tempfile::TempDir>,
    pub(crate) scratch: PathBuf,
    pub(crate) near: PathBuf,
    pub(crate) far: PathBuf,
}

/// Returns the bytes of a version: every third version is large enough for a file of its own, the others are small.
pub(crate) fn length_of(version: u64) -> usize {
    if version.is_multiple_of(3) {
        1_500_000 + version as usize
    } else {
        3_000 + version as usize
    }
}

pub(crate) fn bytes_of(version: u64, length: usize) -> Vec<u8> {
    let word = |i: u64| {
        (version + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
            ^ (i / 8).wrapping_mul(0xD6E8_FEB8_6659_FD93)
    };
    (0..length as u64)
        .map(|i| (word(i) >> (8 * (i % 8))) as u8)
        .collect()
}

pub(crate) fn save(repository: &Repository, version: u64) {
    let bytes = bytes_of(version, length_of(version));
    let regions = [tierflow_store::Region::new("state", &bytes)];
    let snapshot = Snapshot::new(version, &regions);
    repository.save(&snapshot).unwrap();
}

impl Home {
    pub(crate) fn new() -> Self {
        let kept = tempfile::tempdir().unwrap();
        let path = kept.path().to_owned();
        // Longer than the path of a socket may be.
        let scratch = path.join("s".repeat(120));
        std::fs::create_dir(&scratch).unwrap();
        Self {
            _kept: Some(kept),
            scratch,
            near: path.join("near"),
            far: path.join("far"),
        }
    }

    /// Returns directories that another process made and removes.
    pub(crate) fn at(scratch: PathBuf, near: PathBuf, far: PathBuf) -> Self {
        Self {
            _kept: None,
            scratch,
            near,
            far,
        }
    }

    /// Starts an agent, and waits until it answers or has ended.
    pub(crate) fn agent(&self, arguments: &[&str]) -> Process {
        let mut command = Command::new(PROGRAM);
        let command = command.arg(&self.scratch).args(arguments);
        let mut agent = Process::start(command, "");
        self.until(|| Client::connect(&self.scratch).is_ok() || agent.has_ended());
        agent
    }

    /// Ends an agent once it has brought everything.
    pub(crate) fn stop(&self, agent: &mut Process) {
        Client::connect(&self.scratch).unwrap().stop().unwrap();
        assert!(agent.wait().success());
    }

    pub(crate) fn vault(&self, program: Option<&Path>) -> Arc<AgentVault> {
        let connection = AgentConnection::new(&self.scratch, &self.near, &self.far);
        let connection = match program {
            Some(program) => connection.starting(program),
            None => connection,
        };
        connection.open().unwrap()
    }

    pub(crate) fn engine(&self, vault: Arc<AgentVault>) -> Engine {
        let device = open(Choice::Host).unwrap();
        let builder = Engine::builder(&device).host_cache(16 << 20);
        let builder = builder.node_local(&self.near).tier(Tier::vault(vault));
        builder.build().unwrap()
    }

    /// Returns the engine of one rank of a group whose ranks all run on this node.
    pub(crate) fn rank(&self, rank: u32, ranks: u32, run: u64) -> Engine {
        let connection =
            AgentConnection::new(&self.scratch, &self.near, &self.far).rank(rank, ranks);
        let device = open(Choice::Host).unwrap();
        let builder = Engine::builder(&device).host_cache(16 << 20);
        let builder = builder
            .node_local(&self.near)
            .group(Group::new(rank, ranks, run));
        builder
            .tier(Tier::vault(connection.open().unwrap()))
            .build()
            .unwrap()
    }

    pub(crate) fn local(&self) -> Repository {
        Repository::open(&self.near, Options::default()).unwrap()
    }

    pub(crate) fn checkpoint(&self, engine: &Engine, version: u64) {
        let bytes = bytes_of(version, length_of(version));
        let regions = [Region::from(bytes.as_slice())];
        engine.checkpoint(version, &regions).unwrap();
    }

    /// Returns the versions on external storage.
    pub(crate) fn external(&self) -> Vec<u64> {
        if !self.far.exists() {
            return Vec::new();
        }
        let repository = Repository::read_only(&self.far, Options::default()).unwrap();
        let versions = repository.versions().unwrap();
        versions.into_iter().map(|info| info.version).collect()
    }

    /// Asserts that each version that external storage lists is whole.
    pub(crate) fn check(&self) {
        let repository = Repository::read_only(&self.far, Options::default()).unwrap();
        for info in repository.versions().unwrap() {
            let piece = match repository.piece(info.version) {
                // An agent may be removing this version. Tests ask for the versions that must not be missing by number.
                Err(tierflow_store::Error::NoVersion { .. }) => continue,
                piece => piece.unwrap(),
            };
            let bytes = piece.read(&piece.regions()[0].name).unwrap();
            assert!(
                bytes == bytes_of(info.version, length_of(info.version)),
                "version {} is torn",
                info.version
            );
        }
        assert_eq!(repository.scrub(None, &|_, _| {}).unwrap().damage, []);
    }

    /// Waits until `done` returns true. Panics after two minutes.
    pub(crate) fn until(&self, mut done: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !done() {
            assert!(
                begun.elapsed() < Duration::from_secs(120),
                "it never comes about"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
