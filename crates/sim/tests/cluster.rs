//! Compares the choice of jobs to stop with all choices, and plays workloads under each strategy.

#![allow(clippy::unwrap_used, clippy::panic)]

use tierflow_sim::Error;
use tierflow_sim::cluster::{
    BatchJob, Candidate, Cluster, ClusterOutcome, Jobs, OnDemandJob, StopOption, Strategy,
    WorkloadModel, least_loss,
};
use tierflow_testing::Draws;

/// Returns the least loss of all choices by trying each.
fn all_choices(candidates: &[Candidate], nodes: u64, budget: u64) -> Option<u64> {
    let Some((first, others)) = candidates.split_first() else {
        return (nodes == 0).then_some(0);
    };
    let left = nodes.saturating_sub(first.nodes);
    let stopped = first.options.iter().filter_map(|option| {
        let budget = budget.checked_sub(option.bytes)?;
        Some(option.loss + all_choices(others, left, budget)?)
    });
    let not_stopped = all_choices(others, nodes, budget);
    stopped.chain(not_stopped).min()
}

#[test]
fn the_choice_is_the_best_of_all() {
    let mut random = Draws(11);
    let (mut possible, mut tight) = (0, 0);
    for case in 0..10_000 {
        let candidates: Vec<_> = (0..random.below(8))
            .map(|_| Candidate {
                nodes: random.below(6),
                options: (0..random.below(4))
                    .map(|_| StopOption {
                        loss: random.below(30),
                        bytes: random.below(3) * random.below(8),
                    })
                    .collect(),
            })
            .collect();
        let (nodes, budget) = (random.below(16), random.below(20));
        // A part has one byte, so the choice is exact.
        let choice = least_loss(&candidates, nodes, budget, budget as usize);
        let best = all_choices(&candidates, nodes, budget);
        assert_eq!(
            choice.as_ref().map(|choice| choice.loss),
            best,
            "case {case}"
        );
        let Some(choice) = choice else { continue };
        possible += 1;
        let (mut freed, mut bytes, mut loss) = (0, 0, 0);
        for (which, option) in &choice.stopped {
            freed += candidates[*which].nodes;
            bytes += candidates[*which].options[*option].bytes;
            loss += candidates[*which].options[*option].loss;
        }
        assert!(freed >= nodes && bytes <= budget, "case {case}: {choice:?}");
        assert_eq!(loss, choice.loss, "case {case}");
        let ample = all_choices(&candidates, nodes, u64::MAX);
        tight += usize::from(ample < Some(loss));
        // A choice with coarser parts is within the budget, too, and not better.
        if let Some(coarse) = least_loss(&candidates, nodes, budget, 3) {
            let bytes = coarse.stopped.iter();
            let bytes = bytes.map(|(which, option)| candidates[*which].options[*option].bytes);
            assert!(
                bytes.sum::<u64>() <= budget && coarse.loss >= loss,
                "case {case}"
            );
        }
    }
    assert!(possible > 2_000 && tight > 200, "{possible} {tight}");
}

const CLUSTER: Cluster = Cluster {
    nodes: 4,
    bandwidth: 10,
};

fn batch(arrives: u64, nodes: u64, runs: u64) -> BatchJob {
    BatchJob {
        arrives,
        nodes,
        runs,
        memory: 1_000,
        critical: 100,
        interval: 0,
    }
}

/// Returns two jobs of two nodes each, which begin at 0 and 10, and an on-demand job of two nodes at 100.
fn two_jobs(notice: u64) -> Jobs {
    Jobs {
        batch: vec![batch(0, 2, 500), batch(10, 2, 500)],
        on_demand: vec![OnDemandJob {
            arrives: 100,
            nodes: 2,
            runs: 50,
            begins_by: 100 + notice,
        }],
    }
}

