//! Compares simulations of many nodes on one file system with results in closed form.

#![allow(clippy::unwrap_used)]

use tierflow_sim::Error;
use tierflow_sim::scale::{
    Job, JobOutcome, Protection, Straggle, System, daly_efficiency, daly_interval, young_interval,
};

const GB: f64 = 1e9;

fn system(nodes: usize) -> System {
    System {
        nodes,
        gpus: 8,
        local: 8.0 * GB,
        network: 10.0 * GB,
        link: 2.0 * GB,
        shared: 1.0 * GB * nodes as f64,
        mtbf: f64::INFINITY,
        along: 0.0,
        replaced: 0.0,
    }
}

/// Returns a job with 1 GB on each GPU and 8 GB on each node, which are copied in 1 s, and flushed in 4 s by a node alone and in 8 s by all.
fn job(rounds: usize, interval: f64) -> Job {
    Job {
        bytes: GB,
        rounds,
        interval,
        slots: 2,
        every: 1,
        protection: Protection::none(),
        straggle: Straggle::default(),
    }
}

fn is_close(found: f64, expected: f64, tolerance: f64) -> bool {
    (found / expected - 1.0).abs() < tolerance
}

#[test]
fn flushes_hide_behind_computing_where_there_is_time_and_show_where_there_is_none() {
    let system = system(16);
    let hidden = system.run(&job(10, 20.0), 1).unwrap();
    assert!(is_close(hidden.elapsed, 10.0 * 21.0, 1e-9), "{hidden:?}");
    assert!(is_close(hidden.settled, 10.0 * 21.0 + 8.0, 1e-9));
    assert_eq!((hidden.waiting, hidden.failures), (0.0, 0));
    // A version takes 8 s to the file system, and at most two versions may be unflushed.
    let bound = system.run(&job(100, 1.0), 1).unwrap();
    assert!(
        is_close(bound.settled, 2.0 + 100.0 * 8.0, 1e-9),
        "{bound:?}"
    );
    assert!(bound.waiting > 0.0);
}

#[test]
fn every_other_version_is_flushed() {
    let system = system(16);
    let other = Job {
        every: 4,
        ..job(100, 1.0)
    };
    let outcome = system.run(&other, 1).unwrap();
    // 25 versions take 8 s each. The first one is copied after 4 rounds of 2 s.
    assert!(
        is_close(outcome.settled, 8.0 + 25.0 * 8.0, 1e-9),
        "{outcome:?}"
    );
}

#[test]
fn one_node_slows_down_all() {
    let straggle = Straggle {
        probability: 1.0,
        mean: 0.1,
    };
    let slowed = |nodes| {
        let outcome = system(nodes)
            .run(
                &Job {
                    straggle,
                    ..job(400, 20.0)
                },
                5,
            )
            .unwrap();
        outcome.elapsed / 400.0 - 1.0
    };
    // The mean of the largest of n exponential draws is the n-th harmonic number.
    let harmonic = |count: u32| (1..=count).map(|n| 1.0 / f64::from(n)).sum::<f64>();
    for nodes in [1, 16, 256] {
        let expected = 20.0 * (1.0 + 0.1 * harmonic(8 * nodes as u32));
        assert!(
            is_close(slowed(nodes), expected, 0.01),
            "{nodes} nodes: {}",
            slowed(nodes)
        );
    }
}

#[test]
fn gpus_of_a_node_are_one_node() {
    let straggle = Straggle {
        probability: 0.5,
        mean: 0.3,
    };
    let aggregated = system(64);
    let each = System {
        nodes: 512,
        gpus: 1,
        local: GB,
        network: aggregated.network / 8.0,
        link: aggregated.link / 8.0,
        ..aggregated
    };
    let of = |system: &System| {
        let job = Job {
            straggle,
            ..job(300, 4.0)
        };
        system.run(&job, 11).unwrap()
    };
    let (aggregated, each) = (of(&aggregated), of(&each));
    assert!(
        is_close(aggregated.elapsed, each.elapsed, 0.01),
        "{aggregated:?} {each:?}"
    );
}

/// Returns the mean over seeds.
fn mean(system: &System, job: &Job, of: impl Fn(&JobOutcome) -> f64) -> f64 {
    let outcomes = (1..=24).map(|seed| system.run(job, seed).unwrap());
    outcomes.map(|outcome| of(&outcome)).sum::<f64>() / 24.0
}

