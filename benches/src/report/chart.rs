//! Charts as SVG: lines over the number that the cases end with.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::group::{Metric, Point, pairs, split};
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

const FONT: (&str, i32) = ("sans-serif", 13);

/// The chart of one metric over the number that ends its cases; `None` where they end with names, or with
/// different things: the table says the same then.
///
/// # Errors
/// When a value is no finite number.
pub(crate) fn chart(metric: &Metric<'_>) -> Result<Option<String>> {
    let (common, names) = names(metric);
    let Some((axis, lines)) = lines(metric, &names) else {
        return Ok(None);
    };
    let mut svg = String::new();
    line_chart(&mut svg, metric, axis, &lines)?;
    let common = escape(&common);
    Ok(Some(format!(
        "<p>{common}</p>\n<p>{}</p>\n{svg}\n",
        legend(&lines)
    )))
}

/// The pairs that all cases share, and each case without them.
fn names(metric: &Metric<'_>) -> (String, Vec<String>) {
    let all = |pair: &str| {
        let mut points = metric.points.iter();
        metric.points.len() > 1 && points.all(|point| pairs(&point.row.case).any(|p| p == pair))
    };
    let of = |case: &str, is_common: bool| {
        let chosen: Vec<_> = pairs(case).filter(|pair| all(pair) == is_common).collect();
        chosen.join(", ")
    };
    let common = metric.points.first().map(|point| of(&point.row.case, true));
    let names = metric.points.iter().map(|point| of(&point.row.case, false));
    (common.unwrap_or_default(), names.collect())
}

/// The points of one value of the pairs before the last, by the number of the last.
struct Curve<'a> {
    name: String,
    points: Vec<(f64, &'a Point<'a>)>,
}

/// The key of the last pairs, and the lines over it; `None` when some case is no number, or the cases
/// number different things.
fn lines<'a>(metric: &'a Metric<'a>, names: &'a [String]) -> Option<(&'a str, Vec<Curve<'a>>)> {
    let (_, axis, _) = split(names.first()?)?;
    let mut lines: Vec<Curve<'a>> = Vec::new();
    for (point, name) in metric.points.iter().zip(names) {
        let (name, _, x) = split(name).filter(|(_, key, _)| *key == axis)?;
        let line = match lines.iter().position(|line| line.name == name) {
            Some(at) => &mut lines[at],
            None => lines.push_mut(Curve {
                name: name.to_owned(),
                points: Vec::new(),
            }),
        };
        line.points.push((x, point));
    }
    for line in &mut lines {
        line.points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    }
    let is_line = |line: &Curve<'_>| line.points.len() > 1;
    lines.iter().any(is_line).then_some((axis, lines))
}

fn legend(lines: &[Curve<'_>]) -> String {
    let entry = |(line, color): (&Curve<'_>, &RGBColor)| {
        let RGBColor(r, g, b) = color;
        let name = escape(&line.name);
        format!(
            "<span style=\"white-space:nowrap\"><span style=\"color:rgb({r},{g},{b})\">&#9632;</span> {name}</span> &ensp; "
        )
    };
    let named = lines.iter().filter(|line| !line.name.is_empty());
    named.zip(COLORS.iter().cycle()).map(entry).collect()
}

fn line_chart(
    svg: &mut String,
    metric: &Metric<'_>,
    axis: &str,
    lines: &[Curve<'_>],
) -> Result<()> {
    let all = || lines.iter().flat_map(|line| &line.points);
    let across = Axis::over(all().map(|(x, _)| *x), false)?;
    let up = Axis::over(all().flat_map(|(_, point)| values(point)), true)?;
    let area = SVGBackend::with_string(svg, (760, 320)).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .x_label_area_size(44)
        .y_label_area_size(84)
        .build_cartesian_2d(across.range(), up.range())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(FONT)
        .x_desc(axis)
        .x_label_formatter(&|x| human(across.value(*x), "1"))
        .y_label_formatter(&|y| human(up.value(*y), metric.unit))
        .draw()?;
    for (line, color) in lines.iter().zip(COLORS.iter().cycle()) {
        let at = |x: f64, y: f64| (across.at(x), up.at(y));
        let medians = line.points.iter().map(|(x, p)| at(*x, p.row.value));
        chart.draw_series(LineSeries::new(medians, color.stroke_width(2)).point_size(3))?;
        let spans = line.points.iter().filter_map(|(x, point)| {
            let (min, max) = point.extremes?;
            Some(PathElement::new([at(*x, min), at(*x, max)], color))
        });
        chart.draw_series(spans)?;
        let references = line.points.iter().filter_map(|(x, point)| {
            Some(Cross::new(
                at(*x, point.row.reference?),
                6,
                color.stroke_width(2),
            ))
        });
        chart.draw_series(references)?;
    }
    area.present().map_err(|error| anyhow!("{error}"))
}

/// All that an axis has to hold of a point: its value, its extremes and what it is compared with.
fn values<'a>(point: &'a Point<'_>) -> impl Iterator<Item = f64> + Clone + 'a {
    let (min, max) = point.extremes.unzip();
    [Some(point.row.value), min, max, point.row.reference]
        .into_iter()
        .flatten()
}

/// From values to the coordinates that are drawn: themselves or their logarithm to `base`.
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
        if !(low.is_finite() && high.is_finite()) {
            return Err(anyhow!("no finite values to draw: {low} to {high}"));
        }
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
    fn range(&self) -> std::ops::Range<f64> {
        let (low, high) = (self.at(self.low), self.at(self.high));
        let room = (high - low) * 0.05;
        let low = if self.low == 0.0 { low } else { low - room };
        low..high + room
    }

    fn at(&self, value: f64) -> f64 {
        self.base.map_or(value, |base| value.log(base))
    }

    fn value(&self, at: f64) -> f64 {
        self.base.map_or(at, |base| base.powf(at))
    }
}

/// `text` as it may stand in HTML and SVG.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::Run;
    use crate::report::group::sections;

    /// The chart of one value for each case.
    fn of(cases: &[(&str, f64)]) -> Option<String> {
        let mut run = Run::new("copy", true);
        for (case, value) in cases {
            run.value(case, "time", "ns", *value).unwrap();
        }
        chart(&sections(&run.into_rows())[0].metrics[0]).unwrap()
    }

    #[test]
    fn numbers_make_a_line_and_what_all_share_is_said_once() {
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