#[test]
fn each_strategy_does_what_it_says() {
    let of = |strategy, notice| CLUSTER.run(&two_jobs(notice), strategy).unwrap();
    let all = ClusterOutcome {
        done: 2 * 500 + 2 * 500 + 2 * 50,
        ..ClusterOutcome::default()
    };
    // The second job is killed after it ran for 90, and begins anew at 150.
    let killed = ClusterOutcome {
        lost: 180,
        stopped: 1,
        ended: 650,
        ..all
    };
    assert_eq!(of(Strategy::Kill, 0), killed);
    // The job's 100 critical bytes take 10 ms each way. The job is stopped from 110 to 160 and then brought back, and has 410 left.
    let saved = ClusterOutcome {
        moving: 2 * 20,
        stopped: 1,
        ended: 160 + 10 + 410,
        ..all
    };
    assert_eq!(of(Strategy::Application, 20), saved);
    // Both jobs lose the same. The first one has 400 left.
    let first = ClusterOutcome {
        ended: 160 + 10 + 400,
        ..saved
    };
    assert_eq!(of(Strategy::LeastLoss, 20), first);
    // All memory of the job takes 100.
    let whole = ClusterOutcome {
        moving: 2 * 200,
        ended: 250 + 100 + 410,
        ..saved
    };
    assert_eq!(of(Strategy::System, 100), whole);
    // The notice is too short to save a job: the on-demand job is missed, or a job is killed.
    let missed = ClusterOutcome {
        missed: 1,
        ended: 510,
        done: all.done - 100,
        ..all
    };
    assert_eq!(of(Strategy::System, 99), missed);
    assert_eq!(of(Strategy::Application, 9), missed);
    assert_eq!(of(Strategy::LeastLoss, 9), killed);
    // The first job ends before the deadline.
    let awaited = ClusterOutcome { ended: 550, ..all };
    assert_eq!(of(Strategy::LeastLoss, 400), awaited);
    // Two nodes are set aside, so the second batch job waits for the first.
    let reserved = ClusterOutcome {
        ended: 1_000,
        ..all
    };
    assert_eq!(of(Strategy::Reserve(2), 0), reserved);
}

#[test]
fn own_checkpoints_keep_what_is_in_them() {
    let mut jobs = two_jobs(0);
    jobs.batch[1].interval = 40;
    let outcome = CLUSTER.run(&jobs, Strategy::Kill).unwrap();
    // The job has run for 90, and continues from 80 after reading for 10.
    assert_eq!((outcome.lost, outcome.moving), (2 * 10, 2 * 10));
    assert_eq!(outcome.ended, 150 + 10 + 420);
}

#[test]
fn every_job_ends_under_every_strategy() {
    let cluster = Cluster {
        nodes: 64,
        bandwidth: 50_000_000,
    };
    let strategies = [
        Strategy::Reserve(16),
        Strategy::Kill,
        Strategy::System,
        Strategy::Application,
        Strategy::LeastLoss,
    ];
    let (mut lost, mut stopped) = ([0; 5], [0; 5]);
    for seed in 1..=30 {
        let draw = WorkloadModel {
            batch: 60,
            on_demand: 20,
            load: 0.9,
            notice: [0, 30_000, 600_000][seed as usize % 3],
            interval: [0, 3_600_000][seed as usize % 2],
            memory: 100 << 30,
        };
        let jobs = draw.jobs(&cluster, seed);
        for (at, strategy) in strategies.into_iter().enumerate() {
            let outcome = cluster.run(&jobs, strategy).unwrap();
            let work: u64 = jobs.batch.iter().map(|job| job.nodes * job.runs).sum();
            let on_demand = outcome.done - work;
            let all: u64 = jobs.on_demand.iter().map(|job| job.nodes * job.runs).sum();
            // Every on-demand job that was not missed has run.
            assert!(on_demand <= all && (outcome.missed > 0) == (on_demand < all));
            assert!(outcome.missed <= jobs.on_demand.len());
            let spent = outcome.done + outcome.lost + outcome.moving;
            assert!(
                spent <= cluster.nodes * outcome.ended,
                "{strategy:?}, seed {seed}: {outcome:?}"
            );
            assert_eq!(
                outcome,
                cluster.run(&jobs, strategy).unwrap(),
                "the same again"
            );
            lost[at] += outcome.lost;
            stopped[at] += outcome.stopped;
        }
    }
    let [reserve, kill, system, application, least] = lost;
    assert_eq!((reserve, system, application), (0, 0, 0));
    assert!(least < kill, "{lost:?}");
    assert!(
        stopped[1..].iter().all(|stopped| *stopped > 50),
        "{stopped:?}"
    );
}

