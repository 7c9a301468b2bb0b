//! A group of engines that keep their versions on their own nodes: what lost nodes had is there when the group starts again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Error as EngineError, Region, RegionMut};
use tierflow_redundancy::{Directory, Error, Member, Protected, Rank, Redundancy, Sets};
use tierflow_store::{Options, Repository};

const RANKS: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(120);

struct Group {
    home: tempfile::TempDir,
    sets: Sets,
    runs: AtomicU64,
}

impl Group {
    fn new(scheme: Redundancy) -> Self {
        let members = (0..RANKS).map(|rank| Member {
            rank,
            node: format!("node{rank}"),
        });
        let members: Vec<Member> = members.collect();
        Self {
            home: tempfile::tempdir().unwrap(),
            sets: Sets::choose(&members, scheme).unwrap(),
            runs: AtomicU64::new(1),
        }
    }

    fn node(&self, rank: u32) -> PathBuf {
        self.home.path().join(format!("node{rank}"))
    }

    fn lose(&self, rank: u32) {
        std::fs::remove_dir_all(self.node(rank)).unwrap();
    }

    fn open(&self, rank: u32, run: u64, patience: Duration) -> (Vec<Error>, Engine) {
        let shared = self.home.path().join("shared");
        let transport = Directory::open(&shared.join("parts"), run, rank).unwrap();
        let of = Rank {
            rank,
            ranks: RANKS,
            run,
        };
        let set = self.sets.of(rank).unwrap().clone();
        let vault =
            Protected::open(&self.node(rank), of, set, Arc::new(transport), patience).unwrap();
        let lost = vault.lost().to_vec();
        let options = Options::default().rank(rank, RANKS);
        let meeting = Repository::open(shared.join("meeting"), options).unwrap();
        let engine = Engine::builder(&open(Choice::Host).unwrap())
            .host_cache(8 << 20)
            .external_vault(Arc::new(vault))
            .group(rank, RANKS, run)
            .collective(Arc::new(meeting))
            .durable_in_order(true)
            .build();
        (lost, engine.unwrap())
    }

    /// One run of the application, of all its ranks.
    fn run<T: Send>(&self, life: impl Fn(u32, &[Error], &Engine) -> T + Sync) -> Vec<T> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let live = |rank: u32| {
                let life = &life;
                scope.spawn(move || {
                    let (lost, engine) = self.open(rank, run, PATIENCE);
                    life(rank, &lost, &engine)
                })
            };
            let lives: Vec<_> = (0..RANKS).map(live).collect();
            lives.into_iter().map(|life| life.join().unwrap()).collect()
        })
    }
}

fn state(rank: u32, version: u64) -> Vec<u8> {
    let bytes = if version % 4 == 3 {
        1_500_000
    } else {
        2_000 + 10 * rank as usize
    };
    (0..bytes)
        .map(|at| (at * 13 + at / 255 + version as usize * 5 + rank as usize) as u8)
        .collect()
}

fn checkpoint(engine: &Engine, rank: u32, version: u64) {
    let state = state(rank, version);
    engine
        .checkpoint(version, &[Region::from(state.as_slice())])
        .unwrap();
}

fn is_there(engine: &Engine, rank: u32, version: u64) -> bool {
    let mut bytes = vec![0; engine.restore_size(version).unwrap() as usize];
    engine
        .restore(version, &mut [RegionMut::from(bytes.as_mut_slice())])
        .unwrap();
    bytes == state(rank, version)
}

#[test]
fn a_group_goes_on_though_nodes_are_lost() {
    for (scheme, lost) in [
        (Redundancy::Partner, &[1][..]),
        (Redundancy::Xor { set: 4 }, &[2]),
        (Redundancy::ReedSolomon { data: 2, parity: 2 }, &[0, 3]),
    ] {
        let group = Group::new(scheme);
        for first in [0_u64, 8] {
            group.run(|rank, gone, engine| {
                assert!(gone.is_empty());
                // What was written before the nodes were lost.
                assert_eq!(engine.latest(None), first.checked_sub(1));
                assert!((0..first).all(|version| is_there(engine, rank, version)));
                (first..first + 8).for_each(|version| checkpoint(engine, rank, version));
                engine.wait().unwrap();
            });
            lost.iter().for_each(|rank| group.lose(*rank));
        }
        group.run(|rank, _, engine| {
            assert_eq!(engine.latest(None), Some(15));
            assert!((0..16).all(|version| is_there(engine, rank, version)));
        });
    }
}

#[test]
fn more_losses_are_told_and_the_group_starts_anew() {
    let group = Group::new(Redundancy::Xor { set: 4 });
    group.run(|rank, _, engine| {
        (0..3).for_each(|version| checkpoint(engine, rank, version));
        engine.wait().unwrap();
    });
    group.lose(0);
    group.lose(1);
    group.run(|rank, lost, engine| {
        assert_eq!(lost.len(), 3);
        assert!(
            lost.iter()
                .all(|error| error.to_string().contains("rank 1 on node1"))
        );
        assert_eq!(engine.latest(None), None);
        checkpoint(engine, rank, 0);
        engine.wait().unwrap();
    });
    group.run(|rank, _, engine| assert!(is_there(engine, rank, 0)));
}

#[test]
fn what_a_rank_does_not_take_is_not_said_to_be_durable() {
    let group = Group::new(Redundancy::Partner);
    let waits = std::sync::Barrier::new(RANKS as usize);
    group.run(|rank, _, engine| {
        // Rank 3's partner takes a version that rank 3 does not.
        let partner = group
            .sets
            .of(3)
            .unwrap()
            .members
            .iter()
            .find(|member| member.rank != 3)
            .unwrap()
            .rank;
        if rank == partner {
            checkpoint(engine, rank, 5);
            let waited = engine.wait_for(Duration::from_millis(300));
            assert!(
                matches!(waited, Err(EngineError::TimedOut { .. })),
                "{waited:?}"
            );
            assert!(!engine.is_durable(5));
        }
        waits.wait();
        if rank != partner {
            checkpoint(engine, rank, 5);
        }
        engine.wait().unwrap();
        assert!(engine.is_durable(5));
    });
}
