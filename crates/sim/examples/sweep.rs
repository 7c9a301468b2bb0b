//! Runs policies over a sweep: `cargo run --release -p tierflow-sim --example sweep -- SEED COUNT POLICY…`.
//!
//! One CSV row for each cell and policy goes to the standard output, a summary to the standard error. Where a run ends in
//! an error, that stands in place of the time lost. `TIERFLOW_TRACES` names a folder of recorded sizes, one CSV file
//! with the columns `version,bytes` for each shot, in place of the made-up ones.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tierflow_evict::{Cost, Fifo, Lru, Score};
use tierflow_sim::sweep::{Cell, Ratios, cells_with};
use tierflow_sim::{Hardware, Outcome, Simulation, UNLIMITED, fluid_bound, sizes_from_csv};

/// A policy's name, and how a simulation is told to use it.
type NamedPolicy = (&'static str, fn(Simulation) -> Simulation);

const POLICIES: [NamedPolicy; 4] = [
    ("cost", |simulation| simulation.policy(Cost::default)),
    ("score", |simulation| simulation.policy(|| Score)),
    ("fifo", |simulation| simulation.policy(Fifo::default)),
    ("lru", |simulation| simulation.policy(Lru::default)),
];

/// Cells that are run at a time.
const THREADS: usize = 2;

/// What came of one cell: the bound in ns, and by policy the outcome.
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
    let cells = cells_with(seed.parse()?, count.parse()?, &recorded()?);
    let ran = run_all(&cells, &policies);
    write_rows(&cells, &policies, &ran)?;
    for (at, (policy, _)) in policies.iter().enumerate() {
        summarise(&cells, policy, at, &ran);
    }
    Ok(())
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

/// By cell.
fn run_all(cells: &[Cell], policies: &[NamedPolicy]) -> Vec<Result<Ran, String>> {
    let next = AtomicUsize::new(0);
    let ran = Mutex::new(BTreeMap::new());
    let work = || {
        while let Some((at, cell)) = numbered(cells, next.fetch_add(1, Ordering::Relaxed)) {
            let result = run_one(cell, policies);
            let mut ran = ran.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            ran.insert(at, result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
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
        let simulation = choose(Simulation::new(cell.hardware.clone()));
        simulation.run(workloads).map_err(text)
    });
    Ok(Ran {
        bound_ns: bound.lost_ns,
        outcomes: outcomes.collect(),
    })
}

/// An error as one field of a row.
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

/// Bytes of all tiers that do not hold everything.
fn room(hardware: &Hardware) -> u64 {
    let capacities = hardware.tiers.iter().map(|tier| tier.capacity);
    capacities.filter(|&capacity| capacity != UNLIMITED).sum()
}

/// What a policy loses over the bound, by hints, over all, and over all whose bytes do not fit into the caches.
fn summarise(cells: &[Cell], policy: &str, at: usize, ran: &[Result<Ran, String>]) {
    let mut ratios: BTreeMap<&str, Ratios<'_>> = BTreeMap::new();
    let (mut failed, mut below) = (0, 0);
    for (cell, ran) in cells.iter().zip(ran) {
        let outcome = ran
            .as_ref()
            .ok()
            .and_then(|ran| Some((ran.bound_ns, ran.outcomes.get(at)?.as_ref().ok()?)));
        let Some((bound_ns, outcome)) = outcome else {
            failed += 1;
            continue;
        };
        below += usize::from(outcome.lost_ns() < bound_ns);
        let ratio = outcome.lost_ns() as f64 / bound_ns.max(1) as f64;
        let overflows = (cell.workload.bytes() > room(&cell.hardware)).then_some("overflow");
        for kind in [cell.hints.name(), "over all"].into_iter().chain(overflows) {
            ratios.entry(kind).or_default().take(ratio, &cell.name);
        }
    }
    eprintln!("{policy}: {failed} failed, {below} below the bound; lost over the bound:");
    for (kind, ratios) in ratios {
        let (worst, cell) = ratios.worst().unwrap_or_default();
        eprintln!(
            "  {kind:8} {:4} cells, geometric mean {:.3}, 99th percentile {:.3}, worst {worst:.3} in {cell}",
            ratios.count(),
            ratios.geometric_mean(),
            ratios.percentile(99),
        );
    }
}
