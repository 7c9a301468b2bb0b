//! Charts over a key of the cases, as the template `index.html` draws them: lines over numbers, grouped bars over names.

use serde::Serialize;

use super::query::{Query, pairs};
use super::units::human;
use super::{Row, Spread};

/// Colours of Okabe and Ito, which colour-blind readers can tell apart.
const COLORS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442", "#000000",
];

/// An axis whose ends are farther apart than this is logarithmic.
const LOG_SPAN: f64 = 50.0;

/// The left and right end of the picture, and its bottom and top.
const ACROSS: [f64; 2] = [100.0, 740.0];
const UP: [f64; 2] = [290.0, 15.0];

#[derive(Debug, Serialize)]
pub(crate) struct Chart {
    title: String,
    axis: String,
    bars: bool,
    /// Labels of the axes with their coordinates.
    x: Vec<(String, f64)>,
    y: Vec<(String, f64)>,
    curves: Vec<Curve>,
}

#[derive(Debug, Serialize)]
struct Curve {
    name: String,
    color: &'static str,
    points: Vec<Mark>,
}

/// A value's coordinates with those of its extremes, and the value itself.
#[derive(Debug, Serialize)]
struct Mark {
    x: f64,
    y: f64,
    ends: [f64; 2],
    text: String,
    /// Width, for a bar.
    width: f64,
}

/// The coordinates of values on an axis.
#[derive(Clone, Copy)]
struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
    span: [f64; 2],
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, from_zero: bool, span: [f64; 2]) -> Self {
        let ends = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let is_log = ends.0 > 0.0 && ends.1 / ends.0 > LOG_SPAN;
        let low = match (from_zero, is_log) {
            (true, false) => ends.0.min(0.0),
            // The axis begins below the least value, so that its bar is visible.
            (true, true) => ends.0 / 1.5,
            (false, _) => ends.0,
        };
        let high = if ends.1 > low { ends.1 } else { low + 1.0 };
        Self {
            low,
            high,
            is_log,
            span,
        }
    }

    fn at(self, value: f64) -> f64 {
        let scaled = |value: f64| if self.is_log { value.ln() } else { value };
        let part = (scaled(value) - scaled(self.low)) / (scaled(self.high) - scaled(self.low));
        ((self.span[0] + part * (self.span[1] - self.span[0])) * 10.0).round() / 10.0
    }
}