#[test]
fn a_load_of_nothing_and_a_workload_of_nothing_are_played() {
    let cluster = Cluster {
        nodes: 64,
        bandwidth: 50_000_000,
    };
    for (batch, load) in [(6, 0.0), (0, 0.9)] {
        let draw = WorkloadModel {
            batch,
            on_demand: batch / 3,
            load,
            notice: 0,
            interval: 0,
            memory: 1 << 30,
        };
        let jobs = draw.jobs(&cluster, 1);
        let outcome = cluster.run(&jobs, Strategy::System).unwrap();
        let share = outcome.utilisation(&cluster);
        assert!((0.0..=1.0).contains(&share), "{share}");
        assert_eq!(share > 0.0, batch > 0);
    }
}

#[test]
fn a_notice_without_an_end_and_all_memory_there_is_are_drawn() {
    let cluster = Cluster {
        nodes: 64,
        ..CLUSTER
    };
    let draw = WorkloadModel {
        batch: 4,
        on_demand: 2,
        load: 0.5,
        notice: u64::MAX,
        interval: 0,
        memory: u64::MAX,
    };
    let jobs = draw.jobs(&cluster, 1);
    assert!(jobs.on_demand.iter().all(|job| job.begins_by == u64::MAX));
    assert!(jobs.batch.iter().all(|job| job.memory == u64::MAX));
}

#[test]
fn jobs_that_do_not_fit_are_refused() {
    let jobs = two_jobs(0);
    for strategy in [Strategy::Reserve(3), Strategy::Reserve(9)] {
        let refused = CLUSTER.run(&jobs, strategy);
        assert!(matches!(refused, Err(Error::Cluster(_))), "{refused:?}");
    }
    let refused = CLUSTER.run(&Jobs::default(), Strategy::Reserve(5));
    assert!(matches!(refused, Err(Error::Cluster(_))), "{refused:?}");
    let mut past = two_jobs(0);
    past.on_demand[0].begins_by = 5;
    let refused = CLUSTER.run(&past, Strategy::Kill);
    assert!(matches!(refused, Err(Error::Cluster(_))), "{refused:?}");
    let without = Cluster {
        bandwidth: 0,
        ..CLUSTER
    };
    assert!(matches!(
        without.run(&jobs, Strategy::Kill),
        Err(Error::Cluster(_))
    ));
}

/// A save of 1 byte takes a whole ms, so four saves do not end within 3 ms.
#[test]
fn a_job_begins_by_its_deadline_or_is_missed() {
    for strategy in [Strategy::System, Strategy::Application, Strategy::LeastLoss] {
        for (notice, missed) in [(3, 1), (4, 0)] {
            let one = BatchJob {
                memory: 1,
                critical: 1,
                ..batch(0, 1, 500)
            };
            let jobs = Jobs {
                batch: vec![one; 4],
                on_demand: vec![OnDemandJob {
                    arrives: 100,
                    nodes: 4,
                    runs: 1_000,
                    begins_by: 100 + notice,
                }],
            };
            let outcome = CLUSTER.run(&jobs, strategy).unwrap();
            let is_killed = outcome.lost > 0;
            let expected = match (strategy, notice) {
                // The strategy kills one of the jobs.
                (Strategy::LeastLoss, 3) => (0, true),
                _ => (missed, false),
            };
            assert_eq!(
                (outcome.missed, is_killed),
                expected,
                "{strategy:?}, {notice}"
            );
        }
    }
}

#[test]
fn without_parts_of_the_budget_no_job_that_writes_is_chosen() {
    let candidates = [Candidate {
        nodes: 1,
        options: vec![
            StopOption { loss: 1, bytes: 9 },
            StopOption { loss: 5, bytes: 0 },
        ],
    }];
    let choice = least_loss(&candidates, 1, 3, 0).unwrap();
    assert_eq!(choice.stopped, [(0, 1)]);
    assert_eq!(least_loss(&candidates, 2, 3, 0), None);
}
