//! Queries, which choose the rows of a report for a chart, a claim or a line. `benches/figures.toml` has the queries, and
//! docs/src/report.md describes them.

use serde::Deserialize;

use super::units::human;
use super::{Row, Spread};

/// A choice of an experiment's rows, and the form of their values.
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
    /// Divides by the same case of the same kept report, with these pairs in place of its own.
    pub(crate) over: Vec<String>,
    /// Shows the ratio to the row's reference in place of the value.
    pub(crate) ratio: bool,
    /// The choice of the value that a claim shows, out of several.
    pub(crate) take: Take,
    /// The keys across a chart; without them, the key of the last pair.
    pub(crate) across: Vec<String>,
    /// The machine of the kept report, if several reports have the experiment.
    pub(crate) machine: Option<String>,
    /// True if no byte was moved: the values are simulated or predicted.
    pub(crate) simulated: bool,
}

/// The choice of one value out of several.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Take {
    #[default]
    Largest,
    Least,
    /// The geometric mean, as most values are quotients, with the least and the largest value as extremes.
    Mean,
}

/// A value of a query: a row's, or a quotient of two rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point<'a> {
    pub(crate) row: &'a Row,
    pub(crate) value: Spread,
    pub(crate) unit: &'a str,
}

impl Query {
    /// Returns the values, in the order of the rows. A case without a divisor or without a reference that it needs is left out.
    pub(crate) fn points<'a>(&self, rows: &'a [Row]) -> Vec<Point<'a>> {
        let is_wanted = |row: &&Row| {
            let is_named = self.metrics.is_empty() || self.metrics.contains(&row.metric);
            let origin = row.origin.as_deref().unwrap_or_default();
            let machine = self.machine.as_deref();
            row.experiment == self.experiment
                && is_named
                && machine.is_none_or(|machine| origin.starts_with(machine))
                && self.keeps(&row.case)
        };
        let point = |row: &'a Row| {
            let value = spread(rows, row);
            if self.over.is_empty() && !self.ratio {
                let unit = &row.unit;
                return Some(Point { row, value, unit });
            }
            let below = match self.ratio {
                true => row.reference.map(|only| Spread {
                    min: only,
                    median: only,
                    max: only,
                }),
                false => {
                    let case = with_pairs(&row.case, &self.over);
                    let mut others = rows.iter().filter(|other| other.case == case);
                    let is_like = |other: &&Row| {
                        (&other.experiment, &other.metric, &other.origin)
                            == (&row.experiment, &row.metric, &row.origin)
                    };
                    others.find(is_like).map(|other| spread(rows, other))
                }
            };
            let below = below.filter(|below| below.min > 0.0)?;
            let value = Spread {
                min: value.min / below.max,
                median: value.median / below.median,
                max: value.max / below.min,
            };
            Some(Point {
                row,
                value,
                unit: "×",
            })
        };
        rows.iter().filter(is_wanted).filter_map(point).collect()
    }

    /// Returns the one value that a claim shows.
    pub(crate) fn taken<'a>(&self, rows: &'a [Row]) -> Option<Point<'a>> {
        let mut points = self.points(rows);
        points.sort_by(|a, b| a.value.median.total_cmp(&b.value.median));
        let (least, largest) = (*points.first()?, *points.last()?);
        match self.take {
            Take::Largest => Some(largest),
            Take::Least => Some(least),
            Take::Mean => {
                let logarithms: f64 = points.iter().map(|point| point.value.median.ln()).sum();
                let value = Spread {
                    min: least.value.median,
                    median: (logarithms / points.len() as f64).exp(),
                    max: largest.value.median,
                };
                Some(Point { value, ..largest })
            }
        }
    }

    fn keeps(&self, case: &str) -> bool {
        let is_like =
            |pair: &str, wanted: &str| match (pair.split_once('='), wanted.split_once('=')) {
                (Some((own, value)), Some((key, values))) => {
                    own == key && values.split('|').any(|wanted| wanted == value)
                }
                (Some((key, _)), None) => key == wanted,
                (None, _) => pair == wanted,
            };
        let has = |wanted: &String| pairs(case).any(|pair| is_like(pair, wanted));
        self.keep.iter().all(has) && !self.without.iter().any(has)
    }
}

