//! A sweep: configurations drawn from a seed, on which the engine's own policy has to come close to the bound, and must not
//! be behind the paper's scorer, nor behind `Cost`, an earlier default. What both lost is on record.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result, bail};
use rayon::prelude::*;
use tierflow_sim::sweep::{Cell, Ratios, cells};
use tierflow_sim::{Simulation, fluid_bound};

use crate::experiments::Run;

/// A seed's name, the seed, and what was lost with the scorer and with `Cost` on its cells: crates/sim/data/README.md.
const SEEDS: [(&str, u64, &str); 2] = [
    (
        "development",
        1,
        include_str!("../../../../crates/sim/data/sweep-baseline-1.csv"),
    ),
    (
        "judging",
        2,
        include_str!("../../../../crates/sim/data/sweep-baseline-2.csv"),
    ),
];

/// Cells on record for each seed. A quick run has, of each kind of hints, the `QUICK` cells with the fewest operations.
const CELLS: usize = 600;
const QUICK: usize = 2;

/// A policy is behind another where it loses more than this many times the other's time.
const BEHIND: f64 = 1.02;

/// The time lost in one cell, in ns. `None` where the run ended in an error.
struct Lost {
    bound: u64,
    own: Option<u64>,
    score: Option<u64>,
    cost: Option<u64>,
}

pub(crate) fn run(run: &mut Run) -> Result<()> {
    for (name, seed, recorded) in SEEDS {
        let mut cells = cells(seed, CELLS);
        if run.is_quick() {
            cells.sort_by_key(|cell| cell.workload.ops.len());
            let mut kept: BTreeMap<&str, usize> = BTreeMap::new();
            cells.retain(|cell| {
                let kept = kept.entry(cell.hints.name()).or_default();
                *kept += 1;
                *kept <= QUICK
            });
        }
        let recorded = records(recorded)?;
        let lost = cells.par_iter().map(|cell| lost(cell, &recorded));
        let lost = lost.collect::<Result<Vec<_>>>()?;
        report(run, name, &cells, &lost)?;
    }
    Ok(())
}

/// The time lost in one cell by policies that are gone, in ns. `None` where the run ended in an error.
struct Record {
    score: Option<u64>,
    cost: Option<u64>,
}

/// By the name of the cell.
fn records(csv: &str) -> Result<HashMap<&str, Record>> {
    let ns = |field: &str| match field {
        "stalled" => Ok(None),
        ns => ns
            .parse()
            .map(Some)
            .with_context(|| format!("{ns:?} is no time")),
    };
    let mut records = HashMap::new();
    for line in csv.lines().skip(1) {
        let fields: Vec<_> = line.split(',').collect();
        let &[cell, _, _, cost, score] = fields.as_slice() else {
            bail!("{line:?} is no line of a recorded sweep");
        };
        let (score, cost) = (ns(score)?, ns(cost)?);
        records.insert(cell, Record { score, cost });
    }
    Ok(records)
}

fn lost(cell: &Cell, recorded: &HashMap<&str, Record>) -> Result<Lost> {
    let record = recorded.get(cell.name.as_str());
    let record = record.with_context(|| format!("nothing is on record for {}", cell.name))?;
    let workloads = std::slice::from_ref(&cell.workload);
    let own = match Simulation::new(cell.hardware.clone()).run(workloads) {
        Ok(outcome) => Some(outcome.lost_ns()),
        Err(error) => {
            eprintln!("  {error}: {}", cell.name);
            None
        }
    };
    Ok(Lost {
        bound: fluid_bound(&cell.hardware, workloads)?.lost_ns,
        own,
        score: record.score,
        cost: record.cost,
    })
}

/// How many times the time of `other` a policy lost: endlessly many where it failed; `None` where the other one did.
fn over(own: Option<u64>, other: Option<u64>) -> Option<f64> {
    let ratio = |own: u64, other: u64| own as f64 / other.max(1) as f64;
    other.map(|other| own.map_or(f64::INFINITY, |own| ratio(own, other)))
}

