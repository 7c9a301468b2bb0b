//! Queries: which rows of a report a table, a chart or a comparison shows. `benches/figures.toml` holds them by name, and
//! docs/src/report.md describes them.

use serde::Deserialize;

use super::Row;

/// Rows of an experiment, and how their values are shown.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Query {
    pub(crate) experiment: String,
    /// All of the experiment's metrics, if none is named.
    pub(crate) metrics: Vec<String>,
    /// Pairs, or keys of pairs, that a case must have. `key=a|b` is a pair with either value.
    pub(crate) keep: Vec<String>,
    /// Pairs, or keys of pairs, that a case must not have.
    pub(crate) without: Vec<String>,
    /// Divides by the same case with these pairs in place of its own.
    pub(crate) over: Vec<String>,
    /// The key whose values have a column each.
    pub(crate) across: Option<String>,
    pub(crate) ratio: Ratio,
    /// No byte was moved: the values are simulated or predicted.
    pub(crate) simulated: bool,
    /// The value taken where a comparison finds several.
    pub(crate) take: Take,
    /// The text of the line, in Markdown, where a query has one line.
    pub(crate) what: String,
    /// The report, where a table has several.
    pub(crate) report: Option<String>,
}

/// How a cell shows the reference of its row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ratio {
    /// The value alone.
    #[default]
    Without,
    /// The value, and its ratio to the reference behind it.
    Beside,
    /// The ratio in place of the value.
    Alone,
    /// A line for each row that has a reference: value, reference and ratio have a column each.
    Columns,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Take {
    #[default]
    Largest,
    Least,
}

/// A metric of an experiment: the content of a chart.
pub(crate) struct Metric<'a> {
    pub(crate) experiment: &'a str,
    pub(crate) name: &'a str,
    pub(crate) unit: &'a str,
    pub(crate) points: Vec<Point<'a>>,
}

/// A row, and the extremes where the metric has them.
#[derive(Clone, Copy)]
pub(crate) struct Point<'a> {
    pub(crate) row: &'a Row,
    pub(crate) extremes: Option<(f64, f64)>,
    /// The value that a chart and its table show beside the row's: the row's reference, or a paper's number.
    pub(crate) reference: Option<f64>,
}

impl Query {
    /// Returns the metrics with their points, in the order of the query, then of the rows; with [`Ratio::Columns`] in that of the rows.
    pub(crate) fn metrics<'a>(&self, rows: &'a [Row]) -> Vec<Metric<'a>> {
        let place = |metric: &str| self.metrics.iter().position(|own| own == metric);
        let is_wanted = |row: &&Row| {
            let base = base(&row.metric).unwrap_or(&row.metric);
            let is_named = place(&row.metric).or_else(|| place(base)).is_some();
            row.experiment == self.experiment
                && (self.metrics.is_empty() || is_named)
                && self.keeps(&row.case)
        };
        let mut metrics = metrics(rows.iter().filter(is_wanted));
        if self.ratio != Ratio::Columns {
            metrics.sort_by_key(|metric| place(metric.name));
        }
        metrics
    }

    /// Each point's value, or its quotient where the query has `over`. A point without a divisor is left out.
    pub(crate) fn values<'a>(&self, rows: &'a [Row]) -> Vec<(&'a Row, f64)> {
        let metrics = self.metrics(rows);
        let points = metrics.iter().flat_map(|metric| &metric.points);
        let value = |point: &Point<'a>| {
            let row = point.row;
            if self.over.is_empty() {
                return Some((row, row.value));
            }
            let case = with_pairs(&row.case, &self.over);
            let mut others = rows.iter().filter(|other| other.case == case);
            let is_like =
                |other: &&Row| (&other.experiment, &other.metric) == (&row.experiment, &row.metric);
            let other = others.find(is_like).filter(|other| other.value > 0.0)?;
            Some((row, row.value / other.value))
        };
        points.filter_map(value).collect()
    }

    /// The one value that a comparison shows.
    pub(crate) fn taken<'a>(&self, rows: &'a [Row]) -> Option<(&'a Row, f64)> {
        let values = self.values(rows).into_iter();
        match self.take {
            Take::Largest => values.max_by(|a, b| a.1.total_cmp(&b.1)),
            Take::Least => values.min_by(|a, b| a.1.total_cmp(&b.1)),
        }
    }

    fn keeps(&self, case: &str) -> bool {
        let has = |wanted: &String| {
            pairs(case).any(
                |pair| match (pair.split_once('='), wanted.split_once('=')) {
                    (Some((own, value)), Some((key, values))) => {
                        own == key && values.split('|').any(|wanted| wanted == value)
                    }
                    (Some((key, _)), None) => key == wanted,
                    (None, _) => pair == wanted,
                },
            )
        };
        self.keep.iter().all(has) && !self.without.iter().any(has)
    }
}

