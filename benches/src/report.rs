//! The report: rows in; `report.json`, the pages and a table for the terminal out.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

mod chart;
pub mod criterion;
mod figures;
mod kept;
mod pages;
mod query;
mod tables;
pub mod units;

pub use figures::compared;
pub use kept::keep;
pub use pages::table;
pub use tables::stale;

/// A figure. `report.json` is an array of rows; docs/src/report.md is its description, and a test
/// compares the two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The experiment's name, or `bench/` and the group for a criterion bench.
    pub experiment: String,
    /// The varied parameters, as `key=value` pairs separated by `, `. Where the last pair of all cases is a
    /// number, a line is drawn over it, one for each value of the pairs before.
    pub case: String,
    /// The name of the measurement. `m`, `m min` and `m max` are the median and the extremes of one metric.
    pub metric: String,
    /// The figure itself, in `unit`.
    pub value: f64,
    /// `ns`, `bytes`, `bytes/s`, `1` for a plain number, or any other word.
    pub unit: String,
    /// The value to compare with, in `unit`: a physical limit, a paper's figure, a goal.
    pub reference: Option<f64>,
    /// `value / reference`.
    pub ratio: Option<f64>,
    /// The command, the machine and the time, on the row that ends a cell of an experiment in pieces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

impl Row {
    /// Returns true if a quick run measured the row.
    pub fn is_quick(&self) -> bool {
        self.case.starts_with("run=quick")
    }

    /// Compares the value with `reference`, which has the same unit. A reference that nothing can be
    /// compared with (zero, not finite) is left out.
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
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The largest sample.
    pub max: f64,
}

impl Spread {
    /// # Errors
    /// When there is no sample, or one is no finite number.
    pub fn of(samples: &[f64]) -> Result<Self> {
        ensure!(
            samples.iter().all(|sample| sample.is_finite()),
            "samples not finite: {samples:?}"
        );
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = sorted.first().zip(sorted.last()).context("no samples")?;
        let middle = sorted.len() / 2;
        let below = if sorted.len().is_multiple_of(2) {
            middle - 1
        } else {
            middle
        };
        Ok(Self {
            min: *min,
            median: sorted[below].midpoint(sorted[middle]),
            max: *max,
        })
    }
}

/// Each of `ours` over what `theirs` has in the same place: of the same round, in which what else the machine does meets both.
pub fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    let pairs = ours.iter().zip(theirs);
    pairs.map(|(ours, theirs)| ours / theirs).collect()
}

/// Writes `report.json`, `report.html` and `index.html` into `folder`. The pages repeat `facts`: the machine that the rows are from,
/// and whether they are quick ones.
///
/// # Errors
/// When a file cannot be written.
pub fn write(folder: &Path, rows: &[Row], facts: &[String]) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    write_rows(&folder.join("report.json"), rows)?;
    let pages = [
        ("report.html", pages::all_rows(rows, facts)?),
        ("index.html", pages::index(rows, facts)?),
    ];
    pages.into_iter().try_for_each(|(name, text)| {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    })
}

/// Writes rows as JSON.
///
/// # Errors
/// When the file cannot be written.
pub fn write_rows(path: &Path, rows: &[Row]) -> Result<()> {
    let json = serde_json::to_string_pretty(rows)? + "\n";
    // A run that is ended from outside leaves the file as it was, or as it is now.
    let beside = path.with_extension("new");
    let written = std::fs::write(&beside, json).and_then(|()| std::fs::rename(&beside, path));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Reads rows that [`write_rows`] wrote.
///
/// # Errors
/// When the file cannot be read or has another schema.
pub fn read_rows(path: &Path) -> Result<Vec<Row>> {
    let json =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&json).with_context(|| format!("{} has another schema", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The schema's description carries an example; it must be what is written, byte for byte.
    #[test]
    fn the_documented_example_is_what_is_written() {
        let page = include_str!("../../docs/src/report.md");
        let example = page
            .split("```json\n")
            .nth(1)
            .unwrap()
            .split("```")
            .next()
            .unwrap();
        let mut rows = vec![
            Row {
                experiment: "copy".into(),
                case: "threads=1".into(),
                metric: "bandwidth".into(),
                value: 1.25e10,
                unit: "bytes/s".into(),
                reference: None,
                ratio: None,
                origin: None,
            };
            2
        ];
        rows[1].case = "threads=4".into();
        rows[1].value = 2.5e10;
        rows[1].against(5e10);
        assert_eq!(serde_json::to_string_pretty(&rows).unwrap() + "\n", example);
        assert_eq!(serde_json::from_str::<Vec<Row>>(example).unwrap(), rows);
    }

    #[test]
    fn rows_survive_the_way_through_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = crate::experiments::Run::new("copy", true);
        run.value("a=1", "time", "ns", 0.1 + 0.2)
            .unwrap()
            .against(3.0);
        let rows = run.into_rows();
        write(folder.path(), &rows, &["a <machine>".into()]).unwrap();
        assert_eq!(read_rows(&folder.path().join("report.json")).unwrap(), rows);
        let html = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
        assert!(html.contains("a &lt;machine&gt;"), "{html}");
    }

    #[test]
    fn a_reference_of_zero_gives_no_ratio() {
        let mut run = crate::experiments::Run::new("copy", true);
        run.value("a=1", "time", "ns", 1.0).unwrap().against(0.0);
        assert_eq!(run.into_rows()[0].ratio, None);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        let spread = Spread::of(&[4.0, 1.0, 2.0, 100.0]).unwrap();
        assert_eq!(
            spread,
            Spread {
                min: 1.0,
                median: 3.0,
                max: 100.0
            }
        );
        assert_eq!(Spread::of(&[5.0]).unwrap().median, 5.0);
        assert!(Spread::of(&[f64::INFINITY]).is_err());
    }
}
