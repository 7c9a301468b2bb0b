//! Charts as SVG: a line where the cases are numbers, bars where they are names.

use super::group::{Metric, Point, split};
use super::html::escape;
use super::units::human;

const COLORS: [&str; 6] = [
    "#2266aa", "#cc5522", "#338844", "#885599", "#aa8811", "#557788",
];

/// A line needs at least this many points; fewer are bars.
const LEAST_POINTS: usize = 3;

/// An axis marks the numbers that were measured, unless there are more than this.
const MOST_MARKS: usize = 8;

/// An axis whose ends are farther apart than this is logarithmic.
const LOG_SPAN: f64 = 50.0;

/// The chart of one metric.
pub(crate) fn chart(metric: &Metric<'_>) -> String {
    match lines(metric) {
        Some((axis, lines)) => line_chart(metric, axis, &lines),
        None => bar_chart(metric),
    }
}

/// The points of one value of the pairs before the last, by the number of the last.
struct Line<'a> {
    name: &'a str,
    points: Vec<(f64, &'a Point<'a>)>,
}

/// The key of the last pairs, and the lines over it; `None` when some case is no number, or the cases
/// number different things.
fn lines<'a>(metric: &'a Metric<'a>) -> Option<(&'a str, Vec<Line<'a>>)> {
    let (_, axis, _) = split(&metric.points.first()?.row.case)?;
    let mut lines: Vec<Line<'a>> = Vec::new();
    for point in &metric.points {
        let (name, _, x) = split(&point.row.case).filter(|(_, key, _)| *key == axis)?;
        let line = match lines.iter().position(|line| line.name == name) {
            Some(at) => &mut lines[at],
            None => lines.push_mut(Line {
                name,
                points: Vec::new(),
            }),
        };
        line.points.push((x, point));
    }
    lines
        .iter_mut()
        .for_each(|line| line.points.sort_by(|(a, _), (b, _)| a.total_cmp(b)));
    lines
        .iter()
        .any(|line| line.points.len() >= LEAST_POINTS)
        .then_some((axis, lines))
}

fn bar_chart(metric: &Metric<'_>) -> String {
    const LEFT: f64 = 260.0;
    const LENGTH: f64 = 380.0;
    const STEP: f64 = 24.0;
    let tops = metric.points.iter().flat_map(|point| {
        let (_, max) = ends(point);
        [max, point.row.reference.unwrap_or(0.0)]
    });
    let top = tops.fold(0.0, f64::max);
    let scale = if top > 0.0 { LENGTH / top } else { 0.0 };
    let mut body = String::new();
    for (at, point) in metric.points.iter().enumerate() {
        let y = at as f64 * STEP + 4.0;
        let middle = y + 8.0;
        let right = LEFT + point.row.value.max(0.0) * scale;
        body += &text(LEFT - 8.0, middle + 4.0, "end", &point.row.case);
        body += &format!(
            r#"<rect x="{LEFT}" y="{y}" width="{:.1}" height="16" fill="{}"/>"#,
            right - LEFT,
            COLORS[0]
        );
        if let Some((min, max)) = point.extremes {
            body += &segment(
                LEFT + min * scale,
                middle,
                LEFT + max * scale,
                middle,
                "#222",
            );
        }
        if let Some(reference) = point.row.reference {
            let x = LEFT + reference * scale;
            body += &segment(x, y - 2.0, x, y + 18.0, COLORS[1]);
        }
        let end = right.max(LEFT + ends(point).1 * scale);
        body += &text(
            end + 6.0,
            middle + 4.0,
            "start",
            &human(point.row.value, metric.unit),
        );
    }
    svg(760.0, metric.points.len() as f64 * STEP + 8.0, &body)
}

