//! The experiments: one file each, and one line in [`EXPERIMENTS`].

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail, ensure};
use tempfile::TempDir;
use tierflow_engine::Engine;

use crate::report::{Row, Spread};

pub mod alloc;
pub mod blocking;
pub mod cache;
pub mod clients;
pub mod commits;
pub mod compress;
pub mod copy;
pub mod dedup;
pub mod disk;
pub mod hacc;
pub mod in_place;
pub mod peers;
pub mod placement;
mod raw;
pub mod regions;
pub mod shared;
pub mod store;
pub mod veloc;

/// All experiments, in the order in which they run and are reported: the name, a description, true if it measures a GPU, the function.
#[rustfmt::skip]
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment::new("copy", "host memory bandwidth: one copy shared by 1 to n threads, payload bytes per second", false, copy::run),
    Experiment::new("blocking", "time that a checkpoint and a restore block the application, against a plain copy", false, blocking::run),
    Experiment::new("alloc-goals", "cold start against warm, worst stall, serial pinning: each against its goal", false, alloc::goals::run),
    Experiment::new("alloc-serial", "several processes, each with a GPU of its own where there are enough: serial against parallel pinning", true, alloc::goals::run_serial),
    Experiment::new("alloc", "HiPC'22 figures 3b-6c: allocation rates and blocking by strategy, interval and processes", false, alloc::figures::run),
    Experiment::new("dedup-figures", "ICPP'23, Figures 4 and 5: ratio and end-to-end rate by workload, chunk size and checkpoints", true, dedup::gpu::figures),
    Experiment::new("dedup-gdv", "de-duplication of degree vectors on a GPU, end to end into host memory", true, dedup::gpu::degree_vectors),
    Experiment::new("dedup-scaling", "ICPP'23, Figure 6: strong scaling of degree vectors over lineages, on as many GPUs as there are", true, dedup::scaling::strong),
    Experiment::new("dedup-codecs", "compressors on the same workloads: lz4 and zstd on the CPU, nvCOMP's codecs where it is installed", false, dedup::codecs::codecs),
    Experiment::new("dedup-engine", "de-duplication of degree vectors in the engine beside its kernels alone: into pinned memory, on to disk, and back", true, dedup::engine::degree_vectors),
    Experiment::new("compress", "lossless compression in the engine: time of a history down and up, of weights, moments and noise", false, compress::run),
    Experiment::new("placement", "overflow to peers and hosts: predicted blocking time, and the time to schedule it", false, placement::run),
    Experiment::new("peers", "a skewed group checkpoint to peers and the host: predicted and real, byte for byte", false, peers::run),
    Experiment::new("veloc", "local stores before a throttled external one: calibration, and the policies side by side", false, veloc::run),
    Experiment::new("cache-goals", "blocking of the engine at the paper's size, against the fluid bound and the simulator", false, cache::real::goals::run),
    Experiment::new("hpdc", "HPDC'23, Figures 5 to 8: UVM, Score, LRU, FIFO, on demand and the engine by order, hints, interval and cache", false, cache::real::hpdc::run),
    Experiment::new("hpdc-scale", "HPDC'23, Figure 9: the hardest history in as many processes as there are GPUs, coupled and not, by approach and hints", false, cache::real::processes::run),
    Experiment::new("shared", "1 to 8 processes on one throttled directory, against the simulator of many nodes on a shared file system", false, shared::run),
    Experiment::new("hacc", "VeloC, Figures 7 and 8: 1 to 8 ranks with HACC's arrays, the run time that GenericIO's way, VELOC's interface and the engine add", false, hacc::run),
    Experiment::new("store", "durable checkpoints: 128 MiB against the disk's raw direct I/O, 4 KiB by the second", false, store::run),
    Experiment::new("disk", "the disk tier: 128 MiB checkpoints down and up against raw direct I/O, and the processor time that they take", false, disk::run),
    Experiment::new("commits", "durable 4 KiB checkpoints of 64 threads beside one write and one fdatasync for all of them", false, commits::run),
    Experiment::new("regions", "checkpoints of 10 000 regions beside one region of the same bytes, in the first cache and to disk and back", false, regions::run),
    Experiment::new("in-place", "blocking time of a checkpoint in place, by size, against one that is copied", false, in_place::run),
    Experiment::new("clients", "restores of 1 to 8 clients, as threads and processes, coupled or not, host caches private or pooled", false, clients::run),
];

