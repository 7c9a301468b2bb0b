//! The report: rows in; `report.json`, the page and tables in Markdown out. docs/src/report.md describes it.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use tierflow_store::replace_file;

mod chart;
mod figures;
mod page;
mod query;
pub mod units;

pub use figures::{index, stale};
pub use page::{table, write};

/// A figure. `report.json` is an array of rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The experiment's name.
    pub experiment: String,
    /// The varied parameters, as `key=value` pairs separated by `, `.
    pub case: String,
    /// The name of the measurement. `m`, `m min` and `m max` are the median and the extremes of one metric.
    pub metric: String,
    /// The figure itself, in `unit`.
    pub value: f64,
    /// `ns`, `bytes`, `bytes/s`, `1` for a plain number, or any other word.
    pub unit: String,
    /// The value to compare with, in `unit`: a physical limit, a paper's figure, or a goal.
    pub reference: Option<f64>,
    /// `value / reference`.
    pub ratio: Option<f64>,
    /// The command, the machine and the time, on the row that ends a cell of an experiment in pieces; else the kept report's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

impl Row {
    /// Returns true if a quick run measured the row.
    pub fn is_quick(&self) -> bool {
        self.case.starts_with("run=quick")
    }

    /// Compares the value with `reference`, which has the same unit. A reference of 0, or one that is not finite, is left out.
    pub fn against(&mut self, reference: f64) {
        if reference.is_finite() && reference != 0.0 {
            self.reference = Some(reference);
            self.ratio = Some(self.value / reference);
        }
    }
}

/// The median and the extremes of repeated measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The smallest sample.
    pub min: f64,
    /// The middle sample, or the mean of the two in the middle.
    pub median: f64,
    /// The largest sample.
    pub max: f64,
}

impl Spread {
    /// # Errors
    /// An error if there is no sample, or one is not finite.
    pub fn of(samples: &[f64]) -> Result<Self> {
        let is_finite = samples.iter().all(|sample| sample.is_finite());
        ensure!(is_finite, "samples not finite: {samples:?}");
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = sorted.first().zip(sorted.last()).context("no samples")?;
        let below = (sorted.len() - 1) / 2;
        let median = sorted[below].midpoint(sorted[sorted.len() / 2]);
        let (min, max) = (*min, *max);
        Ok(Self { min, median, max })
    }
}

/// Returns each value of `ours` divided by that of `theirs` at the same index. The two are of the same round, in which other load of the
/// machine affects both.
pub fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    let pairs = ours.iter().zip(theirs);
    pairs.map(|(ours, theirs)| ours / theirs).collect()
}

/// Writes rows as JSON, one a line.
///
/// # Errors
/// An error if the file cannot be written.
pub fn write_rows(path: &Path, rows: &[Row]) -> Result<()> {
    let lines = rows.iter().map(serde_json::to_string);
    let lines = lines.collect::<serde_json::Result<Vec<_>>>()?.join(",\n");
    // A run that is ended from outside leaves either the old file or the new one.
    let written = replace_file(path, format!("[\n{lines}\n]\n").as_bytes(), false);
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Reads rows that [`write_rows`] wrote.
///
/// # Errors
/// An error if the file cannot be read or has another schema.
pub fn read_rows(path: &Path) -> Result<Vec<Row>> {
    let json =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&json).with_context(|| format!("{} has another schema", path.display()))
}

/// Reads a report that is kept with the book. The rows have the report's name (a machine and a date) as their origin.
///
/// # Errors
/// The errors of [`read_rows`].
pub fn read_kept(path: &Path) -> Result<Vec<Row>> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut rows = read_rows(path)?;
    rows.iter_mut()
        .for_each(|row| row.origin = Some(name.clone().into_owned()));
    Ok(rows)
}

