//! All ranks of a group continue from the same version: the newest that every rank can restore, whatever single ranks have left.

#![allow(clippy::unwrap_used, clippy::panic)]

mod groups;
mod history;
mod home;

use groups::{InMemory, Member, together};
use history::restored;
use home::{Home, home};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tierflow_device::{Choice, open};
use tierflow_engine::{BuildError, Engine, EngineBuilder, Error, Group, Region, Tier};
use tierflow_store::{Collective, Error as StoreError, Faults, Options, Repository, Retention};
use tierflow_testing::assert_matches;

fn content(run: u64, rank: u32, version: u64) -> Vec<u8> {
    let word = run << 48 | u64::from(rank) << 32 | version;
    let length = if version % 5 == 4 { 1_200_000 } else { 3_000 };
    word.to_le_bytes()
        .into_iter()
        .cycle()
        .take(length)
        .collect()
}

fn checkpoint(engine: &Engine, run: u64, rank: u32, version: u64) {
    history::checkpoint(engine, version, &content(run, rank, version));
}

/// Returns the builder of a rank on one of the nodes of `home`.
fn builder(home: &Home, node: &str, rank: u32, ranks: u32, run: u64) -> EngineBuilder {
    let device = open(Choice::Host).unwrap();
    let near = home.near.with_extension(format!("{node}-{rank}"));
    let builder = Engine::builder(&device)
        .host_cache(8 << 20)
        .node_local(near);
    builder
        .external(&home.far)
        .group(Group::new(rank, ranks, run))
}

fn group(home: &Home, node: &str, ranks: u32, run: u64) -> Vec<Engine> {
    together(ranks, |rank| {
        builder(home, node, rank, ranks, run).build().unwrap()
    })
}

/// Lets each rank write the versions from `first` up to its own end.
fn write(engines: &[Engine], run: u64, first: u64, ends: &[u64]) {
    for ((rank, engine), end) in (0..).zip(engines).zip(ends) {
        (first..*end).for_each(|version| checkpoint(engine, run, rank, version));
        engine.wait().unwrap();
    }
}

fn latest(engines: &[Engine]) -> Vec<Option<u64>> {
    engines.iter().map(|engine| engine.latest(None)).collect()
}

#[test]
fn versions_beyond_the_newest_of_all_ranks_are_discarded_and_written_anew() {
    let home = home();
    write(&group(&home, "a", 3, 1), 1, 0, &[6, 9, 7]);
    let second = group(&home, "a", 3, 2);
    assert_eq!(latest(&second), [Some(5); 3]);
    write(&second, 2, 6, &[9, 9, 9]);
    drop(second);
    let third = group(&home, "a", 3, 3);
    assert_eq!(latest(&third), [Some(8); 3]);
    for (rank, engine) in (0..).zip(&third) {
        assert_eq!(engine.versions(), (0..9).collect::<Vec<_>>());
        for version in 0..9 {
            let run = if version < 6 { 1 } else { 2 };
            assert!(restored(engine, version).unwrap() == content(run, rank, version));
        }
    }
}

#[test]
fn a_number_of_the_run_that_is_used_again_mixes_nothing() {
    let home = home();
    write(&group(&home, "a", 2, 1), 1, 0, &[3, 6]);
    let second = group(&home, "a", 2, 1);
    assert_eq!(latest(&second), [Some(2); 2]);
    // Rank 1 still has its pieces of versions 3 to 5 of the first run, and writes none in the second.
    write(&second, 2, 3, &[6, 3]);
    drop(second);
    assert_eq!(latest(&group(&home, "a", 2, 1)), [Some(2); 2]);
}