impl Point<'_> {
    /// Returns the value with its extremes, and "quick" if the row is of a quick run.
    pub(crate) fn text(&self) -> String {
        let Spread { min, median, max } = self.value;
        let shown = human(median, self.unit);
        let quick = if self.row.is_quick() { ", quick" } else { "" };
        match min < max {
            true => format!(
                "{shown} ({}–{}){quick}",
                human(min, self.unit),
                human(max, self.unit)
            ),
            false => shown + quick,
        }
    }
}

/// Returns true if a metric is this one, or one of its extremes.
pub(crate) fn is_of(metric: &str, base: &str) -> bool {
    let rest = metric.strip_prefix(base);
    rest.is_some_and(|rest| ["", " min", " max"].contains(&rest))
}

/// Returns a row's value with its extremes, which are other rows.
fn spread(rows: &[Row], row: &Row) -> Spread {
    let extreme = |end: &str| {
        let is_like = |other: &&Row| {
            other.case == row.case
                && (&other.experiment, &other.origin) == (&row.experiment, &row.origin)
                && other.metric.strip_suffix(end) == Some(&row.metric)
        };
        rows.iter().find(is_like).map_or(row.value, |row| row.value)
    };
    Spread {
        min: extreme(" min"),
        median: row.value,
        max: extreme(" max"),
    }
}

/// Returns the pairs of a case.
pub(crate) fn pairs(case: &str) -> impl Iterator<Item = &str> {
    case.split(", ")
}

/// Returns the case with these pairs in place of its pairs of the same keys.
fn with_pairs(case: &str, others: &[String]) -> String {
    let key = |pair: &str| pair.split_once('=').map(|(key, _)| key.to_owned());
    let other = |pair| others.iter().find(|other| key(other) == key(pair));
    let pairs = pairs(case).map(|pair| other(pair).map_or(pair, |other| other));
    pairs.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::Run;

    #[test]
    fn a_quotient_is_of_cases_that_differ_in_nothing_else_and_has_its_extremes() {
        let mut run = Run::new("alloc", false);
        for (case, samples) in [
            ("strategy=old, processes=1", [5.0, 6.0, 8.0]),
            ("strategy=old, processes=2", [30.0; 3]),
            ("strategy=new, processes=1", [1.0, 2.0, 4.0]),
            ("strategy=new, processes=2", [3.0; 3]),
            ("strategy=old, processes=4", [99.0; 3]),
        ] {
            run.samples(case, "blocking", "ns", &samples).unwrap();
        }
        let rows = run.into_rows();
        let text = |query: &str| {
            let text = format!("experiment = 'alloc'\nmetrics = ['blocking']\n{query}");
            let query: Query = toml::from_str(&text).unwrap();
            query.taken(&rows).map(|point| point.text())
        };
        let over = "keep = ['strategy=old']\nover = ['strategy=new']";
        assert_eq!(text(over).unwrap(), "10 ×");
        assert_eq!(
            text(&format!("{over}\ntake = 'least'")).unwrap(),
            "3 × (1.25 ×–8 ×)"
        );
        assert_eq!(
            text(&format!("{over}\ntake = 'mean'")).unwrap(),
            "5.48 × (3 ×–10 ×)"
        );
        assert_eq!(
            text("keep = ['strategy=old']\nover = ['strategy=none']"),
            None
        );
        assert_eq!(
            text("keep = ['processes=2|4']\nwithout = ['strategy=new']").unwrap(),
            "99 ns"
        );
        assert_eq!(text("ratio = true"), None);
    }

    #[test]
    fn a_quotient_is_of_rows_of_one_kept_report() {
        let mut rows = Vec::new();
        for (origin, old, new) in [("a-2026", 8.0, 2.0), ("b-2026", 30.0, 3.0)] {
            let mut run = Run::new("alloc", false);
            for (case, value) in [("strategy=old", old), ("strategy=new", new)] {
                run.samples(case, "blocking", "ns", &[value; 3]).unwrap();
            }
            rows.extend(run.into_rows().into_iter().map(|mut row| {
                row.origin = Some(origin.to_owned());
                row
            }));
        }
        let query = "experiment = 'alloc'\nmetrics = ['blocking']\nkeep = ['strategy=old']\nover = ['strategy=new']";
        let query: Query = toml::from_str(query).unwrap();
        let medians: Vec<f64> = query.points(&rows).iter().map(|p| p.value.median).collect();
        assert_eq!(medians, [4.0, 10.0]);
    }
}
