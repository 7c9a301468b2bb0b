//! Jobs that must end soon: the promised version becomes durable in time, and an engine elsewhere continues from it.
//!
//! `TIERFLOW_SUSPENSIONS=200 cargo test --release -p tierflow-engine --test suspending -- --nocapture` measures in real time;
//! without that variable, no test depends on the time that anything takes. `TIERFLOW_SUSPENSIONS_SEED` begins with another state, such as
//! one that a failure printed.

#![allow(clippy::unwrap_used, clippy::panic)]

mod history;
mod throttle;

use history::content;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use throttle::{Sizes, Slow};
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, EngineBuilder, Error, Tier};
use tierflow_store::{Options, Repository};
use tierflow_testing::{Draws, assert_matches, variable};

const MIB: usize = 1 << 20;

fn builder() -> EngineBuilder {
    Engine::builder(&open(Choice::Host).unwrap())
}

fn checkpoint(engine: &Engine, version: u64, size: usize) {
    history::checkpoint(engine, version, &content(version, size));
}

/// Asserts that an engine elsewhere finds this version whole in the directory.
fn assert_resumes(external: &std::path::Path, version: u64, size: usize) {
    let node = tempfile::tempdir().unwrap();
    let engine = builder()
        .host_cache(MIB)
        .node_local(node.path())
        .external(external)
        .build()
        .unwrap();
    assert!(engine.versions().contains(&version));
    history::assert_restores(&engine, version, &content(version, size));
}

#[test]
fn the_newest_version_goes_past_the_tiers_between_and_another_engine_goes_on() {
    let (node, external) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sizes = Sizes::default();
    let repository = Repository::open(external.path(), Options::default()).unwrap();
    let slow = Arc::new(Slow::new(repository, 200 * MIB as u64, &sizes));
    let engine = builder()
        .host_cache(64 * MIB)
        .node_local(node.path())
        .tier(Tier::vault(Arc::clone(&slow) as _))
        .build()
        .unwrap();
    sizes.lock().unwrap().extend((0..6).map(|v| (v, MIB)));
    checkpoint(&engine, 0, MIB);
    engine.wait().unwrap();
    slow.halt(true);
    for version in 1..6 {
        checkpoint(&engine, version, MIB);
    }
    // Other versions are under way, and the suspension stops them.
    let suspension = engine
        .suspend(None, Instant::now() + Duration::from_secs(600))
        .unwrap();
    assert_eq!(
        (suspension.version(), suspension.newest()),
        (Some(5), Some(5))
    );
    assert!(
        suspension
            .expected()
            .is_some_and(|time| time > Duration::ZERO)
    );
    assert!(engine.time_to_durable(5).unwrap() > Some(Duration::ZERO));
    slow.halt(false);
    assert!(suspension.wait().unwrap());
    assert!(engine.is_durable(5));
    assert_eq!(engine.time_to_durable(5).unwrap(), Some(Duration::ZERO));
    // Dropped versions stay dropped, and closing does not wait for them.
    assert!((1..4).any(|version| !engine.is_durable(version)));
    engine.close().unwrap();
    drop(slow);
    assert_resumes(external.path(), 5, MIB);
}

#[test]
fn closing_waits_for_the_version_that_was_chosen_and_names_all_that_are_lost() {
    let external = tempfile::tempdir().unwrap();
    let repository = Repository::open(external.path(), Options::default()).unwrap();
    let sizes: Sizes = Arc::new(Mutex::new((1..6).map(|v| (v, MIB)).collect()));
    let slow = Arc::new(Slow::new(repository, 200 * MIB as u64, &sizes));
    let engine = builder()
        .host_cache(64 * MIB)
        .tier(Tier::vault(Arc::clone(&slow) as _))
        .closing_patience(Duration::from_millis(50))
        .build()
        .unwrap();
    slow.halt(true);
    for version in 1..6 {
        checkpoint(&engine, version, MIB);
    }
    let far = Instant::now() + Duration::from_secs(600);
    assert_eq!(engine.suspend(Some(4), far).unwrap().version(), Some(4));
    assert_matches!(
        engine.close(),
        Err(Error::Lost { versions, .. })
            if *versions == [1, 2, 3, 4, 5]
    );
    slow.halt(false);
}

