//! The experiments: one file each, and one line in [`EXPERIMENTS`].

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
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
pub mod growth;
pub mod in_place;
pub mod peers;
pub mod placement;
mod raw;
pub mod regions;
pub mod shared;
pub mod store;
pub mod veloc;
pub mod volume;

/// All experiments, in the order in which they run and are reported.
pub const EXPERIMENTS: &[Experiment] = &[
    copy::EXPERIMENT,
    blocking::EXPERIMENT,
    growth::EXPERIMENT,
    alloc::GOALS,
    alloc::COLD,
    alloc::SERIAL,
    alloc::FIGURES,
    dedup::CPU,
    dedup::GPU_GOALS,
    dedup::GPU_FIGURES,
    dedup::GPU_GDV,
    dedup::GPU_SCALING,
    dedup::CODECS,
    dedup::ENGINE,
    compress::EXPERIMENT,
    placement::EXPERIMENT,
    peers::EXPERIMENT,
    veloc::EXPERIMENT,
    volume::EXPERIMENT,
    cache::EXPERIMENT,
    cache::sweep::SWEEP,
    cache::real::GOALS,
    cache::real::CELLS,
    cache::real::FIGURES,
    shared::EXPERIMENT,
    store::EXPERIMENT,
    disk::EXPERIMENT,
    commits::EXPERIMENT,
    regions::EXPERIMENT,
    in_place::EXPERIMENT,
    clients::EXPERIMENT,
];

/// A measurement that the report shows under its name.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// The name in one word; the `experiment` of its rows.
    pub name: &'static str,
    /// The description in one line.
    pub about: &'static str,
    /// True if it measures a GPU. Then it is left out where there is none, unless it was named.
    pub needs_gpu: bool,
    /// Measures. It runs in a process of its own, so memory that one experiment touched is untouched
    /// again for the next.
    pub run: fn(&mut Run) -> Result<()>,
}

/// The experiment of this name.
pub fn find(name: &str) -> Option<&'static Experiment> {
    EXPERIMENTS
        .iter()
        .find(|experiment| experiment.name == name)
}

/// A run of an experiment: its thoroughness, and its rows so far.
#[derive(Debug)]
pub struct Run {
    experiment: &'static str,
    quick: bool,
    rows: Vec<Row>,
    out: Option<PathBuf>,
}

impl Run {
    /// A run that has found nothing yet.
    pub fn new(experiment: &'static str, quick: bool) -> Self {
        Self {
            experiment,
            quick,
            rows: Vec::new(),
            out: None,
        }
    }

    /// Writes what was found so far to `path` again and again, so that little is lost if the run is ended from outside.
    #[must_use]
    pub fn writing_to(mut self, path: &Path) -> Self {
        self.out = Some(path.to_owned());
        self
    }

    /// Returns true if the run is to be done in seconds: the same work with less data and fewer rounds. All experiments together have less than two
    /// minutes then, on two cores without a GPU.
    pub fn is_quick(&self) -> bool {
        self.quick
    }

    /// Reports one `value` in `unit`. How a `case` is written decides how it is drawn, see
    /// [`Row::case`]. The row is returned so that it can be put [against](Row::against) a reference. In a quick run its case
    /// begins with `run=quick`.
    ///
    /// # Errors
    /// When `value` is no finite number.
    pub fn value(&mut self, case: &str, metric: &str, unit: &str, value: f64) -> Result<&mut Row> {
        ensure!(value.is_finite(), "{} of {case} is {value}", metric);
        eprintln!(
            "  {case}: {metric} {}",
            crate::report::units::human(value, unit)
        );
        if let Some(out) = &self.out {
            crate::report::write_rows(out, &self.rows)?;
        }
        Ok(self.rows.push_mut(Row {
            experiment: self.experiment.to_owned(),
            case: match self.quick {
                true => format!("run=quick, {case}"),
                false => case.to_owned(),
            },
            metric: metric.to_owned(),
            value,
            unit: unit.to_owned(),
            reference: None,
            ratio: None,
        }))
    }

    /// Reports one time, in ns.
    ///
    /// # Errors
    /// The errors of [`value`](Self::value).
    pub fn time(&mut self, case: &str, metric: &str, time: Duration) -> Result<&mut Row> {
        self.value(case, metric, "ns", time.as_nanos() as f64)
    }

    /// Reports repeated measurements: the median, whose row is returned, and the smallest and the largest
    /// as the metrics `… min` and `… max`.
    ///
    /// # Errors
    /// When there is no sample, or one is no finite number.
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

/// A folder on the disk that is measured: below the one that `TIERFLOW_STORE` names, else below the one for temporary files.
fn measured_folder() -> Result<TempDir> {
    Ok(match std::env::var_os("TIERFLOW_STORE") {
        Some(folder) => TempDir::new_in(folder)?,
        None => TempDir::new()?,
    })
}

/// Waits until all memory of the engine's caches is there: memory that is still being touched is another measurement.
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