/// The ranks of the second run find a version whose manifest was not written before a kill. Storage that hangs ends the wait, and the
/// next wait lists the version.
#[test]
fn a_version_that_is_waited_for_is_listed_for_readers_of_all_ranks_pieces() {
    let (home, faults) = (home(), Arc::<Faults>::default());
    let group = |run| {
        together(2, |rank| {
            let builder = Engine::builder(&open(Choice::Host).unwrap()).host_cache(8 << 20);
            let builder = builder.external(&home.far).group(Group::new(rank, 2, run));
            faults.during(|| builder.build()).unwrap()
        })
    };
    // The versions are large enough for files of their own, so that segments have the manifest alone.
    write(&group(1), 1, 4, &[5, 5]);
    for rank in ["rank-0", "rank-1"] {
        let files = std::fs::read_dir(home.far.join(rank)).unwrap();
        let paths = files.map(|file| file.unwrap().path());
        let is_segment = |path: &PathBuf| path.extension().is_some_and(|end| end == "tfs");
        paths
            .filter(is_segment)
            .for_each(|path| std::fs::remove_file(path).unwrap());
    }
    let listed = || {
        let reader = Repository::read_only(&home.far, Options::default()).unwrap();
        let versions = reader.versions().unwrap().into_iter();
        versions.map(|info| info.version).collect::<Vec<_>>()
    };
    let engines = group(2);
    assert_eq!((latest(&engines), listed()), (vec![Some(4); 2], vec![]));
    faults.reads_hang.store(true, Relaxed);
    // The second wait begins while the list of the first one is held back.
    for _ in 0..2 {
        let soon = engines[0].call().within(Duration::from_millis(30));
        assert_matches!(soon.wait_version(4), Err(Error::TimedOut { .. }));
        assert_matches!(soon.wait(), Err(Error::TimedOut { .. }));
        // A call without time does not wait for the list, and returns at once, as the version is durable.
        let now = engines[0].call().within(Duration::ZERO);
        now.wait_version(4).unwrap();
        now.wait().unwrap();
    }
    // All of these calls share one thread that waits for storage. Such threads of other tests end meanwhile.
    let listing = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        let names = threads.filter_map(|thread| {
            let thread = thread.unwrap().path();
            std::fs::read_to_string(thread.join("comm")).ok()
        });
        let listing = ["tierflow-look", "tierflow-call"];
        let listing = names.filter(|name| listing.contains(&name.trim()));
        listing.count()
    };
    let since = Instant::now();
    while listing() > 1 && since.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(listing(), 1);
    faults.reads_hang.store(false, Relaxed);
    engines[0].call().wait_version(4).unwrap();
    assert_eq!(listed(), [4]);
}

#[test]
fn ranks_on_each_others_nodes_are_told_what_lies_there() {
    let home = home();
    let on = |nodes: [&str; 2], run| {
        let all = InMemory::new(2);
        together(2, |rank| {
            let near = home.near.with_extension(nodes[rank as usize]);
            let builder = Engine::builder(&open(Choice::Host).unwrap());
            let met = Arc::new(Member(Arc::clone(&all), rank as usize));
            let builder = builder.host_cache(8 << 20).node_local(near);
            let own = Group::new(rank, 2, run).collective(met);
            builder.group(own).build().unwrap()
        })
    };
    let told = |engine: &Engine| {
        let damage = engine.damage().into_iter();
        damage.map(|damage| damage.to_string()).collect::<Vec<_>>()
    };
    let first = on(["a", "b"], 1);
    assert!(first.iter().all(|engine| told(engine).is_empty()));
    write(&first, 1, 0, &[3, 3]);
    drop(first);
    let swapped = on(["b", "a"], 2);
    assert_eq!(latest(&swapped), [None; 2]);
    for (rank, engine) in (0..).zip(&swapped) {
        let told = told(engine);
        let words = format!("versions up to 2 of rank {} lie on this node", 1 - rank);
        assert!(told.len() == 1 && told[0].contains(&words), "{told:?}");
    }
    drop(swapped);
    let back = on(["a", "b"], 3);
    assert_eq!(latest(&back), [Some(2); 2]);
    assert!(back.iter().all(|engine| told(engine).is_empty()));
}

#[test]
fn a_node_that_was_left_brings_nothing_back() {
    let home = home();
    write(&group(&home, "a", 2, 1), 1, 0, &[3, 3]);
    {
        let engines = group(&home, "a", 2, 2);
        write(&engines, 2, 3, &[9, 9]);
    }
    // Rank 1's pieces of versions 5 to 8 never reached external storage.
    let far = Options::default().rank(1, 2).run(2);
    let far = Repository::open(&home.far, far).unwrap();
    far.remove(&(5..9).collect()).unwrap();
    drop(far);
    let elsewhere = group(&home, "b", 2, 3);
    assert_eq!(latest(&elsewhere), [Some(4); 2]);
    write(&elsewhere, 3, 5, &[7, 7]);
    drop(elsewhere);
    // The first nodes still have versions 5 to 8 of run 2, whole.
    let back = group(&home, "a", 2, 4);
    assert_eq!(latest(&back), [Some(6); 2]);
    for (rank, engine) in (0..).zip(&back) {
        assert!(restored(engine, 6).unwrap() == content(3, rank, 6));
        assert!(restored(engine, 4).unwrap() == content(2, rank, 4));
    }
    let listed = Repository::read_only(&home.far, Options::default()).unwrap();
    let listed: Vec<u64> = listed
        .versions()
        .unwrap()
        .iter()
        .map(|info| info.version)
        .collect();
    assert_eq!(listed, (0..7).collect::<Vec<_>>());
}

