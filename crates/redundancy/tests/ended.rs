//! A rank ends while a version is protected. The version before stays protected, and at the restart all ranks agree about the version that
//! was under way.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tierflow_redundancy::{
    Directory, Error, Exchange, Member, ParityStore, Part, Redundancy, Result, Set, Sets, Transport,
};
use tierflow_testing::as_ranks;

const PATIENCE: Duration = Duration::from_secs(120);
const RANKS: u32 = 3;

/// The transport of a rank that ends after a number of messages that it sent or received.
#[derive(Debug)]
struct Ending {
    inner: Directory,
    left: AtomicU64,
}

impl Ending {
    fn step(&self) -> Result<()> {
        let left = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            });
        let ended = Error::Absent {
            rank: u32::MAX,
            patience: Duration::ZERO,
        };
        left.map(drop).map_err(|_| ended)
    }
}

impl Transport for Ending {
    fn send(&self, to: u32, message: &[u8], patience: Duration) -> Result<()> {
        self.step()?;
        self.inner.send(to, message, patience)
    }

    fn receive(&self, from: u32, patience: Duration) -> Result<Vec<u8>> {
        self.step()?;
        self.inner.receive(from, patience)
    }
}

fn part(rank: u32, version: u64) -> Vec<u8> {
    (0..700 + 90 * rank as usize)
        .map(|at| (at * 3 + version as usize * 11 + rank as usize) as u8)
        .collect()
}

struct Group {
    home: PathBuf,
    set: Set,
    /// Number of all messages of rank 1.
    messages: AtomicU64,
}

impl Group {
    fn path(&self, rank: u32, version: u64) -> PathBuf {
        self.home.join(format!("node{rank}/part{version}"))
    }

    /// Runs a body as all ranks. Rank 1 ends after the given number of messages, and the others wait for it for the given time.
    fn live<T: Send>(
        &self,
        session: u64,
        messages: u64,
        patience: Duration,
        call: impl Fn(u32, &Exchange<'_>) -> Result<T> + Sync,
    ) -> Vec<Result<T>> {
        as_ranks(RANKS, |rank| {
            let store = ParityStore::open(&self.home.join(format!("node{rank}"))).unwrap();
            let transport = Ending {
                inner: Directory::open(&self.home.join("shared"), session, rank).unwrap(),
                left: AtomicU64::new(if rank == 1 { messages } else { u64::MAX }),
            };
            let exchange = Exchange::new(&self.set, rank, &transport, &store, patience)?;
            let result = call(rank, &exchange);
            if rank == 1 {
                let left = transport.left.load(Ordering::Relaxed);
                self.messages.fetch_add(messages - left, Ordering::Relaxed);
            }
            result
        })
    }

    fn protect(
        &self,
        session: u64,
        version: u64,
        messages: u64,
        patience: Duration,
    ) -> Vec<Result<()>> {
        self.live(session, messages, patience, |rank, exchange| {
            std::fs::write(self.path(rank, version), part(rank, version)).unwrap();
            exchange.protect(version, &part(rank, version)).map(drop)
        })
    }

    fn rebuild(&self, session: u64, version: u64) -> Vec<Result<()>> {
        self.live(session, u64::MAX, PATIENCE, |rank, exchange| {
            let path = self.path(rank, version);
            let own = std::fs::read(&path).ok();
            let own = own.as_ref().map(|own| own as &dyn Part);
            exchange.rebuild(version, own, &path)?;
            assert_eq!(std::fs::read(&path).unwrap(), part(rank, version));
            Ok(())
        })
    }
}

fn group(home: &Path) -> Group {
    let members = (0..RANKS).map(|rank| Member {
        rank,
        node: format!("node{rank}"),
    });
    let members: Vec<Member> = members.collect();
    let sets = Sets::choose(&members, Redundancy::Xor { set: 3 }).unwrap();
    Group {
        home: home.to_owned(),
        set: sets.of(0).unwrap().clone(),
        messages: AtomicU64::new(0),
    }
}

#[test]
fn a_protected_version_stays_protected() {
    let home = tempfile::tempdir().unwrap();
    let whole = group(home.path());
    for protected in whole.protect(1, 1, u64::MAX, PATIENCE) {
        protected.unwrap();
    }
    // Rank 1 ends after each message of a version once.
    let all = whole.messages.load(Ordering::Relaxed);
    assert!(all > 10, "{all}");
    for messages in 0..all {
        let home = tempfile::tempdir().unwrap();
        let group = group(home.path());
        for protected in group.protect(1, 1, u64::MAX, PATIENCE) {
            protected.unwrap();
        }
        // The other ranks get the messages that rank 1 still sent, and then none.
        let protected = group.protect(2, 2, messages, Duration::from_millis(200));
        assert!(protected.iter().any(Result::is_err));
        // The node of rank 1 is lost, too.
        std::fs::remove_dir_all(home.path().join("node1")).unwrap();
        for rebuilt in group.rebuild(3, 1) {
            rebuilt.unwrap();
        }
        let newer = group.rebuild(4, 2);
        let rebuilt = newer.iter().filter(|rebuilt| rebuilt.is_ok()).count();
        assert!(
            rebuilt == 0 || rebuilt == RANKS as usize,
            "after {messages} messages: {newer:?}"
        );
        // If some rank was told that the version is protected, it must be rebuilt.
        assert!(rebuilt > 0 || protected.iter().all(Result::is_err));
    }
}

#[test]
fn a_member_that_cannot_store_the_manifest_keeps_nobody_waiting() {
    let home = tempfile::tempdir().unwrap();
    let group = group(home.path());
    let manifest = "node1/00000000000000000001.manifest/in the way";
    std::fs::create_dir_all(home.path().join(manifest)).unwrap();
    let protected = group.protect(1, 1, u64::MAX, Duration::from_secs(20));
    assert!(
        matches!(
            protected[..],
            [Ok(()), Err(Error::Unstored { rank: 1, .. }), Ok(())]
        ),
        "{protected:?}"
    );
}
