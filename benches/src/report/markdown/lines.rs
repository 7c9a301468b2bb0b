//! Tables with a line for each figure: those of an experiment that have a reference, and chosen ones of several experiments.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::cell::{Ratio, common, leading, pair, range};
use super::{Origin, table};
use crate::report::Row;
use crate::report::figures::Selection;
use crate::report::group::{pairs, sections, with_pairs};
use crate::report::units::{digits, human};

/// The rows of an experiment that have a reference: a goal, or what is compared with. A line is a row.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Against {
    experiment: String,
    /// Those alone, where some are named.
    #[serde(default)]
    metrics: Vec<String>,
    /// Pairs, or keys of pairs, that a case has to have, and that it must not have.
    #[serde(default)]
    keep: Vec<String>,
    #[serde(default)]
    without: Vec<String>,
}

impl Against {
    /// What all lines are of, and the table.
    pub(super) fn table(&self, rows: &[Row]) -> Result<(String, String)> {
        let is_kept = |row: &&Row| {
            let selection = Selection {
                experiment: self.experiment.clone(),
                metric: row.metric.clone(),
                keep: self.keep.clone(),
                without: self.without.clone(),
                simulated: false,
            };
            selection.has(row)
        };
        let kept: Vec<Row> = rows.iter().filter(is_kept).cloned().collect();
        let sections = sections(&kept);
        let metrics = sections.iter().flat_map(|section| &section.metrics);
        let is_wanted =
            |name: &str| self.metrics.is_empty() || self.metrics.iter().any(|own| own == name);
        let points = metrics
            .filter(|metric| is_wanted(metric.name))
            .flat_map(|metric| {
                let points = metric.points.iter().map(move |point| (metric, point));
                points.filter_map(|(metric, point)| Some((metric, point, point.row.reference?)))
            });
        let points: Vec<_> = points.collect();
        ensure!(!points.is_empty(), "no row has a reference");
        let common = common(
            &points
                .iter()
                .map(|(_, point, _)| point.row)
                .collect::<Vec<_>>(),
        );
        let cases = points.iter().map(|(_, point, _)| {
            let own = pairs(&point.row.case);
            own.filter(|pair| !common.contains(pair)).collect()
        });
        let (mut header, mut lines) = leading(&cases.collect::<Vec<Vec<&str>>>());
        header.extend(["metric", "measured", "against", "ratio"].map(str::to_owned));
        for (line, (metric, point, reference)) in lines.iter_mut().zip(&points) {
            line.extend([
                metric.name.to_owned(),
                Ratio::Without.cell(point, metric.unit)?,
                human(*reference, metric.unit),
                point.row.ratio.map_or_else(String::new, digits),
            ]);
        }
        let mut about = vec![format!("`{}`", self.experiment)];
        about.extend(common.into_iter().map(pair));
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        Ok((format!(": {}", about.join(", ")), table(&header, lines)))
    }
}

/// A figure with a line of its own: the value of a row, or the range of the values of several.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Quoted {
    /// What it is, in Markdown.
    what: String,
    /// One of the table's reports; the only one need not be named.
    report: Option<String>,
    experiment: String,
    metric: String,
    /// Pairs, or keys of pairs, that a case has to have, and that it must not have.
    #[serde(default)]
    keep: Vec<String>,
    #[serde(default)]
    without: Vec<String>,
    /// The pairs that are other in the case by which the value is divided.
    #[serde(default)]
    over: Vec<String>,
    #[serde(default)]
    ratio: Ratio,
}

/// The table of these figures. They say which machine they are of where there are several.
pub(super) fn quoted(lines: &[Quoted], origins: &[Origin]) -> Result<String> {
    let are_many = origins.len() > 1;
    let header = ["what", "figure", "machine"];
    let header = &header[..2 + usize::from(are_many)];
    let lines = lines.iter().map(|line| {
        let is_named = |origin: &&Origin| match &line.report {
            Some(report) => origin.name == *report,
            None => !are_many,
        };
        let origin = origins.iter().find(is_named);
        let origin = origin.with_context(|| format!("{}: of which report?", line.what))?;
        let (figure, is_quick) = line
            .figure(&origin.rows)
            .with_context(|| line.what.clone())?;
        let figure = figure + if is_quick { ", quick run" } else { "" };
        let machine = are_many.then(|| origin.machine.clone());
        Ok([line.what.clone(), figure]
            .into_iter()
            .chain(machine)
            .collect())
    });
    Ok(table(header, lines.collect::<Result<Vec<_>>>()?))
}

impl Quoted {
    /// The figure, and whether it is of a quick run.
    fn figure(&self, rows: &[Row]) -> Result<(String, bool)> {
        let selection = Selection {
            experiment: self.experiment.clone(),
            metric: self.metric.clone(),
            keep: self.keep.clone(),
            without: self.without.clone(),
            simulated: false,
        };
        let chosen: Vec<Row> = selection.of(rows).cloned().collect();
        let is_quick = |row: &Row| pairs(&row.case).any(|pair| pair == "run=quick");
        let is_quick = chosen.iter().any(is_quick);
        let sections = sections(&chosen);
        let metrics = sections.iter().flat_map(|section| &section.metrics);
        let points: Vec<_> = metrics.flat_map(|metric| &metric.points).collect();
        let first = points.first().context("no row is of this figure")?;
        let figure = if !self.over.is_empty() {
            let quotients = points.iter().map(|point| {
                let case = with_pairs(&point.row.case, &self.over);
                let mut others = rows.iter().filter(|row| selection.is_of(row));
                let other = others.find(|row| row.case == case);
                Ok(point.row.value / other.with_context(|| format!("no row of {case}"))?.value)
            });
            range(&quotients.collect::<Result<Vec<_>>>()?, "×")
        } else if let [point] = &points[..] {
            self.ratio.cell(point, &point.row.unit)?
        } else if matches!(self.ratio, Ratio::Without) {
            let values: Vec<f64> = points.iter().map(|point| point.row.value).collect();
            range(&values, &first.row.unit)
        } else {
            let ratios = points.iter().map(|point| point.row.ratio);
            let ratios = ratios.collect::<Option<Vec<_>>>();
            range(&ratios.context("a row has no reference")?, "×")
        };
        Ok((figure, is_quick))
    }
}
