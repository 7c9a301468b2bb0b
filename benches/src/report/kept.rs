//! The reports that are kept with the book: rows to four digits, one a line, so that a change of one is seen.

use std::path::Path;

use anyhow::{Context, Result};

use super::{Row, read_rows};

/// Puts `rows` into a kept report, in place of what it has of the same experiments; where `metrics` are named, those alone with
/// their extremes. The report is made where there is none.
///
/// # Errors
/// When the report cannot be read or written.
pub fn keep(report: &Path, rows: Vec<Row>, metrics: &[String]) -> Result<()> {
    let kept = match report.exists() {
        true => read_rows(report)?,
        false => Vec::new(),
    };
    let lines = replaced(kept, rows, metrics).into_iter().map(rounded);
    let lines = lines.map(|row| Ok(serde_json::to_string(&row)?));
    let lines = lines.collect::<Result<Vec<_>>>()?.join(",\n");
    std::fs::write(report, format!("[\n{lines}\n]\n"))
        .with_context(|| format!("cannot write {}", report.display()))
}

/// The rows of an experiment stay where they were in the report.
fn replaced(mut kept: Vec<Row>, mut rows: Vec<Row>, metrics: &[String]) -> Vec<Row> {
    let is_of = |row: &Row, metric: &String| {
        let rest = row.metric.strip_prefix(metric.as_str());
        rest.is_some_and(|rest| ["", " min", " max"].contains(&rest))
    };
    rows.retain(|row| metrics.is_empty() || metrics.iter().any(|metric| is_of(row, metric)));
    while let Some(first) = rows.first() {
        let name = first.experiment.clone();
        let is_same = |row: &Row| row.experiment == name;
        let (same, others): (Vec<Row>, _) = rows.into_iter().partition(is_same);
        rows = others;
        let at = kept.iter().position(is_same);
        kept.retain(|row| !is_same(row));
        let at = at.unwrap_or(kept.len());
        kept.splice(at..at, same);
    }
    kept
}

fn rounded(row: Row) -> Row {
    let four = |value: f64| format!("{value:.3e}").parse().unwrap_or(value);
    Row {
        value: four(row.value),
        reference: row.reference.map(four),
        ratio: row.ratio.map(four),
        ..row
    }
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
        run.value("a=1", "timeouts", "1", 7.0).unwrap();
        run.into_rows()
    }

    #[test]
    fn an_experiments_rows_are_replaced_where_they_are_and_rounded() {
        let folder = tempfile::tempdir().unwrap();
        let report = folder.path().join("here-2026-01-02.json");
        keep(
            &report,
            [rows("copy", 1.0), rows("disk", 2.0)].concat(),
            &[],
        )
        .unwrap();
        assert_eq!(read_rows(&report).unwrap().len(), 8);
        keep(&report, rows("copy", 12345.6), &["time".to_owned()]).unwrap();
        let kept = read_rows(&report).unwrap();
        let found: Vec<_> = kept
            .iter()
            .map(|row| (&*row.experiment, &*row.metric, row.value))
            .collect();
        assert_eq!(
            found[..4],
            [
                ("copy", "time", 12350.0),
                ("copy", "time min", 12350.0),
                ("copy", "time max", 12350.0),
                ("disk", "time", 2.0),
            ]
        );
        assert_eq!(
            (kept[0].reference, kept[0].ratio, kept.len()),
            (Some(3.0), Some(4115.0), 7)
        );
        let text = std::fs::read_to_string(&report).unwrap();
        assert_eq!(text.lines().count(), 9);
    }
}
