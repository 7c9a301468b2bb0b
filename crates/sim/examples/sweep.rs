//! Runs policies over a sweep: `cargo run --release -p tierflow-sim --example sweep -- SEED COUNT POLICY…`.
//!
//! The example prints a CSV row for each cell and policy to the standard output, and a summary to the standard error. A run that ends in
//! an error has its message in place of the lost time. `TIERFLOW_TRACES` names a folder of recorded sizes in place of the synthetic ones,
//! with a CSV file for each shot and the columns `version,bytes`. With `TIERFLOW_CHECK=1` the example checks the plan's invariants after
//! every event. `TIERFLOW_CELLS` restricts the sweep to cells whose names contain its value. `TIERFLOW_WIDE=1` draws wide cells. After
//! `TIERFLOW_SECONDS` no further cell begins. `TIERFLOW_TIMELINE` names a file for the time line of each run, which the next run
//! overwrites: use it with one cell and one policy.
//!
//! The summary compares the first policy with the best of the others. If figures of the seed were recorded in `data/`, it compares with
//! them, too.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fmt::Display;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tierflow_plan::timeline::Timeline;
use tierflow_plan::{Fifo, Lru, Residency, Score};
use tierflow_sim::sweep::{Cell, Ratios, cells_with, wide_cells};
use tierflow_sim::{
    Hardware, Outcome, Simulation, Stalls, UNLIMITED, Workload, fluid_bound, sizes_from_csv,
};

/// A policy's name, and a function that makes a simulation use it.
type NamedPolicy = (&'static str, fn(Simulation) -> Simulation);

const POLICIES: [NamedPolicy; 4] = [
    ("residency", |simulation| simulation.policy(|| Residency)),
    ("score", |simulation| simulation.policy(|| Score)),
    ("fifo", |simulation| simulation.policy(|| Fifo)),
    ("lru", |simulation| simulation.policy(|| Lru)),
];

/// The outcome of one cell: the bound in ns, and the outcome of each policy.
struct Ran {
    bound_ns: u64,
    outcomes: Vec<Result<Outcome, String>>,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(seed), Some(count)) = (arguments.next(), arguments.next()) else {
        return Err("which seed, how many cells, and which policies?".into());
    };
    let named = |name: String| {
        let found = POLICIES.into_iter().find(|policy| policy.0 == name);
        found.ok_or_else(|| format!("there is no policy {name:?}"))
    };
    let policies = arguments.map(named).collect::<Result<Vec<_>, _>>()?;
    let seed = seed.parse()?;
    let count = count.parse()?;
    let is_wide = std::env::var_os("TIERFLOW_WIDE").is_some_and(|wide| wide == "1");
    let mut cells = match is_wide {
        true => wide_cells(seed, count),
        false => cells_with(seed, count, &recorded()?),
    };
    if let Ok(part) = std::env::var("TIERFLOW_CELLS") {
        cells.retain(|cell| cell.name.contains(&part));
    }
    let baseline = match is_wide {
        true => Baseline::default(),
        false => Baseline::of(seed)?,
    };
    let ran = run_all(&cells, &policies);
    write_rows(&cells, &policies, &ran)?;
    for (at, (policy, _)) in policies.iter().enumerate() {
        summarise(&cells, policy, &outcomes(&ran, at), &baseline);
    }
    compare(&cells, &policies, &ran);
    Ok(())
}