#[derive(Default)]
struct HintGroup<'a> {
    failed: u32,
    own: Ratios<'a>,
    score: Ratios<'a>,
    own_over_score: Ratios<'a>,
    own_over_cost: Ratios<'a>,
}

impl<'a> HintGroup<'a> {
    fn take(&mut self, lost: &Lost, cell: &'a str) {
        self.failed += u32::from(lost.own.is_none());
        let bound = Some(lost.bound);
        let compared = [
            (&mut self.own, lost.own.and_then(|_| over(lost.own, bound))),
            (
                &mut self.score,
                lost.score.and_then(|_| over(lost.score, bound)),
            ),
            (&mut self.own_over_score, over(lost.own, lost.score)),
            (&mut self.own_over_cost, over(lost.own, lost.cost)),
        ];
        for (ratios, ratio) in compared {
            if let Some(ratio) = ratio {
                ratios.take(ratio, cell);
            }
        }
    }
}

fn report(run: &mut Run, seed: &str, cells: &[Cell], lost: &[Lost]) -> Result<()> {
    let mut groups: BTreeMap<&str, HintGroup<'_>> = BTreeMap::new();
    for (cell, lost) in cells.iter().zip(lost) {
        for hints in [cell.hints.name(), "any"] {
            groups.entry(hints).or_default().take(lost, &cell.name);
        }
    }
    for (hints, group) in &groups {
        for (policy, ratios) in [("own", &group.own), ("recorded score", &group.score)] {
            let case = format!("seed={seed}, hints={hints}, policy={policy}");
            let (worst, cell) = ratios.worst().unwrap_or_default();
            let what = [
                ("geometric mean", ratios.geometric_mean()),
                ("99th percentile", ratios.percentile(99)),
                ("worst cell", worst),
            ];
            for (what, value) in what {
                let metric = format!("simulated time lost over the bound, {what}");
                run.value(&case, &metric, "1", value)?;
            }
            eprintln!("  the worst: {cell}");
        }
        let case = format!("seed={seed}, hints={hints}, policy=own");
        run.value(&case, "runs that failed", "1", f64::from(group.failed))?;
        for (other, ratios) in [
            ("the recorded score", &group.own_over_score),
            ("the recorded cost", &group.own_over_cost),
        ] {
            let metric = format!("share of cells behind {other} by more than 2%");
            run.value(&case, &metric, "1", ratios.share_above(BEHIND))?;
            if let Some((ratio, cell)) = ratios.worst().filter(|(ratio, _)| *ratio > BEHIND) {
                eprintln!("  farthest behind {other}, {ratio:.2} x its time: {cell}");
            }
        }
        if group.failed == 0 {
            let metric = "simulated time lost over that of the recorded cost, geometric mean";
            run.value(&case, metric, "1", group.own_over_cost.geometric_mean())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_on_record() {
        for (name, seed, recorded) in SEEDS {
            let recorded = records(recorded).unwrap();
            assert_eq!(recorded.len(), CELLS);
            for cell in cells(seed, CELLS) {
                assert!(
                    recorded.contains_key(cell.name.as_str()),
                    "{name}: {}",
                    cell.name
                );
            }
        }
    }

    #[test]
    fn who_fails_is_behind_everyone_who_does_not() {
        let mut group = HintGroup::default();
        let lost = |own, score, cost| Lost {
            bound: 100,
            own,
            score,
            cost,
        };
        group.take(&lost(Some(103), Some(100), None), "a");
        group.take(&lost(None, Some(100), Some(100)), "b");
        group.take(&lost(Some(100), None, Some(200)), "c");
        assert_eq!(group.failed, 1);
        assert_eq!((group.own.count(), group.score.count()), (2, 2));
        assert_eq!(group.own_over_score.share_above(BEHIND), 1.0);
        assert_eq!(group.own_over_cost.share_above(BEHIND), 0.5);
    }
}