/// A measurement that the report shows under its name.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// The name in one word; the `experiment` of its rows.
    pub name: &'static str,
    /// The description in one line.
    pub about: &'static str,
    /// True if the experiment measures a GPU. Without a GPU, such an experiment runs only if it is named.
    pub needs_gpu: bool,
    /// The function that measures. Each experiment runs in a process of its own, so that no experiment finds memory that an
    /// earlier one touched.
    pub run: fn(&mut Run) -> Result<()>,
}

impl Experiment {
    const fn new(
        name: &'static str,
        about: &'static str,
        needs_gpu: bool,
        run: fn(&mut Run) -> Result<()>,
    ) -> Self {
        Self {
            name,
            about,
            needs_gpu,
            run,
        }
    }
}

/// Does the work of one process of an experiment that needs several, and talks with the others by lines on its input and output.
///
/// # Errors
/// An error if `work` is not that of the experiment, when it fails, or when the parent is gone.
pub fn child(experiment: &str, work: &str) -> Result<()> {
    match experiment {
        "alloc" => alloc::child(serde_json::from_str(work)?),
        "clients" => serde_json::from_str::<clients::Client>(work)?.serve(),
        "hacc" => serde_json::from_str::<hacc::Rank>(work)?.serve(),
        "hpdc-scale" => {
            serde_json::from_str::<cache::real::processes::GpuPlayer<'_>>(work)?.serve()
        }
        "peers" => serde_json::from_str::<peers::LenderWork>(work)?.serve(),
        "shared" => serde_json::from_str::<shared::member::Member>(work)?.serve(),
        _ => bail!("{experiment} has one process"),
    }
}

/// Returns the experiment of this name.
pub fn find(name: &str) -> Option<&'static Experiment> {
    EXPERIMENTS
        .iter()
        .find(|experiment| experiment.name == name)
}

/// The metric of the row that ends a finished [cell](Run::cell): the time that the cell took.
const CELL_TOOK: &str = "cell took";

/// A run of an experiment: its thoroughness, and its rows so far.
#[derive(Debug)]
pub struct Run {
    experiment: &'static str,
    quick: bool,
    rows: Vec<Row>,
    out: Option<PathBuf>,
    /// Time at which this piece of the run ends; `None` without a limit.
    until: Option<Instant>,
    cells_left: usize,
    /// The errors of cells.
    failed: Vec<String>,
}

impl Run {
    /// Makes a run without rows.
    pub fn new(experiment: &'static str, quick: bool) -> Self {
        Self {
            experiment,
            quick,
            rows: Vec::new(),
            out: None,
            until: None,
            cells_left: 0,
            failed: Vec::new(),
        }
    }

    /// Writes the rows so far to `path` again and again, so that little is lost if the run is ended from outside. If an earlier run
    /// finished cells there, this run goes on after them: their rows stay, and [`cell`](Self::cell) does not measure them again.
    ///
    /// # Errors
    /// An error if `path` exists and holds no rows.
    pub fn writing_to(mut self, path: &Path) -> Result<Self> {
        if path.exists() {
            let is_own =
                |row: &Row| row.experiment == self.experiment && row.is_quick() == self.quick;
            let mut rows = crate::report::read_rows(path)?;
            rows.retain(is_own);
            let finished = rows.iter().rposition(|row| row.metric == CELL_TOOK);
            rows.truncate(finished.map_or(0, |last| last + 1));
            self.rows = rows;
        }
        self.out = Some(path.to_owned());
        Ok(self)
    }

    /// Sets a limit: no [cell](Self::cell) begins that is not expected to end within this time from now.
    #[must_use]
    pub fn within(mut self, time: Option<Duration>) -> Self {
        self.until = time.map(|time| Instant::now() + time);
        self
    }