#[test]
fn a_job_that_need_not_go_after_all_goes_on() {
    let external = tempfile::tempdir().unwrap();
    let engine = builder()
        .host_cache(64 * MIB)
        .external(external.path())
        .build()
        .unwrap();
    for version in 0..4 {
        checkpoint(&engine, version, MIB);
    }
    let far = Instant::now() + Duration::from_secs(600);
    assert!(engine.suspend(Some(2), far).unwrap().wait().unwrap());
    assert!(engine.is_durable(2));
    checkpoint(&engine, 4, MIB);
    engine.wait().unwrap();
    assert!((0..5).all(|version| engine.is_durable(version)));
}

#[test]
fn a_history_in_order_is_durable_up_to_what_is_promised() {
    let external = tempfile::tempdir().unwrap();
    let engine = builder()
        .host_cache(64 * MIB)
        .external(external.path())
        .durable_in_order(true)
        .build()
        .unwrap();
    for version in 0..6 {
        checkpoint(&engine, version, MIB);
    }
    let far = Instant::now() + Duration::from_secs(600);
    assert!(engine.suspend(Some(4), far).unwrap().wait().unwrap());
    assert!((0..5).all(|version| engine.is_durable(version)));
}

#[test]
fn a_version_that_cannot_become_durable_is_refused_at_once() {
    let engine = builder().host_cache(MIB).build().unwrap();
    let soon = Instant::now();
    assert!(matches!(
        engine.suspend(None, soon),
        Err(Error::NothingLasts { what: "suspend" })
    ));
    let external = tempfile::tempdir().unwrap();
    let sizes = Sizes::default();
    sizes.lock().unwrap().extend((0..3).map(|v| (v, 8 * MIB)));
    let repository = Repository::open(external.path(), Options::default()).unwrap();
    let slow = Arc::new(Slow::new(repository, 400 * MIB as u64, &sizes));
    let engine = builder()
        .host_cache(64 * MIB)
        .tier(Tier::vault(Arc::clone(&slow) as _))
        .build()
        .unwrap();
    let none = engine.suspend(None, soon).unwrap();
    assert_eq!((none.version(), none.newest()), (None, None));
    assert!(!none.wait().unwrap());
    assert!(matches!(
        engine.suspend(Some(9), soon),
        Err(Error::Unknown { version: 9 })
    ));
    checkpoint(&engine, 0, 8 * MIB);
    engine.wait().unwrap();
    slow.halt(true);
    checkpoint(&engine, 1, 8 * MIB);
    // There is no time for the newest version, so the one before becomes durable.
    let past = engine.suspend(None, soon).unwrap();
    assert_eq!((past.version(), past.newest()), (Some(0), Some(1)));
    assert_eq!(past.expected(), Some(Duration::ZERO));
    assert!(past.wait().unwrap());
    slow.halt(false);
}

/// The outcome of a suspension.
struct Outcome {
    late: Duration,
    tolerance: Duration,
    chosen: Option<u64>,
    /// The newest version that is possible by the deadline.
    best: Option<u64>,
    /// The newest version that is possible by the deadline less the tolerance.
    sure: Option<u64>,
    told: Duration,
    took: Duration,
    in_order: bool,
}

