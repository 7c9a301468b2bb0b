//! A table of the faults of machines and runs, with a test and a sentence for each.

use super::Examined;
use super::machine::Place;
use super::prediction::Prediction;
use super::trace::{Hop, Run};
use crate::output::bytes;
use serde::Serialize;

/// The share of a run that calls must wait for one cause before a rule reports it.
const SHARE: f64 = 0.05;

/// Seconds until a small version is durable, above which programs with many small versions wait for little else: ten times the seconds of
/// a disk, or of an object store in the same building.
const LATENCY_S: f64 = 0.1;

/// A fault that was found.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) fault: &'static str,
    pub(crate) says: String,
}

/// A fault, and the test that finds it.
pub(crate) struct Rule {
    fault: &'static str,
    test: Test,
}

/// The test of a rule, by the thing that it examines. Returns the sentence to print, or `None` if nothing is wrong.
enum Test {
    Place(fn(&Place) -> Option<String>),
    Run(fn(&Run) -> Option<String>),
    Hop(fn(&Examined, &Run, &Hop) -> Option<String>),
    All(fn(&Examined) -> Option<String>),
}

impl Rule {
    pub(crate) fn findings(&self, examined: &Examined) -> Vec<Finding> {
        let runs = examined.runs.iter();
        let says: Vec<String> = match self.test {
            Test::Place(test) => examined.machine.places.iter().filter_map(test).collect(),
            Test::Run(test) => runs
                .filter_map(|run| Some(format!("{}: {}", run.name, test(run)?)))
                .collect(),
            Test::Hop(test) => runs
                .flat_map(|run| {
                    let hops = run.hops();
                    let says = hops.iter().filter_map(|hop| test(examined, run, hop));
                    says.map(|says| format!("{}: {says}", run.name))
                        .collect::<Vec<_>>()
                })
                .collect(),
            Test::All(test) => test(examined).into_iter().collect(),
        };
        let fault = self.fault;
        says.into_iter()
            .map(|says| Finding { fault, says })
            .collect()
    }
}

