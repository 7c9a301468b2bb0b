//! Charts as SVG: lines over the number that the cases end with.

use std::ops::Range;

use anyhow::{Result, anyhow, ensure};
use plotters::prelude::*;

use super::query::{Metric, Point, common, pairs, split};
use super::units::human;

/// Colours of Okabe and Ito, which colour-blind readers can tell apart.
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// An axis whose ends are farther apart than this is logarithmic.
const LOG_SPAN: f64 = 50.0;

/// The points of one value of the pairs before the last, by the number of the last.
struct Curve<'a> {
    name: String,
    points: Vec<(f64, Point<'a>)>,
}

/// Returns the chart of one metric over the number that ends its cases, as HTML; `None` where they end with names, or with numbers of
/// different things.
///
/// # Errors
/// When a value is no finite number.
pub(crate) fn chart(metric: &Metric<'_>) -> Result<Option<String>> {
    let common = common(&metric.points);
    let mut axis = None;
    let mut curves: Vec<Curve<'_>> = Vec::new();
    for point in &metric.points {
        let own = pairs(&point.row.case).filter(|pair| !common.contains(pair));
        let name = own.collect::<Vec<_>>().join(", ");
        let Some((series, key, x)) = split(&name) else {
            return Ok(None);
        };
        if axis.get_or_insert_with(|| key.to_owned()) != key {
            return Ok(None);
        }
        let at = curves
            .iter()
            .position(|curve| curve.name == series)
            .unwrap_or_else(|| {
                curves.push(Curve {
                    name: series.to_owned(),
                    points: Vec::new(),
                });
                curves.len() - 1
            });
        curves[at].points.push((x, *point));
    }
    curves
        .iter_mut()
        .for_each(|curve| curve.points.sort_by(|(a, _), (b, _)| a.total_cmp(b)));
    if curves.iter().all(|curve| curve.points.len() < 2) {
        return Ok(None);
    }
    let legend =
        curves
            .iter()
            .zip(COLORS.iter().cycle())
            .map(|(Curve { name, .. }, RGBColor(r, g, b))| {
                format!(
                    "<span style=\"color:rgb({r},{g},{b})\">&#9632;</span> {} &ensp; ",
                    escape(name)
                )
            });
    let legend: String = legend.collect();
    let svg = svg(metric.unit, &axis.unwrap_or_default(), &curves)?;
    Ok(Some(format!(
        "<p>{}</p>\n<p>{legend}</p>\n{svg}\n",
        escape(&common.join(", "))
    )))
}

fn svg(unit: &str, axis: &str, curves: &[Curve<'_>]) -> Result<String> {
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let across = Axis::over(all().map(|(x, _)| *x), false)?;
    let values = |point: &Point<'_>| {
        let (min, max) = point.extremes.unzip();
        [Some(point.row.value), min, max, point.reference]
            .into_iter()
            .flatten()
    };
    let up = Axis::over(all().flat_map(|(_, point)| values(point)), true)?;
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (760, 320)).into_drawing_area();
    let mut builder = ChartBuilder::on(&area);
    builder
        .margin(10)
        .x_label_area_size(44)
        .y_label_area_size(84);
    let mut chart = builder.build_cartesian_2d(across.range(), up.range())?;
    let (name_x, name_y) = (
        |x: &f64| human(across.value(*x), "1"),
        |y: &f64| human(up.value(*y), unit),
    );
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT)
        .label_style(("sans-serif", 13))
        .x_desc(axis);
    mesh.x_label_formatter(&name_x)
        .y_label_formatter(&name_y)
        .draw()?;
    for (Curve { points, .. }, color) in curves.iter().zip(COLORS.iter().cycle()) {
        let at = |x: f64, y: f64| (across.at(x), up.at(y));
        let medians = points.iter().map(|(x, point)| at(*x, point.row.value));
        chart.draw_series(LineSeries::new(medians, color.stroke_width(2)).point_size(3))?;
        let spans = points
            .iter()
            .filter_map(|(x, point)| Some((*x, point.extremes?)));
        chart.draw_series(
            spans.map(|(x, (min, max))| PathElement::new([at(x, min), at(x, max)], color)),
        )?;
        let references = points
            .iter()
            .filter_map(|(x, point)| Some(at(*x, point.reference?)));
        chart.draw_series(references.map(|at| Cross::new(at, 6, color.stroke_width(2))))?;
    }
    area.present().map_err(|error| anyhow!("{error}"))?;
    drop((chart, area));
    Ok(svg)
}