/// Suspends an engine over a slow vault in a random state, with a random deadline.
fn suspend_somewhere(draws: &mut Draws) -> Outcome {
    let (node, external) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let rate = draws.within(30..150) * MIB as u64;
    let in_order = draws.within(0..3) == 0;
    let equal = (draws.within(0..2) == 0).then(|| draws.within(MIB as u64..16 * MIB as u64));
    let count = draws.within(2..10);
    let sizes = Sizes::default();
    let drawn: BTreeMap<u64, usize> = (0..=count)
        .map(|version| {
            let size = equal.unwrap_or_else(|| draws.within(MIB as u64..16 * MIB as u64));
            (version, size as usize)
        })
        .collect();
    *sizes.lock().unwrap() = drawn.clone();
    let repository = Repository::open(external.path(), Options::default()).unwrap();
    let slow = Arc::new(Slow::new(repository, rate, &sizes));
    let engine = builder()
        .host_cache(256 * MIB)
        .tier(Tier::vault(Arc::clone(&slow) as _))
        .durable_in_order(in_order);
    let engine = match draws.within(0..2) {
        0 => engine.build().unwrap(),
        _ => engine.node_local(node.path()).build().unwrap(),
    };
    // Some versions were flushed before, one after the other.
    let before = draws.within(1..5).min(count);
    for version in 0..=count {
        checkpoint(&engine, version, drawn[&version]);
        if version < before {
            engine.wait().unwrap();
        }
        std::thread::sleep(Duration::from_millis(draws.within(0..100)));
    }
    std::thread::sleep(Duration::from_millis(draws.within(0..300)));
    // The time that each version needs if no other work is done from now on.
    let paid = slow.paid();
    let alone = |version: u64| match engine.is_durable(version) {
        true => Duration::ZERO,
        false => {
            let left = drawn[&version] as u64 - paid.get(&version).copied().unwrap_or(0);
            Duration::from_secs_f64(left as f64 / rate as f64)
        }
    };
    let each: Vec<Duration> = (0..=count).map(alone).collect();
    let needs = |version: usize| match in_order {
        true => each[..=version].iter().sum(),
        false => each[version],
    };
    let needs: Vec<Duration> = (0..each.len()).map(needs).collect();
    let longest = (*needs.last().unwrap()).max(Duration::from_millis(100));
    let patience = longest.mul_f64(draws.within(2..150) as f64 / 100.0);
    let tolerance = patience.mul_f64(0.05).max(Duration::from_millis(50));
    let newest = |patience: Option<Duration>| {
        let found = needs.iter().rposition(|time| Some(*time) <= patience);
        found.map(|version| version as u64)
    };
    let begun = Instant::now();
    let suspension = engine.suspend(None, begun + patience).unwrap();
    let chosen = suspension.version();
    let told = suspension.expected().unwrap_or_default();
    if let Some(chosen) = chosen
        && !suspension.wait().unwrap()
    {
        while !engine.is_durable(chosen) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let took = begun.elapsed();
    if let Some(version) = chosen {
        drop(engine);
        drop(slow);
        assert_resumes(external.path(), version, drawn[&version]);
    }
    Outcome {
        late: took.saturating_sub(patience),
        tolerance,
        chosen,
        best: newest(Some(patience)),
        sure: newest(patience.checked_sub(tolerance)),
        told,
        took,
        in_order,
    }
}

#[test]
fn random_states_and_deadlines() {
    let is_long = std::env::var_os("TIERFLOW_SUSPENSIONS").is_some();
    let count: usize = variable("TIERFLOW_SUSPENSIONS", 6);
    let mut draws = Draws(variable("TIERFLOW_SUSPENSIONS_SEED", 1));
    let (mut late, mut older, mut best, mut longest) = (0, 0, 0, Duration::ZERO);
    for _ in 0..count {
        let seed = draws.0;
        let outcome = suspend_somewhere(&mut draws);
        late += usize::from(outcome.late > outcome.tolerance);
        older += usize::from(outcome.chosen < outcome.sure);
        best += usize::from(outcome.chosen >= outcome.best);
        longest = longest.max(outcome.late);
        if outcome.late > outcome.tolerance || outcome.chosen < outcome.sure {
            println!(
                "seed {seed}: late by {:?} of {:?}; chosen {:?}, best {:?}; told {:?}, took {:?}, in order {}",
                outcome.late,
                outcome.tolerance,
                outcome.chosen,
                outcome.best,
                outcome.told,
                outcome.took,
                outcome.in_order
            );
        }
    }
    println!(
        "late {late} times, by {longest:?} at most; older {older} times; the best {best} times"
    );
    // Only the long run checks deadlines, as other work on the machine may delay a suspension.
    if is_long {
        assert_eq!((late, older), (0, 0));
    }
}

#[test]
fn a_suspension_is_over_when_a_later_one_takes_its_place() {
    let external = tempfile::tempdir().unwrap();
    let sizes = Arc::new(Mutex::new((0..4).map(|v| (v, MIB)).collect()));
    let repository = Repository::open(external.path(), Options::default()).unwrap();
    let slow = Arc::new(Slow::new(repository, 400 * MIB as u64, &sizes));
    let engine = builder()
        .host_cache(64 * MIB)
        .tier(Tier::vault(Arc::clone(&slow) as _))
        .build()
        .unwrap();
    slow.halt(true);
    for version in 0..4 {
        checkpoint(&engine, version, MIB);
    }
    let far = Instant::now() + Duration::from_secs(600);
    let first = engine.suspend(Some(3), far).unwrap();
    let second = engine.suspend(Some(2), far).unwrap();
    assert!(matches!(first.wait(), Err(Error::Stalled { .. })));
    slow.halt(false);
    assert!(second.wait().unwrap());
}