fn line_chart(metric: &Metric<'_>, axis: &str, lines: &[Line<'_>]) -> String {
    let all = || lines.iter().flat_map(|line| &line.points);
    let across = Axis::over(all().map(|(x, _)| *x), 90.0, 640.0, false);
    let values = all().flat_map(|(_, point)| {
        let (min, max) = ends(point);
        [Some(min), Some(max), point.row.reference]
            .into_iter()
            .flatten()
    });
    let up = Axis::over(values, 290.0, 20.0, true);
    let mut body = String::new();
    for y in up.ticks() {
        body += &segment(90.0, up.at(y), 640.0, up.at(y), "#ddd");
        body += &text(84.0, up.at(y) + 4.0, "end", &human(y, metric.unit));
    }
    let mut measured: Vec<f64> = all().map(|(x, _)| *x).collect();
    measured.sort_by(f64::total_cmp);
    measured.dedup();
    let marks = if measured.len() <= MOST_MARKS {
        measured
    } else {
        across.ticks()
    };
    for x in marks {
        body += &segment(across.at(x), 290.0, across.at(x), 294.0, "#222");
        body += &text(across.at(x), 308.0, "middle", &human(x, "1"));
    }
    body += &text(365.0, 326.0, "middle", axis);
    for (at, line) in lines.iter().enumerate() {
        let color = COLORS[at % COLORS.len()];
        let path = |value: fn(&Point<'_>) -> Option<f64>| -> String {
            let points = line
                .points
                .iter()
                .filter_map(|(x, point)| Some((x, value(point)?)));
            points
                .map(|(x, y)| format!("{:.1},{:.1} ", across.at(*x), up.at(y)))
                .collect()
        };
        let reference = path(|point| point.row.reference);
        let values = path(|point| Some(point.row.value));
        body += &format!(
            r#"<polyline points="{reference}" fill="none" stroke="{color}" stroke-dasharray="4 4"/>"#
        );
        body += &format!(
            r#"<polyline points="{values}" fill="none" stroke="{color}" stroke-width="2"/>"#
        );
        for (x, point) in &line.points {
            let (x, y, (min, max)) = (across.at(*x), up.at(point.row.value), ends(point));
            body += &segment(x, up.at(min), x, up.at(max), color);
            body += &format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{color}"/>"#);
        }
        let y = 30.0 + 18.0 * at as f64;
        body += &segment(654.0, y - 4.0, 674.0, y - 4.0, color);
        body += &text(680.0, y, "start", line.name);
    }
    svg(
        900.0,
        334.0_f64.max(30.0 + 18.0 * lines.len() as f64),
        &body,
    )
}

/// The smallest and the largest measurement of a point.
fn ends(point: &Point<'_>) -> (f64, f64) {
    point.extremes.unwrap_or((point.row.value, point.row.value))
}

/// From values to places in the picture.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    is_log: bool,
}

impl Axis {
    /// With `zero`, an axis that is not logarithmic starts at zero, so that heights can be compared.
    fn over(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64, zero: bool) -> Self {
        let low = values.clone().fold(f64::INFINITY, f64::min);
        let high = values.fold(f64::NEG_INFINITY, f64::max);
        let is_log = low > 0.0 && high / low > LOG_SPAN;
        let low = if zero && !is_log { low.min(0.0) } else { low };
        Self {
            low,
            high: if high > low { high } else { low + 1.0 },
            from,
            to,
            is_log,
        }
    }

    fn at(&self, value: f64) -> f64 {
        let part = if self.is_log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + part * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        let at = |step: u32| {
            let part = f64::from(step) / 4.0;
            if self.is_log {
                self.low * (self.high / self.low).powf(part)
            } else {
                self.low + part * (self.high - self.low)
            }
        };
        (0..=4).map(at).collect()
    }
}

fn segment(x1: f64, y1: f64, x2: f64, y2: f64, color: &str) -> String {
    format!(r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{color}"/>"#)
}

fn text(x: f64, y: f64, anchor: &str, text: &str) -> String {
    format!(
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#,
        escape(text)
    )
}

fn svg(width: f64, height: f64, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">{body}</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::Run;
    use crate::report::group::sections;

    /// The chart of one value for each case.
    fn of(cases: &[(&str, f64)]) -> String {
        let mut run = Run::new("copy", true);
        for (case, value) in cases {
            run.value(case, "time", "ns", *value).unwrap();
        }
        chart(&sections(&run.into_rows())[0].metrics[0])
    }

    #[test]
    fn numbers_make_a_line_and_names_make_bars() {
        let line = of(&[
            ("policy=lru, n=4", 1.0),
            ("policy=lru, n=2", 2.0),
            ("policy=lru, n=8", 3.0),
        ]);
        assert_eq!(line.matches("<circle").count(), 3);
        assert!(line.contains("policy=lru"));
        for bars in [
            of(&[
                ("policy=lru", 1.0),
                ("policy=<fifo>", 2.0),
                ("policy=score", 3.0),
            ]),
            of(&[("n=1", 1.0), ("n=2", 2.0), ("m=3", 3.0)]),
        ] {
            assert_eq!(bars.matches("<rect").count(), 3, "{bars}");
            assert!(
                !bars.contains("<circle") && !bars.contains("<fifo>"),
                "{bars}"
            );
        }
    }

    #[test]
    fn equal_values_and_zeros_stay_in_the_picture() {
        for cases in [
            [("n=1", 0.0), ("n=1", 0.0), ("n=1", 0.0)],
            [("a=x", 0.0), ("a=y", 0.0), ("a=z", 0.0)],
        ] {
            let chart = of(&cases);
            assert!(!chart.contains("NaN") && !chart.contains("inf"), "{chart}");
        }
    }

    #[test]
    fn a_wide_axis_is_logarithmic() {
        let axis = Axis::over([1.0, 100.0].into_iter(), 0.0, 10.0, true);
        assert!((axis.at(10.0) - 5.0).abs() < 1e-9);
        let axis = Axis::over([1.0, 4.0].into_iter(), 0.0, 8.0, true);
        assert!((axis.at(2.0) - 4.0).abs() < 1e-9);
    }
}