/// Prints how often the first policy is behind the best of the others.
fn compare(cells: &[Cell], policies: &[NamedPolicy], ran: &[Result<Ran, String>]) {
    let Some(((first, _), others @ [_, ..])) = policies.split_first() else {
        return;
    };
    let mut kinds: BTreeMap<&str, Ratios<'_>> = BTreeMap::new();
    for (cell, ran) in cells.iter().zip(ran) {
        let lost = |policy| Some(outcome(ran, policy).ok()?.1.lost_ns().max(1) as f64);
        let best = (1..=others.len()).filter_map(lost).min_by(f64::total_cmp);
        if let (Some(own), Some(best)) = (lost(0), best) {
            let kind = kinds.entry(cell.hints.name()).or_default();
            kind.take(own / best, &cell.name);
        }
    }
    eprintln!("{first} over the best of the others:");
    for (kind, ratios) in kinds {
        let (worst, cell) = ratios.worst().unwrap_or_default();
        eprintln!(
            "  {kind:8} {:4} cells, geometric mean {:.3}, behind by more than 2% in {:.1}%, worst {worst:.3} in {cell}",
            ratios.count(),
            ratios.geometric_mean(),
            100.0 * ratios.share_above(1.02),
        );
    }
}

fn recorded() -> Result<Vec<Vec<u64>>, Box<dyn Error>> {
    let Some(folder) = std::env::var_os("TIERFLOW_TRACES") else {
        return Ok(Vec::new());
    };
    let entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let mut paths: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|own| own == "csv"));
    paths.sort();
    let read = |path| Ok(sizes_from_csv(&std::fs::read_to_string(path)?)?);
    paths.iter().map(read).collect()
}

/// Runs the policies on all cells. Returns the outcomes in the order of the cells.
fn run_all(cells: &[Cell], policies: &[NamedPolicy]) -> Vec<Result<Ran, String>> {
    let next = AtomicUsize::new(0);
    let ran = Mutex::new(BTreeMap::new());
    let seconds = std::env::var("TIERFLOW_SECONDS").ok();
    let seconds = seconds.and_then(|seconds| seconds.parse().ok());
    let limit = seconds.map_or(Duration::MAX, Duration::from_secs);
    let began = Instant::now();
    let work = || {
        while let Some((at, cell)) = numbered(cells, next.fetch_add(1, Ordering::Relaxed)) {
            let result = match began.elapsed() < limit {
                true => run_one(cell, policies),
                false => Err("not run".to_owned()),
            };
            let mut ran = ran.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            ran.insert(at, result);
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let ran = ran
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    ran.into_values().collect()
}

fn numbered(cells: &[Cell], at: usize) -> Option<(usize, &Cell)> {
    cells.get(at).map(|cell| (at, cell))
}

fn run_one(cell: &Cell, policies: &[NamedPolicy]) -> Result<Ran, String> {
    let workloads = std::slice::from_ref(&cell.workload);
    let bound = fluid_bound(&cell.hardware, workloads).map_err(text)?;
    let outcomes = policies.iter().map(|(_, choose)| {
        let mut simulation = choose(Simulation::new(cell.hardware.clone()));
        if std::env::var_os("TIERFLOW_CHECK").is_some_and(|checks| checks == "1") {
            simulation = simulation.check_every_event();
        }
        let run = || match std::env::var_os("TIERFLOW_TIMELINE") {
            Some(path) => run_recorded(&simulation, workloads, path.as_ref()),
            None => simulation.run(workloads).map_err(text),
        };
        let ran = catch_unwind(AssertUnwindSafe(run));
        match ran {
            Ok(outcome) => outcome,
            Err(_) => Err("a panic".to_owned()),
        }
    });
    Ok(Ran {
        bound_ns: bound.lost_ns,
        outcomes: outcomes.collect(),
    })
}

fn run_recorded(
    simulation: &Simulation,
    workloads: &[Workload],
    path: &Path,
) -> Result<Outcome, String> {
    const EVENTS: usize = 1 << 20;
    let mut timeline = Timeline::new(EVENTS);
    let outcome = simulation.run_with_timeline(workloads, &mut timeline);
    let outcome = outcome.map_err(text)?;
    let file = File::create(path).map_err(text)?;
    timeline.write(BufWriter::new(file)).map_err(text)?;
    Ok(outcome)
}

/// Returns an error's text as one field of a row.
fn text(error: impl Display) -> String {
    error.to_string().replace(',', ";")
}

fn write_rows(
    cells: &[Cell],
    policies: &[NamedPolicy],
    ran: &[Result<Ran, String>],
) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "cell,hints,bound_ns,policy,lost_ns,evictions,moved_bytes"
    )?;
    for (Cell { name, hints, .. }, ran) in cells.iter().zip(ran) {
        let hints = hints.name();
        let ran = match ran {
            Ok(ran) => ran,
            Err(error) => {
                writeln!(out, "{name},{hints},{error},,,,")?;
                continue;
            }
        };
        for ((policy, _), outcome) in policies.iter().zip(&ran.outcomes) {
            write!(out, "{name},{hints},{},{policy},", ran.bound_ns)?;
            match outcome {
                Ok(outcome) => {
                    let clients = outcome.clients.iter();
                    let hops = outcome
                        .clients
                        .iter()
                        .flat_map(|client| &client.statistics.hops);
                    let evictions: u64 = clients.map(|client| client.evictions()).sum();
                    let moved: u64 = hops.map(|hop| hop.bytes).sum();
                    writeln!(out, "{},{evictions},{moved}", outcome.lost_ns())?;
                }
                Err(error) => writeln!(out, "{error},,")?,
            }
        }
    }
    out.flush()
}