/// Groups rows by experiment and metric, in the order in which they first occur. Extremes go to their median.
pub(crate) fn metrics<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<Metric<'a>> {
    let rows: Vec<&Row> = rows.into_iter().collect();
    let find = |like: &Row, metric: &str| {
        let mut same = rows
            .iter()
            .filter(|row| row.metric == metric && row.case == like.case);
        same.find(|row| row.experiment == like.experiment)
    };
    let mut metrics: Vec<Metric<'a>> = Vec::new();
    for &row in &rows {
        if base(&row.metric).is_some_and(|base| find(row, base).is_some()) {
            continue;
        }
        let extreme = |end: &str| Some(find(row, &format!("{} {end}", row.metric))?.value);
        let point = Point {
            row,
            extremes: extreme("min").zip(extreme("max")),
            reference: row.reference,
        };
        let (experiment, name, unit) = (&*row.experiment, &*row.metric, &*row.unit);
        let is_same = |own: &&mut Metric<'_>| {
            (own.experiment, own.name, own.unit) == (experiment, name, unit)
        };
        match metrics.iter_mut().find(is_same) {
            Some(metric) => metric.points.push(point),
            None => metrics.push(Metric {
                experiment,
                name,
                unit,
                points: vec![point],
            }),
        }
    }
    metrics
}

/// The metric of which `metric` is an extreme by its name.
fn base(metric: &str) -> Option<&str> {
    metric
        .strip_suffix(" min")
        .or_else(|| metric.strip_suffix(" max"))
}

/// The `key=value` pairs of a case.
pub(crate) fn pairs(case: &str) -> impl Iterator<Item = &str> {
    case.split(", ")
}

/// The pairs that all of these points' cases have, in the order of the first.
pub(crate) fn common<'a>(points: &[Point<'a>]) -> Vec<&'a str> {
    let is_common = |pair: &&str| {
        let mut cases = points.iter().map(|point| pairs(&point.row.case));
        cases.all(|mut case| case.any(|own| own == *pair))
    };
    let first = points.first().map(|point| pairs(&point.row.case));
    first.into_iter().flatten().filter(is_common).collect()
}

/// The case with these pairs in place of those of the same keys.
fn with_pairs(case: &str, other: &[String]) -> String {
    let key = |pair: &str| pair.split_once('=').map(|(key, _)| key.to_owned());
    let replaced = |pair| {
        other
            .iter()
            .find(|other| key(other) == key(pair))
            .map_or(pair, |other| other)
    };
    pairs(case).map(replaced).collect::<Vec<_>>().join(", ")
}

/// `policy=lru, n=16` → (`policy=lru`, `n`, 16), where the last pair is a number.
pub(crate) fn split(case: &str) -> Option<(&str, &str, f64)> {
    let (series, last) = case.rsplit_once(", ").unwrap_or(("", case));
    let (key, value) = last.split_once('=')?;
    let x: f64 = value.parse().ok()?;
    x.is_finite().then_some((series, key, x))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::Run;

    #[test]
    fn extremes_go_to_their_median() {
        let mut run = Run::new("copy", true);
        run.samples("threads=1", "bandwidth", "bytes/s", &[1.0, 2.0, 3.0])
            .unwrap();
        run.value("threads=1", "stall max", "ns", 9.0).unwrap();
        let rows = run.into_rows();
        let metrics = metrics(&rows);
        let names: Vec<_> = metrics.iter().map(|metric| metric.name).collect();
        // A metric that is called max, but has no median, stands for itself.
        assert_eq!(names, ["bandwidth", "stall max"]);
        assert_eq!(metrics[0].points[0].extremes, Some((1.0, 3.0)));
    }

    #[test]
    fn the_last_number_of_a_case_is_its_place_on_the_axis() {
        assert_eq!(split("policy=lru, n=16"), Some(("policy=lru", "n", 16.0)));
        assert_eq!(split("threads=4"), Some(("", "threads", 4.0)));
        assert_eq!(split("n=4, policy=lru"), None);
        assert_eq!(split("lru"), None);
    }
}
