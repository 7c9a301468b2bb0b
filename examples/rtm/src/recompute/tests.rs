//! Images by schedules beside that of stored snapshots.

use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use tierflow_device::{Choice, open};
use tierflow_engine::{AfterRestore, Engine, Tier};
use tierflow_schedule::{Plan, Schedule};
use tierflow_store::{Scratch, Throttled};

use crate::cli::{Args, Order, Recompute};
use crate::history::History;
use crate::host::Host;
use crate::migration::{Migration, Usage};
use crate::recompute::Planner;
use crate::survey::Survey;

/// Image and illumination of a survey, all of whose snapshots are proven. Storage lets `rate` bytes through each second; the
/// caches hold so many snapshots.
fn migrate(
    args: &Args,
    [device_cache, host_cache]: [usize; 2],
    rate: u64,
    recompute: Option<Planner>,
) -> (Vec<f32>, Vec<i64>) {
    let survey = Survey::new(args).unwrap();
    let device = open(Choice::Host).unwrap();
    let propagator = Host::new(&device, survey.grid.clone()).unwrap();
    let usage = Usage {
        order: Order::Reverse,
        hints: args.hints,
        interval: Duration::ZERO,
        recompute,
        verify: args.verify,
        within: false,
        error_budget: None,
        levels: 2,
        inverts: false,
    };
    let mut migration = Migration::new(&device, &propagator, &survey, usage).unwrap();
    migration.say = Box::new(|line| println!("{line}"));
    let state = usize::try_from(migration.checkpoint_bytes()).unwrap();
    let open = || {
        let storage = Scratch::open(&std::env::temp_dir())?;
        let engine = Engine::builder(&device)
            .device_cache(device_cache * state)
            .host_cache(host_cache * state)
            .tier(Tier::storage(Arc::new(Throttled::new(storage, rate))))
            .after_restore(match recompute {
                None => AfterRestore::Discard,
                Some(_) => AfterRestore::Keep,
            })
            .build()?;
        Ok(History::new(engine, Duration::ZERO))
    };
    let mut history = None;
    for shot in 0..args.shots {
        migration.shot(shot, &mut history, open).unwrap();
    }
    let engine = history.as_ref().unwrap().engine();
    assert!(engine.versions().is_empty(), "snapshots are left");
    let snapshots = args.shots as u64 * survey.checkpoints();
    assert_eq!(
        migration.proven.snapshots,
        if args.verify { snapshots } else { 0 }
    );
    migration.results().unwrap()
}

/// With `TIERFLOW_RTM_LONG`, on a machine with two idle cores, the printed times are those of the book.
#[test]
fn schedules_have_the_image_of_stored_snapshots() {
    let is_long = std::env::var_os("TIERFLOW_RTM_LONG").is_some();
    let surveys: &[(&str, u64)] = match is_long {
        false => &[
            (
                "rtm --decimate 4 --steps 131 --every 3 --shots 2 --verify",
                64 << 20,
            ),
            (
                "rtm --3d 48x44x40 --steps 40 --every 1 --shots 2 --verify",
                64 << 20,
            ),
        ],
        true => &[(
            "rtm --3d 128x128x128 --steps 200 --every 1 --shots 2",
            400 << 20,
        )],
    };
    for (line, rate) in surveys {
        let args = Args::parse_from(line.split(' '));
        println!("{line}");
        let caches = if is_long { [16, 32] } else { [6, 8] };
        let stored = migrate(&args, caches, *rate, None);
        assert!(stored.0.iter().any(|value| *value != 0.0));
        for planner in planners() {
            let image = migrate(&args, caches, *rate, Some(planner));
            let equal =
                |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(
                equal(&image.0, &stored.0) && image.1 == stored.1,
                "{}",
                planner.name
            );
        }
    }
}

/// The schedules of the program, and those that it is compared with.
fn planners() -> [Planner; 6] {
    let [auto, never, always] =
        [Recompute::Auto, Recompute::Never, Recompute::Always].map(Planner::from);
    let blocking = Planner {
        name: "H-Revolve",
        schedule: |known, steps| Plan::blocking(&known.machine, steps).unwrap().into(),
    };
    let every = Planner {
        name: "every 6th",
        schedule: |known, steps| Plan::every(&known.machine, steps, 6).into(),
    };
    let unknown = Planner {
        name: "length unknown",
        schedule: |known, _| Schedule::new(&known.machine, None),
    };
    [never, every, always, blocking, auto, unknown]
}