#[test]
fn a_restart_that_never_began_costs_nothing() {
    let home = home();
    write(&group(&home, "a", 2, 1), 1, 0, &[4, 4]);
    let far = Options::default().rank(1, 2).run(1);
    let far = Repository::open(&home.far, far).unwrap();
    far.remove(&(2..4).collect()).unwrap();
    drop(far);
    // Rank 1 is never started on the other nodes.
    let lonely = builder(&home, "b", 0, 2, 2);
    let lonely = lonely.group(Group::new(0, 2, 2).patience(Duration::from_millis(20)));
    assert_matches!(
        lonely.build(),
        Err(Error::Storage(StoreError::Absent { ranks, .. }))
            if *ranks == [1]
    );
    assert_eq!(latest(&group(&home, "a", 2, 3)), [Some(3); 2]);
}

#[test]
fn a_group_without_external_storage_meets_on_its_node() {
    let home = home();
    let device = open(Choice::Host).unwrap();
    let build = |run: u64| {
        together(3, |rank| {
            let builder = Engine::builder(&device).host_cache(8 << 20);
            let builder = builder
                .node_local(&home.near)
                .group(Group::new(rank, 3, run));
            builder.retention(Retention::newest(5)).build().unwrap()
        })
    };
    write(&build(1), 1, 0, &[4, 7, 5]);
    let second = build(2);
    assert_eq!(latest(&second), [Some(3); 3]);
    write(&second, 2, 4, &[6, 6, 6]);
    drop(second);
    let third = build(3);
    assert_eq!(latest(&third), [Some(5); 3]);
    assert!(restored(&third[1], 5).unwrap() == content(2, 1, 5));
}

#[test]
fn a_group_of_another_size_is_told_and_so_are_its_numbers() {
    let home = home();
    write(&group(&home, "a", 4, 1), 1, 0, &[5; 4]);
    for ranks in [2, 6] {
        let errors = together(ranks, |rank| {
            builder(&home, "b", rank, ranks, 2).build().unwrap_err()
        });
        for error in errors {
            assert!(
                matches!(error, Error::Build(BuildError::OtherGroup { found: 4, version: 4, ranks: of }) if of == ranks),
                "{error}"
            );
        }
    }
    let device = open(Choice::Host).unwrap();
    let alone = Engine::builder(&device)
        .host_cache(1 << 20)
        .external(&home.far);
    assert_matches!(
        alone.build(),
        Err(Error::Build(BuildError::OtherGroup {
            found: 4,
            version: 4,
            ranks: 1
        }))
    );
    // The group of another size discarded nothing.
    assert_eq!(latest(&group(&home, "a", 4, 3)), [Some(4); 4]);
    // If the other group is not newer, its versions only occupy their numbers.
    let far = Repository::open(&home.far, Options::default()).unwrap();
    let regions = [tierflow_store::Region::new("checkpoint", &[1])];
    let snapshot = tierflow_store::Snapshot::new(9, &regions);
    far.save(&snapshot).unwrap();
    drop(far);
    let engine = Engine::builder(&device)
        .host_cache(1 << 20)
        .external(&home.far);
    let engine = engine.build().unwrap();
    assert_eq!(engine.versions(), [9]);
    let again = engine.checkpoint(3, &[Region::from([1_u8].as_slice())]);
    assert_matches!(again, Err(Error::VersionUsed { version: 3 }));
    checkpoint(&engine, 1, 0, 10);
    engine.wait().unwrap();
}

#[test]
fn ranks_of_different_runs_are_told() {
    let home = home();
    let errors = together(2, |rank| {
        builder(&home, "a", rank, 2, 7 + u64::from(rank))
            .build()
            .unwrap_err()
    });
    for error in errors {
        assert_matches!(
            error,
            Error::Build(BuildError::OtherRun {
                rank: 1,
                run: 8,
                first: 7
            })
        );
    }
}