/// Returns the chart of a query; `None` if the query has fewer than two values.
pub(crate) fn chart(query: &Query, rows: &[Row]) -> Option<Chart> {
    let points = query.points(rows);
    let first = points.first().filter(|_| points.len() > 1)?;
    let all = |pair: &&str| {
        points
            .iter()
            .all(|point| pairs(&point.row.case).any(|own| own == *pair))
    };
    let common: Vec<&str> = pairs(&first.row.case).filter(all).collect();
    let last = || {
        pairs(&first.row.case)
            .filter(|pair| !common.contains(pair))
            .last()?
            .split_once('=')
    };
    let axis = match query.across.is_empty() {
        true => vec![last()?.0.to_owned()],
        false => query.across.clone(),
    };
    let mut labels: Vec<String> = Vec::new();
    let mut curves: Vec<(String, Vec<(usize, Spread)>)> = Vec::new();
    for point in &points {
        let (mut x, mut name) = (Vec::new(), Vec::new());
        for pair in pairs(&point.row.case).filter(|pair| !common.contains(pair)) {
            match pair.split_once('=') {
                Some((key, value)) if axis.iter().any(|own| own == key) => x.push(value),
                _ => name.push(pair),
            }
        }
        name.extend((query.metrics.len() > 1).then_some(&*point.row.metric));
        let at = place(&mut labels, x.join(", "));
        let name = name.join(", ");
        match curves.iter_mut().find(|(own, _)| *own == name) {
            Some((_, values)) => values.push((at, point.value)),
            None => curves.push((name, vec![(at, point.value)])),
        }
    }
    let numbers: Option<Vec<f64>> = labels.iter().map(|label| label.parse().ok()).collect();
    let bars = numbers.is_none() || labels.len() < 2;
    let values = points
        .iter()
        .flat_map(|point| [point.value.min, point.value.max]);
    let up = Axis::over(values, true, UP);
    let xs: Vec<f64> = match numbers.filter(|_| !bars) {
        Some(numbers) => {
            let across = Axis::over(numbers.iter().copied(), false, ACROSS);
            numbers.into_iter().map(|x| across.at(x)).collect()
        }
        None => {
            let group = (ACROSS[1] - ACROSS[0]) / labels.len() as f64;
            (0..labels.len())
                .map(|at| ACROSS[0] + group * (at as f64 + 0.5))
                .collect()
        }
    };
    let width = (ACROSS[1] - ACROSS[0]) / (labels.len() * (curves.len() + 1)) as f64;
    let count = curves.len() as f64;
    let drawn = curves.into_iter().zip(COLORS.iter().cycle()).enumerate();
    let drawn = drawn.map(|(at, ((name, mut values), color))| {
        values.sort_by(|a, b| xs[a.0].total_cmp(&xs[b.0]));
        let beside = if bars {
            width * (at as f64 - count / 2.0)
        } else {
            0.0
        };
        let points = values.into_iter().map(|(x, value)| Mark {
            x: xs[x] + beside,
            y: up.at(value.median),
            ends: [up.at(value.min), up.at(value.max)],
            text: human(value.median, first.unit),
            width,
        });
        Curve {
            name,
            color,
            points: points.collect(),
        }
    });
    let curves = drawn.collect();
    let mut ticks = vec![up.low, up.high];
    let decades =
        (up.low.max(1e-12).log10().ceil() as i32)..=(up.high.max(1e-12).log10().floor() as i32);
    match up.is_log {
        true => {
            let is_apart = |&tick: &f64| UP.iter().all(|end| (up.at(tick) - end).abs() > 14.0);
            ticks.extend(decades.map(|power| 10_f64.powi(power)).filter(is_apart));
        }
        false => ticks.push(up.low.midpoint(up.high)),
    }
    let kind = if query.simulated { " (simulated)" } else { "" };
    Some(Chart {
        title: format!(
            "{}: {}{kind}; {}",
            query.experiment,
            query.metrics.join(", "),
            common.join(", ")
        ),
        axis: axis.join(", "),
        bars,
        x: labels
            .iter()
            .zip(xs)
            .map(|(label, x)| (label.clone(), x))
            .collect(),
        y: ticks
            .into_iter()
            .map(|value| (human(value, first.unit), up.at(value)))
            .collect(),
        curves,
    })
}

/// Returns the index of `name` in `names`. A new name is added at the end.
fn place(names: &mut Vec<String>, name: String) -> usize {
    let found = names.iter().position(|own| *own == name);
    found.unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::Run;

    fn drawn(cases: &[(&str, f64)]) -> Option<Chart> {
        let mut run = Run::new("copy", true);
        for (case, value) in cases {
            run.value(case, "time", "ns", *value).unwrap();
        }
        let query = Query {
            experiment: "copy".to_owned(),
            metrics: vec!["time".to_owned()],
            ..Query::default()
        };
        chart(&query, &run.into_rows())
    }

    #[test]
    fn numbers_make_lines_with_a_label_at_each_measured_point() {
        let chart = drawn(&[
            ("policy=lru, n=4", 1.0),
            ("policy=lru, n=2", 2.0),
            ("policy=fifo, n=8", 3.0),
        ])
        .unwrap();
        assert!(!chart.bars);
        assert_eq!(chart.axis, "n");
        let labels: Vec<_> = chart.x.iter().map(|(label, x)| (&**label, *x)).collect();
        assert_eq!(labels, [("4", 313.3), ("2", 100.0), ("8", 740.0)]);
        let names: Vec<_> = chart.curves.iter().map(|curve| &*curve.name).collect();
        assert_eq!(names, ["policy=lru", "policy=fifo"]);
    }

    #[test]
    fn names_make_grouped_bars_and_wide_values_a_logarithmic_axis() {
        let chart = drawn(&[
            ("hints=all, by=a", 0.1),
            ("hints=all, by=b", 100.0),
            ("hints=none, by=b", 1.0),
        ])
        .unwrap();
        assert!(chart.bars);
        assert_eq!(chart.curves.len(), 2);
        let marks = chart.curves.iter().flat_map(|curve| &curve.points);
        assert!(
            marks
                .clone()
                .all(|mark| mark.y.is_finite() && mark.y <= UP[0] && mark.y >= UP[1])
        );
        assert_eq!(marks.count(), 3);
        assert!(
            drawn(&[("n=1", 0.0), ("n=2", 0.0)]).unwrap().curves[0].points[0]
                .y
                .is_finite()
        );
        assert!(drawn(&[("n=1", 1.0)]).is_none());
    }
}