/// Returns the bytes of all tiers with a limit.
fn room(hardware: &Hardware) -> u64 {
    let capacities = hardware.tiers.iter().map(|tier| tier.capacity);
    capacities.filter(|&capacity| capacity != UNLIMITED).sum()
}

/// The bound in ns and the outcome of one policy for each cell.
type Outcomes<'a> = Vec<Result<(u64, &'a Outcome), &'a str>>;

fn outcomes(ran: &[Result<Ran, String>], policy: usize) -> Outcomes<'_> {
    ran.iter().map(|ran| outcome(ran, policy)).collect()
}

fn outcome(ran: &Result<Ran, String>, policy: usize) -> Result<(u64, &Outcome), &str> {
    let ran = ran.as_ref().map_err(String::as_str)?;
    let outcome = ran.outcomes[policy].as_ref().map_err(String::as_str)?;
    Ok((ran.bound_ns, outcome))
}

/// The ns that earlier policies lost, by cell.
#[derive(Default)]
struct Baseline {
    policies: Vec<String>,
    cells: HashMap<String, Vec<Option<f64>>>,
}

impl Baseline {
    /// Reads the figures recorded for a seed; empty if there are none.
    fn of(seed: u64) -> Result<Self, Box<dyn Error>> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
        let path = format!("{folder}/sweep-baseline-{seed}.csv");
        if !std::fs::exists(&path)? {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(path)?;
        let mut lines = text.lines().map(|line| line.split(','));
        let heading = lines.next().into_iter().flatten().skip(3);
        let policies = heading.map(|name| name.trim_end_matches("_lost_ns").to_owned());
        let cells = lines.filter_map(|mut line| {
            let name = line.next()?.to_owned();
            Some((name, line.skip(2).map(|lost| lost.parse().ok()).collect()))
        });
        Ok(Self {
            policies: policies.collect(),
            cells: cells.collect(),
        })
    }

    /// Returns the ns that one of the policies lost, unless it failed.
    fn lost_ns(&self, cell: &str, policy: usize) -> Option<f64> {
        self.cells.get(cell)?.get(policy).copied()?
    }
}

/// The ratios of one kind of cells: to the bound, and to each policy of the baseline.
#[derive(Default)]
struct Kind<'a> {
    bound: Ratios<'a>,
    baseline: Vec<Ratios<'a>>,
}

impl<'a> Kind<'a> {
    fn take(&mut self, cell: &'a str, lost_ns: f64, bound_ns: f64, baseline: &Baseline) {
        self.bound.take(lost_ns / bound_ns, cell);
        self.baseline
            .resize_with(baseline.policies.len(), Ratios::default);
        for (policy, ratios) in self.baseline.iter_mut().enumerate() {
            if let Some(theirs) = baseline.lost_ns(cell, policy) {
                ratios.take(lost_ns / theirs.max(1.0), cell);
            }
        }
    }
}

