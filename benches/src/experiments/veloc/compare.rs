//! The policies in turn, round after round, and the time of each divided by that of HybridNaive in the same round.

use std::collections::BTreeMap;

use crate::papers::veloc::{CacheOnly, HybridNaive, HybridOpt, HybridRoom, SsdOnly};
use anyhow::Result;
use tierflow_placement::stores::{ShortestWait, StorePolicy};

use super::checkpoint::{Phases, Rival, data};
use super::stores::StoreMachine;
use crate::experiments::Run;
use crate::report::{Spread, ratios};

/// The goal for all cases: at most 3% slower than the naive policy.
const NOT_SLOWER: f64 = 0.97;
/// The goal if flushes are faster than the disk: at least this many times as fast as the naive policy.
const FASTER: f64 = 1.2;

/// The policy that the others are compared with. The naive policy runs twice, and the difference of the two is noise.
const NAIVE: &str = "hybrid-naive";
const CONTROL: &str = "hybrid-naive again";

/// A point of a figure.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) figure: &'static str,
    pub(super) writers: usize,
    pub(super) chunks_each: usize,
    pub(super) cache_chunks: usize,
    /// The external bandwidth divided by the disk's.
    pub(super) times: f64,
    /// The key and the value on the figure's axis.
    pub(super) last: (&'static str, usize),
}

/// The comparisons of each policy with the naive one, over the cases of a machine.
#[derive(Default)]
pub(super) struct Tally {
    ratios: BTreeMap<&'static str, Vec<f64>>,
}

struct Contender {
    name: &'static str,
    rival: Rival,
    /// The times of each round.
    took: Vec<Phases>,
}

/// Returns each policy with its name and the rounds in which it takes part: 1 is every round, 3 every third (the best and the worst case).
fn policies() -> [(&'static str, Box<dyn StorePolicy>, usize); 7] {
    [
        (NAIVE, Box::new(HybridNaive), 1),
        (HybridOpt.name(), Box::new(HybridOpt), 1),
        (HybridRoom.name(), Box::new(HybridRoom), 1),
        (ShortestWait.name(), Box::new(ShortestWait), 1),
        (CONTROL, Box::new(HybridNaive), 1),
        (CacheOnly.name(), Box::new(CacheOnly), 3),
        (SsdOnly.name(), Box::new(SsdOnly), 3),
    ]
}

/// Lets the policies checkpoint in turn, and reports each.
pub(super) fn compare(
    run: &mut Run,
    machine: &StoreMachine,
    case: &Case,
    tally: &mut Tally,
) -> Result<()> {
    let rounds = if run.is_quick() { 3 } else { 9 };
    let mut contenders = Vec::new();
    for (name, policy, every) in policies() {
        let contender = Contender {
            name,
            rival: Rival::new(machine, case, policy)?,
            took: Vec::new(),
        };
        contenders.push((contender, every));
    }
    let data = data(case.writers * case.chunks_each * machine.chunk);
    // In the first round no flush has been measured yet, so it does not count.
    for round in 0..=rounds {
        for turn in 0..contenders.len() {
            // In odd rounds the order is reversed, so that no policy always follows the same one.
            let at = match round % 2 {
                0 => turn + round,
                _ => round + contenders.len() - turn,
            };
            let at = at % contenders.len();
            let (contender, every) = &mut contenders[at];
            if round % *every > 0 {
                continue;
            }
            let took = contender.rival.checkpoint(case, data.bytes())?;
            if round > 0 {
                contender.took.push(took);
            }
        }
    }
    let naive = contenders.iter().find(|(rival, _)| rival.name == NAIVE);
    let naive: Vec<f64> = naive.map_or_else(Vec::new, |(naive, _)| naive.each(|took| took.local));
    for (contender, every) in &contenders {
        contender.rival.is_whole(data.bytes())?;
        contender.report(run, machine, case)?;
        if *every > 1 {
            continue;
        }
        let local = contender.each(|took| took.local);
        let ratios = ratios(&naive, &local);
        let name = contender.case(machine, case);
        let row = run.samples(&name, "hybrid-naive over this", "1", &ratios)?;
        if contender.name == HybridRoom.name() || contender.name == ShortestWait.name() {
            row.against(if case.times > 1.0 { FASTER } else { NOT_SLOWER });
        }
        if contender.name != NAIVE {
            let all = tally.ratios.entry(contender.name).or_default();
            all.push(Spread::of(&ratios)?.median);
        }
    }
    Ok(())
}

impl Contender {
    fn each(&self, what: fn(&Phases) -> f64) -> Vec<f64> {
        self.took.iter().map(what).collect()
    }

    fn case(&self, machine: &StoreMachine, case: &Case) -> String {
        let (over, point) = case.last;
        format!(
            "figure={}, store={}, external={} × disk (throttled), policy={}, {over}={point}",
            case.figure,
            machine.disk_name(),
            case.times,
            self.name
        )
    }

    fn report(&self, run: &mut Run, machine: &StoreMachine, case: &Case) -> Result<()> {
        let name = self.case(machine, case);
        let samples = |what: fn(&Phases) -> f64| self.each(what);
        let local = samples(|took| took.local);
        run.samples(&name, "local phase", "ns", &local)?;
        let chunks = case.writers * case.chunks_each;
        let cached = if self.name == CacheOnly.name() {
            chunks
        } else {
            case.cache_chunks
        };
        let bound = machine.bound(case.writers, chunks, cached, case.times);
        let over = Spread::of(&local)?.median / bound;
        run.value(&name, "local phase over the bound", "1", over)?;
        run.samples(&name, "until flushed", "ns", &samples(|took| took.whole))?;
        let to_disk = samples(|took| took.to_disk);
        run.samples(&name, "chunks to disk", "1", &to_disk)?;
        Ok(())
    }
}

impl Tally {
    /// Reports over all cases how often the median ratio misses the goal for all cases, the worst ratio, and the mean.
    pub(super) fn report(&self, run: &mut Run, machine: &StoreMachine) -> Result<()> {
        for (policy, ratios) in &self.ratios {
            let case = format!("store={}, policy={policy}", machine.disk_name());
            let slower = ratios.iter().filter(|ratio| **ratio < NOT_SLOWER).count();
            run.value(&case, "cases", "1", ratios.len() as f64)?;
            let metric = "cases slower than hybrid-naive by more than 3%";
            run.value(&case, metric, "1", slower as f64)?;
            let least = Spread::of(ratios)?.min;
            let row = run.value(&case, "hybrid-naive over this, worst case", "1", least)?;
            row.against(NOT_SLOWER);
            let mean = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64;
            let metric = "hybrid-naive over this, geometric mean";
            run.value(&case, metric, "1", mean.exp())?;
        }
        Ok(())
    }
}
