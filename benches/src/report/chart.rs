//! Charts of metrics over the number that their cases end with, as the template `pages.html` draws them.

use std::ops::Range;

use anyhow::{Result, ensure};
use minijinja::{Value, context};

use super::query::{Metric, Point, common, pairs, split};
use super::units::human;

/// Colours of Okabe and Ito, which colour-blind readers can tell apart.
const COLORS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
];

/// An axis whose ends are farther apart than this is logarithmic.
const LOG_SPAN: f64 = 50.0;

/// Returns the chart of one metric over the number that ends its cases; `None` where they end with names, or with numbers of different
/// things.
///
/// # Errors
/// When a value is no finite number.
pub(crate) fn chart(metric: &Metric<'_>) -> Result<Option<Value>> {
    let common = common(&metric.points);
    let mut axis = None;
    // The points of each value of the pairs before the last, by the number of the last.
    let mut curves: Vec<(String, Vec<(f64, Point<'_>)>)> = Vec::new();
    for point in &metric.points {
        let own = pairs(&point.row.case).filter(|pair| !common.contains(pair));
        let name = own.collect::<Vec<_>>().join(", ");
        let Some((series, key, x)) = split(&name) else {
            return Ok(None);
        };
        if axis.get_or_insert_with(|| key.to_owned()) != key {
            return Ok(None);
        }
        match curves.iter_mut().find(|(name, _)| name == series) {
            Some((_, points)) => points.push((x, *point)),
            None => curves.push((series.to_owned(), vec![(x, *point)])),
        }
    }
    if curves.iter().all(|(_, points)| points.len() < 2) {
        return Ok(None);
    }
    let all = || curves.iter().flat_map(|(_, points)| points);
    let values = |point: &Point<'_>| {
        let (min, max) = point.extremes.unzip();
        let shown = [Some(point.row.value), min, max, point.reference];
        shown.into_iter().flatten()
    };
    let across = Axis::over(all().map(|(x, _)| *x), false, 90.0..750.0)?;
    let up = Axis::over(
        all().flat_map(|(_, point)| values(point)),
        true,
        290.0..10.0,
    )?;
    let drawn = curves.iter_mut().zip(COLORS.iter().cycle());
    let drawn = drawn.map(|((name, points), color)| {
        points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let points = points.iter().map(|(x, point)| {
            let ends = point.extremes.map(|(min, max)| [up.at(min), up.at(max)]);
            let reference = point.reference.map(|reference| up.at(reference));
            context! { x => across.at(*x), y => up.at(point.row.value), ends, reference }
        });
        context! { name, color, points => points.collect::<Vec<_>>() }
    });
    let drawn: Vec<_> = drawn.collect();
    let ends = |axis: &Axis, unit: &str| [human(axis.low, unit), human(axis.high, unit)];
    let (x, y) = (ends(&across, "1"), ends(&up, metric.unit));
    Ok(Some(
        context! { common => common.join(", "), axis, x, y, curves => drawn },
    ))
}

/// The coordinates of values on an axis.
struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
    /// The coordinates of both ends.
    span: Range<f64>,
}

impl Axis {
    /// With `from_zero`, an axis that is not logarithmic starts at zero, so that heights can be compared.
    fn over(values: impl Iterator<Item = f64>, from_zero: bool, span: Range<f64>) -> Result<Self> {
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        ensure!(
            low.is_finite() && high.is_finite(),
            "no finite values to draw: {low} to {high}"
        );
        let is_log = low > 0.0 && high / low > LOG_SPAN;
        let low = if from_zero && !is_log {
            low.min(0.0)
        } else {
            low
        };
        let high = if high > low { high } else { low.abs() + 1.0 };
        Ok(Self {
            low,
            high,
            is_log,
            span,
        })
    }

    fn at(&self, value: f64) -> String {
        let scaled = |value: f64| if self.is_log { value.ln() } else { value };
        let part = (scaled(value) - scaled(self.low)) / (scaled(self.high) - scaled(self.low));
        format!(
            "{:.1}",
            self.span.start + part * (self.span.end - self.span.start)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::Run;
    use crate::report::pages::all_rows;

    /// The page of one value for each case, if it has a chart.
    fn of(cases: &[(&str, f64)]) -> Option<String> {
        let mut run = Run::new("copy", true);
        for (case, value) in cases {
            run.value(case, "time", "ns", *value).unwrap();
        }
        let page = all_rows(&run.into_rows(), &[]).unwrap();
        page.contains("<svg").then_some(page)
    }

    #[test]
    fn numbers_make_a_line_and_common_pairs_stand_once() {
        let line = of(&[
            ("on=<gpu>, policy=lru, n=4", 1.0),
            ("on=<gpu>, policy=lru, n=2", 2.0),
            ("on=<gpu>, policy=fifo, n=8", 3.0),
        ]);
        let line = line.unwrap();
        assert_eq!(line.matches("<circle").count(), 3, "{line}");
        let above = line.split("<svg").next().unwrap();
        assert!(above.contains("policy=lru") && above.contains("policy=fifo"));
        assert_eq!(above.matches("on=&lt;gpu&gt;").count(), 1, "{line}");
    }

    #[test]
    fn names_and_numbers_of_different_things_make_none() {
        assert_eq!(of(&[("policy=lru", 1.0), ("policy=fifo", 2.0)]), None);
        assert_eq!(of(&[("n=1", 1.0), ("n=2", 2.0), ("m=3", 3.0)]), None);
    }

    #[test]
    fn equal_values_and_zeros_stay_in_the_picture() {
        let chart = of(&[("a=x, n=0", 0.0), ("a=x, n=1", 0.0), ("a=y, n=1", 0.0)]).unwrap();
        assert_eq!(chart.matches("<circle").count(), 3, "{chart}");
        assert!(!chart.contains("NaN") && !chart.contains("inf"), "{chart}");
    }

    #[test]
    fn a_wide_axis_is_logarithmic() {
        let axis = |values: &[f64], from_zero| {
            Axis::over(values.iter().copied(), from_zero, 0.0..100.0).unwrap()
        };
        assert_eq!(axis(&[1.0, 100.0], true).at(10.0), "50.0");
        assert_eq!(axis(&[1.0, 4.0], true).at(2.0), "50.0");
        assert_eq!(axis(&[1.0, 3.0], false).at(2.0), "50.0");
        assert!(Axis::over([f64::NAN].into_iter(), true, 0.0..1.0).is_err());
    }
}