/// Puts `rows`, rounded to four digits, into a kept report, in place of its rows of the same experiments. If `metrics` are named, only
/// these with their extremes are kept. A missing report is created.
///
/// # Errors
/// An error if the report cannot be read or written, or no row has a named metric.
pub fn keep(report: &Path, mut rows: Vec<Row>, metrics: &[String]) -> Result<()> {
    let mut kept = match report.exists() {
        true => read_rows(report)?,
        false => Vec::new(),
    };
    for metric in metrics {
        let mut all = rows.iter().map(|row| row.metric.as_str());
        ensure!(
            all.any(|own| query::is_of(own, metric)),
            "no row has the metric {metric:?}: name one of {:?}",
            rows.iter().map(|row| &row.metric).collect::<BTreeSet<_>>()
        );
    }
    rows.retain(|row| {
        metrics.is_empty() || metrics.iter().any(|one| query::is_of(&row.metric, one))
    });
    kept.retain(|own| rows.iter().all(|row| row.experiment != own.experiment));
    let four = |value: f64| format!("{value:.3e}").parse().unwrap_or(value);
    kept.extend(rows.into_iter().map(|row| Row {
        value: four(row.value),
        reference: row.reference.map(four),
        ratio: row.ratio.map(four),
        ..row
    }));
    write_rows(report, &kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::Run;

    fn rows(experiment: &'static str, value: f64) -> Vec<Row> {
        let mut run = Run::new(experiment, false);
        run.samples("a=1", "time", "ns", &[value])
            .unwrap()
            .against(3.0);
        run.value("a=1", "timeouts", "1", 7.0).unwrap().against(0.0);
        run.into_rows()
    }

    /// The example in the schema's description must equal the written file byte for byte.
    #[test]
    fn the_documented_example_is_what_is_written() {
        let page = include_str!("../../docs/src/report.md");
        let example = page.split("```json\n").nth(1).unwrap();
        let example = example.split("```").next().unwrap();
        let mut run = Run::new("copy", false);
        run.value("threads=1", "bandwidth", "bytes/s", 1.25e10)
            .unwrap();
        run.value("threads=4", "bandwidth", "bytes/s", 2.5e10)
            .unwrap()
            .against(5e10);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        let rows = run.into_rows();
        write_rows(&path, &rows).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), example);
        assert_eq!(read_rows(&path).unwrap(), rows);
    }

    #[test]
    fn an_experiments_rows_are_replaced_and_rounded() {
        let folder = tempfile::tempdir().unwrap();
        let report = folder.path().join("here-2026-01-02.json");
        let all = [rows("copy", 1.0), rows("disk", 2.0)].concat();
        keep(&report, all, &[]).unwrap();
        keep(&report, rows("copy", 12345.6), &["time".to_owned()]).unwrap();
        let unknown = keep(&report, rows("copy", 1.0), &["tiem".to_owned()]);
        assert!(unknown.unwrap_err().to_string().contains("time"));
        let kept = read_kept(&report).unwrap();
        let found = kept
            .iter()
            .map(|row| (&*row.experiment, &*row.metric, row.value));
        let found: Vec<_> = found.collect();
        assert_eq!(
            found[4..],
            [
                ("copy", "time", 12350.0),
                ("copy", "time min", 12350.0),
                ("copy", "time max", 12350.0)
            ]
        );
        assert_eq!(
            (found.len(), kept[3].ratio, kept[4].ratio),
            (7, None, Some(4115.0))
        );
        assert_eq!(kept[0].origin.as_deref(), Some("here-2026-01-02"));
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        let spread = Spread::of(&[4.0, 1.0, 2.0, 100.0]).unwrap();
        let (min, median, max) = (1.0, 3.0, 100.0);
        assert_eq!(spread, Spread { min, median, max });
        assert_eq!(Spread::of(&[5.0]).unwrap().median, 5.0);
        assert!(Spread::of(&[f64::INFINITY]).is_err());
        assert!(Spread::of(&[]).is_err());
    }
}