#[test]
fn failures_cost_what_daly_says() {
    // Copied versions are protected at once, and are never lost.
    let failing = System {
        network: 1e18,
        mtbf: 64.0 * 2000.0,
        replaced: 60.0,
        ..system(64)
    };
    for interval in [20.0, 63.0, 200.0, 500.0] {
        let rounds = (400_000.0 / interval) as usize;
        let job = Job {
            protection: Protection {
                tolerates: 64,
                ..Protection::xor(64)
            },
            every: 1_000_000,
            ..job(rounds, interval)
        };
        let found = mean(&failing, &job, JobOutcome::efficiency);
        let (cost, mtbf) = (failing.cost(&job), 2000.0);
        // A restart takes the time of the read, too.
        let expected = daly_efficiency(interval, cost, 60.0 + cost, mtbf);
        assert!(
            is_close(found, expected, 0.01),
            "{interval} s: {found} {expected}"
        );
    }
    assert!(is_close(young_interval(1.0, 2000.0), 63.2, 0.01));
    assert!(is_close(daly_interval(1.0, 2000.0), 62.6, 0.01));
}

#[test]
fn versions_on_other_nodes_are_not_read_from_the_file_system() {
    let failing = System {
        mtbf: 64.0 * 600.0,
        replaced: 30.0,
        along: 0.2,
        ..system(64)
    };
    let lost = |protection| {
        let job = Job {
            protection,
            ..job(3000, 30.0)
        };
        let shared = mean(&failing, &job, |outcome| {
            assert!(outcome.failures > 20);
            let parts = [
                outcome.work,
                outcome.copying,
                outcome.waiting,
                outcome.lost,
                outcome.restarting,
            ];
            // Repeated work was copied, too, and counts twice.
            assert!(parts.iter().sum::<f64>() >= outcome.elapsed * 0.999);
            outcome.from_shared as f64 / outcome.failures as f64
        });
        (shared, mean(&failing, &job, JobOutcome::efficiency))
    };
    let (none, plain) = lost(Protection::none());
    let (partner, better) = lost(Protection::partner());
    let (solomon, best) = lost(Protection::reed_solomon(6, 2));
    assert!(
        none > 0.9 && partner < 0.2 && solomon < 0.2,
        "{none} {partner} {solomon}"
    );
    assert!(better > plain && best > plain, "{plain} {better} {best}");
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = [
        System {
            nodes: 0,
            ..system(1)
        },
        System {
            shared: 0.0,
            ..system(1)
        },
        System {
            along: 1.0,
            ..system(1)
        },
    ];
    assert!(
        refused
            .iter()
            .all(|system| system.run(&job(1, 1.0), 1).is_err())
    );
    let jobs = [
        Job {
            slots: 0,
            ..job(1, 1.0)
        },
        Job {
            interval: f64::NAN,
            ..job(1, 1.0)
        },
        Job {
            protection: Protection {
                set: 0,
                tolerates: 1,
                sent: 1.0,
            },
            ..job(1, 1.0)
        },
    ];
    assert!(jobs.iter().all(|job| system(1).run(job, 1).is_err()));
}

#[test]
fn a_job_that_gets_no_further_ends_with_an_error() {
    // A round takes 21 s. In the first case some node fails every 0.01 s. In the second case a restart does not end between two failures.
    for (mtbf, replaced) in [(0.16, 0.0), (160.0, 1e6)] {
        let system = System {
            mtbf,
            replaced,
            ..system(16)
        };
        let refused = system.run(&job(10, 20.0), 1);
        assert!(matches!(refused, Err(Error::Cluster(_))), "{refused:?}");
    }
}

#[test]
fn a_restart_from_nothing_is_none_from_the_file_system() {
    let system = System {
        mtbf: 16.0 * 100.0,
        ..system(16)
    };
    let never = Job {
        every: 1_000,
        ..job(10, 20.0)
    };
    let outcome = system.run(&never, 1).unwrap();
    assert!(outcome.failures > 0, "{outcome:?}");
    assert_eq!(outcome.from_shared, 0);
}

#[test]
fn values_below_zero_and_no_numbers_are_refused() {
    let well = (system(16), job(10, 20.0));
    assert!(well.0.run(&well.1, 1).is_ok());
    for wrong in [-1.0, f64::NAN, f64::INFINITY] {
        let mut all = [well; 4];
        all[0].0.replaced = wrong;
        all[1].1.protection.sent = wrong;
        all[2].1.straggle.probability = wrong;
        all[3].1.straggle.mean = wrong;
        for (system, job) in all {
            let refused = system.run(&job, 1);
            assert!(matches!(refused, Err(Error::Cluster(_))), "{refused:?}");
        }
    }
}