    /// Measures one cell of an experiment that may run in several pieces. A cell that an earlier piece finished is not measured again. A
    /// cell that is not expected to end in this piece's time is left for the next piece. The last row of a cell has the time that the cell
    /// took, and its origin: command, machine and time. A cell that fails leaves no rows and is in [`failed`](Self::failed); the others
    /// are measured nevertheless.
    ///
    /// # Errors
    /// An error if rows cannot be written.
    pub fn cell(
        &mut self,
        name: &str,
        expected: Duration,
        measure: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let case = self.case(name);
        let mut rows = self.rows.iter();
        if rows.any(|row| row.metric == CELL_TOOK && row.case == case) {
            return Ok(());
        }
        let begun = Instant::now();
        if self.until.is_some_and(|until| begun + expected > until) {
            self.cells_left += 1;
            return Ok(());
        }
        let before = self.rows.len();
        if let Err(error) = measure(self) {
            self.rows.truncate(before);
            eprintln!("  {name}: failed: {error:#}");
            self.failed.push(format!("{name}: {error:#}"));
            return self.write();
        }
        let origin = format!(
            "experiments run {}; {}; {}",
            self.experiment,
            crate::machine::facts().join(", "),
            humantime::format_rfc3339_seconds(SystemTime::now())
        );
        self.time(name, CELL_TOOK, begun.elapsed())?.origin = Some(origin);
        self.write()
    }

    /// Returns the number of cells that this piece left for the next.
    pub fn cells_left(&self) -> usize {
        self.cells_left
    }

    /// Returns the cells that failed, each with its error.
    pub fn failed(&self) -> &[String] {
        &self.failed
    }

    fn write(&self) -> Result<()> {
        let out = self.out.as_ref();
        out.map_or(Ok(()), |out| crate::report::write_rows(out, &self.rows))
    }

    fn case(&self, case: &str) -> String {
        match self.quick {
            true => format!("run=quick, {case}"),
            false => case.to_owned(),
        }
    }

    /// Returns true if the run should take seconds only: it then does the same work with less data and fewer rounds. All quick experiments
    /// together take less than two minutes on two cores without a GPU.
    pub fn is_quick(&self) -> bool {
        self.quick
    }

    /// Reports one `value` in `unit`. The report draws the row by its `case`, see [`Row::case`]. Returns the row, so that the caller
    /// can compare it [against](Row::against) a reference. In a quick run, the case begins with `run=quick`.
    ///
    /// # Errors
    /// An error if `value` is not finite.
    pub fn value(&mut self, case: &str, metric: &str, unit: &str, value: f64) -> Result<&mut Row> {
        ensure!(value.is_finite(), "{} of {case} is {value}", metric);
        eprintln!(
            "  {case}: {metric} {}",
            crate::report::units::human(value, unit)
        );
        self.write()?;
        Ok(self.rows.push_mut(Row {
            experiment: self.experiment.to_owned(),
            case: self.case(case),
            metric: metric.to_owned(),
            value,
            unit: unit.to_owned(),
            reference: None,
            ratio: None,
            origin: None,
        }))
    }

    /// Reports one time, in ns.
    ///
    /// # Errors
    /// The errors of [`value`](Self::value).
    pub fn time(&mut self, case: &str, metric: &str, time: Duration) -> Result<&mut Row> {
        self.value(case, metric, "ns", time.as_nanos() as f64)
    }

    /// Reports repeated measurements: the median, and the smallest and the largest as the metrics `… min` and `… max`. Returns the
    /// median's row.
    ///
    /// # Errors
    /// An error if there is no sample, or one is not finite.
    pub fn samples(
        &mut self,
        case: &str,
        metric: &str,
        unit: &str,
        samples: &[f64],
    ) -> Result<&mut Row> {
        let spread = Spread::of(samples)?;
        let median = self.rows.len();
        self.value(case, metric, unit, spread.median)?;
        self.value(case, &format!("{metric} min"), unit, spread.min)?;
        self.value(case, &format!("{metric} max"), unit, spread.max)?;
        Ok(&mut self.rows[median])
    }

    /// Returns the rows.
    pub fn into_rows(self) -> Vec<Row> {
        self.rows
    }
}

/// Makes a folder on the measured disk: below the folder that `TIERFLOW_STORE` names, or else below that for temporary files.
fn measured_folder() -> Result<TempDir> {
    Ok(match std::env::var_os("TIERFLOW_STORE") {
        Some(folder) => TempDir::new_in(folder)?,
        None => TempDir::new()?,
    })
}