pub(crate) const RULES: &[Rule] = &[
    Rule {
        fault: "directory in memory",
        test: Test::Place(|place| {
            place.in_memory.then(|| {
                format!(
                    "{} is a file system in memory: its bytes take memory from the application, and are lost with the node; name a \
                     directory on a disk",
                    place.name
                )
            })
        }),
    },
    Rule {
        fault: "place refuses bytes",
        test: Test::Place(|place| {
            let why = place.refused.as_ref()?;
            Some(format!("{} does not take a few MiB: {why}", place.name))
        }),
    },
    Rule {
        fault: "long latency",
        test: Test::Place(|place| {
            (place.save_s > LATENCY_S).then(|| {
                format!(
                    "{} takes {:.0} ms until a small version is durable, in which it could move {}: save larger versions, or several \
                     at a time",
                    place.name,
                    place.save_s * 1e3,
                    bytes((place.save_s * place.write) as u64)
                )
            })
        }),
    },
    Rule {
        fault: "unpinned memory",
        test: Test::All(|examined| {
            let why = examined.machine.unpinned.as_ref()?;
            Some(format!(
                "copies between the GPU and host memory are slow, as it cannot be pinned: {why}"
            ))
        }),
    },
    Rule {
        fault: "slow tier",
        test: Test::Hop(|_, run, hop| {
            let (from, to) = (format!("from={}", hop.from), format!("to={}", hop.to));
            let part = |cause: &str, part: &str| {
                let (cause, part) = (format!("cause={cause}"), format!("part={part}"));
                run.share(run.sum("wait_seconds_total", &[&cause, &from, &to, &part]))
            };
            let causes = ["wait for room", "wait for arrival"];
            let moving = causes.map(|cause| part(cause, "moving") + part(cause, "queued"));
            let share: f64 = moving.iter().sum();
            (share > SHARE).then(|| {
                format!(
                    "{:.0}% of the run was spent waiting while bytes moved from {} to {}, at {}/s: that is what limits",
                    share * 100.0, hop.from, hop.to, bytes(hop.rate as u64)
                )
            })
        }),
    },
    Rule {
        fault: "throttled disk",
        test: Test::Hop(|examined, _, hop| {
            let carried = together(examined, hop)?;
            let measured = measured(examined, hop)?;
            (carried < measured / 2.0).then(|| {
                format!(
                    "transfers from {} to {} moved at {}/s, and the slowest place takes {}/s today: something slowed it down, such as \
                     another program, or a limit",
                    hop.from, hop.to, bytes(carried as u64), bytes(measured as u64)
                )
            })
        }),
    },
    Rule {
        fault: "shared disk",
        test: Test::Hop(|examined, _, hop| {
            let (carried, measured) = (together(examined, hop)?, measured(examined, hop)?);
            let engines = examined.runs.len();
            let is_shared = engines > 1 && carried >= measured / 2.0 && hop.rate < measured * 0.75;
            is_shared.then(|| {
                format!(
                    "transfers from {} to {} moved at {}/s of the {}/s that the slowest place takes, as {engines} engines used it: give \
                     them disks of their own, or larger caches",
                    hop.from, hop.to, bytes(hop.rate as u64), bytes(measured as u64)
                )
            })
        }),
    },
    Rule {
        fault: "tiers in the wrong order",
        test: Test::All(|examined| {
            let mut pairs = examined.machine.places.windows(2);
            let pair =
                pairs.find(|pair| pair[0].write > 0.0 && pair[1].write > 2.0 * pair[0].write)?;
            Some(format!(
                "{} takes {}/s and {}, which comes after it, {}/s: the other order would be faster",
                pair[0].name,
                bytes(pair[0].write as u64),
                pair[1].name,
                bytes(pair[1].write as u64)
            ))
        }),
    },
    Rule {
        fault: "small device cache",
        test: Test::Run(|run| larger(run, "device")),
    },
    Rule {
        fault: "small host cache",
        test: Test::Run(|run| larger(run, "host")),
    },
    Rule {
        fault: "read past the caches",
        test: Test::Run(|run| {
            let share = run.blocked("copy with storage");
            (share > SHARE && run.tiers().len() > 1).then(|| {
                format!(
                    "{:.0}% of the run was spent copying with storage, past the caches: hint the restores in their order, and let the \
                     caches hold several versions",
                    share * 100.0
                )
            })
        }),
    },
    Rule {
        fault: "late hints",
        test: Test::Run(|run| {
            let share = unforeseen(run);
            (share > SHARE && !is_misled(run)).then(|| {
                format!(
                    "{:.0}% of the run was spent waiting for versions that were fetched when they were asked for: hint the restores in their \
                     order, as soon as it is known",
                    share * 100.0
                )
            })
        }),
    },
    Rule {
        fault: "wrong hints",
        test: Test::Run(|run| {
            (unforeseen(run) > SHARE && is_misled(run)).then(|| {
                format!(
                    "{} prefetched copies were given up again, as other versions were restored first: the hints name another order than \
                     that of the restores",
                    run.sum("tier_copies_total", &["kind=dropped prefetches"])
                )
            })
        }),
    },
    Rule {
        fault: "slow rank",
        test: Test::All(|examined| {
            let blocked = |run: &Run| run.sum("call_blocked_seconds_total", &[]);
            let mut all: Vec<f64> = examined.runs.iter().map(blocked).collect();
            all.sort_by(f64::total_cmp);
            let slowest = examined
                .runs
                .iter()
                .max_by(|a, b| blocked(a).total_cmp(&blocked(b)))?;
            let (median, most) = (all[(all.len() - 1) / 2], blocked(slowest));
            (all.len() > 1 && most > 2.0 * median && slowest.share(most) > SHARE).then(|| {
                format!(
                    "{} was blocked for {most:.2} s, half of the ranks for at most {median:.2} s: all wait for it",
                    slowest.name
                )
            })
        }),
    },
    Rule {
        fault: "compression slower than the tiers",
        test: Test::Run(|run| {
            let rate =
                |side: &str| run.sum("compression_bytes_per_second", &[&format!("side={side}")]);
            let (stage, link) = (rate("stage"), rate("link"));
            (stage > 0.0 && stage < link).then(|| {
                format!(
                    "compression takes {}/s, and the tiers below {}/s without it: turn it off",
                    bytes(stage as u64),
                    bytes(link as u64)
                )
            })
        }),
    },
    Rule {
        fault: "failed copies",
        test: Test::Run(|run| {
            let failed = run.sum("transfer_failures_total", &[]);
            (failed > 0.0).then(|| {
                format!("{failed} copies between tiers failed: a place is full or broken; the engine's log has the error")
            })
        }),
    },
    Rule {
        fault: "damaged versions",
        test: Test::Run(|run| {
            let damaged = run.sum("tier_copies_total", &["kind=damaged"]);
            (damaged > 0.0).then(|| {
                format!("{damaged} copies could not be read, or had other bytes than were written: do not trust that storage")
            })
        }),
    },
    Rule {
        fault: "retention too short",
        test: Test::Run(|run| {
            let failed = run.sum("call_failures_total", &["call=restore"])
                + run.sum("call_failures_total", &["call=consume"]);
            let pruned = run.sum("pruned_total", &[]);
            (failed > 0.0 && pruned > 0.0).then(|| {
                format!("{failed} restores failed, and the retention had discarded {pruned} versions: keep more of them")
            })
        }),
    },
    Rule {
        fault: "slower than computing",
        test: Test::Run(|run| {
            let computed: Vec<f64> = run
                .calls
                .iter()
                .filter(|call| call.writes)
                .map(|call| call.computed_ns as f64)
                .collect();
            let written = run
                .calls
                .iter()
                .filter(|call| call.writes)
                .map(|call| call.bytes as f64);
            let (bytes, count) = (written.sum::<f64>(), computed.len() as f64);
            let tiers = run.tiers();
            let (lowest, _) = tiers.last()?;
            let up = run
                .hops()
                .into_iter()
                .find(|hop| hop.from == *lowest && hop.rate > 0.0)?;
            let (fetch, compute) = (
                bytes / count / up.rate,
                computed.iter().sum::<f64>() / 1e9 / count,
            );
            (fetch > compute).then(|| {
                format!(
                    "a version comes from {lowest} in {:.2} ms, and the application computes one in {:.2} ms: recompute instead, with a \
                     schedule",
                    fetch * 1e3, compute * 1e3
                )
            })
        }),
    },
    Rule {
        fault: "memory not ready",
        test: Test::Run(|run| {
            let share = run.blocked("wait for memory");
            (share > SHARE).then(|| {
                format!("{:.0}% of the run was spent waiting for memory of the caches: build the engine earlier", share * 100.0)
            })
        }),
    },
    Rule {
        fault: "no core for the engine",
        test: Test::Run(|run| {
            let share = run.blocked("wake-up");
            (share > SHARE).then(|| {
                format!("in {:.0}% of the run answers were there and threads slept on: leave the engine a core", share * 100.0)
            })
        }),
    },
];