/// The coordinates of values: themselves, or their logarithm to `base`.
struct Axis {
    low: f64,
    high: f64,
    base: Option<f64>,
}

impl Axis {
    /// With `from_zero`, an axis that is not logarithmic starts at zero, so that heights can be compared.
    fn over(values: impl Iterator<Item = f64> + Clone, from_zero: bool) -> Result<Self> {
        let low = values.clone().fold(f64::INFINITY, f64::min);
        let high = values.clone().fold(f64::NEG_INFINITY, f64::max);
        ensure!(
            low.is_finite() && high.is_finite(),
            "no finite values to draw: {low} to {high}"
        );
        let is_log = low > 0.0 && high / low > LOG_SPAN;
        // Counts are often powers of two.
        let is_two = !from_zero && values.into_iter().all(|value| value.log2().fract() == 0.0);
        Ok(Self {
            low: if from_zero && !is_log {
                low.min(0.0)
            } else {
                low
            },
            high: if high > low { high } else { low.abs() + 1.0 },
            base: is_log.then_some(if is_two { 2.0 } else { 10.0 }),
        })
    }

    /// The coordinates, with a little room where the axis does not start at zero.
    fn range(&self) -> Range<f64> {
        let (low, high) = (self.at(self.low), self.at(self.high));
        let room = (high - low) * 0.05;
        low - if self.low == 0.0 { 0.0 } else { room }..high + room
    }

    fn at(&self, value: f64) -> f64 {
        self.base.map_or(value, |base| value.log(base))
    }

    fn value(&self, at: f64) -> f64 {
        self.base.map_or(at, |base| base.powf(at))
    }
}

fn escape(text: &str) -> minijinja::HtmlEscape<'_> {
    minijinja::HtmlEscape(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::Run;
    use crate::report::query::metrics;

    /// The chart of one value for each case.
    fn of(cases: &[(&str, f64)]) -> Option<String> {
        let mut run = Run::new("copy", true);
        for (case, value) in cases {
            run.value(case, "time", "ns", *value).unwrap();
        }
        chart(&metrics(&run.into_rows())[0]).unwrap()
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
        assert!(line.contains("policy=lru") && line.contains("policy=fifo"));
        assert_eq!(line.matches("on=&lt;gpu&gt;").count(), 1, "{line}");
    }

    #[test]
    fn names_and_numbers_of_different_things_make_none() {
        assert_eq!(of(&[("policy=lru", 1.0), ("policy=fifo", 2.0)]), None);
        assert_eq!(of(&[("n=1", 1.0), ("n=2", 2.0), ("m=3", 3.0)]), None);
    }

    #[test]
    fn equal_values_and_zeros_stay_in_the_picture() {
        let chart = of(&[("a=x, n=0", 0.0), ("a=x, n=1", 0.0), ("a=y, n=1", 0.0)]).unwrap();
        assert!(!chart.contains("NaN") && !chart.contains("inf"), "{chart}");
    }

    #[test]
    fn a_wide_axis_is_logarithmic() {
        let wide = Axis::over([1.0, 100.0].into_iter(), true).unwrap();
        assert!((wide.at(10.0) - 1.0).abs() < 1e-9 && (wide.value(2.0) - 100.0).abs() < 1e-9);
        let powers = Axis::over([1.0, 64.0].into_iter(), false).unwrap();
        assert_eq!(powers.at(8.0), 3.0);
        let narrow = Axis::over([1.0, 4.0].into_iter(), true).unwrap();
        assert_eq!((narrow.low, narrow.at(2.0)), (0.0, 2.0));
        assert!(Axis::over([f64::NAN].into_iter(), true).is_err());
    }
}