/// Waits until all memory of the engine's caches is touched, as growing caches would be another measurement.
fn wait_grown(engine: &Engine) {
    let is_grown = || {
        let device = engine.reports().device;
        let host = engine.reports().host;
        device.is_none_or(|device| device.finished) && host.is_none_or(|host| host.finished)
    };
    while !is_grown() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_single_words_and_unique() {
        for (at, experiment) in EXPERIMENTS.iter().enumerate() {
            let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(experiment.name.chars().all(is_word), "{}", experiment.name);
            assert!(
                !EXPERIMENTS[..at]
                    .iter()
                    .any(|earlier| earlier.name == experiment.name)
            );
        }
    }

    #[test]
    fn samples_become_three_rows_and_the_median_has_the_reference() {
        let mut run = Run::new("copy", true);
        run.samples("threads=1", "bandwidth", "bytes/s", &[3.0, 1.0, 2.0])
            .unwrap()
            .against(4.0);
        let rows = run.into_rows();
        let found: Vec<_> = rows
            .iter()
            .map(|row| (row.metric.as_str(), row.value, row.ratio))
            .collect();
        assert_eq!(
            found,
            [
                ("bandwidth", 2.0, Some(0.5)),
                ("bandwidth min", 1.0, None),
                ("bandwidth max", 3.0, None)
            ]
        );
    }

    #[test]
    fn rows_of_a_quick_run_say_so() {
        for (quick, case) in [(true, "run=quick, a=1"), (false, "a=1")] {
            let mut run = Run::new("copy", quick);
            run.time("a=1", "time", Duration::from_micros(2)).unwrap();
            let rows = run.into_rows();
            assert_eq!((&*rows[0].case, rows[0].value), (case, 2000.0));
        }
    }

    /// Measures these cells in one piece of a run, the second of which fails if `fails`. Returns the names of the cells measured.
    fn piece(
        path: &Path,
        time: Option<Duration>,
        fails: bool,
    ) -> Result<(Vec<&'static str>, usize)> {
        let mut run = Run::new("copy", false).writing_to(path)?.within(time);
        let mut measured = Vec::new();
        for (name, seconds) in [("n=1", 1), ("n=2", 5), ("n=3", 1)] {
            let expected = Duration::from_secs(seconds);
            let cell = run.cell(name, expected, |run| {
                run.value(name, "work", "1", 1.0)?;
                ensure!(!(fails && name == "n=2"), "the machine was taken away");
                measured.push(name);
                Ok(())
            });
            cell?;
        }
        let failed = run.failed().iter().map(|failed| &failed[..3]);
        assert_eq!(
            failed.collect::<Vec<_>>(),
            if fails { vec!["n=2"] } else { vec![] }
        );
        Ok((measured, run.cells_left()))
    }

    #[test]
    fn a_run_in_pieces_measures_each_cell_once_and_names_its_origin() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy.rows.json");
        let short = Some(Duration::from_secs(3));
        assert_eq!(piece(&path, short, false).unwrap(), (vec!["n=1", "n=3"], 1));
        assert_eq!(piece(&path, None, true).unwrap(), (vec![], 0));
        assert_eq!(piece(&path, None, false).unwrap(), (vec!["n=2"], 0));
        assert_eq!(piece(&path, None, false).unwrap(), (vec![], 0));
        let rows = crate::report::read_rows(&path).unwrap();
        let work = rows.iter().filter(|row| row.metric == "work");
        assert_eq!(work.count(), 3, "an unfinished cell leaves no row behind");
        let origins = rows.iter().filter_map(|row| row.origin.as_deref());
        let origins: Vec<_> = origins.collect();
        assert_eq!(origins.len(), 3);
        assert!(origins.iter().all(|origin| origin.starts_with("experiments run copy; ") && origin.ends_with('Z')));
    }

    #[test]
    fn a_value_that_json_cannot_hold_is_an_error() {
        assert!(
            Run::new("copy", true)
                .value("a=1", "time", "ns", f64::NAN)
                .is_err()
        );
        assert!(
            Run::new("copy", true)
                .samples("a=1", "time", "ns", &[])
                .is_err()
        );
    }
}