/// Number of the worst cells that are named.
const WORST: usize = 12;

/// Prints the ratio of the time that a policy loses to the bound and to the baseline: by hints, over all cells, and over the cells whose
/// bytes do not fit into the caches.
fn summarise(cells: &[Cell], policy: &str, outcomes: &Outcomes<'_>, baseline: &Baseline) {
    let mut kinds: BTreeMap<&str, Kind<'_>> = BTreeMap::new();
    let mut worst = Vec::new();
    let mut below = 0;
    for (cell, outcome) in cells.iter().zip(outcomes) {
        let &Ok((bound_ns, outcome)) = outcome else {
            continue;
        };
        below += usize::from(outcome.lost_ns() < bound_ns);
        let (lost, bound) = (outcome.lost_ns() as f64, bound_ns.max(1) as f64);
        worst.push((lost / bound, outcome, &cell.name));
        let overflows = (cell.workload.bytes() > room(&cell.hardware)).then_some("overflow");
        for kind in [cell.hints.name(), "over all"].into_iter().chain(overflows) {
            let kind = kinds.entry(kind).or_default();
            kind.take(&cell.name, lost, bound, baseline);
        }
    }
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    eprintln!("{policy}: {failed} failed, {below} below the bound; lost over the bound:");
    for (kind, Kind { bound, .. }) in &kinds {
        eprintln!(
            "  {kind:8} {:4} cells, geometric mean {:.3}, mean {:.3}, within 1.10 {:.1}%, 99th percentile {:.3}, worst {:.3}",
            bound.count(),
            bound.geometric_mean(),
            bound.mean(),
            100.0 * (1.0 - bound.share_above(1.10)),
            bound.percentile(99),
            bound.worst().map_or(0.0, |(ratio, _)| ratio),
        );
    }
    for (at, theirs) in baseline.policies.iter().enumerate() {
        eprintln!("{policy} over the recorded {theirs}:");
        for (kind, Kind { baseline, .. }) in &kinds {
            let ratios = &baseline[at];
            let (worst, cell) = ratios.worst().unwrap_or_default();
            eprintln!(
                "  {kind:8} {:4} cells, geometric mean {:.3}, behind by more than 2% in {:.1}%, worst {worst:.3} in {cell}",
                ratios.count(),
                ratios.geometric_mean(),
                100.0 * ratios.share_above(1.02),
            );
        }
    }
    worst.sort_by(|a, b| b.0.total_cmp(&a.0));
    eprintln!("{policy}, the worst over the bound:");
    for (ratio, outcome, cell) in worst.into_iter().take(WORST) {
        let theirs = (0..baseline.policies.len()).map(|at| {
            let lost_ns = baseline.lost_ns(cell, at);
            format!(", {} {}", baseline.policies[at], seconds(lost_ns))
        });
        let theirs: String = theirs.collect();
        eprintln!("  {ratio:.3}: {}{theirs} in {cell}", causes(outcome));
    }
    for (cell, outcome) in cells.iter().zip(outcomes) {
        if let Err(error) = outcome
            && *error != "not run"
        {
            eprintln!("{policy} failed: {error} in {}", cell.name);
        }
    }
}

/// Returns the lost time, and the causes of most of it.
fn causes(outcome: &Outcome) -> String {
    let sum = |of: fn(&Stalls) -> u64| {
        let each = outcome.clients.iter().map(|client| of(&client.stalls));
        seconds(Some(each.sum::<u64>() as f64))
    };
    format!(
        "{} (room {}, arrival {}, restores from below {}, flushes {})",
        seconds(Some(outcome.lost_ns() as f64)),
        sum(|stalls| stalls.room_ns),
        sum(|stalls| stalls.arrival_ns),
        sum(|stalls| stalls.restore_from_below_ns),
        sum(|stalls| stalls.flush_ns),
    )
}

fn seconds(ns: Option<f64>) -> String {
    ns.map_or("failed".to_owned(), |ns| format!("{:.2} s", ns / 1e9))
}
