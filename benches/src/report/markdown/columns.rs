//! A table of one experiment's rows: a line for each case, a column for each metric, or for each value of a key.

use anyhow::{Result, ensure};
use serde::Deserialize;

use super::cell::{Ratio, common, leading, pair};
use super::table;
use crate::report::Row;
use crate::report::figures::Selection;
use crate::report::group::{pairs, sections};

/// Rows of an experiment. A line is a case, a column a metric.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Columns {
    experiment: String,
    metrics: Vec<String>,
    /// Pairs, or keys of pairs, that a case has to have, and that it must not have.
    #[serde(default)]
    keep: Vec<String>,
    #[serde(default)]
    without: Vec<String>,
    /// The key of the pair whose values have a column each.
    across: Option<String>,
    #[serde(default)]
    ratio: Ratio,
}

impl Columns {
    /// What all cells are of, and the table.
    pub(super) fn table(&self, rows: &[Row]) -> Result<(String, String)> {
        let mut chosen = Vec::new();
        for metric in &self.metrics {
            let selection = Selection {
                experiment: self.experiment.clone(),
                metric: metric.clone(),
                keep: self.keep.clone(),
                without: self.without.clone(),
                simulated: false,
            };
            let before = chosen.len();
            chosen.extend(selection.of(rows).cloned());
            ensure!(chosen.len() > before, "no row has the metric {metric:?}");
        }
        let is_across = |pair: &&str| {
            let key = pair.split_once('=').map(|(key, _)| key);
            key.is_some() && key == self.across.as_deref()
        };
        let common = common(&chosen.iter().collect::<Vec<_>>());
        let (mut lines, mut columns) = (Vec::new(), Vec::new());
        let mut cells = Vec::new();
        for metric in sections(&chosen)
            .iter()
            .flat_map(|section| &section.metrics)
        {
            for point in &metric.points {
                let case = || pairs(&point.row.case);
                let own = case().filter(|pair| !common.contains(pair) && !is_across(pair));
                let line = at(&mut lines, own.collect::<Vec<_>>());
                let name = (self.metrics.len() > 1 || self.across.is_none()).then_some(metric.name);
                let across = case().filter(is_across).map(pair);
                let name = name.map(str::to_owned).into_iter().chain(across);
                let column = at(&mut columns, name.collect::<Vec<_>>().join(", "));
                cells.push((line, column, self.ratio.cell(point, metric.unit)?));
            }
        }
        let (mut header, mut filled) = leading(&lines);
        let before = header.len();
        header.extend(columns);
        filled
            .iter_mut()
            .for_each(|line| line.resize(header.len(), String::new()));
        for (line, column, cell) in cells {
            let place = &mut filled[line][before + column];
            ensure!(
                place.is_empty(),
                "{:?} has several rows of {:?}",
                lines[line],
                header[before + column]
            );
            *place = cell;
        }
        let mut about = vec![format!("`{}`", self.experiment), self.metrics.join(", ")];
        about.extend(common.into_iter().filter(|pair| !is_across(pair)).map(pair));
        let about = format!(": {}", about.join(", "));
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        Ok((about, table(&header, filled)))
    }
}

/// Where `name` stands in `names`; at their end, if it is new.
fn at<T: PartialEq>(names: &mut Vec<T>, name: T) -> usize {
    let found = names.iter().position(|own| *own == name);
    found.unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    })
}
