//! Rows sorted by experiment and metric, with the extremes put back to their median.

use super::Row;

/// One experiment's rows.
pub(crate) struct Section<'a> {
    pub(crate) experiment: &'a str,
    pub(crate) metrics: Vec<Metric<'a>>,
}

/// One metric of an experiment: what one table and one chart show.
pub(crate) struct Metric<'a> {
    pub(crate) name: &'a str,
    pub(crate) unit: &'a str,
    pub(crate) points: Vec<Point<'a>>,
}

/// A row, and the extremes where the metric has them.
pub(crate) struct Point<'a> {
    pub(crate) row: &'a Row,
    pub(crate) extremes: Option<(f64, f64)>,
}

/// Sections and metrics stay in the order in which they first occur.
pub(crate) fn sections(rows: &[Row]) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for row in rows.iter().filter(|row| !is_extreme(rows, row)) {
        let section = match sections
            .iter()
            .position(|section| section.experiment == row.experiment)
        {
            Some(at) => &mut sections[at],
            None => sections.push_mut(Section {
                experiment: &row.experiment,
                metrics: Vec::new(),
            }),
        };
        let same = |metric: &Metric<'_>| metric.name == row.metric && metric.unit == row.unit;
        let metric = match section.metrics.iter().position(same) {
            Some(at) => &mut section.metrics[at],
            None => section.metrics.push_mut(Metric {
                name: &row.metric,
                unit: &row.unit,
                points: Vec::new(),
            }),
        };
        let extreme =
            |end: &str| find(rows, row, &format!("{} {end}", row.metric)).map(|row| row.value);
        metric.points.push(Point {
            row,
            extremes: extreme("min").zip(extreme("max")),
        });
    }
    sections
}

/// Whether `row` is the `min` or `max` of another row.
fn is_extreme(rows: &[Row], row: &Row) -> bool {
    let base = row
        .metric
        .strip_suffix(" min")
        .or_else(|| row.metric.strip_suffix(" max"));
    base.is_some_and(|base| find(rows, row, base).is_some())
}

/// The row of the same case with this metric.
fn find<'a>(rows: &'a [Row], like: &Row, metric: &str) -> Option<&'a Row> {
    rows.iter().find(|row| {
        row.experiment == like.experiment && row.case == like.case && row.metric == metric
    })
}

/// The `key=value` pairs of a case.
pub(crate) fn pairs(case: &str) -> impl Iterator<Item = &str> {
    case.split(", ")
}

/// The case with these pairs in place of those of the same keys.
pub(crate) fn with_pairs(case: &str, other: &[String]) -> String {
    let key = |pair: &str| pair.split_once('=').map(|(key, _)| key.to_owned());
    let of = |pair| other.iter().find(|other| key(other) == key(pair));
    let all: Vec<_> = pairs(case)
        .map(|pair| of(pair).map_or(pair, |other| other))
        .collect();
    all.join(", ")
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
        let sections = sections(&rows);
        assert_eq!(sections.len(), 1);
        let names: Vec<_> = sections[0]
            .metrics
            .iter()
            .map(|metric| metric.name)
            .collect();
        // A metric that is called max, but has no median, stands for itself.
        assert_eq!(names, ["bandwidth", "stall max"]);
        assert_eq!(sections[0].metrics[0].points[0].extremes, Some((1.0, 3.0)));
    }

    #[test]
    fn the_last_number_of_a_case_is_its_place_on_the_axis() {
        assert_eq!(split("policy=lru, n=16"), Some(("policy=lru", "n", 16.0)));
        assert_eq!(split("threads=4"), Some(("", "threads", 4.0)));
        assert_eq!(split("n=4, policy=lru"), None);
        assert_eq!(split("lru"), None);
    }
}