#[test]
fn a_version_that_cannot_be_read_now_is_not_discarded() {
    let home = home();
    write(&group(&home, "a", 2, 1), 1, 0, &[4, 4]);
    let faults = Arc::<Faults>::default();
    let build = || {
        let all = InMemory::new(2);
        together(2, |rank| {
            let device = open(Choice::Host).unwrap();
            let mut options = Options::default().rank(rank, 2).run(2);
            if rank == 1 {
                options = options.faults(Arc::clone(&faults));
            }
            let far = Arc::new(Repository::open(&home.far, options).unwrap());
            let met = Member(Arc::clone(&all), rank as usize);
            Engine::builder(&device)
                .host_cache(1 << 20)
                .group(Group::new(rank, 2, 2).collective(Arc::new(met)))
                .tier(Tier::vault(far))
                .build()
        })
    };
    faults.reads_fail.store(true, Relaxed);
    for failed in build() {
        assert_matches!(
            failed,
            Err(Error::Build(BuildError::Unreadable {
                rank: 1,
                newest: 3,
                ..
            }))
        );
    }
    faults.reads_fail.store(false, Relaxed);
    let engines: Vec<Engine> = build().into_iter().map(Result::unwrap).collect();
    assert_eq!(latest(&engines), [Some(3); 2]);
}

#[test]
fn a_group_agrees_over_whatever_connects_it() {
    let home = home();
    let build = |run| {
        let all = InMemory::new(3);
        together(3, |rank| {
            let of = Member(Arc::clone(&all), rank as usize);
            builder(&home, "a", rank, 3, run)
                .group(Group::new(rank, 3, run).collective(Arc::new(of)))
                .build()
                .unwrap()
        })
    };
    write(&build(1), 1, 0, &[6, 9, 7]);
    assert_eq!(latest(&build(2)), [Some(5); 3]);
}

#[test]
fn a_rank_with_nothing_to_save_takes_part() {
    let home = home();
    for cache in [1 << 20, 0] {
        let far = home.far.with_extension(cache.to_string());
        let build = |run| {
            together(3, |rank| {
                let builder = Engine::builder(&open(Choice::Host).unwrap());
                let builder = builder.host_cache(cache).external(&far);
                builder.group(Group::new(rank, 3, run)).build().unwrap()
            })
        };
        let first = build(1);
        for version in 0..4 {
            checkpoint(&first[0], 1, 0, version);
            first[1].checkpoint(version, &[]).unwrap();
            let within = first[2].call().within(Duration::from_secs(60));
            within
                .checkpoint(version, &[Region::from([].as_slice())])
                .unwrap();
        }
        first.iter().for_each(|engine| engine.wait().unwrap());
        let check = |engines: &[Engine]| {
            assert_eq!(latest(engines), [Some(3); 3]);
            assert!(restored(&engines[0], 3).unwrap() == content(1, 0, 3));
            for engine in &engines[1..] {
                assert_eq!(engine.restore_size(2).unwrap(), 0);
                engine.restore(2, &mut []).unwrap();
                assert!(restored(engine, 3).unwrap().is_empty());
                assert!(engine.call().consume(1).is_err());
            }
        };
        check(&first);
        drop(first);
        let second = build(2);
        check(&second);
        second[1].discard(3).unwrap();
        drop(second);
        let third = build(3);
        assert_eq!(latest(&third), [Some(2); 3]);
        // The rank may use the number of a version without bytes for one with bytes.
        checkpoint(&third[1], 3, 1, 3);
        third[1].wait().unwrap();
        assert!(restored(&third[1], 3).unwrap() == content(3, 1, 3));
    }
}

/// A rank that notes the patience of each meeting. The first meeting takes a while.
#[derive(Debug)]
struct Slow(Member, Mutex<Vec<Duration>>);

impl Collective for Slow {
    fn all_gather(&self, mine: &[u8], patience: Duration) -> tierflow_store::Result<Vec<Vec<u8>>> {
        std::thread::sleep(Duration::from_millis(5));
        self.1.lock().push(patience);
        self.0.all_gather(mine, patience)
    }
}

#[test]
fn each_meeting_has_all_of_the_patience() {
    let (home, patience) = (home(), Duration::from_secs(60));
    let memory = InMemory::new(2);
    together(2, |rank| {
        let member = Member(Arc::clone(&memory), rank as usize);
        let slow = Arc::new(Slow(member, Mutex::default()));
        let group = Group::new(rank, 2, 1).patience(patience);
        let builder = builder(&home, "a", rank, 2, 1);
        let builder = builder.group(group.collective(slow.clone()));
        builder.build().unwrap();
        let had = slow.1.lock();
        assert!(
            had.len() > 1 && had.iter().all(|had| *had == patience),
            "{had:?}"
        );
    });
}