/// Returns the rate of a hop in all runs together, in bytes per second; `None` if it carried nothing.
fn together(examined: &Examined, hop: &Hop) -> Option<f64> {
    let hops = examined.runs.iter().flat_map(Run::hops);
    let same = hops.filter(|other| (&other.from, &other.to) == (&hop.from, &hop.to));
    let sum: f64 = same.map(|hop| hop.rate).sum();
    (hop.rate > 0.0).then_some(sum)
}

/// Returns the rate of the slowest place for the direction of a hop to or from storage; `None` for a hop between memories.
fn measured(examined: &Examined, hop: &Hop) -> Option<f64> {
    let is_memory = |tier: &str| ["device", "host", "peers"].contains(&tier);
    let rate: fn(&Place) -> f64 = match (is_memory(&hop.from), is_memory(&hop.to)) {
        (true, true) => return None,
        (true, false) => |place| place.write,
        (false, _) => |place| place.read,
    };
    let rates = examined.machine.places.iter().map(rate);
    rates.filter(|rate| *rate > 0.0).min_by(f64::total_cmp)
}

/// Returns the share of a run in which calls waited for versions, if most of these were fetched only when the calls came; else 0.
fn unforeseen(run: &Run) -> f64 {
    let asked = |when: &str| run.sum("waits_total", &["cause=wait for arrival", when]);
    match asked("asked=with the call") > asked("asked=before") {
        true => run.blocked("wait for arrival"),
        false => 0.0,
    }
}

/// Returns true if the prefetched copies that were evicted before their use are more than a tenth of the restores. False without hints, as
/// the engine then guessed.
fn is_misled(run: &Run) -> bool {
    if run.sum("hinted_total", &[]) == 0.0 {
        return false;
    }
    let restores = run.sum("tier_copies_total", &["kind=restores"]);
    run.sum("tier_copies_total", &["kind=dropped prefetches"]) * 10.0 > restores
}

/// Returns a sentence with the cache size that would halve the waiting of calls: two, four or eight times the present one. `None` if calls
/// wait little, or none of the sizes helps.
fn larger(run: &Run, tier: &str) -> Option<String> {
    let tiers = run.tiers();
    let at = tiers.iter().position(|(name, _)| name == tier)?;
    let prediction = Prediction::of(run)?;
    let now = prediction.waiting(at, 1).filter(|share| *share > SHARE)?;
    [2, 4, 8].iter().find_map(|&times| {
        let then = prediction.waiting(at, times)?;
        (then < now / 2.0).then(|| {
            format!(
                "by the simulator calls wait for {:.0}% of the run with {} of {tier} cache, and for {:.0}% with {}",
                now * 100.0,
                bytes(tiers[at].1 as u64),
                then * 100.0,
                bytes((tiers[at].1 as u64).saturating_mul(times))
            )
        })
    })
}
